#include "frontend/lua/cluster_read.h"

#include "frontend/lua/lua_marks.h"
#include "frontend/nearest.h"
#include "planner/clusters/cluster_check.h"
#include "planner/clusters/cluster_fields.h"

#include <ctype.h>
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 200, MAX_KEYS = 100, MAX_PATH_TEXT = 128 };

static const char DEFAULT_SOFTWARE[] = "perilune";

/* Shipped scripts that others require: no clusters. */
static const char *const SHARED[] = {"cpu_nodes", "devices", "nodes", "software"};

/* One cluster_read. */
typedef struct Reading {
    Cluster *cluster;
    const char *software; /* asked for, or NULL */
} Reading;

/* A table that fields are read from, as paths see it: its field "a.b" is "<prefix>a.b". */
typedef struct Reader {
    lua_State *lua;
    Sandbox *sandbox;
    Cluster *cluster;
    int table; /* stack index */
} Reader;

static const struct {
    const char *name;
    double value;
} UNITS[] = {
    {"TFLOPS", 1e12},       {"TB", 1e12},  {"GB", 1e9},       {"GiB", 1024.0 * 1024 * 1024},
    {"MiB", 1024.0 * 1024}, {"KiB", 1024}, {"Gbit", 1e9 / 8},
};

const char *cluster_shipped_name(int index) {
    for (const EmbeddedScript *script = CLUSTER_SCRIPTS; script->name; script++) {
        bool shared = false;
        for (size_t i = 0; i < sizeof(SHARED) / sizeof(SHARED[0]); i++) {
            shared |= strcmp(script->name, SHARED[i]) == 0;
        }
        if (!shared && index-- == 0) return script->name;
    }
    return NULL;
}

/* --- fields ---------------------------------------------------------------------------------- */

/* like(base, changes) -> a copy of base with the fields of changes. */
static int copy_changed(lua_State *lua) {
    luaL_checktype(lua, 1, LUA_TTABLE);
    luaL_checktype(lua, 2, LUA_TTABLE);
    lua_settop(lua, 2);
    lua_newtable(lua);
    for (int from = 1; from <= 2; from++) {
        lua_pushnil(lua);
        while (lua_next(lua, from)) {
            lua_pushvalue(lua, -2);
            lua_insert(lua, -2);
            lua_rawset(lua, 3);
        }
    }
    return 1;
}

static _Noreturn void fail(const Reader *reader, const char *path, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static _Noreturn void fail(const Reader *reader, const char *path, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(reader->sandbox->arena, format, args);
    va_end(args);
    diag_error(reader->sandbox->diag, lua_mark_line(reader->lua, reader->table, path), "%s", text);
    sandbox_fail(reader->lua);
}

/* --- values ---------------------------------------------------------------------------------- */

/* Pushes the value at `path`, which may be nil; what a key lies in must be a table. */
static int push_path(const Reader *reader, const char *path) {
    lua_State *lua = reader->lua;
    lua_pushvalue(lua, reader->table);
    for (const char *at = path;;) {
        size_t part = strcspn(at, ".");
        lua_pushlstring(lua, at, part);
        int type = lua_rawget(lua, -2);
        lua_remove(lua, -2);
        if (!at[part] || type == LUA_TNIL) return type;
        if (type != LUA_TTABLE) {
            const char *table =
                arena_strndup(reader->sandbox->arena, path, (size_t)(at + part - path));
            fail(reader, table, "%s is a %s: must be a table, as in { %s = ... }", table,
                 lua_typename(lua, type), at + part + 1);
        }
        at += part + 1;
    }
}

static const char *wanted(const ClusterField *field) {
    switch (field->kind) {
    case FIELD_REAL: return "a number";
    case FIELD_COUNT:
    case FIELD_LONG: return "a whole number";
    case FIELD_FLAG: return "true or false";
    case FIELD_TEXT: return "a text";
    case FIELD_ATTENTION: return "\"blockwise\" or \"materialised\"";
    }
    return "";
}

/* " of bytes"; ", of the peak"; "" */
static const char *unit_phrase(const Reader *reader, const ClusterField *field) {
    const char *unit = field->unit;
    if (!unit[0]) return "";
    return arena_printf(reader->sandbox->arena, strncmp(unit, "of ", 3) == 0 ? ", %s" : " of %s",
                        unit);
}

static _Noreturn void fail_type(const Reader *reader, const ClusterField *field) {
    fail(reader, field->path, "%s is a %s: must be %s%s", field->path,
         luaL_typename(reader->lua, -1), wanted(field), unit_phrase(reader, field));
}

static double read_number(const Reader *reader, const ClusterField *field) {
    lua_State *lua = reader->lua;
    if (lua_type(lua, -1) != LUA_TNUMBER) fail_type(reader, field);
    double value = lua_tonumber(lua, -1);
    bool whole = field->kind == FIELD_REAL || value == floor(value);
    if (!(value >= field->least && value <= field->most)) { /* NaN is not, either */
        Arena *arena = reader->sandbox->arena;
        fail(reader, field->path, "%s is %s: must be between %s and %s%s%s", field->path,
             cluster_number(arena, value), cluster_number(arena, field->least),
             cluster_number(arena, field->most), field->unit[0] ? " " : "", field->unit);
    }
    if (!whole) fail(reader, field->path, "%s is %g: must be a whole number", field->path, value);
    return value;
}

static const char *read_text(const Reader *reader, const ClusterField *field) {
    size_t length;
    if (lua_type(reader->lua, -1) != LUA_TSTRING) fail_type(reader, field);
    const char *text = lua_tolstring(reader->lua, -1, &length);
    bool good = length > 0 && length <= MAX_TEXT;
    for (size_t i = 0; good && i < length; i++) good = !iscntrl((unsigned char)text[i]);
    if (!good) {
        fail(reader, field->path, "%s must be one line of 1 to %d characters", field->path,
             MAX_TEXT);
    }
    return arena_strdup(reader->sandbox->arena, text);
}

static int read_attention(const Reader *reader, const ClusterField *field) {
    const char *text = read_text(reader, field);
    for (int i = 0; ATTENTION_NAMES[i]; i++) {
        if (strcmp(text, ATTENTION_NAMES[i]) == 0) return i;
    }
    fail(reader, field->path, "%s is '%s': must be %s", field->path, text, wanted(field));
}

/* The value on top of the stack, checked, into the cluster. */
static void read_value(const Reader *reader, const ClusterField *field) {
    char *at = (char *)reader->cluster + field->offset;
    switch (field->kind) {
    case FIELD_REAL: *(double *)at = read_number(reader, field); return;
    case FIELD_COUNT: *(int *)at = (int)read_number(reader, field); return;
    case FIELD_LONG: *(int64_t *)at = (int64_t)read_number(reader, field); return;
    case FIELD_TEXT: *(const char **)at = read_text(reader, field); return;
    case FIELD_ATTENTION:
        *(AttentionKind *)at = (AttentionKind)read_attention(reader, field);
        return;
    case FIELD_FLAG:
        if (!lua_isboolean(reader->lua, -1)) fail_type(reader, field);
        *(bool *)at = lua_toboolean(reader->lua, -1);
    }
}

static void set_absent(Cluster *cluster, const ClusterField *field) {
    char *at = (char *)cluster + field->offset;
    if (field->kind == FIELD_REAL) *(double *)at = field->absent;
    if (field->kind == FIELD_COUNT) *(int *)at = (int)field->absent;
}

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* Tables that may be missing as a whole: one node needs no network, and not all has a price. */
static bool in_missing_table(const Reader *reader, const ClusterField *field) {
    static const char *const TABLES[] = {"network", "price"};
    for (size_t i = 0; i < sizeof(TABLES) / sizeof(TABLES[0]); i++) {
        size_t length = strlen(TABLES[i]);
        if (!starts_with(field->path, TABLES[i]) || field->path[length] != '.') continue;
        bool missing = push_path(reader, TABLES[i]) == LUA_TNIL;
        lua_pop(reader->lua, 1);
        return missing;
    }
    return false;
}

/* A table takes the place of a shipped one as a whole; what was meant may be a change to it. */
static const char *advise_like(const Reader *reader, const ClusterField *field) {
    static const char *const SHIPPED[][2] = {{"device", "require(\"devices\").h100"},
                                             {"node", "require(\"nodes\").dgx_h100"},
                                             {"network", "require(\"nodes\").ndr8"}};
    for (size_t i = 0; i < sizeof(SHIPPED) / sizeof(SHIPPED[0]); i++) {
        const char *table = SHIPPED[i][0];
        if (!starts_with(field->path, table) || field->path[strlen(table)] != '.') continue;
        return arena_printf(reader->sandbox->arena,
                            "; %s = like(%s, { ... }) changes a shipped one", table, SHIPPED[i][1]);
    }
    return "";
}

/* Says which table is not there, or what the field would be. */
static _Noreturn void fail_missing(const Reader *reader, const ClusterField *field) {
    Arena *arena = reader->sandbox->arena;
    for (const char *dot = field->path; (dot = strchr(dot, '.')); dot++) {
        const char *table = arena_strndup(arena, field->path, (size_t)(dot - field->path));
        if (push_path(reader, table) != LUA_TNIL) continue;
        const char *last = strrchr(table, '.');
        fail(reader, table, "%s is missing: must be a table, as in %s = { %s = ... }", table,
             last ? last + 1 : table, dot + 1);
    }
    bool counts = field->kind == FIELD_COUNT || field->kind == FIELD_LONG;
    bool has_unit = field->unit[0] && !counts && strncmp(field->unit, "of ", 3) != 0;
    fail(reader, field->path, "%s is missing: %s%s%s%s", field->path, field->meaning,
         has_unit ? ", in " : "", has_unit ? field->unit : "", advise_like(reader, field));
}

static void read_field(const Reader *reader, const ClusterField *field) {
    if (push_path(reader, field->path) != LUA_TNIL) {
        read_value(reader, field);
    } else {
        bool needed = field->need == NEEDED ||
                      (field->need == NEEDED_BETWEEN && reader->cluster->node.n_devices > 1);
        if (needed && !in_missing_table(reader, field)) fail_missing(reader, field);
        set_absent(reader->cluster, field);
    }
    lua_pop(reader->lua, 1);
}

/* --- keys ------------------------------------------------------------------------------------ */

/* The names that may follow `prefix` ("", "device."), each once. */
static int known_keys(const Reader *reader, const char *prefix, const char **out) {
    int n = 0;
    size_t skip = strlen(prefix);
    for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
        if (!starts_with(field->path, prefix)) continue;
        const char *key = arena_strndup(reader->sandbox->arena, field->path + skip,
                                        strcspn(field->path + skip, "."));
        if (n && strcmp(out[n - 1], key) == 0) continue; /* rows of a table stand together */
        if (n < MAX_KEYS) out[n++] = key;
    }
    out[n] = NULL;
    return n;
}

static bool is_name(const char *text, size_t length) {
    if (length == 0 || length > 64) return false;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && text[i] != '_') return false;
    }
    return true;
}

static bool is_known(const char *key, const char *const *known) {
    for (; *known; known++) {
        if (strcmp(*known, key) == 0) return true;
    }
    return false;
}

static _Noreturn void fail_unknown(const Reader *reader, const char *prefix, const char *key,
                                   const char *const *known) {
    Arena *arena = reader->sandbox->arena;
    const char *path = arena_printf(arena, "%s%s", prefix, key), *names = "";
    const char *nearest = nearest_name(key, known);
    if (nearest) fail(reader, path, "%s is unknown; did you mean %s?", path, nearest);
    for (const char *const *name = known; *name; name++) {
        names = arena_printf(arena, "%s%s%s", names, *names ? ", " : "", *name);
    }
    fail(reader, path, "%s is unknown; known: %s", path, names);
}

/* The keys of the table on top of the stack. Of several wrong ones the first by name is reported:
 * Lua's own order changes from run to run. */
static void check_table(const Reader *reader, const char *prefix, const char *const *known) {
    lua_State *lua = reader->lua;
    Arena *arena = reader->sandbox->arena;
    const char *wrong = NULL;
    lua_pushnil(lua);
    while (lua_next(lua, -2)) {
        lua_pop(lua, 1);
        size_t length = 0;
        const char *key = lua_type(lua, -1) == LUA_TSTRING ? lua_tolstring(lua, -1, &length) : "";
        if (!is_name(key, length)) {
            const char *what = arena_strndup(arena, prefix, strcspn(prefix, "."));
            fail(reader, arena_printf(arena, "%s ", prefix), /* no field: the table's own line */
                 "%s: each field needs a name of letters, digits and '_'; one has none",
                 *what ? what : "cluster");
        }
        if (is_known(key, known) || (wrong && strcmp(wrong, key) < 0)) continue;
        wrong = arena_strdup(arena, key);
    }
    if (wrong) fail_unknown(reader, prefix, wrong, known);
}

/* Every key of the table at `prefix` is one of the fields'; then those of the tables in it. */
static void check_keys(const Reader *reader, const char *prefix) {
    lua_State *lua = reader->lua;
    const char *known[MAX_KEYS + 1];
    int n_known = known_keys(reader, prefix, known), type = LUA_TTABLE;
    if (n_known == 0) return; /* a field, not a table of them */
    size_t length = strlen(prefix);
    lua_pushvalue(lua, reader->table);
    if (length) {
        lua_pop(lua, 1);
        type = push_path(reader, arena_strndup(reader->sandbox->arena, prefix, length - 1));
    }
    if (type == LUA_TTABLE) check_table(reader, prefix, known);
    lua_pop(lua, 1);
    for (int i = 0; i < n_known && type == LUA_TTABLE; i++) {
        bool own = strcmp(known[i], "software") == 0 && !*prefix; /* a name here, read apart */
        if (!own) {
            check_keys(reader, arena_printf(reader->sandbox->arena, "%s%s.", prefix, known[i]));
        }
    }
}

static void read_fields(const Reader *reader, bool software) {
    for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
        if (starts_with(field->path, "software.") == software) read_field(reader, field);
    }
}

/* --- the script ------------------------------------------------------------------------------ */

static void open_globals(lua_State *lua) {
    static const char *const CONSTRUCTORS[] = {"cluster", "device", "software", NULL};
    lua_open_marks(lua, CONSTRUCTORS);
    lua_pushcfunction(lua, copy_changed);
    lua_setglobal(lua, "like");
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        lua_pushnumber(lua, UNITS[i].value);
        lua_setglobal(lua, UNITS[i].name);
    }
}

/* The name of the stack that counts: asked for, the cluster's own `software`, or the default. */
static const char *software_name(const Reader *reader, const char *asked) {
    lua_State *lua = reader->lua;
    const char *name = DEFAULT_SOFTWARE;
    lua_pushstring(lua, "software");
    int type = lua_rawget(lua, reader->table);
    if (type == LUA_TSTRING) {
        name = arena_strdup(reader->sandbox->arena, lua_tostring(lua, -1));
    } else if (type != LUA_TNIL) {
        fail(reader, "software", "software is a %s: must be the name of a software stack",
             lua_typename(lua, type));
    }
    lua_pop(lua, 1);
    return asked ? asked : name;
}

/* The names of the table of stacks, sorted: Lua's own order changes from run to run. */
static void stack_names(lua_State *lua, int stacks, const char *names[MAX_KEYS + 1]) {
    int n = 0;
    lua_pushnil(lua);
    while (lua_next(lua, stacks) && n < MAX_KEYS) {
        lua_pop(lua, 1);
        if (lua_type(lua, -1) != LUA_TSTRING) continue;
        names[n++] = arena_strdup(sandbox_of(lua)->arena, lua_tostring(lua, -1));
    }
    names[n] = NULL;
    for (int i = 1; i < n; i++) {
        for (int k = i; k > 0 && strcmp(names[k - 1], names[k]) > 0; k--) {
            const char *swap = names[k];
            names[k] = names[k - 1];
            names[k - 1] = swap;
        }
    }
}

static _Noreturn void fail_software(const Reader *reader, const char *name, int stacks) {
    const char *names[MAX_KEYS + 1], *list = "";
    Arena *arena = reader->sandbox->arena;
    stack_names(reader->lua, stacks, names);
    for (int i = 0; names[i]; i++) {
        list = arena_printf(arena, "%s%s%s", list, i ? ", " : "", names[i]);
    }
    const char *nearest = nearest_name(name, names);
    /* Asked for by --software, it is no mistake of the file. */
    Reading *reading = reader->sandbox->context;
    SourceLoc loc =
        reading->software ? NO_LOC : lua_mark_line(reader->lua, reader->table, "software");
    diag_error(reader->sandbox->diag, loc, "there is no software '%.64s'; %s%s%sthere are: %s",
               name, nearest ? "did you mean " : "", nearest ? nearest : "", nearest ? "? " : "",
               list);
    sandbox_fail(reader->lua);
}

/* The stack of that name out of what `require "software"` gives, read like the cluster. */
static void read_software(const Reader *reader, const char *name) {
    lua_State *lua = reader->lua;
    lua_getglobal(lua, "require");
    lua_pushstring(lua, "software");
    lua_call(lua, 1, 1);
    int stacks = lua_gettop(lua);
    if (!lua_istable(lua, stacks)) {
        fail(reader, "software", "software.lua must return a table of software { ... } by name");
    }
    lua_newtable(lua);
    lua_pushstring(lua, name);
    if (lua_rawget(lua, stacks) != LUA_TTABLE) fail_software(reader, name, stacks);
    lua_setfield(lua, -2, "software");
    Reader own = *reader;
    own.table = lua_gettop(lua);
    check_keys(&own, "software.");
    read_fields(&own, true);
    reader->cluster->software.name = arena_strdup(reader->sandbox->arena, name);
    lua_settop(lua, stacks - 1);
}

static int read_body(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    Reading *reading = sandbox->context;
    open_globals(lua);
    lua_settop(lua, 0);
    int n_results = sandbox_run_script(lua);
    if (n_results != 1 || !lua_istable(lua, 1) || !lua_is_marked(lua, 1)) {
        diag_error(sandbox->diag, (SourceLoc){sandbox->path, 0},
                   "the script must end in `return cluster { ... }`");
        sandbox_fail(lua);
    }
    Reader reader = {lua, sandbox, reading->cluster, 1};
    check_keys(&reader, "");
    read_fields(&reader, false);
    reading->cluster->path = sandbox->path;
    const char *why, *path = cluster_check(sandbox->arena, reading->cluster, &why);
    if (path) fail(&reader, path, "%s", why);
    read_software(&reader, software_name(&reader, reading->software));
    return 0;
}

static int list_body(lua_State *lua) {
    const char **names = sandbox_of(lua)->context;
    open_globals(lua);
    lua_settop(lua, 0);
    if (sandbox_run_script(lua) != 1 || !lua_istable(lua, 1)) BUG("software.lua returns no table");
    stack_names(lua, 1, names);
    return 0;
}

const char **cluster_software_names(Arena *arena, Diag *diag) {
    const EmbeddedScript *script = CLUSTER_SCRIPTS;
    while (strcmp(script->name, "software") != 0) script++;
    const char **names = ARENA_ARRAY(arena, const char *, MAX_KEYS + 1);
    Sandbox *sandbox = sandbox_create(arena, script->path, diag);
    if (!sandbox) return NULL;
    sandbox->context = names;
    sandbox->embedded = CLUSTER_SCRIPTS;
    sandbox->script = script;
    bool good = sandbox_run(sandbox, list_body);
    sandbox_destroy(sandbox);
    return good ? names : NULL;
}

bool cluster_is_path(const char *text) {
    size_t length = strlen(text);
    return strchr(text, '/') || (length > 4 && strcmp(text + length - 4, ".lua") == 0);
}

static const EmbeddedScript *find_shipped(Arena *arena, const char *name, Diag *diag) {
    const char *names[MAX_KEYS + 1], *list = "";
    int n = 0;
    for (; n < MAX_KEYS && cluster_shipped_name(n); n++) {
        names[n] = cluster_shipped_name(n);
        list = arena_printf(arena, "%s%s%s", list, n ? ", " : "", names[n]);
        if (strcmp(names[n], name) != 0) continue;
        const EmbeddedScript *script = CLUSTER_SCRIPTS;
        while (strcmp(script->name, name) != 0) script++;
        return script;
    }
    names[n] = NULL;
    const char *nearest = nearest_name(name, names);
    if (nearest) {
        diag_error(diag, NO_LOC, "there is no cluster '%.64s'; did you mean %s?", name, nearest);
    } else {
        diag_error(diag, NO_LOC, "there is no cluster '%.64s'; there are: %s; or a FILE.lua", name,
                   list);
    }
    return NULL;
}

Cluster *cluster_read(Arena *arena, const char *name_or_path, const char *software, Diag *diag) {
    const EmbeddedScript *script = NULL;
    if (!cluster_is_path(name_or_path) && !(script = find_shipped(arena, name_or_path, diag)))
        return NULL;
    Sandbox *sandbox = sandbox_create(arena, script ? script->path : name_or_path, diag);
    if (!sandbox) return NULL;
    Reading reading = {ARENA_NEW(arena, Cluster), software};
    sandbox->context = &reading;
    sandbox->embedded = CLUSTER_SCRIPTS;
    sandbox->script = script;
    bool good = sandbox_run(sandbox, read_body);
    sandbox_destroy(sandbox);
    return good ? reading.cluster : NULL;
}
