#include "planner/show/budget_facts.h"

#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"

#include <math.h>

static const double DAY_SECONDS = 86400;

static const char *take(Arena *arena, StrBuf *text) {
    const char *copy = arena_strdup(arena, text->text);
    strbuf_destroy(text);
    return copy;
}

/* The figures of a point's layout, with what so many tokens take; 0: none. */
static LayoutFacts facts_for(const BudgetPoint *point, const BudgetReport *report, double tokens) {
    const BudgetRow *row = point->row;
    SearchReport one = {.costs = row->costs,
                        .request = &row->request,
                        .result = row->result,
                        .options = row->options,
                        .days_tokens = tokens,
                        .failures = report->failures};
    return layout_facts(&one, point->found);
}

/* Does nothing come of it, as devices fail more often than it makes progress? */
static bool is_hopeless(Arena *arena, BudgetPoint *point, const BudgetReport *report) {
    const RunGoodput *goodput = &point->facts.goodput;
    if (goodput->state != GOODPUT_HOPELESS) return false;
    StrBuf why = strbuf_create();
    goodput_put(&why, goodput, report->cluster, report->n_ranks);
    point->trouble = take(arena, &why);
    return true;
}

/* Device-hours and price of so many days. */
static void set_days(BudgetPoint *point, const BudgetReport *report, double days) {
    point->days = days;
    point->device_hours = days * 24 * report->n_ranks;
    point->price = point->device_hours * report->cluster->price_per_device_hour;
}

/* Whole steps that fit into the days, with failures and checkpoints where they are counted. */
static void spend_days(Arena *arena, BudgetPoint *point, const BudgetReport *report) {
    double step_tokens = point->facts.tokens_per_second * point->facts.step_seconds;
    double seconds = report->days * DAY_SECONDS;
    double most_steps = floor(seconds / point->facts.step_seconds);
    point->facts = facts_for(point, report, seconds * point->facts.tokens_per_second);
    if (is_hopeless(arena, point, report)) return;
    const RunGoodput *goodput = &point->facts.goodput;
    point->steps =
        goodput_is_counted(goodput) ? goodput_steps_in(&goodput->input, seconds) : most_steps;
    point->tokens = point->steps * step_tokens;
    set_days(point, report, report->days);
    point->facts = facts_for(point, report, point->tokens);
    if (point->steps < 1) {
        char step[UNIT_TEXT];
        point->trouble = arena_printf(arena, "a step takes %s, which%s is longer than the budget",
                                      unit_us(point->found->cost.step_us, step),
                                      most_steps < 1 ? "" : " with a checkpoint");
        return;
    }
    point->worth = law_unique_worth(point->tokens, report->tokens_limit);
    point->loss = law_loss(&report->law->terms, point->parameters, point->worth);
}

static void reach_loss(Arena *arena, BudgetPoint *point, const BudgetReport *report) {
    const LawTerms *law = &report->law->terms;
    double step_tokens = point->facts.tokens_per_second * point->facts.step_seconds;
    double worth = law_tokens_for(law, report->target_loss, point->parameters);
    double tokens = isfinite(worth) ? law_tokens_worth(worth, report->tokens_limit) : INFINITY;
    if (!isfinite(tokens)) {
        double most = law_unique_worth(1e30, report->tokens_limit);
        point->trouble = arena_printf(
            arena, "does not reach the loss with %s: %.4g at best",
            isfinite(worth) ? "these data, however often they come again" : "any number of tokens",
            law_loss(law, point->parameters, report->tokens_limit > 0 ? most : 1e300));
        return;
    }
    point->steps = ceil(tokens / step_tokens);
    point->tokens = point->steps * step_tokens;
    point->worth = law_unique_worth(point->tokens, report->tokens_limit);
    point->loss = law_loss(law, point->parameters, point->worth);
    point->facts = facts_for(point, report, point->tokens);
    if (!is_hopeless(arena, point, report)) set_days(point, report, point->facts.real_days);
}

static BudgetPoint point_of(Arena *arena, const BudgetReport *report, const BudgetRow *row) {
    BudgetPoint point = {.row = row};
    if (row->costs) point.parameters = row->costs->n_active_parameters;
    if (!row->result) {
        point.trouble = row->refusal ? row->refusal : "could not be searched";
        return point;
    }
    if (row->result->n_found == 0) {
        char missing[UNIT_TEXT];
        const SearchResult *result = row->result;
        const char *ranks = result->least_ranks > 0
                                ? arena_printf(arena, "; %d ranks would do", result->least_ranks)
                                : "";
        unit_bytes((double)result->least_missing_bytes, missing);
        point.trouble =
            arena_printf(arena, "nothing fits: %s missing per device%s", missing, ranks);
        return point;
    }
    point.found = &row->result->found[0];
    point.facts = facts_for(&point, report, 0);
    if (report->days > 0) {
        spend_days(arena, &point, report);
    } else {
        reach_loss(arena, &point, report);
    }
    point.per_parameter = point.tokens / point.parameters;
    if (report->tokens_limit > 0) point.epochs = point.tokens / report->tokens_limit;
    point.beyond = law_is_beyond(report->law, point.parameters, point.worth);
    return point;
}

/* What is to be small: the loss, or what it takes to reach it. */
static double badness(const BudgetReport *report, const BudgetPoint *point) {
    return report->days > 0 ? point->loss : point->device_hours;
}

static void rank_points(BudgetFacts *facts) {
    facts->best = facts->second = -1;
    for (int i = 0; i < facts->n_points; i++) {
        const BudgetPoint *points = facts->points;
        if (points[i].trouble) continue;
        double bad = badness(facts->report, &points[i]);
        if (facts->best < 0 || bad < badness(facts->report, &points[facts->best])) {
            facts->second = facts->best;
            facts->best = i;
        } else if (facts->second < 0 || bad < badness(facts->report, &points[facts->second])) {
            facts->second = i;
        }
    }
}

/* What is to be small by another law than the report's. */
static double badness_by(const LawTerms *law, const BudgetReport *report,
                         const BudgetPoint *point) {
    if (report->days > 0) {
        return point->trouble ? INFINITY : law_loss(law, point->parameters, point->worth);
    }
    double worth = law_tokens_for(law, report->target_loss, point->parameters);
    double tokens = law_tokens_worth(worth, report->tokens_limit);
    if (!isfinite(tokens)) return INFINITY;
    LayoutFacts facts = facts_for(point, report, tokens);
    return facts.real_days > 0 ? facts.real_days : INFINITY;
}

/* What each of the law's draws says is the best. */
static void count_draws(BudgetFacts *facts) {
    const BudgetReport *report = facts->report;
    for (int d = 0; d < report->law->n_draws; d++) {
        const LawTerms *law = &report->law->draws[d];
        int best = -1;
        double least = INFINITY;
        for (int i = 0; i < facts->n_points; i++) {
            if (!facts->points[i].found) continue;
            double bad = badness_by(law, report, &facts->points[i]);
            if (bad < least) least = bad, best = i;
        }
        if (best >= 0) facts->points[best].n_best++;
    }
}

BudgetFacts *budget_facts_create(Arena *arena, const BudgetReport *report) {
    BudgetFacts *facts = ARENA_NEW(arena, BudgetFacts);
    *facts = (BudgetFacts){.arena = arena, .report = report, .n_points = report->n_rows};
    facts->points = ARENA_ARRAY(arena, BudgetPoint, report->n_rows + 1);
    for (int i = 0; i < report->n_rows; i++) {
        facts->points[i] = point_of(arena, report, &report->rows[i]);
        facts->counts_failures |= goodput_is_counted(&facts->points[i].facts.goodput);
        facts->limit_bytes = search_memory_limit(&report->rows[i].request, report->cluster);
    }
    rank_points(facts);
    count_draws(facts);
    if (facts->best >= 0) {
        const BudgetPoint *best = &facts->points[facts->best];
        facts->best_flops = LAW_FLOPS * best->parameters * best->tokens;
        facts->optimum = law_optimum(&report->law->terms, facts->best_flops);
    }
    return facts;
}

const char *per_parameter_text(double per_parameter, char *text) {
    if (per_parameter >= 1000) return unit_count(per_parameter, text);
    snprintf(text, UNIT_TEXT, "%.3g", per_parameter);
    return text;
}

double budget_worse(const BudgetFacts *facts, const BudgetPoint *point) {
    const BudgetPoint *best = &facts->points[facts->best];
    if (facts->report->days > 0) return point->loss - best->loss;
    return point->device_hours / best->device_hours - 1;
}

/* "14.0 days, 21.5 k device-hours, 64.5 k USD" */
static void put_spent(StrBuf *out, const BudgetFacts *facts, double days) {
    const Cluster *cluster = facts->report->cluster;
    char a[2 * UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    double hours = days * 24 * facts->report->n_ranks;
    strbuf_printf(out, "%s, %s device-hours", duration_text(days, a), small_text(hours, b));
    if (cluster->price_per_device_hour <= 0) return;
    strbuf_printf(out, ", %s ", small_text(hours * cluster->price_per_device_hour, c));
    strbuf_put(out, cluster->currency ? cluster->currency : "");
}

const char *budget_text(const BudgetFacts *facts) {
    const BudgetReport *report = facts->report;
    StrBuf out = strbuf_create();
    if (report->days > 0) {
        put_spent(&out, facts, report->days);
        if (report->cluster->price_per_device_hour > 0) {
            strbuf_printf(&out, " at %.2f an hour", report->cluster->price_per_device_hour);
        }
    } else {
        strbuf_printf(&out, "what it takes to reach a loss of %.4g", report->target_loss);
    }
    if (report->tokens_limit > 0) {
        char text[UNIT_TEXT];
        strbuf_printf(&out, "; there are %s different tokens",
                      unit_count(report->tokens_limit, text));
    }
    return take(facts->arena, &out);
}

const char *budget_best_text(const BudgetFacts *facts) {
    const BudgetPoint *best = &facts->points[facts->best];
    char a[UNIT_TEXT], b[UNIT_TEXT];
    StrBuf out = strbuf_create();
    strbuf_printf(&out, "%s: loss %.4f, on %s tokens (%s a parameter", best->row->size, best->loss,
                  unit_count(best->tokens, a), per_parameter_text(best->per_parameter, b));
    if (best->epochs > 0) strbuf_printf(&out, ", %.3g epochs", best->epochs);
    strbuf_put(&out, ") in ");
    put_spent(&out, facts, best->days);
    if (facts->second >= 0) {
        const BudgetPoint *second = &facts->points[facts->second];
        double worse = budget_worse(facts, second);
        if (facts->report->days > 0) {
            strbuf_printf(&out, "; then %s, whose loss is %.4f more", second->row->size, worse);
        } else {
            strbuf_printf(&out, "; then %s, for %.1f %% more", second->row->size, 100 * worse);
        }
    }
    return take(facts->arena, &out);
}

const char *budget_optimum_text(const BudgetFacts *facts) {
    char a[UNIT_TEXT], b[UNIT_TEXT];
    bool limited = facts->report->tokens_limit > 0;
    return arena_printf(facts->arena,
                        "of as many FLOPs (6 N D: %.2e), the law's best is %s parameters on %s "
                        "tokens%s: loss %.4f",
                        facts->best_flops, unit_count(facts->optimum.parameters, a),
                        unit_count(facts->optimum.tokens, b),
                        limited && facts->optimum.tokens > facts->report->tokens_limit
                            ? ", if all were different"
                            : "",
                        facts->optimum.loss);
}

const char *budget_goodput_text(const BudgetFacts *facts) {
    const BudgetReport *report = facts->report;
    StrBuf out = strbuf_create();
    goodput_put(&out, &facts->points[facts->best].facts.goodput, report->cluster, report->n_ranks);
    const char *text = take(facts->arena, &out);
    return *text ? text : NULL;
}

const char *budget_sure_text(const BudgetFacts *facts) {
    const ScalingLaw *law = facts->report->law;
    if (law->n_draws == 0) return NULL;
    return arena_printf(
        facts->arena, "%s is the best by %d of %d laws that were fitted to the runs drawn again",
        facts->points[facts->best].row->size, facts->points[facts->best].n_best, law->n_draws);
}

int show_budget_best(const BudgetReport *report) {
    Arena *arena = arena_create();
    int best = budget_facts_create(arena, report)->best;
    arena_destroy(arena);
    return best;
}
