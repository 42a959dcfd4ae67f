#include "frontend/hf/hf_export.h"

#include "frontend/hf/hf_adapter.h"
#include "frontend/hf/hf_embed.h"
#include "frontend/hf/hf_files.h"
#include "frontend/hf/hf_processor.h"
#include "frontend/progress_line.h"
#include "ir/base/file.h"
#include "ir/base/temporary.h"
#include "runtime/checkpoint/tensor_copy.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/engine.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *torch_dtype(DType dtype) {
    return dtype == DTYPE_F16 ? "float16" : dtype == DTYPE_BF16 ? "bfloat16" : "float32";
}

/* --- what there is to write --- */

bool hf_export_find(const HfExport *export, const char *name, SafetensorsInfo *out,
                    const char **out_path) {
    *out_path = export->trained_path;
    if (export->trained && safetensors_find(export->trained, name, out)) return true;
    *out_path = export->path;
    return safetensors_find(export->weights, name, out);
}

static bool check_part(const HfExport *export, const HfPart *part, Diag *diag) {
    SafetensorsInfo info;
    const char *path;
    if (!hf_adapter_check(export, part, diag)) return false;
    if (export->adapters_alone && !hf_adapter_is_saved(export, part->ours)) return true;
    bool found = hf_export_find(export, part->ours, &info, &path);
    SourceLoc loc = {path, 0};
    if (!found) {
        diag_error(diag, loc, "has no tensor '%s', which the model needs", part->ours);
        if (export->n_halves > 0 && !export->trained) {
            diag_note(diag, NO_LOC,
                      "adapters alone: export their base with --load-trained %s, or give --adapter",
                      path);
        }
        return false;
    }
    DType dtype;
    bool fits = tensor_dtype(&info, &dtype) && info.n_dims == part->whole.rank;
    for (int i = 0; fits && i < info.n_dims; i++) fits = info.shape[i] == part->whole.dims[i];
    if (fits) return true;
    StrBuf want = strbuf_create();
    type_print(&want, &export->model->graph->axes, &part->whole, NULL);
    diag_error(diag, loc, "tensor '%s' does not have the model's shape %s", part->ours, want.text);
    strbuf_destroy(&want);
    return false;
}

static bool is_known(const HfExport *export, const char *name) {
    if (hf_adapter_is_name(name)) return hf_adapter_is_known(export, name);
    for (int k = 0; k < export->layout.n_items; k++) {
        const HfItem *item = &export->layout.items[k];
        for (int p = 0; p < item->n_parts; p++) {
            if (strcmp(item->parts[p].ours, name) == 0) return true;
        }
    }
    return false;
}

static void fail_beside(const HfExport *export, const char *path, const char *name, bool alone,
                        Diag *diag) {
    diag_error(diag, (SourceLoc){path, 0},
               "tensor %s was trained beside the adapters, which alone would not do as the model "
               "does: export the merged weights%s",
               hf_quoted(export->arena, name),
               !alone && hf_adapter_whole(&export->layout, name)
                   ? ", or what --save-trained wrote, which tells it from what was not trained"
                   : "");
}

/* Weights that the model does not know would be left behind. What a checkpoint has beside weights,
 * the optimizer's state, is. An adapter alone has nothing else that was trained. */
static bool check_extra(const HfExport *export, const Safetensors *file, const char *path,
                        Diag *diag) {
    bool checkpoint = safetensors_find_metadata(file, "perilune.step") != NULL;
    bool alone = safetensors_find_metadata(file, ENGINE_TRAINED_ALONE_KEY) != NULL;
    const char *beside = safetensors_find_metadata(file, ENGINE_TRAINED_BESIDE_KEY);
    if (export->adapters_alone && beside && !alone && !hf_adapter_is_head(export->model, beside)) {
        fail_beside(export, path, beside, false, diag);
        return false;
    }
    for (int i = 0; i < safetensors_count(file); i++) {
        const char *name = safetensors_at(file, i)->name;
        bool known = is_known(export, name);
        if (checkpoint && strchr(name, '/')) continue;
        if (!known && hf_embed_leaves_out(export->model, name)) continue;
        if (!known && !checkpoint) {
            diag_error(diag, (SourceLoc){path, 0},
                       "has a tensor %s, which the model of these settings has not",
                       hf_quoted(export->arena, name));
            return false;
        }
        if (!export->adapters_alone || !alone || hf_adapter_is_name(name)) continue;
        if (hf_adapter_is_saved(export, name)) continue;
        fail_beside(export, path, name, true, diag);
        return false;
    }
    return true;
}

static bool read_like(HfExport *export, const char *like, HfConfig *config, Diag *diag) {
    if (!hf_config_read(export->arena, like, config, diag)) return false;
    if (config->family == export->family) return true;
    diag_error(diag, (SourceLoc){config->path, 0}, "is of a %s, which a '%s' is not",
               config->type->name, export->model->name);
    json_decref(config->json);
    config->json = NULL;
    return false;
}

static bool check_files(const HfExport *export, Diag *diag) {
    for (int i = 0; i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        for (int p = 0; p < item->n_parts; p++) {
            if (!check_part(export, &item->parts[p], diag)) return false;
        }
    }
    return check_extra(export, export->weights, export->path, diag) &&
           (!export->trained || check_extra(export, export->trained, export->trained_path, diag));
}

/* What a tokenizer is made of, and how to generate, by the names that they have everywhere. */
static const char *const OTHERS[] = {"tokenizer.json",
                                     "tokenizer_config.json",
                                     "tokenizer.model",
                                     "vocab.json",
                                     "merges.txt",
                                     "special_tokens_map.json",
                                     "added_tokens.json",
                                     "chat_template.jinja",
                                     "chat_template.json",
                                     "video_preprocessor_config.json",
                                     "configuration_deepseek.py",
                                     "modeling_deepseek.py",
                                     "generation_config.json"};

/* to NULL: they are only looked at. */
static bool copy_others(const HfExport *export, const char *to, Diag *diag) {
    for (size_t i = 0; export->like && i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        const char *from = arena_printf(export->arena, "%s/%s", export->like, OTHERS[i]);
        FileMap map;
        if (access(from, F_OK) != 0) continue;
        if (!file_map(from, &map, diag)) return false;
        bool fine = !to || file_write(arena_printf(export->arena, "%s/%s", to, OTHERS[i]), map.data,
                                      map.length_bytes, diag);
        file_unmap(&map);
        if (!fine) return false;
    }
    return true;
}

/* Of models without an output. */
static void strip_prefix(HfExport *export) {
    for (int i = 0; i < export->layout.n_items; i++) {
        HfItem *item = &export->layout.items[i];
        item->theirs = hf_embed_tensor_name(export->model, export->family, item->theirs);
    }
}

bool hf_export_open(Arena *arena, const HfExportRequest *request, HfExport *out, Diag *diag) {
    HfConfig config = {0};
    const Model *model = request->model;
    *out = (HfExport){.arena = arena,
                      .model = model,
                      .family = request->family ? request->family : hf_family_of_model(model, diag),
                      .path = request->path,
                      .weights = request->weights,
                      .trained_path = request->trained_path,
                      .trained = request->trained,
                      .like = request->like,
                      .dtype = request->dtype,
                      .adapters_alone = request->adapters_alone};
    if (!out->family) return false;
    if (out->like && !read_like(out, out->like, &config, diag)) return false;
    bool fine = request->family || copy_others(out, NULL, diag);
    if (fine) {
        out->type = hf_config_type(model, out->family, config.type,
                                   request->reader ? request->reader : HF_READER, diag);
    }
    fine = fine && out->type && hf_adapter_find(out, diag) &&
           hf_layout_make(arena, model, out->family, out->type, false, &out->layout, diag);
    if (fine) strip_prefix(out);
    fine = fine && check_files(out, diag) &&
           (!out->adapters_alone || hf_adapter_check_alone(out, diag));
    if (fine && !request->family) {
        out->config = hf_config_write(model, out->family, out->type, config.json,
                                      torch_dtype(out->dtype), diag);
        fine = out->config != NULL &&
               (out->adapters_alone ||
                hf_processor_write(arena, model, out->type->name, out->like, NULL, diag));
    }
    json_decref(config.json);
    return fine;
}

void hf_export_close(HfExport *export) {
    json_decref(export->config);
    export->config = NULL;
}

/* --- the folder --- */

static bool fail_folder(const char *dir, const char *what, Diag *diag) {
    diag_error(diag, (SourceLoc){dir, 0}, "%s: %s", what, strerror(errno));
    return false;
}

static const char *trimmed(Arena *arena, const char *dir) {
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') length--;
    return arena_strndup(arena, dir, length);
}

bool hf_export_try(Arena *arena, const char *dir, Diag *diag) {
    struct stat st;
    const char *name = trimmed(arena, dir);
    if (lstat(name, &st) == 0) {
        bool empty = S_ISDIR(st.st_mode);
        DIR *folder = empty ? opendir(name) : NULL;
        for (struct dirent *entry; folder && (entry = readdir(folder));) {
            empty = empty && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0);
        }
        if (folder) closedir(folder);
        if (empty && folder) return true;
        diag_error(diag, (SourceLoc){dir, 0}, "is there already; an export makes a new folder");
        return false;
    }
    const char *slash = strrchr(name, '/');
    const char *parent = slash ? arena_strndup(arena, name, (size_t)(slash - name + 1)) : ".";
    if (access(parent, W_OK | X_OK) == 0) return true;
    return fail_folder(dir, "cannot be made", diag);
}

/* Everything in a folder of ours, and the folder. */
static void remove_folder(Arena *arena, const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        const char *name = arena_printf(arena, "%s/%s", path, entry->d_name);
        if (unlink(name) != 0) remove_folder(arena, name);
    }
    if (folder) closedir(folder);
    rmdir(path);
}

/* Fewest digits that read back as the same configuration: 1e-05, not 1.0000000000000001e-05. */
static char *config_text(const json_t *config) {
    for (int digits = 6;; digits++) {
        char *text = json_dumps(config, JSON_INDENT(2) | JSON_SORT_KEYS |
                                            JSON_REAL_PRECISION((unsigned)digits));
        if (!text) BUG("out of memory");
        json_t *again = json_loads(text, 0, NULL);
        bool same = again && json_equal(again, config);
        json_decref(again);
        if (same || digits == 17) return text;
        free(text);
    }
}

bool hf_write_json(Arena *arena, const char *dir, const char *name, const json_t *json,
                   Diag *diag) {
    char *dump = config_text(json);
    const char *text = arena_printf(arena, "%s\n", dump);
    free(dump);
    return file_write(arena_printf(arena, "%s/%s", dir, name), text, strlen(text), diag);
}

/* --- the weights --- */

static size_t item_bytes(const HfExport *export, const HfItem *item) {
    size_t bytes = (size_t)dtype_bytes(export->dtype);
    for (int i = 0; i < item->n_dims; i++) bytes *= (size_t)item->shape[i];
    return bytes;
}

/* Which file each tensor goes to: as many in a row as fit, one at least. Returns their number. */
static int divide_items(HfExport *export, int *shard_of) {
    size_t filled = 0;
    int n = 1;
    for (int i = 0; i < export->layout.n_items; i++) {
        size_t bytes = item_bytes(export, &export->layout.items[i]);
        if (filled && bytes > export->max_shard_bytes - filled) {
            n++;
            filled = 0;
        }
        shard_of[i] = n - 1;
        filled = bytes > export->max_shard_bytes ? export->max_shard_bytes : filled + bytes;
        export->n_bytes += bytes;
    }
    return n;
}

bool hf_export_fill(const HfExport *export, const HfItem *item, void *out, Diag *diag) {
    for (int p = 0; p < item->n_parts; p++) {
        const HfPart *part = &item->parts[p];
        SafetensorsInfo info;
        const char *path;
        if (!hf_export_find(export, part->ours, &info, &path)) BUG("'%s' is gone", part->ours);
        float *merged = hf_adapter_merge(export, part);
        const int64_t first = merged ? 0 : part->ours_first;
        const void *from = merged ? (const void *)merged : info.data;
        DType dtype = DTYPE_F32;
        if (!merged && !tensor_dtype(&info, &dtype)) BUG("'%s' was checked", part->ours);
        TensorCopy copy = {.rank = part->type.rank,
                           .from_dtype = dtype,
                           .to_dtype = export->dtype,
                           .from = (const char *)from + first * dtype_bytes(dtype),
                           .to = (char *)out + part->theirs_first * dtype_bytes(export->dtype)};
        for (int i = 0; i < copy.rank; i++) {
            copy.size[i] = part->type.dims[i];
            copy.from_stride[i] = part->ours_stride[i];
            copy.to_stride[i] = part->theirs_stride[i];
        }
        bool fine = tensor_copy(&copy);
        free(merged);
        if (fine) continue;
        diag_error(diag, (SourceLoc){export->path, 0},
                   "tensor '%s' has numbers too large for %s; export another --dtype", part->ours,
                   dtype_name(export->dtype));
        return false;
    }
    return true;
}

static const char *shard_name(Arena *arena, int shard, int n_shards) {
    if (n_shards == 1) return "model.safetensors";
    return arena_printf(arena, "model-%05d-of-%05d.safetensors", shard + 1, n_shards);
}

typedef struct ShardWriting {
    const HfExport *export;
    const char *dir;
    const int *shard_of;
    void *room; /* for the largest tensor */
    ProgressLine line;
    Diag *diag;
} ShardWriting;

static bool write_shard(ShardWriting *w, int shard, int n_shards) {
    const HfExport *export = w->export;
    Arena *arena = export->arena;
    const char *path = arena_printf(arena, "%s/%s", w->dir, shard_name(arena, shard, n_shards));
    SafetensorsWriter *writer = safetensors_writer_create();
    safetensors_writer_add_metadata(writer, "format", "pt");
    for (int i = 0; i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        if (w->shard_of[i] != shard) continue;
        safetensors_writer_add_tensor(writer, item->theirs, tensor_file_dtype(export->dtype),
                                      item->shape, item->n_dims);
    }
    bool fine = safetensors_writer_open(writer, path, w->diag);
    for (int i = 0; fine && i < export->layout.n_items; i++) {
        const HfItem *item = &export->layout.items[i];
        if (w->shard_of[i] != shard) continue;
        fine = hf_export_fill(export, item, w->room, w->diag) &&
               safetensors_writer_put(writer, item->theirs, w->room, item_bytes(export, item),
                                      w->diag);
        progress_line_show(&w->line, i + 1, export->layout.n_items, item->theirs);
    }
    if (fine) return safetensors_writer_commit(writer, w->diag);
    safetensors_writer_abandon(writer);
    return false;
}

static bool write_index(const HfExport *export, const char *dir, const int *shard_of, int n_shards,
                        Diag *diag) {
    json_t *map = json_object();
    for (int i = 0; i < export->layout.n_items; i++) {
        json_object_set_new(map, export->layout.items[i].theirs,
                            json_string(shard_name(export->arena, shard_of[i], n_shards)));
    }
    json_t *index = json_pack("{s:{s:I}, s:o}", "metadata", "total_size",
                              (json_int_t) export->n_bytes, "weight_map", map);
    if (!index) BUG("out of memory");
    bool fine = hf_write_json(export->arena, dir, "model.safetensors.index.json", index, diag);
    json_decref(index);
    return fine;
}

static bool write_weights(HfExport *export, const char *dir, Diag *diag) {
    int *shard_of = ARENA_ARRAY(export->arena, int, export->layout.n_items + 1);
    size_t largest = 1;
    for (int i = 0; i < export->layout.n_items; i++) {
        size_t bytes = item_bytes(export, &export->layout.items[i]);
        if (bytes > largest) largest = bytes;
    }
    export->n_shards = divide_items(export, shard_of);
    ShardWriting w = {export, dir, shard_of, malloc(largest), progress_line_start("exported"),
                      diag};
    bool fine = w.room != NULL;
    if (!fine) diag_error(diag, (SourceLoc){dir, 0}, "not enough memory for its tensors");
    for (int shard = 0; fine && shard < export->n_shards; shard++) {
        fine = write_shard(&w, shard, export->n_shards);
    }
    progress_line_end(&w.line);
    free(w.room);
    return fine &&
           (export->n_shards == 1 || write_index(export, dir, shard_of, export->n_shards, diag));
}

bool hf_export_write(HfExport *export, const char *dir, Diag *diag) {
    const char *name = trimmed(export->arena, dir);
    char *temporary = arena_printf(export->arena, "%s.XXXXXX", name);
    if (!mkdtemp(temporary)) return fail_folder(dir, "cannot be made", diag);
    temporary_add(temporary);
    mode_t mask = umask(0); /* mkdtemp's folder is its maker's alone */
    umask(mask);
    bool fine = chmod(temporary, 0777 & ~mask) == 0 || fail_folder(dir, "cannot be made", diag);
    if (export->adapters_alone) {
        fine = fine && hf_adapter_write(export, temporary, diag);
    } else {
        fine = fine &&
               hf_write_json(export->arena, temporary, "config.json", export->config, diag) &&
               copy_others(export, temporary, diag) &&
               hf_processor_write(export->arena, export->model, export->type->name, export->like,
                                  temporary, diag) &&
               write_weights(export, temporary, diag);
        if (hf_embed_pooling(export->model)) {
            fine =
                fine && hf_embed_write(export->arena, export->model, temporary, export->like, diag);
        }
    }
    if (fine && rename(temporary, name) != 0) fine = fail_folder(dir, "cannot be made", diag);
    if (!fine) remove_folder(export->arena, temporary);
    temporary_forget(temporary);
    return fine;
}
