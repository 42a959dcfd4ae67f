#include "frontend/lua/lua_sandbox.h"

#include "frontend/lua/lua_compiled.h"
#include "frontend/lua/lua_safe.h"
#include "ir/base/file.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

extern const char embedded_nn_lua[];
extern const size_t embedded_nn_lua_bytes;
extern const char embedded_nn_attention_lua[];
extern const size_t embedded_nn_attention_lua_bytes;
extern const char embedded_nn_experts_lua[];
extern const size_t embedded_nn_experts_lua_bytes;
extern const char embedded_nn_lora_lua[];
extern const size_t embedded_nn_lora_lua_bytes;
extern const char embedded_nn_sequence_lua[];
extern const size_t embedded_nn_sequence_lua_bytes;
extern const char embedded_nn_state_lua[];
extern const size_t embedded_nn_state_lua_bytes;
extern const char embedded_nn_preference_lua[];
extern const size_t embedded_nn_preference_lua_bytes;
extern const char embedded_nn_policy_lua[];
extern const size_t embedded_nn_policy_lua_bytes;
extern const char embedded_nn_classes_lua[];
extern const size_t embedded_nn_classes_lua_bytes;
extern const char embedded_nn_training_lua[];
extern const size_t embedded_nn_training_lua_bytes;
extern const char embedded_nn_embed_lua[];
extern const size_t embedded_nn_embed_lua_bytes;
extern const char embedded_nn_distill_lua[];
extern const size_t embedded_nn_distill_lua_bytes;
extern const char embedded_nn_vision_lua[];
extern const size_t embedded_nn_vision_lua_bytes;
extern const char embedded_optim_lua[];
extern const size_t embedded_optim_lua_bytes;
extern const char embedded_optim_rules_lua[];
extern const size_t embedded_optim_rules_lua_bytes;
static const EmbeddedScript LIBRARIES[] = {
    {"nn", "nn.lua", embedded_nn_lua, &embedded_nn_lua_bytes, true},
    {"nn_attention", "nn_attention.lua", embedded_nn_attention_lua,
     &embedded_nn_attention_lua_bytes, true},
    {"nn_experts", "nn_experts.lua", embedded_nn_experts_lua, &embedded_nn_experts_lua_bytes, true},
    {"nn_lora", "nn_lora.lua", embedded_nn_lora_lua, &embedded_nn_lora_lua_bytes, true},
    {"nn_sequence", "nn_sequence.lua", embedded_nn_sequence_lua, &embedded_nn_sequence_lua_bytes,
     true},
    {"nn_state", "nn_state.lua", embedded_nn_state_lua, &embedded_nn_state_lua_bytes, true},
    {"nn_preference", "nn_preference.lua", embedded_nn_preference_lua,
     &embedded_nn_preference_lua_bytes, true},
    {"nn_policy", "nn_policy.lua", embedded_nn_policy_lua, &embedded_nn_policy_lua_bytes, true},
    {"nn_classes", "nn_classes.lua", embedded_nn_classes_lua, &embedded_nn_classes_lua_bytes, true},
    {"nn_training", "nn_training.lua", embedded_nn_training_lua, &embedded_nn_training_lua_bytes,
     true},
    {"nn_embed", "nn_embed.lua", embedded_nn_embed_lua, &embedded_nn_embed_lua_bytes, true},
    {"nn_distill", "nn_distill.lua", embedded_nn_distill_lua, &embedded_nn_distill_lua_bytes, true},
    {"nn_vision", "nn_vision.lua", embedded_nn_vision_lua, &embedded_nn_vision_lua_bytes, true},
    {"optim", "optim.lua", embedded_optim_lua, &embedded_optim_lua_bytes, true},
    {"optim_rules", "optim_rules.lua", embedded_optim_rules_lua, &embedded_optim_rules_lua_bytes,
     true},
    {0}};

enum {
    /* The 1-trillion-parameter GPT takes about 0.2 million. */
    MILLION_INSTRUCTIONS_LIMIT = 100,
    SECONDS_LIMIT = 20,
    HOOK_INSTRUCTIONS = 100, /* few: one instruction may be a C call that takes milliseconds */
    CALL_INSTRUCTIONS = 20,  /* what a call from C counts as: it may be of C, as in table.sort */
    STEPS_PER_INSTRUCTION = 10,
    SCRIPT_LIMIT_BYTES = 1 << 20,
    MAX_STACK_SEARCH = 1000,
    MAX_MODULE_NAME = 64,
    MAX_MESSAGE = 1000,
    MAX_OUTPUTS = 16,
};

/* A file that this process is to replace. */
typedef struct Output {
    dev_t device;
    ino_t number;
    const char *path, *option;
} Output;
static Output outputs[MAX_OUTPUTS];
static int n_outputs;

/* Error value that says: a Diag error is there already. */
static char REPORTED;

Sandbox *sandbox_of(lua_State *lua) {
    return *(Sandbox **)lua_getextraspace(lua);
}

static void stop_when_over(lua_State *lua, lua_Debug *record);

/* Is the script to have so many bytes more? Beyond the limit Lua is refused once, collects its
 * garbage and asks again. It is then given what it asks for, up to as much as the limit again, so
 * that the next instruction can stop the script and say where: a refusal that stays one unwinds the
 * stack first. */
static bool may_grow(Sandbox *sandbox, size_t bytes) {
    enum { LIMIT = SANDBOX_MEMORY_LIMIT_BYTES };
    bool refused = sandbox->memory_refused;
    sandbox->memory_refused = false;
    if (sandbox->used_bytes <= LIMIT && bytes <= LIMIT - sandbox->used_bytes) return true;
    if (!refused || !sandbox->lua) {
        sandbox->memory_refused = true;
        return false;
    }
    if (sandbox->used_bytes > 2 * (size_t)LIMIT ||
        bytes > 2 * (size_t)LIMIT - sandbox->used_bytes) {
        return false;
    }
    sandbox->over_memory = true;
    lua_sethook(sandbox->lua, stop_when_over, LUA_MASKCOUNT, 1);
    return true;
}

static void *allocate(void *owner, void *old, size_t old_bytes, size_t new_bytes) {
    Sandbox *sandbox = owner;
    if (!old) old_bytes = 0; /* Lua passes the kind of the object there */
    if (new_bytes == 0) {
        free(old);
        sandbox->used_bytes -= old_bytes;
        return NULL;
    }
    if (new_bytes > old_bytes && !may_grow(sandbox, new_bytes - old_bytes)) return NULL;
    void *fresh = realloc(old, new_bytes);
    if (fresh) sandbox->used_bytes += new_bytes - old_bytes;
    return fresh;
}

static double clock_s(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The script's own time: what other programs take of a busy machine is not its fault. It has no
 * more of that than the wall clock shows, which is read without calling the kernel. */
static bool is_late(const Sandbox *sandbox) {
    return clock_s(CLOCK_MONOTONIC) > sandbox->wall_deadline_s &&
           clock_s(CLOCK_THREAD_CPUTIME_ID) > sandbox->deadline_s;
}

/* From here on every instruction raises: a script that catches the error only gets as far as its
 * next one. */
_Noreturn void sandbox_fail(lua_State *lua) {
    sandbox_of(lua)->failed = true;
    lua_sethook(lua, stop_when_over, LUA_MASKCOUNT, 1);
    lua_pushlightuserdata(lua, &REPORTED);
    lua_error(lua);
    BUG("lua_error returned");
}

/* Calls from Lua are instructions. */
static bool is_called_from_c(lua_State *lua) {
    lua_Debug caller;
    return lua_getstack(lua, 1, &caller) && lua_getinfo(lua, "S", &caller) &&
           strcmp(caller.what, "C") == 0;
}

static void count_instructions(lua_State *lua, int64_t n) {
    Sandbox *sandbox = sandbox_of(lua);
    int64_t before = sandbox->n_instructions;
    sandbox->n_instructions += n;
    /* A look at the clock takes longer than most calls. */
    bool looks = before / HOOK_INSTRUCTIONS != sandbox->n_instructions / HOOK_INSTRUCTIONS;
    bool over = sandbox->n_instructions > INT64_C(1000000) * MILLION_INSTRUCTIONS_LIMIT ||
                (looks && is_late(sandbox)) || sandbox->over_memory;
    if (!over && !sandbox->failed) return;
    if (!sandbox->failed) {
        sandbox->stopped = true;
        sandbox->stopped_at = sandbox_user_line(lua);
    }
    sandbox_fail(lua);
}

static void stop_when_over(lua_State *lua, lua_Debug *record) {
    bool counts = record->event == LUA_HOOKCOUNT;
    if (!counts && !is_called_from_c(lua)) return;
    count_instructions(lua, counts ? HOOK_INSTRUCTIONS : CALL_INSTRUCTIONS);
}

void sandbox_count_steps(lua_State *lua, int64_t n_steps) {
    count_instructions(lua, n_steps / STEPS_PER_INSTRUCTION);
}

Sandbox *sandbox_create(Arena *arena, const char *path, Diag *diag) {
    Sandbox *sandbox = ARENA_NEW(arena, Sandbox);
    sandbox->arena = arena;
    sandbox->diag = diag;
    sandbox->path = arena_strdup(arena, path);
    sandbox->embedded = LIBRARIES;
    sandbox->lua = lua_newstate(allocate, sandbox);
    if (!sandbox->lua) {
        diag_error(diag, (SourceLoc){sandbox->path, 0}, "no memory for a Lua state");
        return NULL;
    }
    *(Sandbox **)lua_getextraspace(sandbox->lua) = sandbox;
    return sandbox;
}

void sandbox_destroy(Sandbox *sandbox) {
    if (sandbox) lua_close(sandbox->lua);
}

static const LuaChunk *find_chunk(const Sandbox *sandbox, const char *source) {
    for (int i = 0; i < sandbox->n_chunks; i++) {
        if (strcmp(sandbox->chunks[i].source, source) == 0) return &sandbox->chunks[i];
    }
    return NULL;
}

/* The innermost line of the script or its modules, or of the library if `in_library`. */
static SourceLoc find_line(lua_State *lua, bool in_library) {
    const Sandbox *sandbox = sandbox_of(lua);
    lua_Debug record;
    for (int level = 0; level < MAX_STACK_SEARCH && lua_getstack(lua, level, &record); level++) {
        lua_getinfo(lua, "Sl", &record);
        const LuaChunk *chunk = find_chunk(sandbox, record.source);
        if (!chunk || record.currentline <= 0 || chunk->is_library != in_library) continue;
        return (SourceLoc){chunk->path, record.currentline};
    }
    return NO_LOC;
}

SourceLoc sandbox_user_line(lua_State *lua) {
    SourceLoc loc = find_line(lua, false);
    if (!loc.file) loc = find_line(lua, true);
    return loc.file ? loc : (SourceLoc){sandbox_of(lua)->path, 0};
}

SourceLoc sandbox_function_line(lua_State *lua) {
    lua_Debug record;
    lua_pushvalue(lua, -1);
    lua_getinfo(lua, ">S", &record);
    const LuaChunk *chunk = find_chunk(sandbox_of(lua), record.source);
    return chunk ? (SourceLoc){chunk->path, record.linedefined}
                 : (SourceLoc){sandbox_of(lua)->path, 0};
}

const LuaChunk *sandbox_find_chunk(const Sandbox *sandbox, const char *path) {
    for (int i = 0; i < sandbox->n_chunks; i++) {
        if (strcmp(sandbox->chunks[i].path, path) == 0) return &sandbox->chunks[i];
    }
    return NULL;
}

/* Takes Lua's "place:line: " off the message. */
static const LuaChunk *strip_place(const Sandbox *sandbox, const char **text, int *line) {
    for (int i = 0; i < sandbox->n_chunks; i++) {
        const char *place = sandbox->chunks[i].shortened;
        size_t length = strlen(place);
        if (strncmp(*text, place, length) != 0 || (*text)[length] != ':') continue;
        char *end;
        long number = strtol(*text + length + 1, &end, 10);
        if (end == *text + length + 1 || end[0] != ':' || end[1] != ' ') continue;
        *text = end + 2;
        *line = (int)number;
        return &sandbox->chunks[i];
    }
    return NULL;
}

/* Reports the error value on top of the stack, at the user's line. Raises nothing. */
static void report_value(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    if (lua_type(lua, -1) != LUA_TSTRING) {
        diag_error(sandbox->diag, sandbox_user_line(lua),
                   "the script raised an error that is a %s, not a text", luaL_typename(lua, -1));
        return;
    }
    const char *text = lua_tostring(lua, -1);
    int line = 0;
    const LuaChunk *chunk = strip_place(sandbox, &text, &line);
    char message[MAX_MESSAGE];
    size_t length = 0;
    for (; text[length] && length + 1 < sizeof(message); length++) {
        message[length] = iscntrl((unsigned char)text[length]) ? ' ' : text[length];
    }
    message[length] = '\0';
    if (chunk && !chunk->is_library) {
        diag_error(sandbox->diag, (SourceLoc){chunk->path, line}, "%s", message);
        return;
    }
    diag_error(sandbox->diag, sandbox_user_line(lua), "%s", message);
    if (chunk) diag_note(sandbox->diag, (SourceLoc){chunk->path, line}, "in the library");
}

/* Runs where the error was raised, with the stack still standing. */
static int handle_error(lua_State *lua) {
    bool reported = lua_touserdata(lua, 1) == &REPORTED;
    if (!reported) report_value(lua);
    lua_pushlightuserdata(lua, &REPORTED);
    return 1;
}

/* Stack: chunk's text is loaded and called with no arguments; its results are left. */
static int run_chunk(lua_State *lua, const char *text, size_t length, const char *path,
                     bool is_library) {
    Sandbox *sandbox = sandbox_of(lua);
    int base = lua_gettop(lua);
    if (sandbox->n_chunks == SANDBOX_MAX_CHUNKS) {
        return luaL_error(lua, "at most %d scripts are possible", SANDBOX_MAX_CHUNKS);
    }
    LuaChunk *chunk = &sandbox->chunks[sandbox->n_chunks++];
    chunk->path = path;
    chunk->text = text;
    chunk->length = length;
    chunk->source = arena_printf(sandbox->arena, "%c%s", is_library ? '=' : '@', path);
    chunk->is_library = is_library;
    /* A chunk that does nothing tells how Lua will shorten the name, even if ours has errors. */
    if (luaL_loadbufferx(lua, "", 0, chunk->source, "t") != LUA_OK) lua_error(lua);
    lua_Debug record;
    lua_getinfo(lua, ">S", &record);
    memcpy(chunk->shortened, record.short_src, sizeof(chunk->shortened));
    int status = is_library ? lua_compiled_load(lua, text, length, chunk->source)
                            : luaL_loadbufferx(lua, text, length, chunk->source, "t");
    if (status != LUA_OK) {
        if (lua_type(lua, -1) == LUA_TSTRING && text[0] == LUA_SIGNATURE[0]) {
            diag_error(sandbox->diag, (SourceLoc){path, 0}, "is compiled Lua; a text is needed");
            sandbox_fail(lua);
        }
        lua_error(lua);
    }
    lua_call(lua, 0, LUA_MULTRET);
    return lua_gettop(lua) - base;
}

void sandbox_protect_output(const char *path, const char *option) {
    struct stat st;
    if (stat(path, &st) != 0) return;
    if (n_outputs == MAX_OUTPUTS) BUG("more than %d outputs", MAX_OUTPUTS);
    outputs[n_outputs++] = (Output){st.st_dev, st.st_ino, path, option};
}

/* Known by device and number, whatever its name. Else it would be read now and replaced later. */
static void refuse_output(lua_State *lua, const char *path) {
    struct stat st;
    Sandbox *sandbox = sandbox_of(lua);
    bool is_main = strcmp(path, sandbox->path) == 0;
    if (n_outputs == 0 || stat(path, &st) != 0) return;
    for (int i = 0; i < n_outputs; i++) {
        if (outputs[i].device != st.st_dev || outputs[i].number != st.st_ino) continue;
        diag_error(sandbox->diag, is_main ? (SourceLoc){sandbox->path, 0} : sandbox_user_line(lua),
                   "--%s %s: would replace %s", outputs[i].option, outputs[i].path,
                   is_main ? "this script" : "what is required here");
        sandbox_fail(lua);
    }
}

static char *read_script(lua_State *lua, const char *path, size_t *out_length) {
    Sandbox *sandbox = sandbox_of(lua);
    refuse_output(lua, path);
    char *text = file_read(sandbox->arena, path, SCRIPT_LIMIT_BYTES, out_length, sandbox->diag);
    if (text) return text;
    if (strcmp(path, sandbox->path) != 0) {
        diag_note(sandbox->diag, sandbox_user_line(lua), "required here");
    }
    sandbox_fail(lua);
}

int sandbox_run_script(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    const EmbeddedScript *script = sandbox->script;
    if (script) return run_chunk(lua, script->text, *script->bytes, script->path, false);
    size_t length;
    char *text = read_script(lua, sandbox->path, &length);
    return run_chunk(lua, text, length, sandbox->path, false);
}

static int call_library(lua_State *lua) {
    lua_pushvalue(lua, lua_upvalueindex(1));
    lua_insert(lua, 1);
    lua_call(lua, lua_gettop(lua) - 1, LUA_MULTRET);
    return lua_gettop(lua);
}

/* Each function of the library is entered through C, so that the caller's frame (and its line)
 * still stands when the caller wrote `return nn.f(...)`, a tail call. */
static void wrap_library(lua_State *lua) {
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
        if (!lua_isfunction(lua, -1)) {
            lua_pop(lua, 1);
            continue;
        }
        lua_pushcclosure(lua, call_library, 1);
        lua_pushvalue(lua, -2);
        lua_insert(lua, -2);
        lua_rawset(lua, -4); /* an existing key: the traversal goes on */
    }
}

static const char *module_path(lua_State *lua, const char *name, size_t length) {
    Sandbox *sandbox = sandbox_of(lua);
    bool valid = length > 0 && length <= MAX_MODULE_NAME;
    for (size_t i = 0; valid && i < length; i++) {
        valid = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '-';
    }
    if (!valid) {
        luaL_error(lua, "require: a module is named by letters, digits, '_' and '-', and lies in "
                        "the script's folder");
    }
    const char *slash = strrchr(sandbox->path, '/');
    int folder = slash ? (int)(slash + 1 - sandbox->path) : 0;
    return arena_printf(sandbox->arena, "%.*s%s.lua", folder, sandbox->path, name);
}

/* What `require` finds in the program itself. A file beside the script hides an embedded one of its
 * name, but no library; what is embedded never looks for files. */
static const EmbeddedScript *find_embedded(lua_State *lua, const char *name, size_t length) {
    const Sandbox *sandbox = sandbox_of(lua);
    for (const EmbeddedScript *script = sandbox->embedded; script->name; script++) {
        if (strlen(script->name) != length || memcmp(script->name, name, length) != 0) continue;
        if (script->is_library || sandbox->script) return script;
        return access(module_path(lua, name, length), F_OK) == 0 ? NULL : script;
    }
    return NULL;
}

/* Upvalue: the modules loaded so far, by name; false while one is being loaded. */
static int require_module(lua_State *lua) {
    size_t length;
    const char *name = luaL_checklstring(lua, 1, &length);
    lua_settop(lua, 1);
    lua_pushvalue(lua, 1);
    if (lua_rawget(lua, lua_upvalueindex(1)) != LUA_TNIL) {
        if (!lua_toboolean(lua, -1)) return luaL_error(lua, "module '%s' requires itself", name);
        return 1;
    }
    lua_settop(lua, 1);
    const EmbeddedScript *embedded = find_embedded(lua, name, length);
    bool library = embedded && embedded->is_library;
    const char *path = embedded ? embedded->path : module_path(lua, name, length);
    size_t text_length = embedded ? *embedded->bytes : 0;
    const char *text = embedded ? embedded->text : read_script(lua, path, &text_length);
    lua_pushvalue(lua, 1);
    lua_pushboolean(lua, false);
    lua_rawset(lua, lua_upvalueindex(1));
    run_chunk(lua, text, text_length, path, library);
    lua_settop(lua, 2);
    if (!lua_toboolean(lua, 2)) {
        lua_pushboolean(lua, true);
        lua_replace(lua, 2);
    }
    if (library) wrap_library(lua);
    lua_pushvalue(lua, 1);
    lua_pushvalue(lua, 2);
    lua_rawset(lua, lua_upvalueindex(1));
    return 1;
}

/* Argument 1: pointer to the body's function pointer. */
static int open_and_run(lua_State *lua) {
    lua_CFunction body = *(lua_CFunction *)lua_touserdata(lua, 1);
    if (!sandbox_of(lua)->is_open) {
        safe_open_libraries(lua);
        lua_newtable(lua);
        lua_pushcclosure(lua, require_module, 1);
        lua_setglobal(lua, "require");
        sandbox_of(lua)->is_open = true;
    }
    lua_settop(lua, 0);
    return body(lua);
}

bool sandbox_run(Sandbox *sandbox, lua_CFunction body) {
    lua_State *lua = sandbox->lua;
    int errors_before = diag_error_count(sandbox->diag);
    SourceLoc whole = {sandbox->path, 0};
    sandbox->memory_refused = sandbox->over_memory = sandbox->failed = sandbox->stopped = false;
    sandbox->n_instructions = 0;
    sandbox->deadline_s = clock_s(CLOCK_THREAD_CPUTIME_ID) + SECONDS_LIMIT;
    sandbox->wall_deadline_s = clock_s(CLOCK_MONOTONIC) + SECONDS_LIMIT;
    lua_sethook(lua, stop_when_over, LUA_MASKCOUNT | LUA_MASKCALL, HOOK_INSTRUCTIONS);
    /* None of these three allocates, so none can raise outside of lua_pcall. */
    lua_pushcfunction(lua, handle_error);
    lua_pushcfunction(lua, open_and_run);
    lua_pushlightuserdata(lua, &body);
    int status = lua_pcall(lua, 1, 0, 1);
    if (status == LUA_ERRMEM || (sandbox->stopped && sandbox->over_memory)) {
        diag_error(sandbox->diag, sandbox->stopped ? sandbox->stopped_at : whole,
                   "the script needs more than %d MB of memory", SANDBOX_MEMORY_LIMIT_BYTES >> 20);
    } else if (sandbox->stopped) {
        diag_error(sandbox->diag, sandbox->stopped_at,
                   "the script ran for more than %d million instructions or %d seconds: does it "
                   "loop?",
                   MILLION_INSTRUCTIONS_LIMIT, SECONDS_LIMIT);
    } else if (status != LUA_OK && diag_error_count(sandbox->diag) == errors_before) {
        diag_error(sandbox->diag, whole, "the script failed while an error was being handled");
    }
    lua_settop(lua, 0);
    return diag_error_count(sandbox->diag) == errors_before;
}
