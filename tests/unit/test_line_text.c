/* The look at a line of JSON against jansson: what it finds, jansson finds, byte for byte, in
 * random objects and in damaged ones; and it finds what ordinary lines have.
 *
 * Would catch: broken lines that are taken, escapes unescaped wrongly, a key of an inner object
 * taken for the text, a key twice, text that is not UTF-8.
 */
#include "runtime/tokenizer/line_text.h"

#include "tests/unit/check.h"

#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *const OTHERS[] = {"messages", "chosen"};
static LineRoom room;
static int n_found, n_asked;

/* True: found; then jansson has the same. */
static bool look(const char *line, size_t length) {
    const unsigned char *text;
    size_t n;
    json_error_t error;
    n_asked++;
    if (!line_text_find((const unsigned char *)line, length, "text", OTHERS, 2, &room, &text, &n)) {
        return false;
    }
    n_found++;
    json_t *object = json_loadb(
        line, length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    const json_t *value = json_object_get(object, "text");
    CHECK(object, "'%.*s' was taken; jansson: %s", (int)length, line, error.text);
    CHECK(json_is_string(value) && json_string_length(value) == n &&
              memcmp(json_string_value(value), text, n) == 0,
          "'%.*s': another text", (int)length, line);
    CHECK(!json_object_get(object, "messages") && !json_object_get(object, "chosen"),
          "'%.*s': another key", (int)length, line);
    json_decref(object);
    return true;
}

static void test_lines(void) {
    static const struct {
        const char *line, *text; /* NULL: left to jansson, or refused by it */
    } CASES[] = {
        {"{\"text\": \"a\"}", "a"},
        {" {\t\"id\" : 5 , \"text\" : \"a b\\n\\\"c\\\" \\\\\\/\\b\\f\\r\\t\" } \r",
         "a b\n\"c\" \\/\b\f\r\t"},
        {"{\"text\":\"\",\"n\":[1,-2.5,0,{\"text\":\"x\"},[],{}],\"t\":true,\"f\":false,\"z\":"
         "null}",
         ""},
        {"{\"meta\": {\"text\": \"inner\"}, \"text\": \"\\u00e9\\u0416\\u592a\\ud83c\\udf19 "
         "\xc3\xa9\"}",
         "\xc3\xa9\xd0\x96\xe5\xa4\xaa\xf0\x9f\x8c\x99 \xc3\xa9"},
        {"{\"text\": \"0123456789 0123456789 0123456789\\n0123456789 0123456789\", \"text2\": "
         "\"y\"}",
         "0123456789 0123456789 0123456789\n0123456789 0123456789"},
        {"{\"text\":\n \"an object of an array\"\n}", "an object of an array"},
        {"", NULL},
        {"{}", NULL},
        {"[]", NULL},
        {"{\"text\": \"a\"", NULL},
        {"{\"text\": \"a\"} x", NULL},
        {"{\"text\": \"a\",}", NULL},
        {"{\"text\": 5}", NULL},
        {"{\"text\": \"a\", \"text\": \"b\"}", NULL},
        {"{\"x\": {\"a\": 1, \"a\": 2}, \"text\": \"b\"}", NULL},
        {"{\"text\": \"a\", \"messages\": []}", NULL},
        {"{\"text\": \"a\", \"\\u006dessages\": []}", NULL},
        {"{\"text\": \"\\ud83c\"}", NULL},
        {"{\"text\": \"\\udf19\\ud83c\"}", NULL},
        {"{\"text\": \"\\u12g4\"}", NULL},
        {"{\"text\": \"\\x\"}", NULL},
        {"{\"text\": \"a\\\"}", NULL},
        {"{\"text\": \"a\tb\"}", NULL},
        {"{\"text\": \"\xff\"}", NULL},
        {"{\"text\": \"a\", \"x\": \"\\ud800\"}", NULL},
        {"{\"text\": \"a\", \"x\": 01}", NULL},
        {"{\"text\": \"a\", \"x\": 1.}", NULL},
        {"{\"text\": \"a\", \"x\": -}", NULL},
        {"{\"text\": \"a\", \"x\": 1e999}", NULL},
        {"{\"text\": \"a\", \"x\": tru}", NULL},
        {"{\"text\": \"a\", \"x\": [1,]}", NULL},
        {"{\"text\": \"a\" \"x\": 1}", NULL},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const unsigned char *text;
        size_t n, length = strlen(CASES[i].line);
        char name[200];
        snprintf(name, sizeof(name), "a line: %.150s", CASES[i].line);
        for (char *c = name; *c; c++) *c = *c < 0x20 ? '?' : *c;
        check_begin(name);
        bool found = look(CASES[i].line, length);
        CHECK(found == (CASES[i].text != NULL), "found: %d", found);
        if (!found || !CASES[i].text) continue;
        line_text_find((const unsigned char *)CASES[i].line, length, "text", OTHERS, 2, &room,
                       &text, &n);
        CHECK(n == strlen(CASES[i].text) && memcmp(text, CASES[i].text, n) == 0, "'%.*s'", (int)n,
              (const char *)text);
    }
    check_begin("a line: a NUL that is spelled out");
    CHECK(look("{\"text\": \"a\\u0000b\"}", 20), "not found");
}

static uint64_t state = 3;

/* 0 .. n - 1, xorshift64* (Vigna 2016). */
static int random_below(int n) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (int)((state * UINT64_C(2685821657736338717) >> 33) % (uint64_t)n);
}

static json_t *random_string(void) {
    static const char *const PARTS[] = {
        "a", "moon ", "\n", "\"",   "\\", "\xc3\xa9", "\xe5\xa4\xaa", "\xf0\x9f\x8c\x99",
        "{", "]",     ",",  "\x01", "/",  "text",     "0123456789"};
    char text[512] = "";
    for (int n = random_below(24); n > 0; n--) strcat(text, PARTS[random_below(15)]);
    return json_string(text);
}

static json_t *random_value(int depth) {
    switch (random_below(depth > 2 ? 5 : 7)) {
    case 0: return json_integer(random_below(2000000) - 1000000);
    case 1: return json_real(random_below(1000) / 8.0);
    case 2: return random_below(2) ? json_true() : json_null();
    case 5: {
        json_t *array = json_array();
        for (int n = random_below(4); n > 0; n--)
            json_array_append_new(array, random_value(depth + 1));
        return array;
    }
    case 6: {
        static const char *const KEYS[] = {"text", "id", "n", "meta"};
        json_t *object = json_object();
        for (int n = random_below(4); n > 0; n--) {
            json_object_set_new(object, KEYS[random_below(4)], random_value(depth + 1));
        }
        return object;
    }
    default: return random_string();
    }
}

/* Random objects, written in several ways; and each with some bytes changed, or cut short. */
static void test_random(void) {
    enum { OBJECTS = 6000 / VARIANT_STEP };
    static const size_t FLAGS[] = {0, JSON_COMPACT, JSON_ENSURE_ASCII, JSON_ESCAPE_SLASH,
                                   JSON_ENSURE_ASCII | JSON_COMPACT | JSON_SORT_KEYS};
    static const char OFTEN[] = "\"\\{}[],:0u1e. \t\xc3\x80";
    int n_plain = 0;
    check_begin("random objects");
    for (int i = 0; i < OBJECTS; i++) {
        json_t *object = json_object();
        for (int n = random_below(5); n > 0; n--) {
            char key[8];
            snprintf(key, sizeof(key), "k%d", random_below(6));
            json_object_set_new(object, key, random_value(0));
        }
        json_object_set_new(object, "text", random_string());
        char *line = json_dumps(object, FLAGS[random_below(5)] | JSON_REAL_PRECISION(6));
        size_t length = strlen(line);
        n_plain += look(line, length);
        for (int k = 0; k < 8; k++) {
            char *copy = malloc(length + 1);
            memcpy(copy, line, length);
            for (int n = random_below(3); n >= 0; n--) {
                copy[random_below((int)length)] = random_below(4)
                                                      ? OFTEN[random_below((int)sizeof(OFTEN) - 1)]
                                                      : (char)random_below(256);
            }
            look(copy, random_below(3) ? length : (size_t)random_below((int)length));
            free(copy);
        }
        free(line);
        json_decref(object);
    }
    CHECK(n_plain > OBJECTS * 9 / 10, "found in %d of %d", n_plain, OBJECTS);
    CHECK(n_found < n_asked, "found in all");
}

int main(void) {
    test_lines();
    test_random();
    check_end();
    printf("%d of %d found\n", n_found, n_asked);
    free(room.bytes);
    return check_report();
}
