/* Training with cuDNN's attention on the fake, against the CPU backend: forward and backward, and
 * forward only where the plan has too little workspace for backward.
 *
 * Would catch: a workspace shared or too small, a plan without it that ends in an error, a plan
 * made or loaded while a graph is captured, accesses that are not said, an lse that the own
 * backward does not understand.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip training with cuDNN: built without CUDA's headers");
    return 0;
}
#else

#include "tests/support/fake_dnn.h"
#include "tests/unit/cuda_graph.h"

static const Variant GPT = {
    "gpt, cuDNN", "models/gpt.lua", 4, DTYPE_BF16, {SIZES, {"layers", "4"}, {"vocab", "61"}},
    91900};
static const Variant LLAMA = {"llama, cuDNN",
                              "models/llama.lua",
                              2,
                              DTYPE_BF16,
                              {SIZES, {"layers", "4"}, {"vocab", "61"}, {"kv_heads", "2"}},
                              91900};
/* Scores of 8 heads take more workspace than the products of 64 x 64 have. */
static const Variant TIGHT = {"gpt, cuDNN forward only",
                              "models/gpt.lua",
                              4,
                              DTYPE_BF16,
                              {{"optimizer.eps", "1e-6"},
                               {"model", "64"},
                               {"heads", "8"},
                               {"seq", "8"},
                               {"layers", "4"},
                               {"ffn", "64"},
                               {"vocab", "61"}},
                              91900};
static const Variant OLD = {"gpt, cuDNN 9.10.0",
                            "models/gpt.lua",
                            4,
                            DTYPE_BF16,
                            {SIZES, {"layers", "4"}, {"vocab", "61"}},
                            91000};

static const Layout MESHES[] = {{1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
                                {2, 1, 2, 2, 1, "1f1b", true, NULL, 0},
                                {1, 2, 2, 2, 2, "interleaved", false, NULL, 0}};

/* Of a step's graph: how many attentions are cuDNN's. */
static void count_attentions(const FakeGraph *graph, int counts[2]) {
    counts[0] = counts[1] = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].kind != FAKE_ATTENTION) continue;
        counts[graph->nodes[i].attention.graph->n_products > 2]++;
    }
}

static void check_counts(const Variant *variant, bool forward, bool backward) {
    Run run = {0};
    int counts[2];
    char why[512] = "";
    check_begin(variant->name);
    bool done = start_on_fake(&run, variant, &MESHES[0], GRAPH);
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        int each = 4 * run.plan->n_micro;
        count_attentions(fake_cuda_graph(0), counts);
        CHECK(counts[0] == (forward ? each : 0) && counts[1] == (backward ? each : 0),
              "%d forward, %d backward, of %d", counts[0], counts[1], each);
        done = run_steps(&run, 1, LEARNING_RATE);
        CHECK(done && dag_check_accesses(fake_cuda_graph(0), why, sizeof(why)), "%s%s", why,
              diag_text(run.diag));
    }
    close_on_fake(&run);
    check_end();
}

static void check_all(const Variant *variant, int n_layouts) {
    for (int l = 0; l < n_layouts; l += VARIANT_STEP) check_layout(variant, &MESHES[l]);
}

static void test_training(void) {
    check_counts(&GPT, true, true);
    check_counts(&TIGHT, true, false);
    check_counts(&OLD, false, false);
    check_all(&GPT, 3);
    check_all(&LLAMA, 2);
    check_all(&TIGHT, 1);
}

int main(void) {
    const char *why = fake_missing();
    if (why) {
        printf("skip training with cuDNN: %s\n", why);
        return 0;
    }
    forget_cache();
    test_training();
    return check_report();
}
#endif
