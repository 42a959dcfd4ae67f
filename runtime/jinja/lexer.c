#include "runtime/jinja/lexer.h"

#include "ir/base/utf8.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct Lexer {
    Arena *arena;
    const char *path;
    const char *text; /* terminated */
    size_t length, at;
    int line;
    bool line_begins; /* what was read last ends with a newline */
    JinjaTokens *out;
    Diag *diag;
    bool failed;
} Lexer;

enum { MOST_TOKENS = 1 << 20, MOST_BRACKETS = 256 };

static bool fail(Lexer *lexer, const char *what) {
    if (!lexer->failed) diag_error(lexer->diag, (SourceLoc){lexer->path, lexer->line}, "%s", what);
    lexer->failed = true;
    return false;
}

static JinjaToken *add(Lexer *lexer, JinjaTokenKind kind, const char *text, size_t length) {
    JinjaToken token = {.kind = kind, .line = lexer->line, .length = length};
    token.text = arena_strndup(lexer->arena, text, length);
    ARENA_PUSH(lexer->arena, lexer->out->items, lexer->out->count, lexer->out->capacity, token);
    return &lexer->out->items[lexer->out->count - 1];
}

/* Goes on to `end`, counting lines. */
static void skip_to(Lexer *lexer, size_t end) {
    for (size_t i = lexer->at; i < end; i++) lexer->line += lexer->text[i] == '\n';
    if (end > lexer->at) lexer->line_begins = lexer->text[end - 1] == '\n';
    lexer->at = end;
}

/* What Python's regular expressions take for white space. */
static size_t space_at(const Lexer *lexer, size_t at) {
    uint32_t c;
    if (at >= lexer->length) return 0;
    int n = utf8_read((const unsigned char *)lexer->text + at, lexer->length - at, &c);
    return n && (utf8_is_space(c) || (c >= 0x1c && c <= 0x1f)) ? (size_t)n : 0;
}

static size_t skip_space(const Lexer *lexer, size_t at) {
    for (size_t n; (n = space_at(lexer, at)) > 0;) at += n;
    return at;
}

static bool looks_at(const Lexer *lexer, size_t at, const char *text) {
    return strncmp(lexer->text + at, text, strlen(text)) == 0;
}

/* --- what is between tags --- */

static size_t trimmed_end(const Lexer *lexer, size_t begin, size_t end) {
    size_t last = begin;
    for (size_t at = begin; at < end;) {
        size_t n = space_at(lexer, at);
        if (n) {
            at += n;
        } else {
            last = ++at;
        }
    }
    return last;
}

/* The end of text [begin, end) where a tag begins at `end`: what its sign, or lstrip_blocks, takes
 * away from it. */
static size_t text_end(const Lexer *lexer, size_t begin, size_t end, bool is_print) {
    char sign = lexer->text[end + 2];
    size_t line = end;
    if (sign == '-') return trimmed_end(lexer, begin, end);
    if (sign == '+' || is_print) return end;
    while (line > begin && lexer->text[line - 1] != '\n') line--;
    if (line == begin && !lexer->line_begins) return end;
    return skip_space(lexer, line) >= end ? line : end;
}

static void add_text(Lexer *lexer, size_t begin, size_t end) {
    if (end > begin) add(lexer, TOKEN_TEXT, lexer->text + begin, end - begin);
}

/* Behind the end of a tag that begins at `at`; trims: and behind its newline. 0: it is none. */
static size_t tag_end(const Lexer *lexer, size_t at, const char *end, bool trims) {
    if (lexer->text[at] == '-' && looks_at(lexer, at + 1, end)) return skip_space(lexer, at + 3);
    if (trims && lexer->text[at] == '+' && looks_at(lexer, at + 1, end)) return at + 3;
    if (!looks_at(lexer, at, end)) return 0;
    return at + 2 + (trims && lexer->text[at + 2] == '\n');
}

static size_t after_sign(const Lexer *lexer, size_t at) {
    return at + (lexer->text[at] == '-' || lexer->text[at] == '+');
}

static void take_comment(Lexer *lexer) {
    for (size_t at = after_sign(lexer, lexer->at + 2); at < lexer->length; at++) {
        size_t end = tag_end(lexer, at, "#}", true);
        if (!end) continue;
        skip_to(lexer, end);
        return;
    }
    fail(lexer, "a comment has no end: #}");
}

/* `word` as all that a tag has, from behind its {% on; 0: it is not so. */
static size_t whole_tag(const Lexer *lexer, size_t at, const char *word, bool trims) {
    at = skip_space(lexer, after_sign(lexer, at));
    if (!looks_at(lexer, at, word)) return 0;
    return tag_end(lexer, skip_space(lexer, at + strlen(word)), "%}", trims);
}

static void take_raw(Lexer *lexer, size_t begin) {
    skip_to(lexer, begin);
    for (size_t at = begin; at < lexer->length; at++) {
        size_t end = looks_at(lexer, at, "{%") ? whole_tag(lexer, at + 2, "endraw", true) : 0;
        if (!end) continue;
        add_text(lexer, begin, text_end(lexer, begin, at, false));
        skip_to(lexer, end);
        return;
    }
    fail(lexer, "{% raw %} has no end: {% endraw %}");
}

/* --- strings and numbers --- */

static bool read_hex(const char *text, size_t n, uint32_t *out) {
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)text[i])) return false;
        int digit = text[i] <= '9' ? text[i] - '0' : (text[i] | 32) - 'a' + 10;
        *out = *out * 16 + (uint32_t)digit;
    }
    return *out <= 0x10ffff && (*out < 0xd800 || *out > 0xdfff);
}

static uint32_t read_octal(const char **text) {
    uint32_t value = 0;
    for (int i = 0; i < 3 && **text >= '0' && **text <= '7'; i++) {
        value = value * 8 + (uint32_t)(*(*text)++ - '0');
    }
    return value;
}

/* One escape, from behind its backslash on. -1: it stands for itself, with the backslash; -2: for
 * nothing; -3: it is wrong. */
static int32_t read_escape(const char **text) {
    static const char FROM[] = "\\'\"abfnrtv", TO[] = "\\'\"\a\b\f\n\r\t\v";
    char c = **text;
    const char *simple = strchr(FROM, c);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t value;
    if (c == '\n') return ++*text, -2;
    if (c >= '0' && c <= '7') return (int32_t)read_octal(text);
    if (c && simple) return ++*text, TO[simple - FROM];
    if (c == 'N') return -3;
    if (!digits) return -1;
    if (!read_hex(*text + 1, digits, &value)) return -3;
    *text += 1 + digits;
    return (int32_t)value;
}

/* lexer->at is behind the quote. */
static bool take_string(Lexer *lexer, char quote) {
    const char *at = lexer->text + lexer->at, *end = lexer->text + lexer->length;
    size_t n = 0, capacity = 64;
    char *value = arena_alloc(lexer->arena, capacity);
    while (at < end && *at != quote) {
        if (n + 8 > capacity) {
            value = arena_grow(lexer->arena, value, capacity, 2 * capacity);
            capacity *= 2;
        }
        if (*at != '\\') {
            value[n++] = *at++;
            continue;
        }
        at++;
        int32_t escaped = at < end ? read_escape(&at) : -3;
        if (escaped == -3) return fail(lexer, "a string has an escape that is not supported");
        if (escaped == -1) value[n++] = '\\';
        if (escaped >= 0) n += (size_t)utf8_write((uint32_t)escaped, (unsigned char *)value + n);
    }
    if (at >= end) return fail(lexer, "a string has no end");
    JinjaToken *token = add(lexer, TOKEN_STRING, "", 0);
    token->text = value;
    token->length = n;
    skip_to(lexer, (size_t)(at + 1 - lexer->text));
    return true;
}

static size_t digits_from(const Lexer *lexer, size_t at) {
    while (isdigit((unsigned char)lexer->text[at]) ||
           (lexer->text[at] == '_' && isdigit((unsigned char)lexer->text[at + 1]))) {
        at++;
    }
    return at;
}

/* Digits without what groups them. */
static const char *plain_number(Lexer *lexer, size_t end) {
    char *text = arena_strndup(lexer->arena, lexer->text + lexer->at, end - lexer->at), *to = text;
    for (const char *c = text; *c; c++) {
        if (*c != '_') *to++ = *c;
    }
    *to = '\0';
    return text;
}

static bool take_number(Lexer *lexer) {
    size_t end = digits_from(lexer, lexer->at), at = end;
    const char *text = lexer->text;
    bool real = false, hex = text[lexer->at] == '0' && isalpha((unsigned char)text[lexer->at + 1]);
    bool follows = lexer->at > 0 && text[lexer->at - 1] == '.'; /* as in a.0.1 */
    if (!follows && text[at] == '.' && isdigit((unsigned char)text[at + 1])) {
        end = at = digits_from(lexer, at + 1);
        real = true;
    }
    if (!follows && (text[at] == 'e' || text[at] == 'E')) {
        at += 1 + (text[at + 1] == '+' || text[at + 1] == '-');
        if (isdigit((unsigned char)text[at])) {
            end = digits_from(lexer, at);
            real = true;
        }
    }
    if (hex && !real) return fail(lexer, "numbers in other bases than 10 are not supported");
    const char *digits = plain_number(lexer, end);
    JinjaToken *token = add(lexer, real ? TOKEN_FLOAT : TOKEN_INTEGER, digits, strlen(digits));
    errno = 0;
    if (real) {
        token->real = strtod(digits, NULL);
    } else {
        token->integer = strtoll(digits, NULL, 10);
        if (errno) return fail(lexer, "an integer has more than 64 bits");
    }
    skip_to(lexer, end);
    return true;
}

/* --- what is in tags --- */

static bool is_name(unsigned char c) {
    return isalnum(c) || c == '_';
}

static bool take_sign(Lexer *lexer, int *n_open) {
    static const char *const SIGNS[] = {"//", "**", "==", "!=", "<=", ">=", "+", "-", "*",
                                        "/",  "%",  "~",  "<",  ">",  "=",  ".", ":", "|",
                                        ",",  "(",  ")",  "[",  "]",  "{",  "}"};
    for (size_t i = 0; i < sizeof(SIGNS) / sizeof(SIGNS[0]); i++) {
        if (!looks_at(lexer, lexer->at, SIGNS[i])) continue;
        add(lexer, TOKEN_SIGN, SIGNS[i], strlen(SIGNS[i]));
        *n_open += strchr("([{", *SIGNS[i]) != NULL;
        *n_open -= strchr(")]}", *SIGNS[i]) != NULL;
        if (*n_open < 0) return fail(lexer, "a bracket is closed that was not opened");
        if (*n_open > MOST_BRACKETS) return fail(lexer, "brackets are too deep");
        skip_to(lexer, lexer->at + strlen(SIGNS[i]));
        return true;
    }
    return fail(lexer, "a character has no meaning within a tag");
}

static bool take_inner(Lexer *lexer, int *n_open) {
    unsigned char c = (unsigned char)lexer->text[lexer->at];
    if (isdigit(c)) return take_number(lexer);
    if (c == '\'' || c == '"') {
        skip_to(lexer, lexer->at + 1);
        return take_string(lexer, (char)c);
    }
    if (!is_name(c)) return take_sign(lexer, n_open);
    size_t end = lexer->at;
    while (is_name((unsigned char)lexer->text[end])) end++;
    add(lexer, TOKEN_NAME, lexer->text + lexer->at, end - lexer->at);
    skip_to(lexer, end);
    return true;
}

/* Of {{ }} or {% %}, from its beginning to behind its end. */
static bool take_tag(Lexer *lexer, bool is_print) {
    int n_open = 0;
    add(lexer, is_print ? TOKEN_PRINT_BEGIN : TOKEN_TAG_BEGIN, "", 0);
    skip_to(lexer, after_sign(lexer, lexer->at + 2));
    while (!lexer->failed) {
        skip_to(lexer, skip_space(lexer, lexer->at));
        if (lexer->at >= lexer->length) return fail(lexer, "a tag has no end");
        size_t end = n_open ? 0 : tag_end(lexer, lexer->at, is_print ? "}}" : "%}", !is_print);
        if (end) {
            add(lexer, is_print ? TOKEN_PRINT_END : TOKEN_TAG_END, "", 0);
            skip_to(lexer, end);
            return true;
        }
        take_inner(lexer, &n_open);
        if (lexer->out->count > MOST_TOKENS) fail(lexer, "the template is too long");
    }
    return false;
}

/* The next tag, from `at` on. */
static size_t find_tag(const Lexer *lexer, size_t at) {
    while (at < lexer->length) {
        const char *brace = memchr(lexer->text + at, '{', lexer->length - at);
        if (!brace) break;
        at = (size_t)(brace - lexer->text);
        if (brace[1] == '{' || brace[1] == '%' || brace[1] == '#') return at;
        at++;
    }
    return lexer->length;
}

static void take_all(Lexer *lexer) {
    while (lexer->at < lexer->length && !lexer->failed) {
        size_t begin = lexer->at, tag = find_tag(lexer, begin);
        if (tag >= lexer->length) {
            add_text(lexer, begin, lexer->length);
            return;
        }
        char kind = lexer->text[tag + 1];
        add_text(lexer, begin, text_end(lexer, begin, tag, kind == '{'));
        skip_to(lexer, tag);
        size_t raw = kind == '%' ? whole_tag(lexer, tag + 2, "raw", false) : 0;
        if (raw) {
            take_raw(lexer, raw);
        } else if (kind == '#') {
            take_comment(lexer);
        } else {
            lexer->line_begins = false;
            take_tag(lexer, kind == '{');
        }
    }
}

/* Newlines are \n, and the last one goes. */
static char *normalized(Arena *arena, const char *source, size_t length, size_t *out_length) {
    char *text = arena_alloc(arena, length + 8); /* looked at beyond its end */
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        text[n++] = source[i] == '\r' ? '\n' : source[i];
        if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n') i++;
    }
    if (n > 0 && text[n - 1] == '\n') n--;
    text[n] = '\0';
    *out_length = n;
    return text;
}

bool jinja_tokenize(Arena *arena, const char *path, const char *source, size_t length,
                    JinjaTokens *out, Diag *diag) {
    Lexer lexer = {
        .arena = arena, .path = path, .line = 1, .line_begins = true, .out = out, .diag = diag};
    if (memchr(source, '\0', length) ||
        utf8_valid_bytes((const unsigned char *)source, length) < length) {
        return fail(&lexer, "is no chat template: no text in UTF-8");
    }
    lexer.text = normalized(arena, source, length, &lexer.length);
    take_all(&lexer);
    add(&lexer, TOKEN_END, "", 0);
    return !lexer.failed;
}
