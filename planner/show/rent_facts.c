#include "planner/show/rent_facts.h"

#include "planner/show/show_facts.h"
#include "planner/show/show_lines.h"

double rent_row_days(const ScaleReport *report, const ScaleRow *row) {
    if (!row->result || row->result->n_found == 0) return 0;
    return scale_row_facts(report, row).real_days;
}

static void add_points(RentFacts *facts, int machine) {
    const ScaleFacts *of = facts->machines[machine];
    for (int i = 0; i < of->n_points; i++) {
        const ScalePoint *point = &of->points[i];
        facts->scaled[facts->n_points] = point;
        facts->points[facts->n_points++] =
            (RentPoint){.machine = machine,
                        .n_ranks = point->row->request.n_ranks,
                        .days = point->found ? point->facts.real_days : 0,
                        .money = point->found ? point->facts.real_price : 0};
    }
}

/* Each machine's own first, as the front is of all. */
static void choose(RentFacts *facts) {
    const RentReport *report = facts->report;
    facts->own = ARENA_ARRAY(facts->arena, RentChoice, report->n_machines + 1);
    facts->first_point = ARENA_ARRAY(facts->arena, int, report->n_machines + 1);
    int first = 0;
    for (int i = 0; i < report->n_machines; i++) {
        int n = 0;
        while (first + n < facts->n_points && facts->points[first + n].machine == i) n++;
        facts->own[i] = rent_choose(&facts->points[first], n, &report->limits);
        facts->first_point[i] = first;
        first += n;
    }
    facts->choice = rent_choose(facts->points, facts->n_points, &report->limits);
}

RentFacts *rent_facts_create(Arena *arena, const RentReport *report) {
    RentFacts *facts = ARENA_NEW(arena, RentFacts);
    int n_rows = 0;
    for (int i = 0; i < report->n_machines; i++) n_rows += report->machines[i].scale.n_rows;
    *facts = (RentFacts){.arena = arena, .report = report};
    facts->machines = ARENA_ARRAY(arena, ScaleFacts *, report->n_machines + 1);
    facts->points = ARENA_ARRAY(arena, RentPoint, n_rows + 1);
    facts->scaled = ARENA_ARRAY(arena, const ScalePoint *, n_rows + 1);
    for (int i = 0; i < report->n_machines; i++) {
        const RentMachine *machine = &report->machines[i];
        if (machine->cluster->price_per_device_hour > 0 && !facts->currency)
            facts->currency = machine->cluster->currency;
        facts->machines[i] = machine->refusal ? NULL : scale_facts_create(arena, &machine->scale);
        if (!facts->machines[i]) continue;
        if (!facts->costs) {
            facts->costs = machine->scale.costs;
            facts->one = &machine->scale.rows[0].request;
            facts->tokens = machine->scale.days_tokens;
        }
        add_points(facts, i);
    }
    choose(facts);
    return facts;
}

int show_rent_within(const RentReport *report) {
    Arena *arena = arena_create();
    int n = rent_facts_create(arena, report)->choice.n_within;
    arena_destroy(arena);
    return n;
}

static const char *name_of(Arena *arena, const Cluster *cluster) {
    StrBuf name = strbuf_create();
    lines_put_name(&name, cluster->name, 20);
    const char *text = arena_printf(arena, "%s", name.text);
    strbuf_destroy(&name);
    return text;
}

static const char *currency_of(Arena *arena, const char *currency) {
    StrBuf text = strbuf_create();
    lines_put_name(&text, currency, 8);
    const char *copy = arena_printf(arena, "%s", text.text);
    strbuf_destroy(&text);
    return copy;
}

const char *rent_place(const RentFacts *facts, const RentPoint *point) {
    const Cluster *cluster = facts->report->machines[point->machine].cluster;
    return arena_printf(facts->arena, "%s, %d rank%s", name_of(facts->arena, cluster),
                        point->n_ranks, point->n_ranks == 1 ? "" : "s");
}

const char *rent_bill(const RentFacts *facts, const RentPoint *point, bool hours) {
    char a[2 * UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT];
    const char *text = duration_text(point->days, a);
    if (hours) {
        text = arena_printf(facts->arena, "%s, %s device-hours", text,
                            unit_count(rent_device_hours(point), b));
    }
    if (point->money <= 0) return arena_printf(facts->arena, "%s", text);
    return arena_printf(facts->arena, "%s, %s %s", text, unit_count(point->money, c),
                        currency_of(facts->arena, facts->currency));
}

const char *rent_days_limit(const RentFacts *facts) {
    char text[2 * UNIT_TEXT];
    return arena_printf(facts->arena, "most %s", duration_text(facts->report->limits.days, text));
}

const char *rent_money_limit(const RentFacts *facts) {
    char text[UNIT_TEXT];
    return arena_printf(facts->arena, "most %s %s", unit_count(facts->report->limits.money, text),
                        currency_of(facts->arena, facts->currency));
}

const char *rent_offer(Arena *arena, const RentMachine *machine) {
    const Cluster *cluster = machine->cluster;
    const char *fp8 = search_fp8_text(&machine->scale.options, cluster);
    StrBuf text = strbuf_create();
    strbuf_printf(&text, "%d x ", cluster->node.n_devices);
    lines_put_name(&text, cluster->device.name, 40);
    strbuf_put(&text, " a node; ");
    if (cluster->price_per_device_hour <= 0) {
        strbuf_put(&text, "no price is stated: --price ");
        lines_put_name(&text, cluster->name, 20);
        strbuf_put(&text, "=X says one");
    } else {
        strbuf_printf(&text, "%.4g ", cluster->price_per_device_hour);
        lines_put_name(&text, cluster->currency, 8);
        strbuf_put(&text, " a device-hour");
        if (cluster->price_source) {
            strbuf_put(&text, " (");
            lines_put_name(&text, cluster->price_source, 70);
            strbuf_put(&text, ")");
        }
    }
    if (!machine->refusal && *fp8) strbuf_printf(&text, "; fp8%s", fp8);
    const char *copy = arena_printf(arena, "%s", text.text);
    strbuf_destroy(&text);
    return copy;
}

/* The one with the fewest days, or the least money; NULL: none has either. */
static const RentPoint *find_least(const RentFacts *facts, bool money) {
    const RentPoint *least = NULL;
    for (int i = 0; i < facts->n_points; i++) {
        const RentPoint *point = &facts->points[i];
        double value = money ? point->money : point->days;
        if (value > 0 && (!least || value < (money ? least->money : least->days))) least = point;
    }
    return least;
}

/* Is any soon enough, whose price is then not known? */
static bool any_soon(const RentFacts *facts) {
    for (int i = 0; i < facts->n_points; i++) {
        const RentPoint *point = &facts->points[i];
        if (point->days > 0 && point->days <= facts->report->limits.days) return true;
    }
    return false;
}

const char *rent_no_cheapest(const RentFacts *facts) {
    if (facts->report->limits.days <= 0 || facts->choice.cheapest >= 0) return NULL;
    if (any_soon(facts)) return "not known: no price is stated of what is soon enough";
    const RentPoint *least = find_least(facts, false);
    if (!least) return "none: nothing that was searched ends";
    return arena_printf(facts->arena, "none takes at %s; the fewest are %s on %s",
                        rent_days_limit(facts), rent_bill(facts, least, false),
                        rent_place(facts, least));
}

const char *rent_no_fastest(const RentFacts *facts) {
    if (facts->report->limits.money <= 0 || facts->choice.fastest >= 0) return NULL;
    const RentPoint *least = find_least(facts, true);
    if (!least) return "none: nothing that was searched ends and has a price";
    return arena_printf(facts->arena, "none costs at %s; the least is %s on %s",
                        rent_money_limit(facts), rent_bill(facts, least, false),
                        rent_place(facts, least));
}
