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

int main(void) {
    const char *why = emulate_missing() ? emulate_missing() : generated_host_missing();
    if (why) {
        printf("skip: %s\n", why);
        return 0;
    }
    test_training();
    return check_report();
}
#endif
