/* Sandbox: one Lua 5.4 state for one script (a model, a cluster), which is not trusted.
 *
 * The script sees a subset of the base library, string, table, math and utf8 (lua_safe.c), and a
 * `require` that finds other scripts of its own folder and those embedded in the program (for
 * models: the libraries `nn` and `optim`). It is stopped
 * after a number of instructions or seconds, and cannot hold more than a fixed amount of memory;
 * catching errors in the script does not lift these limits.
 *
 * Lua's errors jump (longjmp). They only ever cross C code of this folder: everything that may
 * raise one runs inside sandbox_run, which turns it into a Diag error at the script's line.
 * Functions taking a lua_State below may raise; callers hold no heap memory across them.
 */
#ifndef FRONTEND_LUA_LUA_SANDBOX_H
#define FRONTEND_LUA_LUA_SANDBOX_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <lua.h>
#include <stdint.h>

enum { SANDBOX_MAX_CHUNKS = 64, SANDBOX_MEMORY_LIMIT_BYTES = 256 << 20 };

/* A script that is part of the program: the Makefile turns the file into an array. */
typedef struct EmbeddedScript {
    const char *name; /* for `require`; NULL ends a list */
    const char *path, *text;
    const size_t *bytes;
    bool is_library; /* found before files; errors in it point to the line that called it */
} EmbeddedScript;

/* A piece of Lua text: the script, a module of its folder, or an embedded one. */
typedef struct LuaChunk {
    const char *path; /* as errors show it */
    const char *text;
    size_t length;
    const char *source;         /* what lua_Debug.source says */
    char shortened[LUA_IDSIZE]; /* what Lua puts before its messages */
    bool is_library;
} LuaChunk;

typedef struct Sandbox {
    lua_State *lua;
    Arena *arena;                   /* outlives the sandbox: locations and texts live there */
    Diag *diag;                     /* another one may be set between runs */
    const char *path;               /* the script */
    void *context;                  /* of whoever runs code in it */
    const EmbeddedScript *embedded; /* that `require` finds; sandbox_create sets `nn` alone */
    const EmbeddedScript *script;   /* the script itself, if it is one of them; else NULL */
    bool is_open;                   /* has its libraries */
    int n_chunks;
    LuaChunk chunks[SANDBOX_MAX_CHUNKS];
    size_t used_bytes;
    bool memory_refused; /* the last request that was too much: the next one is Lua's second try */
    bool over_memory;    /* given more than the limit, to be stopped at the next instruction */
    int64_t n_instructions;
    double deadline_s, wall_deadline_s; /* of the thread's own time, and of the clock */
    bool failed;  /* an error is reported: every further instruction of this run raises */
    bool stopped; /* over a limit */
    SourceLoc stopped_at;
} Sandbox;

/* The file at `path` is to be written by what option `option` says: no script may be read from it,
 * nor `require` it. For all sandboxes of the process, as its outputs are; both texts live as long.
 * A file that is not there yet needs no protection. */
void sandbox_protect_output(const char *path, const char *option);

/* NULL: reported. */
Sandbox *sandbox_create(Arena *arena, const char *path, Diag *diag);
void sandbox_destroy(Sandbox *sandbox);

/* Runs `body` under the limits, which every run has anew. Before the first one the libraries are
 * opened; what is global stays from run to run, also after an error. False: one was reported. */
bool sandbox_run(Sandbox *sandbox, lua_CFunction body);

Sandbox *sandbox_of(lua_State *lua);

/* Counts work that C did for the script, in steps of a few nanoseconds, against its limits. */
void sandbox_count_steps(lua_State *lua, int64_t n_steps);

/* Runs the script file; leaves its results on the stack and returns how many they are. */
int sandbox_run_script(lua_State *lua);

/* The innermost running line that is not in the embedded library. */
SourceLoc sandbox_user_line(lua_State *lua);

/* Where the function at the top of the stack was written; of one of C, the script as a whole. */
SourceLoc sandbox_function_line(lua_State *lua);

const LuaChunk *sandbox_find_chunk(const Sandbox *sandbox, const char *path); /* NULL: none */

/* Ends sandbox_run after a Diag error has been reported. */
_Noreturn void sandbox_fail(lua_State *lua);

#endif
