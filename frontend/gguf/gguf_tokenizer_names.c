#include "frontend/gguf/gguf_tokenizer_names.h"

#include "ir/base/diag.h"
#include "runtime/tokenizer/pattern.h"

#include <string.h>

#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define WORD     "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES   "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3   SUFFIXES "|" WORD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define QWEN2    SUFFIXES "|" WORD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES
#define GPT4O                                                                                      \
    WORD UPPER "*" LOWER "+" SUFFIXES "?|" WORD UPPER "+" LOWER "*" SUFFIXES                       \
               "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES
#define TEKKEN                                                                                     \
    WORD UPPER "*" LOWER "+|" WORD UPPER "+" LOWER                                                 \
               "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES

/* clang-format off */
const GgufPre GGUF_PRES[] = {
    {"gpt-2", NULL, false, false},
    {"phi-2", NULL, false, false},
    {"olmo", NULL, false, false},
    {"smollm", NULL, true, false},
    {"starcoder", NULL, true, false},
    {"refact", NULL, true, false},
    {"command-r", NULL, true, false},
    {"llama-bpe", LLAMA3, false, true},
    {"llama3", LLAMA3, false, true},
    {"llama-v3", LLAMA3, false, true},
    {"dbrx", LLAMA3, false, false}, /* Llama 3's, by merges alone */
    {"smaug-bpe", LLAMA3, false, false},
    {"qwen2", QWEN2, false, false},
    {"deepseek-r1-qwen", QWEN2, false, false},
    {"stablelm2", QWEN2, false, false},
    {"gpt-4o", GPT4O, false, false},
    {"tekken", TEKKEN, false, true},
    {NULL, NULL, false, false}};
/* clang-format on */

static bool is_flag(const json_t *json, const char *key, bool value) {
    return json_is_true(json_object_get(json, key)) == value;
}

static bool is_type(const json_t *json, const char *type) {
    const char *text = json_string_value(json_object_get(json, "type"));
    return text && strcmp(text, type) == 0;
}

/* The one of ByteLevel, which its flag use_regex brings in. */
static const char *words_of(const char *pattern) {
    const char *known = pattern_by_name("gpt2");
    return strcmp(pattern, known) == 0 ? NULL : pattern;
}

/* Steps of a pre-tokenizer: what stands before ByteLevel, if anything. */
static bool read_steps(const json_t *pre, GgufPre *out) {
    const json_t *steps = json_object_get(pre, "pretokenizers"), *first = NULL, *last = pre;
    if (is_type(pre, "Sequence")) {
        const size_t n = json_array_size(steps);
        if (n < 1 || n > 2) return false;
        first = n == 2 ? json_array_get(steps, 0) : NULL;
        last = json_array_get(steps, n - 1);
    }
    if (!is_type(last, "ByteLevel") || !is_flag(last, "add_prefix_space", false)) return false;
    const json_t *regex = json_object_get(last, "use_regex"); /* true where it is missing */
    const bool words = !regex || json_is_true(regex);
    if (!first) return words;
    if (is_type(first, "Digits")) {
        out->digits = is_flag(first, "individual_digits", true);
        return words && out->digits;
    }
    const char *pattern =
        json_string_value(json_object_get(json_object_get(first, "pattern"), "Regex"));
    const char *behavior = json_string_value(json_object_get(first, "behavior"));
    if (!is_type(first, "Split") || !pattern || !behavior || words) return false;
    out->pattern = words_of(pattern);
    return strcmp(behavior, "Isolated") == 0 && is_flag(first, "invert", false);
}

const GgufPre *gguf_pre_of(const json_t *tokenizer) {
    GgufPre wanted = {.name = NULL};
    if (!read_steps(json_object_get(tokenizer, "pre_tokenizer"), &wanted)) return NULL;
    wanted.whole_words = is_flag(json_object_get(tokenizer, "model"), "ignore_merges", true);
    for (const GgufPre *pre = GGUF_PRES; pre->name; pre++) {
        const bool same = pre->pattern && wanted.pattern ? strcmp(pre->pattern, wanted.pattern) == 0
                                                         : !pre->pattern && !wanted.pattern;
        if (same && pre->digits == wanted.digits && pre->whole_words == wanted.whole_words) {
            return pre;
        }
    }
    return NULL;
}

const GgufPre *gguf_pre_named(const char *name) {
    for (const GgufPre *pre = GGUF_PRES; pre->name; pre++) {
        if (strcmp(pre->name, name) == 0) return pre;
    }
    return NULL;
}

json_t *gguf_pre_json(const GgufPre *pre) {
    json_t *level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", pre->pattern == NULL);
    json_t *json = level;
    if (pre->digits) {
        json = json_pack("{s:s, s:[{s:s, s:b}, o]}", "type", "Sequence", "pretokenizers", "type",
                         "Digits", "individual_digits", 1, level);
    } else if (pre->pattern) {
        json = json_pack("{s:s, s:[{s:s, s:{s:s}, s:s, s:b}, o]}", "type", "Sequence",
                         "pretokenizers", "type", "Split", "pattern", "Regex", pre->pattern,
                         "behavior", "Isolated", "invert", 0, level);
    }
    if (!json) BUG("out of memory");
    return json;
}
