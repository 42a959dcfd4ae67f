/* What Python does with strings; marks of bytes go with them. */
#ifndef RUNTIME_JINJA_TEXT_H
#define RUNTIME_JINJA_TEXT_H

#include "runtime/jinja/value.h"

enum { TEXT_LEFT = 1, TEXT_RIGHT = 2, TEXT_BOTH = 3 };
/* Without white space, or the characters of `chars`, on those sides. */
JinjaValue text_strip(Jinja *jinja, const JinjaString *text, const JinjaString *chars, int sides);

/* Lists of parts; separator NULL: runs of white space. most < 0: as many as there are. */
JinjaValue text_split(Jinja *jinja, const JinjaString *text, const JinjaString *separator,
                      int64_t most, bool from_right);
JinjaValue text_split_lines(Jinja *jinja, const JinjaString *text, bool keeps_ends);
JinjaValue text_replace(Jinja *jinja, const JinjaString *text, const JinjaString *from,
                        const JinjaString *to, int64_t most);
JinjaValue text_join(Jinja *jinja, const JinjaString *between, const JinjaList *parts);

typedef enum TextCase { CASE_UPPER, CASE_LOWER, CASE_SWAP, CASE_TITLE, CASE_CAPITAL } TextCase;
JinjaValue text_case(Jinja *jinja, const JinjaString *text, TextCase how);
uint32_t text_lower(uint32_t character);

/* Of bytes; -1: it is not there. */
int64_t text_find(const JinjaString *text, const JinjaString *what, size_t from);
bool text_begins(const JinjaString *text, const JinjaString *with);
bool text_ends(const JinjaString *text, const JinjaString *with);
/* The character at a byte, and its bytes: 1 where it is no UTF-8. */
size_t text_character(const JinjaString *text, size_t at, uint32_t *out);
bool text_is_space(uint32_t character); /* as str.isspace says */
int64_t text_count_characters(const JinjaString *text, size_t begin, size_t end);

/* "%s" % args, and "{}".format(...). */
JinjaValue jinja_format_percent(Jinja *jinja, const JinjaString *format, JinjaValue args);
JinjaValue jinja_format_braces(Jinja *jinja, const JinjaString *format, const JinjaCall *call);

#endif
