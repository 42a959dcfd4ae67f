#include "frontend/hf/hf_adapter.h"

#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/checkpoint/tensor_values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char HEAD[] = "score";

/* The two halves of a weight's adapter; as matrices [n_in, rank] and [rank, n_out]. */
typedef struct Adapter {
    SafetensorsInfo a, b;
    int64_t n_in, n_out, rank;
} Adapter;

bool hf_adapter_is_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".lora_a") == 0 || strcmp(dot, ".lora_b") == 0);
}

bool hf_adapter_is_head(const Model *model, const char *name) {
    return hf_classes_count(model) > 0 && strcmp(name, HEAD) == 0;
}

static int compare_halves(const void *a, const void *b) {
    return strcmp(((const HfHalf *)a)->name, ((const HfHalf *)b)->name);
}

/* The model's half of a weight's adapter, or NULL. */
static const HfHalf *find_half(const HfExport *export, const char *weight, char half) {
    const HfHalf key = {arena_printf(export->arena, "%s.lora_%c", weight, half), NULL};
    if (!export->n_halves) return NULL;
    return bsearch(&key, export->halves, (size_t) export->n_halves, sizeof(key), compare_halves);
}

bool hf_adapter_is_of(const HfExport *export, const char *weight) {
    return find_half(export, weight, 'a') != NULL;
}

static double number_of(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    if (!setting || !setting->has_value) return NAN;
    switch (setting->type) {
    case SETTING_INTEGER: return (double)setting->integer;
    case SETTING_NUMBER: return setting->number;
    case SETTING_BOOLEAN: return setting->boolean;
    default: return NAN;
    }
}

bool hf_adapter_find(HfExport *export, Diag *diag) {
    const Model *model = export->model;
    double rank = number_of(model, "lora"), alpha = number_of(model, "lora_alpha");
    double rslora = number_of(model, "lora_rslora");
    for (int n = 0; n < model->graph->n_nodes; n++) {
        const Node *node = model->graph->nodes[n];
        if (node->op != OP_PARAM || !hf_adapter_is_name(node_string(node, ATTR_name))) continue;
        HfHalf half = {node_logical_name(node, 0, export->arena), &node->types[0]};
        ARENA_PUSH(export->arena, export->halves, export->n_halves, export->halves_capacity, half);
    }
    if (export->n_halves == 0) return true;
    qsort(export->halves, (size_t) export->n_halves, sizeof(HfHalf), compare_halves);
    if (isnan(rank) || isnan(alpha) || isnan(rslora)) {
        diag_error(diag, NO_LOC,
                   "model '%s' has adapters, and not the settings lora, lora_alpha and lora_rslora "
                   "that say how much they count",
                   model->name);
        return false;
    }
    export->adapter_scale = (alpha > 0 ? alpha : rank) / (rslora > 0 ? sqrt(rank) : rank);
    return true;
}

static bool check_half(const HfExport *export, const char *weight, char half, Diag *diag) {
    const HfHalf *ours = find_half(export, weight, half);
    const char *path;
    SafetensorsInfo info;
    if (!ours) return true;
    if (!hf_export_find(export, ours->name, &info, &path)) {
        diag_error(diag, (SourceLoc){path, 0}, "has no tensor '%s', which the model needs",
                   ours->name);
        return false;
    }
    bool fits = info.dtype == SAFETENSORS_F32 && info.n_dims == ours->type->rank;
    for (int i = 0; fits && i < info.n_dims; i++) fits = info.shape[i] == ours->type->dims[i];
    if (fits) return true;
    diag_error(diag, (SourceLoc){path, 0}, "tensor '%s' does not have the model's shape",
               ours->name);
    return false;
}

bool hf_adapter_check(const HfExport *export, const HfPart *part, Diag *diag) {
    return check_half(export, part->ours, 'a', diag) && check_half(export, part->ours, 'b', diag);
}

/* Of a weight that was checked. */
static bool find_adapter(const HfExport *export, const HfPart *part, Adapter *out) {
    const char *path;
    const HfHalf *a = find_half(export, part->ours, 'a'), *b = find_half(export, part->ours, 'b');
    if (!a || !b) return false;
    if (!hf_export_find(export, a->name, &out->a, &path) ||
        !hf_export_find(export, b->name, &out->b, &path)) {
        BUG("'%s' is gone", a->name);
    }
    out->rank = a->type->dims[a->type->rank - 1];
    out->n_in = type_elements(a->type) / out->rank;
    out->n_out = type_elements(&part->whole) / out->n_in;
    return true;
}

/* Tensors of a file may be unaligned. */
static float float_at(const void *data, int64_t i) {
    float value;
    memcpy(&value, (const char *)data + i * (int64_t)sizeof(value), sizeof(value));
    return value;
}

/* Of a base in f32 or 16 bits. */
static void load_row(const SafetensorsInfo *weight, int64_t first, int64_t n, double *out) {
    float part[TENSOR_BLOCK];
    for (int64_t at = 0; at < n; at += TENSOR_BLOCK) {
        int64_t count = n - at < TENSOR_BLOCK ? n - at : TENSOR_BLOCK;
        tensor_load(weight, first + at, count, part);
        for (int64_t i = 0; i < count; i++) out[at + i] = part[i];
    }
}

float *hf_adapter_merge(const HfExport *export, const HfPart *part) {
    Adapter adapter;
    SafetensorsInfo weight;
    const char *path;
    if (!find_adapter(export, part, &adapter)) return NULL;
    if (!hf_export_find(export, part->ours, &weight, &path)) BUG("'%s' is gone", part->ours);
    const int64_t n_out = adapter.n_out;
    float *merged = malloc((size_t)(adapter.n_in * n_out) * sizeof(*merged));
    double *row = malloc((size_t)n_out * sizeof(*row));
    if (!merged || !row) BUG("out of memory");
    for (int64_t i = 0; i < adapter.n_in; i++) {
        load_row(&weight, i * n_out, n_out, row);
        for (int64_t r = 0; r < adapter.rank; r++) {
            double factor =
                export->adapter_scale * (double)float_at(adapter.a.data, i * adapter.rank + r);
            for (int64_t k = 0; k < n_out; k++) {
                row[k] += factor * (double)float_at(adapter.b.data, r * n_out + k);
            }
        }
        for (int64_t k = 0; k < n_out; k++) merged[i * n_out + k] = (float)row[k];
    }
    free(row);
    return merged;
}

/* --- as PEFT has them --- */

const char *hf_adapter_module(Arena *arena, const char *theirs) {
    size_t length = strlen(theirs), ending = strlen(".weight");
    bool ends = length > ending && strcmp(theirs + length - ending, ".weight") == 0;
    return ends ? arena_strndup(arena, theirs, length - ending) : theirs;
}

/* Do axes [first, end) of the parameter follow each other in their order as they do in ours? */
static bool is_run(const HfPart *part, int first, int end) {
    for (int i = first; i + 1 < end; i++) {
        if (part->theirs_stride[i] != part->theirs_stride[i + 1] * part->whole.dims[i + 1]) {
            return false;
        }
    }
    return true;
}

static bool check_item(const HfExport *export, const HfItem *item, const HfPart *part,
                       const Adapter *adapter, Diag *diag) {
    int n_from = adapter->a.n_dims - 1;
    if (item->n_parts > 1) {
        diag_error(diag, (SourceLoc){export->path, 0},
                   "'%s' is one module there, '%s', with others that have adapters of their own: "
                   "export the merged weights instead",
                   part->ours, item->theirs);
        return false;
    }
    if (!is_run(part, 0, n_from)) BUG("'%s' has its axes in another order there", part->ours);
    return true;
}

bool hf_adapter_check_alone(const HfExport *export, Diag *diag) {
    if (export->n_halves == 0) {
        diag_error(diag, (SourceLoc){export->path, 0}, "its model has no adapters (lora=0)");
        return false;
    }
    for (int i = 0; i < export->layout.n_items; i++) {
        Adapter of;
        const HfItem *item = &export->layout.items[i];
        for (int p = 0; p < item->n_parts; p++) {
            if (!find_adapter(export, &item->parts[p], &of)) continue;
            if (!check_item(export, item, &item->parts[p], &of, diag)) return false;
        }
    }
    return true;
}

void hf_adapter_b_strides(const HfPart *part, int64_t rank, int n_out_axes, HfAdapterB *out) {
    const int n_from = part->whole.rank - n_out_axes;
    int64_t next = INT64_MAX, ours = 1; /* next: from one output to the next, in the weight */
    for (int i = n_from; i < part->type.rank; i++) {
        if (part->theirs_stride[i] < next) next = part->theirs_stride[i];
    }
    *out = (HfAdapterB){.rank = 1 + part->type.rank - n_from, .size = {rank}};
    for (int i = part->type.rank - 1; i >= n_from; i--) {
        const int at = 1 + i - n_from;
        out->size[at] = part->type.dims[i];
        out->ours[at] = ours;
        out->theirs[at] = part->theirs_stride[i] / next * rank;
        ours *= part->type.dims[i];
    }
    out->ours[0] = ours;
    out->theirs[0] = 1;
}

/* Numbers in f32, in their order and the export's dtype; where to: `copy`. */
static bool put_copied(const HfExport *export, SafetensorsWriter *writer, const char *name,
                       const SafetensorsInfo *info, TensorCopy copy, Diag *diag) {
    size_t bytes = (size_t)dtype_bytes(export->dtype);
    for (int i = 0; i < copy.rank; i++) bytes *= (size_t)copy.size[i];
    void *room = malloc(bytes);
    if (!room) BUG("out of memory");
    copy.from_dtype = DTYPE_F32;
    copy.to_dtype = export->dtype;
    copy.from = info->data;
    copy.to = room;
    bool fine = tensor_copy(&copy);
    if (!fine) {
        diag_error(diag, (SourceLoc){export->path, 0},
                   "tensor '%s' has numbers too large for %s; export another --dtype", info->name,
                   dtype_name(export->dtype));
    }
    fine = fine && safetensors_writer_put(writer, name, room, bytes, diag);
    free(room);
    return fine;
}

/* A matrix [rows, columns] as its transpose. */
static bool put_transposed(const HfExport *export, SafetensorsWriter *writer, const char *name,
                           const SafetensorsInfo *info, int64_t rows, int64_t columns, Diag *diag) {
    const TensorCopy copy = {
        .rank = 2, .size = {columns, rows}, .from_stride = {1, columns}, .to_stride = {rows, 1}};
    return put_copied(export, writer, name, info, copy, diag);
}

/* [rank, n_out] as [n_out, rank], numbers of n_out in their order. */
static bool put_b(const HfExport *export, SafetensorsWriter *writer, const char *name,
                  const HfPart *part, const Adapter *adapter, Diag *diag) {
    HfAdapterB b;
    hf_adapter_b_strides(part, adapter->rank, adapter->b.n_dims - 1, &b);
    TensorCopy copy = {.rank = b.rank};
    memcpy(copy.size, b.size, sizeof(copy.size));
    memcpy(copy.from_stride, b.ours, sizeof(copy.from_stride));
    memcpy(copy.to_stride, b.theirs, sizeof(copy.to_stride));
    return put_copied(export, writer, name, &adapter->b, copy, diag);
}

const char *hf_adapter_name(Arena *arena, const char *theirs, char half) {
    return arena_printf(arena, "base_model.model.%s.lora_%c.weight",
                        hf_adapter_module(arena, theirs), half);
}

const char *hf_adapter_head_name(Arena *arena, const char *theirs) {
    return arena_printf(arena, "base_model.model.%s", theirs);
}

/* What trained whole: its tensor, or its numbers. */
static bool visit_head(HfExport *export, SafetensorsWriter *writer, bool declare,
                       const HfItem *item, Diag *diag) {
    const char *name = hf_adapter_head_name(export->arena, item->theirs), *path;
    SafetensorsInfo info;
    if (!hf_export_find(export, HEAD, &info, &path)) BUG("'%s' is gone", HEAD);
    if (!declare) {
        return put_transposed(export, writer, name, &info, item->shape[1], item->shape[0], diag);
    }
    safetensors_writer_add_tensor(writer, name, tensor_file_dtype(export->dtype), item->shape,
                                  item->n_dims);
    export->n_bytes +=
        (size_t)(item->shape[0] * item->shape[1]) * (size_t)dtype_bytes(export->dtype);
    return true;
}

/* declare: the tensors; else their numbers. */
static bool visit_adapters(HfExport *export, SafetensorsWriter *writer, bool declare,
                           json_t *modules, Diag *diag) {
    Arena *arena = export->arena;
    for (int i = 0; i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        Adapter of;
        if (hf_adapter_is_head(export->model, item->parts[0].ours) &&
            !visit_head(export, writer, declare, item, diag)) {
            return false;
        }
        if (!find_adapter(export, &item->parts[0], &of)) continue;
        const char *a = hf_adapter_name(arena, item->theirs, 'A'),
                   *b = hf_adapter_name(arena, item->theirs, 'B');
        if (!declare) {
            if (!put_transposed(export, writer, a, &of.a, of.n_in, of.rank, diag) ||
                !put_b(export, writer, b, &item->parts[0], &of, diag)) {
                return false;
            }
            continue;
        }
        SafetensorsDtype dtype = tensor_file_dtype(export->dtype);
        safetensors_writer_add_tensor(writer, a, dtype, (int64_t[]){of.rank, of.n_in}, 2);
        safetensors_writer_add_tensor(writer, b, dtype, (int64_t[]){of.n_out, of.rank}, 2);
        export->n_bytes +=
            (size_t)(of.rank * (of.n_in + of.n_out)) * (size_t)dtype_bytes(export->dtype);
        const char *module = strrchr(hf_adapter_module(arena, item->theirs), '.') + 1;
        bool known = false;
        for (size_t k = 0; k < json_array_size(modules); k++) {
            known |= strcmp(json_string_value(json_array_get(modules, k)), module) == 0;
        }
        if (!known) json_array_append_new(modules, json_string(module));
    }
    return true;
}

static bool write_weights(HfExport *export, const char *dir, json_t *modules, Diag *diag) {
    SafetensorsWriter *writer = safetensors_writer_create();
    const char *path = arena_printf(export->arena, "%s/adapter_model.safetensors", dir);
    safetensors_writer_add_metadata(writer, "format", "pt");
    bool fine = visit_adapters(export, writer, true, modules, diag) &&
                safetensors_writer_open(writer, path, diag) &&
                visit_adapters(export, writer, false, modules, diag);
    if (fine) return safetensors_writer_commit(writer, diag);
    safetensors_writer_abandon(writer);
    return false;
}

static json_t *make_config(const HfExport *export, json_t *modules) {
    const Model *model = export->model;
    double rank = number_of(model, "lora"), alpha = number_of(model, "lora_alpha");
    bool columns = strcmp(export->type->name, "gpt2") == 0; /* its Conv1D has [in, out] */
    bool classes = hf_classes_count(model) > 0;
    json_t *head = classes ? json_pack("[s]", HEAD) : json_null();
    json_t *config = json_pack(
        "{s:s, s:s, s:I, s:f, s:f, s:b, s:O, s:s, s:b, s:b, s:o, s:n, s:b}", "peft_type", "LORA",
        "task_type", classes ? "SEQ_CLS" : "CAUSAL_LM", "r", (json_int_t)rank, "lora_alpha",
        alpha > 0 ? alpha : rank, "lora_dropout", number_of(model, "lora_dropout"), "use_rslora",
        number_of(model, "lora_rslora") > 0, "target_modules", modules, "bias", "none",
        "fan_in_fan_out", columns, "inference_mode", 1, "modules_to_save", head,
        "base_model_name_or_path", "init_lora_weights", 1);
    if (!config) BUG("out of memory");
    if (export->like) {
        json_object_set_new(config, "base_model_name_or_path", json_string(export->like));
    }
    return config;
}

bool hf_adapter_write(HfExport *export, const char *dir, Diag *diag) {
    json_t *modules = json_array();
    bool fine = write_weights(export, dir, modules, diag);
    json_t *config = fine ? make_config(export, modules) : NULL;
    fine = fine && hf_write_json(export->arena, dir, "adapter_config.json", config, diag);
    json_decref(config);
    json_decref(modules);
    return fine;
}
