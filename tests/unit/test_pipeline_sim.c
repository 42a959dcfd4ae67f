/* The pipeline simulator: against closed forms, and against two references that are slow and share
 * nothing with it: a longest path by repeated sweeps, and, for shared wires, one that always does
 * what can be done earliest. */
#include "planner/simulate/pipeline_sim.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_STAGES = 8, MOST_MICRO = 24, MOST_GLOBAL = MOST_STAGES * 4, N_PARTS = 3 };

static uint64_t seed_state;

static double uniform(double low, double high) {
    seed_state = seed_state * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)(seed_state >> 11) / 9007199254740992.0;
}

static int below(int n) {
    return (int)uniform(0, n - 1e-9);
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b)));
}

/* A load and all that it points to. */
typedef struct Case {
    PipelineLoad load;
    PipelineChunk chunks[MOST_GLOBAL];
    PipelineLink links[2 * MOST_STAGES];
    PipelinePart parts[N_PARTS];
    double part_us[N_PARTS][MOST_STAGES];
    PipelineJoin joins[2];
    int tied[2], all[MOST_STAGES];
    double constant_bytes[MOST_STAGES];
} Case;

static int schedule_number(const char *name) {
    for (int i = 0; schedule_name(i); i++) {
        if (strcmp(schedule_name(i), name) == 0) return i;
    }
    return -1;
}

static void add_links(Case *c, double message_us, double latency_us) {
    PipelineLoad *load = &c->load;
    int p = load->shape.p, n_borders = load->shape.n_chunks > 1 ? p : p - 1;
    for (int s = 0; s < n_borders && p > 1; s++) {
        PipelineLink link = {.from = s, .to = (s + 1) % p, .wire = -1};
        link.message_us = message_us, link.latency_us = latency_us;
        c->links[load->n_links++] = link;
        link.from = link.to, link.to = s, link.backward = true;
        c->links[load->n_links++] = link;
    }
    load->links = c->links;
}

/* Equal stages without anything else. */
static void equal_case(Case *c, const char *schedule, int p, int v, int m, double message_us) {
    memset(c, 0, sizeof(*c));
    c->load.shape = (PipelineShape){p, v, m, PATH_LOOP};
    c->load.schedule = schedule_number(schedule);
    c->load.chunks = c->chunks;
    for (int i = 0; i < p * v; i++) {
        c->chunks[i] = (PipelineChunk){.forward_us = 10, .backward_us = 20, .frame_bytes = 100};
    }
    add_links(c, message_us, 0);
}

static void random_case(Case *c, bool alone) {
    static const char *const NAMES[] = {"gpipe", "1f1b", "interleaved"};
    memset(c, 0, sizeof(*c));
    PipelineLoad *load = &c->load;
    int schedule = below(3), p = 1 + below(6), m = 1 + below(12), v = 1;
    if (schedule == 2) m = p * (1 + below(3)), v = p > 1 ? 1 + below(3) : 1;
    load->shape = (PipelineShape){p, v, m, PATH_LOOP};
    load->schedule = schedule_number(NAMES[schedule]);
    load->chunks = c->chunks;
    for (int i = 0; i < p * v; i++) {
        double forward_us = uniform(1, 10), backward_us = uniform(1, 20);
        c->chunks[i] = (PipelineChunk){.forward_us = forward_us,
                                       .backward_us = backward_us,
                                       .forward_tensor_us = forward_us * uniform(0, 1),
                                       .backward_tensor_us = backward_us * uniform(0, 1),
                                       .frame_bytes = 1 + below(100),
                                       .data_us = below(2) ? uniform(0, 50) : 0,
                                       .data_pieces = below(6)};
    }
    add_links(c, 0, 0);
    double most_us = below(3) * 8;
    for (int i = 0; i < load->n_links; i++) {
        c->links[i].message_us = uniform(0, most_us);
        c->links[i].latency_us = c->links[i].message_us * uniform(0, 1);
        if (!alone && below(2)) c->links[i].wire = below(3);
    }
    load->n_wires = 3;
    load->send = (SendMode)below(3);
    load->overlaps_data = below(2);
    for (int k = 0; k < N_PARTS; k++) {
        for (int s = 0; s < p; s++) c->part_us[k][s] = uniform(0, 20);
        c->parts[k] = (PipelinePart){.us = c->part_us[k], .is_data = k == 0};
    }
    for (int s = 0; s < p; s++) c->all[s] = s, c->constant_bytes[s] = below(1000);
    c->tied[1] = p - 1;
    c->joins[0] = (PipelineJoin){p > 1 ? 2 : 1, c->tied};
    c->joins[1] = (PipelineJoin){p, c->all};
    c->parts[0].joins = &c->joins[0], c->parts[0].n_joins = 1;
    c->parts[1].joins = &c->joins[1], c->parts[1].n_joins = 1;
    load->parts = c->parts, load->n_parts = N_PARTS;
    load->constant_bytes = c->constant_bytes;
}

/* ---- The first reference. ---- */

typedef struct Sweep {
    double arrive[2][MOST_GLOBAL][MOST_MICRO]; /* by direction, sending global chunk, micro-batch */
    double end_us[MOST_STAGES], data_us[MOST_STAGES];
    bool changed;
} Sweep;

static const PipelineLink *link_of(const PipelineLoad *load, int from, bool backward) {
    for (int i = 0; i < load->n_links; i++) {
        if (load->links[i].from == from && load->links[i].backward == backward) {
            return &load->links[i];
        }
    }
    return NULL;
}

static double sweep_data(const PipelineChunk *chunk, double start_us, double queue_us) {
    int pieces = chunk->data_pieces > 1 ? chunk->data_pieces : 1;
    for (int i = 1; i <= pieces && chunk->data_us > 0; i++) {
        double whole_us = start_us + chunk->backward_us * i / pieces;
        queue_us = fmax(queue_us, whole_us) + chunk->data_us / pieces;
    }
    return queue_us;
}

/* One pass over a stage's tasks with the arrivals known so far. */
static void sweep_stage(const PipelineLoad *load, int stage, bool free, Sweep *sweep) {
    int p = load->shape.p, v = load->shape.n_chunks, m = load->shape.n_micro;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Task *tasks;
    int n_tasks, n_backward[MAX_CHUNKS] = {0};
    double us = 0, wire_us[2] = {0}, data_us = 0;
    schedule_order(schedule_name(load->schedule), stage, &load->shape, arena, &tasks, &n_tasks,
                   diag);
    for (int i = 0; i < n_tasks; i++) {
        int micro = tasks[i].micro, chunk = tasks[i].chunk, g = chunk * p + stage;
        bool backward = tasks[i].kind == TASK_BACKWARD;
        const PipelineChunk *of = &load->chunks[stage * v + chunk];
        int source = backward ? g + 1 : g - 1, target = backward ? g - 1 : g + 1;
        if (source >= 0 && source < p * v) us = fmax(us, sweep->arrive[backward][source][micro]);
        if (backward && ++n_backward[chunk] == m && load->overlaps_data) {
            data_us = sweep_data(of, us, data_us);
        }
        us += backward ? of->backward_us : of->forward_us;
        if (target < 0 || target >= p * v) continue;
        const PipelineLink *link = link_of(load, stage, backward);
        double start_us = fmax(us, wire_us[backward]);
        double arrive_us = free ? us : start_us + link->message_us;
        if (!free) wire_us[backward] = arrive_us - link->latency_us;
        if (!free && load->send == SEND_LEAVES) us = wire_us[backward];
        if (!free && load->send == SEND_ARRIVES) us = arrive_us;
        sweep->changed |= sweep->arrive[backward][g][micro] != arrive_us;
        sweep->arrive[backward][g][micro] = arrive_us;
    }
    sweep->end_us[stage] = us;
    for (int c = 0; c < v && !load->overlaps_data; c++) us += load->chunks[stage * v + c].data_us;
    sweep->data_us[stage] = fmax(us, data_us);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Ends of all stages; those of their tasks and messages in `sweep`. */
static void sweep_run(const PipelineLoad *load, bool free, Sweep *sweep, double *end_us) {
    int p = load->shape.p;
    memset(sweep, 0, sizeof(*sweep));
    do {
        sweep->changed = false;
        for (int stage = p - 1; stage >= 0; stage--) sweep_stage(load, stage, free, sweep);
    } while (sweep->changed);
    memcpy(end_us, sweep->data_us, sizeof(double) * (size_t)p);
    for (int k = 0; k < load->n_parts; k++) {
        const PipelinePart *part = &load->parts[k];
        for (int j = 0; j < part->n_joins; j++) {
            double last_us = 0;
            for (int i = 0; i < part->joins[j].n_stages; i++) {
                last_us = fmax(last_us, end_us[part->joins[j].stages[i]]);
            }
            for (int i = 0; i < part->joins[j].n_stages; i++) {
                end_us[part->joins[j].stages[i]] = last_us;
            }
        }
        for (int stage = 0; stage < p; stage++) end_us[stage] += part->us[stage];
    }
}

static void check_sums(const PipelineLoad *load, const PipelineResult *result, int number) {
    int m = load->shape.n_micro, v = load->shape.n_chunks;
    for (int s = 0; s < result->p; s++) {
        const PipelineStage *of = &result->stages[s];
        double compute_us = 0, update_us = 0;
        for (int c = 0; c < v; c++) {
            const PipelineChunk *chunk = &load->chunks[s * v + c];
            compute_us += m * (chunk->forward_us + chunk->backward_us);
        }
        for (int k = 1; k < load->n_parts; k++) update_us += load->parts[k].us[s];
        double sum = of->compute_us + of->tensor_us + of->pipeline_us + of->bubble_us +
                     of->data_us + of->update_us + of->idle_us;
        CHECK(near(sum, result->step_us), "case %d: stage %d: parts sum to %g of %g", number, s,
              sum, result->step_us);
        CHECK(near(of->compute_us + of->tensor_us, compute_us), "case %d: compute", number);
        CHECK(near(of->update_us, update_us), "case %d: update", number);
        CHECK(of->pipeline_us >= -1e-9 && of->bubble_us >= -1e-9 && of->idle_us >= 0 &&
                  of->data_us >= -1e-9 && of->tensor_us >= 0,
              "case %d: stage %d: a part is negative", number, s);
    }
    PipelineStage mean = pipeline_mean(result);
    double busy = 0;
    for (int s = 0; s < result->p; s++) {
        const PipelineStage *of = &result->stages[s];
        busy += (of->compute_us + of->tensor_us + of->data_us + of->update_us) / result->p;
    }
    CHECK(near(busy + mean.pipeline_us + mean.bubble_us + mean.idle_us, result->step_us),
          "case %d: means sum to %g of %g", number,
          busy + mean.pipeline_us + mean.bubble_us + mean.idle_us, result->step_us);
}

static void test_longest_path(PipelineSim *sim, Diag *diag, uint64_t seed) {
    check_begin("500 random pipelines: as the longest path through their tasks");
    Sweep *sweep = malloc(sizeof(Sweep));
    Case c;
    seed_state = seed;
    for (int number = 0; number < 500; number++) {
        PipelineResult result;
        double end_us[MOST_STAGES], free_end_us[MOST_STAGES], step_us = 0;
        random_case(&c, true);
        c.load.spans = below(2);
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        sweep_run(&c.load, true, sweep, free_end_us);
        sweep_run(&c.load, false, sweep, end_us);
        for (int s = 0; s < result.p; s++) step_us = fmax(step_us, end_us[s]);
        CHECK(near(step_us, result.step_us), "seed %llu, case %d (%s p=%d v=%d m=%d): %g, not %g",
              (unsigned long long)seed, number, schedule_name(c.load.schedule), c.load.shape.p,
              c.load.shape.n_chunks, c.load.shape.n_micro, result.step_us, step_us);
        for (int s = 0; s < result.p; s++) {
            CHECK(near(result.stages[s].idle_us, step_us - end_us[s]), "case %d: idle", number);
            CHECK(near(result.stages[s].pipeline_us, end_us[s] - free_end_us[s]),
                  "case %d: stage %d: %g us of messages, not %g", number, s,
                  result.stages[s].pipeline_us, end_us[s] - free_end_us[s]);
        }
        check_sums(&c.load, &result, number);
    }
    free(sweep);
}

/* ---- The second reference: of all that could be done, always what comes first. ---- */

typedef struct Earliest {
    Task *tasks[MOST_STAGES];
    int n_tasks[MOST_STAGES], at[MOST_STAGES], move[MOST_STAGES];
    double us[MOST_STAGES], arrive[2][MOST_GLOBAL][MOST_MICRO];
    double wire_us[2 * MOST_STAGES + 3];
} Earliest;

/* When the stage's next move would begin; < 0: not known yet. */
static double move_begins(const PipelineLoad *load, const Earliest *e, int stage) {
    int p = load->shape.p, n_global = p * load->shape.n_chunks;
    if (e->at[stage] == e->n_tasks[stage]) return -1;
    const Task *task = &e->tasks[stage][e->at[stage]];
    bool backward = task->kind == TASK_BACKWARD;
    int g = task->chunk * p + stage, source = backward ? g + 1 : g - 1;
    if (e->move[stage] != 0 || source < 0 || source == n_global) return e->us[stage];
    double arrive_us = e->arrive[backward][source][task->micro];
    return arrive_us < 0 ? -1 : fmax(e->us[stage], arrive_us);
}

static void make_move(const PipelineLoad *load, Earliest *e, int stage, double us) {
    int p = load->shape.p, v = load->shape.n_chunks;
    const Task *task = &e->tasks[stage][e->at[stage]];
    bool backward = task->kind == TASK_BACKWARD;
    const PipelineChunk *chunk = &load->chunks[stage * v + task->chunk];
    int g = task->chunk * p + stage, target = backward ? g - 1 : g + 1;
    e->us[stage] = us;
    if (e->move[stage] == 1) e->us[stage] += backward ? chunk->backward_us : chunk->forward_us;
    if (e->move[stage]++ < 2) return;
    e->move[stage] = 0;
    e->at[stage]++;
    if (target < 0 || target == p * v) return;
    const PipelineLink *link = link_of(load, stage, backward);
    double *wire_us = &e->wire_us[link->wire >= 0 ? link->wire : 3 + (int)(link - load->links)];
    double arrive_us = fmax(us, *wire_us) + link->message_us;
    *wire_us = arrive_us - link->latency_us;
    e->arrive[backward][g][task->micro] = arrive_us;
    if (load->send == SEND_LEAVES) e->us[stage] = *wire_us;
    if (load->send == SEND_ARRIVES) e->us[stage] = arrive_us;
}

/* When the last task ends. */
static double earliest_run(const PipelineLoad *load, Earliest *e) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    int p = load->shape.p;
    memset(e, 0, sizeof(*e));
    for (int i = 0; i < 2 * MOST_GLOBAL * MOST_MICRO; i++) (&e->arrive[0][0][0])[i] = -1;
    for (int s = 0; s < p; s++) {
        schedule_order(schedule_name(load->schedule), s, &load->shape, arena, &e->tasks[s],
                       &e->n_tasks[s], diag);
    }
    for (;;) {
        int first = -1;
        double first_us = 0, last_us = 0;
        for (int s = 0; s < p; s++) {
            double us = move_begins(load, e, s);
            if (us >= 0 && (first < 0 || us < first_us)) first = s, first_us = us;
            last_us = fmax(last_us, e->us[s]);
        }
        if (first < 0) {
            diag_destroy(diag);
            arena_destroy(arena);
            return last_us;
        }
        make_move(load, e, first, first_us);
    }
}

static void test_shared_wires(PipelineSim *sim, Diag *diag, uint64_t seed) {
    check_begin("500 random pipelines with shared wires: first come, first served");
    Earliest *e = malloc(sizeof(Earliest));
    Case c;
    int n_slower = 0;
    seed_state = seed;
    for (int number = 0; number < 500; number++) {
        PipelineResult result;
        random_case(&c, false);
        c.load.n_parts = 0;
        for (int i = 0; i < MOST_GLOBAL; i++) c.chunks[i].data_us = 0;
        double step_us = earliest_run(&c.load, e);
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        CHECK(near(step_us, result.step_us), "seed %llu, case %d (%s p=%d v=%d m=%d): %g, not %g",
              (unsigned long long)seed, number, schedule_name(c.load.schedule), c.load.shape.p,
              c.load.shape.n_chunks, c.load.shape.n_micro, result.step_us, step_us);
        check_sums(&c.load, &result, number);
        for (int i = 0; i < c.load.n_links; i++) c.links[i].wire = -1;
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        n_slower += result.step_us < step_us * 0.999;
    }
    CHECK(n_slower > 20, "only %d of 500 were slower than with wires of their own", n_slower);
    free(e);
}

/* Narayanan et al. 2021, section 2.2: the bubble over the ideal time is (p - 1) / (v m). */
static void test_bubble(PipelineSim *sim, Diag *diag) {
    static const struct {
        const char *schedule;
        int p, v, m;
    } CASES[] = {{"1f1b", 1, 1, 4},         {"1f1b", 4, 1, 4},        {"1f1b", 8, 1, 20},
                 {"gpipe", 4, 1, 16},       {"gpipe", 8, 1, 3},       {"interleaved", 4, 2, 8},
                 {"interleaved", 8, 4, 24}, {"interleaved", 2, 3, 2}, {"1f1b", 6, 1, 2}};
    check_begin("bubble: (p - 1) / (v m) of the ideal time when messages are free");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Case c;
        PipelineResult result;
        int p = CASES[i].p, v = CASES[i].v, m = CASES[i].m;
        equal_case(&c, CASES[i].schedule, p, v, m, 0);
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        double ideal_us = 30.0 * m * v, want = (double)(p - 1) / (v * m);
        CHECK(near(result.step_us / ideal_us - 1, want), "%s p=%d v=%d m=%d: %g, not %g",
              CASES[i].schedule, p, v, m, result.step_us / ideal_us - 1, want);
        for (int s = 0; s < p; s++) {
            double us = result.stages[s].bubble_us + result.stages[s].idle_us;
            CHECK(near(us, want * ideal_us), "stage %d: %g", s, us);
            CHECK(result.stages[s].pipeline_us == 0, "stage %d: messages cost", s);
        }
    }
}

/* On paper, for equal stages and messages of e us. Senders that wait add two messages to every
 * micro-batch of a stage in the middle. With overlap, stage 0 has p micro-batches in flight: each p
 * of them take once down and up. */
static void test_exposed(PipelineSim *sim, Diag *diag) {
    check_begin("messages: exposed ones as on paper, overlapped ones in 1F1B's round trips only");
    Case c;
    PipelineResult result;
    int p = 4, m = 32;
    double e = 1;
    equal_case(&c, "1f1b", p, 1, m, e);
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    double want = m / p * (p * 30.0 + 2 * (p - 1) * e) + (p - 1) * 30.0;
    double cost_us = result.stages[0].pipeline_us; /* the drain may take some more */
    CHECK(result.step_us >= want && result.step_us <= want + 2 * (p - 1) * e,
          "overlapped: %g, not %g", result.step_us, want);
    CHECK(near(cost_us, result.step_us - (m + p - 1) * 30.0), "messages: %g", cost_us);
    c.load.send = SEND_ARRIVES;
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    double most = (m + p - 1) * (30.0 + 2 * e);
    CHECK(result.step_us <= most + 1e-9 && result.step_us > most - 2 * p * e, "exposed: %g, not %g",
          result.step_us, most);
    equal_case(&c, "interleaved", p, 2, m, e);
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(result.stages[0].pipeline_us < 4 * p * e, "interleaved hides them: %g",
          result.stages[0].pipeline_us);
}

/* The middle of three stages sends both ways at once; nothing else is done. */
static void test_contention(PipelineSim *sim, Diag *diag) {
    check_begin("contention: two messages on one wire take twice as long");
    Case c;
    PipelineResult result;
    equal_case(&c, "gpipe", 3, 1, 1, 0);
    static const Task FIRST[] = {{TASK_RECV_BACKWARD, 0, 0}, {TASK_UPDATE, 0, 0}};
    static const Task MIDDLE[] = {
        {TASK_SEND_FORWARD, 0, 0}, {TASK_SEND_BACKWARD, 0, 0}, {TASK_UPDATE, 0, 0}};
    static const Task LAST[] = {{TASK_RECV_FORWARD, 0, 0}, {TASK_UPDATE, 0, 0}};
    PipelineList lists[] = {{FIRST, 2}, {MIDDLE, 3}, {LAST, 2}};
    c.load.lists = lists;
    for (int i = 0; i < c.load.n_links; i++) c.links[i].message_us = 50;
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 50), "a wire each: %g", result.step_us);
    c.load.n_wires = 1;
    for (int i = 0; i < c.load.n_links; i++) {
        if (c.links[i].from == 1) c.links[i].wire = 0;
    }
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 100), "one wire: %g", result.step_us);
    CHECK(near(result.stages[0].pipeline_us, 100) && near(result.stages[2].pipeline_us, 50),
          "the second waits: %g, %g", result.stages[0].pipeline_us, result.stages[2].pipeline_us);
    for (int i = 0; i < c.load.n_links; i++) c.links[i].latency_us = 50;
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 50), "latency is not on the wire: %g", result.step_us);
}

static void test_memory(PipelineSim *sim, Diag *diag) {
    check_begin("memory: 1F1B's stage s holds min(p - s, m) frames, GPipe's m");
    Case c;
    PipelineResult result;
    MemoryPoint curve[200];
    for (int m = 1; m <= 12; m++) {
        for (int gpipe = 0; gpipe < 2; gpipe++) {
            equal_case(&c, gpipe ? "gpipe" : "1f1b", 5, 1, m, 1);
            for (int s = 0; s < 5; s++) c.constant_bytes[s] = 7;
            c.load.constant_bytes = c.constant_bytes;
            c.load.spans = true;
            CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
            for (int s = 0; s < 5; s++) {
                int frames = gpipe || m < 5 - s ? m : 5 - s;
                double peak = 0;
                CHECK(result.stages[s].peak_bytes == 7 + 100.0 * frames, "m=%d stage %d: %g", m, s,
                      result.stages[s].peak_bytes);
                int n = pipeline_memory_curve(&result, &c.load, s, curve);
                for (int i = 0; i < n; i++) {
                    peak = fmax(peak, curve[i].bytes);
                    CHECK(i == 0 || curve[i].us >= curve[i - 1].us, "time goes back");
                }
                CHECK(n == 1 + 2 * m && curve[n - 1].bytes == 7, "%d points", n);
                CHECK(peak == result.stages[s].peak_bytes, "the curve's peak is %g", peak);
            }
        }
    }
}

static void test_data(PipelineSim *sim, Diag *diag) {
    check_begin("data axis: after the last backward, or beside it piece by piece");
    Case c;
    PipelineResult result;
    equal_case(&c, "1f1b", 1, 1, 2, 0);
    c.chunks[0].data_us = 12;
    c.chunks[0].data_pieces = 4;
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 60 + 12) && near(result.stages[0].data_us, 12), "after: %g",
          result.step_us);
    c.load.overlaps_data = true;
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 60 + 3), "all but the last piece is hidden: %g", result.step_us);
    c.chunks[0].data_us = 40; /* from 45 on, when the first of four pieces is complete */
    CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
    CHECK(near(result.step_us, 45 + 40) && near(result.stages[0].data_us, 25), "long: %g",
          result.step_us);
}

static double once_us(PipelineSim *sim, const Case *c, Diag *diag, double *out_data_us) {
    PipelineResult result;
    if (!pipeline_sim_run(sim, &c->load, &result, diag)) return NAN;
    *out_data_us = result.stages[0].data_us;
    return result.step_us;
}

/* 60 us of work without them; forwards of 10. */
static void test_gathers(PipelineSim *sim, Diag *diag) {
    check_begin("weights that come once: before the first forward, or beside it piece by piece");
    static const struct {
        double gather_us;
        int pieces;
        bool overlaps;
        double slowdown, wait_us;
    } CASES[] = {
        {8, 4, false, 0, 8},
        {8, 4, true, 0, 2},              /* for the first piece */
        {20, 4, true, 0, 12.5},          /* for the last, and a quarter of the forward behind it */
        {20, 4, true, 0.1, 12.5 + 0.75}, /* 7.5 us of it beside work */
        {20, 1, true, 0, 20},            /* one piece: all of it */
        {0, 0, true, 0.1, 0},
    };
    Case c;
    double data_us;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        equal_case(&c, "1f1b", 1, 1, 2, 0);
        c.chunks[0].gather_us = CASES[i].gather_us;
        c.chunks[0].gather_pieces = CASES[i].pieces;
        c.chunks[0].once_us = 3;
        c.load.overlaps_gathers = CASES[i].overlaps;
        c.load.gather_slowdown = CASES[i].slowdown;
        double us = once_us(sim, &c, diag, &data_us);
        CHECK(near(us, 63 + CASES[i].wait_us) && near(data_us, CASES[i].wait_us),
              "case %zu: %g us, of which %g of data", i, us, data_us);
    }
    equal_case(&c, "1f1b", 2, 1, 4, 0); /* the second stage has time for it */
    c.load.overlaps_gathers = true;
    double alone_us = once_us(sim, &c, diag, &data_us);
    c.chunks[1].gather_us = 8, c.chunks[1].gather_pieces = 4;
    CHECK(near(once_us(sim, &c, diag, &data_us), alone_us), "not hidden");
    c.chunks[1].gather_us = 30; /* from 10 on for two more forwards' time: the last at 30 */
    CHECK(near(once_us(sim, &c, diag, &data_us), alone_us + 12.5), "not by as much");
    equal_case(&c, "interleaved", 2, 2, 2, 0); /* the second chunk's behind the first one's */
    c.load.overlaps_gathers = true;
    alone_us = once_us(sim, &c, diag, &data_us);
    c.chunks[0].gather_us = 10, c.chunks[0].gather_pieces = 10;
    c.chunks[1].gather_us = 20, c.chunks[1].gather_pieces = 10;
    double us = once_us(sim, &c, diag, &data_us);
    CHECK(us > alone_us && data_us >= 1, "%g and %g us, %g of data", us, alone_us, data_us);
}

/* The same pipeline, told by lists with sends and receives. */
static void test_lists(PipelineSim *sim, Diag *diag, uint64_t seed) {
    check_begin("lists with sends and receives take as long as the schedule they come from");
    seed_state = seed;
    for (int number = 0; number < 100; number++) {
        Arena *arena = arena_create();
        Case c;
        PipelineResult result;
        PipelineList lists[MOST_STAGES];
        random_case(&c, number % 2);
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        double step_us = result.step_us;
        for (int s = 0; s < c.load.shape.p; s++) {
            Task *order;
            int n_order;
            schedule_order(schedule_name(c.load.schedule), s, &c.load.shape, arena, &order,
                           &n_order, diag);
            lists[s].tasks =
                schedule_tasks(arena, &c.load.shape, s, order, n_order, &lists[s].n_tasks);
        }
        c.load.lists = lists;
        c.load.spans = true;
        for (int i = 0; i < c.load.n_links; i++) {
            c.links[i].slots = c.load.shape.n_micro * c.load.shape.n_chunks; /* never full */
        }
        CHECK(pipeline_sim_run(sim, &c.load, &result, diag), "%s", diag_text(diag));
        CHECK(near(result.step_us, step_us), "case %d: %g, not %g", number, result.step_us,
              step_us);
        for (int i = 0; i < result.n_messages; i++) {
            const MessageSpan *message = &result.messages[i];
            CHECK(message->taken_us >= message->arrive_us &&
                      message->arrive_us >= message->start_us,
                  "case %d: message %d", number, i);
        }
        arena_destroy(arena);
    }
}

/* What a run leaves in the memory that the next one uses must not matter. */
static void test_same(PipelineSim *used, Diag *diag, uint64_t seed) {
    check_begin("the same load gives the same bits, whatever was run before");
    seed_state = seed;
    for (int number = 0; number < 100; number++) {
        Arena *arena = arena_create();
        PipelineSim *fresh = pipeline_sim_create(arena);
        PipelineResult first, second;
        Case c, other;
        random_case(&c, false);
        random_case(&other, false);
        c.load.spans = other.load.spans = true;
        CHECK(pipeline_sim_run(used, &other.load, &second, diag), "%s", diag_text(diag));
        CHECK(pipeline_sim_run(used, &c.load, &second, diag), "%s", diag_text(diag));
        CHECK(pipeline_sim_run(fresh, &c.load, &first, diag), "%s", diag_text(diag));
        CHECK(first.step_us == second.step_us && first.n_spans == second.n_spans &&
                  first.n_messages == second.n_messages,
              "case %d: %g and %g us", number, first.step_us, second.step_us);
        for (int i = 0; i < first.p; i++) {
            const PipelineStage *x = &first.stages[i], *y = &second.stages[i];
            CHECK(x->pipeline_us == y->pipeline_us && x->bubble_us == y->bubble_us &&
                      x->data_us == y->data_us && x->peak_bytes == y->peak_bytes,
                  "case %d: stage %d is not the same", number, i);
        }
        for (int i = 0; i < first.n_spans; i++) {
            const TaskSpan *x = &first.spans[i], *y = &second.spans[i];
            CHECK(x->start_us == y->start_us && x->end_us == y->end_us, "case %d: span %d", number,
                  i);
        }
        for (int i = 0; i < first.n_messages; i++) {
            const MessageSpan *x = &first.messages[i], *y = &second.messages[i];
            CHECK(x->start_us == y->start_us && x->taken_us == y->taken_us &&
                      x->from_task == y->from_task && x->to_task == y->to_task,
                  "case %d: message %d", number, i);
        }
        arena_destroy(arena);
    }
}

static void test_bad(PipelineSim *sim) {
    Case c;
    PipelineResult result;
    Diag *diag = diag_create();
    check_begin("what cannot end is reported, not waited for");
    static const Task RECEIVES[] = {{TASK_RECV_BACKWARD, 0, 0}, {TASK_UPDATE, 0, 0}};
    static const Task ALSO[] = {{TASK_RECV_FORWARD, 0, 0}, {TASK_UPDATE, 0, 0}};
    PipelineList lists[] = {{RECEIVES, 2}, {ALSO, 2}};
    equal_case(&c, "1f1b", 2, 1, 1, 1);
    c.load.lists = lists;
    CHECK(!pipeline_sim_run(sim, &c.load, &result, diag), "it ended");
    CHECK(strstr(diag_text(diag), "stage 0 waits forever at its task 0 (rb0.0)"), "%s",
          diag_text(diag));
    check_begin("a schedule that cannot be, and one that is too long");
    equal_case(&c, "interleaved", 4, 2, 4, 1);
    c.load.shape.n_micro = 6;
    CHECK(!pipeline_sim_run(sim, &c.load, &result, diag), "6 micro-batches over 4 stages");
    CHECK(strstr(diag_text(diag), "no multiple of the 4 stages"), "%s", diag_text(diag));
    c.load.shape.n_micro = MAX_MICRO;
    CHECK(!pipeline_sim_run(sim, &c.load, &result, diag), "%d micro-batches", MAX_MICRO);
    CHECK(strstr(diag_text(diag), "tasks to simulate"), "%s", diag_text(diag));
    diag_destroy(diag);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Best of several runs, in milliseconds. */
static double time_run(PipelineSim *sim, const PipelineLoad *load, PipelineResult *out,
                       Diag *diag) {
    double best = 1e9;
    for (int i = 0; i < 10; i++) {
        double start = seconds();
        CHECK(pipeline_sim_run(sim, load, out, diag), "%s", diag_text(diag));
        best = fmin(best, (seconds() - start) * 1e3);
    }
    return best;
}

static void test_speed(Diag *diag, bool print) {
    check_begin("64 stages x 512 micro-batches: fast");
    Arena *arena = arena_create();
    PipelineSim *sim = pipeline_sim_create(arena);
    PipelineChunk *chunks = ARENA_ARRAY(arena, PipelineChunk, 64);
    PipelineLink *links = ARENA_ARRAY(arena, PipelineLink, 126);
    for (int s = 0; s < 64; s++) {
        chunks[s] = (PipelineChunk){.forward_us = 100 + s % 7, .backward_us = 200 + s % 5};
        if (s == 63) break;
        links[2 * s] = (PipelineLink){.from = s, .to = s + 1, .wire = -1, .message_us = 5};
        links[2 * s + 1] = (PipelineLink){s + 1, s, true, 0, -1, 5, 1};
    }
    PipelineLoad load = {.shape = {64, 1, 512},
                         .schedule = schedule_number("1f1b"),
                         .chunks = chunks,
                         .links = links,
                         .n_links = 126,
                         .n_wires = 64};
    PipelineResult result;
    double alone_ms = time_run(sim, &load, &result, diag), step_us = result.step_us;
    load.spans = true;
    double spans_ms = time_run(sim, &load, &result, diag);
    CHECK(result.step_us == step_us, "with spans another time");
    load.spans = false;
    for (int i = 0; i < 126; i++) links[i].wire = links[i].from;
    double own_ms = time_run(sim, &load, &result, diag);
    for (int i = 0; i < 126; i++) links[i].wire = links[i].from / 4;
    double shared_ms = time_run(sim, &load, &result, diag);
    CHECK(result.step_us >= step_us, "shared wires are faster");
    if (print) {
        printf("# 65536 tasks and as many messages: %.2f ms, with spans %.2f, a wire per sender "
               "%.2f, per four senders %.2f\n",
               alone_ms, spans_ms, own_ms, shared_ms);
    }
    CHECK(alone_ms < 200, "%.1f ms", alone_ms); /* 2 on a quiet machine; sanitizers are slow */
    arena_destroy(arena);
}

int main(int argc, char **argv) {
    uint64_t seed = argc > 1 && atoll(argv[1]) > 0 ? (uint64_t)atoll(argv[1]) : 20211121;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    PipelineSim *sim = pipeline_sim_create(arena);
    test_bubble(sim, diag);
    test_exposed(sim, diag);
    test_contention(sim, diag);
    test_memory(sim, diag);
    test_data(sim, diag);
    test_gathers(sim, diag);
    test_longest_path(sim, diag, seed);
    test_shared_wires(sim, diag, seed);
    test_lists(sim, diag, seed);
    test_same(sim, diag, seed);
    test_bad(sim);
    test_speed(diag, argc > 1);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
