/* Functions that every template has, and methods of lists and dictionaries. */
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <stdio.h>
#include <string.h>

typedef const JinjaValue *Args;

/* --- functions --- */

static JinjaValue run_range(Jinja *jinja, JinjaValue self, Args args) {
    enum { MOST = 100000 }; /* the sandbox's */
    int64_t bounds[3] = {0, 0, 1};
    bool one = args[1].kind == JINJA_ABSENT;
    (void)self;
    for (int i = 0; i < 3; i++) {
        if (args[i].kind == JINJA_ABSENT) continue;
        if (!jinja_is_integer(args[i])) {
            return jinja_fail(jinja, "range: an int is needed, not a %s", jinja_type_name(args[i]));
        }
        bounds[one ? 1 : i] = jinja_integer(args[i]);
    }
    if (bounds[2] == 0) return jinja_fail(jinja, "range: the step is 0");
    JinjaValue out = jinja_list(jinja, FLAVOR_RANGE, 0);
    for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (out.list->count == MOST) return jinja_fail(jinja, "range: more than 100000 numbers");
        jinja_list_add(jinja, out.list, jinja_int(i));
        if (jinja->failed || __builtin_add_overflow(i, bounds[2], &i)) break;
    }
    return out;
}

/* Of a dictionary or of pairs, and of what has a name. */
static JinjaValue make_dict(Jinja *jinja, const JinjaCall *call, JinjaKind kind) {
    JinjaValue out = jinja_dict(jinja, kind, 0);
    if (call->n_args > 1) return jinja_fail(jinja, "dict: one argument without a name at most");
    if (call->n_args && call->args[0].kind == JINJA_DICT) {
        const JinjaDict *from = call->args[0].dict;
        for (size_t i = 0; i < from->count; i++) {
            jinja_dict_set(jinja, out.dict, from->entries[i].key, from->entries[i].value);
        }
    } else if (call->n_args) {
        JinjaList *pairs = jinja_items(jinja, call->args[0]);
        for (size_t i = 0; i < pairs->count && !jinja->failed; i++) {
            JinjaList *pair = jinja_items(jinja, pairs->items[i]);
            if (pair->count != 2) return jinja_fail(jinja, "dict: an item is no pair");
            jinja_dict_set(jinja, out.dict, pair->items[0], pair->items[1]);
        }
    }
    for (int i = 0; i < call->n_named; i++) {
        jinja_dict_set(jinja, out.dict, jinja_text(jinja, call->names[i]), call->named[i]);
    }
    for (size_t i = 0; kind == JINJA_NAMESPACE && i < out.dict->count; i++) {
        JinjaValue key = out.dict->entries[i].key;
        if (key.kind == JINJA_STRING && key.string->length && key.string->text[0] == '_') {
            return jinja_fail(jinja, "namespace: a name begins with _, which is not allowed");
        }
    }
    return out;
}

static JinjaValue run_dict(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return (void)self, make_dict(jinja, call, JINJA_DICT);
}
static JinjaValue run_namespace(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    return (void)self, make_dict(jinja, call, JINJA_NAMESPACE);
}

static JinjaValue run_raise(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaString *text = jinja_str(jinja, args[0]);
    (void)self;
    size_t n = text->length < 300 ? text->length : 300;
    char line[301];
    for (size_t i = 0; i < n; i++) {
        line[i] = text->text[i] == '\n' || !text->text[i] ? ' ' : text->text[i];
    }
    return jinja_fail(jinja, "the template refuses it: %.*s", (int)n, line);
}

static JinjaValue run_strftime(Jinja *jinja, JinjaValue self, Args args) {
    char format[200], text[1000];
    struct tm parts;
    (void)self;
    if (args[0].kind != JINJA_STRING || args[0].string->length + 2 > sizeof(format)) {
        return jinja_fail(jinja, "strftime_now: a short text is needed");
    }
    if (args[0].string->length == 0) return args[0];
    /* With a character before it, as a result of none is no error. */
    snprintf(format, sizeof(format), "+%.*s", (int)args[0].string->length, args[0].string->text);
    localtime_r(&jinja->now, &parts);
    size_t n = strftime(text, sizeof(text), format, &parts);
    if (n == 0) return jinja_fail(jinja, "strftime_now: the text is too long");
    char *copy = jinja_alloc(jinja, n);
    memcpy(copy, text + 1, n);
    copy[n - 1] = '\0';
    return jinja_text(jinja, copy);
}

const JinjaBuiltin *jinja_find_global(const char *name) {
    static const JinjaBuiltin FUNCTIONS[] = {
        {"range", run_range, 1, {"start", "stop", "step"}, NULL},
        {"dict", NULL, 0, {NULL}, run_dict},
        {"namespace", NULL, 0, {NULL}, run_namespace},
        {"raise_exception", run_raise, 1, {"message"}, NULL},
        {"strftime_now", run_strftime, 1, {"format"}, NULL},
    };
    for (size_t i = 0; i < sizeof(FUNCTIONS) / sizeof(FUNCTIONS[0]); i++) {
        if (strcmp(FUNCTIONS[i].name, name) == 0) return &FUNCTIONS[i];
    }
    return NULL;
}

/* --- of dictionaries --- */

static JinjaValue view(Jinja *jinja, const JinjaDict *dict, bool keys, bool values) {
    JinjaValue out = jinja_list(jinja, FLAVOR_VIEW, dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        const JinjaEntry *entry = &dict->entries[i];
        jinja_list_add(jinja, out.list,
                       keys && values ? jinja_pair(jinja, entry->key, entry->value)
                       : keys         ? entry->key
                                      : entry->value);
    }
    return out;
}

static JinjaValue run_items(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, view(jinja, self.dict, true, true);
}
static JinjaValue run_keys(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, view(jinja, self.dict, true, false);
}
static JinjaValue run_values(Jinja *jinja, JinjaValue self, Args args) {
    return (void)args, view(jinja, self.dict, false, true);
}

static JinjaValue run_get(Jinja *jinja, JinjaValue self, Args args) {
    const JinjaValue *found = jinja_dict_get(jinja, self.dict, args[0]);
    return found ? *found : args[1].kind == JINJA_ABSENT ? jinja_none() : args[1];
}

static JinjaValue run_copy_dict(Jinja *jinja, JinjaValue self, Args args) {
    JinjaCall call = {.args = &self, .n_args = 1};
    return (void)args, make_dict(jinja, &call, JINJA_DICT);
}

/* --- of lists --- */

static JinjaValue run_index(Jinja *jinja, JinjaValue self, Args args) {
    for (size_t i = 0; i < self.list->count; i++) {
        if (jinja_equal(jinja, self.list->items[i], args[0])) return jinja_int((int64_t)i);
    }
    return jinja_fail(jinja, "index: it is not in the list");
}

static JinjaValue run_count(Jinja *jinja, JinjaValue self, Args args) {
    int64_t n = 0;
    for (size_t i = 0; i < self.list->count; i++) {
        n += jinja_equal(jinja, self.list->items[i], args[0]);
    }
    return jinja_int(n);
}

static JinjaValue run_copy_list(Jinja *jinja, JinjaValue self, Args args) {
    JinjaValue out = jinja_list(jinja, FLAVOR_LIST, self.list->count);
    (void)args;
    for (size_t i = 0; i < self.list->count; i++) {
        jinja_list_add(jinja, out.list, self.list->items[i]);
    }
    return out;
}

const JinjaBuiltin *jinja_find_other_method(JinjaValue object, const char *name) {
    static const JinjaBuiltin OF_DICTS[] = {
        {"items", run_items, 0, {NULL}, NULL},    {"keys", run_keys, 0, {NULL}, NULL},
        {"values", run_values, 0, {NULL}, NULL},  {"get", run_get, 1, {"key", "default"}, NULL},
        {"copy", run_copy_dict, 0, {NULL}, NULL},
    };
    static const JinjaBuiltin OF_LISTS[] = {
        {"index", run_index, 1, {"value"}, NULL},
        {"count", run_count, 1, {"value"}, NULL},
        {"copy", run_copy_list, 0, {NULL}, NULL},
    };
    bool dict = object.kind == JINJA_DICT;
    size_t n = dict                                  ? 5
               : object.list->flavor == FLAVOR_LIST  ? 3
               : object.list->flavor <= FLAVOR_RANGE ? 2
                                                     : 0;
    for (size_t i = 0; i < n; i++) {
        const JinjaBuiltin *method = dict ? &OF_DICTS[i] : &OF_LISTS[i];
        if (strcmp(method->name, name) == 0) return method;
    }
    return NULL;
}
