/* Statements, and a template as a whole. */
#include "runtime/jinja/parser.h"
#include "runtime/jinja/run.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BLOCKS = 64 };

/* --- what the rooms share --- */

JinjaNode *jinja_node(JinjaParser *p, JinjaNodeKind kind) {
    JinjaNode *node = ARENA_NEW(p->arena, JinjaNode);
    node->kind = kind;
    node->line = p->at->line;
    return node;
}

void jinja_node_add(JinjaParser *p, JinjaNode *node, JinjaNode *item) {
    ARENA_PUSH(p->arena, node->items, node->n_items, node->items_capacity, item);
}

JinjaNode *jinja_refuse(JinjaParser *p, const char *format, ...) {
    char why[256];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    if (!p->failed) {
        bool inside = p->at->kind >= TOKEN_NAME && p->at->kind < TOKEN_END;
        diag_error(p->diag, (SourceLoc){p->template->path, p->at->line}, "%s%s%.40s%s", why,
                   inside ? ", at '" : "", inside ? p->at->text : "", inside ? "'" : "");
    }
    p->failed = true;
    return jinja_node(p, NODE_CONST);
}

bool jinja_at_sign(const JinjaParser *p, const char *sign) {
    return p->at->kind == TOKEN_SIGN && strcmp(p->at->text, sign) == 0;
}

bool jinja_at_name(const JinjaParser *p, const char *name) {
    return p->at->kind == TOKEN_NAME && strcmp(p->at->text, name) == 0;
}

bool jinja_skip_sign(JinjaParser *p, const char *sign) {
    bool there = jinja_at_sign(p, sign);
    p->at += there;
    return there;
}

bool jinja_skip_name(JinjaParser *p, const char *name) {
    bool there = jinja_at_name(p, name);
    p->at += there;
    return there;
}

bool jinja_expect_sign(JinjaParser *p, const char *sign) {
    if (jinja_skip_sign(p, sign)) return true;
    jinja_refuse(p, "'%s' was expected", sign);
    return false;
}

/* --- names --- */

static size_t hash_name(const char *name) {
    size_t hash = 5381;
    for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
    return hash;
}

/* Where a name is in the table, or would be. */
static const char **slot_of(const JinjaTemplate *template, const char *name) {
    size_t i = hash_name(name) % (size_t) template->n_slots;
    while (template->names[i] && strcmp(template->names[i], name) != 0) {
        i = (i + 1) % (size_t) template->n_slots;
    }
    return &template->names[i];
}

static void grow_names(JinjaParser *p) {
    JinjaTemplate old = *p->template;
    p->template->n_slots = old.n_slots ? 2 * old.n_slots : 128;
    p->template->names = ARENA_ARRAY(p->arena, const char *, p->template->n_slots);
    for (int i = 0; i < old.n_slots; i++) {
        if (old.names[i]) *slot_of(p->template, old.names[i]) = old.names[i];
    }
}

const char *jinja_intern(JinjaParser *p, const char *name) {
    if (2 * p->template->n_names >= p->template->n_slots) grow_names(p);
    const char **slot = slot_of(p->template, name);
    if (!*slot) {
        *slot = name;
        p->template->n_names++;
    }
    return *slot;
}

bool jinja_names(const JinjaTemplate *template, const char *name) {
    return *slot_of(template, name) != NULL;
}

bool jinja_has_generation(const JinjaTemplate *template) {
    return template->has_generation;
}

/* --- statements --- */

static JinjaNode *parse_body(JinjaParser *p, const char *const *ends, int n_ends);

static void expect_end(JinjaParser *p) {
    if (p->failed) return;
    if (p->at->kind != TOKEN_TAG_END) {
        jinja_refuse(p, "the tag should end here");
        return;
    }
    p->at++;
}

/* From the tag's end to `end`, whose name is taken. */
static JinjaNode *parse_until(JinjaParser *p, const char *end) {
    expect_end(p);
    JinjaNode *body = parse_body(p, &end, 1);
    if (!p->failed) p->at++;
    return body;
}

static JinjaNode *parse_if(JinjaParser *p) {
    static const char *const ENDS[] = {"elif", "else", "endif"};
    JinjaNode *first = jinja_node(p, NODE_IF), *node = first;
    p->n_choices++;
    for (;;) {
        node->left = jinja_parse_tuple(p, false);
        expect_end(p);
        node->body = parse_body(p, ENDS, 3);
        if (p->failed || !jinja_skip_name(p, "elif")) break;
        node = node->other = jinja_node(p, NODE_IF);
    }
    if (!p->failed && jinja_skip_name(p, "else")) {
        node->other = parse_until(p, "endif");
    } else if (!p->failed) {
        p->at++;
    }
    p->n_choices--;
    return first;
}

static JinjaNode *parse_for(JinjaParser *p) {
    static const char *const ENDS[] = {"endfor", "else"};
    JinjaNode *node = jinja_node(p, NODE_FOR);
    node->name = jinja_intern(p, "loop");
    node->left = jinja_parse_target(p, false);
    if (!p->failed && !jinja_skip_name(p, "in")) return jinja_refuse(p, "'in' was expected");
    node->right = jinja_parse_tuple(p, false);
    if (jinja_skip_name(p, "if")) node->condition = jinja_parse_expression(p);
    if (jinja_at_name(p, "recursive")) return jinja_refuse(p, "recursive loops are not supported");
    expect_end(p);
    p->n_loops++;
    node->body = parse_body(p, ENDS, 2);
    p->n_loops--;
    if (!p->failed && jinja_skip_name(p, "else")) {
        node->other = parse_until(p, "endfor");
    } else if (!p->failed) {
        p->at++;
    }
    return node;
}

static JinjaNode *parse_set(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_SET);
    node->left = jinja_parse_target(p, true);
    if (jinja_skip_sign(p, "=")) {
        node->right = jinja_parse_tuple(p, true);
        return node;
    }
    node->kind = NODE_SET_BLOCK;
    if (jinja_skip_sign(p, "|")) node->right = jinja_parse_filters(p);
    node->body = parse_until(p, "endset");
    return node;
}

/* (a, b=1): into names and items. */
static void parse_parameters(JinjaParser *p, JinjaNode *node) {
    jinja_expect_sign(p, "(");
    while (!p->failed && !jinja_skip_sign(p, ")")) {
        if (node->n_named && !jinja_expect_sign(p, ",")) return;
        if (p->at->kind != TOKEN_NAME) {
            jinja_refuse(p, "a parameter's name was expected");
            return;
        }
        const char *name = jinja_intern(p, (p->at++)->text);
        ARENA_PUSH(p->arena, node->names, node->n_named, node->names_capacity, name);
        bool has_default = jinja_skip_sign(p, "=");
        if (!has_default && node->n_items && node->items[node->n_items - 1]) {
            jinja_refuse(p, "a parameter without a default follows one that has one");
        }
        jinja_node_add(p, node, has_default ? jinja_parse_expression(p) : NULL);
    }
}

/* That loops around it are not loops of. */
static JinjaNode *parse_own_body(JinjaParser *p, const char *end) {
    int n_loops = p->n_loops;
    p->n_loops = 0;
    JinjaNode *body = parse_until(p, end);
    p->n_loops = n_loops;
    return body;
}

static JinjaNode *parse_macro(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_MACRO);
    if (p->at->kind != TOKEN_NAME) return jinja_refuse(p, "a macro's name was expected");
    node->name = jinja_intern(p, (p->at++)->text);
    parse_parameters(p, node);
    node->body = parse_own_body(p, "endmacro");
    return node;
}

/* {% call(a) f(x) %}...{% endcall %}: f's `caller` is a macro of what is between. */
static JinjaNode *parse_call_block(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_CALL_BLOCK), *caller = jinja_node(p, NODE_MACRO);
    caller->name = jinja_intern(p, "caller");
    if (jinja_at_sign(p, "(")) parse_parameters(p, caller);
    node->left = jinja_parse_expression(p);
    node->other = caller;
    if (!p->failed && node->left->kind != NODE_CALL) return jinja_refuse(p, "a call was expected");
    caller->body = parse_own_body(p, "endcall");
    return node;
}

static JinjaNode *parse_with(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_WITH);
    while (!p->failed && p->at->kind != TOKEN_TAG_END) {
        if (node->n_items && !jinja_expect_sign(p, ",")) break;
        jinja_node_add(p, node, jinja_parse_target(p, false));
        jinja_expect_sign(p, "=");
        jinja_node_add(p, node, jinja_parse_expression(p));
    }
    node->body = parse_until(p, "endwith");
    return node;
}

static JinjaNode *parse_filter_block(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_FILTER_BLOCK);
    node->right = jinja_parse_filters(p);
    node->body = parse_until(p, "endfilter");
    return node;
}

static JinjaNode *parse_generation(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_GENERATION);
    p->template->has_generation = true;
    node->body = parse_own_body(p, "endgeneration");
    return node;
}

static JinjaNode *parse_break(JinjaParser *p) {
    if (!p->n_loops) return jinja_refuse(p, "'break' is in no loop");
    return jinja_node(p, NODE_BREAK);
}

static JinjaNode *parse_continue(JinjaParser *p) {
    if (!p->n_loops) return jinja_refuse(p, "'continue' is in no loop");
    return jinja_node(p, NODE_CONTINUE);
}

/* Behind {%. */
static JinjaNode *parse_statement(JinjaParser *p) {
    static const struct {
        const char *name;
        JinjaNode *(*parse)(JinjaParser *p);
    } STATEMENTS[] = {
        {"if", parse_if},
        {"for", parse_for},
        {"set", parse_set},
        {"macro", parse_macro},
        {"call", parse_call_block},
        {"with", parse_with},
        {"filter", parse_filter_block},
        {"generation", parse_generation},
        {"break", parse_break},
        {"continue", parse_continue},
    };
    if (p->at->kind != TOKEN_NAME) return jinja_refuse(p, "a statement was expected behind {%%");
    for (size_t i = 0; i < sizeof(STATEMENTS) / sizeof(STATEMENTS[0]); i++) {
        if (!jinja_skip_name(p, STATEMENTS[i].name)) continue;
        JinjaNode *node = STATEMENTS[i].parse(p);
        expect_end(p);
        return node;
    }
    return jinja_refuse(p, "the statement is not known, not supported, or has no beginning");
}

static bool at_end_of_body(const JinjaParser *p, const char *const *ends, int n_ends) {
    for (int i = 0; i < n_ends; i++) {
        if (jinja_at_name(p, ends[i])) return true;
    }
    return false;
}

static JinjaNode *parse_text(JinjaParser *p) {
    JinjaNode *node = jinja_node(p, NODE_TEXT);
    JinjaString *string = ARENA_NEW(p->arena, JinjaString);
    *string = (JinjaString){.text = p->at->text, .length = p->at->length};
    node->value = JINJA_VALUE(JINJA_STRING, string, string);
    p->at++;
    return node;
}

static JinjaNode *parse_print(JinjaParser *p) {
    p->at++;
    JinjaNode *node = jinja_node(p, NODE_PRINT);
    node->left = jinja_parse_tuple(p, true);
    if (!p->failed && p->at->kind != TOKEN_PRINT_END) jinja_refuse(p, "}} was expected");
    if (!p->failed) p->at++;
    return node;
}

/* To one of the ends, of which the name is next; or, without any, to the end of all. */
static JinjaNode *parse_body(JinjaParser *p, const char *const *ends, int n_ends) {
    JinjaNode *body = jinja_node(p, NODE_BLOCK);
    if (++p->depth > MOST_BLOCKS) jinja_refuse(p, "blocks are nested too deeply");
    while (!p->failed) {
        if (p->at->kind == TOKEN_END) {
            if (n_ends) jinja_refuse(p, "{%% %s %%} is missing", ends[n_ends - 1]);
            break;
        }
        if (p->at->kind == TOKEN_TEXT) {
            jinja_node_add(p, body, parse_text(p));
        } else if (p->at->kind == TOKEN_PRINT_BEGIN) {
            jinja_node_add(p, body, parse_print(p));
        } else {
            p->at++;
            if (at_end_of_body(p, ends, n_ends)) break;
            jinja_node_add(p, body, parse_statement(p));
        }
    }
    p->depth--;
    return body;
}

const JinjaTemplate *jinja_parse(Arena *arena, const char *path, const char *source, size_t length,
                                 Diag *diag) {
    JinjaTokens tokens = {0};
    if (length > JINJA_MOST_SOURCE_BYTES) {
        diag_error(diag, (SourceLoc){path, 0}, "a chat template has 1 MiB at most");
        return NULL;
    }
    if (!jinja_tokenize(arena, path, source, length, &tokens, diag)) return NULL;
    JinjaTemplate *template = ARENA_NEW(arena, JinjaTemplate);
    template->path = arena_strdup(arena, path);
    JinjaParser p = {.arena = arena, .template = template, .at = tokens.items, .diag = diag};
    grow_names(&p);
    template->root = parse_body(&p, NULL, 0);
    return p.failed ? NULL : template;
}
