/* The normalizers of a tokenizer.json. */
#include "runtime/tokenizer/base64.h"
#include "runtime/tokenizer/characters.h"
#include "runtime/tokenizer/json_steps.h"

#include <string.h>

/* Takes the step's pattern. */
static bool add_step(const StepReader *reader, NormalStep step) {
    Normalizer *normalizer = &reader->tokenizer->normalizer;
    if (normalizer->count < MAX_NORMAL_STEPS) {
        normalizer->items[normalizer->count++] = step;
        return true;
    }
    pattern_destroy(step.pattern);
    diag_error(reader->diag, reader->loc, "normalizer: more than %d steps", MAX_NORMAL_STEPS);
    return false;
}

static bool add_change(const StepReader *reader, CharacterChange *change) {
    return add_step(reader, (NormalStep){.kind = NORMAL_CHARACTERS, .change = change});
}

static bool add_form(const StepReader *reader, NormalForm form) {
    return add_step(reader, (NormalStep){.kind = NORMAL_FORM, .form = form});
}

static bool read_replace(const StepReader *reader, const json_t *object) {
    const char *literal, *regex, *content = NULL, *where = "normalizer Replace";
    NormalStep step = {.kind = NORMAL_REPLACE};
    if (!json_read_pattern(reader, object, where, &literal, &regex) ||
        !json_read_text(object, "content", where, &content, reader->loc, reader->diag)) {
        return false;
    }
    step.text = arena_strdup(reader->tokenizer->arena, content ? content : "");
    if (literal && strlen(literal) == 1) {
        step.byte = literal[0];
        return add_step(reader, step);
    }
    step.pattern = regex ? pattern_compile(regex, PATTERN_ONIGURUMA, reader->loc, reader->diag)
                         : pattern_literal(literal, reader->loc, reader->diag);
    return step.pattern && add_step(reader, step);
}

static bool read_prepend(const StepReader *reader, const json_t *object) {
    const char *text = NULL;
    if (!json_read_text(object, "prepend", "normalizer Prepend", &text, reader->loc,
                        reader->diag)) {
        return false;
    }
    text = arena_strdup(reader->tokenizer->arena, text ? text : "");
    return add_step(reader, (NormalStep){.kind = NORMAL_PREPEND, .text = text});
}

static bool read_strip(const StepReader *reader, const json_t *object) {
    NormalStep step = {.kind = NORMAL_STRIP, .left = true, .right = true};
    const char *where = "normalizer Strip";
    return json_read_bool(object, "strip_left", where, &step.left, reader->loc, reader->diag) &&
           json_read_bool(object, "strip_right", where, &step.right, reader->loc, reader->diag) &&
           add_step(reader, step);
}

static bool read_precompiled(const StepReader *reader, const json_t *object) {
    const json_t *value = json_object_get(object, "precompiled_charsmap");
    Arena *arena = reader->tokenizer->arena;
    const char *text = json_string_value(value);
    size_t length = text ? json_string_length(value) : 0, n;
    unsigned char *bytes = ARENA_ARRAY(arena, unsigned char, length + 1);
    if (!text || !base64_decode(text, length, bytes, length, &n)) {
        diag_error(reader->diag, reader->loc,
                   "normalizer Precompiled: its precompiled_charsmap is no base64");
        return false;
    }
    Charsmap *map = charsmap_read(bytes, n, arena, reader->loc, reader->diag);
    return map && add_step(reader, (NormalStep){.kind = NORMAL_PRECOMPILED, .charsmap = map});
}

static bool read_bert(const StepReader *reader, const json_t *object) {
    bool cleans = true, spaces = true, lowers = true;
    const char *where = "normalizer BertNormalizer";
    SourceLoc loc = reader->loc;
    Diag *diag = reader->diag;
    if (!json_read_bool(object, "clean_text", where, &cleans, loc, diag) ||
        !json_read_bool(object, "handle_chinese_chars", where, &spaces, loc, diag) ||
        !json_read_bool(object, "lowercase", where, &lowers, loc, diag)) {
        return false;
    }
    bool strips = lowers; /* where it is null */
    return json_read_bool(object, "strip_accents", where, &strips, loc, diag) &&
           (!cleans || add_change(reader, character_clean)) &&
           (!spaces || add_change(reader, character_spaced)) &&
           (!strips || (add_form(reader, NORMAL_FORM_D) &&
                        add_change(reader, character_without_nonspacing))) &&
           (!lowers || add_change(reader, character_lower));
}

static bool read_named(const StepReader *reader, const json_t *object, const char *type) {
    static const char *const FORMS[] = {[NORMAL_FORM_C] = "NFC",
                                        [NORMAL_FORM_D] = "NFD",
                                        [NORMAL_FORM_KC] = "NFKC",
                                        [NORMAL_FORM_KD] = "NFKD"};
    static const struct {
        const char *name;
        CharacterChange *change;
    } CHANGES[] = {{"Lowercase", character_lower},
                   {"StripAccents", character_without_accents},
                   {"Nmt", character_nmt}};
    static const struct {
        const char *name;
        bool (*read)(const StepReader *reader, const json_t *object);
    } READERS[] = {{"Replace", read_replace},
                   {"Prepend", read_prepend},
                   {"Strip", read_strip},
                   {"Precompiled", read_precompiled},
                   {"BertNormalizer", read_bert}};
    for (int i = 0; i < 4; i++) {
        if (strcmp(type, FORMS[i]) == 0) return add_form(reader, (NormalForm)i);
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(type, CHANGES[i].name) == 0) return add_change(reader, CHANGES[i].change);
    }
    for (int i = 0; i < 5; i++) {
        if (strcmp(type, READERS[i].name) == 0) return READERS[i].read(reader, object);
    }
    return json_refuse_step(reader, "normalizer", type);
}

bool json_read_normalizer(StepReader *reader, const json_t *object, int depth) {
    Tokenizer *tokenizer = reader->tokenizer;
    if (!object || json_is_null(object)) return true;
    const char *type = json_step_type(reader, object, "normalizer");
    if (!type) return false;
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const json_t *list = json_object_get(object, "normalizers"), *item;
        size_t i;
        json_array_foreach(list, i, item) {
            if (!json_read_normalizer(reader, item, depth + 1)) return false;
        }
        return true;
    }
    const char *names = tokenizer->normalizer.names;
    tokenizer->normalizer.names = names ? arena_printf(tokenizer->arena, "%s, %s", names, type)
                                        : arena_strdup(tokenizer->arena, type);
    return read_named(reader, object, type);
}
