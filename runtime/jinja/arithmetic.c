/* Python's arithmetic, with integers of 64 bits; what has more ends in an error. */
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <math.h>
#include <string.h>

static const char *const SIGNS[] = {"+", "-", "*", "/", "//", "%", "**"};

static JinjaValue too_large(Jinja *jinja) {
    return jinja_fail(jinja, "an integer has more than 64 bits");
}

static JinjaValue refuse(Jinja *jinja, JinjaOperator op, JinjaValue a, JinjaValue b) {
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        const char *name = a.kind == JINJA_UNDEFINED ? a.name : b.name;
        return jinja_fail(jinja, "'%.60s' is undefined, at '%s'", name ? name : "a value",
                          SIGNS[op]);
    }
    return jinja_fail(jinja, "there is no %s %s %s", jinja_type_name(a), SIGNS[op],
                      jinja_type_name(b));
}

static JinjaValue power(Jinja *jinja, int64_t a, int64_t b) {
    int64_t out = 1;
    if (b < 0) return a ? jinja_float(pow((double)a, (double)b)) : jinja_fail(jinja, "0 ** -n");
    while (b > 0) {
        if ((b & 1) && __builtin_mul_overflow(out, a, &out)) return too_large(jinja);
        b >>= 1;
        if (b > 0 && __builtin_mul_overflow(a, a, &a)) return too_large(jinja);
    }
    return jinja_int(out);
}

static JinjaValue integers(Jinja *jinja, JinjaOperator op, int64_t a, int64_t b) {
    int64_t out = 0;
    bool over = false;
    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && b == 0) {
        return jinja_fail(jinja, "division by zero");
    }
    if (op == OP_FLOOR && a == INT64_MIN && b == -1) return too_large(jinja);
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &out); break;
    case OP_SUBTRACT: over = __builtin_sub_overflow(a, b, &out); break;
    case OP_MULTIPLY: over = __builtin_mul_overflow(a, b, &out); break;
    case OP_DIVIDE: return jinja_float((double)a / (double)b);
    case OP_FLOOR: return jinja_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    case OP_MODULO:
        if (b == -1) return jinja_int(0);
        out = a % b;
        return jinja_int(out != 0 && (out < 0) != (b < 0) ? out + b : out);
    default: return power(jinja, a, b);
    }
    return over ? too_large(jinja) : jinja_int(out);
}

static JinjaValue reals(Jinja *jinja, JinjaOperator op, double a, double b) {
    double rest;
    if ((op == OP_DIVIDE || op == OP_FLOOR || op == OP_MODULO) && b == 0) {
        return jinja_fail(jinja, "division by zero");
    }
    switch (op) {
    case OP_ADD: return jinja_float(a + b);
    case OP_SUBTRACT: return jinja_float(a - b);
    case OP_MULTIPLY: return jinja_float(a * b);
    case OP_DIVIDE: return jinja_float(a / b);
    case OP_FLOOR: return jinja_float(floor(a / b));
    case OP_MODULO:
        rest = fmod(a, b);
        return jinja_float(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    default: return jinja_float(pow(a, b));
    }
}

static JinjaValue join(Jinja *jinja, JinjaValue a, JinjaValue b) {
    if (a.kind == JINJA_STRING) {
        JinjaBuilder out = {0};
        bool markup = a.string->markup || b.string->markup;
        jinja_put_string(jinja, &out, markup ? jinja_escaped(jinja, a.string).string : a.string);
        jinja_put_string(jinja, &out, markup ? jinja_escaped(jinja, b.string).string : b.string);
        JinjaValue joined = jinja_built(jinja, &out);
        return markup ? jinja_as_markup(jinja, joined.string) : joined;
    }
    JinjaValue out = jinja_list(jinja, a.list->flavor, a.list->count + b.list->count);
    for (size_t i = 0; i < a.list->count; i++) jinja_list_add(jinja, out.list, a.list->items[i]);
    for (size_t i = 0; i < b.list->count; i++) jinja_list_add(jinja, out.list, b.list->items[i]);
    return out;
}

static JinjaValue repeat(Jinja *jinja, JinjaValue what, int64_t n) {
    if (what.kind == JINJA_STRING) {
        JinjaBuilder out = {0};
        for (int64_t i = 0; i < n && what.string->length && jinja_step(jinja, 1); i++) {
            jinja_put_string(jinja, &out, what.string);
        }
        return jinja_built_like(jinja, &out, what.string);
    }
    JinjaValue out = jinja_list(jinja, what.list->flavor, 0);
    for (int64_t i = 0; i < n && what.list->count && jinja_step(jinja, 1); i++) {
        for (size_t k = 0; k < what.list->count; k++) {
            jinja_list_add(jinja, out.list, what.list->items[k]);
        }
    }
    return out;
}

static bool is_sequence(JinjaValue value) {
    return value.kind == JINJA_STRING ||
           (value.kind == JINJA_LIST && value.list->flavor <= FLAVOR_TUPLE);
}

JinjaValue jinja_binary(Jinja *jinja, JinjaOperator op, JinjaValue a, JinjaValue b) {
    if (jinja_is_integer(a) && jinja_is_integer(b)) {
        return integers(jinja, op, jinja_integer(a), jinja_integer(b));
    }
    if (jinja_is_number(a) && jinja_is_number(b)) {
        return reals(jinja, op, jinja_number(a), jinja_number(b));
    }
    bool alike = is_sequence(a) && a.kind == b.kind &&
                 (a.kind == JINJA_STRING || a.list->flavor == b.list->flavor);
    if (op == OP_ADD && alike) return join(jinja, a, b);
    if (op == OP_MULTIPLY && is_sequence(a) && jinja_is_integer(b)) {
        return repeat(jinja, a, jinja_integer(b));
    }
    if (op == OP_MULTIPLY && jinja_is_integer(a) && is_sequence(b)) {
        return repeat(jinja, b, jinja_integer(a));
    }
    if (op == OP_MODULO && a.kind == JINJA_STRING && a.string->markup) {
        return jinja_fail(jinja, "%% of a text behind |safe or |escape is not supported");
    }
    if (op == OP_MODULO && a.kind == JINJA_STRING) return jinja_format_percent(jinja, a.string, b);
    return refuse(jinja, op, a, b);
}

JinjaValue jinja_negate(Jinja *jinja, JinjaValue a, bool positive) {
    if (a.kind == JINJA_FLOAT) return jinja_float(positive ? a.real : -a.real);
    if (!jinja_is_integer(a)) return refuse(jinja, positive ? OP_ADD : OP_SUBTRACT, a, a);
    int64_t value = jinja_integer(a);
    if (value == INT64_MIN && !positive) return too_large(jinja);
    return jinja_int(positive ? value : -value);
}
