/* Captured steps, proved and run without a GPU. */
#include "tests/unit/train_compare.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured steps: built without CUDA's headers");
    return 0;
}
#else

#include "tests/emulate/emulate.h"
#include "tests/support/dag_check.h"
#include "tests/support/fake_cuda.h"
#include "runtime/cuda/driver/device.h"

#include <time.h>

enum { STEPS = 3, GLOBAL_BATCH = 8 };
static const double LEARNING_RATE = 2e-3;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int argc, char **argv) {
    static const ModelSetting settings[] = {{"optimizer.eps", "1e-6"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {"layers", "4"}, {"vocab", "61"}, {"ffn", "64"}};
    int v[4] = {1, 1, 1, 2};
    for (int i = 1; i < argc && i < 5; i++) v[i - 1] = atoi(argv[i]);
    const Layout layout = {v[0], v[1], v[2], v[3], 1, "1f1b", false, NULL, 0};
    Run cpu, run;
    DType precision = getenv("BF16") ? DTYPE_BF16 : DTYPE_F32;
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    double t = now();
    bool ok = run_plan_for(&cpu, "models/gpt.lua", settings, 7, &layout, GLOBAL_BATCH, false, true, precision) && run_start(&cpu) && run_steps(&cpu, STEPS, LEARNING_RATE);
    printf("cpu %d %s %.2f\n", ok, diag_text(cpu.diag), now() - t); t = now();
    const CuApi *api = fake_cuda_create(&(FakeOptions){.seed = 1});
    cuda_api_replace(api);
    ok = run_plan_for(&run, "models/gpt.lua", settings, 7, &layout, GLOBAL_BATCH, false, true, precision) && run_start_on(&run, &(EngineOptions){.device = DEVICE_CUDA, .virtual_ranks = true, .no_graph = getenv("EAGER") != NULL, .segmented = getenv("SEGMENTED") != NULL});
    printf("start %d %s %.2f\n", ok, diag_text(run.diag), now() - t); t = now();
    for (int i = 0; i < fake_cuda_n_defects() && i < 10; i++) printf("defect %s\n", fake_cuda_defect(i));
    for (int g = 0; ok && g < fake_cuda_n_graphs(); g++) {
        char why[512] = "";
        bool good = dag_check(fake_cuda_graph(g), why, sizeof(why));
        printf("graph %d: %d nodes %d waits %d streams: %s\n", g, fake_cuda_graph(g)->n_nodes, fake_cuda_graph(g)->n_waits, fake_cuda_graph(g)->n_streams, good ? "good" : why);
    }
    printf("checked %.2f\n", now() - t); t = now();
    ok = ok && run_steps(&run, STEPS, LEARNING_RATE);
    printf("steps %d %s %.2f\n", ok, diag_text(run.diag), now() - t); t = now();
    for (int i = 0; i < fake_cuda_n_defects() && i < 10; i++) printf("defect %s\n", fake_cuda_defect(i));
    for (int s = 0; s < STEPS; s++) printf("%.9f %.9f  %.9f %.9f\n", cpu.losses[s], run.losses[s], cpu.norms[s], run.norms[s]);
    check_begin("compare");
    compare_losses(&run, &cpu, STEPS);
    compare_weights(&run, &cpu);
    check_end();
    compare_print_worst();
    run_close(&run);
    fake_cuda_check_leaks();
    for (int i = 0; i < fake_cuda_n_defects() && i < 10; i++) printf("defect %s\n", fake_cuda_defect(i));
    fake_cuda_destroy();
    run_close(&cpu);
    return 0;
}
#endif
