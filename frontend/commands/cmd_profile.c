/* perilune profile: measures the device at hand into a device profile. */
#include "frontend/commands/engine_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/progress_line.h"
#include "runtime/cpu/cpu_comm.h"
#include "runtime/cpu/cpu_report.h"
#include "runtime/launch/launch_environment.h"
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
    if (profile->n_host) {
        printf("host    %.1f GB/s from its memory, and back at the same time\n",
               device.host_bytes_per_second / 1e9);
    }
    printf("took    %.1f s for %d rows\n", seconds,
           profile->n_calls + profile->n_products + profile->n_attention + profile->n_memory +
               profile->n_host + profile->n_kernels + profile->n_messages + profile->n_collectives);
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

static int measure(CliArgs *args, DeviceKind kind, const CommJob *job, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    const bool only_helps = job && job->rank > 0;
    ProgressLine line = progress_line_start("measured");
    MeasureOptions options = {.quick = cli_given(args, OPT_QUICK),
                              .n_threads = (int)cli_int(args, OPT_THREADS, 0),
                              .job = job,
                              .progress = only_helps ? NULL : progress_line_show,
                              .user = &line};
    DeviceProfile profile;
    warn_if_busy();
    bool to_file = path && strcmp(path, "-") != 0;
    bool good = kind == DEVICE_CPU ? measure_cpu(&options, args->arena, &profile, diag)
                                   : measure_cuda(&options, args->arena, &profile, diag);
    double seconds = progress_line_end(&line);
    if (!good || only_helps) return good ? EXIT_DONE : EXIT_FAILED;
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

/* Rows are measured by all together, and so must be the same. */
static bool same_rows(const CliArgs *args, Control *control, Arena *arena, Diag *diag) {
    const int world = control_world(control);
    const char own = (char)cli_given(args, OPT_QUICK);
    char *all = ARENA_ARRAY(arena, char, world);
    if (!control_all_gather(control, &own, 1, 1, all, NULL)) return false;
    for (int i = 1; i < world; i++) {
        if (all[i] == all[0]) continue;
        diag_error(diag, NO_LOC, "%s was started otherwise as to --quick than rank 0",
                   control_show_rank(control, i).text);
        return false;
    }
    return true;
}

/* Messages between the processes of a job; the rest by rank 0 alone. */
static int measure_in_job(CliArgs *args, const LaunchEnvironment *launch, Diag *diag) {
    const uint64_t PROFILES = UINT64_C(0x70726f66696c6573); /* in a plan's place */
    char address[64];
    EngineOptions options = {.rank = launch->rank,
                             .control = engine_args_connect(args, launch, PROFILES, diag)};
    if (!options.control) return EXIT_FAILED;
    int status = EXIT_USAGE;
    if (same_rows(args, options.control, args->arena, diag)) {
        const CommJob job = cpu_comm_job(options.control, launch->rank, 0, address);
        status = measure(args, DEVICE_CPU, &job, diag);
    }
    if (status != EXIT_DONE) engine_args_explain(&options, diag);
    return engine_args_release(&options, status == EXIT_DONE) ? status : EXIT_FAILED;
}

static int measure_device(CliArgs *args, Diag *diag) {
    DeviceKind kind;
    LaunchEnvironment launch;
    const char *why;
    if (!device_from_args(args, &kind, diag)) return EXIT_USAGE;
    if (kind == DEVICE_CUDA && !engine_cuda_available(&why)) {
        diag_error(diag, NO_LOC, "--device cuda: %s", why);
        return EXIT_FAILED;
    }
    if (!launch_read_environment(&launch, diag)) return EXIT_USAGE;
    if (launch.world == 1) return measure(args, kind, NULL, diag);
    if (kind == DEVICE_CPU) return measure_in_job(args, &launch, diag);
    diag_error(diag, NO_LOC,
               "profile --device cuda measures all GPUs of a host from one process, and %d were "
               "started",
               launch.world);
    return EXIT_USAGE;
}

int cmd_profile(CliArgs *args) {
    Diag *diag = diag_create();
    const int status = measure_device(args, diag);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
