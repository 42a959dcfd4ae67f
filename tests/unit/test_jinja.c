/* The language of chat templates against what Jinja2 makes, set up as transformers does
 * (tests/data/jinja.jsonl, by tests/reference/make_jinja.py), error texts, limits, and where bytes
 * come from. Would catch: a newline too many or too few, an operator of another strength, a filter
 * that differs by a space, a template that never ends, a byte that somebody said and that passes
 * for the template's.
 */
#include "ir/base/json.h"
#include "runtime/jinja/jinja.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

static Arena *arena;
static Diag *diag;

/* What became of a template: its text, or why there is none. */
typedef struct Made {
    JinjaText text;
    char error[700];
} Made;

static Made make(const char *template, size_t length, const json_t *variables) {
    Made out = {0};
    Diag *own = diag_create();
    const JinjaTemplate *parsed = jinja_parse(arena, "t.jinja", template, length, own);
    snprintf(out.error, sizeof(out.error), "%s", diag_text(own));
    diag_destroy(own);
    if (!parsed) return out;
    Jinja *jinja = jinja_open(parsed, 86400);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)variables, name, value) {
        jinja_set_json(jinja, name, value, true);
    }
    if (!jinja_render(jinja, &out.text)) {
        snprintf(out.error, sizeof(out.error), "%s", jinja_error(jinja));
    }
    jinja_close(jinja);
    return out;
}

static void compare(const json_t *line, int number) {
    const json_t *template = json_object_get(line, "template");
    const char *text = json_string_value(json_object_get(line, "text"));
    if (!template) return; /* test_chat_jinja's */
    Made made = make(json_string_value(template), json_string_length(template),
                     json_object_get(line, "variables"));
    bool good = !text == !made.text.text &&
                (!text || (made.text.length == json_string_length(json_object_get(line, "text")) &&
                           memcmp(made.text.text, text, made.text.length) == 0));
    CHECK(good, "line %d: %s\n  is     %s%s\n  not    %s", number, json_string_value(template),
          made.text.text ? made.text.text : "", made.error, text ? text : "an error");
    jinja_text_release(&made.text);
}

static void test_snippets(void) {
    check_begin("jinja: what Jinja2 makes of templates");
    FILE *file = fopen("tests/data/jinja.jsonl", "r");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int number = 0;
    CHECK(file, "jinja.jsonl");
    while (file && (n = getline(&line, &capacity, file)) > 0) {
        json_t *object = json_loadb(line, (size_t)n, JSON_ALLOW_NUL, NULL);
        compare(object, ++number);
        json_decref(object);
    }
    CHECK(number > 200, "%d lines", number);
    free(line);
    if (file) fclose(file);
}

/* --- errors --- */

static void fails_with(const char *template, const char *why) {
    Made made = make(template, strlen(template), NULL);
    CHECK(!made.text.text && strstr(made.error, why), "%s: '%s'", template, made.error);
    CHECK(strncmp(made.error, "t.jinja:", 8) == 0, "%s: no place: '%s'", template, made.error);
    jinja_text_release(&made.text);
}

static void test_errors(void) {
    check_begin("jinja: errors say where and what");
    fails_with("a\n{{ x.y }}", "t.jinja:2: 'x' is undefined");
    fails_with("a\n\n{% if x %}", "t.jinja:3: {% endif %} is missing");
    fails_with("{{ 1 | nothing }}", "the filter 'nothing' is not known, or not supported");
    fails_with("{{ 1 is nothing }}", "the test 'nothing' is not known, or not supported");
    fails_with("{% if 1 %}{{ 1 | nothing }}{% endif %}", "the filter 'nothing' is not known");
    fails_with("{% include 'x' %}", "the statement is not known, not supported");
    fails_with("{% for x in y recursive %}{% endfor %}", "recursive loops are not supported");
    fails_with("{{ [1 2] }}", "',' was expected");
    fails_with("{{ [1, 2 }}", "a bracket is closed that was not opened");
    fails_with("{{ 'a }}", "a string has no end");
    fails_with("{# a", "a comment has no end");
    fails_with("{% break %}", "'break' is in no loop");
    fails_with("{{ 1 + 'a' }}", "there is no int + str");
    fails_with("{{ nobody(1) }}", "'nobody' is undefined");
    fails_with("{{ [].append(1) }}", "the method 'append' of a list is not supported");
    fails_with("{{ raise_exception('no\nmore') }}", "the template refuses it: no more");
    fails_with("{{ 9223372036854775807 + 1 }}", "an integer has more than 64 bits");
    fails_with("{{ x | tojson }}", "tojson: 'x' is undefined");
    fails_with("{{ [1] | map('string') }}", "a generator would be printed");
    fails_with("{{ namespace(_a=1) }}", "begins with _");
    fails_with("\xff", "no text in UTF-8");
    Made zero = make("a\0b", 3, NULL);
    CHECK(strstr(zero.error, "no text in UTF-8"), "%s", zero.error);
}

/* --- limits --- */

static char *repeated(const char *text, int n, const char *end) {
    char *out = malloc(strlen(text) * (size_t)n + strlen(end) + 1), *at = out;
    for (int i = 0; i < n; i++) at = stpcpy(at, text);
    strcpy(at, end);
    return out;
}

static void fails_repeated(const char *text, int n, const char *end, const char *why) {
    char *template = repeated(text, n, end);
    Made made = make(template, strlen(template), NULL);
    CHECK(!made.text.text && strstr(made.error, why), "%d times %s: '%s'", n, text, made.error);
    jinja_text_release(&made.text);
    free(template);
}

static void test_limits(void) {
    check_begin("jinja: hostile templates end in an error");
    fails_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested too deeply");
    fails_with("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               "it takes ");
    fails_with("{{ 'aaaaaaaaaaaaaaaa' * 99999999 }}", "longer than 64 MiB");
    fails_with("{{ range(999999999) }}", "more than 100000 numbers");
    fails_with("{{ 'x' | center(999999999999) }}", "longer than 64 MiB");
    fails_with("{{ '%99999999d' % 1 }}", "none of those supported");
    fails_with("{% set ns = namespace(x='ab') %}{% for i in range(90) %}"
               "{% set ns.x = ns.x + ns.x %}{% endfor %}",
               "memory");
    fails_with("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}"
               "{% set ns.x = ns.x + ns.x %}{% endfor %}",
               "memory");
    fails_with("{% set ns = namespace(x=[]) %}{% for i in range(9999) %}"
               "{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
               "nested too deeply");
    fails_repeated("{{ (", 1, "", "a tag has no end");
    fails_repeated("{% if 1 %}", 1000, "", "nested too deeply");
    char *open = repeated("(", 200, "1"), *closed = repeated(")", 200, ""), *all = malloc(500);
    snprintf(all, 500, "{{ %s%s }}", open, closed);
    fails_with(all, "nested too deeply");
    free(open);
    free(closed);
    free(all);
    fails_repeated("{{ -", 1, " }}", "a value was expected");
    fails_repeated("x", JINJA_MOST_SOURCE_BYTES + 1, "", "1 MiB at most");
}

/* --- where bytes come from --- */

/* One digit for each byte: 1 said, 2 an answer's. */
static void marks_are(const char *template, const char *text, const char *marks) {
    json_t *said = json_pack("{s:s}", "x", " a<b>\"c ");
    Made made = make(template, strlen(template), said);
    json_decref(said);
    for (size_t i = 0; i < made.text.length; i++) made.text.marks[i] += '0';
    CHECK(made.text.text && strcmp(made.text.text, text) == 0 &&
              memcmp(made.text.marks, marks, made.text.length) == 0,
          "%s: '%s' %.*s %s", template, made.text.text ? made.text.text : "", (int)made.text.length,
          made.text.marks ? (char *)made.text.marks : "", made.error);
    jinja_text_release(&made.text);
}

static void test_marks(void) {
    check_begin("jinja: which bytes were said");
    marks_are("<{{ x }}>", "< a<b>\"c >", "0111111110");
    marks_are("{{ '<' ~ x[2:5] ~ '>' }}", "<<b>>", "01110");
    marks_are("{{ '<' + x.strip() }}", "<a<b>\"c", "0111111");
    marks_are("{{ x.replace('<b>', '<c>') }}", " a<c>\"c ", "11000111");
    marks_are("{{ x.split('<') | join('<') | upper | trim }}", "A<B>\"C", "101111");
    marks_are("{{ x.strip() | tojson }}", "\"a<b>\\\"c\"", "011111110");
    marks_are("{{ {'<': [x[:2]]} }}", "{'<': [' a']}", "0000000011000");
    marks_are("{% set y %}<{{ x[1] }}{% endset %}{{ y * 2 }}", "<a<a", "0101");
    marks_are("{% macro m(y) %}<{{ y }}{% endmacro %}{{ m(x[1]) ~ x[7] }}", "<a ", "011");
    marks_are("{{ '%s-%s' % (x[1], 'b') }}{{ '{}'.format(x[1]) }}", "a-ba", "1001");
    marks_are("{{ x[1:3] | escape }}", "a&lt;", "11111");
    marks_are("a{% generation %}b{{ x[1] }}{% endgeneration %}c", "abac", "0230");
    marks_are("{% macro m() %}a{% generation %}b{% endgeneration %}{% endmacro %}{{ m() }}c", "abc",
              "020");
}

/* --- variables --- */

static void test_variables(void) {
    check_begin("jinja: names, parts of lists, dates");
    const char *source = "{{ m | length }}{{ m[-1].role if m }}{% if p %}p{% endif %}"
                         "{{ strftime_now('%d %b %Y') }}{{ strftime_now('') }}";
    const JinjaTemplate *template = jinja_parse(arena, "t", source, strlen(source), diag);
    CHECK(template && jinja_names(template, "m") && !jinja_names(template, "q"), "%s",
          diag_text(diag));
    Jinja *jinja = jinja_open(template, 86400 + 43200);
    json_t *list = json_pack("[{s:s},{s:s}]", "role", "user", "role", "a|b");
    static const char *const WANT[] = {"002 Jan 1970", "1userp02 Jan 1970", "2a|bp02 Jan 1970"};
    JinjaText text;
    jinja_set_json(jinja, "m", list, true);
    jinja_set_unsaid(jinja, "m", "role");
    jinja_set_text(jinja, "nobody", "asks");
    for (size_t n = 0; n < 3; n++) {
        jinja_set_length(jinja, "m", n);
        jinja_set_bool(jinja, "p", n > 0);
        CHECK(jinja_render(jinja, &text) && strcmp(text.text, WANT[n]) == 0, "%s", text.text);
        CHECK(n == 0 || text.marks[1] == (n == 2), "%zu: %d", n, text.marks[1]); /* a word or not */
        jinja_text_release(&text);
    }
    jinja_close(jinja);
    json_decref(list);
    check_begin("jinja: an error is over when the next rendering begins");
    source = "{{ m.a }}";
    jinja = jinja_open(jinja_parse(arena, "t", source, strlen(source), diag), 0);
    CHECK(!jinja_render(jinja, &text) && strstr(jinja_error(jinja), "'m' is undefined"), "%s",
          jinja_error(jinja));
    list = json_pack("{s:i}", "a", 7);
    jinja_set_json(jinja, "m", list, false);
    CHECK(jinja_render(jinja, &text) && strcmp(text.text, "7") == 0, "%s", jinja_error(jinja));
    jinja_text_release(&text);
    jinja_close(jinja);
    json_decref(list);
}

int main(void) {
    setenv("TZ", "UTC", 1);
    arena = arena_create();
    diag = diag_create();
    test_snippets();
    test_errors();
    test_limits();
    test_marks();
    test_variables();
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
