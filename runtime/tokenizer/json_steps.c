#include "runtime/tokenizer/json_steps.h"

#include <string.h>

static const char SPACE_MARK[] = "\xe2\x96\x81"; /* U+2581 */

/* What all of the readers here need. */
typedef struct StepReader {
    Tokenizer *tokenizer;
    SourceLoc loc;
    Diag *diag;
    bool byte_level_ended; /* nothing can come after ByteLevel */
} StepReader;

bool json_read_bool(const json_t *object, const char *name, const char *where, bool *out,
                    SourceLoc loc, Diag *diag) {
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value)) return true;
    if (json_is_boolean(value)) {
        *out = json_is_true(value);
        return true;
    }
    diag_error(diag, loc, "%s: '%s' is neither true nor false", where, name);
    return false;
}

bool json_read_text(const json_t *object, const char *name, const char *where, const char **out,
                    SourceLoc loc, Diag *diag) {
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value)) return true;
    if (json_is_string(value)) {
        *out = json_string_value(value);
        return true;
    }
    diag_error(diag, loc, "%s: '%s' is not a string", where, name);
    return false;
}

static bool refuse(const StepReader *reader, const char *what, const char *type) {
    diag_error(reader->diag, reader->loc, "the %s '%.60s' is not supported", what, type);
    return false;
}

/* The object's "type"; NULL: reported. */
static const char *type_of(const StepReader *reader, const json_t *object, const char *what) {
    const char *type = json_string_value(json_object_get(object, "type"));
    if (!type) diag_error(reader->diag, reader->loc, "%s: it has no type", what);
    return type;
}

/* Of {"String": ...} or {"Regex": ...}. False: it is neither, reported. */
static bool read_pattern(const StepReader *reader, const json_t *object, const char *where,
                         const char **out_literal, const char **out_regex) {
    const json_t *pattern = json_object_get(object, "pattern");
    *out_literal = json_string_value(json_object_get(pattern, "String"));
    *out_regex = json_string_value(json_object_get(pattern, "Regex"));
    if ((*out_literal && **out_literal) || *out_regex) return true;
    diag_error(reader->diag, reader->loc, "%s: it has no pattern", where);
    return false;
}

/* --- pre-tokenizers --- */

/* Takes the pattern. */
static bool add_step(const StepReader *reader, Pattern *pattern, SplitBehavior behavior,
                     bool invert) {
    WordSteps *steps = &reader->tokenizer->steps;
    if (steps->count < MAX_WORD_STEPS) {
        steps->items[steps->count++] = (WordStep){pattern, behavior, invert};
        return true;
    }
    pattern_destroy(pattern);
    diag_error(reader->diag, reader->loc, "pre_tokenizer: more than %d steps", MAX_WORD_STEPS);
    return false;
}

static bool add_pattern(const StepReader *reader, const char *regex, SplitBehavior behavior,
                        bool invert) {
    Tokenizer *tokenizer = reader->tokenizer;
    Pattern *pattern = pattern_compile(regex, PATTERN_ONIGURUMA, reader->loc, reader->diag);
    if (!pattern) return false;
    if (!tokenizer->pattern) tokenizer->pattern = arena_strdup(tokenizer->arena, regex);
    return add_step(reader, pattern, behavior, invert);
}

static bool read_byte_level(StepReader *reader, const json_t *object) {
    bool prefix = true, regex = true;
    const char *where = "pre_tokenizer ByteLevel";
    reader->tokenizer->byte_level = reader->byte_level_ended = true;
    return json_read_bool(object, "add_prefix_space", where, &prefix, reader->loc, reader->diag) &&
           json_read_bool(object, "use_regex", where, &regex, reader->loc, reader->diag) &&
           (!prefix || add_step(reader, NULL, SPLIT_ISOLATED, false)) &&
           (!regex || add_pattern(reader, pattern_by_name("gpt2"), SPLIT_ISOLATED, false));
}

static bool read_split(StepReader *reader, const json_t *object) {
    static const char *const BEHAVIORS[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    const char *literal, *regex, *name = "Isolated", *where = "pre_tokenizer Split";
    bool invert = false;
    int behavior = 0;
    if (!read_pattern(reader, object, where, &literal, &regex) ||
        !json_read_text(object, "behavior", where, &name, reader->loc, reader->diag) ||
        !json_read_bool(object, "invert", where, &invert, reader->loc, reader->diag)) {
        return false;
    }
    while (behavior < 5 && strcmp(BEHAVIORS[behavior], name) != 0) behavior++;
    if (behavior == 5) return refuse(reader, "behavior of the pre-tokenizer Split", name);
    if (regex) return add_pattern(reader, regex, (SplitBehavior)behavior, invert);
    Pattern *pattern = pattern_literal(literal, reader->loc, reader->diag);
    return pattern && add_step(reader, pattern, (SplitBehavior)behavior, invert);
}

static bool read_digits(StepReader *reader, const json_t *object) {
    bool individual = false;
    return json_read_bool(object, "individual_digits", "pre_tokenizer Digits", &individual,
                          reader->loc, reader->diag) &&
           add_pattern(reader, individual ? "\\p{N}" : "\\p{N}+", SPLIT_ISOLATED, false);
}

static bool read_metaspace(StepReader *reader, const json_t *object) {
    Tokenizer *tokenizer = reader->tokenizer;
    const char *mark = SPACE_MARK, *scheme = "always", *where = "pre_tokenizer Metaspace";
    bool splits = true, prefix = true;
    if (!json_read_text(object, "replacement", where, &mark, reader->loc, reader->diag) ||
        !json_read_text(object, "prepend_scheme", where, &scheme, reader->loc, reader->diag) ||
        !json_read_bool(object, "add_prefix_space", where, &prefix, reader->loc, reader->diag) ||
        !json_read_bool(object, "split", where, &splits, reader->loc, reader->diag)) {
        return false;
    }
    if (strcmp(mark, SPACE_MARK) != 0) return refuse(reader, "replacement of Metaspace", mark);
    if (tokenizer->steps.count || tokenizer->normalizer.space) {
        return refuse(reader, "pre-tokenizer, after others or a normalizer", "Metaspace");
    }
    tokenizer->normalizer.space = SPACE_MARK;
    if (strcmp(scheme, "never") != 0 && prefix) tokenizer->normalizer.prepend = SPACE_MARK;
    tokenizer->prefix_first_only = strcmp(scheme, "first") == 0;
    tokenizer->strips_space = tokenizer->normalizer.prepend != NULL;
    if (!splits) return true;
    Pattern *pattern = pattern_literal(SPACE_MARK, reader->loc, reader->diag);
    return pattern && add_step(reader, pattern, SPLIT_MERGED_WITH_NEXT, false);
}

static bool read_pre_tokenizer(StepReader *reader, const json_t *object, int depth) {
    if (!object || json_is_null(object)) return true;
    const char *type = type_of(reader, object, "pre_tokenizer");
    if (!type) return false;
    if (reader->byte_level_ended) return refuse(reader, "pre-tokenizer after ByteLevel,", type);
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const json_t *list = json_object_get(object, "pretokenizers"), *item;
        size_t i;
        json_array_foreach(list, i, item) {
            if (!read_pre_tokenizer(reader, item, depth + 1)) return false;
        }
        return true;
    }
    if (strcmp(type, "ByteLevel") == 0) return read_byte_level(reader, object);
    if (strcmp(type, "Split") == 0) return read_split(reader, object);
    if (strcmp(type, "Digits") == 0) return read_digits(reader, object);
    if (strcmp(type, "Metaspace") == 0) return read_metaspace(reader, object);
    return refuse(reader, "pre-tokenizer", type);
}

/* --- normalizers --- */

static bool read_replace(StepReader *reader, const json_t *object) {
    const char *literal, *regex, *content = NULL;
    if (!read_pattern(reader, object, "normalizer Replace", &literal, &regex) ||
        !json_read_text(object, "content", "normalizer Replace", &content, reader->loc,
                        reader->diag)) {
        return false;
    }
    if (!literal || strcmp(literal, " ") != 0 || !content || strcmp(content, SPACE_MARK) != 0) {
        return refuse(reader, "normalizer, but for a space by U+2581,", "Replace");
    }
    reader->tokenizer->normalizer.space = SPACE_MARK;
    return true;
}

static bool read_prepend(StepReader *reader, const json_t *object) {
    Normalizer *normalizer = &reader->tokenizer->normalizer;
    const char *text = NULL;
    if (!json_read_text(object, "prepend", "normalizer Prepend", &text, reader->loc,
                        reader->diag)) {
        return false;
    }
    if (!text || strcmp(text, SPACE_MARK) != 0 || normalizer->space) {
        return refuse(reader, "normalizer, but for U+2581 before a replacement of spaces,",
                      "Prepend");
    }
    normalizer->prepend = SPACE_MARK;
    normalizer->prepend_before_space = true;
    return true;
}

static bool read_normalizer(StepReader *reader, const json_t *object, int depth) {
    if (!object || json_is_null(object)) return true;
    const char *type = type_of(reader, object, "normalizer");
    if (!type) return false;
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const json_t *list = json_object_get(object, "normalizers"), *item;
        size_t i;
        json_array_foreach(list, i, item) {
            if (!read_normalizer(reader, item, depth + 1)) return false;
        }
        return true;
    }
    if (strcmp(type, "Replace") == 0) return read_replace(reader, object);
    if (strcmp(type, "Prepend") == 0) return read_prepend(reader, object);
    if (strcmp(type, "NFC") != 0) return refuse(reader, "normalizer", type);
    reader->tokenizer->normalizer.nfc = true;
    return true;
}

/* Where text begins with a space that was put there, decoding takes it away. */
static void read_decoder(StepReader *reader, const json_t *object) {
    const json_t *list = json_object_get(object, "decoders"), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type && strcmp(type, "Strip") == 0 &&
            json_integer_value(json_object_get(item, "start")) > 0) {
            reader->tokenizer->strips_space = true;
        }
    }
}

bool json_read_steps(Tokenizer *tokenizer, const json_t *root, const char *path, Diag *diag) {
    StepReader reader = {.tokenizer = tokenizer, .loc = {path, 0}, .diag = diag};
    if (!read_normalizer(&reader, json_object_get(root, "normalizer"), 0) ||
        !read_pre_tokenizer(&reader, json_object_get(root, "pre_tokenizer"), 0)) {
        return false;
    }
    const Normalizer *normalizer = &tokenizer->normalizer;
    if ((normalizer->nfc || tokenizer->byte_level) && (normalizer->prepend || normalizer->space)) {
        return refuse(&reader, "normalizer, beside NFC or ByteLevel,", "Replace or Prepend");
    }
    if (!tokenizer->byte_level) read_decoder(&reader, json_object_get(root, "decoder"));
    return true;
}
