#include "frontend/hf/hf_adapter.h"

#include "frontend/hf/hf_embed.h"
#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char HEAD[] = "score";

/* The two halves of a weight's adapter; as matrices [n_in, rank] and [rank, n_out] of each expert
 * that has one, or of the weight. */
typedef struct Adapter {
    SafetensorsInfo a, b;
    int64_t n_in, n_out, rank;
    int64_t first, n_experts; /* of the part; 0 and 1 where there are none */
    int n_in_axes, n_out_axes;
} Adapter;

static bool ends_with(const char *name, const char *end) {
    size_t length = strlen(name), n = strlen(end);
    return length >= n && strcmp(name + length - n, end) == 0;
}

bool hf_adapter_is_name(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".lora_a") == 0 || strcmp(dot, ".lora_b") == 0);
}

bool hf_adapter_of_experts(const Model *model, const Type *half) {
    return half->axes[0] == axis_find(&model->graph->axes, "experts", 7);
}

bool hf_adapter_is_head(const Model *model, const char *name) {
    return hf_classes_count(model) > 0 && strcmp(name, HEAD) == 0;
}

static int compare_halves(const void *a, const void *b) {
    return strcmp(((const HfHalf *)a)->name, ((const HfHalf *)b)->name);
}

static const HfHalf *find_named(const HfExport *export, const char *name) {
    const HfHalf key = {name, NULL};
    if (!export->n_halves) return NULL;
    return bsearch(&key, export->halves, (size_t) export->n_halves, sizeof(key), compare_halves);
}

bool hf_adapter_is_known(const HfExport *export, const char *name) {
    return find_named(export, name) != NULL;
}

const char *hf_adapter_first_weight(Arena *arena, const char *a) {
    const char *end = strrchr(a, '.');
    const char *whose = arena_strndup(arena, a, (size_t)(end - a)), *dot = strrchr(whose, '.');
    const char *last = dot ? dot + 1 : whose;
    if (last[0] == 'w' || !strchr(last, '_')) return whose;
    return arena_printf(arena, "%.*sw%.*s", (int)(last - whose), whose, (int)strcspn(last, "_"),
                        last);
}

/* "blocks.0.ssm.z_x.lora_a" is of blocks.0.ssm.wz and .wx. */
static bool is_shared_by(const char *a, const char *weight) {
    const char *dot = strrchr(weight, '.'), *last = dot ? dot + 1 : weight;
    const size_t before = (size_t)(last - weight);
    if (last[0] != 'w' || strncmp(a, weight, before) != 0) return false;
    a += before;
    if (a[0] == 'w' || strcspn(a, "_") > strcspn(a, ".")) return false; /* a weight's own */
    for (;; a++) {
        const size_t length = strcspn(a, "_.");
        if (strncmp(a, last + 1, length) == 0 && !last[1 + length]) return true;
        a += length;
        if (*a != '_') return false;
    }
}

/* The model's half of a weight's adapter, or NULL. A first half may be one that it shares. */
static const HfHalf *find_half(const HfExport *export, const char *weight, char half) {
    const HfHalf *own = find_named(export, arena_printf(export->arena, "%s.lora_%c", weight, half));
    if (own || half == 'b') return own;
    if (!find_named(export, arena_printf(export->arena, "%s.lora_b", weight))) return NULL;
    for (int i = 0; i < export->n_halves; i++) {
        const char *name = export->halves[i].name;
        if (name[strlen(name) - 1] == 'a' && is_shared_by(name, weight)) return &export->halves[i];
    }
    return NULL;
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
    const int n_each = hf_adapter_of_experts(export->model, a->type);
    const int64_t experts = n_each ? a->type->dims[0] : 1;
    out->rank = a->type->dims[a->type->rank - 1];
    out->n_in = type_elements(a->type) / out->rank / experts;
    out->n_out = type_elements(&part->whole) / out->n_in / experts;
    out->first = part->ours_first / (out->n_in * out->n_out);
    out->n_experts = type_elements(&part->type) / (out->n_in * out->n_out);
    out->n_in_axes = a->type->rank - 1 - n_each;
    out->n_out_axes = b->type->rank - 1 - n_each;
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

/* Adds the product of an expert's halves to rows of its weight, [n_in, n_out]. */
static void merge_matrix(const Adapter *of, int64_t expert, double scale,
                         const SafetensorsInfo *weight, double *row, float *out) {
    const int64_t n_out = of->n_out, a = expert * of->n_in * of->rank,
                  b = expert * of->rank * n_out;
    for (int64_t i = 0; i < of->n_in; i++) {
        load_row(weight, (expert * of->n_in + i) * n_out, n_out, row);
        for (int64_t r = 0; r < of->rank; r++) {
            double factor = scale * (double)float_at(of->a.data, a + i * of->rank + r);
            for (int64_t k = 0; k < n_out; k++) {
                row[k] += factor * (double)float_at(of->b.data, b + r * n_out + k);
            }
        }
        for (int64_t k = 0; k < n_out; k++) out[i * n_out + k] = (float)row[k];
    }
}

float *hf_adapter_merge(const HfExport *export, const HfPart *part) {
    Adapter of;
    SafetensorsInfo weight;
    const char *path;
    if (!find_adapter(export, part, &of)) return NULL;
    if (!hf_export_find(export, part->ours, &weight, &path)) BUG("'%s' is gone", part->ours);
    const int64_t n = of.n_in * of.n_out;
    float *merged = malloc((size_t)(of.n_experts * n) * sizeof(*merged));
    double *row = malloc((size_t)of.n_out * sizeof(*row));
    if (!merged || !row) BUG("out of memory");
    for (int64_t e = 0; e < of.n_experts; e++) {
        merge_matrix(&of, of.first + e, export->adapter_scale, &weight, row, merged + e * n);
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

/* What one module has there: of each part of its tensor that has an adapter, the adapter. Those of
 * several are one of their ranks' sum: its A has theirs one after the other, its B is zero where
 * rows of one part meet numbers of another. An A that several share is there once. */
typedef struct Module {
    const HfItem *item;
    int n; /* parts with adapters */
    const HfPart *parts[HF_MAX_PARTS];
    Adapter of[HF_MAX_PARTS];
    int64_t first_rank[HF_MAX_PARTS]; /* of the whole's, that is the part's first */
    bool again[HF_MAX_PARTS];         /* an earlier part has its A */
    int64_t n_in, n_out, rank;        /* of the whole */
    int64_t experts;                  /* that it has, as one tensor; else 1 */
} Module;

/* Axes of what is here of the weight before those of inputs. */
static int leading_axes(const HfPart *part, int n_in_axes, int n_out_axes) {
    const bool taken = part->type.axes[0] != part->whole.axes[0]; /* one expert's */
    return part->whole.rank - n_in_axes - n_out_axes - taken;
}

static bool find_module(const HfExport *export, const HfItem *item, Module *out) {
    *out = (Module){.item = item};
    for (int p = 0; p < item->n_parts; p++) {
        const HfPart *part = &item->parts[p];
        Adapter *of = &out->of[out->n];
        if (!find_adapter(export, part, of)) continue;
        out->first_rank[out->n] = out->rank;
        for (int k = 0; k < out->n && !out->again[out->n]; k++) {
            out->again[out->n] =
                strcmp(out->of[k].a.name, of->a.name) == 0 && out->of[k].first == of->first;
            if (out->again[out->n]) out->first_rank[out->n] = out->first_rank[k];
        }
        if (!out->again[out->n]) out->rank += of->rank;
        out->parts[out->n++] = part;
        out->n_in = of->n_in;
    }
    if (out->n == 0) return false;
    int64_t elements = 1;
    for (int i = 0; i < item->n_dims; i++) elements *= item->shape[i];
    const bool all = leading_axes(out->parts[0], out->of[0].n_in_axes, out->of[0].n_out_axes) > 0;
    out->experts = all ? out->of[0].n_experts : 1;
    out->n_out = elements / out->n_in / out->experts;
    return true;
}

/* Do axes of inputs follow each other in their order as they do in ours? */
static bool is_run(const HfPart *part, const Adapter *of) {
    const int first = leading_axes(part, of->n_in_axes, of->n_out_axes);
    for (int i = first; i + 1 < first + of->n_in_axes; i++) {
        if (part->theirs_stride[i] != part->theirs_stride[i + 1] * part->type.dims[i + 1]) {
            return false;
        }
    }
    return true;
}

/* Of these types PEFT (0.21) refuses adapters of a module that their fastest kernels read by
 * themselves. */
static bool is_refused(const HfExport *export, const char *theirs) {
    static const char *const TYPES[] = {"mamba2", "falcon_h1", "nemotron_h"};
    bool is = false;
    for (size_t i = 0; i < sizeof(TYPES) / sizeof(TYPES[0]); i++) {
        is = is || strcmp(export->type->name, TYPES[i]) == 0;
    }
    return is && ends_with(theirs, ".out_proj.weight");
}

static bool check_module(const HfExport *export, const Module *module, Diag *diag) {
    if (is_refused(export, module->item->theirs)) {
        diag_error(diag, (SourceLoc){export->path, 0},
                   "PEFT takes no adapter of '%s' in a %s: export the merged weights instead, or "
                   "train with lora_targets that leave state.o out (state.in)",
                   hf_adapter_module(export->arena, module->item->theirs), export->type->name);
        return false;
    }
    for (int p = 0; p < module->n; p++) {
        const HfPart *part = module->parts[p];
        if (leading_axes(part, module->of[p].n_in_axes, module->of[p].n_out_axes) > 0 &&
            !hf_adapter_parameter(module->item->theirs)) {
            diag_error(diag, (SourceLoc){export->path, 0},
                       "'%s' is there one tensor of all experts, '%s', and adapters of those are "
                       "not supported: export the merged weights instead",
                       part->ours, module->item->theirs);
            return false;
        }
        if (!is_run(part, &module->of[p])) BUG("'%s' has its axes in another order", part->ours);
    }
    return true;
}

bool hf_adapter_check_alone(const HfExport *export, Diag *diag) {
    if (export->n_halves == 0) {
        diag_error(diag, (SourceLoc){export->path, 0}, "its model has no adapters (lora=0)");
        return false;
    }
    for (int i = 0; i < export->layout.n_items; i++) {
        Module module;
        if (!find_module(export, &export->layout.items[i], &module)) continue;
        if (!check_module(export, &module, diag)) return false;
    }
    return true;
}

void hf_adapter_b_strides(const HfPart *part, int64_t rank, int n_in_axes, int n_out_axes,
                          HfAdapterB *out) {
    const int n_from = leading_axes(part, n_in_axes, n_out_axes) + n_in_axes;
    int64_t ours = 1, n_in = 1, in = INT64_MAX, next = INT64_MAX;
    for (int i = n_from - n_in_axes; i < n_from; i++) {
        n_in *= part->type.dims[i];
        if (part->theirs_stride[i] < in) in = part->theirs_stride[i];
    }
    for (int i = n_from; i < part->type.rank; i++) {
        if (part->theirs_stride[i] < next) next = part->theirs_stride[i];
    }
    const int64_t row = in < next ? n_in : 1; /* from one output to the next, in the weight */
    *out = (HfAdapterB){.rank = 1 + part->type.rank - n_from, .size = {rank}};
    out->first = part->theirs_first / row;
    for (int i = part->type.rank - 1; i >= n_from; i--) {
        const int at = 1 + i - n_from;
        out->size[at] = part->type.dims[i];
        out->ours[at] = ours;
        out->theirs[at] = part->theirs_stride[i] / row * rank;
        ours *= part->type.dims[i];
    }
    out->ours[0] = ours;
    out->theirs[0] = 1;
}

/* Numbers in f32, in their order and the export's dtype; where to: `copy`. */
static bool copy_numbers(const HfExport *export, const char *name, TensorCopy copy, Diag *diag) {
    copy.from_dtype = DTYPE_F32;
    copy.to_dtype = export->dtype;
    if (tensor_copy(&copy)) return true;
    diag_error(diag, (SourceLoc){export->path, 0},
               "tensor '%s' has numbers too large for %s; export another --dtype", name,
               dtype_name(export->dtype));
    return false;
}

/* One expert's [n_in, rank] as rows of [experts, all ranks, n_in], from rank `first` on. */
static bool copy_a(const HfExport *export, const Module *module, int p, int64_t e, int64_t first,
                   char *room, Diag *diag) {
    const Adapter *of = &module->of[p];
    const size_t before = (size_t)((of->first + e) * of->n_in * of->rank) * sizeof(float);
    const int64_t row = e * module->rank + first;
    return copy_numbers(export, of->a.name,
                        (TensorCopy){.rank = 2,
                                     .size = {of->rank, of->n_in},
                                     .from_stride = {1, of->rank},
                                     .to_stride = {of->n_in, 1},
                                     .from = (const char *)of->a.data + before,
                                     .to = room + row * of->n_in * dtype_bytes(export->dtype)},
                        diag);
}

/* One expert's [rank, n_out] as columns of [n_out, all ranks, experts]; numbers of n_out in their
 * order. */
static bool copy_b(const HfExport *export, const Module *module, int p, int64_t e, int64_t first,
                   char *room, Diag *diag) {
    const Adapter *of = &module->of[p];
    const size_t before = (size_t)((of->first + e) * of->n_out * of->rank) * sizeof(float);
    const int64_t row = module->rank * module->experts;
    HfAdapterB b;
    hf_adapter_b_strides(module->parts[p], row, of->n_in_axes, of->n_out_axes, &b);
    const int64_t at = b.first * row + first * module->experts + e;
    TensorCopy copy = {.rank = b.rank,
                       .from = (const char *)of->b.data + before,
                       .to = room + at * dtype_bytes(export->dtype)};
    memcpy(copy.size, b.size, sizeof(copy.size));
    memcpy(copy.from_stride, b.ours, sizeof(copy.from_stride));
    memcpy(copy.to_stride, b.theirs, sizeof(copy.to_stride));
    copy.size[0] = of->rank;
    copy.to_stride[0] = module->experts;
    return copy_numbers(export, of->b.name, copy, diag);
}

static bool put_half(const HfExport *export, SafetensorsWriter *writer, const char *name,
                     const Module *module, char half, Diag *diag) {
    const int64_t rows = module->experts * module->rank;
    const int64_t n = rows * (half == 'A' ? module->n_in : module->n_out);
    const size_t bytes = (size_t)n * (size_t)dtype_bytes(export->dtype);
    char *room = calloc(1, bytes);
    if (!room) BUG("out of memory");
    bool fine = true;
    for (int p = 0; fine && p < module->n; p++) {
        const int64_t first = module->first_rank[p];
        if (half == 'A' && module->again[p]) continue;
        for (int64_t e = 0; fine && e < module->experts; e++) {
            fine = half == 'A' ? copy_a(export, module, p, e, first, room, diag)
                               : copy_b(export, module, p, e, first, room, diag);
        }
    }
    fine = fine && safetensors_writer_put(writer, name, room, bytes, diag);
    free(room);
    return fine;
}

static const char GATE_UP[] = ".mlp.experts.gate_up_proj", DOWN[] = ".mlp.experts.down_proj";

const char *hf_adapter_parameter(const char *theirs) {
    const bool is = ends_with(theirs, GATE_UP) || ends_with(theirs, DOWN);
    return is ? theirs + strlen(theirs) - strlen(ends_with(theirs, DOWN) ? DOWN : GATE_UP) + 1
              : NULL;
}

const char *hf_adapter_name(Arena *arena, const char *theirs, bool both, char half) {
    const char *module = hf_adapter_module(arena, theirs);
    if (hf_adapter_parameter(theirs)) {
        const bool inner = both && ends_with(theirs, GATE_UP);
        const char *name = strrchr(theirs, '.');
        module =
            arena_printf(arena, "%.*s%s", (int)(name - theirs), theirs, inner ? ".base_layer" : "");
    }
    return arena_printf(arena, "base_model.model.%s.lora_%c.weight", module, half);
}

const char *hf_adapter_saved_name(Arena *arena, const char *theirs) {
    return arena_printf(arena, "base_model.model.%s", theirs);
}

/* --- what is whole beside them (modules_to_save) --- */

const HfItem *hf_adapter_whole(const HfLayout *layout, const char *ours) {
    for (int i = 0; i < layout->n_items; i++) {
        const HfItem *item = &layout->items[i];
        const HfPart *part = &item->parts[0];
        if (item->n_parts > 1 || strcmp(part->ours, ours) != 0) continue;
        const bool all = part->type.rank == part->whole.rank; /* not one expert's */
        return all && ends_with(item->theirs, ".weight") ? item : NULL;
    }
    return NULL;
}

bool hf_adapter_is_saved(const HfExport *export, const char *ours) {
    SafetensorsInfo info;
    const Safetensors *file = export->trained ? export->trained : export->weights;
    if (hf_adapter_is_head(export->model, ours)) return true;
    if (find_half(export, ours, 'b')) return false; /* the sum of both would be the module */
    return safetensors_find_metadata(file, ENGINE_TRAINED_ALONE_KEY) &&
           safetensors_find(file, ours, &info) && hf_adapter_whole(&export->layout, ours);
}

const char *hf_adapter_tied(Arena *arena, const Model *model, const HfFamily *family,
                            const HfType *type, const HfLayout *layout, const HfItem *item) {
    if (strcmp(item->parts[0].ours, "wte") != 0 || !family->output) return NULL;
    for (int i = 0; i < layout->n_items; i++) {
        if (strstr(family->output, layout->items[i].theirs)) return NULL; /* a table of its own */
    }
    if (hf_classes_count(model) > 0) return NULL;
    const char *blank = strchr(family->output, ' '); /* GPT-NeoX's own is the second */
    if (!blank) return family->output;
    if (strcmp(type->name, "gpt_neox") == 0) return blank + 1;
    return arena_strndup(arena, family->output, (size_t)(blank - family->output));
}

/* By the end of a module's name PEFT finds it: of those outside layers that are no tables, whose
 * last words others may end with (norm), the whole. */
static const char *saved_as(const HfExport *export, const HfItem *item) {
    static const char *const TABLES[] = {"wte", "head", HEAD};
    const char *module = hf_adapter_module(export->arena, item->theirs);
    const char *dot = strrchr(module, '.'), *ours = item->parts[0].ours;
    bool last = strncmp(ours, "blocks.", strlen("blocks.")) == 0;
    for (size_t i = 0; i < sizeof(TABLES) / sizeof(TABLES[0]); i++) {
        last = last || strcmp(ours, TABLES[i]) == 0;
    }
    return dot && last ? dot + 1 : module;
}

/* A weight, or again as the head that shares it: its tensor, or its numbers. */
static bool visit_saved(HfExport *export, SafetensorsWriter *writer, bool declare,
                        const HfItem *item, const char *theirs, Diag *diag) {
    const char *name = hf_adapter_saved_name(export->arena, theirs);
    size_t bytes = (size_t)dtype_bytes(export->dtype);
    for (int i = 0; i < item->n_dims; i++) bytes *= (size_t)item->shape[i];
    if (declare) {
        safetensors_writer_add_tensor(writer, name, tensor_file_dtype(export->dtype), item->shape,
                                      item->n_dims);
        export->n_bytes += bytes;
        return true;
    }
    void *room = calloc(1, bytes);
    if (!room) BUG("out of memory");
    bool fine = hf_export_fill(export, item, room, diag) &&
                safetensors_writer_put(writer, name, room, bytes, diag);
    free(room);
    return fine;
}

static bool has_text(const json_t *list, const char *text) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(json_string_value(json_array_get(list, i)), text) == 0) return true;
    }
    return false;
}

/* What the configuration says of the modules. */
typedef struct Named {
    json_t *modules, *parameters, *saved;
    bool tied;              /* the head shares a table that is saved */
    json_t *ranks, *alphas; /* of those that several adapters of ours are one of, with A's apart */
    bool experts;           /* are there any? */
    bool roots;             /* is the scale alpha / sqrt(rank)? */
} Named;

/* That makes the scale what it is. */
static double alpha_of(const HfExport *export, const Named *named, double rank) {
    const double own = number_of(export->model, "lora_alpha"); /* to the bit where it is this */
    const bool same = rank == number_of(export->model, "lora");
    if (same && named->roots == (number_of(export->model, "lora_rslora") > 0)) {
        return own > 0 ? own : rank;
    }
    return export->adapter_scale * (named->roots ? sqrt(rank) : rank);
}

static bool has_experts(const HfExport *export) {
    for (int i = 0; i < export->layout.n_items; i++) {
        Module of;
        const HfItem *item = &export->layout.items[i];
        if (strstr(item->theirs, ".experts.") && find_module(export, item, &of)) return true;
    }
    return false;
}

/* Have modules of this name adapters of several ranks, as q_proj of Kimi Linear's two kinds of
 * layers? */
static bool has_several_ranks(const HfExport *export, const char *name, int64_t rank) {
    for (int i = 0; i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        Module of;
        const char *module = hf_adapter_module(export->arena, item->theirs);
        const char *last = module ? strrchr(module, '.') : NULL;
        if (last && strcmp(last + 1, name) == 0 && find_module(export, item, &of) &&
            of.rank != rank) {
            return true;
        }
    }
    return false;
}

/* Patterns have the name that modules end with, or where that is not enough a module's whole. */
static void name_module(const HfExport *export, const Module *module, Named *named) {
    const char *parameter = hf_adapter_parameter(module->item->theirs);
    const char *whole = hf_adapter_module(export->arena, module->item->theirs);
    const char *name = strrchr(whole, '.') + 1;
    json_t *list = parameter ? named->parameters : named->modules;
    if (!has_text(list, parameter ? parameter : name)) {
        json_array_append_new(list, json_string(parameter ? parameter : name));
    }
    if (module->rank == module->of[0].rank || json_object_get(named->ranks, name)) return;
    const double alpha = alpha_of(export, named, (double)module->rank);
    if (!parameter && has_several_ranks(export, name, module->rank)) name = whole;
    json_object_set_new(named->ranks, name, json_integer((json_int_t)module->rank));
    json_object_set_new(named->alphas, name, json_real(alpha));
}

/* A module that is saved, and how. As PEFT has it, a tied head is in the file once more. */
static bool visit_module(HfExport *export, SafetensorsWriter *writer, bool declare,
                         const HfItem *item, Named *named, Diag *diag) {
    const char *name = saved_as(export, item);
    const char *tied = hf_adapter_tied(export->arena, export->model, export->family, export->type,
                                       &export->layout, item);
    if (declare && !has_text(named->saved, name)) {
        json_array_append_new(named->saved, json_string(name));
    }
    named->tied = named->tied || tied;
    return visit_saved(export, writer, declare, item, item->theirs, diag) &&
           (!tied || visit_saved(export, writer, declare, item, tied, diag));
}

/* Have both of a layer's tensors of all experts adapters? */
static bool has_both(const HfExport *export, const HfItem *item) {
    if (!hf_adapter_parameter(item->theirs)) return false;
    int n = 0;
    const int length = (int)(strrchr(item->theirs, '.') - item->theirs);
    for (int i = 0; i < export->layout.n_items; i++) {
        Module of;
        const HfItem *other = &export->layout.items[i];
        n += hf_adapter_parameter(other->theirs) &&
             strncmp(other->theirs, item->theirs, (size_t)length + 1) == 0 &&
             find_module(export, other, &of);
    }
    return n == 2;
}

/* declare: the tensors; else their numbers. */
static bool visit_adapters(HfExport *export, SafetensorsWriter *writer, bool declare, Named *named,
                           Diag *diag) {
    Arena *arena = export->arena;
    for (int i = 0; i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        Module of;
        if (hf_adapter_is_saved(export, item->parts[0].ours) &&
            !visit_module(export, writer, declare, item, named, diag)) {
            return false;
        }
        if (!find_module(export, item, &of)) continue;
        const bool both = has_both(export, item);
        const char *a = hf_adapter_name(arena, item->theirs, both, 'A');
        const char *b = hf_adapter_name(arena, item->theirs, both, 'B');
        if (!declare) {
            if (!put_half(export, writer, a, &of, 'A', diag) ||
                !put_half(export, writer, b, &of, 'B', diag)) {
                return false;
            }
            continue;
        }
        const SafetensorsDtype dtype = tensor_file_dtype(export->dtype);
        const int64_t rank = of.rank * of.experts;
        safetensors_writer_add_tensor(writer, a, dtype, (int64_t[]){rank, of.n_in}, 2);
        safetensors_writer_add_tensor(writer, b, dtype, (int64_t[]){of.n_out, rank}, 2);
        export->n_bytes +=
            (size_t)(rank * (of.n_in + of.n_out)) * (size_t)dtype_bytes(export->dtype);
        name_module(export, &of, named);
    }
    return true;
}

static bool write_weights(HfExport *export, const char *dir, Named *named, Diag *diag) {
    SafetensorsWriter *writer = safetensors_writer_create();
    const char *path = arena_printf(export->arena, "%s/adapter_model.safetensors", dir);
    safetensors_writer_add_metadata(writer, "format", "pt");
    bool fine = visit_adapters(export, writer, true, named, diag) &&
                safetensors_writer_open(writer, path, diag) &&
                visit_adapters(export, writer, false, named, diag);
    if (fine) return safetensors_writer_commit(writer, diag);
    safetensors_writer_abandon(writer);
    return false;
}

/* PEFT has no dropout of experts' adapters, which are parameters to it, and refuses one; of gates
 * and ups it makes one of twice the rank and alpha, which is right without roots alone. */
static json_t *make_config(const HfExport *export, const Named *named) {
    const Model *model = export->model;
    const double rank = number_of(model, "lora");
    const double dropout = named->experts ? 0.0 : number_of(model, "lora_dropout");
    bool columns = strcmp(export->type->name, "gpt2") == 0; /* its Conv1D has [in, out] */
    bool classes = hf_classes_count(model) > 0;
    json_t *saved = json_array_size(named->saved) ? json_copy(named->saved) : json_null();
    json_t *config = json_pack(
        "{s:s, s:s, s:I, s:f, s:f, s:b, s:O, s:O, s:O, s:O, s:s, s:b, s:b, s:o, s:n, s:b}",
        "peft_type", "LORA", "task_type",
        classes                   ? "SEQ_CLS"
        : hf_embed_pooling(model) ? "FEATURE_EXTRACTION"
                                  : "CAUSAL_LM",
        "r", (json_int_t)rank, "lora_alpha", alpha_of(export, named, rank), "lora_dropout", dropout,
        "use_rslora", named->roots, "target_modules", named->modules, "target_parameters",
        named->parameters, "rank_pattern", named->ranks, "alpha_pattern", named->alphas, "bias",
        "none", "fan_in_fan_out", columns, "inference_mode", 1, "modules_to_save", saved,
        "base_model_name_or_path", "init_lora_weights", 1);
    if (!config) BUG("out of memory");
    if (export->like) {
        json_object_set_new(config, "base_model_name_or_path", json_string(export->like));
    }
    if (named->tied) json_object_set_new(config, "ensure_weight_tying", json_true());
    return config;
}

bool hf_adapter_write(HfExport *export, const char *dir, Diag *diag) {
    Named named = {.modules = json_array(),
                   .parameters = json_array(),
                   .saved = json_array(),
                   .ranks = json_object(),
                   .alphas = json_object(),
                   .experts = has_experts(export)};
    named.roots = !named.experts && number_of(export->model, "lora_rslora") > 0;
    bool fine = write_weights(export, dir, &named, diag);
    json_t *config = fine ? make_config(export, &named) : NULL;
    fine = fine && hf_write_json(export->arena, dir, "adapter_config.json", config, diag);
    json_decref(config);
    json_decref(named.modules);
    json_decref(named.parameters);
    json_decref(named.saved);
    json_decref(named.ranks);
    json_decref(named.alphas);
    return fine;
}
