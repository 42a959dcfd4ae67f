/* A template as a tree, kept in an arena. */
#ifndef RUNTIME_JINJA_AST_H
#define RUNTIME_JINJA_AST_H

#include "runtime/jinja/value.h"

typedef enum JinjaNodeKind {
    /* Expressions. */
    NODE_CONST,     /* value */
    NODE_NAME,      /* name */
    NODE_LIST,      /* items */
    NODE_TUPLE,     /* items */
    NODE_DICT,      /* items: key, value, key, value, ... */
    NODE_ATTRIBUTE, /* left . name */
    NODE_ITEM,      /* left [right] */
    NODE_SLICE,     /* items[3]: NULL where nothing is said; only as an item's right */
    NODE_CALL,      /* left (items, named, *other, **condition); filters and tests likewise */
    NODE_FILTER,    /* left | builtin (items, named); left NULL: what a block says */
    NODE_TEST,      /* left is builtin (items, named) */
    NODE_NOT,
    NODE_AND,
    NODE_OR,
    NODE_NEGATE,
    NODE_POSITIVE,
    NODE_BINARY,  /* left op right */
    NODE_CONCAT,  /* items */
    NODE_COMPARE, /* left, items with their operators */
    NODE_CHOICE,  /* left if right else other */
    /* Statements. */
    NODE_BLOCK,        /* items */
    NODE_TEXT,         /* value */
    NODE_PRINT,        /* left */
    NODE_SET,          /* left, a target = right */
    NODE_SET_BLOCK,    /* left, a target; right: filters or NULL; body */
    NODE_IF,           /* left; body; other: NODE_BLOCK, NODE_IF or NULL */
    NODE_FOR,          /* left in right; condition or NULL; body; other */
    NODE_MACRO,        /* name; names, the parameters; items: their defaults, NULL for none; body */
    NODE_WITH,         /* items: target, value, ...; body */
    NODE_FILTER_BLOCK, /* right: filters; body */
    NODE_CALL_BLOCK,   /* left: a call; other: the macro that is its `caller` */
    NODE_GENERATION,   /* body */
    NODE_BREAK,
    NODE_CONTINUE,
} JinjaNodeKind;

typedef enum JinjaOperator {
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_FLOOR,
    OP_MODULO,
    OP_POWER,
    OP_EQUAL,
    OP_UNEQUAL,
    OP_LESS,
    OP_LESS_EQUAL,
    OP_GREATER,
    OP_GREATER_EQUAL,
    OP_IN,
    OP_NOT_IN,
} JinjaOperator;

typedef struct JinjaNode {
    JinjaNodeKind kind;
    JinjaOperator op;
    int line;
    struct JinjaNode *left, *right, *other, *body, *condition;
    struct JinjaNode **items;
    int n_items, items_capacity;
    const char **names;
    struct JinjaNode **named;
    int n_named, names_capacity, named_capacity;
    JinjaOperator *operators;
    int n_operators, operators_capacity;
    const char *name;
    JinjaValue value;
    const JinjaBuiltin *builtin;
} JinjaNode;

struct JinjaTemplate {
    const char *path;
    const JinjaNode *root;
    const char **names; /* [n_slots], each once; NULL: free */
    int n_slots, n_names;
    bool has_generation;
};

#endif
