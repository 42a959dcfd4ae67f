#include "frontend/hf/hf_import.h"

#include "frontend/hf/hf_processor.h"
#include "frontend/hf/hf_quantized.h"
#include "frontend/hf/hf_rope.h"
#include "frontend/hf/hf_vision.h"
#include "frontend/progress_line.h"
#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/cpu/reduce.h"
#include "runtime/engine.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What is copied at once: 64 MiB in f32. */
static const int64_t PIECE_ELEMENTS = 1 << 24;

/* -1: none that is read. */
static int float_dtype(SafetensorsDtype dtype) {
    switch (dtype) {
    case SAFETENSORS_F32: return DTYPE_F32;
    case SAFETENSORS_BF16: return DTYPE_BF16;
    case SAFETENSORS_F16: return DTYPE_F16;
    default: return -1;
    }
}

/* --- the model --- */

static const ModelSetting *all_settings(HfImport *import, const ModelSetting *given, int n_given,
                                        int *out_count) {
    const HfConfig *config = &import->config;
    ModelSetting *all = ARENA_ARRAY(import->arena, ModelSetting, config->n_settings + n_given + 1);
    memcpy(all, config->settings, (size_t)config->n_settings * sizeof(*all));
    if (n_given) memcpy(all + config->n_settings, given, (size_t)n_given * sizeof(*all));
    for (int i = 0; config->cut && i < n_given; i++) {
        if (strcmp(given[i].key, config->cut) == 0) import->config.cut = NULL;
    }
    *out_count = config->n_settings + n_given;
    return all;
}

/* What the configuration alone says. */
static int64_t configured(const HfConfig *config, const char *name) {
    int64_t value = 0;
    for (int i = 0; i < config->n_settings; i++) {
        if (strcmp(config->settings[i].key, name) == 0) value = atoll(config->settings[i].value);
    }
    return value;
}

/* Graphs of far more blocks than the files can have are not worth making. */
static bool check_layers(const HfImport *import, Diag *diag) {
    int64_t layers = configured(&import->config, "layers");
    if (layers <= import->files.n_tensors) layers = configured(&import->config, "vision_layers");
    if (layers <= import->files.n_tensors) return true;
    diag_error(diag, (SourceLoc){import->config.path, 0},
               "says %" PRId64 " layers, but the weights have %d tensors in all", layers,
               import->files.n_tensors);
    return false;
}

static bool load_model(HfImport *import, const char *script, const ModelSetting *given, int n_given,
                       Diag *diag) {
    const HfFamily *family = import->config.family;
    int n;
    const ModelSetting *all = all_settings(import, given, n_given, &n);
    import->model = script ? model_load(import->arena, script, all, n, 1, diag)
                           : model_load_shipped(import->arena, family->script, all, n, 1, diag);
    if (!import->model) {
        diag_note(diag, (SourceLoc){import->config.path, 0}, "its settings are from here");
        return false;
    }
    if (strcmp(import->model->name, family->script) == 0) {
        if (import->config.classes.setting.key || hf_classes_count(import->model) == 0) return true;
        diag_error(diag, (SourceLoc){import->config.path, 0},
                   "is of a model that says tokens: import it as it is, and train with --load and "
                   "--set classes= or --set preference=reward");
        return false;
    }
    diag_error(diag, (SourceLoc){script, 0}, "is model '%s'; a %s is model '%s'",
               import->model->name, import->config.type->name, family->script);
    return false;
}

/* --- the tensors --- */

/* TensorFlow's names of a norm's weight and bias, which BERT's first files have. */
static const char *older_name(const HfImport *import, const char *name) {
    static const char *const NAMES[][2] = {{".LayerNorm.weight", "gamma"},
                                           {".LayerNorm.bias", "beta"}};
    size_t length = strlen(name);
    for (int i = 0; i < 2; i++) {
        size_t end = strlen(NAMES[i][0]), kept = strlen(".LayerNorm.");
        if (length < end || strcmp(name + length - end, NAMES[i][0]) != 0) continue;
        return arena_printf(import->arena, "%.*s%s", (int)(length - end + kept), name, NAMES[i][1]);
    }
    return NULL;
}

/* transformers 5 writes layers of a kimi_linear without experts under the name of those with. */
static const char *saved_name(const HfImport *import, const char *name) {
    static const char THEIRS[] = ".mlp.";
    const char *at = strstr(name, THEIRS);
    if (!at || strcmp(import->config.type->name, "kimi_linear") != 0) return NULL;
    return arena_printf(import->arena, "%.*s.block_sparse_moe.%s", (int)(at - name), name,
                        at + strlen(THEIRS));
}

/* A name as the files have it: with the family's prefix, or all of them without. */
static HfFound *find_name(const HfImport *import, const char *name) {
    size_t length = hf_family_prefix(import->config.family, name);
    HfFound *found = hf_files_find(&import->files, name);
    const char *within;
    for (int i = 0; !found && import->config.part; i++) {
        within = hf_text_part_name(import->arena, import->config.part, name, i);
        if (!within) break;
        found = hf_files_find(&import->files, within);
    }
    for (int i = 0; !found && hf_vision_is_type(import->config.type->name); i++) {
        within = hf_vision_name(import->arena, name, i);
        if (!within) break;
        found = hf_files_find(&import->files, within);
    }
    return found || length == 0 ? found : hf_files_find(&import->files, name + length);
}

static HfFound *find_tensor(const HfImport *import, const char *name) {
    HfFound *found = find_name(import, name);
    const char *older = found ? NULL : older_name(import, name);
    if (!found && !older) older = saved_name(import, name);
    return older ? find_name(import, older) : found;
}

/* Only where the configuration says so are tensors in codes. */
static bool find_packed(const HfImport *import, const HfItem *item, HfPacked *out, Diag *diag) {
    const HfQuantized *quantized = &import->config.quantized;
    *out = (HfPacked){.first = NULL};
    if (!quantized->method) return true;
    for (const char *const *end = quantized->method->endings; *end; end++) {
        const char *name = hf_quantized_name(import->arena, item->theirs, *end);
        HfFound *first = name ? find_tensor(import, name) : NULL;
        if (!first) continue;
        const size_t length = strlen(first->info->name) - strlen(*end) + ((*end)[0] == '+');
        const HfPackedAt at = {.arena = import->arena,
                               .files = &import->files,
                               .first = first,
                               .stem = arena_strndup(import->arena, first->info->name, length),
                               .n_dims = item->n_dims,
                               .shape = item->shape,
                               .diag = diag};
        if (!quantized->method->find(&at, quantized, out)) return false;
        if (!out->first) continue;
        first->used = true;
        return true;
    }
    return true;
}

static bool check_tensor(HfImport *import, const HfItem *item, Diag *diag) {
    HfFound *found = find_tensor(import, item->theirs);
    HfPacked packed;
    if (!found || float_dtype(found->info->dtype) < 0) {
        if (!find_packed(import, item, &packed, diag)) return false;
        import->n_packed += packed.first != NULL;
        if (packed.first) return true;
    }
    if (!found) {
        diag_error(diag, (SourceLoc){import->files.dir, 0}, "has no tensor '%s'", item->theirs);
        return false;
    }
    const SafetensorsInfo *info = found->info;
    SourceLoc loc = {found->path, 0};
    found->used = true;
    if (float_dtype(info->dtype) < 0) {
        diag_error(diag, loc, "tensor '%s' is %s; only F32, BF16 and F16 are supported",
                   item->theirs, safetensors_dtype_name(info->dtype));
        return false;
    }
    /* Of all positions, and of rows before the first one's. */
    const int64_t whole = configured(&import->config, "seq") + item->shape[0] - import->model->seq;
    bool fits = info->n_dims == item->n_dims;
    for (int i = 0; fits && i < item->n_dims; i++) {
        bool cut = i == 0 && item->by_position && item->shape[0] < info->shape[0];
        fits = info->shape[i] == (cut ? whole : item->shape[i]);
    }
    if (fits) return true;
    const char *has = "", *wants = "";
    for (int i = 0; i < info->n_dims; i++) {
        has = arena_printf(import->arena, "%s%s%" PRId64, has, i ? ", " : "", info->shape[i]);
    }
    for (int i = 0; i < item->n_dims; i++) {
        wants = arena_printf(import->arena, "%s%s%" PRId64, wants, i ? ", " : "", item->shape[i]);
    }
    diag_error(diag, loc, "tensor '%s' is [%s]; by the configuration it is [%s]", item->theirs, has,
               wants);
    return false;
}

/* Are experts one tensor here? As far as one of them is there. */
static bool has_fused(const HfImport *import) {
    for (const HfTensor *row = import->config.type->fused; row && row->theirs; row++) {
        if (!strstr(row->theirs, ".experts.")) continue;
        for (int block = 0; block < import->model->n_blocks; block++) {
            if (find_tensor(import, hf_block_name(import->arena, row->theirs, block))) return true;
        }
    }
    return false;
}

/* Rows for far more experts than the files can have, where each has rows, are not worth making. */
static bool check_experts(const HfImport *import, bool fused, Diag *diag) {
    const Setting *experts = settings_find(&import->model->settings, "experts");
    const Setting *dense = settings_find(&import->model->settings, "dense_layers");
    if (fused || !experts || !import->config.type->each) return true;
    const Setting *every = settings_find(&import->model->settings, "experts_every");
    const int64_t n_dense = dense ? dense->integer : 0, step = every ? every->integer : 1;
    int64_t layers = import->model->n_blocks / step - n_dense / step;
    int64_t least = experts->integer * (layers > 1 ? layers : 1);
    if (experts->integer <= import->files.n_tensors && least <= import->files.n_tensors) {
        return true;
    }
    diag_error(diag, (SourceLoc){import->config.path, 0},
               "says %" PRId64 " experts in %" PRId64
               " layers, but the weights have %d tensors in all",
               experts->integer, layers, import->files.n_tensors);
    return false;
}

static bool same_bytes(const HfFound *a, const HfFound *b) {
    return a->info->dtype == b->info->dtype && a->info->n_bytes == b->info->n_bytes &&
           memcmp(a->info->data, b->info->data, a->info->n_bytes) == 0;
}

static const HfFound *find_embeddings(const HfImport *import) {
    const HfTensor *rows = import->config.family->tensors;
    if (!rows->theirs) rows = import->config.type->others;
    return find_tensor(import, rows[0].theirs);
}

/* A tied output's table may be in the file once more. */
static bool check_output(const HfImport *import, HfFound *output, Diag *diag) {
    const HfFound *table = find_embeddings(import);
    output->used = true;
    if (table && same_bytes(table, output)) return true;
    diag_error(diag, (SourceLoc){output->path, 0},
               "'%s' is another table than the embeddings', but the configuration ties the two",
               output->info->name);
    return false;
}

/* "a.*": all whose names begin so. */
static void leave_named(HfImport *import, const char *name) {
    for (int i = 0; i < import->files.n_tensors; i++) {
        HfFound *found = &import->files.tensors[i];
        if (strncmp(found->info->name, name, strlen(name) - 1) != 0) continue;
        import->n_left_out += !found->used;
        found->used = true;
    }
}

static void skip_ignored(HfImport *import) {
    const HfFamily *family = import->config.family;
    for (const char *const *name = family->ignored; *name; name++) {
        if (strchr(*name, '*')) leave_named(import, *name);
        for (int block = 0; block < import->model->n_blocks; block++) {
            HfFound *found = find_tensor(import, hf_block_name(import->arena, *name, block));
            if (found) found->used = true;
        }
    }
}

/* DeepSeek V3's layers behind the last, which predict tokens beyond the next; transformers leaves
 * them out, too. */
static void leave_predictors(HfImport *import) {
    enum { MOST = 16 };
    json_int_t n =
        json_integer_value(json_object_get(import->config.json, "num_nextn_predict_layers"));
    const int64_t layers = configured(&import->config, "layers");
    for (int64_t i = 0; i < n && i < MOST; i++) {
        leave_named(import, arena_printf(import->arena, "model.layers.%" PRId64 ".*", layers + i));
    }
}

/* Layers of LLaVA's tower behind the one that it reads. */
static void leave_beyond(HfImport *import) {
    if (strcmp(import->config.type->name, "llava") != 0) return;
    const int64_t layers = configured(&import->config, "vision_layers");
    for (int i = 0; i < import->files.n_tensors; i++) {
        HfFound *found = &import->files.tensors[i];
        if (found->used || !hf_vision_is_beyond(found->info->name, layers)) continue;
        found->used = true;
        import->n_left_out++;
    }
}

/* Activations are not rounded here. */
static void leave_scales(HfImport *import) {
    for (int i = 0; i < import->files.n_tensors; i++) {
        HfFound *found = &import->files.tensors[i];
        if (found->used || !hf_quantized_leaves(&import->config.quantized, found->info->name))
            continue;
        found->used = true;
        import->n_scales++;
    }
}

static void leave_parts(HfImport *import) {
    for (int i = 0; import->config.part && i < import->files.n_tensors; i++) {
        HfFound *found = &import->files.tensors[i];
        if (found->used || !hf_text_part_leaves(import->config.part, found->info->name)) continue;
        found->used = true;
        import->n_left_out++;
    }
}

static bool check_tensors(HfImport *import, Diag *diag) {
    for (int i = 0; i < import->layout.n_items; i++) {
        if (!check_tensor(import, &import->layout.items[i], diag)) return false;
    }
    for (const char *at = import->config.family->output; *at; at += strspn(at, " ")) {
        const size_t length = strcspn(at, " ");
        HfFound *output = find_tensor(import, arena_strndup(import->arena, at, length));
        if (output && !output->used && !check_output(import, output, diag)) return false;
        at += length;
    }
    skip_ignored(import);
    leave_parts(import);
    leave_predictors(import);
    leave_beyond(import);
    leave_scales(import);
    for (int i = 0; i < import->files.n_tensors; i++) {
        const HfFound *found = &import->files.tensors[i];
        if (found->used) continue;
        diag_error(diag, (SourceLoc){found->path, 0},
                   "tensor %s is none that a %s of this configuration has",
                   hf_quoted(import->arena, found->info->name), import->config.type->name);
        return false;
    }
    return true;
}

/* Configurations of T5s and InternVLs that transformers 5 saved say `tied` of all of them, and its
 * reader ties none whose output has a table of its own. */
static void untie(const HfImport *import) {
    const HfFamily *family = import->config.family;
    const bool vision = strcmp(import->config.type->name, "internvl") == 0;
    if (strcmp(family->script, "t5") != 0 && !vision) return;
    const HfFound *output = vision ? find_tensor(import, "language_model.lm_head.weight")
                                   : hf_files_find(&import->files, family->output);
    const HfFound *table = find_embeddings(import);
    if (!output || !table || same_bytes(output, table)) return;
    for (int i = 0; i < import->config.n_settings; i++) {
        ModelSetting *setting = &import->config.settings[i];
        if (strcmp(setting->key, "tied") == 0) setting->value = "false";
    }
}

/* What scales positions where there are more than the model was made for (hf_rope.h). */
static bool check_positions(const HfImport *import, Diag *diag) {
    const json_t *json = import->config.json;
    const int64_t most = json_integer_value(json_object_get(json, "max_position_embeddings"));
    if (!json_object_get(json, HF_ROPE_BEYOND) || import->model->seq <= most) return true;
    diag_error(diag, (SourceLoc){import->config.path, 0},
               "seq is %" PRId64 ", but 'rope_scaling' is \"dynamic\": beyond "
               "'max_position_embeddings', %" PRId64 ", it turns positions otherwise, which is not "
               "supported",
               import->model->seq, most);
    return false;
}

static bool read_all(HfImport *import, const char *script, const ModelSetting *given, int n_given,
                     Diag *diag) {
    const HfConfig *config = &import->config;
    untie(import);
    if (!check_layers(import, diag) || !load_model(import, script, given, n_given, diag) ||
        !check_positions(import, diag)) {
        return false;
    }
    bool fused = has_fused(import);
    if (!check_experts(import, fused, diag) ||
        !hf_layout_make(import->arena, import->model, config->family, config->type, fused,
                        &import->layout, diag) ||
        !check_tensors(import, diag)) {
        return false;
    }
    for (int i = 0; i < import->layout.n_items; i++) {
        const HfItem *item = &import->layout.items[i];
        for (int p = 0; p < item->n_parts; p++) {
            import->n_parameters += type_elements(&item->parts[p].type);
        }
    }
    return true;
}

bool hf_import_open_found(Arena *arena, const HfConfig *config, const HfFiles *files,
                          const char *script, const ModelSetting *given, int n_given, HfImport *out,
                          Diag *diag) {
    *out = (HfImport){.arena = arena, .config = *config, .files = *files, .dtype = DTYPE_F32};
    const bool fine = read_all(out, script, given, n_given, diag);
    if (!fine) hf_import_close(out);
    return fine;
}

static bool take_processor(HfImport *import, const char *dir, Diag *diag) {
    HfConfig *config = &import->config;
    ModelSetting settings[HF_PROCESSOR_SETTINGS];
    int n;
    if (!hf_processor_read(import->arena, dir, config->json, settings, &n, diag)) return false;
    for (int i = 0; i < n; i++) {
        ARENA_PUSH(import->arena, config->settings, config->n_settings, config->settings_capacity,
                   settings[i]);
    }
    return true;
}

bool hf_import_open(Arena *arena, const char *dir, const char *script, const ModelSetting *given,
                    int n_given, HfImport *out, Diag *diag) {
    *out = (HfImport){.arena = arena, .dtype = DTYPE_F32};
    if (!hf_config_read(arena, dir, &out->config, diag)) return false;
    bool fine = take_processor(out, dir, diag) && hf_files_open(arena, dir, &out->files, diag) &&
                read_all(out, script, given, n_given, diag);
    if (!fine) hf_import_close(out);
    return fine;
}

void hf_import_close(HfImport *import) {
    hf_files_close(&import->files);
    json_decref(import->config.json);
    import->config.json = NULL;
    free(import->wide);
    import->wide = NULL;
    import->opened = NULL;
}

/* --- writing --- */

/* The item's tensor in codes, and room for a slice of it. */
static bool open_packed(HfImport *import, const HfItem *item, Diag *diag) {
    const HfPacked *packed = &import->packed;
    if (import->opened == item) return true;
    import->opened = NULL;
    free(import->wide);
    import->wide = NULL;
    if (!find_packed(import, item, &import->packed, diag)) return false;
    const size_t n = (size_t)packed->rows * (size_t)packed->columns;
    import->wide = malloc(n * sizeof(float) + 1);
    if (!import->wide) {
        diag_error(diag, (SourceLoc){packed->first->path, 0}, "not enough memory for '%s'",
                   item->theirs);
        return false;
    }
    import->opened = item;
    import->slice = -1;
    return true;
}

/* Once for all that is read of it. */
static void widen(HfImport *import, int64_t slice) {
    if (import->slice == slice) return;
    import->packed.widen(&import->packed, slice, import->wide);
    import->slice = slice;
}

/* Rows of the part's first axis, from `row` on; of several slices, experts, each by itself. */
static bool read_packed(HfImport *import, const HfItem *item, const HfPart *part, TensorCopy copy,
                        int64_t row, int64_t n_rows, Diag *diag) {
    if (!open_packed(import, item, diag)) return false;
    const int64_t each = import->packed.rows * import->packed.columns;
    const bool experts = import->packed.slices > 1;
    float *to = copy.to;
    copy.from_dtype = DTYPE_F32;
    if (experts) copy.size[0] = 1;
    for (int64_t i = 0; i < (experts ? n_rows : 1); i++) {
        const int64_t first = part->theirs_first + (row + i) * part->theirs_stride[0];
        widen(import, experts ? first / each : 0);
        copy.from = import->wide + (experts ? first % each : first);
        copy.to = to + (experts ? i * part->ours_stride[0] : 0);
        tensor_copy(&copy);
    }
    return true;
}

/* Rows of the part's first axis, from `row` on. */
static bool read_rows(HfImport *import, const HfItem *item, const HfPart *part, int64_t row,
                      int64_t n_rows, float *out, Diag *diag) {
    const HfFound *found = find_tensor(import, item->theirs);
    TensorCopy copy = {.rank = part->type.rank, .to_dtype = DTYPE_F32, .to = out};
    for (int i = 0; i < copy.rank; i++) {
        copy.size[i] = i ? part->type.dims[i] : n_rows;
        copy.from_stride[i] = part->theirs_stride[i];
        copy.to_stride[i] = part->ours_stride[i];
    }
    if (!found || float_dtype(found->info->dtype) < 0) {
        return read_packed(import, item, part, copy, row, n_rows, diag);
    }
    int64_t first = part->theirs_first + row * part->theirs_stride[0];
    copy.from_dtype = (DType)float_dtype(found->info->dtype);
    copy.from = (const char *)found->info->data + first * dtype_bytes(copy.from_dtype);
    tensor_copy(&copy);
    return true;
}

/* As many rows as fit in a piece, one at least. */
static int64_t rows_at_once(const HfPart *part) {
    int64_t row = part->ours_stride[0], n = row > 0 ? PIECE_ELEMENTS / row : 1;
    if (n < 1) n = 1;
    return n < part->type.dims[0] ? n : part->type.dims[0];
}

/* Weights that are no numbers would be found in the first step, and not where they came from. */
static bool check_finite(const HfImport *import, const HfItem *item, const float *rows,
                         int64_t count, Diag *diag) {
    const HfFound *tensor = find_tensor(import, item->theirs);
    const HfFound *found = tensor ? tensor : import->packed.first;
    int64_t at = reduce_first_nonfinite(rows, DTYPE_F32, count);
    if (at < 0) return true;
    diag_error(diag, found ? (SourceLoc){found->path, 0} : NO_LOC,
               "tensor '%s' has a value that is not finite, %g: is the file damaged?", item->theirs,
               (double)fabsf(rows[at]));
    return false;
}

/* In place: what is written lies before what is read next. */
static bool narrow(const HfImport *import, const HfItem *item, float *numbers, int64_t count,
                   Diag *diag) {
    enum { PART = 4096 };
    float part[PART];
    for (int64_t at = 0; import->dtype != DTYPE_F32 && at < count; at += PART) {
        int64_t n = count - at < PART ? count - at : PART;
        memcpy(part, numbers + at, (size_t)n * sizeof(*part));
        TensorCopy copy = {.rank = 1,
                           .size = {n},
                           .from_stride = {1},
                           .to_stride = {1},
                           .from_dtype = DTYPE_F32,
                           .to_dtype = import->dtype,
                           .from = part,
                           .to = (char *)numbers + at * dtype_bytes(import->dtype)};
        if (tensor_copy(&copy)) continue;
        diag_error(diag, NO_LOC,
                   "tensor '%s' has numbers too large for %s; import it as another "
                   "--dtype",
                   item->theirs, dtype_name(import->dtype));
        return false;
    }
    return true;
}

/* Numbers of theirs -> ours, of norms that have gains of 1 and more. */
static void take_less(const HfItem *item, float *numbers, int64_t count) {
    for (int64_t i = 0; item->more != 0 && i < count; i++) numbers[i] -= item->more;
}

static bool put_part(HfImport *import, SafetensorsWriter *writer, const HfItem *item,
                     const HfPart *part, float *room, bool *out_wrong, Diag *diag) {
    int64_t rows = part->type.dims[0], step = rows_at_once(part);
    bool fine = true;
    for (int64_t row = 0; fine && row < rows; row += step) {
        int64_t n = row + step < rows ? step : rows - row;
        fine = read_rows(import, item, part, row, n, room, diag);
        if (fine) take_less(item, room, n * part->ours_stride[0]);
        *out_wrong = fine && !check_finite(import, item, room, n * part->ours_stride[0], diag);
        *out_wrong =
            *out_wrong || (fine && !narrow(import, item, room, n * part->ours_stride[0], diag));
        fine = fine && !*out_wrong &&
               safetensors_writer_put(
                   writer, part->ours, room,
                   (size_t)(n * part->ours_stride[0] * dtype_bytes(import->dtype)), diag);
    }
    return fine;
}

static bool put_tensors(HfImport *import, SafetensorsWriter *writer, float *room, bool *out_wrong,
                        Diag *diag) {
    ProgressLine line = progress_line_start("imported");
    bool fine = true;
    for (int i = 0; fine && i < import->layout.n_items; i++) {
        const HfItem *item = &import->layout.items[i];
        for (int p = 0; fine && p < item->n_parts; p++) {
            fine = put_part(import, writer, item, &item->parts[p], room, out_wrong, diag);
        }
        progress_line_show(&line, i + 1, import->layout.n_items, item->theirs);
    }
    progress_line_end(&line);
    return fine;
}

bool hf_import_write(HfImport *import, const char *path, Diag *diag) {
    SafetensorsWriter *writer = safetensors_writer_create();
    int64_t largest = 1;
    for (int i = 0; i < import->layout.n_items; i++) {
        const HfItem *item = &import->layout.items[i];
        for (int p = 0; p < item->n_parts; p++) {
            const HfPart *part = &item->parts[p];
            int64_t room = rows_at_once(part) * part->ours_stride[0];
            if (room > largest) largest = room;
            if (part->ours_first > 0) continue; /* further experts of it */
            safetensors_writer_add_tensor(writer, part->ours, tensor_file_dtype(import->dtype),
                                          part->whole.dims, part->whole.rank);
        }
    }
    safetensors_writer_add_metadata(writer, "format", "pt");
    safetensors_writer_add_metadata(writer, "model", import->model->name);
    safetensors_writer_add_metadata(writer, ENGINE_SETTINGS_KEY,
                                    settings_text(&import->model->settings, import->arena));
    float *room = malloc((size_t)largest * sizeof(float));
    if (!room) diag_error(diag, (SourceLoc){path, 0}, "not enough memory for its tensors");
    bool fine = room && safetensors_writer_open(writer, path, diag) &&
                put_tensors(import, writer, room, &import->damaged, diag);
    free(room);
    if (fine) return safetensors_writer_commit(writer, diag);
    safetensors_writer_abandon(writer);
    return false;
}
