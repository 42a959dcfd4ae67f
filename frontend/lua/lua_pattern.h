/* Matcher of Lua patterns, as section 6.4.1 of the Lua 5.4 manual describes them, that counts its
 * steps: no pattern can keep it busy, whatever the text.
 *
 * A step is the comparison of a byte with a literal, a class or an element of a set, or another
 * unit of work about as long. One call of a function may take PATTERN_MAX_STEPS of them, about half
 * a second; now and then, and when it ends, what it took is reported to whoever sums up the calls
 * of a script. It goes at most 200 deep, where Lua's own does: "pattern too complex".
 *
 * As in Lua an error of the pattern is raised where matching meets it, not before. The text and the
 * pattern are Lua's and stay with the caller; no memory is held.
 */
#ifndef FRONTEND_LUA_LUA_PATTERN_H
#define FRONTEND_LUA_LUA_PATTERN_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PATTERN_MAX_CAPTURES = 32,
    PATTERN_MAX_STEPS = 100000000,
    PATTERN_BYTES_PER_STEP = 16, /* of what is copied, or compared as a whole */
};

/* Hears of steps that were taken; may raise. */
typedef void PatternMeter(lua_State *lua, int64_t n_steps);

enum { CAPTURE_OPEN = -1, CAPTURE_POSITION = -2 };

typedef struct Capture {
    const char *begin;
    ptrdiff_t length; /* or one of the above */
} Capture;

typedef struct Pattern {
    lua_State *lua;
    PatternMeter *meter;
    const char *function; /* for messages: "find" */
    const char *text, *text_end;
    const char *begin, *end; /* of the pattern, after its anchor */
    bool is_anchored;
    int n_captures; /* of the last match */
    Capture captures[PATTERN_MAX_CAPTURES];
    int depth;
    int64_t n_steps;   /* reported so far */
    int64_t allowance; /* steps until the next report */
} Pattern;

/* Reads strings of the stack. '^' is an anchor if `may_anchor`. */
Pattern pattern_create(lua_State *lua, PatternMeter *meter, const char *function, int text_index,
                       int pattern_index, bool may_anchor);

/* Where the match that begins at `at` ends; NULL: there is none. */
const char *pattern_match(Pattern *pattern, const char *at);

/* Pushes capture `index`, from 0, of the match from `at` to `end`; 0 without captures is all of
 * it. */
void pattern_push_capture(Pattern *pattern, int index, const char *at, const char *end);

/* Pushes all captures, or all of the match if there are none; returns how many. */
int pattern_push_captures(Pattern *pattern, const char *at, const char *end);

/* Counts the copying of so many bytes. */
void pattern_count_bytes(Pattern *pattern, size_t n_bytes);

/* Reports what has not been yet. */
void pattern_report(Pattern *pattern);

#endif
