#include "runtime/cuda/driver/attention.h"

#include <math.h>
#include <stdlib.h>

/* 9.10.0 and 9.10.1 have wrong gradients; before them -infinity is no good as a masked score. */
enum { OLDEST_VERSION = 91002 };
/* Before it the gradient's kernels of sm_80 read lse as if it lay packed, [batch, heads, seq],
 * whatever strides it is said to have (NVIDIA/cudnn-frontend #304, #642); before 9.15.1 a causal
 * gradient wants whole tiles of positions, and one that is not causal still does on sm_90 in 9.19
 * (#160, #628). */
enum { ANY_LSE_VERSION = 92600, ANY_SEQ_VERSION = 91501, TILE = 128 };
enum { SM_80_GRADIENT = 7 /* the engine's number: sm_90 falls back on it */ };
enum { MOST_ENGINES = 16 };

struct AttentionEntry {
    AttentionShape shape;
    AttentionPart part;  /* that is done at a time: where memory is left for no more */
    int64_t limit_bytes; /* of workspace */
    DnnGraph graph;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN does not do it */
    int64_t own_bytes, delta_bytes;
    const char *why;
};

static const char *last_error(const CuApi *api, cudnnStatus_t status, Arena *arena) {
    char text[256] = "";
    api->cudnnGetLastErrorString(text, sizeof(text));
    return arena_printf(arena, "%s%s%s", api->cudnnGetErrorString(status), *text ? ": " : "", text);
}

AttentionTable *attention_table_create(const CudaDevice *device, Arena *arena) {
    const CuApi *api = device->api;
    AttentionTable *table = ARENA_NEW(arena, AttentionTable);
    *table = (AttentionTable){.device = device, .arena = arena};
    if (!api->path[LIBRARY_cudnn]) {
        table->why = "cuDNN was not found";
        return table;
    }
    int version = (int)api->cudnnGetVersion();
    if (version < OLDEST_VERSION) {
        table->why = arena_printf(arena, "cuDNN %d.%d.%d is older than 9.10.2", version / 10000,
                                  version / 100 % 100, version % 100);
        return table;
    }
    cudnnStatus_t status = api->cudnnCreate(&table->handle);
    if (status == CUDNN_STATUS_SUCCESS) return table;
    table->handle = NULL;
    table->why = arena_printf(arena, "cuDNN: %s", last_error(api, status, arena));
    return table;
}

void attention_table_destroy(AttentionTable *table) {
    if (!table) return;
    for (int i = 0; i < table->count; i++) attention_graph_destroy(&table->entries[i]->graph);
    if (table->handle) table->device->api->cudnnDestroy(table->handle);
    table->handle = NULL;
    table->count = 0;
}

/* --- engines --- */

static bool set_heuristic(DnnGraph *graph, cudnnBackendDescriptor_t heuristic,
                          cudnnBackendDescriptor_t device) {
    static const cudnnBackendHeurMode_t MODE = CUDNN_HEUR_MODE_A;
    attention_graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph->graph);
    attention_graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                        &MODE);
    if (device) {
        attention_graph_set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
    }
    attention_graph_finalize(graph, heuristic);
    return graph->status == CUDNN_STATUS_SUCCESS;
}

int attention_find_engines(DnnGraph *graph, cudnnBackendDescriptor_t device, int most,
                           cudnnBackendDescriptor_t *out) {
    int64_t count = 0;
    cudnnBackendDescriptor_t heuristic =
        attention_graph_descriptor(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    if (!set_heuristic(graph, heuristic, device)) return 0;
    for (int i = 0; i < most; i++) {
        out[i] = attention_graph_descriptor(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        if (!out[i]) return 0;
    }
    graph->status = graph->api->cudnnBackendGetAttribute(
        heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &count, out);
    return graph->status == CUDNN_STATUS_SUCCESS ? (int)count : 0;
}

/* Something of the configuration's engine; out_count: of its elements, -1 where it says nothing. */
static int64_t ask_engine(DnnGraph *graph, cudnnBackendDescriptor_t config,
                          cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          int64_t most, void *out) {
    const CuApi *api = graph->api;
    int64_t count = 0;
    cudnnBackendDescriptor_t engine =
        attention_graph_descriptor(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine) return -1;
    cudnnStatus_t status = api->cudnnBackendGetAttribute(
        config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->cudnnBackendGetAttribute(engine, name, type, most, &count, out);
    }
    return status == CUDNN_STATUS_SUCCESS ? count : -1;
}

bool attention_engine_repeats(DnnGraph *graph, cudnnBackendDescriptor_t config) {
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = ask_engine(graph, config, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, notes);
    if (count < 0) return false;
    for (int64_t i = 0; i < count; i++) {
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
    }
    return true;
}

/* Does lse lie in memory otherwise than packed? */
static bool has_strided_lse(const AttentionShape *shape) {
    return shape->seq > 1 && shape->kv_heads * shape->group > 1;
}

/* Does the engine read lse where the shape has it? */
static bool finds_lse(const AttentionTable *table, DnnGraph *graph, const AttentionShape *shape,
                      cudnnBackendDescriptor_t config) {
    int64_t number = SM_80_GRADIENT;
    bool any = table->device->api->cudnnGetVersion() >= ANY_LSE_VERSION;
    if (!shape->backward || any || !has_strided_lse(shape)) return true;
    ask_engine(graph, config, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number);
    return number != SM_80_GRADIENT;
}

/* --- entries --- */

static int64_t align(int64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* Does the plan of memory have what the engine needs, own_bytes and the rows' sums? */
static bool fits(const AttentionTable *table, AttentionEntry *entry) {
    int64_t bytes = attention_entry_workspace_bytes(entry);
    if (bytes == 0 || bytes <= entry->limit_bytes) return true;
    entry->why = arena_printf(table->arena, "needs %.2f MiB of workspace, the plan has %.2f",
                              (double)bytes / (1 << 20), (double)entry->limit_bytes / (1 << 20));
    return false;
}

/* Compiling takes half a second: not for what is known not to fit. */
static bool may_fit(const AttentionTable *table, AttentionEntry *entry,
                    cudnnBackendDescriptor_t config) {
    int64_t count = 0;
    cudnnStatus_t status = table->device->api->cudnnBackendGetAttribute(
        config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
        &entry->own_bytes);
    return status != CUDNN_STATUS_SUCCESS || fits(table, entry);
}

/* Compiles the configuration; false: it does not run here, or needs more workspace. */
static bool make_plan(const AttentionTable *table, AttentionEntry *entry,
                      cudnnBackendDescriptor_t config) {
    const CuApi *api = table->device->api;
    DnnGraph *graph = &entry->graph;
    int64_t count = 0;
    cudnnBackendDescriptor_t plan =
        attention_graph_descriptor(graph, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    attention_graph_set(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                        &table->handle);
    attention_graph_set(graph, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    attention_graph_finalize(graph, plan);
    if (graph->status == CUDNN_STATUS_SUCCESS) {
        graph->status =
            api->cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                          CUDNN_TYPE_INT64, 1, &count, &entry->own_bytes);
    }
    if (graph->status != CUDNN_STATUS_SUCCESS) {
        entry->why = last_error(api, graph->status, table->arena);
        graph->status = CUDNN_STATUS_SUCCESS; /* the next one may run */
        return false;
    }
    if (!fits(table, entry)) return false;
    entry->plan = plan;
    return true;
}

static void choose_engine(const AttentionTable *table, AttentionEntry *entry) {
    cudnnBackendDescriptor_t configs[MOST_ENGINES];
    DnnGraph *graph = &entry->graph;
    attention_graph_build(table->device->api, table->handle, &entry->shape, entry->part, graph);
    int count = attention_find_engines(graph, NULL, MOST_ENGINES, configs);
    if (graph->status != CUDNN_STATUS_SUCCESS) {
        entry->why = last_error(table->device->api, graph->status, table->arena);
        return;
    }
    entry->why = count ? "none of its engines gives the right bits each time" : "it has no engine";
    for (int i = 0; i < count && !entry->plan; i++) {
        if (attention_engine_repeats(graph, configs[i]) &&
            finds_lse(table, graph, &entry->shape, configs[i]) &&
            may_fit(table, entry, configs[i])) {
            make_plan(table, entry, configs[i]);
        }
    }
    /* An engine that does not run here may leave an error behind, which later calls must not find.
     */
    table->device->api->cudaGetLastError();
}

/* Its gradient, where heads are long or values of another size. Engines of sm_80 say that they end
 * at 128; on sm_90 those for 192 and 128 came with 9.11, and others between 128 and 192 with 9.13
 * (cudnn-frontend's checks; 9.19's engines, told what an H100 is like, take them). */
static const char *find_gradient_limit(int major, int version, const AttentionShape *shape) {
    enum { OLD_HEAD = 128, LATENT_HEAD = 192, LATENT_VERSION = 91100, UNEVEN_VERSION = 91300 };
    int64_t values = attention_values(shape);
    if (shape->head <= OLD_HEAD && values <= OLD_HEAD) return NULL;
    if (major < 9) return "its gradient on sm_80 has heads up to 128";
    if (!attention_is_uneven(shape) || version >= UNEVEN_VERSION) return NULL;
    if (version < LATENT_VERSION) return "before 9.11 its gradient has values like keys";
    if (shape->head == LATENT_HEAD && values == OLD_HEAD) return NULL;
    return "before 9.13 its gradient has keys of 192 with values of 128 only";
}

/* What is known not to be there, without asking; NULL: ask. */
static const char *find_limit(const AttentionTable *table, const AttentionShape *shape) {
    int major = atoi(table->device->arch + 3) / 10; /* "sm_90" */
    int version = (int)table->device->api->cudnnGetVersion();
    if (attention_is_part(shape)) return "c divides its queries";
    if (shape->documents) return "it is within documents";
    if (shape->window && !shape->causal) return "windows that are not causal are not asked of it";
    if (shape->softcap != 0) return "soft caps are not asked of it";
    if (shape->drops) return "dropout of probabilities is not asked of it";
    if (shape->largest) return "the largest scores are not asked of it";
    /* What is hidden is -inf before it is scaled: 9.19 on an H200 gave no numbers. */
    if (!(shape->scale > 0)) return "its scale is not positive";
    if (shape->head % 8 || attention_values(shape) % 8) return "heads are no multiple of 8";
    if (shape->backward && shape->seq == 1) return "one position";
    if (shape->backward && shape->seq % TILE && (!shape->causal || version < ANY_SEQ_VERSION)) {
        return "its gradient wants a multiple of 128 positions";
    }
    if (shape->backward && major < 9 && version < ANY_LSE_VERSION && has_strided_lse(shape)) {
        return "before 9.26 its gradient on sm_80 takes statistics in one layout only";
    }
    /* Its engine there that adds up in one order is chosen in another way, by knobs. */
    if (shape->backward && major > 9) return "its gradient is used on sm_80 to sm_90 only";
    if (shape->backward) return find_gradient_limit(major, version, shape);
    return NULL;
}

static bool same_shape(const AttentionShape *a, const AttentionShape *b) {
    return a->dtype == b->dtype && a->backward == b->backward && a->causal == b->causal &&
           a->batch == b->batch && a->seq == b->seq && a->kv_heads == b->kv_heads &&
           a->group == b->group && a->head == b->head && a->scale == b->scale &&
           a->window == b->window && a->softcap == b->softcap && a->keys == b->keys &&
           a->documents == b->documents && a->largest == b->largest && a->values == b->values &&
           a->drops == b->drops && a->gradient_row == b->gradient_row;
}

static AttentionEntry *find_or_make(AttentionTable *table, const AttentionCommand *command) {
    const AttentionShape *shape = &command->shape;
    for (int i = 0; i < table->count; i++) {
        AttentionEntry *entry = table->entries[i];
        if (same_shape(&entry->shape, shape) && entry->limit_bytes == command->workspace_bytes) {
            return entry;
        }
    }
    AttentionEntry *entry = ARENA_NEW(table->arena, AttentionEntry);
    AttentionPart part = {shape->batch, shape->kv_heads};
    if (shape->backward) part = attention_part(shape, command->workspace_bytes);
    int64_t rows = part.batch * part.kv_heads * shape->group * shape->seq;
    *entry = (AttentionEntry){
        .shape = *shape,
        .part = part,
        .limit_bytes = command->workspace_bytes,
        .delta_bytes = shape->backward ? align(rows * (int64_t)sizeof(float)) : 0,
        .why = find_limit(table, shape),
    };
    ARENA_PUSH(table->arena, table->entries, table->count, table->capacity, entry);
    if (!entry->why) choose_engine(table, entry);
    return entry;
}

const AttentionEntry *attention_table_find(AttentionTable *table, const AttentionCommand *command,
                                           const char **out_why) {
    *out_why = table->why;
    if (!table->handle) return NULL;
    const AttentionEntry *entry = find_or_make(table, command);
    *out_why = entry->why;
    return entry->plan ? entry : NULL;
}

AttentionKernels attention_table_choose(void *table, const AttentionCommand *command) {
    const char *why;
    return attention_table_find(table, command, &why) ? ATTENTION_CUDNN : ATTENTION_MMA;
}

int64_t attention_entry_workspace_bytes(const AttentionEntry *entry) {
    int64_t bytes = align(entry->own_bytes) + entry->delta_bytes;
    return bytes ? bytes + WORKSPACE_ALIGN - ALIGN_BYTES : 0;
}

static unsigned char *workspace_of(const AttentionCommand *command) {
    uintptr_t at = (uintptr_t)command->workspace + WORKSPACE_ALIGN - 1;
    return (unsigned char *)(at & ~(uintptr_t)(WORKSPACE_ALIGN - 1));
}

/* --- running --- */

/* Where in [batch, seq, kv_heads, `width` bytes] a part begins. */
static void *part_of(const AttentionShape *s, const void *x, AttentionPart from, int64_t width) {
    return x ? (char *)x + (from.batch * s->seq * s->kv_heads + from.kv_heads) * width : NULL;
}

/* The same of dq, dk or dv. */
static void *gradient_part_of(const AttentionShape *s, void *x, AttentionPart from, int64_t width) {
    int64_t row = s->gradient_row * dtype_bytes(s->dtype);
    if (!row || !x) return part_of(s, x, from, width);
    return (char *)x + from.batch * s->seq * row + from.kv_heads * width;
}

/* The command's pointers for a part that begins at `from`. */
static AttentionCommand command_of_part(const AttentionCommand *whole, AttentionPart from) {
    const AttentionShape *s = &whole->shape;
    AttentionCommand part = *whole;
    int64_t key = s->head * dtype_bytes(s->dtype), value = attention_values(s) * key / s->head;
    part.q = part_of(s, whole->q, from, s->group * key);
    part.k = part_of(s, whole->k, from, key);
    part.v = part_of(s, whole->v, from, value);
    part.o = part_of(s, whole->o, from, s->group * value);
    part.lse = part_of(s, whole->lse, from, s->group * (int64_t)sizeof(float));
    part.d_o = part_of(s, whole->d_o, from, s->group * value);
    part.dq = gradient_part_of(s, whole->dq, from, s->group * key);
    part.dk = gradient_part_of(s, whole->dk, from, key);
    part.dv = gradient_part_of(s, whole->dv, from, value);
    return part;
}

/* The pointers of a command, for the tensors that its graph has. Returns how many. */
static int list_pointers(const AttentionEntry *entry, const AttentionCommand *command,
                         const float *numbers, const int32_t *window, int64_t *ids,
                         void **pointers) {
    unsigned char *workspace = workspace_of(command);
    const void *all[N_ATTENTION_TENSORS] = {
        [ATTENTION_Q] = command->q,      [ATTENTION_K] = command->k,
        [ATTENTION_V] = command->v,      [ATTENTION_O] = command->o,
        [ATTENTION_LSE] = command->lse,  [ATTENTION_D_O] = command->d_o,
        [ATTENTION_DQ] = command->dq,    [ATTENTION_DK] = command->dk,
        [ATTENTION_DV] = command->dv,    [ATTENTION_DELTA] = workspace + align(entry->own_bytes),
        [ATTENTION_SCALE] = &numbers[0], [ATTENTION_MASKED] = &numbers[1],
        [ATTENTION_ONE] = &numbers[2],   [ATTENTION_WINDOW] = window,
    };
    int count = 0;
    for (int id = 0; id < N_ATTENTION_TENSORS; id++) {
        if (!entry->graph.given[id]) continue;
        ids[count] = id;
        pointers[count++] = (void *)all[id];
    }
    return count;
}

static cudnnStatus_t fill_pack(const CuApi *api, cudnnBackendDescriptor_t pack, int count,
                               const int64_t *ids, void **pointers, void *workspace) {
    cudnnStatus_t status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                                         CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                               CUDNN_TYPE_VOID_PTR, count, pointers);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                               CUDNN_TYPE_VOID_PTR, 1, &workspace);
    }
    return status == CUDNN_STATUS_SUCCESS ? api->cudnnBackendFinalize(pack) : status;
}

static cudnnStatus_t issue_part(const AttentionTable *table, const AttentionEntry *entry,
                                const AttentionCommand *command) {
    const CuApi *api = table->device->api;
    const float numbers[3] = {entry->shape.scale, -INFINITY, 1}; /* read before the call returns, */
    const int32_t window = (int32_t)entry->shape.window;         /* and so is this */
    int64_t ids[N_ATTENTION_TENSORS];
    void *pointers[N_ATTENTION_TENSORS];
    int count = list_pointers(entry, command, numbers, &window, ids, pointers);
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        api->cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status = fill_pack(api, pack, count, ids, pointers, workspace_of(command));
    if (status == CUDNN_STATUS_SUCCESS) {
        status = api->cudnnBackendExecute(table->handle, entry->plan, pack);
    }
    api->cudnnBackendDestroyDescriptor(pack);
    return status;
}

cudnnStatus_t attention_issue(const AttentionTable *table, const AttentionEntry *entry,
                              const AttentionCommand *command, cudaStream_t stream) {
    const AttentionShape *s = &entry->shape;
    cudnnStatus_t status = table->device->api->cudnnSetStream(table->handle, stream);
    AttentionPart from = {0, 0};
    for (; from.batch < s->batch; from.batch += entry->part.batch) {
        for (from.kv_heads = 0; from.kv_heads < s->kv_heads;
             from.kv_heads += entry->part.kv_heads) {
            AttentionCommand part = command_of_part(command, from);
            if (status == CUDNN_STATUS_SUCCESS) status = issue_part(table, entry, &part);
        }
    }
    return status;
}

bool attention_check(const AttentionTable *table, cudnnStatus_t status, Diag *diag) {
    if (status == CUDNN_STATUS_SUCCESS) return true;
    Arena *arena = arena_create();
    diag_error(diag, NO_LOC, "cuDNN: attention (see --no-cudnn): %s",
               last_error(table->device->api, status, arena));
    arena_destroy(arena);
    return false;
}
