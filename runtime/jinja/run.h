/* A template at work: variables, memory, limits; what the evaluator's rooms share. */
#ifndef RUNTIME_JINJA_RUN_H
#define RUNTIME_JINJA_RUN_H

#include "runtime/jinja/ast.h"
#include "runtime/jinja/value.h"

typedef struct JinjaVariable {
    const char *name; /* one pointer a name (JinjaTemplate's) */
    JinjaValue value;
} JinjaVariable;

typedef struct JinjaScope {
    struct JinjaScope *parent;
    JinjaVariable *variables;
    int count, capacity;
} JinjaScope;

typedef struct JinjaBlock {
    struct JinjaBlock *before;
    size_t used, size;
    _Alignas(16) unsigned char data[];
} JinjaBlock;

struct Jinja {
    const JinjaTemplate *template;
    time_t now;
    JinjaBlock *blocks;
    size_t n_bytes;
    JinjaScope globals, *scope;
    JinjaBuilder text, *out; /* of all, and what is written to */
    unsigned char mark;      /* of what is written: JINJA_ANSWER, or 0 */
    int64_t n_steps;
    int depth;
    int line;
    bool breaks, continues; /* out of the innermost loop, round it */
    bool failed;
    char error[600];
};

typedef struct JinjaMacro {
    const JinjaNode *node;
    JinjaScope *scope; /* that it was made in */
} JinjaMacro;

/* A loop at work: items that pass its condition are taken one by one, more than one ahead only
 * where somebody asks how many there are. */
typedef struct JinjaLoop {
    Jinja *jinja;
    const JinjaNode *node;
    JinjaScope *scope;
    JinjaList *source;
    size_t n_seen; /* of source */
    JinjaList *kept;
    size_t index;
    int depth;
    JinjaValue changed; /* what loop.changed saw last */
} JinjaLoop;

/* --- jinja.c --- */
JinjaScope *jinja_push(Jinja *jinja, JinjaScope *parent);
void jinja_assign(Jinja *jinja, JinjaScope *scope, const char *name, JinjaValue value);
JinjaValue jinja_resolve(Jinja *jinja, const char *name);
/* Deeper by one; false: too deep, failed. Left by --depth either way. */
bool jinja_enter(Jinja *jinja);

/* --- eval.c --- */
JinjaValue jinja_eval(Jinja *jinja, const JinjaNode *node);
bool jinja_eval_call(Jinja *jinja, const JinjaNode *node, JinjaCall *out);
JinjaValue jinja_call(Jinja *jinja, JinjaValue function, const JinjaCall *call);
JinjaValue jinja_call_builtin(Jinja *jinja, const JinjaBuiltin *builtin, const char *what,
                              JinjaValue self, const JinjaCall *call);
/* object[key] and object.name, as Jinja has them: undefined where there is none. */
JinjaValue jinja_item(Jinja *jinja, JinjaValue object, JinjaValue key);
JinjaValue jinja_attribute(Jinja *jinja, JinjaValue object, const char *name);
JinjaValue jinja_sliced(Jinja *jinja, JinjaValue object, const JinjaValue bounds[3]);
/* arithmetic.c */
JinjaValue jinja_binary(Jinja *jinja, JinjaOperator op, JinjaValue a, JinjaValue b);
JinjaValue jinja_negate(Jinja *jinja, JinjaValue a, bool positive);

/* --- statements.c --- */
void jinja_run(Jinja *jinja, const JinjaNode *node);
JinjaValue jinja_call_macro(Jinja *jinja, const JinjaMacro *macro, const JinjaCall *call);
JinjaValue jinja_loop_attribute(JinjaLoop *loop, const char *name);

/* --- what there is, by name; NULL: none --- */
const JinjaBuiltin *jinja_find_filter(const char *name);
const JinjaBuiltin *jinja_find_test(const char *name);
const JinjaBuiltin *jinja_find_global(const char *name);
const JinjaBuiltin *jinja_find_string_method(const char *name);
const JinjaBuiltin *jinja_find_other_method(JinjaValue object, const char *name);

#endif
