/* Tests: `x is ...`. */
#include "runtime/jinja/run.h"
#include "runtime/jinja/text.h"

#include <string.h>

typedef const JinjaValue *Args;
#define TEST(name) static JinjaValue name(Jinja *jinja, JinjaValue self, Args args)
#define UNUSED     (void)jinja, (void)args

TEST(is_defined) {
    return UNUSED, jinja_bool(self.kind != JINJA_UNDEFINED);
}
TEST(is_undefined) {
    return UNUSED, jinja_bool(self.kind == JINJA_UNDEFINED);
}
TEST(is_none) {
    return UNUSED, jinja_bool(self.kind == JINJA_NONE);
}
TEST(is_boolean) {
    return UNUSED, jinja_bool(self.kind == JINJA_BOOL);
}
TEST(is_true) {
    return UNUSED, jinja_bool(self.kind == JINJA_BOOL && self.boolean);
}
TEST(is_false) {
    return UNUSED, jinja_bool(self.kind == JINJA_BOOL && !self.boolean);
}
TEST(is_integer) {
    return UNUSED, jinja_bool(self.kind == JINJA_INT);
}
TEST(is_float) {
    return UNUSED, jinja_bool(self.kind == JINJA_FLOAT);
}
TEST(is_number) {
    return UNUSED, jinja_bool(jinja_is_number(self));
}
TEST(is_string) {
    return UNUSED, jinja_bool(self.kind == JINJA_STRING);
}
TEST(is_mapping) {
    return UNUSED, jinja_bool(self.kind == JINJA_DICT);
}
/* What has a length and items by their places, dictionaries and undefined values among them. */
TEST(is_sequence) {
    bool list = self.kind == JINJA_LIST && self.list->flavor <= FLAVOR_RANGE;
    return UNUSED, jinja_bool(list || self.kind == JINJA_STRING || self.kind == JINJA_DICT ||
                              self.kind == JINJA_UNDEFINED);
}
TEST(is_iterable) {
    return UNUSED, jinja_bool(self.kind == JINJA_LIST || self.kind == JINJA_STRING ||
                              self.kind == JINJA_DICT || self.kind == JINJA_UNDEFINED ||
                              self.kind == JINJA_LOOP);
}
TEST(is_callable) {
    return UNUSED, jinja_bool(self.kind == JINJA_MACRO || self.kind == JINJA_FUNCTION ||
                              self.kind == JINJA_METHOD || self.kind == JINJA_UNDEFINED);
}

TEST(is_equal) {
    return jinja_bool(jinja_equal(jinja, self, args[0]));
}
TEST(is_unequal) {
    return jinja_bool(!jinja_equal(jinja, self, args[0]));
}
TEST(is_less) {
    return jinja_bool(jinja_compare(jinja, self, args[0]) < 0);
}
TEST(is_less_equal) {
    return jinja_bool(jinja_compare(jinja, self, args[0]) <= 0);
}
TEST(is_greater) {
    return jinja_bool(jinja_compare(jinja, self, args[0]) > 0);
}
TEST(is_greater_equal) {
    return jinja_bool(jinja_compare(jinja, self, args[0]) >= 0);
}
TEST(is_in) {
    return jinja_bool(jinja_contains(jinja, args[0], self));
}
TEST(is_same) {
    bool same = self.kind == args[0].kind && self.kind != JINJA_FLOAT;
    return jinja_bool(same && (self.kind == JINJA_NONE || jinja_equal(jinja, self, args[0])));
}

/* The rest by a divisor; fails where there is none. */
static JinjaValue rest_is(Jinja *jinja, JinjaValue self, JinjaValue by, int64_t wanted) {
    JinjaValue rest = jinja_binary(jinja, OP_MODULO, self, by);
    return jinja->failed ? rest : jinja_bool(jinja_equal(jinja, rest, jinja_int(wanted)));
}
TEST(is_even) {
    return (void)args, rest_is(jinja, self, jinja_int(2), 0);
}
TEST(is_odd) {
    return (void)args, rest_is(jinja, self, jinja_int(2), 1);
}
TEST(is_divisible) {
    return rest_is(jinja, self, args[0], 0);
}

static JinjaValue has_case(Jinja *jinja, JinjaValue self, const char *method) {
    JinjaCall none = {0};
    JinjaValue text = JINJA_VALUE(JINJA_STRING, string, jinja_str(jinja, self));
    return jinja_call_builtin(jinja, jinja_find_string_method(method), "the test", text, &none);
}
TEST(is_upper) {
    return (void)args, has_case(jinja, self, "isupper");
}
TEST(is_lower) {
    return (void)args, has_case(jinja, self, "islower");
}

const JinjaBuiltin *jinja_find_test(const char *name) {
    static const JinjaBuiltin TESTS[] = {
        {"defined", is_defined, 0, {NULL}, NULL},
        {"undefined", is_undefined, 0, {NULL}, NULL},
        {"none", is_none, 0, {NULL}, NULL},
        {"boolean", is_boolean, 0, {NULL}, NULL},
        {"true", is_true, 0, {NULL}, NULL},
        {"false", is_false, 0, {NULL}, NULL},
        {"integer", is_integer, 0, {NULL}, NULL},
        {"float", is_float, 0, {NULL}, NULL},
        {"number", is_number, 0, {NULL}, NULL},
        {"string", is_string, 0, {NULL}, NULL},
        {"mapping", is_mapping, 0, {NULL}, NULL},
        {"sequence", is_sequence, 0, {NULL}, NULL},
        {"iterable", is_iterable, 0, {NULL}, NULL},
        {"callable", is_callable, 0, {NULL}, NULL},
        {"eq", is_equal, 1, {"other"}, NULL},
        {"equalto", is_equal, 1, {"other"}, NULL},
        {"==", is_equal, 1, {"other"}, NULL},
        {"ne", is_unequal, 1, {"other"}, NULL},
        {"!=", is_unequal, 1, {"other"}, NULL},
        {"lt", is_less, 1, {"other"}, NULL},
        {"lessthan", is_less, 1, {"other"}, NULL},
        {"<", is_less, 1, {"other"}, NULL},
        {"le", is_less_equal, 1, {"other"}, NULL},
        {"<=", is_less_equal, 1, {"other"}, NULL},
        {"gt", is_greater, 1, {"other"}, NULL},
        {"greaterthan", is_greater, 1, {"other"}, NULL},
        {">", is_greater, 1, {"other"}, NULL},
        {"ge", is_greater_equal, 1, {"other"}, NULL},
        {">=", is_greater_equal, 1, {"other"}, NULL},
        {"in", is_in, 1, {"seq"}, NULL},
        {"sameas", is_same, 1, {"other"}, NULL},
        {"even", is_even, 0, {NULL}, NULL},
        {"odd", is_odd, 0, {NULL}, NULL},
        {"divisibleby", is_divisible, 1, {"num"}, NULL},
        {"upper", is_upper, 0, {NULL}, NULL},
        {"lower", is_lower, 0, {NULL}, NULL},
    };
    for (size_t i = 0; i < sizeof(TESTS) / sizeof(TESTS[0]); i++) {
        if (strcmp(TESTS[i].name, name) == 0) return &TESTS[i];
    }
    return NULL;
}
