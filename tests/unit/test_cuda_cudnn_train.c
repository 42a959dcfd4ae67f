/* Training with cuDNN's attention on the fake, against the CPU backend: forward and backward, and
 * forward only where cuDNN does not do backward.
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

/* Each with the layout that it runs on, and whether backward, too, is cuDNN's. */
typedef struct Training {
    Variant variant;
    Layout layout;
    bool backward;
    bool room; /* the plan leaves memory for it */
} Training;

/* clang-format off */
#define SMALL  SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}
#define NARROW SIZES, {"layers", "1"}, {"vocab", "31"}, {"ffn", "32"}
/* clang-format on */
static const Training TRAININGS[] = {
    {{"llama with a window, cuDNN", "models/llama.lua", 2, DTYPE_BF16, {SMALL, {"window", "5"}}},
     {2, 1, 2, 2, 1, "1f1b", true, NULL, 0},
     true,
     false},
    /* Before 9.15.1 the gradient wants whole tiles of positions. */
    {{"gpt, cuDNN forward only", "models/gpt.lua", 4, DTYPE_BF16, {NARROW}},
     {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
     false,
     false},
    {{"gpt, cuDNN with room", "models/gpt.lua", 4, DTYPE_BF16, {NARROW}},
     {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},
     true,
     true},
};

/* With AddressSanitizer, ten times slower, the first will do. */
enum { N_TRAININGS = VARIANT_STEP > 1 ? 1 : sizeof(TRAININGS) / sizeof(TRAININGS[0]) };

/* Every attention of a step is cuDNN's, or its own kernels' where `backward` says so. */
static void check_counts(const Run *run, bool backward) {
    const FakeGraph *graph = fake_cuda_graph(0);
    int counts[2] = {0, 0}, expected = run->plan->n_blocks * run->plan->n_micro *
                                       run->plan->mesh.size[MESH_T] * run->plan->mesh.size[MESH_D];
    for (int i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].kind != FAKE_ATTENTION) continue;
        counts[graph->nodes[i].attention.graph->n_products > 2]++;
    }
    const char *said = engine_attention(run->engine);
    CHECK(said && strcmp(said, backward ? "attention by cuDNN 9.19.0"
                                        : "attention by cuDNN 9.15.0 forward, by own kernels "
                                          "backward") == 0,
          "it says: %s", said ? said : "nothing");
    CHECK(counts[0] == expected && counts[1] == (backward ? expected : 0),
          "%d forward, %d backward, of %d", counts[0], counts[1], expected);
}

static void check_training(const Training *t) {
    char name[160], why[512] = "";
    Run run = {0}, cpu;
    run_cudnn_backward = t->room;
    fake_cudnn_version = t->backward ? 91900 : 91500;
    check_begin(layout_name(t->variant.name, &t->layout, name, sizeof(name)));
    bool done =
        start_on_cpu(&cpu, &t->variant, &t->layout) && run_steps(&cpu, STEPS, LEARNING_RATE);
    CHECK(done, "on the CPU: %s", diag_text(cpu.diag));
    bool started = done && start_on_fake(&run, &t->variant, &t->layout, GRAPH);
    if (started) {
        prove(&run);
        check_counts(&run, t->backward);
        done = run_steps(&run, STEPS, LEARNING_RATE);
        CHECK(done, "%s", diag_text(run.diag));
        if (done) compare_with_cpu(&run, &cpu);
        if (!t->backward) { /* own kernels read what cuDNN has written */
            bool said = dag_check_accesses(fake_cuda_graph(0), why, sizeof(why));
            CHECK(said, "%s", why);
        }
    }
    if (done) close_on_fake(&run);
    run_close(&cpu);
    check_end();
}

static void test_training(void) {
    for (size_t i = 0; i < N_TRAININGS; i++) {
        check_training(&TRAININGS[i]);
    }
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
