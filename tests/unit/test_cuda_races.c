/* Are races found? In one layout each event wait of a captured step is left out in turn: whatever
 * then has no order must be found by the proofs. What "has no order" means is decided here in
 * another way: all pairs of operations that touch the same memory, and paths by bit sets over the
 * graph's edges. Some of the broken graphs are run, what lost its wait first: how many of these
 * races change the result is printed.
 *
 * So they are where what blocks keep goes to the host's memory and comes back.
 *
 * And do the accesses, on which all proofs stand, say the truth? In two layouts every operation is
 * run alone: it must change nothing but what it says it writes, and must not depend on anything but
 * what it says it reads. */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip races: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

static const Variant GPT = {"gpt",
                            "models/gpt.lua",
                            4,
                            DTYPE_F32,
                            {SIZES, {"layers", "2"}, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant LLAMA = {"llama",
                              "models/llama.lua",
                              2,
                              DTYPE_F32,
                              {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}}};
static const Variant DEEP = {
    "gpt deep", "models/gpt.lua", 4, DTYPE_F32, {SIZES, {"layers", "3"}, {"vocab", "61"}}};
static const Variant LOW = {
    "gpt bf16", "models/gpt.lua", 4, DTYPE_BF16, {SIZES, {"layers", "2"}, {"vocab", "61"}}};

static bool touch(const Command *a, const Command *b) {
    for (int i = 0; i < a->n_accesses; i++) {
        const Access *x = &a->accesses[i];
        for (int j = 0; j < b->n_accesses; j++) {
            const Access *y = &b->accesses[j];
            if ((x->write || y->write) && x->bytes > 0 && y->bytes > 0 &&
                x->at < y->at + (uintptr_t)y->bytes && y->at < x->at + (uintptr_t)x->bytes) {
                return true;
            }
        }
    }
    return false;
}

/* before[i]: the nodes that node i certainly comes after, n_words words each. */
static void find_paths(const FakeDag *dag, uint64_t *before, size_t n_words) {
    memset(before, 0, (size_t)dag->n_nodes * n_words * sizeof(*before));
    for (int i = 0; i < dag->n_nodes; i++) {
        uint64_t *own = &before[(size_t)i * n_words];
        for (int e = dag->first_edge[i]; e < dag->first_edge[i + 1]; e++) {
            int from = dag->edges[e];
            for (size_t w = 0; w < n_words; w++) own[w] |= before[(size_t)from * n_words + w];
            own[from / 64] |= UINT64_C(1) << (from % 64);
        }
    }
}

typedef struct Mutation {
    const FakeGraph *graph;
    DagPairs near; /* what the proofs look at */
    size_t n_words;
    uint64_t *together; /* [node]: those before it that touch what it touches */
    uint64_t *before;
    FakeMemory start, end; /* of a whole step */
    int *order;
    int n_that_matter, n_caught, n_joins, n_spare, n_run, n_changed;
} Mutation;

static void find_together(Mutation *m) {
    const FakeGraph *graph = m->graph;
    for (int b = 0; b < graph->n_nodes; b++) {
        for (int a = 0; a < b; a++) {
            if (touch(graph->nodes[a].command, graph->nodes[b].command)) {
                m->together[(size_t)b * m->n_words + (size_t)(a / 64)] |= UINT64_C(1) << (a % 64);
            }
        }
    }
}

/* Is any pair that must have an order without one? */
static bool is_broken(const Mutation *m) {
    for (size_t i = 0; i < (size_t)m->graph->n_nodes * m->n_words; i++) {
        if (m->together[i] & ~m->before[i]) return true;
    }
    return false;
}

static bool is_end(const Mutation *m) {
    for (int p = 0; p < m->end.n_parts; p++) {
        if (memcmp(m->end.at[p], m->end.copies[p], m->end.bytes[p]) != 0) return false;
    }
    return true;
}

/* The origin waits for every stream at the end, also where another wait says as much. */
static bool is_join(const FakeGraph *graph, int wait) {
    int entry = 0;
    for (int n = -1; n < wait; entry++) n += graph->entries[entry].kind == FAKE_WAIT;
    while (entry < graph->n_entries && graph->entries[entry].kind == FAKE_WAIT) entry++;
    return entry == graph->n_entries;
}

static void leave_out(Mutation *m, int wait, bool run) {
    FakeDag dag = fake_dag_build(m->graph, wait);
    find_paths(&dag, m->before, m->n_words);
    int race = dag_find_race(m->graph, &dag, &m->near);
    bool loose = dag.n_unjoined || dag.n_outside, broken = is_broken(m);
    m->n_that_matter += broken;
    m->n_caught += broken && race >= 0;
    m->n_joins += loose && !broken;
    CHECK(broken == (race >= 0), "wait %d: the proofs say %s", wait, broken ? "nothing" : "race");
    m->n_spare += !broken && !loose;
    CHECK(broken || loose || is_join(m->graph, wait), "wait %d is not needed for anything", wait);
    if (run && race >= 0) {
        fake_cuda_restore(&m->start);
        fake_dag_hurry(&dag, m->near.items[race].after, m->order);
        m->n_run++;
        m->n_changed += !fake_cuda_run(m->graph, m->order) || !is_end(m);
    }
    fake_dag_free(&dag);
}

static bool prepare(Run *run, Mutation *m) {
    /* The next step's input lies in its staging slot once a step has been made; that step is then
     * taken again from the same beginning, by the graph alone. */
    if (!run_steps(run, 1, LEARNING_RATE)) return false;
    m->start = fake_cuda_save();
    if (!run_steps_from(run, 1, 1, LEARNING_RATE)) return false;
    m->end = fake_cuda_save();
    m->graph = fake_cuda_graph(0);
    m->n_words = (size_t)m->graph->n_nodes / 64 + 1;
    size_t words = (size_t)m->graph->n_nodes * m->n_words;
    m->together = calloc(words, sizeof(uint64_t));
    m->before = calloc(words, sizeof(uint64_t));
    m->order = calloc((size_t)m->graph->n_nodes, sizeof(int));
    m->near = dag_find_pairs(m->graph);
    find_together(m);
    return true;
}

static void check_waits(const char *name, const Variant *variant, const Layout *layout) {
    enum { RUN = EACH == 1 ? 24 : 4 };
    Run run;
    Mutation m = {0};
    check_begin(name);
    bool done = start_on_fake(&run, variant, layout, GRAPH) && prepare(&run, &m);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        FakeDag dag = fake_dag_build(m.graph, -1);
        find_paths(&dag, m.before, m.n_words);
        CHECK(!is_broken(&m), "something has no order with all waits");
        fake_dag_shuffle(&dag, 77, m.order);
        fake_dag_free(&dag);
        fake_cuda_restore(&m.start);
        CHECK(fake_cuda_run(m.graph, m.order) && is_end(&m), "the step taken again differs");
        int each = m.graph->n_waits / RUN + 1;
        for (int w = 0; w < m.graph->n_waits; w++) leave_out(&m, w, w % each == each / 2);
        printf("%d waits: %d of %d races caught; %d more leave a stream unjoined, caught when the "
               "capture ends, %d are implied by others; %d of %d races that were run changed the "
               "result\n",
               m.graph->n_waits, m.n_caught, m.n_that_matter, m.n_joins, m.n_spare, m.n_changed,
               m.n_run);
        CHECK(m.n_caught == m.n_that_matter && m.n_that_matter > 0, "%d of %d caught", m.n_caught,
              m.n_that_matter);
        CHECK(m.n_changed > 0, "no race changed anything");
        fake_memory_free(&m.start);
        fake_memory_free(&m.end);
        free(m.together), free(m.before), free(m.order);
        dag_pairs_free(&m.near);
    }
    close_on_fake(&run);
    check_end();
}

static void check_accesses(const Variant *variant, const Layout *layout) {
    char name[160], full[200], why[512] = "";
    Run run;
    snprintf(full, sizeof(full), "accesses are what operations do: %s",
             layout_name(variant->name, layout, name, sizeof(name)));
    check_begin(full);
    bool done = start_on_fake(&run, variant, layout, GRAPH) && run_steps(&run, 1, LEARNING_RATE);
    CHECK(done, "%s", diag_text(run.diag));
    for (int g = 0; done && g < fake_cuda_n_graphs(); g += 2) {
        CHECK(dag_check_accesses(fake_cuda_graph(g), why, sizeof(why)), "graph %d: %s", g, why);
    }
    close_on_fake(&run);
    check_end();
}

int main(void) {
    const Layout mesh = {2, 2, 2, 4, 1, "1f1b", true, NULL, 0};
    const Layout alone = {1, 1, 1, 4, 1, "gpipe", false, NULL, 0};
    const Layout pipeline = {2, 1, 2, 8, 1, "1f1b", true, NULL, 0};
    const Layout data = {2, 2, 1, 4, 1, "1f1b", true, NULL, 0};
    if (fake_missing()) {
        printf("skip races: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    check_waits("each wait left out is found", &GPT, &mesh);
    run_offload_activations = 100;
    check_waits("and each for copies to the host and back", &DEEP, &alone);
    run_offload_activations = 0;
    check_accesses(&GPT, &pipeline);
    run_offload_activations = 100;
    if (EACH == 1) check_accesses(&DEEP, &alone);
    run_offload_activations = 0;
    if (EACH == 1) check_accesses(&LLAMA, &data);
    if (EACH == 1) check_accesses(&LOW, &data);
    for (run_zero = ZERO_OPTIMIZER; EACH == 1 && run_zero < N_ZERO_STAGES; run_zero++) {
        if (run_zero != ZERO_GRADIENTS) check_accesses(&GPT, &data);
        run_offload = run_zero == ZERO_GRADIENTS ? 50 : 100;
        check_accesses(&LOW, &data);
        run_offload = 0;
    }
    run_zero = 0;
    return check_report();
}
#endif
