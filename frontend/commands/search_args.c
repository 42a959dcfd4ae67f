#include "frontend/commands/search_args.h"

#include "frontend/commands/engine_args.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/train_islands.h"
#include "frontend/lua/cluster_read.h"
#include "ir/blocks.h"
#include "planner/cost/cluster_profile.h"

#include <inttypes.h>
#include <string.h>

enum { MOST_RANKS = 1 << 22, LEAST_BATCH = 16 };
static const double LEAST_MTBF_HOURS = 0.001, MOST_MTBF_HOURS = 1e9;
static const double MOST_PRICE = 1e6; /* as in a cluster's file */

bool search_is_wanted(const CliArgs *args) {
    return cli_given(args, OPT_CLUSTER) || cli_given(args, OPT_RANKS);
}

/* Options of group IN_PLANNING and IN_PLAN that say nothing to a search, and those of the search
 * alone. Nothing that is given is ignored in silence. */
static bool check_options(const CliArgs *args, Diag *diag) {
    if (cli_given(args, OPT_SPLIT)) {
        diag_error(diag, NO_LOC,
                   "--split: the search divides blocks itself; leave out one of "
                   "--split and --cluster");
        return false;
    }
    if (cli_given(args, OPT_CUDNN_BACKWARD)) {
        diag_error(diag, NO_LOC,
                   "--cudnn-backward: the search does not count its memory; leave out --cluster "
                   "and give the mesh");
        return false;
    }
    if (cli_given(args, OPT_DUMP_AFTER)) {
        diag_error(diag, NO_LOC,
                   "--dump-after: a search looks at many plans; leave out --cluster "
                   "and give the mesh");
        return false;
    }
    return true;
}

/* --price NAME=X, in the cluster's currency or, if it states none, in USD. */
static bool set_price(const CliArgs *args, Cluster *cluster, Diag *diag) {
    const CliValue *prices = &args->values[OPT_PRICE];
    size_t length = strlen(cluster->name);
    bool has_price = false;
    for (int i = 0; i < prices->n_list; i++) {
        const char *text = prices->list[i];
        if (strncmp(text, cluster->name, length) != 0 || text[length] != '=') continue;
        if (!cli_parse_real(text + length + 1, &cluster->price_per_device_hour) ||
            !(cluster->price_per_device_hour > 0) || cluster->price_per_device_hour > MOST_PRICE) {
            diag_error(diag, NO_LOC, "--price: '%s' is no price above 0 of a device-hour, up to %g",
                       text, MOST_PRICE);
            return false;
        }
        if (has_price) {
            diag_error(diag, NO_LOC, "--price: %.64s has two", cluster->name);
            return false;
        }
        has_price = true;
        if (!cluster->currency) cluster->currency = "USD";
        cluster->price_source = "--price";
    }
    return true;
}

Cluster *search_cluster_from_args(CliArgs *args, Diag *diag) {
    const DeviceProfile *profile = NULL;
    DeviceKind device = DEVICE_CPU;
    bool given = cli_given(args, OPT_DEVICE);
    if (given && !device_from_args(args, &device, diag)) return NULL;
    const char *name = cli_text(args, OPT_CLUSTER, default_cluster(device == DEVICE_CUDA));
    Cluster *cluster = cluster_read(args->arena, name, cli_text(args, OPT_SOFTWARE, NULL), diag);
    if (!cluster) return NULL;
    if (!set_price(args, cluster, diag)) return NULL;
    if (given && cluster->is_cpu != (device == DEVICE_CPU)) {
        diag_error(diag, NO_LOC, "--device %s: the devices of cluster %s are %s",
                   cli_text(args, OPT_DEVICE, ""), cluster->name,
                   cluster->is_cpu ? "processor cores" : "GPUs");
        return NULL;
    }
    bool has_profile = args->command->run == cmd_plan;
    if (has_profile && !profile_from_args(args, &profile, diag)) return NULL;
    if (profile && !cluster_apply_profile(cluster, profile, diag)) return NULL;
    return cluster;
}

static bool fixed_from_args(CliArgs *args, SearchRequest *request, Diag *diag) {
    Mesh mesh;
    bool seen[N_MESH_AXES];
    if (!plan_mesh_from_args(args, &mesh, seen, diag)) return false;
    *request =
        (SearchRequest){.t = seen[MESH_T] ? mesh.size[MESH_T] : ANY,
                        .d = seen[MESH_D] ? mesh.size[MESH_D] : ANY,
                        .c = seen[MESH_C] ? mesh.size[MESH_C] : ANY,
                        .e = seen[MESH_E] ? mesh.size[MESH_E] : ANY,
                        .r = seen[MESH_R] ? mesh.size[MESH_R] : ANY,
                        .p = seen[MESH_P] ? mesh.size[MESH_P] : ANY,
                        .n_chunks = (int)cli_int(args, OPT_CHUNKS, ANY),
                        .micro_batch = (int)cli_int(args, OPT_MICRO_BATCH, ANY),
                        .schedule = cli_text(args, OPT_SCHEDULE, NULL),
                        .global_batch = (int)cli_int(args, OPT_GLOBAL_BATCH, 0),
                        .lanes = (int)cli_int(args, OPT_LANES, ANY),
                        .recompute = -1,
                        .zero = -1,
                        .sequence_parallel = cli_given(args, OPT_SEQUENCE_PARALLEL) ? 1 : -1};
    PlanOptions options = {0};
    if (cli_given(args, OPT_RECOMPUTE)) {
        if (!plan_recompute_from_args(args, &options, diag)) return false;
        request->recompute = (int)options.recompute;
    }
    if (cli_given(args, OPT_ZERO)) {
        if (!plan_zero_from_args(args, &options, diag)) return false;
        request->zero = options.zero;
    }
    if (cli_given(args, OPT_ZERO_MESSAGES)) {
        if (!plan_zero_from_args(args, &options, diag)) return false;
        request->messages = options.join_messages ? 2 : 1;
    }
    double limit_gib = cli_real(args, OPT_MEMORY_LIMIT, 0);
    request->memory_limit_bytes = limit_gib * 1024 * 1024 * 1024;
    return true;
}

/* What --days-for-tokens counts, and a budget. */
static bool failures_from_args(const CliArgs *args, FailureChoice *out, Diag *diag) {
    static const CliOption ONLY[] = {OPT_MTBF, OPT_CHECKPOINT_SECONDS, OPT_RESTART_MINUTES,
                                     OPT_CHECKPOINT_ASYNC};
    bool has_days = cli_given(args, OPT_DAYS_FOR_TOKENS) || args->command->run == cmd_budget;
    const char *mtbf = cli_text(args, OPT_MTBF, NULL);
    bool none = mtbf && strcmp(mtbf, "none") == 0;
    *out = (FailureChoice){.has_mtbf = mtbf != NULL,
                           .has_write = cli_given(args, OPT_CHECKPOINT_SECONDS),
                           .has_restart = cli_given(args, OPT_RESTART_MINUTES),
                           .write_seconds = cli_real(args, OPT_CHECKPOINT_SECONDS, 0),
                           .restart_minutes = cli_real(args, OPT_RESTART_MINUTES, 0),
                           .async = cli_given(args, OPT_CHECKPOINT_ASYNC)};
    if (args->command->run == cmd_train) return true; /* whose checkpoints are real */
    for (size_t i = 0; i < sizeof(ONLY) / sizeof(*ONLY); i++) {
        const char *name = CLI_OPTIONS[ONLY[i]].name;
        bool given = cli_given(args, ONLY[i]);
        if (given && !has_days) {
            diag_error(diag, NO_LOC, "--%s: only with --days-for-tokens, whose days it is for",
                       name);
            return false;
        }
        if (given && none && ONLY[i] != OPT_MTBF) {
            diag_error(diag, NO_LOC, "--%s: nothing fails with --mtbf none; leave out one of them",
                       name);
            return false;
        }
    }
    if (!mtbf || none) return true;
    if (!cli_parse_real(mtbf, &out->device_mtbf_hours)) {
        diag_error(diag, NO_LOC, "--mtbf: '%s' is not a number of hours, or none", mtbf);
        return false;
    }
    double hours = out->device_mtbf_hours;
    if (hours >= LEAST_MTBF_HOURS && hours <= MOST_MTBF_HOURS) return true;
    diag_error(diag, NO_LOC, "--mtbf: %s is not from %g to %g hours, or none", mtbf,
               LEAST_MTBF_HOURS, MOST_MTBF_HOURS);
    return false;
}

/* Runs apart, for which the search's layout is each one's. False: reported. */
static bool islands_from_args(const CliArgs *args, IslandChoice *out, Diag *diag) {
    static const CliOption ALL[] = {OPT_ISLANDS,     OPT_OUTER_EVERY, OPT_OUTER_LINK,
                                    OPT_OUTER_DTYPE, OPT_OUTER_PARTS, OPT_OUTER_OVERLAP};
    enum { NEEDED = 3, N_ALL = sizeof(ALL) / sizeof(ALL[0]) };
    *out = (IslandChoice){0};
    if (args->command->run != cmd_plan) return true;
    const CliOption *given = NULL;
    for (int i = 0; i < N_ALL; i++) {
        if (cli_given(args, ALL[i])) given = &ALL[i];
    }
    for (int i = 0; i < NEEDED && given; i++) {
        if (cli_given(args, ALL[i])) continue;
        diag_error(diag, NO_LOC,
                   "--%s: what meetings of islands take follows from --islands N, --outer-every N "
                   "and --outer-link GBPS together: --%s is not given",
                   CLI_OPTIONS[*given].name, CLI_OPTIONS[ALL[i]].name);
        return false;
    }
    if (!given) return true;
    if (cli_int(args, OPT_ISLANDS, 1) < 2) {
        diag_error(diag, NO_LOC, "--islands 1: one alone meets nobody; plan it without");
        return false;
    }
    DType dtype;
    if (!train_islands_dtype(args, &dtype, diag)) return false;
    *out = (IslandChoice){.n_islands = (int)cli_int(args, OPT_ISLANDS, 2),
                          .every = cli_int(args, OPT_OUTER_EVERY, 1),
                          .word_bytes = (double)outer_bytes(dtype, WEIGHT_BLOCK) / WEIGHT_BLOCK,
                          .n_parts = (int)cli_int(args, OPT_OUTER_PARTS, 1),
                          .overlap = cli_int(args, OPT_OUTER_OVERLAP, 0),
                          .link_bytes_per_second = cli_real(args, OPT_OUTER_LINK, 1) * 1e9 / 8};
    if (out->n_parts > out->every || out->overlap >= out->every) {
        diag_error(diag, NO_LOC, "--outer-%s: %s %" PRId64 ", the steps of --outer-every",
                   out->n_parts > out->every ? "parts" : "overlap",
                   out->n_parts > out->every ? "give at most" : "give less than", out->every);
        return false;
    }
    return true;
}

SearchJob *search_job_from_args(CliArgs *args, Diag *diag) {
    SearchJob *job = ARENA_NEW(args->arena, SearchJob);
    if (!check_options(args, diag) || !failures_from_args(args, &job->failures, diag) ||
        !islands_from_args(args, &job->islands, diag) ||
        !fixed_from_args(args, &job->request, diag)) {
        return NULL;
    }
    Cluster *cluster = search_cluster_from_args(args, diag);
    if (!cluster) return NULL;
    PlanOptions *options = &job->plan.options;
    options->cuda = !cluster->is_cpu;
    options->expert_parts = (int)cli_int(args, OPT_EXPERT_PARTS, 1);
    options->seed = (uint64_t)cli_int(args, OPT_SEED, 1);
    options->vocab_multiple = (int)cli_int(args, OPT_VOCAB_MULTIPLE, 0);
    options->loss_parts = (int)cli_int(args, OPT_LOSS_PARTS, 1);
    if (!plan_precision_from_args(args, options, diag) ||
        !plan_fp8_products_from_args(args, cluster, options, diag) ||
        !plan_loss_scaling_from_args(args, options, diag)) {
        return NULL;
    }
    if ((options->offload || options->offload_activations || plan_offload_is_searched(args)) &&
        cluster->node.host_bytes_per_second <= 0) {
        diag_error(diag, NO_LOC,
                   "--offload: cluster %s does not say how fast the way to its nodes' memory is "
                   "(node.host_bytes_per_second, node.host_memory_bytes)",
                   cluster->name);
        return NULL;
    }
    job->cluster = cluster;
    if (cluster->device.peak_flops[cluster_math(cluster, options->precision)] <= 0) {
        diag_error(diag, NO_LOC, "--precision %s: cluster %s states no rate for it",
                   dtype_name(options->precision), cluster->name);
        return NULL;
    }
    job->days_tokens = cli_real(args, OPT_DAYS_FOR_TOKENS, 0);
    for (int axis = 0; axis < N_MESH_AXES; axis++) options->mesh.size[axis] = 1;
    options->micro_batch = options->global_batch = options->n_chunks = 1;
    options->schedule = "1f1b";
    if (!plan_load_model(args, args->arena, 1, &job->plan, diag)) return NULL;
    job->costs = model_costs_create(args->arena, &job->plan, cluster, diag);
    return job->costs ? job : NULL;
}

int search_ranks_from_args(const CliArgs *args, const SearchJob *job, Diag *diag) {
    const SearchRequest *request = &job->request;
    const char *text = cli_text(args, OPT_RANKS, NULL);
    int64_t n_ranks = (int64_t)request->t * search_fixed_data(request) * request->p *
                      (request->c != ANY ? request->c : 1) * (request->e != ANY ? request->e : 1);
    if (!text && n_ranks == 0) {
        diag_error(diag, NO_LOC, "--ranks: how many devices of %s? a node has %d",
                   job->cluster->name, job->cluster->node.n_devices);
        return 0;
    }
    if (text && strstr(text, "..")) {
        diag_error(diag, NO_LOC, "--ranks: '%s' is a range, which only perilune scale takes", text);
        return 0;
    }
    if (text && !cli_parse_int(text, &n_ranks)) {
        diag_error(diag, NO_LOC, "--ranks: '%s' is not a whole number", text);
        return 0;
    }
    if (n_ranks < 1 || n_ranks > MOST_RANKS) {
        diag_error(diag, NO_LOC, "--ranks: %lld is not from 1 to %d", (long long)n_ranks,
                   MOST_RANKS);
        return 0;
    }
    return (int)n_ranks;
}

bool search_range_from_args(const CliArgs *args, int64_t *out_first, int64_t *out_last,
                            Diag *diag) {
    const char *text = cli_text(args, OPT_RANKS, NULL);
    if (!text) {
        diag_error(diag, NO_LOC, "--ranks: from how many devices to how many? as in 64..4096");
        return false;
    }
    const char *dots = strstr(text, "..");
    const char *first = dots ? arena_strndup(args->arena, text, (size_t)(dots - text)) : text;
    const char *last = dots ? dots + 2 : text;
    if (!cli_parse_int(first, out_first) || !cli_parse_int(last, out_last)) {
        diag_error(diag, NO_LOC, "--ranks: '%s' is not FIRST..LAST, as in 64..4096", text);
        return false;
    }
    if (*out_first < 1 || *out_last > MOST_RANKS || *out_first > *out_last) {
        diag_error(diag, NO_LOC, "--ranks: %s: must go upwards, from 1 to %d at most", text,
                   MOST_RANKS);
        return false;
    }
    return true;
}

int search_pick_ranks(int64_t first, int64_t last, int n_per_node, int out[SEARCH_MOST_RUNGS]) {
    int n = 0;
    out[n++] = (int)first;
    for (int64_t ranks = 1; ranks < last && n < SEARCH_MOST_RUNGS - 1;) {
        if (ranks > first) out[n++] = (int)ranks;
        bool inside = ranks * 2 <= n_per_node;
        ranks = inside ? ranks * 2 : ranks < n_per_node ? n_per_node : ranks * 2;
    }
    if (last > first) out[n++] = (int)last;
    return n;
}

const char *search_first_line(Arena *arena, const Diag *diag) {
    const char *text = diag_text(diag);
    return arena_strndup(arena, text, strcspn(text, "\n"));
}

int search_assumed_batch(const SearchRequest *request) {
    int least = request->n_ranks > LEAST_BATCH ? request->n_ranks : LEAST_BATCH;
    int data = search_fixed_data(request);
    int unit = (data > 0 ? data : 1) * (request->micro_batch > 0 ? request->micro_batch : 1);
    return (least + unit - 1) / unit * unit;
}
