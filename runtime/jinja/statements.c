/* Statements: what a template writes, in which order, and with which variables. Loops, macros and
 * blocks have scopes of their own; an `if` has none. */
#include "runtime/jinja/run.h"

#include <string.h>

/* --- assignments --- */

static void assign(Jinja *jinja, const JinjaNode *target, JinjaValue value);

static void unpack(Jinja *jinja, const JinjaNode *target, JinjaValue value) {
    JinjaList *items = jinja_items(jinja, value);
    if (!jinja->failed && items->count != (size_t)target->n_items) {
        jinja_fail(jinja, "%zu values are unpacked into %d names", items->count, target->n_items);
    }
    for (int i = 0; i < target->n_items && !jinja->failed; i++) {
        assign(jinja, target->items[i], items->items[i]);
    }
}

/* namespace.name = value */
static void assign_attribute(Jinja *jinja, const JinjaNode *target, JinjaValue value) {
    JinjaValue object = jinja_eval(jinja, target->left);
    if (jinja->failed) return;
    if (object.kind != JINJA_NAMESPACE || target->kind != NODE_ATTRIBUTE) {
        jinja_fail(jinja, "only a namespace's attributes can be set, not a %s's",
                   jinja_type_name(object));
    } else if (target->name[0] == '_') {
        jinja_fail(jinja, "a namespace's '%.40s' begins with _, which is not allowed",
                   target->name);
    } else {
        jinja_dict_set(jinja, object.dict, jinja_text(jinja, target->name), value);
    }
}

static void assign(Jinja *jinja, const JinjaNode *target, JinjaValue value) {
    if (target->kind == NODE_NAME) {
        jinja_assign(jinja, jinja->scope, target->name, value);
    } else if (target->kind == NODE_TUPLE) {
        unpack(jinja, target, value);
    } else {
        assign_attribute(jinja, target, value);
    }
}

/* --- blocks --- */

static void run_inside(Jinja *jinja, const JinjaNode *body) {
    JinjaScope *scope = jinja->scope;
    jinja->scope = jinja_push(jinja, scope);
    jinja_run(jinja, body);
    jinja->scope = scope;
}

/* What a body writes. */
static JinjaValue capture(Jinja *jinja, const JinjaNode *body) {
    JinjaBuilder own = {0}, *out = jinja->out;
    jinja->out = &own;
    run_inside(jinja, body);
    jinja->out = out;
    return jinja_built(jinja, &own);
}

/* Filters from the innermost on, the first of which takes `value`. */
static JinjaValue filtered(Jinja *jinja, const JinjaNode *filter, JinjaValue value) {
    JinjaCall call;
    if (filter->left) value = filtered(jinja, filter->left, value);
    if (jinja->failed || !jinja_eval_call(jinja, filter, &call)) return value;
    if (!filter->builtin) {
        return jinja_fail(jinja, "the filter '%.40s' is not known, or not supported", filter->name);
    }
    return jinja_call_builtin(jinja, filter->builtin, "the filter", value, &call);
}

/* All of it is marked as the answer. */
static void put_value(Jinja *jinja, JinjaValue value) {
    size_t begin = jinja->out->length;
    jinja_put_str(jinja, jinja->out, value);
    if (!jinja->mark) return;
    for (size_t i = begin; i < jinja->out->length; i++) jinja->out->marks[i] |= jinja->mark;
}

static void run_generation(Jinja *jinja, const JinjaNode *node) {
    unsigned char mark = jinja->mark;
    jinja->mark = JINJA_ANSWER;
    run_inside(jinja, node->body);
    jinja->mark = mark;
}

static void run_with(Jinja *jinja, const JinjaNode *node) {
    JinjaScope *scope = jinja->scope, *own = jinja_push(jinja, scope);
    for (int i = 0; i < node->n_items && !jinja->failed; i += 2) {
        JinjaValue value = jinja_eval(jinja, node->items[i + 1]); /* sees none of the others */
        jinja->scope = own;
        if (!jinja->failed) assign(jinja, node->items[i], value);
        jinja->scope = scope;
    }
    jinja->scope = own;
    jinja_run(jinja, node->body);
    jinja->scope = scope;
}

static void run_if(Jinja *jinja, const JinjaNode *node) {
    while (node && node->kind == NODE_IF) {
        bool taken = jinja_truth(jinja_eval(jinja, node->left));
        if (jinja->failed) return;
        node = taken ? node->body : node->other;
    }
    if (node) jinja_run(jinja, node);
}

/* --- loops --- */

/* One item more that passes, if there is one. */
static bool pull(JinjaLoop *loop) {
    Jinja *jinja = loop->jinja;
    while (loop->n_seen < loop->source->count && !jinja->failed) {
        JinjaValue item = loop->source->items[loop->n_seen++];
        bool passes = true;
        if (loop->node->condition) {
            JinjaScope *scope = jinja->scope;
            jinja->scope = jinja_push(jinja, loop->scope);
            assign(jinja, loop->node->left, item);
            passes = !jinja->failed && jinja_truth(jinja_eval(jinja, loop->node->condition));
            jinja->scope = scope;
        }
        if (jinja->failed || !passes) continue;
        jinja_list_add(jinja, loop->kept, item);
        return true;
    }
    return false;
}

static bool has_item(JinjaLoop *loop, size_t index) {
    while (loop->kept->count <= index && pull(loop)) {
    }
    return loop->kept->count > index;
}

static int64_t count_items(JinjaLoop *loop) {
    while (pull(loop)) {
    }
    return (int64_t)loop->kept->count;
}

static JinjaValue run_cycle(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    if (!call->n_args) return jinja_fail(jinja, "loop.cycle: nothing to choose from");
    return call->args[self.loop->index % (size_t)call->n_args];
}

static JinjaValue run_changed(Jinja *jinja, JinjaValue self, const JinjaCall *call) {
    JinjaValue now = jinja_list(jinja, FLAVOR_TUPLE, (size_t)call->n_args);
    for (int i = 0; i < call->n_args; i++) jinja_list_add(jinja, now.list, call->args[i]);
    bool same =
        self.loop->changed.kind == JINJA_LIST && jinja_equal(jinja, self.loop->changed, now);
    self.loop->changed = now;
    return jinja_bool(!same);
}

static JinjaValue loop_method(Jinja *jinja, JinjaLoop *loop, const JinjaBuiltin *builtin) {
    JinjaMethod *method = jinja_alloc(jinja, sizeof(*method));
    *method = (JinjaMethod){builtin, JINJA_VALUE(JINJA_LOOP, loop, loop)};
    return JINJA_VALUE(JINJA_METHOD, method, method);
}

JinjaValue jinja_loop_attribute(JinjaLoop *loop, const char *name) {
    static const JinjaBuiltin CYCLE = {.name = "cycle", .any = run_cycle};
    static const JinjaBuiltin CHANGED = {.name = "changed", .any = run_changed};
    int64_t at = (int64_t)loop->index;
    if (strcmp(name, "index0") == 0) return jinja_int(at);
    if (strcmp(name, "index") == 0) return jinja_int(at + 1);
    if (strcmp(name, "first") == 0) return jinja_bool(at == 0);
    if (strcmp(name, "last") == 0) return jinja_bool(!has_item(loop, loop->index + 1));
    if (strcmp(name, "length") == 0) return jinja_int(count_items(loop));
    if (strcmp(name, "revindex") == 0) return jinja_int(count_items(loop) - at);
    if (strcmp(name, "revindex0") == 0) return jinja_int(count_items(loop) - at - 1);
    if (strcmp(name, "depth") == 0) return jinja_int(1);
    if (strcmp(name, "depth0") == 0) return jinja_int(0);
    if (strcmp(name, "previtem") == 0) {
        return at ? loop->kept->items[at - 1] : jinja_undefined("previtem");
    }
    if (strcmp(name, "nextitem") == 0) {
        return has_item(loop, loop->index + 1) ? loop->kept->items[at + 1]
                                               : jinja_undefined("nextitem");
    }
    if (strcmp(name, "cycle") == 0) return loop_method(loop->jinja, loop, &CYCLE);
    if (strcmp(name, "changed") == 0) return loop_method(loop->jinja, loop, &CHANGED);
    return jinja_undefined(name);
}

static void run_items(Jinja *jinja, JinjaLoop *loop, const char *name) {
    for (; !jinja->failed && has_item(loop, loop->index); loop->index++) {
        jinja->scope = jinja_push(jinja, loop->scope);
        jinja_assign(jinja, jinja->scope, name, JINJA_VALUE(JINJA_LOOP, loop, loop));
        assign(jinja, loop->node->left, loop->kept->items[loop->index]);
        jinja_run(jinja, loop->node->body);
        jinja->continues = false;
        if (jinja->breaks) break;
    }
}

static void run_for(Jinja *jinja, const JinjaNode *node) {
    JinjaScope *scope = jinja->scope;
    JinjaValue source = jinja_eval(jinja, node->right);
    if (jinja->failed) return;
    JinjaLoop *loop = jinja_alloc(jinja, sizeof(*loop));
    *loop = (JinjaLoop){.jinja = jinja, .node = node, .scope = scope};
    loop->source = jinja_items(jinja, source);
    loop->kept = node->condition ? jinja_list(jinja, FLAVOR_LIST, 0).list : loop->source;
    if (!node->condition) loop->n_seen = loop->source->count;
    run_items(jinja, loop, node->name);
    jinja->breaks = false;
    jinja->scope = scope;
    if (!jinja->failed && node->other && loop->kept->count == 0) run_inside(jinja, node->other);
}

/* --- macros --- */

static JinjaValue make_macro(Jinja *jinja, const JinjaNode *node) {
    JinjaMacro *macro = jinja_alloc(jinja, sizeof(*macro));
    *macro = (JinjaMacro){node, jinja->scope};
    return JINJA_VALUE(JINJA_MACRO, macro, macro);
}

static bool bind_named(Jinja *jinja, const JinjaNode *node, const JinjaCall *call,
                       JinjaValue *values) {
    for (int i = 0; i < call->n_named; i++) {
        int at = 0;
        while (at < node->n_named && strcmp(node->names[at], call->names[i]) != 0) at++;
        if (strcmp(call->names[i], "caller") == 0 && at == node->n_named) {
            jinja_assign(jinja, jinja->scope, call->names[i], call->named[i]);
            continue;
        }
        if (at == node->n_named || values[at].kind != JINJA_ABSENT) {
            jinja_fail(jinja, "the macro %s: the argument '%.40s' is not known, or there twice",
                       node->name, call->names[i]);
            return false;
        }
        values[at] = call->named[i];
    }
    return true;
}

/* The arguments are variables of the scope. */
static bool bind_arguments(Jinja *jinja, const JinjaNode *node, const JinjaCall *call) {
    size_t n = (size_t)node->n_named;
    JinjaValue *values = jinja_alloc(jinja, (n + 1) * sizeof(*values));
    if (call->n_args > node->n_named) {
        jinja_fail(jinja, "the macro %s: %d arguments, of at most %d", node->name, call->n_args,
                   node->n_named);
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = (int)i < call->n_args ? call->args[i] : (JinjaValue){JINJA_ABSENT, {NULL}};
    }
    if (!bind_named(jinja, node, call, values)) return false;
    for (size_t i = 0; i < n && !jinja->failed; i++) {
        if (values[i].kind == JINJA_ABSENT) {
            values[i] = node->items[i] ? jinja_eval(jinja, node->items[i])
                                       : jinja_undefined(node->names[i]);
        }
        jinja_assign(jinja, jinja->scope, node->names[i], values[i]);
    }
    return !jinja->failed;
}

JinjaValue jinja_call_macro(Jinja *jinja, const JinjaMacro *macro, const JinjaCall *call) {
    JinjaScope *scope = jinja->scope;
    JinjaBuilder own = {0}, *out = jinja->out;
    jinja->scope = jinja_push(jinja, macro->scope);
    jinja->out = &own;
    if (bind_arguments(jinja, macro->node, call)) jinja_run(jinja, macro->node->body);
    jinja->out = out;
    jinja->scope = scope;
    return jinja_built(jinja, &own);
}

static void run_call_block(Jinja *jinja, const JinjaNode *node) {
    JinjaCall call;
    JinjaValue macro = jinja_eval(jinja, node->left->left);
    if (jinja->failed || !jinja_eval_call(jinja, node->left, &call)) return;
    size_t n = (size_t)call.n_named;
    const char **names = jinja_alloc(jinja, (n + 1) * sizeof(*names));
    JinjaValue *named = jinja_alloc(jinja, (n + 1) * sizeof(*named));
    if (n) memcpy(names, call.names, n * sizeof(*names));
    if (n) memcpy(named, call.named, n * sizeof(*named));
    names[n] = node->other->name;
    named[n] = make_macro(jinja, node->other);
    call.names = names;
    call.named = named;
    call.n_named++;
    put_value(jinja, jinja_call(jinja, macro, &call));
}

/* --- which of them it is --- */

static void run_set_block(Jinja *jinja, const JinjaNode *node) {
    JinjaValue value = capture(jinja, node->body);
    if (!jinja->failed && node->right) value = filtered(jinja, node->right, value);
    if (!jinja->failed) assign(jinja, node->left, value);
}

static void run_filter_block(Jinja *jinja, const JinjaNode *node) {
    JinjaValue value = capture(jinja, node->body);
    if (!jinja->failed) value = filtered(jinja, node->right, value);
    if (!jinja->failed) put_value(jinja, value);
}

static void run_print(Jinja *jinja, const JinjaNode *node) {
    JinjaValue value = jinja_eval(jinja, node->left);
    if (!jinja->failed) put_value(jinja, value);
}

static void run_set(Jinja *jinja, const JinjaNode *node) {
    JinjaValue value = jinja_eval(jinja, node->right);
    if (!jinja->failed) assign(jinja, node->left, value);
}

static void run_block(Jinja *jinja, const JinjaNode *node) {
    for (int i = 0; i < node->n_items; i++) {
        if (jinja->failed || jinja->breaks || jinja->continues) return;
        jinja_run(jinja, node->items[i]);
    }
}

static void run(Jinja *jinja, const JinjaNode *node) {
    switch (node->kind) {
    case NODE_BLOCK: run_block(jinja, node); break;
    case NODE_TEXT: put_value(jinja, node->value); break;
    case NODE_PRINT: run_print(jinja, node); break;
    case NODE_SET: run_set(jinja, node); break;
    case NODE_SET_BLOCK: run_set_block(jinja, node); break;
    case NODE_IF: run_if(jinja, node); break;
    case NODE_FOR: run_for(jinja, node); break;
    case NODE_MACRO: jinja_assign(jinja, jinja->scope, node->name, make_macro(jinja, node)); break;
    case NODE_WITH: run_with(jinja, node); break;
    case NODE_FILTER_BLOCK: run_filter_block(jinja, node); break;
    case NODE_CALL_BLOCK: run_call_block(jinja, node); break;
    case NODE_GENERATION: run_generation(jinja, node); break;
    case NODE_BREAK: jinja->breaks = true; break;
    case NODE_CONTINUE: jinja->continues = true; break;
    default: BUG("no statement: %d", (int)node->kind);
    }
}

void jinja_run(Jinja *jinja, const JinjaNode *node) {
    jinja->line = node->line;
    if (jinja_enter(jinja) && jinja_step(jinja, 1)) run(jinja, node);
    jinja->depth--;
}
