/* What is predicted of each run: its model, cluster and layout, priced. */
#include "frontend/lua/cluster_read.h"
#include "frontend/lua/model.h"
#include "frontend/validate/validate.h"
#include "planner/simulate/simulate_candidate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* What runs share: a model's costs on a cluster. The file lives as long as the arena. */
typedef struct Priced {
    const Run *run; /* the first with them */
    const char *cluster, *software;
    ModelCosts *costs;
} Priced;

typedef struct Predictor {
    Arena *arena;
    const RunTable *table;
    const ValidateOptions *options;
    Diag *diag;
    PipelineSim *sim;
    int n_priced, capacity;
    Priced *priced;
} Predictor;

static bool same_text(const char *a, const char *b) {
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_costs(const Priced *priced, const Run *run) {
    const Run *a = priced->run;
    return a->layers == run->layers && a->hidden == run->hidden && a->heads == run->heads &&
           a->kv_heads == run->kv_heads && a->ffn == run->ffn && a->seq == run->seq &&
           a->vocab == run->vocab && a->math == run->math &&
           memcmp(&a->more, &run->more, sizeof(a->more)) == 0 &&
           a->gpus_per_node == run->gpus_per_node &&
           same_text(a->facts->settings, run->facts->settings) &&
           same_text(priced->cluster, run->used_cluster) &&
           same_text(priced->software, run->used_software);
}

/* Notes where in the table an error came from, which has a place elsewhere. */
static void note_row(Predictor *predictor, const Run *run) {
    diag_note(predictor->diag, (SourceLoc){predictor->table->path, run->line}, "for run %.60s",
              run->id);
}

static Cluster *read_cluster(Predictor *predictor, const Run *run) {
    Cluster *cluster =
        cluster_read(predictor->arena, run->used_cluster, run->used_software, predictor->diag);
    if (!cluster) {
        note_row(predictor, run);
        return NULL;
    }
    int own = cluster->node.n_devices, n = (int)run->gpus_per_node;
    cluster->software.fp8_products = run->math == MATH_FP8;
    bool stated = !(run->assumed >> COLUMN_GPUS_PER_NODE & 1);
    if (n == own || !stated) return cluster;
    /* A node of another size has as many NICs a device. */
    cluster->node.n_devices = n;
    if (cluster->network.n_nics > 0) {
        cluster->network.n_nics = (int)ceil((double)cluster->network.n_nics * n / own);
    }
    return cluster;
}

/* "dropout=0.1,tied=false", of published.def. */
static int take_settings(Arena *arena, const char *text, ModelSetting *out) {
    int count = 0;
    while (*text) {
        size_t key = strcspn(text, "="), value = strcspn(text + key + 1, ",");
        out[count].key = arena_strndup(arena, text, key);
        out[count++].value = arena_strndup(arena, text + key + 1, value);
        text += key + 1 + value;
        text += *text == ',';
    }
    return count;
}

static Model *load_model(Predictor *predictor, const Run *run) {
    Arena *arena = predictor->arena;
    ModelSetting settings[MAX_RUN_SETTINGS];
    int n_settings = run_model_settings(arena, run, settings);
    const char *path = predictor->options->model;
    if (!path) n_settings += take_settings(arena, run->facts->settings, settings + n_settings);
    Model *model =
        path ? model_load(arena, path, settings, n_settings, 1, predictor->diag)
             : model_load_shipped(arena, run_model(run), settings, n_settings, 1, predictor->diag);
    if (!model) note_row(predictor, run);
    return model;
}

static ModelCosts *make_costs(Predictor *predictor, const Run *run) {
    Cluster *cluster = read_cluster(predictor, run);
    Model *model = cluster ? load_model(predictor, run) : NULL;
    if (!model) return NULL;
    PlanRequest request = {
        .model = model->name,
        .forward = model->graph,
        .n_blocks = model->n_blocks,
        .seq = model->seq,
        .vocab = model->vocab,
        .recipe = model->recipe,
        .options = {.micro_batch = 1,
                    .global_batch = 1,
                    .n_chunks = 1,
                    .schedule = "1f1b",
                    .cuda = !cluster->is_cpu,
                    .seed = 1,
                    .precision = run->math == MATH_F32 ? DTYPE_F32 : DTYPE_BF16},
    };
    for (int axis = 0; axis < N_MESH_AXES; axis++) request.options.mesh.size[axis] = 1;
    ModelCosts *costs = model_costs_create(predictor->arena, &request, cluster, predictor->diag);
    if (!costs) note_row(predictor, run);
    return costs;
}

/* Where the run was measured: its own columns, what is known of its family or GPU, the options. */
static bool place_run(Predictor *predictor, Run *run) {
    const RunFacts *facts = run->facts;
    run->used_cluster = run->cluster ? run->cluster : facts->cluster;
    run->used_software = run->software ? run->software : facts->software;
    if (!run->used_cluster) run->used_cluster = predictor->options->cluster;
    if (!run->used_software) run->used_software = predictor->options->software;
    if (run->used_cluster) return true;
    diag_error(predictor->diag, (SourceLoc){predictor->table->path, run->line},
               "no cluster is known for gpu '%.40s': --cluster NAME|FILE, or a column cluster",
               run->gpu ? run->gpu : "");
    return false;
}

/* What the options name must be there, also where no row comes to use it. A software may be one of
 * a cluster's own file. */
static bool check_options(Predictor *predictor) {
    const ValidateOptions *options = predictor->options;
    const Run *first = &predictor->table->runs[0];
    const char *cluster = options->cluster;
    if (!cluster && !options->software) return true;
    if (!cluster) cluster = first->cluster ? first->cluster : first->facts->cluster;
    if (!cluster) return true; /* the row itself will be refused */
    return cluster_read(predictor->arena, cluster, options->software, predictor->diag) != NULL;
}

static ModelCosts *find_costs(Predictor *predictor, Run *run) {
    if (!place_run(predictor, run)) return NULL;
    for (int i = predictor->n_priced; i-- > 0;) {
        if (same_costs(&predictor->priced[i], run)) return predictor->priced[i].costs;
    }
    Priced priced = {run, run->used_cluster, run->used_software, make_costs(predictor, run)};
    if (!priced.costs) return NULL;
    ARENA_PUSH(predictor->arena, predictor->priced, predictor->n_priced, predictor->capacity,
               priced);
    return priced.costs;
}

static double measured_seconds(const Run *run, const Cluster *cluster) {
    if (run->seconds > 0) return run->seconds;
    double tokens = (double)run->global_batch * (double)run->seq;
    if (run->tokens > 0) return tokens / (run->tokens * (double)run->num_gpus);
    double rate = 1e12 * run->tflops;
    if (run->tflops < 0) rate = 0.01 * run->peak_percent * cluster->device.peak_flops[run->math];
    return rate > 0 ? run_flops(run, run->convention) / (rate * (double)run->num_gpus) : NAN;
}

static int find_schedule(const char *name) {
    int index = 0;
    while (strcmp(schedule_name(index), name) != 0) index++;
    return index;
}

/* The row's, or what its chunks say. */
static const char *name_schedule(const Run *run) {
    if (run->schedule) return run->schedule;
    return run->v > 1 ? "interleaved" : "1f1b";
}

/* NULL, or why the schedule cannot be played. */
static const char *check_schedule(const Run *run, int64_t n_micro) {
    int path = schedule_path(find_schedule(name_schedule(run)));
    if (run->v > 1 && path == PATH_LINE) return "the schedule has one chunk a stage";
    if (run->v != 2 && path == PATH_V) return "the schedule has two chunks a stage";
    if (run->v > 1 && path == PATH_LOOP && n_micro % run->p != 0) {
        return "interleaving needs a multiple of p micro-batches";
    }
    return NULL;
}

/* NULL, or why it cannot be. */
static const char *stated_candidate(Arena *arena, const Run *run, Candidate *out) {
    int64_t unit = run->d * run->micro_batch, n_micro = run->global_batch / unit;
    const char *why;
    int e = run_expert_degree(arena, run, &why);
    if (e == 0) return why;
    if (run->zero >= N_ZERO_STAGES) return "ZeRO has stages 0 to 3";
    if (run->global_batch % unit != 0) {
        return arena_printf(
            arena, "global batch %" PRId64 " is no multiple of %" PRId64 " x %" PRId64 " ranks",
            run->global_batch, run->micro_batch, run->d);
    }
    if (n_micro > MAX_MICRO) return "too many micro-batches";
    if (run->v > MAX_CHUNKS) return "too many chunks a stage";
    *out = (Candidate){.t = (int)run->t,
                       .p = (int)run->p,
                       .d = (int)run->d / e,
                       .c = (int)run->cp,
                       .e = e,
                       .n_chunks = (int)run->v,
                       .micro_batch = (int)run->micro_batch,
                       .n_micro = (int)n_micro,
                       .schedule = find_schedule(name_schedule(run)),
                       .recompute = (Recompute)run->recompute,
                       .zero = (int)run->zero,
                       .sequence_parallel = run->sequence_parallel == 1 && run->t > 1};
    return check_schedule(run, n_micro);
}

static const char *price_stated(Predictor *predictor, ModelCosts *costs, Run *run) {
    Arena *arena = predictor->arena;
    Candidate *candidate = &run->candidate;
    const char *why = stated_candidate(arena, run, candidate);
    if (why) return why;
    const LayoutCost *layout = model_costs_divided(
        costs, candidate->t, candidate->c, candidate_e(candidate), candidate->sequence_parallel,
        candidate->recompute, candidate->micro_batch, 1, &why);
    if (!layout) return why;
    if (schedule_splits(candidate->schedule)) model_costs_split(costs, layout);
    int *split = ARENA_ARRAY(arena, int, candidate->p * candidate->n_chunks);
    bool even = costs->cluster->software.even_split;
    if (!split_blocks(costs, layout, candidate_path(candidate), candidate->n_chunks, even, split)) {
        return arena_printf(arena, "%d blocks do not divide over %d chunks", costs->n_blocks,
                            candidate->p * candidate->n_chunks);
    }
    step_cost(costs, layout, candidate, split, &run->cost);
    Diag *diag = diag_create(); /* too many tasks to play: the sum alone has to do */
    simulate_candidate(predictor->sim, costs, layout, candidate, split, &run->cost, diag);
    diag_destroy(diag);
    return NULL;
}

static int fixed(int64_t value) {
    return value == UNSTATED ? ANY : (int)value;
}

/* The best of what the row leaves open and the device's memory holds. */
static const char *price_open(Predictor *predictor, ModelCosts *costs, Run *run) {
    const char *why = NULL;
    int e = 1;
    if (run->ep > 1 && (run->t == UNSTATED || run->d == UNSTATED)) {
        return "ep with t or d left open is not searched";
    }
    if (run->more.experts > 0 && run->t != UNSTATED && run->d != UNSTATED) {
        e = run_expert_degree(predictor->arena, run, &why);
    }
    if (e == 0) return why;
    if (run->zero >= N_ZERO_STAGES) return "ZeRO has stages 0 to 3";
    if (run->v > MAX_CHUNKS) return "too many chunks a stage";
    SearchRequest request = {.n_ranks = (int)run->num_gpus,
                             .global_batch = (int)run->global_batch,
                             .t = fixed(run->t),
                             .c = (int)run->cp,
                             .e = e,
                             .r = 1,
                             .p = fixed(run->p),
                             .d = run->d == UNSTATED ? ANY : (int)(run->d / e),
                             .n_chunks = fixed(run->v),
                             .micro_batch = fixed(run->micro_batch),
                             .schedule = run->schedule,
                             .recompute = (int)run->recompute,
                             .zero = (int)run->zero,
                             .sequence_parallel = (int)run->sequence_parallel,
                             .leaves_out = PART_SAMPLES | PART_RANKS | PART_MISSING};
    Diag *diag = diag_create();
    SearchResult *result = search_layouts(predictor->arena, costs, &request, diag);
    if (result && result->n_found > 0) {
        run->candidate = result->found[0].candidate;
        run->cost = result->found[0].cost;
    } else if (result) {
        why = "no layout fits the device's memory";
    } else {
        why = arena_strndup(predictor->arena, diag_text(diag), strcspn(diag_text(diag), "\n"));
    }
    diag_destroy(diag);
    return why;
}

static bool predict_run(Predictor *predictor, Run *run) {
    ModelCosts *costs = find_costs(predictor, run);
    if (!costs) return false;
    run->measured_seconds = measured_seconds(run, costs->cluster);
    if (!isfinite(run->measured_seconds)) {
        diag_error(predictor->diag, (SourceLoc){predictor->table->path, run->line},
                   "peak_pct of what? cluster %s states no peak for %s", costs->cluster->name,
                   run->precision ? run->precision : "bf16");
        return false;
    }
    run->skipped =
        run->searched ? price_open(predictor, costs, run) : price_stated(predictor, costs, run);
    if (run->skipped) return true;
    run->predicted_seconds = 1e-6 * run->cost.step_us;
    run->error = run->predicted_seconds / run->measured_seconds - 1;
    return true;
}

int validate_count_users(const RunTable *table, const char *cluster, const char *software) {
    int count = 0;
    for (int r = 0; r < table->n_runs; r++) {
        const Run *run = &table->runs[r];
        count += (cluster && run->used_cluster == cluster) ||
                 (software && run->used_software == software);
    }
    return count;
}

bool validate_predict(Arena *arena, RunTable *table, const ValidateOptions *options, Diag *diag) {
    Predictor predictor = {.arena = arena,
                           .table = table,
                           .options = options,
                           .diag = diag,
                           .sim = pipeline_sim_create(arena)};
    int n_done = 0;
    if (!check_options(&predictor)) return false;
    /* What has to be searched comes last: the time left is told by the rate so far. */
    for (int open = 0; open < 2; open++) {
        for (int r = 0; r < table->n_runs; r++) {
            Run *run = &table->runs[r];
            if (run->searched != open) continue;
            if (!predict_run(&predictor, run)) return false;
            n_done++;
            if (options->progress) {
                options->progress(options->user, n_done, table->n_runs, run->id);
            }
        }
    }
    return true;
}
