/* The text of a template -> tokens: what stands between tags, already without the white space that
 * tags take away, and what stands in them. As Jinja's own lexer does it. */
#ifndef RUNTIME_JINJA_LEXER_H
#define RUNTIME_JINJA_LEXER_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdint.h>

typedef enum JinjaTokenKind {
    TOKEN_TEXT, /* between tags; never empty */
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_TAG_BEGIN,
    TOKEN_TAG_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_INTEGER,
    TOKEN_FLOAT,
    TOKEN_SIGN, /* text: + - * / // ** % ~ == != < <= > >= = . : | , ( ) [ ] { } */
    TOKEN_END,
} JinjaTokenKind;

typedef struct JinjaToken {
    JinjaTokenKind kind;
    int line;
    const char *text; /* terminated: a name, a sign, a string's value, text */
    size_t length;
    int64_t integer;
    double real;
} JinjaToken;

typedef struct JinjaTokens {
    JinjaToken *items; /* ends with TOKEN_END */
    int count, capacity;
} JinjaTokens;

/* False: reported. */
bool jinja_tokenize(Arena *arena, const char *path, const char *source, size_t length,
                    JinjaTokens *out, Diag *diag);

#endif
