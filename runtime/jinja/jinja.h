/* Templates in Jinja's language, as Hugging Face's models have them for chats: a template that is
 * not trusted, and values of JSON -> a text, byte for byte as Jinja2 makes it where transformers
 * sets it up (sandboxed, trim_blocks, lstrip_blocks, break and continue, its own `tojson`).
 *
 * With each byte of the text comes where it is from: JINJA_SAID, from values that were said to be
 * (slices, joins and replacements keep that), and JINJA_ANSWER, from within {% generation %}.
 *
 * What the language has and this has not (include, extends, some filters) is an error when the
 * template is read. A template may take so many steps, so much memory and so much depth, and ends
 * in an error where it takes more. Integers have 64 bits. */
#ifndef RUNTIME_JINJA_JINJA_H
#define RUNTIME_JINJA_JINJA_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <jansson.h>
#include <stdint.h>
#include <time.h>

enum { JINJA_SAID = 1, JINJA_ANSWER = 2 };
enum { JINJA_MOST_SOURCE_BYTES = 1 << 20 };

/* Kept in `arena`, and never changed: any number of threads may render it. `path` is its name in
 * errors. Reports and returns NULL. */
typedef struct JinjaTemplate JinjaTemplate;
const JinjaTemplate *jinja_parse(Arena *arena, const char *path, const char *source, size_t length,
                                 Diag *diag);
/* Whether the name of a variable is anywhere in it. */
bool jinja_names(const JinjaTemplate *template, const char *name);
bool jinja_has_generation(const JinjaTemplate *template);

/* One thread's work: values, and memory for rendering. `now` is what strftime_now says. */
typedef struct Jinja Jinja;
Jinja *jinja_open(const JinjaTemplate *template, time_t now);
void jinja_close(Jinja *jinja);

/* A variable; texts within the value are used as they lie there, and must stay. */
void jinja_set_json(Jinja *jinja, const char *name, const json_t *value, bool said);
void jinja_set_text(Jinja *jinja, const char *name, const char *text);
void jinja_set_bool(Jinja *jinja, const char *name, bool value);
/* Of a variable that is a list of objects: the words that they have by that key were not said, as
 * long as they are words (letters, digits, _ and -). */
void jinja_set_unsaid(Jinja *jinja, const char *name, const char *key);
/* Of a variable that is a list: only its first n items are there. */
void jinja_set_length(Jinja *jinja, const char *name, size_t n);

typedef struct JinjaText {
    char *text; /* terminated; of malloc */
    unsigned char *marks;
    size_t length;
} JinjaText;
/* Any number of times. False: *out is empty, and jinja_error says why. */
bool jinja_render(Jinja *jinja, JinjaText *out);
void jinja_text_release(JinjaText *text);
/* A line, with the template's line. */
const char *jinja_error(const Jinja *jinja);

#endif
