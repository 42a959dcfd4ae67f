#include "frontend/hf/hf_files.h"

#include "ir/base/json.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_LIMIT_BYTES = 64 << 20, MOST_FILES = 10000, MOST_NAME = 200, MOST_SHOWN = 100 };

static int compare_found(const void *a, const void *b) {
    return strcmp(((const HfFound *)a)->info->name, ((const HfFound *)b)->info->name);
}

const char *hf_quoted(Arena *arena, const char *name) {
    StrBuf text = strbuf_create();
    json_put_text(&text, arena_strndup(arena, name, strnlen(name, MOST_SHOWN)));
    const char *quoted = arena_strdup(arena, text.text);
    strbuf_destroy(&text);
    return quoted;
}

HfFound *hf_files_find(const HfFiles *files, const char *name) {
    const SafetensorsInfo info = {.name = name};
    const HfFound key = {.info = &info};
    if (!files->n_tensors) return NULL;
    return bsearch(&key, files->tensors, (size_t)files->n_tensors, sizeof(HfFound), compare_found);
}

void hf_files_close(HfFiles *files) {
    for (int i = 0; i < files->n_files; i++) safetensors_close(files->files[i]);
    files->n_files = 0;
}

static bool open_file(HfFiles *files, const char *name, Diag *diag) {
    const char *path = arena_printf(files->arena, "%s/%s", files->dir, name);
    Safetensors *file = safetensors_open(path, diag);
    int n = files->n_files, capacity = files->files_capacity;
    if (!file) return false;
    ARENA_PUSH(files->arena, files->paths, n, capacity, path);
    ARENA_PUSH(files->arena, files->files, files->n_files, files->files_capacity, file);
    return true;
}

/* All tensors of all files, sorted; none twice. */
static bool gather(HfFiles *files, Diag *diag) {
    int n = 0;
    for (int i = 0; i < files->n_files; i++) n += safetensors_count(files->files[i]);
    files->tensors = ARENA_ARRAY(files->arena, HfFound, n + 1);
    for (int i = 0; i < files->n_files; i++) {
        for (int k = 0; k < safetensors_count(files->files[i]); k++) {
            files->tensors[files->n_tensors++] =
                (HfFound){safetensors_at(files->files[i], k), files->paths[i], false};
        }
    }
    if (n) qsort(files->tensors, (size_t)n, sizeof(HfFound), compare_found);
    for (int i = 1; i < n; i++) {
        const HfFound *a = &files->tensors[i - 1], *b = &files->tensors[i];
        if (strcmp(a->info->name, b->info->name) != 0) continue;
        diag_error(diag, (SourceLoc){b->path, 0}, "tensor %s is also in %s",
                   hf_quoted(files->arena, b->info->name), a->path);
        return false;
    }
    return true;
}

/* A file of the folder itself, named as such files are. */
static bool check_name(const HfFiles *files, const char *index, const json_t *file,
                       const char *tensor, Diag *diag) {
    static const char END[] = ".safetensors";
    const char *name = json_string_value(file);
    size_t length = name ? strlen(name) : 0, end = strlen(END);
    bool good = length > end && length <= MOST_NAME && !strchr(name, '/') &&
                strcmp(name + length - end, END) == 0;
    for (size_t i = 0; good && i < length; i++) good = (unsigned char)name[i] > 32;
    if (good) return true;
    diag_error(diag, (SourceLoc){index, 0},
               "the file of tensor %s is no name of a %s file in its folder",
               hf_quoted(files->arena, tensor), END);
    return false;
}

/* Is all that the files have in the index? */
static bool check_listed(const HfFiles *files, const json_t *map, Diag *diag) {
    for (int i = 0; i < files->n_files; i++) {
        for (int k = 0; k < safetensors_count(files->files[i]); k++) {
            const char *tensor = safetensors_at(files->files[i], k)->name;
            if (json_object_get(map, tensor)) continue;
            diag_error(diag, (SourceLoc){files->paths[i], 0},
                       "has a tensor %s, which the index lacks", hf_quoted(files->arena, tensor));
            return false;
        }
    }
    return true;
}

/* `known`: the files opened so far, with their numbers. */
static bool open_listed(HfFiles *files, const char *index, const json_t *map, json_t *known,
                        Diag *diag) {
    const char *tensor;
    json_t *value;
    json_object_foreach((json_t *)map, tensor, value) {
        if (!check_name(files, index, value, tensor, diag)) return false;
        if (json_object_get(known, json_string_value(value))) continue;
        if (files->n_files == MOST_FILES) {
            diag_error(diag, (SourceLoc){index, 0}, "names more than %d files", MOST_FILES);
            return false;
        }
        if (!open_file(files, json_string_value(value), diag)) {
            diag_note(diag, (SourceLoc){index, 0}, "named here");
            return false;
        }
        json_object_set_new(known, json_string_value(value), json_integer(files->n_files - 1));
    }
    json_object_foreach((json_t *)map, tensor, value) {
        json_int_t file = json_integer_value(json_object_get(known, json_string_value(value)));
        SafetensorsInfo info;
        if (safetensors_find(files->files[file], tensor, &info)) continue;
        diag_error(diag, (SourceLoc){files->paths[file], 0},
                   "has no tensor %s, which the index says is in it",
                   hf_quoted(files->arena, tensor));
        return false;
    }
    return check_listed(files, map, diag);
}

static bool open_sharded(HfFiles *files, const char *index, Diag *diag) {
    json_t *json = json_parse_file(index, INDEX_LIMIT_BYTES, diag);
    if (!json) return false;
    const json_t *map = json_object_get(json, "weight_map");
    bool fine = json_is_object(map);
    if (fine) {
        json_t *known = json_object();
        if (!known) BUG("out of memory");
        fine = open_listed(files, index, map, known, diag);
        json_decref(known);
    } else {
        diag_error(diag, (SourceLoc){index, 0}, "has no 'weight_map'");
    }
    json_decref(json);
    return fine;
}

bool hf_files_open(Arena *arena, const char *dir, HfFiles *out, Diag *diag) {
    *out = (HfFiles){.arena = arena, .dir = dir};
    const char *whole = arena_printf(arena, "%s/model.safetensors", dir);
    const char *index = arena_printf(arena, "%s.index.json", whole);
    bool fine;
    if (access(whole, F_OK) == 0) {
        fine = open_file(out, "model.safetensors", diag);
    } else if (access(index, F_OK) == 0) {
        fine = open_sharded(out, index, diag);
    } else {
        bool pickled = access(arena_printf(arena, "%s/pytorch_model.bin", dir), F_OK) == 0;
        diag_error(diag, (SourceLoc){dir, 0}, "has neither model.safetensors nor %s%s",
                   "model.safetensors.index.json",
                   pickled
                       ? "; pytorch_model.bin runs code when it is read: have transformers save "
                         "it as safetensors"
                       : "");
        fine = false;
    }
    fine = fine && gather(out, diag);
    if (!fine) hf_files_close(out);
    return fine;
}
