/* Tokens -> a tree. What the two rooms of the parser share: expressions (parse_expression.c) and
 * statements (parse.c). */
#ifndef RUNTIME_JINJA_PARSER_H
#define RUNTIME_JINJA_PARSER_H

#include "runtime/jinja/ast.h"
#include "runtime/jinja/lexer.h"

typedef struct JinjaParser {
    Arena *arena;
    JinjaTemplate *template;
    const JinjaToken *at;
    int depth, n_loops, n_choices; /* that it is within */
    bool failed;
    Diag *diag;
} JinjaParser;

JinjaNode *jinja_node(JinjaParser *p, JinjaNodeKind kind);
void jinja_node_add(JinjaParser *p, JinjaNode *node, JinjaNode *item);
/* The one pointer that a name has. */
const char *jinja_intern(JinjaParser *p, const char *name);

/* Reports at the token that it is at; returns a node that is not to be looked at. */
JinjaNode *jinja_refuse(JinjaParser *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
bool jinja_at_sign(const JinjaParser *p, const char *sign);
bool jinja_at_name(const JinjaParser *p, const char *name);
bool jinja_skip_sign(JinjaParser *p, const char *sign);
bool jinja_skip_name(JinjaParser *p, const char *name);
bool jinja_expect_sign(JinjaParser *p, const char *sign);

JinjaNode *jinja_parse_expression(JinjaParser *p);
/* Of several with commas between them a tuple. choices: `a if b else c` may be one of them. */
JinjaNode *jinja_parse_tuple(JinjaParser *p, bool choices);
/* Filters of what a block says: from behind a first | on. */
JinjaNode *jinja_parse_filters(JinjaParser *p);
/* What is assigned to: names, perhaps in brackets; may_attribute: or one name's attribute. */
JinjaNode *jinja_parse_target(JinjaParser *p, bool may_attribute);
JinjaNode *jinja_parse_call(JinjaParser *p, JinjaNode *called);

#endif
