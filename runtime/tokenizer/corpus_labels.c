#include "runtime/tokenizer/corpus_labels.h"

#include <math.h>
#include <string.h>

int class_label_words(ClassLabels labels, int n_classes) {
    return 1 + (labels == CLASS_SETS ? (n_classes + 31) / 32 : n_classes);
}

float class_label_at(ClassLabels labels, const uint32_t *words, int i) {
    float number;
    if (labels == CLASS_SETS) return (float)(words[1 + i / 32] >> i % 32 & 1);
    memcpy(&number, &words[1 + i], sizeof(number));
    return number;
}

static void put_label(ClassLabels labels, uint32_t *words, int i, float number) {
    if (labels == CLASS_NUMBERS) {
        memcpy(&words[1 + i], &number, sizeof(number));
    } else if (number != 0) {
        words[1 + i / 32] |= UINT32_C(1) << i % 32;
    }
}

/* --- one of the classes --- */

int corpus_read_class(const json_t *object, const CorpusOptions *options, SourceLoc loc,
                      Diag *diag) {
    const char *classes = options->classes;
    const json_t *label = json_object_get(object, "label");
    int class = -1, count = options->n_classes;
    if (json_is_string(label)) {
        class = class_names_find(classes, json_string_value(label), json_string_length(label));
        if (class >= 0) return class;
        bool named = class_names_find(classes, "0", 1) < 0;
        diag_error(diag, loc,
                   named ? "'label' is '%.60s', which is none of the classes %.200s"
                         : "'label' is '%.60s', and the plan's classes have no names but numbers "
                           "below %.200s: plan with --set classes=NAME,NAME,...",
                   json_string_value(label), classes);
        return -1;
    }
    double value = json_is_boolean(label) ? json_is_true(label) : json_number_value(label);
    bool number = json_is_boolean(label) || json_is_number(label);
    if (number && value >= 0 && value < count && value == (int)value) return (int)value;
    if (number) {
        diag_error(diag, loc, "'label' is %g; the %d classes are 0 to %d", value, count, count - 1);
    } else if (options->class_may_lack && (!label || json_is_null(label))) {
        return count;
    } else {
        diag_error(diag, loc, "no object with a 'label', a class's name or number");
    }
    return -1;
}

/* --- sets of them --- */

typedef struct Labels {
    const CorpusOptions *options;
    int n; /* classes */
    uint32_t *words;
    SourceLoc loc;
    Diag *diag;
} Labels;

/* 0 or 1; -1: it is neither. */
static int truth_of(const json_t *value) {
    if (json_is_boolean(value)) return json_is_true(value);
    if (!json_is_number(value)) return -1;
    const double number = json_number_value(value);
    return number == 0 ? 0 : number == 1 ? 1 : -1;
}

static bool put_class(const Labels *to, int class) {
    if (class_label_at(CLASS_SETS, to->words, class) != 0) {
        diag_error(to->diag, to->loc, "'labels' has the class %s twice",
                   class_names_at(to->options->classes, class).text);
        return false;
    }
    put_label(CLASS_SETS, to->words, class, 1);
    return true;
}

/* A name, or a number. */
static bool put_member(const Labels *to, const json_t *value) {
    const double number = json_number_value(value);
    const char *classes = to->options->classes;
    int class = -1;
    if (json_is_string(value)) {
        class = class_names_find(classes, json_string_value(value), json_string_length(value));
    } else if (json_is_number(value) && number >= 0 && number < to->n && floor(number) == number) {
        class = (int)number;
    }
    if (class >= 0) return put_class(to, class);
    if (json_is_string(value)) {
        diag_error(to->diag, to->loc, "'labels' has '%.60s', which is none of the classes %.200s",
                   json_string_value(value), classes);
    } else {
        diag_error(
            to->diag, to->loc,
            "'labels' must be names of classes, their numbers from 0 to %d, or %d times 0 or "
            "1, or true or false",
            to->n - 1, to->n);
    }
    return false;
}

/* As many truth values as there are classes, or those that the text has. */
static bool read_set(const Labels *to, const json_t *list) {
    const json_t *value;
    size_t i;
    bool each = json_array_size(list) == (size_t)to->n, good = true;
    json_array_foreach(list, i, value) each = each && truth_of(value) >= 0;
    json_array_foreach(list, i, value) {
        if (!each) good = good && put_member(to, value);
        if (each && truth_of(value)) put_label(CLASS_SETS, to->words, (int)i, 1);
    }
    return good;
}

/* --- a number of each --- */

static bool put_number(const Labels *to, int i, const json_t *value) {
    const float number = (float)json_number_value(value);
    if (json_is_number(value) && isfinite(number)) {
        put_label(CLASS_NUMBERS, to->words, i, number);
        return true;
    }
    diag_error(to->diag, to->loc, "what is said of '%s' is no number, or too large a one",
               class_names_at(to->options->classes, i).text);
    return false;
}

static bool read_numbers(const Labels *to, const json_t *list) {
    const json_t *value;
    size_t i;
    bool good = json_array_size(list) == (size_t)to->n;
    if (!good) {
        diag_error(to->diag, to->loc, "'labels' are %zu numbers, and the plan has %d",
                   json_array_size(list), to->n);
    }
    json_array_foreach(list, i, value) good = good && put_number(to, (int)i, value);
    return good;
}

/* --- whichever --- */

/* Fields that are called as the classes are. */
static bool read_fields(const Labels *to, const json_t *object, bool *out_any) {
    bool good = true;
    *out_any = false;
    const char *names = to->options->classes;
    for (int i = 0; i < to->n && good; i++) {
        const ClassName name = class_names_next(&names, i);
        const json_t *value = json_object_get(object, name.text);
        const bool sets = to->options->labels == CLASS_SETS;
        if (i == 0) *out_any = value && !json_is_null(value);
        if (i == 0 && !*out_any) return true;
        if (!sets) {
            good = put_number(to, i, value);
        } else if (truth_of(value) >= 0) {
            put_label(CLASS_SETS, to->words, i, (float)truth_of(value));
        } else {
            diag_error(
                to->diag, to->loc,
                "'%s' is missing, or neither 0 nor 1, nor true or false: there is a field of "
                "each class, or 'labels'",
                name.text);
            good = false;
        }
    }
    return good;
}

bool corpus_read_labels(const json_t *object, const CorpusOptions *options, uint32_t *words,
                        SourceLoc loc, Diag *diag) {
    const ClassLabels kind = options->labels;
    Labels to = {
        .options = options, .n = options->n_classes, .words = words, .loc = loc, .diag = diag};
    const json_t *labels = json_object_get(object, "labels");
    if (!labels || json_is_null(labels)) labels = json_object_get(object, "label");
    if (kind == CLASS_NUMBERS && json_is_null(labels)) labels = NULL;
    if (kind == CLASS_NUMBERS && !labels) labels = json_object_get(object, "score");
    memset(words, 0, (size_t)class_label_words(kind, to.n) * sizeof(*words));
    words[0] = 1;
    if (json_is_array(labels)) {
        return kind == CLASS_SETS ? read_set(&to, labels) : read_numbers(&to, labels);
    }
    if (kind == CLASS_NUMBERS && to.n == 1 && json_is_number(labels)) {
        return put_number(&to, 0, labels);
    }
    bool any = false;
    if (!labels || json_is_null(labels)) {
        if (!read_fields(&to, object, &any)) return false;
        if (any) return true;
        words[0] = 0;
        if (options->class_may_lack) return true;
    }
    diag_error(diag, loc,
               kind == CLASS_SETS
                   ? "no object with a list 'labels', of the classes that the text has, or with a "
                     "field of each class"
               : to.n == 1 ? "no object with a number 'label'"
                           : "no object with a list 'labels', a number of each, or with a field of "
                             "each");
    return false;
}
