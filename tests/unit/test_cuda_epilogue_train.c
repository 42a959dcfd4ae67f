/* Training with products that do what follows them, without, and on a device that has none.
 *
 * Would catch: descriptors that say something else than the command; a command ordered too early;
 * an engine that does not start where cuBLASLt has no such product.
 */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip training with epilogues: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/driver/device.h"
#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/generated_run.h"

enum { STEPS = 3 };

typedef struct Training {
    bool no_epilogues; /* asked for */
    bool missing;      /* the device has none */
} Training;

static bool train(const Training *how, const Layout *layout, DType precision, double *losses) {
    static const ModelSetting settings[] = {
        {"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "8"},
        {"layers", "2"},           {"vocab", "61"}};
    Run run;
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1, .no_epilogues = how->missing}));
    bool good =
        run_plan_for(&run, "models/gpt.lua", settings, 6, layout, 4, false, true, precision) &&
        run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA,
                                            .virtual_ranks = true,
                                            .no_epilogues = how->no_epilogues}) &&
        run_steps(&run, STEPS, 2e-3);
    CHECK(good, "%s", diag_text(run.diag));
    for (int g = 0; good && g < fake_cuda_n_graphs(); g++) {
        char why[512] = "";
        bool sound = dag_check(fake_cuda_graph(g), why, sizeof(why));
        CHECK(sound, "graph %d: %s", g, why);
    }
    memcpy(losses, run.losses, STEPS * sizeof(*losses));
    run_close(&run);
    for (int i = 0; i < fake_cuda_n_defects(); i++) CHECK(false, "%s", fake_cuda_defect(i));
    fake_cuda_destroy();
    return good;
}

/* A sum that is not rounded to bf16 in between differs by 2^-9 of it: as much as any other order of
 * sums changes a bf16 run. Losses are means over many positions; measured, they stay
 * within 4e-4.
 */
static void test_training(void) {
    static const Training HOW[] = {{true, false}, {false, false}, {false, true}};
    static const Layout LAYOUTS[] = {{1, 1, 2, 2, 1, "1f1b", false, NULL, 0},
                                     {2, 1, 1, 2, 1, "1f1b", false, NULL, 0}};
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    for (int l = 0; l < 2; l++) {
        double losses[3][STEPS], tolerance = l ? 1e-3 : 1e-5;
        check_begin(l ? "training in bf16, t=2" : "training in f32, p=2");
        for (int h = 0; h < 3; h++) {
            if (!train(&HOW[h], &LAYOUTS[l], l ? DTYPE_BF16 : DTYPE_F32, losses[h])) return;
        }
        for (int h = 1; h < 3; h++) {
            for (int s = 0; s < STEPS; s++) {
                double error = fabs(losses[h][s] - losses[0][s]);
                CHECK(error <= tolerance, "loss of step %d: %.7f, without epilogues %.7f", s + 1,
                      losses[h][s], losses[0][s]);
            }
        }
        check_end();
    }
}

/* A step with k's weights too large on the device; the node that is said to be the first that is
 * not finite, or what it adds up. -1: none is said. */
static int overflow(DeviceKind device) {
    static const ModelSetting settings[] = {
        {"model", "32"}, {"heads", "4"}, {"seq", "8"}, {"layers", "2"}, {"vocab", "61"}};
    static const Layout layout = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    int node = -1;
    bool good =
        run_plan_for(&run, "models/gpt.lua", settings, 5, &layout, 4, false, true, DTYPE_F32) &&
        run_start_on(&run, &(EngineOptions){.device = device});
    CHECK(good, "%s", diag_text(run.diag));
    for (int i = 0; good && i < run.n_params; i++) {
        if (strcmp(run.names[i], "blocks.1.attn.wk") != 0) continue;
        float *weight = run_weight(&run, i);
        for (int64_t k = 0; k < type_elements(&run.types[i]); k++) weight[k] = 3e38f;
        engine_write_parameter(run.engine, run.names[i], weight);
    }
    CHECK(!good || !run_steps(&run, 1, 1e-3), "nothing was noticed");
    const char *said = strstr(diag_text(run.diag), "first value that is not finite: %");
    CHECK(said && sscanf(said, "first value that is not finite: %%%d", &node) == 1, "it says %s",
          diag_text(run.diag));
    if (node >= 0) {
        const Node *at = run.plan->programs[0].graph->nodes[node];
        CHECK(at->block == 1 && (at->op == OP_ADD || at->op == OP_MATMUL), "it says %s",
              diag_text(run.diag));
        if (at->op == OP_ADD) node = at->inputs[0].node->id; /* a product and its bias */
    }
    run_close(&run);
    return node;
}

/* k's product runs together with q's and v's: a report names it all the same, as the CPU's does. */
static void test_report(void) {
    check_begin("the value that is not finite is named, one of joined products");
    int cpu = overflow(DEVICE_CPU);
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1}));
    int cuda = overflow(DEVICE_CUDA);
    fake_cuda_destroy();
    CHECK(cpu >= 0 && cuda == cpu, "%%%d, not %%%d", cuda, cpu);
    check_end();
}

int main(void) {
    const char *why = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (why) {
        printf("skip: %s\n", why);
        return 0;
    }
    test_training();
    test_report();
    return check_report();
}
#endif
