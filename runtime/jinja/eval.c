/* Expressions -> values. */
#include "ir/base/utf8.h"
#include "runtime/jinja/run.h"

#include <inttypes.h>
#include <string.h>

static JinjaValue fail_undefined(Jinja *jinja, JinjaValue value) {
    return jinja_fail(jinja, "'%.60s' is undefined", value.name ? value.name : "a value");
}

/* --- places --- */

/* Where the n-th character begins; the length where there are fewer. */
static size_t byte_of(const JinjaString *string, int64_t n) {
    size_t at = 0;
    for (; n > 0 && at < string->length; n--) {
        uint32_t character;
        int bytes =
            utf8_read((const unsigned char *)string->text + at, string->length - at, &character);
        at += bytes ? (size_t)bytes : 1;
    }
    return at;
}

static JinjaValue character_at(Jinja *jinja, const JinjaString *string, int64_t i) {
    int64_t n = jinja_length(jinja, JINJA_VALUE(JINJA_STRING, string, string));
    if (i < 0) i += n;
    if (i < 0 || i >= n) return jinja_undefined(NULL);
    size_t begin = byte_of(string, i);
    JinjaString rest = {.text = string->text + begin, .length = string->length - begin};
    return jinja_slice(jinja, string, begin, begin + byte_of(&rest, 1));
}

static JinjaValue item_at(JinjaList *list, int64_t i) {
    if (list->flavor > FLAVOR_RANGE) return jinja_undefined(NULL);
    if (i < 0) i += (int64_t)list->count;
    if (i < 0 || (size_t)i >= list->count) return jinja_undefined(NULL);
    return list->items[i];
}

JinjaValue jinja_item(Jinja *jinja, JinjaValue object, JinjaValue key) {
    if (object.kind == JINJA_UNDEFINED) return fail_undefined(jinja, object);
    if (object.kind == JINJA_DICT) {
        const JinjaValue *found = jinja_dict_get(jinja, object.dict, key);
        if (found) return *found;
    } else if (object.kind == JINJA_LIST && jinja_is_integer(key)) {
        return item_at(object.list, jinja_integer(key));
    } else if (object.kind == JINJA_STRING && jinja_is_integer(key)) {
        return character_at(jinja, object.string, jinja_integer(key));
    }
    if (key.kind != JINJA_STRING) return jinja_undefined(NULL);
    char *name = jinja_alloc(jinja, key.string->length + 1);
    memcpy(name, key.string->text, key.string->length);
    name[key.string->length] = '\0';
    return strlen(name) == key.string->length && object.kind != JINJA_NAMESPACE
               ? jinja_attribute(jinja, object, name)
               : jinja_undefined(name);
}

/* Methods that there are in Python, and that would change what is not a template's to change, or
 * that are not supported here. */
static bool is_refused(JinjaKind kind, const char *name) {
    static const char *const OF_DICTS[] = {"clear",      "pop",    "popitem",
                                           "setdefault", "update", "fromkeys"};
    static const char *const OF_LISTS[] = {"append", "clear",  "extend",  "insert",
                                           "pop",    "remove", "reverse", "sort"};
    static const char *const OF_STRINGS[] = {
        "casefold",     "encode",    "expandtabs",  "format_map", "isascii",   "isdecimal",
        "isidentifier", "isnumeric", "isprintable", "istitle",    "maketrans", "translate"};
    const char *const *names = kind == JINJA_DICT   ? OF_DICTS
                               : kind == JINJA_LIST ? OF_LISTS
                                                    : OF_STRINGS;
    int n = kind == JINJA_DICT ? 6 : kind == JINJA_LIST ? 8 : 12;
    for (int i = 0; i < n; i++) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

static JinjaValue bind_method(Jinja *jinja, JinjaValue object, const JinjaBuiltin *builtin) {
    JinjaMethod *method = jinja_alloc(jinja, sizeof(*method));
    *method = (JinjaMethod){builtin, object};
    return JINJA_VALUE(JINJA_METHOD, method, method);
}

JinjaValue jinja_attribute(Jinja *jinja, JinjaValue object, const char *name) {
    const JinjaBuiltin *method = NULL;
    const JinjaValue *found = NULL;
    switch (object.kind) {
    case JINJA_UNDEFINED: return fail_undefined(jinja, object);
    case JINJA_LOOP: return jinja_loop_attribute(object.loop, name);
    case JINJA_STRING: method = jinja_find_string_method(name); break;
    case JINJA_LIST:
    case JINJA_DICT: method = jinja_find_other_method(object, name); break;
    case JINJA_NAMESPACE: break;
    case JINJA_MACRO:
        if (strcmp(name, "name") == 0) return jinja_text(jinja, object.macro->node->name);
        return jinja_undefined(name);
    default: return jinja_undefined(name);
    }
    if (method && object.kind == JINJA_STRING && object.string->markup &&
        (strcmp(name, "format") == 0 || strcmp(name, "join") == 0 ||
         strcmp(name, "replace") == 0)) {
        return jinja_fail(jinja, "'%s' of a text behind |safe or |escape is not supported", name);
    }
    if (method) return bind_method(jinja, object, method);
    if (object.kind != JINJA_NAMESPACE && is_refused(object.kind, name)) {
        return jinja_fail(jinja, "the method '%s' of a %s is not supported", name,
                          jinja_type_name(object));
    }
    if (object.kind == JINJA_DICT || object.kind == JINJA_NAMESPACE) {
        found = jinja_dict_get_text(jinja, object.dict, name);
    }
    return found ? *found : jinja_undefined(name);
}

/* --- slices --- */

typedef struct Range {
    int64_t begin, end, step;
} Range;

static int64_t bound(int64_t at, int64_t n, int64_t least, int64_t most) {
    if (at < 0) at += n;
    return at < least ? least : at > most ? most : at;
}

/* As Python has it of n items. */
static bool read_range(Jinja *jinja, const JinjaValue bounds[3], int64_t n, Range *out) {
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind == JINJA_NONE || jinja_is_integer(bounds[i])) continue;
        jinja_fail(jinja, "a slice has a %s as a bound", jinja_type_name(bounds[i]));
        return false;
    }
    out->step = bounds[2].kind == JINJA_NONE ? 1 : jinja_integer(bounds[2]);
    if (out->step == 0 || out->step == INT64_MIN) {
        jinja_fail(jinja, "the step of a slice is 0");
        return false;
    }
    bool back = out->step < 0;
    int64_t least = back ? -1 : 0, most = back ? n - 1 : n;
    out->begin = bounds[0].kind == JINJA_NONE ? (back ? most : least)
                                              : bound(jinja_integer(bounds[0]), n, least, most);
    out->end = bounds[1].kind == JINJA_NONE ? (back ? least : most)
                                            : bound(jinja_integer(bounds[1]), n, least, most);
    return true;
}

static JinjaValue slice_list(Jinja *jinja, const JinjaList *list, const Range *range) {
    JinjaFlavor flavor = list->flavor == FLAVOR_TUPLE ? FLAVOR_TUPLE : FLAVOR_LIST;
    JinjaValue out = jinja_list(jinja, flavor, 0);
    int64_t i = range->begin;
    while (!jinja->failed && (range->step > 0 ? i < range->end : i > range->end)) {
        jinja_list_add(jinja, out.list, list->items[i]);
        if (__builtin_add_overflow(i, range->step, &i)) break;
    }
    return out;
}

static JinjaValue slice_string(Jinja *jinja, const JinjaString *string, const Range *range) {
    if (range->step == 1) {
        size_t begin = byte_of(string, range->begin), end = byte_of(string, range->end);
        return jinja_slice(jinja, string, begin, end > begin ? end : begin);
    }
    JinjaList *characters = jinja_items(jinja, JINJA_VALUE(JINJA_STRING, string, string));
    JinjaValue taken = slice_list(jinja, characters, range);
    JinjaBuilder out = {0};
    for (size_t i = 0; i < taken.list->count; i++) {
        jinja_put_string(jinja, &out, taken.list->items[i].string);
    }
    return jinja_built(jinja, &out);
}

JinjaValue jinja_sliced(Jinja *jinja, JinjaValue object, const JinjaValue bounds[3]) {
    Range range;
    if (object.kind == JINJA_UNDEFINED) return fail_undefined(jinja, object);
    bool is_list = object.kind == JINJA_LIST && object.list->flavor <= FLAVOR_RANGE;
    if (!is_list && object.kind != JINJA_STRING) return jinja_undefined(NULL);
    if (!read_range(jinja, bounds, jinja_length(jinja, object), &range)) return object;
    return is_list ? slice_list(jinja, object.list, &range)
                   : slice_string(jinja, object.string, &range);
}

static JinjaValue eval_item(Jinja *jinja, const JinjaNode *node) {
    JinjaValue object = jinja_eval(jinja, node->left), bounds[3];
    if (jinja->failed || node->right->kind != NODE_SLICE) {
        JinjaValue key = jinja->failed ? jinja_none() : jinja_eval(jinja, node->right);
        return jinja->failed ? key : jinja_item(jinja, object, key);
    }
    for (int i = 0; i < 3; i++) {
        const JinjaNode *at = node->right->items[i];
        bounds[i] = at ? jinja_eval(jinja, at) : jinja_none();
    }
    return jinja->failed ? object : jinja_sliced(jinja, object, bounds);
}

/* --- calls --- */

/* What is in *list and **dictionary comes behind the other arguments. */
static void spread(Jinja *jinja, const JinjaList *list, const JinjaDict *dict, JinjaCall *call) {
    size_t n_args = (size_t)call->n_args + (list ? list->count : 0), n = 0;
    size_t n_named = (size_t)call->n_named + (dict ? dict->count : 0);
    JinjaValue *args = jinja_alloc(jinja, (n_args + n_named + 1) * sizeof(*args));
    const char **names = jinja_alloc(jinja, (n_named + 1) * sizeof(*names));
    for (int i = 0; i < call->n_args; i++) args[n++] = call->args[i];
    for (size_t i = 0; list && i < list->count; i++) args[n++] = list->items[i];
    for (int i = 0; i < call->n_named; i++) names[i] = call->names[i];
    for (int i = 0; i < call->n_named; i++) args[n++] = call->named[i];
    for (size_t i = 0; dict && i < dict->count; i++) {
        const JinjaString *key = jinja_str(jinja, dict->entries[i].key);
        char *name = jinja_alloc(jinja, key->length + 1);
        memcpy(name, key->text, key->length);
        name[key->length] = '\0';
        names[(size_t)call->n_named + i] = name;
        args[n++] = dict->entries[i].value;
    }
    *call = (JinjaCall){args, (int)n_args, names, args + n_args, (int)n_named};
}

bool jinja_eval_call(Jinja *jinja, const JinjaNode *node, JinjaCall *out) {
    *out = (JinjaCall){.n_args = node->n_items, .names = node->names, .n_named = node->n_named};
    size_t n = (size_t)(node->n_items + node->n_named);
    if (n) out->args = jinja_alloc(jinja, n * sizeof(JinjaValue));
    if (n) out->named = out->args + node->n_items;
    for (int i = 0; i < node->n_items; i++) out->args[i] = jinja_eval(jinja, node->items[i]);
    for (int i = 0; i < node->n_named; i++) out->named[i] = jinja_eval(jinja, node->named[i]);
    if (jinja->failed || (!node->other && !node->condition)) return !jinja->failed;
    JinjaValue list = node->other ? jinja_eval(jinja, node->other) : jinja_none();
    JinjaValue dict = node->condition ? jinja_eval(jinja, node->condition) : jinja_none();
    if (!jinja->failed && node->condition && dict.kind != JINJA_DICT) {
        jinja_fail(jinja, "** before a %s", jinja_type_name(dict));
    }
    JinjaList *items = !jinja->failed && node->other ? jinja_items(jinja, list) : NULL;
    if (!jinja->failed) spread(jinja, items, node->condition ? dict.dict : NULL, out);
    return !jinja->failed;
}

static int find_param(const JinjaBuiltin *builtin, const char *name) {
    for (int i = 0; i < JINJA_MOST_PARAMS && builtin->params[i]; i++) {
        if (strcmp(builtin->params[i], name) == 0) return i;
    }
    return -1;
}

JinjaValue jinja_call_builtin(Jinja *jinja, const JinjaBuiltin *builtin, const char *what,
                              JinjaValue self, const JinjaCall *call) {
    JinjaValue args[JINJA_MOST_PARAMS] = {{JINJA_ABSENT, {NULL}}};
    int n = 0;
    if (builtin->any) return builtin->any(jinja, self, call);
    while (n < JINJA_MOST_PARAMS && builtin->params[n]) n++;
    if (call->n_args > n) {
        return jinja_fail(jinja, "%s %s: %d arguments, of at most %d", what, builtin->name,
                          call->n_args, n);
    }
    for (int i = 0; i < call->n_args; i++) args[i] = call->args[i];
    for (int i = 0; i < call->n_named; i++) {
        int at = find_param(builtin, call->names[i]);
        if (at < 0 || args[at].kind != JINJA_ABSENT) {
            return jinja_fail(jinja, "%s %s: the argument '%.40s' is not known, or there twice",
                              what, builtin->name, call->names[i]);
        }
        args[at] = call->named[i];
    }
    for (int i = 0; i < builtin->n_required; i++) {
        if (args[i].kind != JINJA_ABSENT) continue;
        return jinja_fail(jinja, "%s %s: the argument '%s' is missing", what, builtin->name,
                          builtin->params[i]);
    }
    return builtin->run(jinja, self, args);
}

JinjaValue jinja_call(Jinja *jinja, JinjaValue function, const JinjaCall *call) {
    JinjaValue out;
    switch (function.kind) {
    case JINJA_UNDEFINED: return fail_undefined(jinja, function);
    case JINJA_FUNCTION:
        return jinja_call_builtin(jinja, function.function, "the function", jinja_none(), call);
    case JINJA_METHOD:
        return jinja_call_builtin(jinja, function.method->builtin, "the method",
                                  function.method->self, call);
    case JINJA_MACRO:
        out = jinja_enter(jinja) ? jinja_call_macro(jinja, function.macro, call) : function;
        jinja->depth--;
        return out;
    default: return jinja_fail(jinja, "a %s is called", jinja_type_name(function));
    }
}

static JinjaValue eval_call(Jinja *jinja, const JinjaNode *node) {
    JinjaCall call;
    JinjaValue function = jinja_eval(jinja, node->left);
    if (jinja->failed || !jinja_eval_call(jinja, node, &call)) return function;
    jinja->line = node->line;
    return jinja_call(jinja, function, &call);
}

static JinjaValue eval_builtin(Jinja *jinja, const JinjaNode *node, const char *what) {
    JinjaCall call;
    JinjaValue self = jinja_eval(jinja, node->left);
    if (jinja->failed || !jinja_eval_call(jinja, node, &call)) return self;
    jinja->line = node->line;
    if (!node->builtin) {
        return jinja_fail(jinja, "%s '%.40s' is not known, or not supported", what, node->name);
    }
    return jinja_call_builtin(jinja, node->builtin, what, self, &call);
}

/* --- the rest --- */

static JinjaValue eval_list(Jinja *jinja, const JinjaNode *node) {
    JinjaFlavor flavor = node->kind == NODE_TUPLE ? FLAVOR_TUPLE : FLAVOR_LIST;
    JinjaValue out = jinja_list(jinja, flavor, (size_t)node->n_items);
    for (int i = 0; i < node->n_items && !jinja->failed; i++) {
        jinja_list_add(jinja, out.list, jinja_eval(jinja, node->items[i]));
    }
    return out;
}

static JinjaValue eval_dict(Jinja *jinja, const JinjaNode *node) {
    JinjaValue out = jinja_dict(jinja, JINJA_DICT, (size_t)node->n_items / 2);
    for (int i = 0; i < node->n_items && !jinja->failed; i += 2) {
        JinjaValue key = jinja_eval(jinja, node->items[i]);
        JinjaValue value = jinja_eval(jinja, node->items[i + 1]);
        if (!jinja->failed) jinja_dict_set(jinja, out.dict, key, value);
    }
    return out;
}

static JinjaValue eval_concat(Jinja *jinja, const JinjaNode *node) {
    JinjaBuilder out = {0};
    for (int i = 0; i < node->n_items && !jinja->failed; i++) {
        jinja_put_str(jinja, &out, jinja_eval(jinja, node->items[i]));
    }
    return jinja_built(jinja, &out);
}

static bool holds(Jinja *jinja, JinjaOperator op, JinjaValue a, JinjaValue b) {
    switch (op) {
    case OP_EQUAL: return jinja_equal(jinja, a, b);
    case OP_UNEQUAL: return !jinja_equal(jinja, a, b);
    case OP_LESS: return jinja_compare(jinja, a, b) < 0;
    case OP_LESS_EQUAL: return jinja_compare(jinja, a, b) <= 0;
    case OP_GREATER: return jinja_compare(jinja, a, b) > 0;
    case OP_GREATER_EQUAL: return jinja_compare(jinja, a, b) >= 0;
    case OP_IN: return jinja_contains(jinja, b, a);
    default: return !jinja_contains(jinja, b, a);
    }
}

static JinjaValue eval_compare(Jinja *jinja, const JinjaNode *node) {
    JinjaValue left = jinja_eval(jinja, node->left);
    for (int i = 0; i < node->n_items && !jinja->failed; i++) {
        JinjaValue right = jinja_eval(jinja, node->items[i]);
        if (jinja->failed) break;
        jinja->line = node->line;
        if (!holds(jinja, node->operators[i], left, right)) return jinja_bool(false);
        left = right;
    }
    return jinja_bool(true);
}

static JinjaValue eval_logic(Jinja *jinja, const JinjaNode *node) {
    JinjaValue left = jinja_eval(jinja, node->left);
    if (jinja->failed || jinja_truth(left) == (node->kind == NODE_OR)) return left;
    return jinja_eval(jinja, node->right);
}

static JinjaValue eval_choice(Jinja *jinja, const JinjaNode *node) {
    bool taken = jinja_truth(jinja_eval(jinja, node->right));
    if (jinja->failed || (!taken && !node->other)) return jinja_undefined(NULL);
    return jinja_eval(jinja, taken ? node->left : node->other);
}

static JinjaValue eval_binary(Jinja *jinja, const JinjaNode *node) {
    JinjaValue left = jinja_eval(jinja, node->left);
    JinjaValue right = jinja->failed ? left : jinja_eval(jinja, node->right);
    jinja->line = node->line;
    return jinja->failed ? left : jinja_binary(jinja, node->op, left, right);
}

static JinjaValue eval_attribute(Jinja *jinja, const JinjaNode *node) {
    JinjaValue object = jinja_eval(jinja, node->left);
    return jinja->failed ? object : jinja_attribute(jinja, object, node->name);
}

static JinjaValue eval_sign(Jinja *jinja, const JinjaNode *node) {
    JinjaValue value = jinja_eval(jinja, node->left);
    return jinja->failed ? value : jinja_negate(jinja, value, node->kind == NODE_POSITIVE);
}

static JinjaValue eval(Jinja *jinja, const JinjaNode *node) {
    switch (node->kind) {
    case NODE_CONST: return node->value;
    case NODE_NAME: return jinja_resolve(jinja, node->name);
    case NODE_LIST:
    case NODE_TUPLE: return eval_list(jinja, node);
    case NODE_DICT: return eval_dict(jinja, node);
    case NODE_ATTRIBUTE: return eval_attribute(jinja, node);
    case NODE_ITEM: return eval_item(jinja, node);
    case NODE_CALL: return eval_call(jinja, node);
    case NODE_FILTER: return eval_builtin(jinja, node, "the filter");
    case NODE_TEST: return eval_builtin(jinja, node, "the test");
    case NODE_NOT: return jinja_bool(!jinja_truth(jinja_eval(jinja, node->left)));
    case NODE_AND:
    case NODE_OR: return eval_logic(jinja, node);
    case NODE_NEGATE:
    case NODE_POSITIVE: return eval_sign(jinja, node);
    case NODE_BINARY: return eval_binary(jinja, node);
    case NODE_CONCAT: return eval_concat(jinja, node);
    case NODE_COMPARE: return eval_compare(jinja, node);
    case NODE_CHOICE: return eval_choice(jinja, node);
    default: BUG("no expression: %d", (int)node->kind);
    }
}

JinjaValue jinja_eval(Jinja *jinja, const JinjaNode *node) {
    JinjaValue out = jinja_none();
    jinja->line = node->line;
    if (jinja_enter(jinja) && jinja_step(jinja, 1)) out = eval(jinja, node);
    jinja->depth--;
    return out;
}
