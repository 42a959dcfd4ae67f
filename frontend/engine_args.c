#include "frontend/engine_args.h"

#include <string.h>

/* -1: not given; else a DeviceKind. False: reported. */
static bool device_asked(const CliArgs *args, int *out, Diag *diag) {
    const char *name = cli_text(args, OPT_DEVICE, NULL);
    *out = -1;
    if (!name) return true;
    if (strcmp(name, "cpu") == 0) {
        *out = DEVICE_CPU;
    } else if (strcmp(name, "cuda") == 0) {
        *out = DEVICE_CUDA;
    } else {
        diag_error(diag, NO_LOC, "--device: '%s' is neither cpu nor cuda", name);
        return false;
    }
    return true;
}

bool device_from_args(const CliArgs *args, DeviceKind *out, Diag *diag) {
    const char *why;
    int asked;
    if (!device_asked(args, &asked, diag)) return false;
    *out = asked >= 0 ? (DeviceKind)asked : engine_cuda_available(&why) ? DEVICE_CUDA : DEVICE_CPU;
    return true;
}

int engine_options_from_args(const CliArgs *args, const Plan *plan, EngineOptions *out,
                             Diag *diag) {
    const char *why = "";
    int asked;
    *out = (EngineOptions){.n_threads = (int)cli_int(args, OPT_THREADS, 0),
                           .virtual_ranks = cli_given(args, OPT_VIRTUAL_RANKS),
                           .no_graph = cli_given(args, OPT_NO_GRAPH)};
    if (!device_asked(args, &asked, diag)) return EXIT_USAGE;
    if (asked < 0) asked = plan->cuda && engine_cuda_available(&why) ? DEVICE_CUDA : DEVICE_CPU;
    out->device = (DeviceKind)asked;
    if (out->device == DEVICE_CPU) {
        if (!out->virtual_ranks && !out->no_graph) return EXIT_DONE;
        diag_error(diag, NO_LOC, "--%s: for --device cuda only",
                   out->virtual_ranks ? "virtual-ranks" : "no-graph");
        return EXIT_USAGE;
    }
    if (engine_cuda_available(&why)) return EXIT_DONE;
    diag_error(diag, NO_LOC, "--device cuda: %s", why);
    return EXIT_FAILED;
}
