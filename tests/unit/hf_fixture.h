/* Folders of Hugging Face's for tests (tests/reference/hf): imported, exported, damaged. */
#ifndef TESTS_UNIT_HF_FIXTURE_H
#define TESTS_UNIT_HF_FIXTURE_H

#include "frontend/hf/hf_export.h"
#include "frontend/hf/hf_import.h"
#include "ir/base/file.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BATCH = 2, MAX_PATH = 512, FILE_LIMIT_BYTES = 1 << 20 };

/* Of all of a test's files. */
static char scratch[] = "/tmp/test_hf-XXXXXX";

static inline const char *in_scratch(Arena *arena, const char *name) {
    return arena_printf(arena, "%s/%s", scratch, name);
}

static inline const char *fixture(Arena *arena, const char *name) {
    return arena_printf(arena, "tests/reference/hf/%s", name);
}

static inline void remove_folder(Arena *arena, const char *path) {
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] != '.') unlink(arena_printf(arena, "%s/%s", path, entry->d_name));
    }
    if (folder) closedir(folder);
    rmdir(path);
}

/* What a model is tested with that its configuration does not say. */
static inline const ModelSetting *own_settings(const char *path, int *out_n) {
    static const ModelSetting TWO_IMAGES[][2] = {{{"images", "2"}, {"patches", "18"}},
                                                 {{"images", "2"}, {"patches", "32"}}};
    static int which = -1; /* an export's is its fixture's */
    if (strstr(path, "reference/hf/")) which = -1;
    if (strstr(path, "/llava")) which = 0;
    if (strstr(path, "/smolvlm") || strstr(path, "/internvl")) which = 1;
    *out_n = which < 0 ? 0 : 2;
    return TWO_IMAGES[which < 0 ? 0 : which];
}

static inline bool import(Arena *arena, const char *dir, const char *path, HfImport *out,
                          Diag *diag) {
    int n_own;
    const ModelSetting *own = own_settings(dir, &n_own);
    if (!hf_import_open(arena, dir, NULL, own, n_own, out, diag)) return false;
    bool fine = hf_import_write(out, path, diag);
    hf_import_close(out);
    return fine;
}

/* A plan of a shipped model on one rank, and its engine. */
static inline bool start_model(Run *run, const char *script, const ModelSetting *settings,
                               int n_settings) {
    *run = (Run){.arena = arena_create(), .diag = diag_create()};
    run->model = model_load_shipped(run->arena, script, settings, n_settings, BATCH, run->diag);
    if (!run->model || (run_qat && !gguf_mark(run->model, run_qat, run->diag))) return false;
    PlanRequest request = {.model = run->model->name,
                           .forward = run->model->graph,
                           .n_blocks = run->model->n_blocks,
                           .seq = run->model->seq,
                           .vocab = run->model->vocab,
                           .recipe = run->model->recipe,
                           .options = {.mesh = {.size = {1, 1, 1, 1, 1, 1}},
                                       .micro_batch = BATCH,
                                       .global_batch = BATCH,
                                       .n_chunks = 1,
                                       .schedule = "1f1b"}};
    run->plan = plan_make(run->arena, &request, run->diag);
    return run->plan && run_start(run);
}

static inline bool start(Run *run, const HfImport *import, const char *path) {
    enum { MOST = 128 };
    const HfConfig *config = &import->config;
    ModelSetting all[MOST];
    int n = config->n_settings, n_own;
    const ModelSetting *own = own_settings(config->path, &n_own);
    if (n + n_own > MOST) BUG("a configuration has %d settings", n);
    memcpy(all, config->settings, (size_t)n * sizeof(*all));
    memcpy(all + n, own, (size_t)n_own * sizeof(*all));
    return start_model(run, config->family->script, all, n + n_own) &&
           engine_load(run->engine, path, run->diag);
}

static inline bool export(Arena *arena, const Model *model, const char *weights, const char *like,
                          DType dtype, size_t max_shard_bytes, const char *dir, Diag *diag) {
    HfExport out;
    Safetensors *file = safetensors_open(weights, diag);
    const HfExportRequest request = {
        .model = model, .weights = file, .path = weights, .like = like, .dtype = dtype};
    bool fine =
        file && hf_export_try(arena, dir, diag) && hf_export_open(arena, &request, &out, diag);
    if (fine) {
        out.max_shard_bytes = max_shard_bytes;
        fine = hf_export_write(&out, dir, diag);
        hf_export_close(&out);
    }
    safetensors_close(file);
    return fine;
}

/* What bert_older calls a norm's weight and bias. */
static inline const char *older_norm(Arena *arena, const char *name) {
    const char *last = strrchr(name, '.');
    return arena_printf(arena, "%.*s.%s", (int)(last - name), name,
                        strcmp(last, ".weight") == 0 ? "gamma" : "beta");
}

/* All parameters of the fixture, in the folder, bit for bit; the export is of the same dtype. */
static inline void compare_tensors(const HfImport *imported, Arena *arena, const char *theirs_dir,
                                   const char *ours_dir) {
    Diag *diag = diag_create();
    HfFiles theirs, ours;
    bool opened = hf_files_open(arena, theirs_dir, &theirs, diag);
    CHECK(opened && hf_files_open(arena, ours_dir, &ours, diag), "%s", diag_text(diag));
    if (diag_error_count(diag) == 0) {
        CHECK(ours.n_tensors == imported->layout.n_items, "%d tensors", ours.n_tensors);
        for (int i = 0; i < ours.n_tensors; i++) {
            const SafetensorsInfo *a = ours.tensors[i].info;
            const HfFound *b = hf_files_find(&theirs, a->name);
            if (!b) b = hf_files_find(&theirs, a->name + strlen("transformer."));
            if (!b) b = hf_files_find(&theirs, older_norm(arena, a->name));
            if (!b) b = hf_files_find(&theirs, arena_printf(arena, "language_model.%s", a->name));
            if (!b && strncmp(a->name, "model.", 6) == 0) {
                const char *part = arena_printf(arena, "model.language_model.%s", a->name + 6);
                b = hf_files_find(&theirs, part);
            }
            CHECK(b && a->n_bytes == b->info->n_bytes && a->dtype == b->info->dtype &&
                      memcmp(a->data, b->info->data, a->n_bytes) == 0,
                  "%s differs", a->name);
        }
        hf_files_close(&ours);
    }
    if (opened) hf_files_close(&theirs);
    diag_destroy(diag);
}

static inline bool same_files(Arena *arena, const char *a, const char *b, Diag *diag) {
    size_t a_length = 0, b_length = 0;
    const char *x = file_read(arena, a, FILE_LIMIT_BYTES, &a_length, diag);
    const char *y = file_read(arena, b, FILE_LIMIT_BYTES, &b_length, diag);
    return x && y && a_length == b_length && memcmp(x, y, a_length) == 0;
}

/* type: what an export becomes, by its settings alone; NULL: what it was. */
static inline void test_round_trip(const char *name, DType dtype, bool with_like, const char *type,
                                   size_t shard_bytes) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport first, second;
    check_begin(arena_printf(arena, "hf %s: export gives the bits that were imported%s%s", name,
                             with_like ? ", like the original" : "",
                             shard_bytes < 100000 ? ", several files" : ""));
    const char *dir = fixture(arena, name), *path = in_scratch(arena, "weights.safetensors");
    const char *out = in_scratch(arena, "out"), *again = in_scratch(arena, "again.safetensors");
    bool fine =
        import(arena, dir, path, &first, diag) &&
        export(arena, first.model, path, with_like ? dir : NULL, dtype, shard_bytes, out, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) compare_tensors(&first, arena, dir, out);
    CHECK(fine && import(arena, out, again, &second, diag), "%s", diag_text(diag));
    CHECK(fine && same_files(arena, path, again, diag), "imported again, the file differs");
    if (fine && !type) type = first.config.type->name;
    CHECK(fine && strcmp(type, second.config.type->name) == 0, "the type became %s",
          second.config.type->name);
    remove_folder(arena, out);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* A copy of a fixture whose config.json has `key` set to the JSON `value`; NULL: without it. */
static inline const char *changed_fixture(Arena *arena, const char *name, const char *key,
                                          const char *value) {
    const char *to = in_scratch(arena, "changed"), *from = fixture(arena, name);
    remove_folder(arena, to);
    mkdir(to, 0700);
    DIR *folder = opendir(from);
    char absolute[MAX_PATH];
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || !getcwd(absolute, sizeof(absolute))) continue;
        const char *target = arena_printf(arena, "%s/%s/%s", absolute, from, entry->d_name);
        if (symlink(target, arena_printf(arena, "%s/%s", to, entry->d_name))) BUG("no link");
    }
    if (folder) closedir(folder);
    if (!key) return to;
    const char *path = arena_printf(arena, "%s/config.json", to);
    json_t *config = json_load_file(path, 0, NULL);
    if (value) {
        json_object_set_new(config, key, json_loads(value, JSON_DECODE_ANY, NULL));
    } else {
        json_object_del(config, key);
    }
    unlink(path);
    json_dump_file(config, path, 0);
    json_decref(config);
    return to;
}

static inline void remove_scratch(void) {
    Arena *arena = arena_create();
    remove_folder(arena, in_scratch(arena, "changed"));
    remove_folder(arena, in_scratch(arena, "out"));
    remove_folder(arena, scratch);
    arena_destroy(arena);
}

#endif
