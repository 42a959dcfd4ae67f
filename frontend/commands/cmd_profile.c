/* perilune profile: measures the device at hand into a device profile. */
#include "frontend/commands/engine_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/progress_line.h"
#include "runtime/cpu/cpu_report.h"
#include "runtime/measure/measure.h"

#include <stdlib.h>
#include <string.h>

static double most_flops(const DeviceProfile *profile, bool bf16) {
    double most = 0;
    for (int i = 0; i < profile->n_products; i++) {
        const ProfileProduct *row = &profile->products[i];
        double rate = 2 * (double)row->m * (double)row->n * (double)row->k / row->us * 1e6;
        if (row->bf16 == bf16 && rate > most) most = rate;
    }
    return most;
}

static void print_summary(const DeviceProfile *profile, double seconds) {
    double bf16 = most_flops(profile, true), memory = 0;
    for (int i = 0; i < profile->n_memory; i++) { /* the last row is of the most bytes */
        memory = (double)profile->memory[i].bytes / profile->memory[i].triad_us * 1e6;
    }
    Arena *arena = arena_create();
    Device device = device_of_profile(profile, 1, arena);
    printf("device  %s: %lld %s\n", profile->name, (long long)profile->cores,
           profile->cuda         ? "processors"
           : profile->cores == 1 ? "core"
                                 : "cores");
    printf("rates   products %.1f GFLOP/s f32", most_flops(profile, false) / 1e9);
    if (bf16 > 0) printf(", %.1f bf16", bf16 / 1e9);
    printf("; memory %.1f GB/s; a call %.2f us\n", memory / 1e9, device.call_us);
    if (profile->n_messages) {
        printf("links   a message %.2f us and %.1f GB/s\n", device.link_latency_us,
               device.link_bytes_per_second / 1e9);
    }
    printf("took    %.1f s for %d rows\n", seconds,
           profile->n_calls + profile->n_products + profile->n_attention + profile->n_memory +
               profile->n_kernels + profile->n_messages + profile->n_collectives);
    arena_destroy(arena);
}

/* Times of a machine that does other things, too, are too long by any factor. */
static void warn_if_busy(void) {
    double load;
    CpuReport cpu;
    cpu_report(&cpu);
    if (getloadavg(&load, 1) != 1 || load < 0.5 * cpu.cores + 0.5) return;
    fprintf(stderr,
            "perilune: warning: this machine is busy (load %.1f on %d cores): measured times will "
            "be too long\n",
            load, cpu.cores);
}

static int measure(CliArgs *args, DeviceKind kind, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    ProgressLine line = progress_line_start("measured");
    MeasureOptions options = {.quick = cli_given(args, OPT_QUICK),
                              .n_threads = (int)cli_int(args, OPT_THREADS, 0),
                              .progress = progress_line_show,
                              .user = &line};
    DeviceProfile profile;
    warn_if_busy();
    bool to_file = path && strcmp(path, "-") != 0;
    bool good = kind == DEVICE_CPU ? measure_cpu(&options, args->arena, &profile, diag)
                                   : measure_cuda(&options, args->arena, &profile, diag);
    double seconds = progress_line_end(&line);
    if (!good) return EXIT_FAILED;
    StrBuf text = strbuf_create();
    device_profile_print(&text, &profile);
    good = cli_write(path, &text, diag);
    strbuf_destroy(&text);
    if (good && to_file) {
        print_summary(&profile, seconds);
        printf("wrote   %s\n", path);
    }
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_profile(CliArgs *args) {
    Diag *diag = diag_create();
    DeviceKind kind = DEVICE_CPU;
    const char *why;
    int status = EXIT_USAGE;
    if (device_from_args(args, &kind, diag)) {
        if (kind == DEVICE_CUDA && !engine_cuda_available(&why)) {
            diag_error(diag, NO_LOC, "--device cuda: %s", why);
            status = EXIT_FAILED;
        } else {
            status = measure(args, kind, diag);
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
