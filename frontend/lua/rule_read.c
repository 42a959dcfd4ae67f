#include "frontend/lua/rule_read.h"

#include "frontend/lua/lua_sandbox.h"

#include <ctype.h>
#include <lauxlib.h>
#include <stdlib.h>
#include <string.h>

double *own_number_find(OwnNumbers *numbers, const char *name) {
    for (int i = 0; i < numbers->count; i++) {
        if (strcmp(numbers->names[i], name) == 0) return &numbers->values[i];
    }
    return NULL;
}

const char *own_number_names(const OwnNumbers *numbers, Arena *arena) {
    const char *text = "";
    for (int i = 0; i < numbers->count; i++) {
        text = arena_printf(arena, "%s, %s", text, numbers->names[i]);
    }
    return text;
}

bool own_number_add(OwnNumbers *numbers, const char *name, double value) {
    if (numbers->count == RULE_MOST_OWN) return false;
    numbers->names[numbers->count] = name;
    numbers->values[numbers->count++] = value;
    return true;
}

/* Pushes a field of the library `optim`. A script may have put something else there. */
static void push_library(lua_State *lua, const char *field, int type) {
    lua_getglobal(lua, "require");
    lua_pushliteral(lua, "optim");
    lua_call(lua, 1, 1);
    if (lua_getfield(lua, -1, field) != type) {
        luaL_error(lua, "optim.%s must be a %s, as it was", field, lua_typename(lua, type));
    }
    lua_remove(lua, -2);
}

bool rule_push(lua_State *lua, const char *name) {
    push_library(lua, "rules", LUA_TTABLE);
    lua_pushstring(lua, name);
    bool found = lua_rawget(lua, -2) == LUA_TTABLE;
    lua_remove(lua, -2);
    if (!found) lua_pop(lua, 1);
    return found;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

const char *rule_names(lua_State *lua) {
    enum { MOST = 100 };
    Arena *arena = sandbox_of(lua)->arena;
    const char *names[MOST], *text = "";
    int n = 0;
    push_library(lua, "rules", LUA_TTABLE);
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
        lua_pop(lua, 1);
        if (n < MOST && lua_type(lua, -1) == LUA_TSTRING) {
            names[n++] = arena_strdup(arena, lua_tostring(lua, -1));
        }
    }
    lua_pop(lua, 1);
    qsort(names, (size_t)n, sizeof(names[0]), compare_names);
    for (int i = 0; i < n; i++) text = arena_printf(arena, "%s%s%s", text, i ? ", " : "", names[i]);
    return text;
}

/* In the order of their names: Lua's own changes from run to run. */
static void sort_numbers(OwnNumbers *numbers) {
    for (int i = 1; i < numbers->count; i++) {
        for (int k = i; k > 0 && strcmp(numbers->names[k - 1], numbers->names[k]) > 0; k--) {
            const char *name = numbers->names[k];
            double value = numbers->values[k];
            numbers->names[k] = numbers->names[k - 1];
            numbers->values[k] = numbers->values[k - 1];
            numbers->names[k - 1] = name;
            numbers->values[k - 1] = value;
        }
    }
}

void rule_read_numbers(lua_State *lua, int index, OwnNumbers *out) {
    Arena *arena = sandbox_of(lua)->arena;
    index = lua_absindex(lua, index);
    *out = (OwnNumbers){0};
    if (lua_getfield(lua, index, "numbers") == LUA_TTABLE) {
        lua_pushnil(lua);
        while (lua_next(lua, -2)) {
            bool named = lua_type(lua, -2) == LUA_TSTRING && lua_type(lua, -1) == LUA_TNUMBER;
            if (named) {
                const char *name = arena_strdup(arena, lua_tostring(lua, -2));
                own_number_add(out, name, lua_tonumber(lua, -1));
            }
            lua_pop(lua, 1);
        }
    }
    lua_pop(lua, 1);
    sort_numbers(out);
}

static _Noreturn void fail(lua_State *lua, SourceLoc loc, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static _Noreturn void fail(lua_State *lua, SourceLoc loc, const char *format, ...) {
    Sandbox *sandbox = sandbox_of(lua);
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(sandbox->arena, format, args);
    va_end(args);
    diag_error(sandbox->diag, loc, "optimizer: %s", text);
    sandbox_fail(lua);
}

/* It is a part of the names of tensors in checkpoints, where averages are `ema/NAME`. */
static bool is_state_name(const char *name) {
    enum { MOST = 32 };
    size_t length = strlen(name);
    if (length == 0 || length > MOST || isdigit((unsigned char)name[0])) return false;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_') return false;
    }
    return strcmp(name, "ema") != 0;
}

static int find_state(const UpdateRule *rule, const char *name) {
    int i = 0;
    while (i < rule->n_states && strcmp(rule->states[i], name) != 0) i++;
    return i < rule->n_states ? i : -1;
}

/* Pushes the list in the table's field, or an empty one. Returns how long it is. */
static int push_list(lua_State *lua, int index, const char *field, SourceLoc loc) {
    int type = lua_getfield(lua, index, field);
    if (type == LUA_TNIL) {
        lua_pop(lua, 1);
        lua_newtable(lua);
    } else if (type != LUA_TTABLE) {
        fail(lua, loc, "'%s' must be a list of names, as in { \"m\", \"v\" }, not a %s", field,
             lua_typename(lua, type));
    }
    if (lua_rawlen(lua, -1) > RULE_MOST_STATES) {
        fail(lua, loc, "'%s': at most %d states are possible", field, RULE_MOST_STATES);
    }
    return (int)lua_rawlen(lua, -1);
}

/* Element i of the list on top of the stack, from 1. */
static const char *list_name(lua_State *lua, int i, const char *field, SourceLoc loc) {
    if (lua_rawgeti(lua, -1, i) != LUA_TSTRING) {
        fail(lua, loc, "'%s': name %d is a %s, not a text", field, i, luaL_typename(lua, -1));
    }
    const char *name = arena_strdup(sandbox_of(lua)->arena, lua_tostring(lua, -1));
    lua_pop(lua, 1);
    return name;
}

/* Leaves the list of states on the stack. */
static void read_states(lua_State *lua, int index, UpdateRule *rule, SourceLoc loc) {
    int n_squares = push_list(lua, index, "squares", loc);
    const char *squares[RULE_MOST_STATES];
    for (int i = 0; i < n_squares; i++) squares[i] = list_name(lua, i + 1, "squares", loc);
    lua_pop(lua, 1);
    int n_states = push_list(lua, index, "states", loc);
    for (int i = 0; i < n_states; i++) {
        const char *name = list_name(lua, i + 1, "states", loc);
        if (!is_state_name(name)) {
            fail(lua, loc,
                 "'states': '%.64s' must be letters, digits and '_', 32 at most, and not 'ema'",
                 name);
        }
        if (find_state(rule, name) >= 0) fail(lua, loc, "'states' has '%s' twice", name);
        rule->states[rule->n_states++] = name;
    }
    for (int i = 0; i < n_squares; i++) {
        int state = find_state(rule, squares[i]);
        if (state < 0) fail(lua, loc, "'squares': there is no state '%.64s'", squares[i]);
        rule->squares |= INT64_C(1) << state;
    }
}

static void set_number(lua_State *lua, const char *name, double value) {
    lua_pushnumber(lua, value);
    lua_setfield(lua, -2, name);
}

static void push_numbers(lua_State *lua, const OwnNumbers *numbers, const TrainingRecipe *recipe) {
    lua_newtable(lua);
    set_number(lua, "beta1", recipe->beta1);
    set_number(lua, "beta2", recipe->beta2);
    set_number(lua, "eps", recipe->eps);
    set_number(lua, "momentum", recipe->momentum);
    for (int i = 0; i < numbers->count; i++) set_number(lua, numbers->names[i], numbers->values[i]);
}

void rule_read(lua_State *lua, int index, const OwnNumbers *numbers, TrainingRecipe *recipe,
               SourceLoc loc) {
    Arena *arena = sandbox_of(lua)->arena;
    UpdateRule rule = {0};
    Rule parsed;
    const char *error;
    index = lua_absindex(lua, index);
    if (lua_getfield(lua, index, "update") != LUA_TFUNCTION) {
        fail(lua, loc, "'update' must be a function, not a %s", luaL_typename(lua, -1));
    }
    const SourceLoc formula = sandbox_function_line(lua);
    push_library(lua, "trace", LUA_TFUNCTION);
    read_states(lua, index, &rule, formula);
    lua_pushvalue(lua, -3); /* the formula */
    push_numbers(lua, numbers, recipe);
    lua_call(lua, 3, 2);
    const char *second = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "nothing";
    if (lua_type(lua, -2) != LUA_TSTRING) fail(lua, formula, "'update' %s", second);
    rule.program = arena_strdup(arena, lua_tostring(lua, -2));
    rule.numbers = arena_strdup(arena, second);
    if (!rule_parse(rule.program, rule.numbers, rule.n_states, &parsed, &error)) {
        fail(lua, formula, "'update' makes a program with %s", error);
    }
    recipe->rule = rule;
    lua_pop(lua, 3);
}
