#include "frontend/commands/show_weights.h"

#include "ir/base/arena.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/base/utf8.h"
#include "planner/show/show_facts.h"
#include "runtime/checkpoint/tensor_values.h"
#include "runtime/engine.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    NAME_CHARS = 52,
    MOST_NAME = 200,
    MOST_COMPARED = 10000, /* tensors, each with all others: a file can have a million */
};

bool is_weights(const char *path) {
    unsigned char head[9];
    uint64_t length;
    if (!file_read_head(path, head, sizeof(head))) return false;
    memcpy(&length, head, sizeof(length));
    return length > 1 && length < UINT64_C(1) << 40 && head[8] == '{';
}

typedef struct Sums {
    int64_t n_tensors, n_numbers, bytes;
} Sums;

typedef enum Kind { WEIGHTS, STATES, REFERENCE } Kind;

static Kind kind_of(const SafetensorsInfo *info) {
    static const char prefix[] = CHECKPOINT_REFERENCE_PREFIX;
    if (!tensor_is_state(info)) return WEIGHTS;
    return strncmp(info->name, prefix, sizeof(prefix) - 1) == 0 ? REFERENCE : STATES;
}

static Sums sum_tensors(const Safetensors *file, Kind kind) {
    Sums sums = {0};
    for (int i = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        if (kind_of(info) != kind) continue;
        sums.n_tensors++;
        sums.n_numbers += tensor_count(info);
        sums.bytes += (int64_t)info->n_bytes;
    }
    return sums;
}

/* --- text --- */

/* What a terminal would not show as text is a question mark. */
static const char *plain(const char *text, char out[MOST_NAME]) {
    snprintf(out, MOST_NAME, "%s", text);
    utf8_keep_printable(out);
    return out;
}

/* The first number of a name: blocks.12.attn.wq has 12 behind "blocks.". -1: none. */
static int64_t number_in(const char *name, size_t *out_begin, size_t *out_end) {
    size_t begin = strcspn(name, "0123456789"), end = begin;
    int64_t number = 0;
    while (isdigit((unsigned char)name[end]) && end - begin < 9)
        number = number * 10 + name[end++] - '0';
    *out_begin = begin;
    *out_end = end;
    return end > begin ? number : -1;
}

/* The same but for the first number in the name? */
static bool are_alike(const SafetensorsInfo *a, const SafetensorsInfo *b) {
    size_t a_begin, a_end, b_begin, b_end;
    if (a->dtype != b->dtype || a->n_dims != b->n_dims ||
        memcmp(a->shape, b->shape, sizeof(a->shape[0]) * (size_t)a->n_dims) != 0) {
        return false;
    }
    bool numbers =
        number_in(a->name, &a_begin, &a_end) >= 0 && number_in(b->name, &b_begin, &b_end) >= 0;
    return numbers && a_begin == b_begin && memcmp(a->name, b->name, a_begin) == 0 &&
           strcmp(a->name + a_end, b->name + b_end) == 0;
}

/* Root mean square, largest, and how many are none; nothing where nothing was looked at. */
static void put_values(StrBuf *out, const TensorValues *values) {
    if (values->n_finite + values->n_others == 0) return;
    double rms = values->n_finite ? sqrt(values->squares / (double)values->n_finite) : 0;
    strbuf_printf(out, "  rms %.3g, largest %.3g", rms, values->largest);
    if (values->n_others) strbuf_printf(out, ", %" PRId64 " NOT FINITE", values->n_others);
}

static void put_row(StrBuf *out, const SafetensorsInfo *info, const char *name, int n_alike,
                    const TensorValues *values) {
    char shown[MOST_NAME], bytes[UNIT_TEXT];
    StrBuf shape = strbuf_create();
    for (int d = 0; d < info->n_dims; d++) {
        strbuf_printf(&shape, "%s%" PRId64, d ? " x " : "", info->shape[d]);
    }
    strbuf_printf(out, "%-*s %-8s %-24s %s", NAME_CHARS, plain(name, shown),
                  safetensors_dtype_name(info->dtype), info->n_dims ? shape.text : "a number",
                  unit_bytes((double)info->n_bytes, bytes));
    if (n_alike > 1) strbuf_printf(out, " each of %d", n_alike);
    put_values(out, values);
    strbuf_put(out, "\n");
    strbuf_destroy(&shape);
}

/* Weights in the file's order, those of blocks that are alike as one row, at the first one's place.
 */
static void put_tensors(StrBuf *out, const Safetensors *file, bool with_values, Arena *arena) {
    int n = safetensors_count(file);
    bool *shown = ARENA_ARRAY(arena, bool, n + 1);
    for (int i = 0; i < n; i++) shown[i] = tensor_is_state(safetensors_at(file, i));
    strbuf_printf(out, "\n%-*s %-8s %-24s %s\n", NAME_CHARS, "tensor", "dtype", "shape", "bytes");
    for (int i = 0; i < n; i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        const char *name = info->name;
        size_t begin, end;
        int n_alike = 1;
        int64_t least = number_in(name, &begin, &end), most = least;
        if (shown[i]) continue;
        TensorValues values = {0};
        if (with_values) tensor_values_add(info, &values);
        for (int k = i + 1; k < n && least >= 0 && n <= MOST_COMPARED; k++) {
            size_t b, e;
            if (shown[k] || !are_alike(info, safetensors_at(file, k))) continue;
            int64_t number = number_in(safetensors_at(file, k)->name, &b, &e);
            least = number < least ? number : least;
            most = number > most ? number : most;
            shown[k] = true;
            if (with_values) tensor_values_add(safetensors_at(file, k), &values);
            n_alike++;
        }
        if (n_alike > 1) {
            name = arena_printf(arena, "%.*s%" PRId64 "..%" PRId64 "%s", (int)begin, name, least,
                                most, name + end);
        }
        put_row(out, info, name, n_alike, &values);
    }
}

static const char *value_of(const Safetensors *file, const char *key) {
    return safetensors_find_metadata(file, key);
}

/* "a=1\nb=2\n" in lines of words, behind a label. */
static void put_settings(StrBuf *out, const char *settings) {
    enum { MOST_LINE = 100, INDENT = 10 };
    char shown[MOST_NAME];
    size_t column = INDENT;
    strbuf_put(out, "settings ");
    while (*settings) {
        char pair[MOST_NAME];
        size_t length = strcspn(settings, "\n");
        snprintf(pair, sizeof(pair), "%.*s", (int)(length < MOST_NAME ? length : MOST_NAME - 1),
                 settings);
        if (column + length + 1 > MOST_LINE) {
            strbuf_printf(out, "\n%*s", INDENT - 1, "");
            column = INDENT;
        }
        strbuf_printf(out, " %s", plain(pair, shown));
        column += length + 1;
        settings += length + (settings[length] == '\n');
    }
    strbuf_put(out, "\n");
}

static void put_head(StrBuf *out, const Safetensors *file) {
    char numbers[UNIT_TEXT], bytes[UNIT_TEXT], shown[MOST_NAME];
    const Sums weights = sum_tensors(file, WEIGHTS);
    const char *model = value_of(file, "model"), *step = value_of(file, CHECKPOINT_STEP_KEY);
    const char *samples = value_of(file, CHECKPOINT_SAMPLES_KEY),
               *data = value_of(file, CHECKPOINT_DATA_KEY);
    const char *settings = value_of(file, ENGINE_SETTINGS_KEY);
    if (model) strbuf_printf(out, "model     %s\n", plain(model, shown));
    strbuf_printf(out, "weights   %" PRId64 " tensors, %s numbers, %s\n", weights.n_tensors,
                  unit_count((double)weights.n_numbers, numbers),
                  unit_bytes((double)weights.bytes, bytes));
    const char *reference = value_of(file, CHECKPOINT_REFERENCE_KEY);
    const size_t renewed = strlen(CHECKPOINT_REFERENCE_RENEWED);
    for (Kind kind = STATES; kind <= REFERENCE; kind++) {
        const Sums sums = sum_tensors(file, kind);
        if (sums.n_tensors == 0) continue;
        if (kind == REFERENCE && /* not yet: they mean nothing */
            !(reference && strncmp(reference, CHECKPOINT_REFERENCE_RENEWED, renewed) == 0))
            continue;
        strbuf_printf(out, "%s %" PRId64 " tensors, %s numbers, %s\n",
                      kind == STATES ? "optimizer" : "reference", sums.n_tensors,
                      unit_count((double)sums.n_numbers, numbers),
                      unit_bytes((double)sums.bytes, bytes));
    }
    if (step) {
        strbuf_printf(out, "step      %s", plain(step, shown));
        if (samples) strbuf_printf(out, ", %s samples", plain(samples, shown));
        strbuf_put(out, "\n");
    }
    if (data) strbuf_printf(out, "data      %s\n", plain(data, shown));
    if (settings && *settings) put_settings(out, settings);
}

bool show_weights_text(StrBuf *out, const char *path, bool values, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    Arena *arena = arena_create();
    if (file) {
        put_head(out, file);
        put_tensors(out, file, values, arena);
        safetensors_close(file);
    }
    arena_destroy(arena);
    return file != NULL;
}

/* --- JSON --- */

static void put_text_or_null(StrBuf *out, const char *name, const char *text) {
    strbuf_printf(out, ",\"%s\":", name);
    if (text) {
        json_put_text(out, text);
    } else {
        strbuf_put(out, "null");
    }
}

static void put_count_or_null(StrBuf *out, const char *name, const char *text) {
    bool is_count =
        text && *text && strlen(text) < 19 && strspn(text, "0123456789") == strlen(text);
    while (is_count && text[0] == '0' && text[1]) text++;
    strbuf_printf(out, ",\"%s\":%s", name, is_count ? text : "null");
}

static void put_settings_json(StrBuf *out, const char *settings) {
    if (!settings) {
        strbuf_put(out, ",\"settings\":null");
        return;
    }
    const char *comma = "";
    strbuf_put(out, ",\"settings\":{");
    while (*settings) {
        size_t length = strcspn(settings, "\n"), key = strcspn(settings, "=\n");
        strbuf_put(out, comma);
        json_put_bytes(out, settings, key);
        strbuf_put(out, ":");
        json_put_bytes(out, settings + key + (key < length), length - key - (key < length));
        settings += length + (settings[length] == '\n');
        comma = ",";
    }
    strbuf_put(out, "}");
}

static void put_values_json(StrBuf *out, const SafetensorsInfo *info) {
    TensorValues values = {0};
    if (!tensor_values_add(info, &values)) {
        strbuf_put(out, ",\"rms\":null,\"largest\":null,\"not_finite\":null");
        return;
    }
    double rms = values.n_finite ? sqrt(values.squares / (double)values.n_finite) : 0;
    strbuf_printf(out, ",\"rms\":%.9g,\"largest\":%.9g,\"not_finite\":%" PRId64, rms,
                  values.largest, values.n_others);
}

static void put_tensor_json(StrBuf *out, const SafetensorsInfo *info, bool values) {
    strbuf_put(out, "{\"name\":");
    json_put_text(out, info->name);
    strbuf_printf(out, ",\"dtype\":\"%s\",\"shape\":[", safetensors_dtype_name(info->dtype));
    for (int d = 0; d < info->n_dims; d++) {
        strbuf_printf(out, "%s%" PRId64, d ? "," : "", info->shape[d]);
    }
    strbuf_printf(out, "],\"bytes\":%zu", info->n_bytes);
    if (values) put_values_json(out, info);
    strbuf_put(out, "}");
}

bool show_weights_json(StrBuf *out, const char *path, bool values, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    if (!file) return false;
    const Sums weights = sum_tensors(file, false), states = sum_tensors(file, true);
    strbuf_put(out, "{\"file\":");
    json_put_text(out, path);
    put_text_or_null(out, "model", value_of(file, "model"));
    put_settings_json(out, value_of(file, ENGINE_SETTINGS_KEY));
    put_count_or_null(out, "step", value_of(file, CHECKPOINT_STEP_KEY));
    put_count_or_null(out, "samples", value_of(file, CHECKPOINT_SAMPLES_KEY));
    strbuf_printf(out, ",\"numbers\":%" PRId64 ",\"bytes\":%" PRId64 ",\"metadata\":{",
                  weights.n_numbers, weights.bytes + states.bytes);
    for (int i = 0; i < safetensors_count_metadata(file); i++) {
        const char *key, *value;
        safetensors_metadata_at(file, i, &key, &value);
        if (i) strbuf_put(out, ",");
        json_put_text(out, key);
        strbuf_put(out, ":");
        json_put_text(out, value);
    }
    strbuf_put(out, "},\"tensors\":[");
    for (int i = 0; i < safetensors_count(file); i++) {
        if (i) strbuf_put(out, ",");
        put_tensor_json(out, safetensors_at(file, i), values);
    }
    strbuf_put(out, "]}\n");
    safetensors_close(file);
    return true;
}
