#include "runtime/tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include "ir/base/memory.h"
#include "ir/base/strbuf.h"

#include <ctype.h>
#include <pcre2.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MATCH_LIMIT = 10 * 1000 * 1000, /* steps of one match: a fraction of a second */
    HEAP_LIMIT_KIB = 64 * 1024,
    STACK_BYTES = 64 * 1024,
    MOST_STACK_BYTES = 16 * 1024 * 1024,
    MOST_PATTERN = 65536,
    WINDOW_BYTES = 4096,
    WINDOW_GROWTH = 4,
    PAID_NS = 64, /* by a byte that is divided */
};
static const uint64_t MOST_DEBT_NS = 4 * 1000000000ull;

struct Pattern {
    pcre2_code *code;
    bool jit, looks_ahead_only;
};

struct PatternSpace {
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    uint64_t debt_ns; /* of the thread, spent in large windows and not paid by what was divided */
};

/* --- well-known ones --- */

#define SUFFIXES "'s|'t|'re|'ve|'m|'ll|'d"
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

static const struct {
    const char *name, *text;
} KNOWN[] = {
    {"gpt2", SUFFIXES "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {"cl100k", "(?i:" SUFFIXES ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"llama3", "(?i:" SUFFIXES ")|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {"o200k", "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+(?i:" SUFFIXES ")?|"
              "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*(?i:" SUFFIXES ")?|"
              "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};
enum { N_KNOWN = sizeof(KNOWN) / sizeof(KNOWN[0]) };

const char PATTERN_NAMES[] = "gpt2, cl100k, llama3, o200k";

const char *pattern_by_name(const char *name) {
    for (int i = 0; i < N_KNOWN; i++) {
        if (strcmp(KNOWN[i].name, name) == 0) return KNOWN[i].text;
    }
    return NULL;
}

const char *pattern_name_of(const char *text) {
    for (int i = 0; i < N_KNOWN; i++) {
        if (strcmp(KNOWN[i].text, text) != 0) continue;
        return strcmp(KNOWN[i].name, "cl100k") == 0 ? "cl100k, llama3" : KNOWN[i].name;
    }
    return NULL;
}

/* --- translation --- */

typedef struct Translation {
    const char *at;
    bool in_set, oniguruma;
    StrBuf out;
    SourceLoc loc;
    Diag *diag;
} Translation;

/* White_Space, and all else, as parts of a set. */
#define SPACES                                                                                     \
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"            \
    "\\x{205f}\\x{3000}"
#define OTHERS                                                                                     \
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x84\\x86-\\x9f\\xa1-\\x{167f}\\x{1681}-\\x{1fff}"               \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"                 \
    "\\x{3001}-\\x{10ffff}"
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

static bool refuse(Translation *t, const char *what) {
    diag_error(t->diag, t->loc, "pattern: %s is not supported", what);
    return false;
}

static void put_set(Translation *t, const char *begin, const char *set) {
    if (t->in_set) {
        strbuf_put(&t->out, set);
    } else {
        strbuf_printf(&t->out, "%s%s]", begin, set);
    }
}

static bool put_unicode(Translation *t) {
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)t->at[2 + i])) return refuse(t, "\\u without four digits");
    }
    strbuf_printf(&t->out, "\\x{%.4s}", t->at + 2);
    t->at += 6;
    return true;
}

/* What follows a backslash, and means the same in PCRE2. */
static bool is_common_escape(char c, bool in_set) {
    if (!isalnum((unsigned char)c)) return true;
    return strchr(in_set ? "tnrfvaexpPdD0123456789" : "tnrfvaexpPdDbBAzZ0123456789", c) != NULL;
}

static bool put_escape(Translation *t) {
    char c = t->at[1], what[] = "\\?";
    what[1] = c;
    if (c == '\0') return refuse(t, "a backslash at the end");
    if (c == 'u') return put_unicode(t);
    if (c == 's') {
        put_set(t, "[", SPACES);
    } else if (c == 'S') {
        if (t->in_set) {
            strbuf_put(&t->out, OTHERS);
        } else {
            strbuf_put(&t->out, "[^" SPACES "]");
        }
    } else if (c == 'w') {
        put_set(t, "[", WORDS);
    } else if (c == 'W' && !t->in_set) {
        strbuf_put(&t->out, "[^" WORDS "]");
    } else if (c == 'h' && t->oniguruma) {
        put_set(t, "[", "0-9a-fA-F");
    } else if (!is_common_escape(c, t->in_set)) {
        return refuse(t, what);
    } else {
        strbuf_put_bytes(&t->out, t->at, 2);
    }
    t->at += 2;
    return true;
}

static bool begin_set(Translation *t) {
    t->in_set = true;
    strbuf_put(&t->out, "[");
    t->at++;
    if (*t->at == '^') {
        strbuf_put(&t->out, "^");
        t->at++;
    }
    if (*t->at == ']') { /* a member, in both */
        strbuf_put(&t->out, "\\]");
        t->at++;
    }
    return true;
}

static bool put_in_set(Translation *t) {
    if (*t->at == '[') return refuse(t, "a set within a set ('[' in [...]; \\[ is the character)");
    if (t->at[0] == '&' && t->at[1] == '&') return refuse(t, "&& in a set");
    if (!t->oniguruma && (strncmp(t->at, "--", 2) == 0 || strncmp(t->at, "~~", 2) == 0)) {
        return refuse(t, "-- or ~~ in a set");
    }
    if (*t->at == ']') t->in_set = false;
    strbuf_put_bytes(&t->out, t->at++, 1);
    return true;
}

/* {n,m}+ repeats {n,m} in Oniguruma, and is possessive in PCRE2. */
static bool check_interval(Translation *t) {
    const char *end = t->at + 1 + strspn(t->at + 1, "0123456789,");
    if (!t->oniguruma || end == t->at + 1 || end[0] != '}' || end[1] != '+') return true;
    return refuse(t, "{n,m}+");
}

static bool translate(Translation *t) {
    bool good = true;
    while (good && *t->at) {
        if (*t->at == '\\') {
            good = put_escape(t);
        } else if (t->in_set) {
            good = put_in_set(t);
        } else if (*t->at == '[') {
            good = begin_set(t);
        } else {
            if (*t->at == '{') good = check_interval(t);
            strbuf_put_bytes(&t->out, t->at++, 1);
        }
    }
    return good;
}

/* --- compiling --- */

static Pattern *compile(const char *text, uint32_t options, SourceLoc loc, Diag *diag) {
    PCRE2_SIZE at;
    int code;
    uint32_t behind = 1;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) memory_exhausted(0);
    pcre2_set_parens_nest_limit(context, 100);
    pcre2_code *compiled =
        pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT | options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!compiled) {
        PCRE2_UCHAR message[160];
        pcre2_get_error_message(code, message, sizeof(message));
        diag_error(diag, loc, "pattern: %s", (char *)message);
        return NULL;
    }
    Pattern *pattern = memory_zeroed(1, sizeof(*pattern));
    pattern->code = compiled;
    pattern->jit = pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
    pcre2_pattern_info(compiled, PCRE2_INFO_MAXLOOKBEHIND, &behind);
    pattern->looks_ahead_only = behind == 0 && !strstr(text, "\\A") && !strstr(text, "\\G");
    return pattern;
}

Pattern *pattern_compile(const char *text, PatternDialect dialect, SourceLoc loc, Diag *diag) {
    Translation t = {.at = text,
                     .oniguruma = dialect == PATTERN_ONIGURUMA,
                     .out = strbuf_create(),
                     .loc = loc,
                     .diag = diag};
    Pattern *pattern = NULL;
    if (!*text) {
        diag_error(diag, loc, "pattern: it is empty");
    } else if (strlen(text) > MOST_PATTERN) {
        diag_error(diag, loc, "pattern: it has %zu bytes; at most %d are read", strlen(text),
                   MOST_PATTERN);
    } else if (translate(&t)) {
        uint32_t ends = dialect == PATTERN_ONIGURUMA ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
        pattern = compile(t.out.text, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | ends, loc, diag);
    }
    strbuf_destroy(&t.out);
    return pattern;
}

Pattern *pattern_literal(const char *text, SourceLoc loc, Diag *diag) {
    return compile(text, PCRE2_LITERAL, loc, diag);
}

void pattern_destroy(Pattern *pattern) {
    if (!pattern) return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

bool pattern_looks_ahead_only(const Pattern *pattern) {
    return pattern->looks_ahead_only;
}

/* --- matching --- */

PatternSpace *pattern_space_create(void) {
    PatternSpace *space = memory_zeroed(1, sizeof(*space));
    space->match = pcre2_match_data_create(1, NULL);
    space->context = pcre2_match_context_create(NULL);
    space->stack = pcre2_jit_stack_create(STACK_BYTES, MOST_STACK_BYTES, NULL);
    if (!space->match || !space->context) memory_exhausted(0);
    pcre2_set_match_limit(space->context, MATCH_LIMIT);
    pcre2_set_heap_limit(space->context, HEAP_LIMIT_KIB);
    if (space->stack) pcre2_jit_stack_assign(space->context, NULL, space->stack);
    return space;
}

void pattern_space_destroy(PatternSpace *space) {
    if (!space) return;
    pcre2_match_data_free(space->match);
    pcre2_match_context_free(space->context);
    if (space->stack) pcre2_jit_stack_free(space->stack);
    free(space);
}

static uint64_t thread_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A search of one match. Text is looked at in windows: what a match needs to see is seldom more. In
 * a larger window a place, then 2, 4, 8 of them are tried at a time, and time counts: a pattern
 * that looks far ahead from everywhere takes the square of the text's length, and is to end. */
typedef struct Search {
    const Pattern *pattern;
    PatternSpace *space;
    const unsigned char *text;
    size_t length;
    bool goes_on;
    size_t at;      /* nothing begins before */
    size_t window;  /* bytes */
    size_t n_tried; /* bytes at which a match may begin */
} Search;

/* At `at` or behind it, between characters. */
static size_t next_beginning(const Search *search, size_t at) {
    while (at < search->length && (search->text[at] & 0xc0) == 0x80) at++;
    return at;
}

static size_t window_end(const Search *search) {
    if (search->length - search->at <= search->window) return search->length;
    return next_beginning(search, search->at + search->window);
}

/* PCRE2's result in text that ends at `end`; cut: what may not be its end. */
static int match(const Search *search, size_t end, bool cut) {
    const Pattern *pattern = search->pattern;
    PatternSpace *space = search->space;
    uint32_t options = PCRE2_NO_UTF_CHECK | (cut ? PCRE2_PARTIAL_HARD : 0);
    return pattern->jit ? pcre2_jit_match(pattern->code, search->text, end, search->at, options,
                                          space->match, space->context)
                        : pcre2_match(pattern->code, search->text, end, search->at, options,
                                      space->match, space->context);
}

/* The same for a few places of a large window. */
static int match_far(const Search *search, size_t end, bool cut) {
    PatternSpace *space = search->space;
    uint64_t begun_ns = thread_ns();
    /* The last byte of a character: from within one PCRE2 would go on to its second byte. */
    size_t behind = next_beginning(search, search->at + search->n_tried);
    pcre2_set_offset_limit(space->context, behind - 1);
    int found = match(search, end, cut);
    pcre2_set_offset_limit(space->context, PCRE2_UNSET);
    space->debt_ns += thread_ns() - begun_ns;
    return space->debt_ns > MOST_DEBT_NS ? PCRE2_ERROR_MATCHLIMIT : found;
}

/* What is divided pays for what was looked at. */
static void pay(PatternSpace *space, size_t bytes) {
    uint64_t paid_ns = (uint64_t)bytes * PAID_NS;
    space->debt_ns = space->debt_ns > paid_ns ? space->debt_ns - paid_ns : 0;
}

static PatternResult give_up(PatternSpace *space) {
    space->debt_ns = 0; /* the next text begins anew */
    return PATTERN_GAVE_UP;
}

/* Goes on where PCRE2 found no match in text up to `end`. False: there is no more text. */
static bool advance(Search *search, int found, size_t end) {
    bool all = search->n_tried >= end - search->at, none = found == PCRE2_ERROR_NOMATCH;
    size_t begin = none ? all ? end : search->at + search->n_tried
                        : pcre2_get_ovector_pointer(search->space->match)[0];
    if (end == search->length && (!none || all)) return false;
    search->at = next_beginning(search, begin);
    if (!none && begin < end) { /* a match that may begin there needs to see more */
        search->window *= WINDOW_GROWTH;
        search->n_tried = 1;
    } else if (search->n_tried < search->length) {
        search->n_tried *= 2;
    }
    return true;
}

PatternResult pattern_find(const Pattern *pattern, PatternSpace *space, const unsigned char *text,
                           size_t length, bool goes_on, size_t from, size_t *out_begin,
                           size_t *out_end) {
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(space->match);
    Search search = {pattern, space, text, length, goes_on, from, WINDOW_BYTES, SIZE_MAX};
    for (;;) {
        size_t end = window_end(&search);
        bool cut = goes_on || end < length;
        int found =
            search.window == WINDOW_BYTES ? match(&search, end, cut) : match_far(&search, end, cut);
        if (found >= 0 && (place[0] < end || !cut)) break;
        if (found < 0 && found != PCRE2_ERROR_NOMATCH && found != PCRE2_ERROR_PARTIAL) {
            return give_up(space);
        }
        if (advance(&search, found, end)) continue;
        pay(space, length - from);
        return goes_on ? PATTERN_CUT_OFF : PATTERN_NOT_FOUND;
    }
    *out_begin = place[0];
    *out_end = place[1] < place[0] ? place[0] : place[1]; /* \K in a lookahead */
    pay(space, *out_end - from);
    return PATTERN_FOUND;
}
