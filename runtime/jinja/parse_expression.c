/* Expressions, as Jinja's own parser divides them: `-x|abs` is the filter of -x, `a ~ b + c` adds
 * last, `not` binds more loosely than comparisons. */
#include "runtime/jinja/parser.h"
#include "runtime/jinja/run.h"

#include <string.h>

enum { MOST_DEPTH = 100 };

/* Deeper by one: left by p->depth--. */
static bool enter(JinjaParser *p) {
    if (++p->depth > MOST_DEPTH) jinja_refuse(p, "is nested too deeply");
    return !p->failed;
}

static JinjaNode *pair(JinjaParser *p, JinjaNodeKind kind, JinjaNode *left, JinjaNode *right) {
    JinjaNode *node = jinja_node(p, kind);
    node->left = left;
    node->right = right;
    return node;
}

static JinjaNode *constant(JinjaParser *p, JinjaValue value) {
    JinjaNode *node = jinja_node(p, NODE_CONST);
    node->value = value;
    return node;
}

/* --- arguments --- */

/* *list or **dictionary: what is in it are arguments. */
static void parse_spread(JinjaParser *p, JinjaNode *call, bool named) {
    JinjaNode **place = named ? &call->condition : &call->other;
    p->at++;
    if (*place) jinja_refuse(p, "a second one of * or ** is not supported");
    *place = jinja_parse_expression(p);
}

static void parse_argument(JinjaParser *p, JinjaNode *call) {
    bool is_named =
        p->at->kind == TOKEN_NAME && p->at[1].kind == TOKEN_SIGN && strcmp(p->at[1].text, "=") == 0;
    if (jinja_at_sign(p, "*") || jinja_at_sign(p, "**")) {
        parse_spread(p, call, jinja_at_sign(p, "**"));
        return;
    }
    if (!is_named) {
        if (call->n_named) jinja_refuse(p, "an argument without a name follows one with a name");
        jinja_node_add(p, call, jinja_parse_expression(p));
        return;
    }
    const char *name = jinja_intern(p, p->at->text);
    p->at += 2;
    ARENA_PUSH(p->arena, call->names, call->n_named, call->names_capacity, name);
    int n = call->n_named - 1;
    JinjaNode *value = jinja_parse_expression(p);
    ARENA_PUSH(p->arena, call->named, n, call->named_capacity, value);
}

/* At its bracket. */
/* Before each thing in brackets: is there another one? Takes the comma behind the one before, which
 * the last one may have, too, and the end. */
static bool has_another(JinjaParser *p, bool *first, const char *end) {
    if (p->failed || jinja_skip_sign(p, end)) return false;
    if (*first) {
        *first = false;
        return true;
    }
    return jinja_expect_sign(p, ",") && !jinja_skip_sign(p, end);
}

static void parse_arguments(JinjaParser *p, JinjaNode *call) {
    bool first = true;
    jinja_expect_sign(p, "(");
    while (has_another(p, &first, ")")) parse_argument(p, call);
}

JinjaNode *jinja_parse_call(JinjaParser *p, JinjaNode *called) {
    JinjaNode *node = jinja_node(p, NODE_CALL);
    node->left = called;
    parse_arguments(p, node);
    return node;
}

/* --- what an expression begins with --- */

static JinjaNode *parse_list(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_LIST);
    bool first = true;
    jinja_expect_sign(p, "[");
    while (has_another(p, &first, "]")) jinja_node_add(p, node, jinja_parse_expression(p));
    return node;
}

static JinjaNode *parse_dict(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_DICT);
    bool first = true;
    jinja_expect_sign(p, "{");
    while (has_another(p, &first, "}")) {
        jinja_node_add(p, node, jinja_parse_expression(p));
        jinja_expect_sign(p, ":");
        jinja_node_add(p, node, jinja_parse_expression(p));
    }
    return node;
}

static JinjaNode *parse_bracket(JinjaParser *p) {
    JinjaNode *node;
    jinja_expect_sign(p, "(");
    if (jinja_skip_sign(p, ")")) return jinja_node(p, NODE_TUPLE);
    node = jinja_parse_tuple(p, true);
    jinja_expect_sign(p, ")");
    return node;
}

static JinjaNode *parse_string(JinjaParser *p) {
    JinjaString *string = ARENA_NEW(p->arena, JinjaString);
    string->text = p->at->text;
    string->length = p->at->length;
    for (p->at++; p->at->kind == TOKEN_STRING; p->at++) { /* in a row they are one */
        char *text = arena_alloc(p->arena, string->length + p->at->length + 1);
        memcpy(text, string->text, string->length);
        memcpy(text + string->length, p->at->text, p->at->length);
        string->text = text;
        string->length += p->at->length;
    }
    return constant(p, JINJA_VALUE(JINJA_STRING, string, string));
}

static JinjaNode *parse_name(JinjaParser *p) {
    const char *name = (p->at++)->text;
    for (int capital = 0; capital < 2; capital++) {
        if (strcmp(name, capital ? "True" : "true") == 0) return constant(p, jinja_bool(true));
        if (strcmp(name, capital ? "False" : "false") == 0) return constant(p, jinja_bool(false));
        if (strcmp(name, capital ? "None" : "none") == 0) return constant(p, jinja_none());
    }
    if (strcmp(name, "varargs") == 0 || strcmp(name, "kwargs") == 0) {
        return jinja_refuse(p, "'%s' of macros is not supported", name);
    }
    JinjaNode *node = jinja_node(p, NODE_NAME);
    node->name = jinja_intern(p, name);
    return node;
}

static JinjaNode *parse_primary(JinjaParser *p) {
    const JinjaToken *token = p->at;
    switch (token->kind) {
    case TOKEN_NAME: return parse_name(p);
    case TOKEN_STRING: return parse_string(p);
    case TOKEN_INTEGER: p->at++; return constant(p, jinja_int(token->integer));
    case TOKEN_FLOAT: p->at++; return constant(p, jinja_float(token->real));
    default: break;
    }
    if (jinja_at_sign(p, "(")) return parse_bracket(p);
    if (jinja_at_sign(p, "[")) return parse_list(p);
    if (jinja_at_sign(p, "{")) return parse_dict(p);
    return jinja_refuse(p, "a value was expected");
}

/* --- what follows --- */

static JinjaNode *parse_attribute(JinjaParser *p, JinjaNode *left) {
    if (p->at->kind == TOKEN_INTEGER) {
        return pair(p, NODE_ITEM, left, constant(p, jinja_int((p->at++)->integer)));
    }
    if (p->at->kind != TOKEN_NAME) return jinja_refuse(p, "a name was expected behind '.'");
    JinjaNode *node = pair(p, NODE_ATTRIBUTE, left, NULL);
    node->name = jinja_intern(p, (p->at++)->text);
    return node;
}

/* [key], or [begin:end:step], of which each may be missing. */
static JinjaNode *parse_item(JinjaParser *p, JinjaNode *left) {
    JinjaNode *first = jinja_at_sign(p, ":") ? NULL : jinja_parse_expression(p);
    if (jinja_at_sign(p, ",")) return jinja_refuse(p, "several keys are not supported");
    if (!jinja_at_sign(p, ":")) {
        jinja_expect_sign(p, "]");
        return pair(p, NODE_ITEM, left, first);
    }
    JinjaNode *slice = jinja_node(p, NODE_SLICE);
    jinja_node_add(p, slice, first);
    while (slice->n_items < 3 && jinja_skip_sign(p, ":")) {
        bool none = jinja_at_sign(p, ":") || jinja_at_sign(p, "]");
        jinja_node_add(p, slice, none ? NULL : jinja_parse_expression(p));
    }
    while (slice->n_items < 3) jinja_node_add(p, slice, NULL);
    jinja_expect_sign(p, "]");
    return pair(p, NODE_ITEM, left, slice);
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *node) {
    int begin = p->depth; /* a chain is a tree that leans to the left: as deep as it is long */
    while (!p->failed && enter(p)) {
        if (jinja_skip_sign(p, ".")) {
            node = parse_attribute(p, node);
        } else if (jinja_skip_sign(p, "[")) {
            node = parse_item(p, node);
        } else if (jinja_at_sign(p, "(")) {
            node = jinja_parse_call(p, node);
        } else {
            break;
        }
    }
    p->depth = begin;
    return node;
}

/* A filter's or a test's name, and what it is. */
static JinjaNode *parse_builtin(JinjaParser *p, JinjaNodeKind kind, JinjaNode *left) {
    JinjaNode *node = pair(p, kind, left, NULL);
    if (p->at->kind != TOKEN_NAME) return jinja_refuse(p, "a name was expected");
    const char *name = p->at->text;
    node->builtin = kind == NODE_FILTER ? jinja_find_filter(name) : jinja_find_test(name);
    node->name = name;
    if (!node->builtin && !p->n_choices) { /* else when it comes to it, as Jinja does */
        return jinja_refuse(p, "the %s '%.40s' is not known, or not supported",
                            kind == NODE_FILTER ? "filter" : "test", name);
    }
    p->at++;
    return node;
}

static JinjaNode *parse_filter(JinjaParser *p, JinjaNode *left) {
    JinjaNode *node = parse_builtin(p, NODE_FILTER, left);
    if (!p->failed && jinja_at_sign(p, "(")) parse_arguments(p, node);
    return node;
}

JinjaNode *jinja_parse_filters(JinjaParser *p) {
    JinjaNode *node = parse_filter(p, NULL);
    for (int n = 0; !p->failed && jinja_skip_sign(p, "|"); n++) {
        node = n < MOST_DEPTH ? parse_filter(p, node) : jinja_refuse(p, "too many filters");
    }
    return node;
}

/* A test's argument may come without brackets. */
static bool begins_argument(const JinjaParser *p) {
    switch (p->at->kind) {
    case TOKEN_STRING:
    case TOKEN_INTEGER:
    case TOKEN_FLOAT: return true;
    case TOKEN_NAME:
        return !jinja_at_name(p, "else") && !jinja_at_name(p, "or") && !jinja_at_name(p, "and");
    default: return jinja_at_sign(p, "[") || jinja_at_sign(p, "{");
    }
}

static JinjaNode *parse_test(JinjaParser *p, JinjaNode *left) {
    bool negated = jinja_skip_name(p, "not");
    JinjaNode *node = parse_builtin(p, NODE_TEST, left);
    if (p->failed) return node;
    if (jinja_at_sign(p, "(")) {
        parse_arguments(p, node);
    } else if (begins_argument(p)) {
        if (jinja_at_name(p, "is")) return jinja_refuse(p, "tests cannot be chained with 'is'");
        jinja_node_add(p, node, parse_postfix(p, parse_primary(p)));
    }
    return negated ? pair(p, NODE_NOT, node, NULL) : node;
}

static JinjaNode *parse_unary(JinjaParser *p, bool filters) {
    JinjaNode *node;
    int begin = p->depth;
    if (!enter(p)) {
        node = jinja_node(p, NODE_CONST);
    } else if (jinja_skip_sign(p, "-")) {
        node = pair(p, NODE_NEGATE, parse_unary(p, false), NULL);
    } else if (jinja_skip_sign(p, "+")) {
        node = pair(p, NODE_POSITIVE, parse_unary(p, false), NULL);
    } else {
        node = parse_primary(p);
    }
    node = parse_postfix(p, node);
    while (filters && !p->failed && enter(p)) {
        if (jinja_skip_sign(p, "|")) {
            node = parse_filter(p, node);
        } else if (jinja_skip_name(p, "is")) {
            node = parse_test(p, node);
        } else if (jinja_at_sign(p, "(")) {
            node = jinja_parse_call(p, node);
        } else {
            break;
        }
    }
    p->depth = begin;
    return node;
}

/* --- operators, the closest first --- */

typedef struct Sign {
    const char *text;
    JinjaOperator op;
} Sign;

/* One of the signs [n] is next: goes on behind it. */
static bool take_operator(JinjaParser *p, const Sign *signs, int n, JinjaOperator *out) {
    for (int i = 0; i < n; i++) {
        if (!jinja_skip_sign(p, signs[i].text)) continue;
        *out = signs[i].op;
        return true;
    }
    return false;
}

/* Operators of one strength, from the left; the tree is as deep as there are many. */
static JinjaNode *parse_level(JinjaParser *p, const Sign *signs, int n,
                              JinjaNode *(*inner)(JinjaParser *)) {
    JinjaNode *node = inner(p);
    JinjaOperator op;
    int begin = p->depth;
    while (!p->failed && take_operator(p, signs, n, &op) && enter(p)) {
        node = pair(p, NODE_BINARY, node, inner(p));
        node->op = op;
    }
    p->depth = begin;
    return node;
}

static JinjaNode *parse_plain(JinjaParser *p) {
    return parse_unary(p, true);
}

static JinjaNode *parse_power(JinjaParser *p) {
    static const Sign SIGNS[] = {{"**", OP_POWER}};
    return parse_level(p, SIGNS, 1, parse_plain);
}

static JinjaNode *parse_product(JinjaParser *p) {
    static const Sign SIGNS[] = {
        {"//", OP_FLOOR}, {"*", OP_MULTIPLY}, {"/", OP_DIVIDE}, {"%", OP_MODULO}};
    return parse_level(p, SIGNS, 4, parse_power);
}

static JinjaNode *parse_concat(JinjaParser *p) {
    JinjaNode *first = parse_product(p);
    if (!jinja_at_sign(p, "~")) return first;
    JinjaNode *node = jinja_node(p, NODE_CONCAT);
    jinja_node_add(p, node, first);
    while (!p->failed && jinja_skip_sign(p, "~")) jinja_node_add(p, node, parse_product(p));
    return node;
}

static JinjaNode *parse_sum(JinjaParser *p) {
    static const Sign SIGNS[] = {{"+", OP_ADD}, {"-", OP_SUBTRACT}};
    return parse_level(p, SIGNS, 2, parse_concat);
}

static bool take_comparison(JinjaParser *p, JinjaOperator *out) {
    static const Sign SIGNS[] = {{"==", OP_EQUAL},      {"!=", OP_UNEQUAL},
                                 {"<=", OP_LESS_EQUAL}, {">=", OP_GREATER_EQUAL},
                                 {"<", OP_LESS},        {">", OP_GREATER}};
    if (take_operator(p, SIGNS, 6, out)) return true;
    *out = OP_IN;
    if (jinja_skip_name(p, "in")) return true;
    if (!jinja_at_name(p, "not") || p->at[1].kind != TOKEN_NAME ||
        strcmp(p->at[1].text, "in") != 0) {
        return false;
    }
    p->at += 2;
    *out = OP_NOT_IN;
    return true;
}

static JinjaNode *parse_compare(JinjaParser *p) {
    JinjaNode *first = parse_sum(p), *node = NULL;
    JinjaOperator op;
    while (!p->failed && take_comparison(p, &op)) {
        if (!node) node = pair(p, NODE_COMPARE, first, NULL);
        ARENA_PUSH(p->arena, node->operators, node->n_operators, node->operators_capacity, op);
        jinja_node_add(p, node, parse_sum(p));
    }
    return node ? node : first;
}

static JinjaNode *parse_not(JinjaParser *p) {
    if (!jinja_at_name(p, "not")) return parse_compare(p);
    p->at++;
    JinjaNode *node = enter(p) ? pair(p, NODE_NOT, parse_not(p), NULL) : jinja_node(p, NODE_CONST);
    p->depth--;
    return node;
}

static JinjaNode *parse_logic(JinjaParser *p, const char *name, JinjaNodeKind kind,
                              JinjaNode *(*inner)(JinjaParser *)) {
    JinjaNode *node = inner(p);
    int begin = p->depth;
    while (!p->failed && jinja_skip_name(p, name) && enter(p)) node = pair(p, kind, node, inner(p));
    p->depth = begin;
    return node;
}

static JinjaNode *parse_and(JinjaParser *p) {
    return parse_logic(p, "and", NODE_AND, parse_not);
}

static JinjaNode *parse_or(JinjaParser *p) {
    return parse_logic(p, "or", NODE_OR, parse_and);
}

JinjaNode *jinja_parse_expression(JinjaParser *p) {
    int begin = p->depth;
    if (!enter(p)) return jinja_node(p, NODE_CONST);
    JinjaNode *node = parse_or(p);
    while (!p->failed && jinja_skip_name(p, "if") && enter(p)) {
        node = pair(p, NODE_CHOICE, node, parse_or(p));
        p->n_choices++;
        if (jinja_skip_name(p, "else")) node->other = jinja_parse_expression(p);
        p->n_choices--;
    }
    p->depth = begin;
    return node;
}

static bool ends_tuple(const JinjaParser *p) {
    return p->at->kind == TOKEN_PRINT_END || p->at->kind == TOKEN_TAG_END || jinja_at_sign(p, ")");
}

JinjaNode *jinja_parse_tuple(JinjaParser *p, bool choices) {
    JinjaNode *first = choices ? jinja_parse_expression(p) : parse_or(p);
    if (!jinja_at_sign(p, ",")) return first;
    JinjaNode *node = jinja_node(p, NODE_TUPLE);
    jinja_node_add(p, node, first);
    while (!p->failed && jinja_skip_sign(p, ",") && !ends_tuple(p)) {
        jinja_node_add(p, node, choices ? jinja_parse_expression(p) : parse_or(p));
    }
    return node;
}

/* --- targets --- */

static JinjaNode *parse_one_target(JinjaParser *p) {
    JinjaNode *node;
    if (jinja_skip_sign(p, "(")) {
        int begin = p->depth;
        node = enter(p) ? jinja_parse_target(p, false) : jinja_node(p, NODE_CONST);
        p->depth = begin;
        jinja_expect_sign(p, ")");
        return node;
    }
    if (p->at->kind != TOKEN_NAME) return jinja_refuse(p, "a name was expected");
    node = jinja_node(p, NODE_NAME);
    node->name = jinja_intern(p, (p->at++)->text);
    return node;
}

JinjaNode *jinja_parse_target(JinjaParser *p, bool may_attribute) {
    JinjaNode *first = parse_one_target(p);
    if (may_attribute && first->kind == NODE_NAME && jinja_skip_sign(p, ".")) {
        return parse_attribute(p, first);
    }
    if (!jinja_at_sign(p, ",")) return first;
    JinjaNode *node = jinja_node(p, NODE_TUPLE);
    jinja_node_add(p, node, first);
    while (!p->failed && jinja_skip_sign(p, ",") && p->at->kind == TOKEN_NAME &&
           !jinja_at_name(p, "in")) {
        jinja_node_add(p, node, parse_one_target(p));
    }
    return node;
}
