/* Filters of lists and dictionaries. What is a generator in Jinja is one here: it can be gone
 * through once, and is always true. */
#include "runtime/jinja/filters.h"
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef const JinjaValue *Args;

/* item.a.b.0, by a text with dots or a number; none: the item itself. */
static JinjaValue attribute_of(Jinja *jinja, JinjaValue item, JinjaValue attribute) {
    if (!filter_given(attribute)) return item;
    if (attribute.kind != JINJA_STRING) return jinja_item(jinja, item, attribute);
    static const JinjaString DOT = {.text = ".", .length = 1};
    JinjaList *parts = text_split(jinja, attribute.string, &DOT, -1, false).list;
    for (size_t i = 0; i < parts->count && !jinja->failed; i++) {
        const JinjaString *part = parts->items[i].string;
        bool digits = part->length > 0 && part->length < 10;
        int64_t number = 0;
        for (size_t k = 0; k < part->length && digits; k++) {
            digits = isdigit((unsigned char)part->text[k]) != 0;
            number = number * 10 + part->text[k] - '0';
        }
        item = jinja_item(jinja, item, digits ? jinja_int(number) : parts->items[i]);
    }
    return item;
}

/* Texts without their case, unless it matters. */
static JinjaValue key_of(Jinja *jinja, JinjaValue item, JinjaValue attribute, bool sensitive) {
    JinjaValue key = attribute_of(jinja, item, attribute);
    bool folds = !jinja->failed && !sensitive && key.kind == JINJA_STRING;
    return folds ? text_case(jinja, key.string, CASE_LOWER) : key;
}

/* --- order --- */

typedef struct Keyed {
    JinjaValue key, item;
} Keyed;

/* In order, and what is equal as it came. */
static void merge_sort(Jinja *jinja, Keyed *items, Keyed *room, size_t n, bool reverse) {
    if (n < 2 || jinja->failed) return;
    size_t half = n / 2, a = 0, b = half;
    merge_sort(jinja, items, room, half, reverse);
    merge_sort(jinja, items + half, room, n - half, reverse);
    for (size_t i = 0; i < n; i++) {
        bool second = a == half;
        if (a < half && b < n) {
            int order = jinja_compare(jinja, items[a].key, items[b].key);
            second = reverse ? order < 0 : order > 0;
        }
        room[i] = second ? items[b++] : items[a++];
    }
    memcpy(items, room, n * sizeof(*items));
    jinja_step(jinja, n);
}

static JinjaValue sort(Jinja *jinja, const JinjaList *list, bool reverse, bool sensitive,
                       JinjaValue attribute) {
    size_t n = list->count;
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, n);
    Keyed *keyed = jinja_alloc(jinja, (2 * n + 1) * sizeof(*keyed));
    for (size_t i = 0; i < n && !jinja->failed; i++) {
        keyed[i] = (Keyed){key_of(jinja, list->items[i], attribute, sensitive), list->items[i]};
    }
    merge_sort(jinja, keyed, keyed + n, n, reverse);
    for (size_t i = 0; i < n && !jinja->failed; i++) jinja_list_add(jinja, out.list, keyed[i].item);
    return out;
}

static JinjaValue run_sort(Jinja *jinja, JinjaValue self, Args args) {
    if (args[2].kind == JINJA_STRING && memchr(args[2].string->text, ',', args[2].string->length)) {
        return jinja_fail(jinja, "sort: several attributes are not supported");
    }
    return sort(jinja, jinja_items(jinja, self), jinja_truth(args[0]), jinja_truth(args[1]),
                args[2]);
}

static JinjaList *entries_of(Jinja *jinja, const JinjaDict *dict, JinjaFlavor flavor) {
    JinjaList *out = jinja_list(jinja, flavor, dict->count).list;
    for (size_t i = 0; i < dict->count; i++) {
        const JinjaEntry *entry = &dict->entries[i];
        jinja_list_add(jinja, out, jinja_pair(jinja, entry->key, entry->value));
    }
    return out;
}

static JinjaValue run_dictsort(Jinja *jinja, JinjaValue self, Args args) {
    bool by_value = jinja_is_text(args[1], "value");
    if (self.kind != JINJA_DICT) {
        return jinja_fail(jinja, "dictsort: of a %s", jinja_type_name(self));
    }
    if (filter_given(args[1]) && !by_value && !jinja_is_text(args[1], "key")) {
        return jinja_fail(jinja, "dictsort: by is 'key' or 'value'");
    }
    return sort(jinja, entries_of(jinja, self.dict, FLAVOR_LIST), jinja_truth(args[2]),
                jinja_truth(args[0]), jinja_int(by_value));
}

static JinjaValue extreme(Jinja *jinja, JinjaValue self, Args args, int sign) {
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue best = jinja_undefined("the least of nothing"), best_key = best;
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        JinjaValue key = key_of(jinja, list->items[i], args[1], jinja_truth(args[0]));
        if (i && (jinja->failed || sign * jinja_compare(jinja, key, best_key) <= 0)) continue;
        best = list->items[i];
        best_key = key;
    }
    return best;
}

static JinjaValue run_max(Jinja *jinja, JinjaValue self, Args args) {
    return extreme(jinja, self, args, 1);
}
static JinjaValue run_min(Jinja *jinja, JinjaValue self, Args args) {
    return extreme(jinja, self, args, -1);
}

/* --- ends --- */

static JinjaValue run_first(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    if (self.kind == JINJA_LIST && self.list->flavor == FLAVOR_GENERATOR) {
        bool more = self.list->next < self.list->count;
        return more ? self.list->items[self.list->next++] : jinja_undefined("the first of nothing");
    }
    JinjaList *list = jinja_items(jinja, self);
    return list->count ? list->items[0] : jinja_undefined("the first of nothing");
}

static JinjaValue run_last(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    if (self.kind == JINJA_LIST && self.list->flavor == FLAVOR_GENERATOR) {
        return jinja_fail(jinja, "last: of a generator; |list makes a list of it");
    }
    JinjaList *list = jinja_items(jinja, self);
    return list->count ? list->items[list->count - 1] : jinja_undefined("the last of nothing");
}

static JinjaValue run_reverse(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue out = jinja_list(jinja, FLAVOR_GENERATOR, list->count);
    for (size_t i = list->count; i-- > 0;) jinja_list_add(jinja, out.list, list->items[i]);
    if (self.kind != JINJA_STRING || jinja->failed) return out;
    return text_join(jinja, jinja_text(jinja, "").string, out.list);
}

static JinjaValue run_list(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, list->count);
    for (size_t i = 0; i < list->count; i++) jinja_list_add(jinja, out.list, list->items[i]);
    return out;
}

static JinjaValue run_items(Jinja *jinja, JinjaValue self, Args args) {
    (void)args;
    if (self.kind == JINJA_UNDEFINED) return jinja_list(jinja, FLAVOR_GENERATOR, 0);
    if (self.kind != JINJA_DICT) return jinja_fail(jinja, "items: of a %s", jinja_type_name(self));
    return JINJA_VALUE(JINJA_LIST, list, entries_of(jinja, self.dict, FLAVOR_GENERATOR));
}

static JinjaValue run_join(Jinja *jinja, JinjaValue self, Args args) {
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue parts = jinja_list(jinja, FLAVOR_LIST, list->count);
    const JinjaString *between =
        args[0].kind == JINJA_ABSENT ? jinja_text(jinja, "").string : jinja_str(jinja, args[0]);
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        jinja_list_add(jinja, parts.list, attribute_of(jinja, list->items[i], args[1]));
    }
    return jinja->failed ? self : text_join(jinja, between, parts.list);
}

static JinjaValue run_unique(Jinja *jinja, JinjaValue self, Args args) {
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue out = jinja_list(jinja, FLAVOR_GENERATOR, 0);
    JinjaDict *seen = jinja_dict(jinja, JINJA_DICT, 0).dict;
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        JinjaValue key = key_of(jinja, list->items[i], args[1], jinja_truth(args[0]));
        if (jinja->failed || jinja_dict_get(jinja, seen, key)) continue;
        if (jinja_dict_set(jinja, seen, key, jinja_none())) {
            jinja_list_add(jinja, out.list, list->items[i]);
        }
    }
    return out;
}

static JinjaValue run_sum(Jinja *jinja, JinjaValue self, Args args) {
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue sum = args[1].kind == JINJA_ABSENT ? jinja_int(0) : args[1];
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        JinjaValue item = attribute_of(jinja, list->items[i], args[0]);
        if (!jinja->failed) sum = jinja_binary(jinja, OP_ADD, sum, item);
    }
    return sum;
}

static JinjaValue run_batch(Jinja *jinja, JinjaValue self, Args args) {
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue out = jinja_list(jinja, FLAVOR_GENERATOR, 0), part = jinja_none();
    int64_t n;
    if (!filter_integer(jinja, args[0], "batch", 1, &n)) return self;
    if (n < 1) return jinja_fail(jinja, "batch: of less than one");
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        if (i % (size_t)n == 0) {
            part = jinja_list(jinja, FLAVOR_LIST, 0);
            jinja_list_add(jinja, out.list, part);
        }
        jinja_list_add(jinja, part.list, list->items[i]);
    }
    while (filter_given(args[1]) && part.kind == JINJA_LIST && (int64_t)part.list->count < n &&
           !jinja->failed) {
        jinja_list_add(jinja, part.list, args[1]);
    }
    return out;
}

/* --- each by a test or a filter --- */

static bool skips(const JinjaCall *call, int n, JinjaCall *out) {
    *out = *call;
    if (call->n_args < n) return false;
    out->args += n;
    out->n_args -= n;
    return true;
}

/* The test, or the filter, that the i-th argument names. NULL, failed: there is none. */
static const JinjaBuiltin *named_by(Jinja *jinja, const JinjaCall *call, int i, bool test) {
    const char *name = "";
    if (i < call->n_args && call->args[i].kind == JINJA_STRING) {
        const JinjaString *text = call->args[i].string;
        char *copy = jinja_alloc(jinja, text->length + 1);
        memcpy(copy, text->text, text->length);
        copy[text->length] = '\0';
        name = copy;
    }
    const JinjaBuiltin *found = test ? jinja_find_test(name) : jinja_find_filter(name);
    if (!found) {
        jinja_fail(jinja, "the %s '%.40s' is not known, or not supported", test ? "test" : "filter",
                   name);
    }
    return found;
}

/* Items for which the test, of themselves or of an attribute, says `wanted`. */
static JinjaValue choose(Jinja *jinja, JinjaValue self, const JinjaCall *call, bool wanted,
                         bool by_attribute) {
    const JinjaBuiltin *test = NULL;
    int first = by_attribute;
    JinjaCall rest;
    JinjaValue out = jinja_list(jinja, FLAVOR_GENERATOR, 0);
    if (call->n_args < first) return jinja_fail(jinja, "selectattr: the attribute is missing");
    if (call->n_args > first && !(test = named_by(jinja, call, first, true))) return self;
    skips(call, first + (test != NULL), &rest);
    if (!jinja_truth(self)) return out; /* None, too */
    JinjaList *list = jinja_items(jinja, self);
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        JinjaValue value = list->items[i];
        if (by_attribute) value = attribute_of(jinja, value, call->args[0]);
        if (test && !jinja->failed) {
            value = jinja_call_builtin(jinja, test, "the test", value, &rest);
        }
        if (!jinja->failed && jinja_truth(value) == wanted) {
            jinja_list_add(jinja, out.list, list->items[i]);
        }
    }
    return out;
}

static JinjaValue run_select(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return choose(jinja, self, call, true, false);
}
static JinjaValue run_reject(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return choose(jinja, self, call, false, false);
}
static JinjaValue run_selectattr(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return choose(jinja, self, call, true, true);
}
static JinjaValue run_rejectattr(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return choose(jinja, self, call, false, true);
}

static JinjaValue named_arg(const JinjaCall *call, const char *name) {
    for (int i = 0; i < call->n_named; i++) {
        if (strcmp(call->names[i], name) == 0) return call->named[i];
    }
    return (JinjaValue){JINJA_ABSENT, {NULL}};
}

/* map(attribute="a", default="b"), or map("filter", arguments). */
static JinjaValue run_map(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    JinjaValue attribute = named_arg(call, "attribute"), none = named_arg(call, "default");
    const JinjaBuiltin *filter = NULL;
    JinjaCall rest = *call;
    bool by_attribute = call->n_args == 0 && attribute.kind != JINJA_ABSENT;
    int n_known = 1 + (none.kind != JINJA_ABSENT);
    if (by_attribute && call->n_named != n_known) {
        return jinja_fail(jinja, "map: an argument is not known");
    }
    if (!by_attribute && !(filter = named_by(jinja, call, 0, false))) return self;
    if (!by_attribute) skips(call, 1, &rest);
    if (!jinja_truth(self)) return jinja_list(jinja, FLAVOR_GENERATOR, 0);
    JinjaList *list = jinja_items(jinja, self);
    JinjaValue out = jinja_list(jinja, FLAVOR_GENERATOR, list->count);
    for (size_t i = 0; i < list->count && !jinja->failed; i++) {
        JinjaValue item = list->items[i];
        if (filter) {
            item = jinja_call_builtin(jinja, filter, "the filter", item, &rest);
        } else {
            item = attribute_of(jinja, item, attribute);
            if (item.kind == JINJA_UNDEFINED && none.kind != JINJA_ABSENT) item = none;
        }
        if (!jinja->failed) jinja_list_add(jinja, out.list, item);
    }
    return out;
}

const JinjaBuiltin *jinja_find_list_filter(const char *name) {
    static const JinjaBuiltin FILTERS[] = {
        {"sort", run_sort, 0, {"reverse", "case_sensitive", "attribute"}, NULL},
        {"dictsort", run_dictsort, 0, {"case_sensitive", "by", "reverse"}, NULL},
        {"max", run_max, 0, {"case_sensitive", "attribute"}, NULL},
        {"min", run_min, 0, {"case_sensitive", "attribute"}, NULL},
        {"first", run_first, 0, {NULL}, NULL},
        {"last", run_last, 0, {NULL}, NULL},
        {"reverse", run_reverse, 0, {NULL}, NULL},
        {"list", run_list, 0, {NULL}, NULL},
        {"items", run_items, 0, {NULL}, NULL},
        {"join", run_join, 0, {"d", "attribute"}, NULL},
        {"unique", run_unique, 0, {"case_sensitive", "attribute"}, NULL},
        {"sum", run_sum, 0, {"attribute", "start"}, NULL},
        {"batch", run_batch, 1, {"linecount", "fill_with"}, NULL},
        {"select", NULL, 0, {NULL}, run_select},
        {"reject", NULL, 0, {NULL}, run_reject},
        {"selectattr", NULL, 0, {NULL}, run_selectattr},
        {"rejectattr", NULL, 0, {NULL}, run_rejectattr},
        {"map", NULL, 0, {NULL}, run_map},
    };
    for (size_t i = 0; i < sizeof(FILTERS) / sizeof(FILTERS[0]); i++) {
        if (strcmp(FILTERS[i].name, name) == 0) return &FILTERS[i];
    }
    return NULL;
}
