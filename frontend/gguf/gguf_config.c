#include "frontend/gguf/gguf_config.h"

#include "frontend/gguf/gguf_archs.h"
#include "frontend/hf/hf_config_rows.h"
#include "frontend/hf/hf_files.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ELEMENTS = 4096, ROPE_BASE = 10000 };
static const char SCALE[] = "_attention_scale", FREQUENCIES[] = "rope_freqs.weight";

typedef struct Reader {
    const GgufFile *file;
    Arena *arena;
    const HfFamily *family;
    const HfType *type;
    json_t *json;
    Diag *diag;
} Reader;

static int64_t integer_of(const json_t *json, const char *name) {
    return json_integer_value(hf_config_find(json, name));
}

/* --- reading --- */

/* The number with the fewest digits that is this f32: 1e-05, not 9.9999997e-06. */
static json_t *shortest(double number, bool single) {
    char text[40];
    for (int digits = 6; single && digits < 9; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, number);
        if ((double)strtof(text, NULL) == number) return json_real(strtod(text, NULL));
    }
    return json_real(number); /* NULL: it is not finite */
}

static json_t *element(const Reader *reader, const GgufPair *pair, uint64_t i) {
    if (pair->kind == GGUF_BOOL) return json_boolean(pair->data[i]);
    if (pair->kind == GGUF_TEXT) return json_string(gguf_text(reader->file, pair->key));
    if (gguf_kind_is_integer(pair->kind)) return json_integer(gguf_integer(pair, i));
    return shortest(gguf_number(pair, i), pair->kind == GGUF_F32);
}

static json_t *value_of(const Reader *reader, const GgufPair *pair) {
    if (!pair->is_array) return element(reader, pair, 0);
    if (pair->count > MOST_ELEMENTS || pair->kind == GGUF_TEXT) return NULL;
    json_t *list = json_array();
    for (uint64_t i = 0; i < pair->count; i++) {
        json_t *item = element(reader, pair, i);
        if (item && json_array_append_new(list, item) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static bool knows(const Reader *reader, const char *name) {
    for (const HfKey *key = reader->family->keys; key->key; key++) {
        if (strcmp(key->key, name) == 0 && hf_config_row_is_of(key, reader->type)) return true;
    }
    return false;
}

static bool read_pairs(const Reader *reader) {
    const char *arch = reader->type->architecture;
    const size_t length = strlen(arch);
    for (int i = 0; i < reader->file->n_pairs; i++) {
        const GgufPair *pair = &reader->file->pairs[i];
        if (strncmp(pair->key, arch, length) != 0 || pair->key[length] != '.') continue;
        const char *name = pair->key + length + 1;
        if (name[0] == '_' || !knows(reader, name)) {
            return gguf_fail(reader->file->path, reader->diag,
                             "%s is not supported: what it is for could change the model",
                             hf_quoted(reader->arena, pair->key));
        }
        json_t *value = value_of(reader, pair);
        if (!value) {
            return gguf_fail(reader->file->path, reader->diag,
                             "%s is no finite number, text or short list",
                             hf_quoted(reader->arena, pair->key));
        }
        hf_config_put(reader->json, name, value);
    }
    return true;
}

/* Sizes of a head where they are not said, of which both kinds are one here; and the base of
 * positions, which is written always. */
static bool read_heads(const Reader *reader) {
    json_t *json = reader->json;
    const int64_t width = integer_of(json, "embedding_length");
    const int64_t heads = integer_of(json, "attention.head_count");
    if (!hf_config_find(json, "attention.key_length") && heads > 0 && width % heads == 0) {
        hf_config_put(json, "attention.key_length", json_integer(width / heads));
    }
    const int64_t head = integer_of(json, "attention.key_length");
    const json_t *value = hf_config_find(json, "attention.value_length");
    if (value && json_integer_value(value) != head) {
        return gguf_fail(reader->file->path, reader->diag,
                         "'attention.value_length' is %s, and not 'attention.key_length', "
                         "%" PRId64,
                         hf_config_shown(reader->arena, value), head);
    }
    if (!hf_config_find(json, "rope.freq_base")) {
        hf_config_put(json, "rope.freq_base", json_real(ROPE_BASE));
    }
    if (!hf_config_find(json, "rope.dimension_count")) {
        hf_config_put(json, "rope.dimension_count", json_integer(head));
    }
    const bool whole = strstr(reader->type->settings, "rotary_share=1") != NULL;
    if (!whole || integer_of(json, "rope.dimension_count") == head) return true;
    return gguf_fail(reader->file->path, reader->diag,
                     "'rope.dimension_count' is %" PRId64 "; a %s's heads turn wholly, %" PRId64,
                     integer_of(json, "rope.dimension_count"), reader->type->architecture, head);
}

/* Scores are divided by the square root of this: of the largest of a kind, which llama.cpp knows by
 * its layers, of model / heads. */
static int64_t gemma_scale(const json_t *json, const HfType *type) {
    const int64_t layers = integer_of(json, "block_count");
    const int64_t heads = integer_of(json, "attention.head_count");
    const bool largest = (strcmp(type->name, "gemma2") == 0 && layers == 46) ||
                         (strcmp(type->name, "gemma3") == 0 && layers == 62);
    return largest && heads > 0 ? integer_of(json, "embedding_length") / heads
                                : integer_of(json, "attention.key_length");
}

static bool read_tables(const Reader *reader) {
    const GgufTensor *table = gguf_find_tensor(reader->file, "token_embd.weight");
    if (!table || table->info.n_dims != 2) {
        return gguf_fail(reader->file->path, reader->diag,
                         "has no tensor 'token_embd.weight' of two dimensions");
    }
    hf_config_put(reader->json, "vocab_size", json_integer(table->info.shape[0]));
    hf_config_put(reader->json, "_tied",
                  json_boolean(!gguf_find_tensor(reader->file, "output.weight")));
    hf_config_put(reader->json, "_qkv_bias",
                  json_boolean(gguf_find_tensor(reader->file, "blk.0.attn_q.bias")));
    hf_config_put(reader->json, SCALE, json_integer(gemma_scale(reader->json, reader->type)));
    return true;
}

/* --- rotary factors, as of Llama 3.1 --- */

/* Frequencies whose wave is shorter than context / many stay, those longer than context / few are
 * divided by the factor, and between lie means of both by context / wave (transformers'
 * _compute_llama3_parameters). */
static double rope_factor(double base, double turning, int64_t i, double factor, double few,
                          double many, double context) {
    const double pi = 3.14159265358979323846;
    const double wave = 2 * pi * pow(base, 2 * (double)i / turning);
    if (wave < context / many) return 1;
    if (wave > context / few) return factor;
    const double smooth = (context / wave - few) / (many - few);
    return 1 / ((1 - smooth) / factor + smooth);
}

static double number_setting(const Model *model, const char *name) {
    const Setting *setting = settings_find(&model->settings, name);
    if (!setting || !setting->has_value) return 0;
    return setting->type == SETTING_INTEGER ? (double)setting->integer : setting->number;
}

const float *gguf_rope_factors(const Model *model, Arena *arena, int64_t *out_count) {
    const Setting *scaling = settings_find(&model->settings, "rotary_scaling");
    if (!scaling || scaling->type != SETTING_STRING || strcmp(scaling->text, "llama3") != 0) {
        return NULL;
    }
    const double head =
        floor(number_setting(model, "rotary_share") * number_setting(model, "head"));
    *out_count = (int64_t)head / 2;
    float *factors = ARENA_ARRAY(arena, float, *out_count + 1);
    for (int64_t i = 0; i < *out_count; i++) {
        factors[i] = (float)rope_factor(
            number_setting(model, "rotary_base"), head, i, number_setting(model, "rotary_factor"),
            number_setting(model, "rotary_few"), number_setting(model, "rotary_many"),
            number_setting(model, "rotary_context"));
    }
    return factors;
}

static bool factors_are(const float *factors, int64_t n, double base, double factor,
                        double context) {
    enum { FEW = 1, MANY = 4 };
    const double most_off = 1e-4; /* they were made in f32, and waves are long */
    for (int64_t i = 0; i < n; i++) {
        const double expected = rope_factor(base, 2 * (double)n, i, factor, FEW, MANY, context);
        if (!(fabs(factors[i] / expected - 1) < most_off)) return false;
    }
    return true;
}

/* Which settings these are of: few 1 and many 4 as in all published ones, or any with that ratio,
 * whose context is another one then. */
static bool read_factors(const Reader *reader) {
    enum { LEAST_CONTEXT = 16, MOST_CONTEXT = 1 << 22 };
    const GgufTensor *tensor = gguf_find_tensor(reader->file, FREQUENCIES);
    if (!tensor) return true;
    const int64_t half = integer_of(reader->json, "rope.dimension_count") / 2;
    const json_t *base = hf_config_find(reader->json, "rope.freq_base");
    if (tensor->info.dtype != SAFETENSORS_F32 || tensor->info.n_dims != 1 ||
        tensor->info.shape[0] != half || half < 1 || half > MOST_ELEMENTS ||
        hf_config_find(reader->json, "rope.scaling.type")) {
        return gguf_fail(reader->file->path, reader->diag,
                         "'%s' is not %" PRId64 " numbers in f32, or there is another scaling",
                         FREQUENCIES, half);
    }
    float factors[MOST_ELEMENTS], most = 0;
    memcpy(factors, tensor->info.data, (size_t)half * sizeof(*factors));
    for (int64_t i = 0; i < half; i++) most = fmaxf(most, factors[i]);
    for (int64_t context = LEAST_CONTEXT; context <= MOST_CONTEXT; context *= 2) {
        if (!(most >= 1) ||
            !factors_are(factors, half, json_number_value(base), (double)most, (double)context)) {
            continue;
        }
        hf_config_put(reader->json, "rope.scaling.type", json_string("llama3"));
        hf_config_put(reader->json, "rope.scaling.factor", shortest((double)most, true));
        hf_config_put(reader->json, "rope.scaling.low_freq_factor", json_real(1));
        hf_config_put(reader->json, "rope.scaling.high_freq_factor", json_real(4));
        hf_config_put(reader->json, "rope.scaling.original_context_length", json_integer(context));
        return true;
    }
    return gguf_fail(reader->file->path, reader->diag,
                     "'%s' has factors that are not those of Llama 3.1, which alone are read",
                     FREQUENCIES);
}

static bool find_type(Reader *reader) {
    const GgufFile *file = reader->file;
    const char *arch = gguf_text(file, "general.architecture");
    int64_t parts = 0, experts = 0;
    if (!arch)
        return gguf_fail(reader->file->path, reader->diag, "has no text 'general.architecture'");
    if (gguf_count(file, "split.count", &parts) && parts > 1) {
        return gguf_fail(reader->file->path, reader->diag,
                         "is one of %" PRId64 " parts of a model; join them with llama.cpp's "
                         "llama-gguf-split --merge",
                         parts);
    }
    gguf_count(file, arena_printf(reader->arena, "%s.expert_count", arch), &experts);
    reader->type = gguf_type_of(arch, experts > 0, &reader->family);
    if (reader->type) return true;
    return gguf_fail(reader->file->path, reader->diag, "is of the architecture %s; supported: %s",
                     hf_quoted(reader->arena, arch), gguf_arch_names(reader->arena));
}

bool gguf_config_read(const GgufFile *file, HfConfig *out, Diag *diag) {
    Reader reader = {.file = file, .arena = file->arena, .diag = diag};
    if (!find_type(&reader)) return false;
    reader.json = json_object();
    if (read_pairs(&reader) && read_heads(&reader) && read_tables(&reader) &&
        read_factors(&reader)) {
        return hf_config_read_rows(file->arena, file->path, reader.json, reader.family, reader.type,
                                   out, diag);
    }
    json_decref(reader.json);
    return false;
}

/* --- writing --- */

/* llama.cpp reads other numbers of turns in few architectures, none of these. */
static bool check_yarn(const json_t *json, Diag *diag) {
    const json_t *fast = hf_config_find(json, "rope.scaling.yarn_beta_fast");
    const json_t *slow = hf_config_find(json, "rope.scaling.yarn_beta_slow");
    if ((!fast || json_number_value(fast) == 32) && (!slow || json_number_value(slow) == 1)) {
        return true;
    }
    diag_error(diag, NO_LOC,
               "rotary_many is %g and rotary_few %g; llama.cpp has yarn with 32 and "
               "1 there",
               fast ? json_number_value(fast) : 32, slow ? json_number_value(slow) : 1);
    return false;
}

json_t *gguf_config_of(const Model *model, const HfFamily *family, const HfType *type, Diag *diag) {
    json_t *json = json_object();
    if (!hf_config_write_rows(model, family, type, GGUF_READER, json, diag)) {
        json_decref(json);
        return NULL;
    }
    if (!check_yarn(json, diag)) {
        json_decref(json);
        return NULL;
    }
    const json_t *scale = json_object_get(json, SCALE);
    if (!scale || json_integer_value(scale) == gemma_scale(json, type)) return json;
    diag_error(diag, NO_LOC,
               "attention_scale is %" JSON_INTEGER_FORMAT "; llama.cpp has %" PRId64
               " in a %s of these sizes",
               json_integer_value(scale), gemma_scale(json, type), type->name);
    json_decref(json);
    return NULL;
}

static void put_value(GgufWriter *writer, const char *key, const json_t *value) {
    if (json_is_integer(value)) {
        gguf_put_u32(writer, key, (uint32_t)json_integer_value(value));
    } else if (json_is_real(value)) {
        gguf_put_f32(writer, key, (float)json_real_value(value));
    } else if (json_is_boolean(value)) {
        gguf_put_flag(writer, key, json_is_true(value));
    } else if (json_is_string(value)) {
        gguf_put_text(writer, key, json_string_value(value));
    }
}

void gguf_config_put(GgufWriter *writer, const json_t *config, const HfType *type, Arena *arena) {
    static const char SCALING[] = "scaling.";
    const json_t *scaling = hf_config_find(config, "rope.scaling.type");
    const bool by_tensor = scaling && strcmp(json_string_value(scaling), "llama3") == 0;
    const char *name, *inner;
    const json_t *value, *within;
    json_object_foreach((json_t *)(uintptr_t)config, name, value) {
        const char *key = arena_printf(arena, "%s.%s", type->architecture, name);
        if (name[0] == '_') continue;
        if (!json_is_object(value)) {
            put_value(writer, key, value);
            continue;
        }
        json_object_foreach((json_t *)(uintptr_t)value, inner, within) {
            if (by_tensor && strncmp(inner, SCALING, strlen(SCALING)) == 0) continue;
            put_value(writer, arena_printf(arena, "%s.%s", key, inner), within);
        }
    }
}
