#include "frontend/commands/engine_args.h"

#include "frontend/commands/rank_software.h"
#include "frontend/commands/train_layout.h"
#include "runtime/comm/comm_tcp.h"

#include <math.h>
#include <stdlib.h>
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

Control *engine_args_connect(CliArgs *args, const LaunchEnvironment *launch, uint64_t fingerprint,
                             Diag *diag) {
    ControlOptions options = control_default_options(launch, fingerprint);
    options.connect_s = (double)cli_int(args, OPT_TIMEOUT, (int64_t)options.connect_s);
    args->joined = true;
    return control_connect(&options, diag);
}

void engine_args_decline(const CliArgs *args, const char *why) {
    LaunchEnvironment launch;
    Diag *said = diag_create(); /* by then it is, or the variables are in order */
    if (launch_read_environment(&launch, said)) {
        ControlOptions options = control_default_options(&launch, 0);
        options.connect_s = (double)cli_int(args, OPT_TIMEOUT, (int64_t)options.connect_s);
        control_decline(&options, *why ? why : "it has failed");
    }
    diag_destroy(said);
}

/* Finds the other processes of the job. EXIT_DONE also where there are none. */
static int join_job(CliArgs *args, const Plan *plan, EngineOptions *out, Diag *diag) {
    LaunchEnvironment launch;
    if (!launch_read_environment(&launch, diag)) return EXIT_USAGE;
    if (launch.world == 1) return EXIT_DONE;
    /* Those that a searched layout has no rank for have left. */
    if (train_layout_is_wanted(args)) launch.world = mesh_rank_count(&plan->mesh);
    if (launch.world != mesh_rank_count(&plan->mesh) || out->virtual_ranks) {
        diag_error(diag, NO_LOC, "%d processes were started for a plan of %d ranks%s", launch.world,
                   mesh_rank_count(&plan->mesh),
                   out->virtual_ranks ? "; --virtual-ranks is for one process" : "");
        return EXIT_USAGE;
    }
    bool shares;
    if (!comm_tcp_may_share(&shares, diag)) return EXIT_USAGE;
    ControlOptions options = control_default_options(&launch, plan->fingerprint);
    if (cli_given(args, OPT_TIMEOUT)) {
        out->timeout_seconds = (double)cli_int(args, OPT_TIMEOUT, 0);
        options.connect_s = options.operation_s = out->timeout_seconds;
        options.stuck_s = out->timeout_seconds;
        options.lost_s = fmin(options.lost_s, out->timeout_seconds);
    }
    args->joined = true;
    out->control = control_connect(&options, diag);
    out->rank = launch.rank;
    out->device_ordinal = launch.local_rank;
    out->several_hosts = launch.world > launch.local_world;
    out->n_on_host = launch.local_world;
    return out->control ? EXIT_DONE : EXIT_FAILED;
}

/* All ranks compute on GPUs, or all on processors: messages between the two would not meet.
 * `lacks`: why this one is on its processor. False: reported. */
static bool check_devices(const EngineOptions *options, const char *lacks, Diag *diag) {
    enum { WHY_BYTES = 320 };
    const bool on_gpu = options->device == DEVICE_CUDA;
    const char *own = on_gpu ? "" : lacks && *lacks ? lacks : "it is to use its processor";
    if (!options->control) return true;
    const int world = control_world(options->control);
    char *all = calloc((size_t)world, WHY_BYTES);
    if (!all) BUG("out of memory");
    bool met = control_all_gather(options->control, own, strnlen(own, WHY_BYTES - 1), WHY_BYTES,
                                  all, NULL);
    int with = -1, without = -1;
    for (int r = world - 1; met && r >= 0; r--) *(all[r * WHY_BYTES] ? &without : &with) = r;
    const bool alike = with < 0 || without < 0;
    if (!alike) {
        diag_error(diag, NO_LOC, "%s uses no GPU, though %s does: %s",
                   control_show_rank(options->control, without).text,
                   control_show_rank(options->control, with).text, all + without * WHY_BYTES);
    }
    free(all);
    return met && alike;
}

/* Nothing that is given is ignored in silence. */
static bool check_for_cpu(const CliArgs *args, Diag *diag) {
    static const CliOption GPUS[] = {OPT_VIRTUAL_RANKS, OPT_NO_GRAPH,       OPT_NO_EPILOGUES,
                                     OPT_OWN_PRODUCTS,  OPT_NO_CUDNN,       OPT_ATTENTION,
                                     OPT_TF32,          OPT_NO_REGISTRATION};
    for (size_t i = 0; i < sizeof(GPUS) / sizeof(GPUS[0]); i++) {
        if (!cli_given(args, GPUS[i])) continue;
        diag_error(diag, NO_LOC, "--%s: for --device cuda only", CLI_OPTIONS[GPUS[i]].name);
        return false;
    }
    return true;
}

/* Which kernels attention is asked to have; NULL: none are. False: reported. */
static bool find_attention(const CliArgs *args, const AttentionKernels **out, Diag *diag) {
    static const AttentionKernels ALL[] = {ATTENTION_CUDNN, ATTENTION_MMA, ATTENTION_WGMMA,
                                           ATTENTION_JOINT};
    const char *name = cli_text(args, OPT_ATTENTION, NULL);
    *out = NULL;
    for (size_t i = 0; name && i < sizeof(ALL) / sizeof(ALL[0]); i++) {
        if (strcmp(name, attention_kernels_word(ALL[i])) == 0) *out = &ALL[i];
    }
    if (name && !*out) {
        diag_error(diag, NO_LOC, "--attention: '%s' is none of cudnn, mma, wgmma, joint", name);
        return false;
    }
    if (*out && **out == ATTENTION_CUDNN && cli_given(args, OPT_NO_CUDNN)) {
        diag_error(diag, NO_LOC, "--attention cudnn and --no-cudnn: one of them");
        return false;
    }
    return true;
}

/* What the plain kernel of --own-products does not do. */
static bool check_own_products(const EngineOptions *options, const Plan *plan, Diag *diag) {
    if (options->tf32) {
        diag_error(diag, NO_LOC, "--tf32 and --own-products: one of them");
        return false;
    }
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (!matmul_is_scaled(graph->nodes[n])) continue;
            diag_error(diag, NO_LOC,
                       "--own-products: the plan has products of fp8, which they are not; "
                       "--fp8-products widened makes a plan without");
            return false;
        }
    }
    return true;
}

int engine_options_from_args(CliArgs *args, const Plan *plan, EngineOptions *out, Diag *diag) {
    const char *why = "";
    int asked;
    *out = (EngineOptions){.n_threads = (int)cli_int(args, OPT_THREADS, 0),
                           .virtual_ranks = cli_given(args, OPT_VIRTUAL_RANKS),
                           .no_graph = cli_given(args, OPT_NO_GRAPH),
                           .no_epilogues = cli_given(args, OPT_NO_EPILOGUES),
                           .own_products = cli_given(args, OPT_OWN_PRODUCTS),
                           .no_cudnn = cli_given(args, OPT_NO_CUDNN),
                           .tf32 = cli_given(args, OPT_TF32),
                           .no_registration = cli_given(args, OPT_NO_REGISTRATION),
                           .timeout_seconds = (double)cli_int(args, OPT_TIMEOUT, 0)};
    if (!device_asked(args, &asked, diag)) return EXIT_USAGE;
    if (asked < 0) asked = plan->cuda && engine_cuda_available(&why) ? DEVICE_CUDA : DEVICE_CPU;
    out->device = (DeviceKind)asked;
    if (!find_attention(args, &out->attention, diag)) return EXIT_USAGE;
    if (out->tf32 && plan->precision != DTYPE_F32) {
        diag_error(diag, NO_LOC, "--tf32: the plan's products are %s; TF32 is a way to do f32 ones",
                   dtype_name(plan->precision));
        return EXIT_USAGE;
    }
    if (out->own_products && !check_own_products(out, plan, diag)) return EXIT_USAGE;
    int joined = join_job(args, plan, out, diag);
    if (joined != EXIT_DONE) return joined;
    if (out->device == DEVICE_CUDA && !engine_cuda_available(&why)) { /* others are told, too */
        diag_error(diag, NO_LOC, "--device cuda: %s", why);
        return EXIT_FAILED;
    }
    if (!check_devices(out, why, diag) || !rank_software_compare(out)) return EXIT_FAILED;
    return out->device == DEVICE_CPU && !check_for_cpu(args, diag) ? EXIT_USAGE : EXIT_DONE;
}

bool engine_args_crew(const CliArgs *args, const EngineOptions *options, RankCrew *out,
                      Diag *diag) {
    const int world = options->control ? control_world(options->control) : 1;
    const int together = (int)cli_int(args, OPT_WRITE_OVER, 1);
    *out = (RankCrew){options->control, options->rank, together};
    if (!options->control || world % together == 0) return true;
    diag_error(diag, NO_LOC, "train: --write-over %d: %d processes are no groups of %d", together,
               world, together);
    return false;
}

const char *engine_args_missing_gpu(const CliArgs *args, const Plan *plan,
                                    const EngineOptions *options) {
    const char *why;
    if (!plan->cuda || options->device != DEVICE_CPU || cli_given(args, OPT_DEVICE)) return NULL;
    return engine_cuda_available(&why) ? NULL : why;
}

void engine_args_note_settings(const Engine *engine, const char *path) {
    Arena *arena = arena_create();
    const char *unlike = engine_unlike_settings(engine, path, arena);
    if (unlike) fprintf(stderr, "note: %s was made with %s\n", path, unlike);
    arena_destroy(arena);
}

bool engine_args_load(const CliArgs *args, Engine *engine, WeightsBegun *out_begun, Diag *diag) {
    WeightFiles files = {cli_text(args, OPT_LOAD, NULL), cli_text(args, OPT_LOAD_TRAINED, NULL)};
    if (!engine_load_files(engine, &files, out_begun, diag)) return false;
    if (!cli_given(args, OPT_QUIET)) engine_args_note_settings(engine, files.whole);
    return true;
}

bool engine_args_load_reference(const CliArgs *args, Engine *engine, Diag *diag) {
    WeightFiles files = {cli_text(args, OPT_REFERENCE_LOAD, NULL), NULL};
    if (!files.whole) return engine_args_load(args, engine, NULL, diag);
    return engine_load_files(engine, &files, NULL, diag);
}

void engine_args_explain(const EngineOptions *options, Diag *diag) {
    const char *why;
    if (!options->control) return;
    bool failed = control_failed(options->control, &why), said = diag_error_count(diag) > 0;
    if (failed && !said) diag_error(diag, NO_LOC, "%s", why);
    if (failed || !said) return;
    char line[CONTROL_TEXT_BYTES];
    const char *text = diag_text(diag);
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(text, "\n"), text);
    control_report(options->control, line);
}

bool engine_args_release(EngineOptions *options, bool good) {
    const char *why;
    if (!options->control) return true;
    bool met = !good || control_close(options->control);
    if (!met && control_failed(options->control, &why)) fprintf(stderr, "perilune: %s\n", why);
    control_destroy(options->control);
    options->control = NULL;
    return met;
}

bool engine_args_agree(const EngineOptions *options, bool own) {
    unsigned char answer = own;
    if (!options->control) return own;
    /* A lost rank: what follows, a step or the end, says so. */
    return control_broadcast(options->control, 0, &answer, 1) && answer != 0;
}

bool engine_args_any(const EngineOptions *options, bool own) {
    unsigned char answer = own;
    if (!options->control) return own;
    const size_t world = (size_t)control_world(options->control);
    unsigned char *answers = calloc(world, 1);
    if (!answers) BUG("out of memory");
    bool met = control_all_gather(options->control, &answer, 1, 1, answers, NULL);
    bool any = met ? memchr(answers, 1, world) != NULL : own;
    free(answers);
    return any;
}
