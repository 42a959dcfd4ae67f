/* The matcher of Lua patterns for scripts that are not trusted: the same as Lua's own library for
 * each case of tests/data/patterns.lua, by hand and at random, errors and their lines included;
 * limits hold.
 *
 * Would catch: a pattern that means something else in a script than in Lua, another message, a
 * pattern that keeps the program busy, a limit that many calls or caught errors get around, a limit
 * that stops what is fast.
 */
#include "frontend/lua/lua_match.h"
#include "frontend/lua/lua_sandbox.h"
#include "tests/unit/check.h"

#include <lauxlib.h>
#include <lualib.h>
#include <string.h>
#include <time.h>

static const char CASES[] = "tests/data/patterns.lua";

enum { N_RANDOM = 15000 / VARIANT_STEP };

static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* --- the same as Lua's --- */

static int64_t n_steps;

static void count(lua_State *lua, int64_t n) {
    (void)lua;
    n_steps += n;
}

/* Leaves the list of lines on the stack. */
static lua_State *run_cases(bool ours) {
    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    if (ours) {
        lua_getglobal(lua, "string");
        match_set_functions(lua, count);
        lua_pop(lua, 1);
    }
    lua_pushinteger(lua, N_RANDOM);
    lua_setglobal(lua, "N_RANDOM");
    bool good = luaL_dofile(lua, CASES) == LUA_OK;
    CHECK(good, "%s", lua_tostring(lua, -1));
    if (!good) lua_newtable(lua);
    return lua;
}

static void test_same(void) {
    check_begin("patterns match as in Lua");
    lua_State *lua = run_cases(false), *ours = run_cases(true);
    size_t n = lua_rawlen(lua, -1);
    CHECK(n > N_RANDOM && lua_rawlen(ours, -1) == n, "%zu lines, and %zu of Lua",
          (size_t)lua_rawlen(ours, -1), n);
    for (size_t i = 1; i <= n; i++) {
        lua_rawgeti(lua, -1, (lua_Integer)i);
        lua_rawgeti(ours, -1, (lua_Integer)i);
        const char *wanted = lua_tostring(lua, -1), *line = lua_tostring(ours, -1);
        CHECK(line && strcmp(line, wanted) == 0, "%s\nLua: %s", line, wanted);
        lua_pop(lua, 1);
        lua_pop(ours, 1);
    }
    CHECK(n_steps > N_RANDOM, "%lld steps", (long long)n_steps);
    lua_close(ours);
    lua_close(lua);
}

/* --- limits --- */

static int64_t steps_before;

static int run_after_steps(lua_State *lua) {
    sandbox_count_steps(lua, steps_before);
    return sandbox_run_script(lua);
}

/* What the script is told, "" if nothing, must be `wanted`. */
static void check_script(const char *text, const char *wanted) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length = strlen(text);
    EmbeddedScript script = {"script", "script.lua", text, &length, false};
    Sandbox *sandbox = sandbox_create(arena, "script.lua", diag);
    sandbox->script = &script;
    double begin_s = now_s();
    sandbox_run(sandbox, run_after_steps);
    double seconds = now_s() - begin_s;
    CHECK(strcmp(diag_text(diag), wanted) == 0, "'%s', not '%s'", diag_text(diag), wanted);
    CHECK(seconds < 5 * VARIANT_STEP, "%.1f s: %s", seconds, text); /* about 0.5; busy machines */
    sandbox_destroy(sandbox);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_long_texts(void) {
    check_begin("long texts of which a pattern asks little");
    check_script("local text = ('letters '):rep(1 << 17) .. '-42'\n"
                 "assert(text:match('-?%d+') == '-42' and text:find('%d') == (1 << 20) + 2)\n"
                 "assert(select(2, text:gsub('%a+', '')) == 1 << 17)\n"
                 "assert(text:match('^%s*(.-)%s*$') == text and text:match('.*(%d)') == '2')\n"
                 "local n = 0\n"
                 "for word in text:gmatch('[a-z]+') do n = n + #word end\n"
                 "assert(n == 7 << 17)",
                 "");
    check_script("local text = ('('):rep(1e4) .. (')'):rep(1e4)\n"
                 "assert(#text:match('%b()') == 2e4)\n"
                 "assert(text:find((')'):rep(1e4)) == 10001)",
                 "");
}

static void test_bombs(void) {
    static const struct {
        const char *call, *function;
        int n_bytes;
    } BOMBS[] = {
        {"('a'):rep(30000):find('.-.-.-.-b')", "find", 30000},
        {"('('):rep(1 << 16):gsub('%b()', '')", "gsub", 1 << 16},
        {"('a'):rep(1 << 16):find('[' .. ('b'):rep(1 << 16) .. ']')", "find", 1 << 16},
        {"('a'):rep(1 << 16):find('%f[' .. ('b'):rep(1 << 16) .. ']')", "find", 1 << 16},
        {"('a'):rep(1 << 18):find('^(.*)%1%1b')", "find", 1 << 18},
    };
    check_begin("patterns that take too long");
    for (size_t i = 0; i < sizeof(BOMBS) / sizeof(BOMBS[0]); i++) {
        char text[200], wanted[200];
        snprintf(text, sizeof(text), "local text = 'x'\nlocal result = %s", BOMBS[i].call);
        snprintf(wanted, sizeof(wanted),
                 "script.lua:2: string.%s: this pattern takes too long on a text of %d bytes\n",
                 BOMBS[i].function, BOMBS[i].n_bytes);
        check_script(text, wanted);
    }
}

/* Near its end: all that a script may take would be seconds. */
static void test_sum(void) {
    static const char STOPPED[] = "script.lua:2: the script ran for more than 100 million "
                                  "instructions or 20 seconds: does it loop?\n";
    check_begin("many calls that take long, caught errors among them");
    steps_before = 970000000;
    check_script("local text = ('a'):rep(3000)\n"
                 "while true do text:find('.-.-b') end",
                 STOPPED);
    check_script("local text = ('a'):rep(30000)\n"
                 "while true do pcall(string.find, text, '.-.-.-b') end",
                 STOPPED);
    check_script("local text = ('a'):rep(3000)\n"
                 "while true do pcall(string.gsub, text, '.-.-a$', error) end",
                 STOPPED);
    check_script("local text = ('a'):rep(1 << 20)\n"
                 "while true do text:find('ab') end",
                 STOPPED);
    steps_before = 0;
}

int main(void) {
    test_same();
    test_long_texts();
    test_bombs();
    test_sum();
    return check_report();
}
