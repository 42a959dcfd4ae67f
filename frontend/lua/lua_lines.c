#include "frontend/lua/lua_lines.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

typedef enum TokenKind { TOKEN_END, TOKEN_NAME, TOKEN_STRING, TOKEN_OTHER } TokenKind;

typedef struct Token {
    TokenKind kind;
    const char *start; /* of a string: behind its quote */
    size_t length;
    int line;
} Token;

typedef struct Lexer {
    const char *at, *end;
    int line;
} Lexer;

static char peek(const Lexer *lexer, int ahead) {
    return lexer->end - lexer->at > ahead ? lexer->at[ahead] : '\0';
}

static void advance(Lexer *lexer) {
    if (*lexer->at == '\n') lexer->line++;
    lexer->at++;
}

/* `[[ ... ]]`, `[==[ ... ]==]`. False: no such bracket begins here. */
static bool skip_long_bracket(Lexer *lexer) {
    int level = 0;
    if (peek(lexer, 0) != '[') return false;
    while (peek(lexer, 1 + level) == '=') level++;
    if (peek(lexer, 1 + level) != '[') return false;
    lexer->at += level + 2;
    while (lexer->at < lexer->end) {
        int closing = 0;
        if (*lexer->at == ']') {
            while (peek(lexer, 1 + closing) == '=') closing++;
            if (closing == level && peek(lexer, 1 + closing) == ']') {
                lexer->at += level + 2;
                return true;
            }
        }
        advance(lexer);
    }
    return true;
}

static void skip_blanks(Lexer *lexer) {
    while (lexer->at < lexer->end) {
        if (isspace((unsigned char)*lexer->at)) {
            advance(lexer);
        } else if (peek(lexer, 0) == '-' && peek(lexer, 1) == '-') {
            lexer->at += 2;
            if (skip_long_bracket(lexer)) continue;
            while (lexer->at < lexer->end && *lexer->at != '\n') lexer->at++;
        } else {
            return;
        }
    }
}

static bool in_word(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

/* Names, strings, and single characters of all else, but for "==", which is no assignment. */
static Token next_token(Lexer *lexer) {
    skip_blanks(lexer);
    Token token = {TOKEN_OTHER, lexer->at, 1, lexer->line};
    char first = peek(lexer, 0);
    if (lexer->at >= lexer->end) {
        token.kind = TOKEN_END;
    } else if (in_word(first)) {
        if (!isdigit((unsigned char)first)) token.kind = TOKEN_NAME;
        while (in_word(peek(lexer, 0))) lexer->at++;
        token.length = (size_t)(lexer->at - token.start);
    } else if (first == '"' || first == '\'') {
        token.kind = TOKEN_STRING;
        token.start = ++lexer->at;
        while (lexer->at < lexer->end && *lexer->at != first) {
            if (*lexer->at == '\\' && lexer->end - lexer->at > 1) advance(lexer);
            advance(lexer);
        }
        token.length = (size_t)(lexer->at - token.start);
        if (lexer->at < lexer->end) lexer->at++;
    } else if (!skip_long_bracket(lexer)) {
        lexer->at += first == '=' && peek(lexer, 1) == '=' ? 2 : 1;
        token.length = (size_t)(lexer->at - token.start);
    }
    return token;
}

static bool is_mark(const Token *token, char mark) {
    return token->kind == TOKEN_OTHER && token->length == 1 && *token->start == mark;
}

static bool is_word(const Token *token, const char *word, size_t length) {
    return (token->kind == TOKEN_NAME || token->kind == TOKEN_STRING) && token->length == length &&
           memcmp(token->start, word, length) == 0;
}

/* Moves behind the `{` of `constructor {` or `constructor({`. */
static bool find_table(Lexer *lexer, int line, const char *constructor) {
    bool called = false;
    for (Token token = next_token(lexer); token.kind != TOKEN_END; token = next_token(lexer)) {
        if (called && is_mark(&token, '{')) return true;
        called = (called && is_mark(&token, '(')) ||
                 (token.line >= line && is_word(&token, constructor, strlen(constructor)));
    }
    return false;
}

/* Does `= value` follow? Consumes nothing. */
static bool is_key(Lexer lexer) {
    Token next = next_token(&lexer);
    if (is_mark(&next, ']')) next = next_token(&lexer);
    return is_mark(&next, '=');
}

int lua_key_line(const char *text, size_t length, int line, const char *constructor,
                 const char *path) {
    Lexer lexer = {text, text + length, 1};
    if (!find_table(&lexer, line, constructor)) return line;
    int best = line, level = 0, depth = 1; /* fields of the table that is open: depth level + 1 */
    bool opening = false;                  /* a table on the path is about to be */
    for (Token token = next_token(&lexer); token.kind != TOKEN_END; token = next_token(&lexer)) {
        size_t part = strcspn(path, ".");
        if (is_mark(&token, '{')) {
            depth++;
            opening = false;
        } else if (opening && (is_mark(&token, ',') || is_mark(&token, ';'))) {
            return best; /* it is made elsewhere */
        } else if (is_mark(&token, '}')) {
            if (--depth <= level) return best;
        } else if (depth == level + 1 && is_word(&token, path, part) && is_key(lexer)) {
            best = token.line;
            if (!path[part]) return best;
            path += part + 1;
            level++;
            opening = true;
        }
    }
    return best;
}
