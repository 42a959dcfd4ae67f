#include "planner/show/search_facts.h"

#include "planner/cost/collective_time.h"
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

const StepPartInfo STEP_PARTS[N_STEP_PARTS] = {
    [PART_COMPUTE] = {"compute", "compute"},
    [PART_TENSOR] = {"tensor", "tensor messages"},
    [PART_PIPELINE] = {"pipeline", "pipeline messages"},
    [PART_BUBBLE] = {"bubble", "bubble"},
    [PART_DATA] = {"data", "data messages"},
    [PART_UPDATE] = {"update", "update"},
};

double step_part_us(const StepCost *cost, StepPart part) {
    switch (part) {
    case PART_COMPUTE: return cost->compute_us;
    case PART_TENSOR: return cost->tensor_us;
    case PART_PIPELINE: return cost->pipeline_us;
    case PART_BUBBLE: return cost->bubble_us;
    case PART_DATA: return cost->data_us;
    case PART_UPDATE: return cost->update_us;
    case N_STEP_PARTS: break;
    }
    return 0;
}

const MemoryPartInfo MEMORY_PARTS[N_MEMORY_PARTS] = {
    {"parameters", "weights"},
    {"gradients", "gradients"},
    {"optimizer", "optimizer"},
    {"messages", "messages"},
    {"activations", "activations"},
    {"scratch", "scratch"},
    {"runtime", "CUDA's context and captured graphs"},
};

int64_t memory_part_bytes(const StepCost *cost, int part) {
    const int64_t bytes[N_MEMORY_PARTS] = {
        cost->parameter_bytes,  cost->gradient_bytes, cost->optimizer_bytes, cost->message_bytes,
        cost->activation_bytes, cost->scratch_bytes,  cost->runtime_bytes};
    return bytes[part];
}

void memory_put_parts(StrBuf *out, const StepCost *cost) {
    const char *before = "";
    for (int part = 0; part < N_MEMORY_PARTS; part++) {
        char text[UNIT_TEXT];
        int64_t bytes = memory_part_bytes(cost, part);
        if (bytes == 0) continue;
        strbuf_printf(out, "%s%s %s", before, MEMORY_PARTS[part].name,
                      unit_bytes((double)bytes, text));
        before = ", ";
    }
}

const char *layout_text(const Candidate *candidate, char *text) {
    char chunks[16] = "", recompute[32] = "", zero[32] = "", context[16] = "";
    char experts[16] = "", replicas[16] = "", lanes[24] = "";
    if (candidate->c > 1) snprintf(context, sizeof(context), " c=%d", candidate->c);
    if (candidate->e > 1) snprintf(experts, sizeof(experts), " e=%d", candidate->e);
    if (candidate->r > 1) snprintf(replicas, sizeof(replicas), " r=%d", candidate->r);
    if (candidate->n_chunks > 1) snprintf(chunks, sizeof(chunks), " x%d", candidate->n_chunks);
    if (candidate->recompute != RECOMPUTE_NONE) {
        snprintf(recompute, sizeof(recompute), ", %s", recompute_mode_name(candidate->recompute));
    }
    if (candidate->zero) {
        snprintf(zero, sizeof(zero), ", ZeRO-%d%s", candidate->zero,
                 candidate->joins_messages ? " by block" : "");
    }
    if (candidate->lanes > 1) snprintf(lanes, sizeof(lanes), " in %d lanes", candidate->lanes);
    snprintf(text, LAYOUT_TEXT, "t=%d%s%s d=%d%s p=%d, %s%s, b=%d%s%s%s%s", candidate->t, context,
             experts, candidate->d, replicas, candidate->p, schedule_name(candidate->schedule),
             chunks, candidate->micro_batch, lanes, recompute, zero,
             candidate->sequence_parallel ? ", sp" : "");
    return text;
}

void refused_put(StrBuf *out, const SearchReport *report, int i, double limit_bytes) {
    const RefusedLayout *refused = &report->refused[i];
    const Found *found = &report->result->found[refused->found];
    char a[UNIT_TEXT], b[UNIT_TEXT], text[LAYOUT_TEXT];
    strbuf_printf(out, "%s (%s): ", layout_text(&found->candidate, text),
                  unit_us(found->cost.step_us, a));
    if (refused->reason) {
        strbuf_printf(out, "cannot be planned: %s", refused->reason);
        return;
    }
    strbuf_printf(out, "its plan needs %s of %s", unit_bytes((double)refused->exact_bytes, a),
                  unit_bytes(limit_bytes, b));
    strbuf_printf(out, ", though %s were predicted",
                  unit_bytes((double)found->cost.memory_bytes, a));
}

const char *small_text(double count, char *text) {
    if (count <= 0 || count >= 0.0095) return unit_count(count, text);
    snprintf(text, UNIT_TEXT, "%.2g", count);
    return text;
}

const char *duration_text(double days, char *text) {
    static const struct {
        const char *unit;
        double days;
    } UNITS[] = {{"hours", 1.0 / 24}, {"minutes", 1.0 / 1440}, {"seconds", 1.0 / 86400}};
    char count[UNIT_TEXT];
    const char *unit = "days";
    double each = 1;
    for (int u = 0; u < 3 && days < each && days < 0.0995; u++) {
        unit = UNITS[u].unit;
        each = UNITS[u].days;
    }
    snprintf(text, 2 * UNIT_TEXT, "%s %s", days_text(days / each, count), unit);
    return text;
}

const char *days_text(double days, char *text) {
    if (days >= 1e5) return unit_count(days, text);
    if (days < 0.0095) return small_text(days, text);
    snprintf(text, UNIT_TEXT, "%.*f", days < 0.995 ? 3 : days < 99.95 ? 1 : 0, days);
    return text;
}

/* What most layouts do not have takes room that the step's time leaves. */
void layout_put_columns(StrBuf *out, const Candidate *of, const char *step) {
    static const char *const RECOMPUTES[N_RECOMPUTES] = {
        [RECOMPUTE_NONE] = "-", [RECOMPUTE_SELECTIVE] = "sel.", [RECOMPUTE_FULL] = "full"};
    char schedule[32], zero[8] = "";
    StrBuf more = strbuf_create();
    if (of->n_chunks > 1) {
        snprintf(schedule, sizeof(schedule), "%s x%d", schedule_name(of->schedule), of->n_chunks);
    } else {
        snprintf(schedule, sizeof(schedule), "%s", schedule_name(of->schedule));
    }
    if (of->zero) snprintf(zero, sizeof(zero), "Z%d%s", of->zero, of->joins_messages ? "b" : "");
    strbuf_printf(out, "%3d %4d %4d %-15s %2d %-4s ", of->t, of->d, of->p, schedule,
                  of->micro_batch, RECOMPUTES[of->recompute % N_RECOMPUTES]);
    bool alone = !of->sequence_parallel && of->c <= 1 && of->e <= 1 && of->r <= 1 && of->lanes <= 1;
    strbuf_printf(&more, alone ? "%s" : "%-3s", zero);
    if (of->sequence_parallel) strbuf_put(&more, "sp");
    if (of->c > 1) strbuf_printf(&more, " c%d", of->c);
    if (of->e > 1) strbuf_printf(&more, " e%d", of->e);
    if (of->r > 1) strbuf_printf(&more, " r%d", of->r);
    if (of->lanes > 1) strbuf_printf(&more, " l%d", of->lanes);
    enum { MORE_COLUMNS = 5, STEP_COLUMNS = 8 };
    int left = MORE_COLUMNS + STEP_COLUMNS - (int)strlen(more.text);
    strbuf_printf(out, "%s %*s", more.text, left > 0 ? left : 0, step);
    strbuf_destroy(&more);
}

void layout_put_heads(StrBuf *out) {
    strbuf_printf(out, "%3s %4s %4s %-15s %2s %-4s %-5s %8s", "t", "d", "p", "schedule", "b",
                  "rec.", "more", "step");
}

const char *search_fp8_text(const PlanOptions *options, const Cluster *cluster) {
    if (options->precision != DTYPE_FP8) return "";
    if (options->fp8_tensor_cores) return " products of blocks' weights, on tensor cores";
    return cluster->software.fp8_products ? " products of blocks' weights"
                                          : " operands, multiplied in bf16";
}

double search_memory_limit(const SearchRequest *request, const Cluster *cluster) {
    if (request->memory_limit_bytes > 0) return request->memory_limit_bytes;
    return cluster->device.memory_bytes * cluster->device.memory_usable;
}

LayoutFacts layout_facts(const SearchReport *report, const Found *found) {
    const Cluster *cluster = report->costs->cluster;
    const SearchRequest *request = report->request;
    const StepCost *cost = &found->cost;
    LayoutFacts of = {.found = found, .why = "", .step_seconds = cost->step_us * 1e-6};
    double n_sequences = request->global_batch;
    if (of.step_seconds <= 0) return of;
    of.tokens_per_second =
        n_sequences * (double)(report->costs->seq + report->costs->source) / of.step_seconds;
    of.model_tflops =
        report->costs->model_flops * n_sequences / request->n_ranks / of.step_seconds * 1e-12;
    of.hardware_tflops = cost->hardware_flops / of.step_seconds * 1e-12;
    double peak_tflops =
        cluster->device.peak_flops[cluster_math(cluster, report->options.precision)] * 1e-12;
    if (peak_tflops > 0) {
        of.mfu = of.model_tflops / peak_tflops;
        of.hfu = of.hardware_tflops / peak_tflops;
    }
    if (report->days_tokens > 0) {
        of.days = report->days_tokens / of.tokens_per_second / 86400;
        of.price = of.days * 24 * request->n_ranks * cluster->price_per_device_hour;
        of.goodput =
            run_goodput(report->costs, &found->candidate, report->options.precision != DTYPE_F32,
                        of.step_seconds, of.days * 86400 / of.step_seconds, report->failures);
        if (of.goodput.share > 0) {
            of.real_days = of.days / of.goodput.share;
            of.real_price = of.price / of.goodput.share;
        }
    }
    return of;
}

/* "+1.9 s", "-310 ms" */
static const char *signed_us(double us, char *text) {
    text[0] = us < 0 ? '-' : '+';
    unit_us(fabs(us), text + 1);
    return text;
}

/* The part that grew most and, if it makes good for a fifth of that, the one that shrank most. */
static const char *why_slower(Arena *arena, const StepCost *best, const StepCost *other) {
    StepPart grown = PART_COMPUTE, shrunk = PART_COMPUTE;
    double most = -INFINITY, least = INFINITY;
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        double us = step_part_us(other, part) - step_part_us(best, part);
        if (us > most) most = us, grown = part;
        if (us < least) least = us, shrunk = part;
    }
    char a[UNIT_TEXT + 1], b[UNIT_TEXT + 1];
    if (other->step_us < best->step_us * 1.0005 || most <= 0) {
        double bytes = (double)(other->memory_bytes - best->memory_bytes);
        if (fabs(bytes) < 0.005 * (double)best->memory_bytes) return "as good";
        return arena_printf(arena, "as fast; %s %s", unit_bytes(fabs(bytes), a),
                            bytes > 0 ? "more" : "less");
    }
    if (least < -most / 5) {
        return arena_printf(arena, "%s %s, %s %s", STEP_PARTS[grown].key, signed_us(most, a),
                            STEP_PARTS[shrunk].key, signed_us(least, b));
    }
    return arena_printf(arena, "%s %s", STEP_PARTS[grown].key, signed_us(most, a));
}

static const char *describe_bubble(const SearchFacts *facts) {
    const Candidate *of = &facts->best.found->candidate;
    const StepCost *cost = &facts->best.found->cost;
    const char *chunks = "", *uneven = "";
    if (of->n_chunks > 1) chunks = arena_printf(facts->arena, " of %d chunks", of->n_chunks);
    if (cost->bubble_us - cost->wait_us > 0.02 * cost->step_us) {
        uneven = arena_printf(facts->arena, "; stages are uneven: the busiest waits %.1f %%",
                              100 * cost->wait_us / cost->step_us);
    }
    if (schedule_splits(of->schedule)) {
        return arena_printf(facts->arena, "the bubble: p=%d stages, %d micro-batches%s%s", of->p,
                            of->n_micro, chunks, uneven);
    }
    return arena_printf(
        facts->arena, "the bubble: p=%d stages, %d micro-batches%s; ideally %.1f %% of compute%s",
        of->p, of->n_micro, chunks, 100.0 * (of->p - 1) / of->n_chunks / of->n_micro, uneven);
}

static const char *describe_part(const SearchFacts *facts, StepPart part) {
    const Candidate *of = &facts->best.found->candidate;
    Placement place = candidate_placement(facts->cluster, of);
    int inner = of->t * candidate_c(of) * candidate_e(of);
    switch (part) {
    case PART_TENSOR:
        if (of->e > 1) {
            return arena_printf(
                facts->arena, "messages among %s%se=%d expert ranks, which %s",
                of->t > 1 ? arena_printf(facts->arena, "t=%d tensor and ", of->t) : "",
                of->c > 1 ? arena_printf(facts->arena, "c=%d context and ", of->c) : "", of->e,
                inner <= place.n_per_node ? "share a node" : "lie in several nodes");
        }
        if (of->c > 1) {
            return arena_printf(
                facts->arena, "messages among t=%d tensor and c=%d context ranks, which %s", of->t,
                of->c, of->t * of->c <= place.n_per_node ? "share a node" : "lie in several nodes");
        }
        return arena_printf(facts->arena, "messages among t=%d tensor ranks, which %s", of->t,
                            of->t <= place.n_per_node ? "share a node" : "lie in several nodes");
    case PART_PIPELINE: return arena_printf(facts->arena, "messages between p=%d stages", of->p);
    case PART_BUBBLE: return describe_bubble(facts);
    case PART_DATA:
        return arena_printf(facts->arena, "messages among %sd=%d data ranks: gradients%s",
                            of->r > 1 ? arena_printf(facts->arena, "r=%d x ", of->r) : "", of->d,
                            of->zero >= ZERO_PARAMETERS ? " and weights"
                            : of->zero                  ? " and updated weights"
                                                        : "");
    case PART_UPDATE: return "the optimizer's pass over weights and state";
    case PART_COMPUTE:
    case N_STEP_PARTS: break;
    }
    return "compute";
}

static const char *describe_bottleneck(const SearchFacts *facts) {
    const StepCost *cost = &facts->best.found->cost;
    double compute = cost->compute_us / cost->step_us;
    StepPart worst = PART_TENSOR;
    for (StepPart part = 0; part < N_STEP_PARTS; part++) {
        if (part == PART_COMPUTE) continue;
        if (step_part_us(cost, part) > step_part_us(cost, worst)) worst = part;
    }
    double share = step_part_us(cost, worst) / cost->step_us;
    const char *running = "";
    if (facts->best.hfu > 0 && compute > 0) {
        running =
            arena_printf(facts->arena, ", at %.0f %% of peak", 100 * facts->best.hfu / compute);
    }
    if (share < 0.005) {
        return arena_printf(facts->arena, "Compute: %.1f %% of the step%s; nothing else counts",
                            100 * compute, running);
    }
    return arena_printf(facts->arena, "Compute takes %.1f %% of the step%s; then %.1f %% go to %s",
                        100 * compute, running, 100 * share, describe_part(facts, worst));
}

/* The best, and what needs less memory than all that is faster. Candidates that were not simulated
 * can be priced faster than the best, which was: these are left out. */
static void fill_pareto(SearchFacts *facts, const SearchResult *result) {
    const SearchReport *report = facts->report;
    const Found *last = facts->best.found;
    facts->pareto = ARENA_ARRAY(facts->arena, LayoutFacts, result->n_pareto + 1);
    facts->pareto[facts->n_pareto++] = facts->best;
    for (int i = 0; i < result->n_pareto; i++) {
        const Found *found = &result->pareto[i];
        if (found->cost.step_us < last->cost.step_us ||
            found->cost.memory_bytes >= last->cost.memory_bytes) {
            continue;
        }
        LayoutFacts *one = &facts->pareto[facts->n_pareto++];
        *one = layout_facts(report, found);
        one->slowdown = one->step_seconds / facts->best.step_seconds - 1;
        one->why = why_slower(facts->arena, &facts->best.found->cost, &found->cost);
        last = found;
    }
}

const char *search_cut_short(Arena *arena, const SearchResult *result) {
    if (result->n_open == 0) return NULL;
    return arena_printf(arena,
                        "%d layouts that were not simulated, as they were too many, could be "
                        "faster by their estimates: fix what you know, such as the schedule",
                        result->n_open);
}

static const char *offload_text(Arena *arena, const PlanOptions *options, const Found *found) {
    char bytes[UNIT_TEXT];
    StrBuf text = strbuf_create();
    if (options->offload > 0) strbuf_printf(&text, "%d %% of states and masters", options->offload);
    if (options->offload_activations > 0) {
        strbuf_printf(&text, "%s%d %% of what blocks keep", options->offload > 0 ? ", " : "",
                      options->offload_activations);
    }
    strbuf_printf(&text, ": %s a device in its node's memory",
                  unit_bytes((double)found->cost.host_bytes, bytes));
    const char *kept = arena_strdup(arena, text.text);
    strbuf_destroy(&text);
    return kept;
}

int search_remarks(Arena *arena, const PlanOptions *options, const Found *found,
                   SearchRemark out[SEARCH_REMARKS]) {
    int n = 0;
    if (options->split_masters) {
        out[n++] = (SearchRemark){"masters", "split: copies of weights are halves of them"};
    }
    if (options->loss_parts > 1) {
        out[n++] =
            (SearchRemark){"logits", arena_printf(arena, "of 1/%d of the positions at a time",
                                                  options->loss_parts)};
    }
    if (options->offload > 0 || options->offload_activations > 0) {
        out[n++] = (SearchRemark){"offload", offload_text(arena, options, found)};
    }
    if (options->expert_parts > 1 && candidate_e(&found->candidate) > 1) {
        out[n++] = (SearchRemark){"experts",
                                  arena_printf(arena, "slots in %d runs", options->expert_parts)};
    }
    return n;
}

int search_update_remarks(Arena *arena, const PlanOptions *options,
                          SearchRemark out[UPDATE_REMARKS]) {
    int n = 0;
    if (options->ema_decay > 0) {
        out[n++] = (SearchRemark){
            "averages", arena_printf(arena, "of all weights that train, in f32, decay %.10g",
                                     options->ema_decay)};
    }
    if (options->skips_spikes) {
        out[n++] = (SearchRemark){"spikes", "steps may be left out for their gradients' norm"};
    }
    if (options->qk_clip > 0) {
        out[n++] = (SearchRemark){
            "qk-clip", arena_printf(arena, "heads' largest scores above %.6g", options->qk_clip)};
    }
    return n;
}

const char *search_gradients_text(const Candidate *candidate) {
    if (candidate->n_micro == 1) return "bf16";
    bool sent = candidate->zero >= ZERO_GRADIENTS && candidate_replicas(candidate) > 1;
    return sent ? "bf16 in messages, added up in f32" : "f32, as micro-batches are added up";
}

/* "4 such runs apart, which meet every 100 steps: ..." */
static void fill_islands(SearchFacts *facts) {
    const SearchReport *report = facts->report;
    const IslandChoice *choice = report->islands;
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT], e[UNIT_TEXT];
    if (!choice || choice->n_islands == 0 || facts->best.step_seconds <= 0) return;
    const int gradient_bytes = report->options.gradient_dtype == DTYPE_BF16 ? 2 : 4;
    facts->islands = island_exchange(choice, report->costs->n_trained, gradient_bytes,
                                     facts->best.step_seconds, facts->n_tokens);
    const IslandExchange *of = &facts->islands;
    StrBuf text = strbuf_create();
    strbuf_printf(&text,
                  "%d such runs apart, %s tokens/s in all: every %lld steps island 0's link of %g "
                  "Gbit/s moves %s in and as many out",
                  choice->n_islands, unit_count(of->tokens_per_second, a), (long long)choice->every,
                  choice->link_bytes_per_second * 8e-9, unit_bytes(of->hub_bytes, b));
    if (choice->n_parts > 1) strbuf_printf(&text, ", %s at a time", unit_bytes(of->part_bytes, e));
    strbuf_printf(&text, ", in %s", unit_us(of->seconds * 1e6, c));
    if (choice->overlap && of->wait_seconds <= 0) {
        strbuf_put(&text, ", all behind training;");
    } else {
        if (choice->overlap) {
            strbuf_printf(&text, ", of which %s behind training and %s waiting",
                          unit_us(of->hidden_seconds * 1e6, a), unit_us(of->wait_seconds * 1e6, b));
        }
        strbuf_printf(&text, ", %.2g %% of the time;", 100 * of->share);
    }
    strbuf_printf(&text, " as one run, gradients over such links take %s more a step, %.2g %%",
                  unit_us(of->one_run_seconds * 1e6, d), 100 * of->one_run_share);
    facts->islands_text = arena_strdup(facts->arena, text.text);
    strbuf_destroy(&text);
}

SearchFacts *search_facts_create(Arena *arena, const SearchReport *report) {
    const SearchResult *result = report->result;
    const Cluster *cluster = report->costs->cluster;
    SearchFacts *facts = ARENA_NEW(arena, SearchFacts);
    *facts = (SearchFacts){.arena = arena, .report = report, .cluster = cluster};
    facts->n_tokens = (double)report->request->global_batch *
                      (double)(report->costs->seq + report->costs->source);
    facts->limit_bytes = search_memory_limit(report->request, cluster);
    facts->peak_tflops =
        cluster->device.peak_flops[cluster_math(cluster, report->options.precision)] * 1e-12;
    int n_per_node = cluster->node.n_devices > 0 ? cluster->node.n_devices : 1;
    facts->n_nodes = (report->request->n_ranks + n_per_node - 1) / n_per_node;
    const Found *best = &result->found[report->chosen];
    facts->best = layout_facts(report, best);
    facts->others = ARENA_ARRAY(arena, LayoutFacts, result->n_found + 1);
    for (int i = report->chosen + 1; i < result->n_found && facts->n_others < report->n_top; i++) {
        LayoutFacts *other = &facts->others[facts->n_others++];
        *other = layout_facts(report, &result->found[i]);
        other->slowdown = other->step_seconds / facts->best.step_seconds - 1;
        other->why = why_slower(arena, &best->cost, &result->found[i].cost);
    }
    fill_pareto(facts, result);
    facts->bottleneck = describe_bottleneck(facts);
    fill_islands(facts);
    facts->cut_short = search_cut_short(arena, result);
    return facts;
}
