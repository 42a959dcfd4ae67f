#include "runtime/tokenizer/json_steps.h"

#include <string.h>

/* What BERT takes for punctuation: Unicode's, and all of ASCII's symbols. */
#define PUNCTUATION_MARKS "\\p{P}!-/:-@\\[-`{-~"
#define PUNCTUATION       "[" PUNCTUATION_MARKS "]"

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

bool json_refuse_step(const StepReader *reader, const char *what, const char *type) {
    diag_error(reader->diag, reader->loc, "the %s '%.60s' is not supported", what, type);
    return false;
}

const char *json_step_type(const StepReader *reader, const json_t *object, const char *what) {
    const char *type = json_string_value(json_object_get(object, "type"));
    if (!type) diag_error(reader->diag, reader->loc, "%s: it has no type", what);
    return type;
}

bool json_read_pattern(const StepReader *reader, const json_t *object, const char *where,
                       const char **out_literal, const char **out_regex) {
    const json_t *pattern = json_object_get(object, "pattern");
    *out_literal = json_string_value(json_object_get(pattern, "String"));
    *out_regex = json_string_value(json_object_get(pattern, "Regex"));
    if ((*out_literal && **out_literal) || *out_regex) return true;
    diag_error(reader->diag, reader->loc, "%s: it has no pattern", where);
    return false;
}

/* --- pre-tokenizers --- */

/* Takes the step's pattern. */
static bool add_step(const StepReader *reader, WordStep step) {
    WordSteps *steps = &reader->tokenizer->steps;
    if (steps->count < MAX_WORD_STEPS) {
        steps->items[steps->count++] = step;
        return true;
    }
    pattern_destroy(step.pattern);
    diag_error(reader->diag, reader->loc, "pre_tokenizer: more than %d steps", MAX_WORD_STEPS);
    return false;
}

static bool add_pattern(const StepReader *reader, const char *regex, SplitBehavior behavior,
                        bool invert) {
    Tokenizer *tokenizer = reader->tokenizer;
    Pattern *pattern = pattern_compile(regex, PATTERN_ONIGURUMA, reader->loc, reader->diag);
    if (!pattern) return false;
    if (!tokenizer->pattern) tokenizer->pattern = arena_strdup(tokenizer->arena, regex);
    return add_step(reader, (WordStep){pattern, behavior, invert, NULL, false});
}

static bool read_byte_level(StepReader *reader, const json_t *object) {
    bool prefix = true, regex = true;
    const char *where = "pre_tokenizer ByteLevel";
    reader->tokenizer->byte_level = reader->byte_level_ended = true;
    return json_read_bool(object, "add_prefix_space", where, &prefix, reader->loc, reader->diag) &&
           json_read_bool(object, "use_regex", where, &regex, reader->loc, reader->diag) &&
           (!prefix || add_step(reader, (WordStep){.mark = " ", .prefix = true})) &&
           (!regex || add_pattern(reader, pattern_by_name("gpt2"), SPLIT_ISOLATED, false));
}

static bool read_behavior(const StepReader *reader, const json_t *object, const char *where,
                          SplitBehavior *out) {
    static const char *const BEHAVIORS[] = {"Isolated", "Removed", "MergedWithPrevious",
                                            "MergedWithNext", "Contiguous"};
    const char *name = "Isolated";
    int behavior = 0;
    if (!json_read_text(object, "behavior", where, &name, reader->loc, reader->diag)) return false;
    while (behavior < 5 && strcmp(BEHAVIORS[behavior], name) != 0) behavior++;
    if (behavior == 5) {
        diag_error(reader->diag, reader->loc, "%s: the behavior '%.60s' is not supported", where,
                   name);
        return false;
    }
    *out = (SplitBehavior)behavior;
    return true;
}

static bool read_split(StepReader *reader, const json_t *object) {
    const char *literal, *regex, *where = "pre_tokenizer Split";
    bool invert = false;
    SplitBehavior behavior = SPLIT_ISOLATED;
    if (!json_read_pattern(reader, object, where, &literal, &regex) ||
        !read_behavior(reader, object, where, &behavior) ||
        !json_read_bool(object, "invert", where, &invert, reader->loc, reader->diag)) {
        return false;
    }
    if (regex) return add_pattern(reader, regex, behavior, invert);
    Pattern *pattern = pattern_literal(literal, reader->loc, reader->diag);
    return pattern && add_step(reader, (WordStep){pattern, behavior, invert, NULL, false});
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
    if (strcmp(mark, SPACE_MARK) != 0)
        return json_refuse_step(reader, "replacement of Metaspace", mark);
    WordStep step = {.mark = SPACE_MARK, .prefix = strcmp(scheme, "never") != 0 && prefix};
    tokenizer->prefix_first_only = step.prefix && strcmp(scheme, "first") == 0;
    if (tokenizer->prefix_first_only && tokenizer->steps.count) {
        return json_refuse_step(reader, "prepend_scheme, after other pre-tokenizers,", scheme);
    }
    tokenizer->strips_space |= step.prefix;
    if (!add_step(reader, step)) return false;
    if (!splits) return true;
    Pattern *pattern = pattern_literal(SPACE_MARK, reader->loc, reader->diag);
    step = (WordStep){.pattern = pattern, .behavior = SPLIT_MERGED_WITH_NEXT};
    return pattern && add_step(reader, step);
}

/* BERT's: words and single punctuation marks. White space is a piece of its own at first, so that
 * pieces depend on what follows them only. */
static bool read_bert(const StepReader *reader) {
    return add_pattern(reader, "\\s+|" PUNCTUATION "|[^\\s" PUNCTUATION_MARKS "]+", SPLIT_ISOLATED,
                       false) &&
           add_pattern(reader, "\\s+", SPLIT_REMOVED, false);
}

static bool read_punctuation(const StepReader *reader, const json_t *object) {
    SplitBehavior behavior = SPLIT_ISOLATED;
    return read_behavior(reader, object, "pre_tokenizer Punctuation", &behavior) &&
           add_pattern(reader, PUNCTUATION, behavior, false);
}

static bool read_pre_tokenizer(StepReader *reader, const json_t *object, int depth) {
    if (!object || json_is_null(object)) return true;
    const char *type = json_step_type(reader, object, "pre_tokenizer");
    if (!type) return false;
    if (reader->byte_level_ended)
        return json_refuse_step(reader, "pre-tokenizer after ByteLevel,", type);
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
    if (strcmp(type, "Punctuation") == 0) return read_punctuation(reader, object);
    if (strcmp(type, "BertPreTokenizer") == 0) return read_bert(reader);
    if (strcmp(type, "WhitespaceSplit") == 0) {
        return add_pattern(reader, "\\s+", SPLIT_REMOVED, false);
    }
    return json_refuse_step(reader, "pre-tokenizer", type);
}

/* Where text begins with a space that was put there, decoding takes it away. */
static bool read_decoder(StepReader *reader, const json_t *object) {
    Tokenizer *tokenizer = reader->tokenizer;
    const char *name = json_string_value(json_object_get(object, "type"));
    if (name && strcmp(name, "WordPiece") == 0) {
        tokenizer->cleans_up = true;
        return json_read_bool(object, "cleanup", "decoder WordPiece", &tokenizer->cleans_up,
                              reader->loc, reader->diag);
    }
    const json_t *list = json_object_get(object, "decoders"), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        const char *type = json_string_value(json_object_get(item, "type"));
        if (type && strcmp(type, "Strip") == 0 &&
            json_integer_value(json_object_get(item, "start")) > 0) {
            tokenizer->strips_space = true;
        }
    }
    return true;
}

bool json_read_steps(Tokenizer *tokenizer, const json_t *root, const char *path, Diag *diag) {
    StepReader reader = {.tokenizer = tokenizer, .loc = {path, 0}, .diag = diag};
    if (!json_read_normalizer(&reader, json_object_get(root, "normalizer"), 0) ||
        !read_pre_tokenizer(&reader, json_object_get(root, "pre_tokenizer"), 0)) {
        return false;
    }
    return tokenizer->byte_level || read_decoder(&reader, json_object_get(root, "decoder"));
}
