/* Step costs: closed forms against the task lists that they stand for, splits against enumeration,
 * parts against their sum. */
#include "planner/cost/step_cost.h"
#include "tests/unit/check.h"
#include "tests/unit/synthetic_costs.h"

#include <stdlib.h>

static uint64_t state = 20261121;

static double random_unit(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) / 9007199254740992.0;
}

static int random_below(int n) {
    return (int)(random_unit() * n);
}

/* The span by playing the lists, messages on wires that nothing else uses. */
static double play(Arena *arena, int schedule, const PipelineTimes *times) {
    const PipelineShape *shape = &times->shape;
    Path path = {schedule_path(schedule), shape->p};
    int p = shape->p, n_total = p * shape->n_chunks, m = shape->n_micro, n_order;
    static const double NONE[64 * MAX_CHUNKS];
    const double *weights_us = times->weights_us ? times->weights_us : NONE;
    double *done[2] = {ARENA_ARRAY(arena, double, n_total *m),
                       ARENA_ARRAY(arena, double, n_total *m)};
    Task **orders = ARENA_ARRAY(arena, Task *, p);
    int *next = ARENA_ARRAY(arena, int, p), n_left = 0;
    double *now = ARENA_ARRAY(arena, double, p), span = 0;
    Diag *diag = diag_create();
    for (int i = 0; i < n_total * m; i++) done[0][i] = done[1][i] = -1;
    for (int s = 0; s < p; s++) {
        if (!schedule_order(schedule_name(schedule), s, shape, arena, &orders[s], &n_order, diag)) {
            BUG("%s", diag_text(diag));
        }
        n_left += n_order;
    }
    for (int s = 0; n_left > 0; s = (s + 1) % p) {
        while (next[s] < n_order) {
            const Task *task = &orders[s][next[s]];
            bool backward = task->kind == TASK_BACKWARD;
            int g = path_global(path, s, task->chunk);
            if (task->kind == TASK_WEIGHTS) {
                now[s] += weights_us[g];
                if (now[s] > span) span = now[s];
                next[s]++, n_left--;
                continue;
            }
            double ready = 0, us = backward ? times->backward_us[g] : times->forward_us[g];
            if (backward && g + 1 < n_total) {
                ready = done[1][(g + 1) * m + task->micro];
                if (ready < 0) break;
                if (!path_turns(path, g)) ready += times->border_us[path_border(path, g)];
            } else if (!backward && g > 0) {
                ready = done[0][(g - 1) * m + task->micro];
                if (ready < 0) break;
                if (!path_turns(path, g - 1)) ready += times->border_us[path_border(path, g - 1)];
            }
            now[s] = (ready > now[s] ? ready : now[s]) + us;
            done[backward][g * m + task->micro] = now[s];
            if (now[s] > span) span = now[s];
            next[s]++, n_left--;
        }
    }
    diag_destroy(diag);
    return span;
}

/* Of the chunk, or of all others. */
static int most_in_flight(const Task *order, int n, int chunk, bool alone) {
    int in_flight = 0, most = 0;
    TaskKind ends = TASK_BACKWARD;
    for (int i = 0; i < n; i++) {
        if (order[i].kind == TASK_WEIGHTS) ends = TASK_WEIGHTS;
    }
    for (int i = 0; i < n; i++) {
        if ((order[i].chunk == chunk) != alone) continue;
        if (order[i].kind != TASK_FORWARD && order[i].kind != ends) continue;
        in_flight += order[i].kind == TASK_FORWARD ? 1 : -1;
        if (in_flight > most) most = in_flight;
    }
    return most;
}

static void test_frames(Arena *arena, Diag *diag) {
    check_begin("frames in closed form are those of the task lists");
    for (int index = 0; schedule_name(index); index++) {
        for (int trial = 0; trial < 400; trial++) {
            PipelineShape shape = {1 + random_below(9), 1, 1 + random_below(40), PATH_LOOP};
            if (schedule_is_chunked(index)) {
                shape.n_chunks = 1 + random_below(MAX_CHUNKS);
                shape.n_micro = shape.p * (1 + random_below(7));
            }
            if (schedule_path(index) == PATH_V) {
                shape.n_chunks = 2, shape.n_micro = 1 + random_below(40);
            }
            if (!schedule_allows(index, &shape)) continue;
            for (int s = 0; s < shape.p; s++) {
                int n;
                Task *order;
                CHECK(schedule_order(schedule_name(index), s, &shape, arena, &order, &n, diag),
                      "%s", diag_text(diag));
                for (int c = NO_CHUNK; c < MAX_CHUNKS; c++) {
                    int alone = most_in_flight(order, n, c, true);
                    int others = most_in_flight(order, n, c, false);
                    int frames = c == NO_CHUNK ? 0 : schedule_frames(index, &shape, s, c);
                    int frames_but =
                        c >= shape.n_chunks ? others : schedule_frames_but(index, &shape, s, c);
                    CHECK(frames == alone && frames_but == others,
                          "%s p=%d v=%d m=%d stage %d chunk %d: %d, not %d; all others %d, not %d",
                          schedule_name(index), shape.p, shape.n_chunks, shape.n_micro, s, c,
                          frames, alone, frames_but, others);
                }
            }
        }
    }
}

static PipelineTimes times_of(Arena *arena, int schedule, PipelineShape shape, double unevenness,
                              double border) {
    int n_total = shape.p * shape.n_chunks;
    double *forward = ARENA_ARRAY(arena, double, n_total);
    double *backward = ARENA_ARRAY(arena, double, n_total);
    double *weights = ARENA_ARRAY(arena, double, n_total);
    double *borders = ARENA_ARRAY(arena, double, shape.p);
    for (int g = 0; g < n_total; g++) {
        double us = 100 / shape.n_chunks * (1 + unevenness * random_unit());
        if (g + 1 == n_total) us *= 1 + unevenness;
        forward[g] = us;
        backward[g] = us * 2;
        if (!schedule_splits(schedule)) continue;
        weights[g] = us * (1 - 0.2 * random_unit() * (unevenness > 0));
        backward[g] = us * 1.1;
    }
    for (int s = 0; s < shape.p; s++) borders[s] = border;
    return (PipelineTimes){shape, forward, backward, weights, borders};
}

/* What the papers say of equal stages: (p - 1)(f + b) / v beyond the ideal, and with weights apart
 * (p - 1)(f + b - w). */
static void test_bubbles(Arena *arena) {
    check_begin("equal stages: the bubble is (p - 1)/(v m) of the ideal time");
    for (int index = 0; schedule_name(index); index++) {
        if (schedule_path(index) == PATH_V) continue;
        for (int p = 1; p <= 16; p++) {
            for (int v = 1; v <= 4; v++) {
                for (int k = 1; k <= 3; k++) {
                    PipelineShape shape = {p, v, k * p, PATH_LOOP};
                    if (!schedule_allows(index, &shape)) continue;
                    PipelineTimes times = times_of(arena, index, shape, 0, 0);
                    double span = schedule_span(index, &times), w = times.weights_us[0];
                    double task = times.forward_us[0] + times.backward_us[0] + w;
                    double ideal = shape.n_micro * v * task, bubble = (span - ideal) / ideal;
                    double paper = (p - 1) * (1 - 2 * w / task) / (v * k * p);
                    CHECK(fabs(bubble - paper) < 1e-9, "%s p=%d v=%d m=%d: %g, not %g",
                          schedule_name(index), p, v, k * p, bubble, paper);
                    double played = play(arena, index, &times);
                    CHECK(fabs(span / played - 1) < 1e-9, "%s p=%d v=%d: %g, played %g",
                          schedule_name(index), p, v, span, played);
                }
            }
        }
    }
}

/* Where forward, B and W take equally long, no stage waits but for its first micro-batch; and as
 * long as they are nearly so, hardly. */
static void test_bubble_of_v(Arena *arena) {
    check_begin("zb-v: equal parts have no bubble but the way down; frames as 1f1b's first stage");
    int index = schedule_find("zb-v"), plain = schedule_find("1f1b");
    for (int p = 2; p <= 16; p++) {
        for (int m = 1; m <= 4 * p; m++) {
            PipelineShape shape = {p, 2, m, PATH_V}, line = {p, 1, m, PATH_LINE};
            PipelineTimes times = times_of(arena, index, shape, 0, 0);
            double *same = ARENA_ARRAY(arena, double, 2 * p);
            for (int g = 0; g < 2 * p; g++) same[g] = 10;
            times.forward_us = times.backward_us = times.weights_us = same;
            double span = schedule_span(index, &times), least = 10 * (6 * m + p - 1);
            CHECK(m < 2 * p - 1 || fabs(span - least) < 1e-6, "p=%d m=%d: %g, not %g", p, m, span,
                  least);
            for (int s = 0; s < p; s++) {
                CHECK(schedule_frames_but(index, &shape, s, NO_CHUNK) <=
                          2 * schedule_frames(plain, &line, 0, 0),
                      "p=%d m=%d stage %d", p, m, s);
            }
        }
    }
}

/* Less of both than 1f1b has on its first stage: of the bubble at most two thirds. */
static void test_half(Arena *arena) {
    check_begin("v-half: half of zb-v's frames, and where parts are equal less bubble than 1f1b");
    int index = schedule_find("v-half");
    for (int p = 3; p <= 17; p++) {
        for (int m = 1; m <= 4 * p; m++) {
            PipelineShape shape = {p, 2, m, PATH_V};
            PipelineTimes times = times_of(arena, index, shape, 0, 0);
            double *same = ARENA_ARRAY(arena, double, 2 * p);
            for (int g = 0; g < 2 * p; g++) same[g] = 10;
            times.forward_us = times.backward_us = times.weights_us = same;
            double bubble = schedule_span(index, &times) - 60 * m, of_1f1b = 60 * (p - 1);
            CHECK(m < p || bubble < of_1f1b * 2 / 3, "p=%d m=%d: %g of %g", p, m, bubble, of_1f1b);
            for (int s = 0; s < p; s++) {
                int frames = schedule_frames_but(index, &shape, s, NO_CHUNK);
                CHECK(m < 2 * p ? frames <= p + 2 : frames == p + 2 - p % 2,
                      "p=%d m=%d stage %d: %d frames", p, m, s, frames);
            }
        }
    }
}

/* How far off the closed form may be: uneven stages and messages that hide badly. */
static void test_spans(Arena *arena) {
    static const struct {
        double unevenness, border, mean, most;
    } CASES[] = {{0, 5, 0.01, 0.05}, {0.1, 0, 0.01, 0.05}, {0.3, 10, 0.03, 0.1}};
    check_begin("uneven stages: the closed form is near what is played");
    for (int index = 0; schedule_name(index); index++) {
        for (int c = 0; c < 3; c++) {
            double sum = 0, most = 0;
            int n = 0;
            char worst[100] = "";
            for (int trial = 0; trial < 300; trial++) {
                PipelineShape shape = {1 + random_below(16), 1, 1 + random_below(64), PATH_LOOP};
                if (schedule_is_chunked(index)) {
                    shape.n_chunks = 2 + random_below(4);
                    shape.n_micro = shape.p * (1 + random_below(6));
                }
                if (schedule_path(index) == PATH_V) {
                    shape.n_chunks = 2, shape.n_micro = 1 + random_below(200);
                }
                if (!schedule_allows(index, &shape)) continue;
                PipelineTimes times =
                    times_of(arena, index, shape, CASES[c].unevenness, CASES[c].border);
                double error = schedule_span(index, &times) / play(arena, index, &times) - 1;
                sum += fabs(error), n++;
                if (fabs(error) <= most) continue;
                most = fabs(error);
                snprintf(worst, sizeof(worst), "p=%d v=%d m=%d: %+.3f", shape.p, shape.n_chunks,
                         shape.n_micro, error);
            }
            if (getenv("VERBOSE")) {
                printf("%s case %d: mean %.4f most %.4f (%s)\n", schedule_name(index), c, sum / n,
                       most, worst);
            }
            CHECK(sum / n <= CASES[c].mean && most <= CASES[c].most, "%s case %d: mean %.4f, %s",
                  schedule_name(index), c, sum / n, worst);
        }
    }
}

/* The least that the slowest stage can take, by trying every split: the first and the last chunk of
 * a pipeline may be empty. */
static double enumerate(const double *blocks, int n_blocks, double before, double after, int p,
                        int n_total, int g, int first, double *loads) {
    if (g == n_total) {
        double most = 0;
        for (int s = 0; s < p; s++) most = loads[s] > most ? loads[s] : most;
        return first == n_blocks ? most : 1e300;
    }
    double best = 1e300, sum = (g == 0 ? before : 0) + (g + 1 == n_total ? after : 0);
    bool may_be_empty = n_total > 1 && (g == 0 || g + 1 == n_total);
    for (int end = first + !may_be_empty; end <= n_blocks; end++) {
        if (end > first) sum += blocks[end - 1];
        loads[g % p] += sum;
        double most = enumerate(blocks, n_blocks, before, after, p, n_total, g + 1, end, loads);
        loads[g % p] -= sum;
        if (most < best) best = most;
    }
    return best;
}

static double slowest(const double *blocks, double before, double after, int p, int n_total,
                      const int *split) {
    double loads[64] = {0}, most = 0;
    for (int g = 0, at = 0; g < n_total; g++) {
        for (int i = 0; i < split[g]; i++) loads[g % p] += blocks[at++];
        if (g == 0) loads[0] += before;
        if (g + 1 == n_total) loads[g % p] += after;
    }
    for (int s = 0; s < p; s++) most = loads[s] > most ? loads[s] : most;
    return most;
}

static void test_splits(void) {
    int n_worse = 0, n_mixed = 0, n_bare = 0;
    check_begin("splits: none is better (enumerated)");
    for (int trial = 0; trial < 2000; trial++) {
        int n_blocks = 1 + random_below(12), p = 1 + random_below(4);
        int v = p == 1 ? 1 : 1 + random_below(3), kinds[16], split[16];
        double blocks[16], loads[64] = {0};
        SegmentCost two[2] = {{.forward.us = 1, .backward.us = 1 + random_unit()},
                              {.forward.us = random_unit(), .backward.us = 4 * random_unit()}};
        LayoutCost layout = {.kinds = two,
                             .before.forward.us = 2 * random_unit(),
                             .after.backward.us = 8 * random_unit() * random_unit()};
        ModelCosts costs = {.n_blocks = n_blocks, .n_kinds = 1 + trial % 2, .kind_of_block = kinds};
        for (int b = 0; b < n_blocks; b++) {
            kinds[b] = costs.n_kinds == 1 ? 0 : random_below(2);
            blocks[b] = two[kinds[b]].forward.us + two[kinds[b]].backward.us;
        }
        double before = layout.before.forward.us, after = layout.after.backward.us;
        bool made = split_blocks(&costs, &layout, (Path){PATH_LOOP, p}, v, false, split);
        CHECK(made == (p * v <= n_blocks + 2), "%d blocks, p=%d v=%d", n_blocks, p, v);
        if (!made) continue;
        int total = 0;
        for (int g = 0; g < p * v; g++) {
            bool is_end = p > 1 && (g == 0 || g + 1 == p * v);
            CHECK(split[g] > 0 || (is_end && split[g] == 0), "chunk %d has %d blocks", g, split[g]);
            n_bare += split[g] == 0 && p * v <= n_blocks;
            total += split[g];
        }
        CHECK(total == n_blocks, "%d of %d blocks", total, n_blocks);
        double best = enumerate(blocks, n_blocks, before, after, p, p * v, 0, 0, loads);
        double found = slowest(blocks, before, after, p, p * v, split);
        if (costs.n_kinds == 2 && v > 1) {
            n_mixed++, n_worse += found > best * 1.02;
            continue;
        }
        CHECK(found <= best * (1 + 1e-9), "trial %d: %d blocks of %d kinds, p=%d v=%d: %g, best %g",
              trial, n_blocks, costs.n_kinds, p, v, found, best);
    }
    CHECK(n_bare > 50, "%d chunks were left without blocks for their end's weight", n_bare);
    check_begin("splits of several kinds over several chunks: 9 of 10 within 2 %");
    CHECK(n_worse * 10 <= n_mixed, "%d of %d are worse", n_worse, n_mixed);
    if (getenv("VERBOSE")) printf("%d of %d\n", n_worse, n_mixed);
    check_begin("even splits, or none");
    int split[8];
    synthetic_use(SYNTHETIC_175B, 96);
    const char *reason;
    const LayoutCost *layout =
        model_costs_at(&synthetic_costs, 8, true, RECOMPUTE_NONE, 1, &reason);
    CHECK(split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 8}, 1, true, split) &&
              split[7] == 12,
          "%d", split[7]);
    CHECK(!split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 7}, 1, true, split),
          "96 over 7");
}

/* Llama 3's 126 blocks in 128 chunks. */
static void test_counted_ends(void) {
    check_begin("even splits that count the model's ends as blocks, where only that is even");
    int split[128];
    const char *reason;
    synthetic_use(SYNTHETIC_175B, 126);
    const LayoutCost *layout =
        model_costs_at(&synthetic_costs, 8, true, RECOMPUTE_NONE, 1, &reason);
    CHECK(!split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 16}, 8, true, split),
          "128 chunks");
    synthetic_cluster.software.counts_ends = true;
    CHECK(split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 16}, 8, true, split) &&
              split[0] == 0 && split[1] == 1 && split[126] == 1 && split[127] == 0,
          "128 chunks: %d %d ... %d %d", split[0], split[1], split[126], split[127]);
    CHECK(split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 16}, 1, true, split) &&
              split[0] == 7 && split[1] == 8 && split[14] == 8 && split[15] == 7,
          "16 chunks: %d %d ... %d %d", split[0], split[1], split[14], split[15]);
    CHECK(split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 2}, 1, true, split) &&
              split[0] == 63 && split[1] == 63,
          "2 chunks: %d %d", split[0], split[1]);
    CHECK(!split_blocks(&synthetic_costs, layout, (Path){PATH_LOOP, 5}, 1, true, split),
          "5 chunks");
}

/* Chunks of all stages that a micro-batch passes at the pace of the slowest. */
static void test_pace(void) {
    static const struct {
        int n_blocks;
        double after;
        int want[4];
    } CASES[] = {{8, 2.5, {2, 2, 3, 1}}, {9, 0.5, {3, 2, 2, 2}}, {4, 3.5, {1, 1, 2, 0}}};
    check_begin("what is left over goes beside a heavy head, else to the first chunks");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        SegmentCost block = {.forward.us = 0.25, .backward.us = 0.75};
        LayoutCost layout = {.kinds = &block, .after.forward.us = CASES[i].after};
        int kinds[16] = {0}, split[4] = {0};
        ModelCosts costs = {.n_blocks = CASES[i].n_blocks, .n_kinds = 1, .kind_of_block = kinds};
        bool made = split_blocks(&costs, &layout, (Path){PATH_LOOP, 2}, 2, false, split);
        CHECK(made && memcmp(split, CASES[i].want, sizeof(split)) == 0, "case %zu: %d %d %d %d", i,
              split[0], split[1], split[2], split[3]);
    }
}

static Candidate candidate_of(int t, int p, int d, int v, int b, int m, const char *schedule) {
    return (Candidate){.t = t,
                       .p = p,
                       .d = d,
                       .n_chunks = v,
                       .micro_batch = b,
                       .n_micro = m,
                       .schedule = schedule_find(schedule),
                       .sequence_parallel = t > 1,
                       .recompute = RECOMPUTE_SELECTIVE};
}

static StepCost price(const Candidate *candidate) {
    const char *reason;
    int split[4096];
    StepCost cost;
    const LayoutCost *layout =
        model_costs_at(&synthetic_costs, candidate->t, candidate->sequence_parallel,
                       candidate->recompute, candidate->micro_batch, &reason);
    if (!layout) BUG("%s", reason);
    if (!split_blocks(&synthetic_costs, layout, candidate_path(candidate), candidate->n_chunks,
                      false, split)) {
        BUG("p=%d v=%d", candidate->p, candidate->n_chunks);
    }
    step_cost(&synthetic_costs, layout, candidate, split, &cost);
    StepCost memory = {0};
    step_memory(&synthetic_costs, layout, candidate, split, &memory);
    CHECK(memory.memory_bytes == cost.memory_bytes, "memory alone differs");
    return cost;
}

static void test_parts(void) {
    static const struct {
        int t, p, d, v, b, m;
        const char *schedule;
    } CASES[] = {{8, 8, 4, 1, 1, 32, "1f1b"},   {8, 8, 4, 3, 1, 32, "interleaved"},
                 {1, 1, 8, 1, 2, 4, "gpipe"},   {4, 16, 1, 1, 4, 3, "1f1b"},
                 {2, 32, 2, 1, 1, 64, "gpipe"}, {16, 4, 2, 6, 2, 8, "interleaved"}};
    check_begin("parts add up, memory to its classes");
    for (int blocking = 0; blocking < 2; blocking++) {
        synthetic_use(SYNTHETIC_175B, 96);
        synthetic_cluster.software.overlaps_pipeline = !blocking;
        synthetic_cluster.software.overlaps_gradients = !blocking;
        for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
            Candidate candidate = candidate_of(CASES[i].t, CASES[i].p, CASES[i].d, CASES[i].v,
                                               CASES[i].b, CASES[i].m, CASES[i].schedule);
            StepCost cost = price(&candidate);
            double sum = cost.compute_us + cost.tensor_us + cost.pipeline_us + cost.bubble_us +
                         cost.data_us + cost.update_us;
            CHECK(fabs(sum / cost.step_us - 1) < 1e-9, "case %zu: %g of %g", i, sum, cost.step_us);
            CHECK(cost.compute_us > 0 && cost.tensor_us >= 0 && cost.pipeline_us >= 0 &&
                      cost.bubble_us >= 0 && cost.data_us >= 0 && cost.update_us > 0,
                  "case %zu: a part is negative", i);
            int64_t bytes = cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes +
                            cost.activation_bytes + cost.message_bytes + cost.scratch_bytes +
                            cost.runtime_bytes;
            CHECK(bytes == cost.memory_bytes, "case %zu: bytes", i);
        }
    }
}

/* Each in the direction that anyone would expect. */
static void test_directions(void) {
    check_begin("what costs more and what less");
    synthetic_use(SYNTHETIC_175B, 96);
    Candidate base = candidate_of(8, 8, 8, 1, 1, 16, "1f1b"), other = base;
    StepCost a = price(&base), b;
    other.zero = 1, b = price(&other);
    CHECK(b.optimizer_bytes == (a.optimizer_bytes + 7) / 8, "ZeRO-1 divides by d");
    CHECK(b.update_us < a.update_us, "and the update's time");
    other = base, other.schedule = schedule_find("gpipe"), b = price(&other);
    CHECK(b.activation_bytes > a.activation_bytes, "gpipe holds all micro-batches");
    other = base, other.n_chunks = 4, other.schedule = schedule_find("interleaved");
    b = price(&other);
    CHECK(b.bubble_us < a.bubble_us / 2, "interleaving: %g, not %g", b.bubble_us, a.bubble_us);
    CHECK(b.activation_bytes > a.activation_bytes, "interleaving holds more");
    other = base, other.recompute = RECOMPUTE_FULL, b = price(&other);
    CHECK(b.activation_bytes < a.activation_bytes / 2 && b.compute_us > a.compute_us * 1.2,
          "full recomputation");
    synthetic_cluster.software.overlaps_pipeline = false, b = price(&base);
    CHECK(b.pipeline_us > a.pipeline_us, "blocked: %g, not %g", b.pipeline_us, a.pipeline_us);
    synthetic_cluster.software.overlaps_gradients = false, b = price(&base);
    CHECK(b.data_us > a.data_us, "after all: %g, not %g", b.data_us, a.data_us);
    Candidate alone = candidate_of(8, 1, 1, 1, 1, 16, "1f1b");
    a = price(&alone);
    CHECK(a.bubble_us == 0 && a.data_us == 0 && a.pipeline_us == 0, "nobody to wait for");
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_frames(arena, diag);
    test_bubbles(arena);
    test_bubble_of_v(arena);
    test_half(arena);
    test_spans(arena);
    test_splits();
    test_counted_ends();
    test_pace();
    test_parts();
    test_directions();
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
