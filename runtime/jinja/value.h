/* Values of templates, and the memory that they are in, which goes all at once.
 *
 * Strings are UTF-8 and carry marks for their bytes (jinja.h); a slice shares its string's bytes.
 * Functions that can fail set `failed` and return a value that is not to be looked at: who calls
 * them asks before going on with work that takes long. */
#ifndef RUNTIME_JINJA_VALUE_H
#define RUNTIME_JINJA_VALUE_H

#include "runtime/jinja/jinja.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum JinjaKind {
    JINJA_ABSENT, /* an argument that was not given */
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_MACRO,
    JINJA_FUNCTION,
    JINJA_METHOD,
    JINJA_LOOP,
} JinjaKind;

typedef struct JinjaString {
    const char *text;
    size_t length;
    const unsigned char *marks; /* NULL: each is `mark` */
    unsigned char mark;
    bool markup; /* of |safe or |escape: what is added to it is escaped, as markupsafe has it */
} JinjaString;

typedef struct JinjaValue {
    JinjaKind kind;
    union {
        const char *name; /* of what is undefined, or of a function */
        bool boolean;
        int64_t integer;
        double real;
        const JinjaString *string;
        struct JinjaList *list;
        struct JinjaDict *dict; /* also of a namespace */
        const struct JinjaMacro *macro;
        const struct JinjaBuiltin *function;
        const struct JinjaMethod *method;
        struct JinjaLoop *loop;
    };
} JinjaValue;

/* What Python has of lists: generators are gone through once and have no length, views (keys of a
 * dictionary) have no places. */
typedef enum JinjaFlavor {
    FLAVOR_LIST,
    FLAVOR_TUPLE,
    FLAVOR_RANGE,
    FLAVOR_VIEW,
    FLAVOR_GENERATOR
} JinjaFlavor;

typedef struct JinjaList {
    JinjaFlavor flavor;
    JinjaValue *items;
    size_t count, capacity;
    size_t next; /* of a generator */
} JinjaList;

typedef struct JinjaEntry {
    JinjaValue key, value;
} JinjaEntry;
typedef struct JinjaDict {
    JinjaEntry *entries; /* in the order in which they came */
    size_t count, capacity;
} JinjaDict;

typedef struct JinjaCall {
    JinjaValue *args;
    int n_args;
    const char *const *names;
    JinjaValue *named;
    int n_named;
} JinjaCall;

/* A filter, a test, a method or a global function: `run` with its arguments in the order of
 * `params`, absent ones so; or `any` with whatever was given. */
enum { JINJA_MOST_PARAMS = 4 };
typedef struct JinjaBuiltin {
    const char *name;
    JinjaValue (*run)(Jinja *jinja, JinjaValue self, const JinjaValue *args);
    int n_required;
    const char *params[JINJA_MOST_PARAMS];
    JinjaValue (*any)(Jinja *jinja, JinjaValue self, const JinjaCall *call);
} JinjaBuiltin;

typedef struct JinjaMethod {
    const JinjaBuiltin *builtin;
    JinjaValue self;
} JinjaMethod;

/* --- memory, steps, errors --- */

enum { JINJA_MOST_STRING = 64 << 20 };
void *jinja_alloc(Jinja *jinja, size_t bytes); /* not zeroed; never NULL */
/* Of work in proportion to n. False: it was too much, or something failed before. */
bool jinja_step(Jinja *jinja, size_t n);
bool jinja_failed(const Jinja *jinja);
JinjaValue jinja_fail(Jinja *jinja, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* --- making values --- */

#define JINJA_VALUE(kind_, field_, ...) ((JinjaValue){.kind = (kind_), .field_ = (__VA_ARGS__)})
static inline JinjaValue jinja_undefined(const char *name) {
    return JINJA_VALUE(JINJA_UNDEFINED, name, name);
}
static inline JinjaValue jinja_none(void) {
    return JINJA_VALUE(JINJA_NONE, name, NULL);
}
static inline JinjaValue jinja_bool(bool value) {
    return JINJA_VALUE(JINJA_BOOL, boolean, value);
}
static inline JinjaValue jinja_int(int64_t value) {
    return JINJA_VALUE(JINJA_INT, integer, value);
}
static inline JinjaValue jinja_float(double value) {
    return JINJA_VALUE(JINJA_FLOAT, real, value);
}
/* Of bytes that stay; of those of a terminated text; of a part of a string. */
JinjaValue jinja_bytes(Jinja *jinja, const char *text, size_t length, unsigned char mark);
JinjaValue jinja_text(Jinja *jinja, const char *text);
JinjaValue jinja_slice(Jinja *jinja, const JinjaString *of, size_t begin, size_t end);

JinjaValue jinja_list(Jinja *jinja, JinjaFlavor flavor, size_t capacity);
void jinja_list_add(Jinja *jinja, JinjaList *list, JinjaValue value);
JinjaValue jinja_pair(Jinja *jinja, JinjaValue a, JinjaValue b);
JinjaValue jinja_dict(Jinja *jinja, JinjaKind kind, size_t capacity);
/* False: nothing can be found by such a key. */
bool jinja_dict_set(Jinja *jinja, JinjaDict *dict, JinjaValue key, JinjaValue value);
const JinjaValue *jinja_dict_get(Jinja *jinja, const JinjaDict *dict, JinjaValue key);
const JinjaValue *jinja_dict_get_text(Jinja *jinja, const JinjaDict *dict, const char *key);

JinjaValue jinja_from_json(Jinja *jinja, const json_t *json, bool said);

/* --- a string that is put together --- */

typedef struct JinjaBuilder {
    char *text;
    unsigned char *marks;
    size_t length, capacity;
} JinjaBuilder;
void jinja_put_bytes(Jinja *jinja, JinjaBuilder *out, const char *text, size_t length,
                     unsigned char mark);
void jinja_put_text(Jinja *jinja, JinjaBuilder *out, const char *text);
void jinja_put_slice(Jinja *jinja, JinjaBuilder *out, const JinjaString *of, size_t begin,
                     size_t end);
void jinja_put_string(Jinja *jinja, JinjaBuilder *out, const JinjaString *of);
JinjaValue jinja_built(Jinja *jinja, const JinjaBuilder *builder);
JinjaValue jinja_built_like(Jinja *jinja, const JinjaBuilder *builder, const JinjaString *like);
JinjaValue jinja_as_markup(Jinja *jinja, const JinjaString *text);
/* With names for what means something in HTML. */
JinjaValue jinja_escaped(Jinja *jinja, const JinjaString *text);

/* --- what Python says of values --- */

bool jinja_truth(JinjaValue value);
bool jinja_equal(Jinja *jinja, JinjaValue a, JinjaValue b);
/* < 0, 0, > 0; fails where Python has no order. */
int jinja_compare(Jinja *jinja, JinjaValue a, JinjaValue b);
bool jinja_contains(Jinja *jinja, JinjaValue container, JinjaValue item);
const char *jinja_type_name(JinjaValue value);
bool jinja_is_number(JinjaValue value); /* truth values among them */
bool jinja_is_integer(JinjaValue value);
double jinja_number(JinjaValue value);
int64_t jinja_integer(JinjaValue value); /* of a truth value, too */

static inline bool jinja_is_text(JinjaValue value, const char *text) {
    return value.kind == JINJA_STRING && value.string->length == __builtin_strlen(text) &&
           __builtin_memcmp(value.string->text, text, value.string->length) == 0;
}
static inline unsigned char jinja_mark(const JinjaString *string, size_t at) {
    return string->marks ? string->marks[at] : string->mark;
}

/* What a loop goes through, as a list; fails where there is no such thing. A generator's rest is
 * taken. */
JinjaList *jinja_items(Jinja *jinja, JinjaValue value);
/* -1, failed: it has no length. */
int64_t jinja_length(Jinja *jinja, JinjaValue value);

/* str(), repr(), and JSON as Python's json.dumps has it; indent < 0: on one line. */
const JinjaString *jinja_str(Jinja *jinja, JinjaValue value);
void jinja_put_str(Jinja *jinja, JinjaBuilder *out, JinjaValue value);
void jinja_put_repr(Jinja *jinja, JinjaBuilder *out, JinjaValue value);
typedef struct JinjaJson {
    bool ensure_ascii, sort_keys;
    const JinjaString *indent; /* NULL: on one line */
    const JinjaString *between_items, *between_pair;
} JinjaJson;
void jinja_put_json(Jinja *jinja, JinjaBuilder *out, JinjaValue value, const JinjaJson *how);
/* The shortest digits that are the number, as repr() writes them. [32] */
void jinja_format_float(double value, char *out);

#endif
