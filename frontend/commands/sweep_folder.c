#define _GNU_SOURCE /* O_CLOEXEC and flock */
#include "frontend/commands/sweep_folder.h"

#include "frontend/sweep/vary.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/utf8.h"
#include "planner/show/show_json_put.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEFINITION_VERSION = 1, DEFINITION_LIMIT_BYTES = 64 << 20, RESULT_LIMIT_BYTES = 4096 };
enum { MOST_LINE_BYTES = 160 };

static const char *definition_path(Arena *arena, const char *dir) {
    return arena_printf(arena, "%s/sweep.json", dir);
}

bool is_sweep_folder(const char *path) {
    Arena *arena = arena_create();
    struct stat st;
    bool is =
        stat(path, &st) == 0 && S_ISDIR(st.st_mode) && stat(definition_path(arena, path), &st) == 0;
    arena_destroy(arena);
    return is;
}

void sweep_name_runs(Sweep *sweep) {
    for (int i = 0; i < sweep->n_runs; i++) {
        SweepRun *run = &sweep->runs[i];
        run->name = arena_printf(sweep->arena, "%03d", i + 1);
        run->folder = arena_printf(sweep->arena, "%s/%s", sweep->dir, run->name);
    }
}

const char *sweep_describe(Arena *arena, const Sweep *sweep, const SweepRun *run) {
    const char *text = "";
    for (int k = 0; k < sweep->n_keys; k++) {
        if (!run->settings[k]) continue;
        text = arena_printf(arena, "%s%s%s=%s", text, *text ? " " : "", sweep->keys[k],
                            run->settings[k]);
    }
    return text;
}

const char *sweep_file(Arena *arena, const SweepRun *run, const char *name) {
    return arena_printf(arena, "%s/%s", run->folder, name);
}

/* --- the definition --- */

static json_t *texts_json(const char *const *texts, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        json_array_append_new(list, texts[i] ? json_name(texts[i]) : json_null());
    }
    return list;
}

static void put_definition(StrBuf *out, const Sweep *sweep) {
    json_t *root = json_object(), *runs = json_array();
    json_put_int(root, "perilune_sweep", DEFINITION_VERSION);
    json_put_name(root, "model", sweep->model);
    json_put_new(root, "keys", texts_json(sweep->keys, sweep->n_keys));
    json_put_new(root, "outputs", texts_json(sweep->outputs, sweep->n_outputs));
    json_object_set_new(root, "checkpoint",
                        sweep->checkpoint ? json_name(sweep->checkpoint) : json_null());
    json_object_set_new(root, "by", sweep->by ? json_name(sweep->by) : json_null());
    json_put_int(root, "stop_worse", sweep->stop_worse);
    json_put_int(root, "rungs", sweep->n_rungs);
    for (int i = 0; i < sweep->n_runs; i++) {
        const SweepRun *run = &sweep->runs[i];
        json_t *object = json_object();
        json_put_new(object, "settings", texts_json(run->settings, sweep->n_keys));
        json_put_int(object, "steps", run->n_steps);
        json_put_int(object, "eval_every", run->eval_every);
        json_put_name(object, "plan", run->plan);
        json_put_new(object, "arguments", texts_json(run->arguments, run->n_arguments));
        json_array_append_new(runs, object);
    }
    json_put_new(root, "runs", runs);
    json_put_document(out, root);
}

/* Texts, and where `nulls` is true nulls; NULL: it is no such list. */
static const char **read_texts(Arena *arena, const json_t *list, bool nulls, int *out_count) {
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n > 100000) return NULL;
    const char **texts = ARENA_ARRAY(arena, const char *, n + 1);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        texts[i] = arena_strdup(arena, json_string_value(item));
        if (!texts[i] && !(nulls && json_is_null(item))) return NULL;
    }
    *out_count = (int)n;
    return texts;
}

static bool read_count(const json_t *object, const char *key, int64_t most, int64_t *out) {
    const json_t *number = json_object_get(object, key);
    *out = json_integer_value(number);
    return json_is_integer(number) && *out >= 0 && *out <= most;
}

static bool read_run(Sweep *sweep, const json_t *object, SweepRun *run) {
    int n_settings = 0;
    run->settings =
        read_texts(sweep->arena, json_object_get(object, "settings"), true, &n_settings);
    run->arguments =
        read_texts(sweep->arena, json_object_get(object, "arguments"), false, &run->n_arguments);
    run->plan = arena_strdup(sweep->arena, json_string_value(json_object_get(object, "plan")));
    for (int k = 0; run->settings && k < n_settings; k++) {
        if (run->settings[k] && !vary_is_plain(run->settings[k])) return false;
    }
    return run->settings && n_settings == sweep->n_keys && run->arguments && run->plan &&
           read_count(object, "steps", (int64_t)1e9, &run->n_steps) && run->n_steps > 0 &&
           read_count(object, "eval_every", (int64_t)1e15, &run->eval_every);
}

/* What is wrong; NULL: nothing. */
static const char *read_definition(Sweep *sweep, const json_t *root) {
    const json_t *runs = json_object_get(root, "runs"), *to = json_object_get(root, "checkpoint");
    const size_t n_runs = json_array_size(runs);
    int64_t version, stop_worse, n_rungs;
    if (!read_count(root, "perilune_sweep", 1 << 20, &version)) return "is no sweep's definition";
    if (version != DEFINITION_VERSION) return "is of another version of perilune";
    sweep->model = arena_strdup(sweep->arena, json_string_value(json_object_get(root, "model")));
    sweep->keys = read_texts(sweep->arena, json_object_get(root, "keys"), false, &sweep->n_keys);
    sweep->outputs =
        read_texts(sweep->arena, json_object_get(root, "outputs"), false, &sweep->n_outputs);
    sweep->checkpoint = arena_strdup(sweep->arena, json_string_value(to));
    sweep->by = arena_strdup(sweep->arena, json_string_value(json_object_get(root, "by")));
    if (sweep->by && !vary_is_plain(sweep->by)) return "is damaged";
    if (!sweep->model || !sweep->keys || !sweep->outputs || n_runs < 1 ||
        n_runs > SWEEP_MOST_RUNS || !read_count(root, "stop_worse", 64, &stop_worse) ||
        !read_count(root, "rungs", 64, &n_rungs)) {
        return "is damaged";
    }
    for (int k = 0; k < sweep->n_keys; k++) {
        if (!vary_is_plain(sweep->keys[k])) return "is damaged";
    }
    sweep->stop_worse = (int)stop_worse, sweep->n_rungs = (int)n_rungs;
    sweep->n_runs = (int)n_runs;
    sweep->runs = ARENA_ARRAY(sweep->arena, SweepRun, n_runs);
    for (size_t i = 0; i < n_runs; i++) {
        if (read_run(sweep, json_array_get(runs, i), &sweep->runs[i])) continue;
        return arena_printf(sweep->arena, "is damaged: run %zu", i + 1);
    }
    return NULL;
}

Sweep *sweep_folder_read(Arena *arena, const char *dir, Diag *diag) {
    const char *path = definition_path(arena, dir);
    Sweep *sweep = ARENA_NEW(arena, Sweep);
    json_t *root = json_parse_file(path, DEFINITION_LIMIT_BYTES, diag);
    if (!root) return NULL;
    sweep->arena = arena;
    sweep->dir = dir;
    const char *why = read_definition(sweep, root);
    json_decref(root);
    if (why) {
        diag_error(diag, (SourceLoc){path, 0}, "%s", why);
        return NULL;
    }
    sweep_name_runs(sweep);
    return sweep;
}

/* In what the folder's sweep and the one asked for differ. */
static const char *difference(const Sweep *there, const Sweep *here) {
    Arena *arena = here->arena;
    if (strcmp(there->model, here->model) != 0) {
        return arena_printf(arena, "of model %s", there->model);
    }
    if (there->n_runs != here->n_runs) {
        return arena_printf(arena, "of %d run%s, not %d", there->n_runs,
                            there->n_runs == 1 ? "" : "s", here->n_runs);
    }
    for (int i = 0; i < here->n_runs; i++) {
        const SweepRun *a = &there->runs[i], *b = &here->runs[i];
        for (int k = 0; k < a->n_arguments || k < b->n_arguments; k++) {
            const char *x = k < a->n_arguments ? a->arguments[k] : "nothing";
            const char *y = k < b->n_arguments ? b->arguments[k] : "nothing";
            if (strcmp(x, y) == 0) continue;
            return arena_printf(arena, "another: its run %s has %s%s%s where this one's has %s",
                                a->name, k ? a->arguments[k - 1] : "", k ? " " : "", x, y);
        }
        if (strcmp(a->plan, b->plan) != 0) {
            return arena_printf(arena, "of another plan of run %s: has the model changed?",
                                a->name);
        }
    }
    return "another: in what is compared, stopped or written";
}

/* True: the definition is there, and it is this one, or it is not there yet. */
static bool compare_definition(const Sweep *sweep, const char *path, const StrBuf *text,
                               bool *out_there, Diag *diag) {
    size_t length;
    *out_there = access(path, F_OK) == 0;
    if (!*out_there) return true;
    const char *there = file_read(sweep->arena, path, DEFINITION_LIMIT_BYTES, &length, diag);
    if (!there) return false;
    if (length == text->length && memcmp(there, text->text, length) == 0) return true;
    const Sweep *other = sweep_folder_read(sweep->arena, sweep->dir, diag);
    if (!other) return false;
    diag_error(diag, (SourceLoc){path, 0},
               "the folder's sweep is %s: give another --dir, or remove the folder",
               difference(other, sweep));
    return false;
}

/* The descriptor stays open here and in all runs that are started. */
static bool lock_folder(const Sweep *sweep, Diag *diag) {
    const char *path = arena_printf(sweep->arena, "%s/sweep.lock", sweep->dir);
    int lock = open(path, O_RDWR | O_CREAT, 0666);
    if (lock < 0) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be written: %s", strerror(errno));
        return false;
    }
    if (flock(lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) {
        diag_error(diag, NO_LOC, "sweep: %s: a sweep, or a run of one, is at work there",
                   sweep->dir);
    } else {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be locked: %s", strerror(errno));
    }
    close(lock);
    return false;
}

bool sweep_folder_take(const Sweep *sweep, bool *out_is_new, Diag *diag) {
    const char *path = definition_path(sweep->arena, sweep->dir);
    struct stat st;
    bool is_there = stat(sweep->dir, &st) == 0;
    if ((is_there && !S_ISDIR(st.st_mode)) || !file_make_folders(sweep->dir, 0777)) {
        diag_error(diag, NO_LOC, "--dir %s: %s", sweep->dir,
                   is_there && !S_ISDIR(st.st_mode) ? "is no folder" : strerror(errno));
        return false;
    }
    if (!lock_folder(sweep, diag)) return false;
    StrBuf text = strbuf_create();
    put_definition(&text, sweep);
    bool good = compare_definition(sweep, path, &text, &is_there, diag);
    *out_is_new = !is_there;
    if (good && !is_there) good = file_write(path, text.text, text.length, diag);
    strbuf_destroy(&text);
    for (int i = 0; i < sweep->n_runs && good; i++) {
        good = file_make_folders(sweep->runs[i].folder, 0777);
        if (!good) {
            diag_error(diag, NO_LOC, "--dir: %s: %s", sweep->runs[i].folder, strerror(errno));
        }
    }
    return good;
}

/* --- results --- */

bool sweep_result_read(Arena *arena, const SweepRun *run, SweepResult *out, Diag *diag) {
    const char *path = sweep_file(arena, run, "result.json");
    int64_t code = 0;
    *out = (SweepResult){0};
    if (access(path, F_OK) != 0) return true;
    Diag *why = diag_create();
    json_t *root = json_parse_file(path, RESULT_LIMIT_BYTES, why);
    out->known = root && read_count(root, "exit", 255, &code) &&
                 (!json_object_get(root, "stopped") ||
                  read_count(root, "stopped", (int64_t)1e9, &out->stopped));
    out->exit_code = (int)code;
    json_decref(root);
    diag_destroy(why);
    if (out->known) return true;
    diag_error(diag, (SourceLoc){path, 0}, "is damaged: remove it, and the run is run again");
    return false;
}

bool sweep_result_write(Arena *arena, const SweepRun *run, const SweepResult *result, Diag *diag) {
    json_t *root = json_object();
    StrBuf text = strbuf_create();
    json_put_int(root, "exit", result->exit_code);
    if (result->stopped) json_put_int(root, "stopped", result->stopped);
    json_put_document(&text, root);
    bool good = file_write(sweep_file(arena, run, "result.json"), text.text, text.length, diag);
    strbuf_destroy(&text);
    return good;
}

/* Where the last line begins that is no note to another one, nor of the figures that train ends
 * with; *length: its end. Otherwise the last line. */
static size_t find_error(const char *text, size_t *length) {
    static const char *const OTHERS[] = {" ", "done ", "loss ", "memory ", "wrote "};
    size_t last = *length, end = *length;
    for (size_t first = end; end > 0; end = first > 0 ? --first : 0) {
        while (first > 0 && text[first - 1] != '\n' && text[first - 1] != '\r') first--;
        bool other = false;
        for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
            const size_t n = strlen(OTHERS[i]);
            other |= end - first >= n && memcmp(text + first, OTHERS[i], n) == 0;
        }
        if (last == *length) last = first;
        if (other || end == first) continue;
        *length = end;
        return first;
    }
    return last;
}

const char *sweep_failure(Arena *arena, const SweepRun *run, int exit_code) {
    static const char ERROR[] = "perilune: ";
    char text[4096];
    const int number = exit_code - 128; /* of a signal, as shells have it */
    const char *how = number > 0 && number < NSIG
                          ? arena_printf(arena, "exit %d (%s)", exit_code, strsignal(number))
                          : arena_printf(arena, "exit %d", exit_code);
    FILE *file = fopen(sweep_file(arena, run, "output.txt"), "rb");
    if (!file) return how;
    if (fseek(file, -(long)sizeof(text), SEEK_END) != 0) rewind(file);
    size_t length = fread(text, 1, sizeof(text), file);
    fclose(file);
    while (length > 0 && (unsigned char)text[length - 1] <= ' ') length--;
    const size_t first = find_error(text, &length);
    char *line = arena_strndup(arena, text + first, length - first);
    if (strncmp(line, ERROR, strlen(ERROR)) == 0) line += strlen(ERROR);
    length = utf8_valid_bytes((const unsigned char *)line, strlen(line));
    line[length] = '\0';
    for (char *c = line; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 127) *c = ' ';
    }
    if (length == 0) return how;
    return arena_printf(arena, length <= MOST_LINE_BYTES ? "%s: %.*s" : "%s: %.*s...", how,
                        MOST_LINE_BYTES, line);
}

/* --- other commands --- */

bool sweep_expand_operands(Arena *arena, const char *const *operands, int n,
                           const char ***out_paths, int *out_count, Diag *diag) {
    int capacity = 0;
    *out_paths = NULL, *out_count = 0;
    for (int i = 0; i < n; i++) {
        if (!is_sweep_folder(operands[i])) {
            ARENA_PUSH(arena, *out_paths, *out_count, capacity, operands[i]);
            continue;
        }
        const Sweep *sweep = sweep_folder_read(arena, operands[i], diag);
        int n_before = *out_count;
        for (int r = 0; sweep && r < sweep->n_runs; r++) {
            SweepResult result;
            if (!sweep_result_read(arena, &sweep->runs[r], &result, diag)) return false;
            if (!result.known || result.exit_code != 0 || result.stopped) continue;
            const char *path = sweep_file(arena, &sweep->runs[r], "log.jsonl");
            ARENA_PUSH(arena, *out_paths, *out_count, capacity, path);
        }
        if (!sweep) return false;
        if (*out_count > n_before) continue;
        diag_error(diag, (SourceLoc){operands[i], 0}, "none of the sweep's runs has ended well");
        return false;
    }
    return true;
}
