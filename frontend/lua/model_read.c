#include "frontend/lua/model_read.h"

#include "frontend/lua/lua_model.h"
#include "frontend/lua/lua_sandbox.h"
#include "frontend/lua/rule_read.h"
#include "runtime/metrics/lr_schedule.h"

#include <ctype.h>
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SETTINGS = 200, MAX_NAME = 64 };

/* The recipe's numbers: where each lies and what it may be. */
typedef struct RecipeField {
    const char *name;
    size_t offset;
    double least, below; /* least <= value < below */
    bool may_equal_least;
} RecipeField;

#define FIELD(name, member, ...)                                                                   \
    { name, offsetof(TrainingRecipe, member), __VA_ARGS__ }
static const RecipeField RECIPE[] = {
    FIELD("adam_lr", adam_lr, 0, 1e30, false),
    FIELD("beta1", beta1, 0, 1, true),
    FIELD("beta2", beta2, 0, 1, true),
    FIELD("decay_steps", decay_steps, 0, 1e9, false),
    FIELD("eps", eps, 0, 1e30, false),
    FIELD("lr", learning_rate, 0, 1e30, true),
    FIELD("matrix_lr_scale", matrix_lr_scale, 0, 1e6, false),
    FIELD("max_norm", max_norm, 0, 1e30, true),
    FIELD("momentum", momentum, 0, 1, true),
    FIELD("muon_rms", muon_rms, 0, 1e6, true),
    FIELD("table_lr_scale", table_lr_scale, 0, 1e6, false),
    FIELD("trust_max", trust_max, 0, 1e30, true),
    FIELD("vector_lr_scale", vector_lr_scale, 0, 1e6, false),
    FIELD("weight_decay", weight_decay, 0, 1e30, true),
};
enum { N_RECIPE = sizeof(RECIPE) / sizeof(RECIPE[0]) };
#undef FIELD

static const char RECIPE_NAMES[] =
    "kind, adam_lr, beta1, beta2, decay_steps, eps, freeze, "
    "lr, lr_schedule, matrix_lr_scale, max_norm, momentum, muon_rms, "
    "table_lr_scale, trust_max, vector_lr_scale, weight_decay";

/* The names of OptimizerKind; the last one is no kind of its own. */
static const char *const OPTIMIZERS[N_OPTIMIZERS] = {"adamw", "sgd",  "lion",
                                                     "lamb",  "muon", "rule"};

typedef struct Reader {
    lua_State *lua;
    Sandbox *sandbox;
    ModelDescription *description;
    int table;         /* stack index of the model's table */
    bool *has_formula; /* the table `optimizer` has one of its own */
    const char **rule; /* OPTIMIZER_RULE: the library's name; NULL: the model's own */
    OwnNumbers *numbers;
} Reader;

static _Noreturn void fail(const Reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static _Noreturn void fail(const Reader *reader, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const char *text = arena_vprintf(reader->sandbox->arena, format, args);
    va_end(args);
    diag_error(reader->sandbox->diag, reader->description->loc, "%s", text);
    sandbox_fail(reader->lua);
}

static bool is_identifier(const char *name) {
    size_t length = strlen(name);
    if (length == 0 || length > MAX_NAME || isdigit((unsigned char)name[0])) return false;
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && name[i] != '_') return false;
    }
    return true;
}

/* The scalar on top of the stack. False: it is no scalar. */
static bool read_scalar(const Reader *reader, Setting *out) {
    lua_State *lua = reader->lua;
    switch (lua_type(lua, -1)) {
    case LUA_TBOOLEAN:
        out->type = SETTING_BOOLEAN;
        out->boolean = lua_toboolean(lua, -1);
        return true;
    case LUA_TSTRING:
        out->type = SETTING_STRING;
        out->text = arena_strdup(reader->sandbox->arena, lua_tostring(lua, -1));
        return true;
    case LUA_TNUMBER:
        out->type = lua_isinteger(lua, -1) ? SETTING_INTEGER : SETTING_NUMBER;
        if (lua_isinteger(lua, -1)) {
            out->integer = lua_tointeger(lua, -1);
        } else {
            out->number = lua_tonumber(lua, -1);
        }
        return true;
    default: return false;
    }
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The keys of the table at `index`, sorted: Lua's own order changes from run to run. */
static int sorted_keys(const Reader *reader, int index, const char *what, const char ***out_keys) {
    lua_State *lua = reader->lua;
    const char **keys = ARENA_ARRAY(reader->sandbox->arena, const char *, MAX_SETTINGS);
    int n = 0;
    lua_pushnil(lua);
    while (lua_next(lua, index)) {
        lua_pop(lua, 1);
        if (lua_type(lua, -1) != LUA_TSTRING) {
            fail(reader, "%s: each field needs a name; one has a %s", what, luaL_typename(lua, -1));
        }
        if (n == MAX_SETTINGS) fail(reader, "%s: at most %d fields are possible", what, n);
        keys[n++] = arena_strdup(reader->sandbox->arena, lua_tostring(lua, -1));
    }
    qsort(keys, (size_t)n, sizeof(keys[0]), compare_texts);
    *out_keys = keys;
    return n;
}

/* Pushes field `name` of the model's table, which must be of the type or absent. False: absent, and
 * nothing is pushed. */
static bool push_field(const Reader *reader, const char *name, int type) {
    lua_pushstring(reader->lua, name);
    int found = lua_rawget(reader->lua, reader->table);
    if (found == LUA_TNIL) {
        lua_pop(reader->lua, 1);
        return false;
    }
    if (found == type) return true;
    fail(reader, "model: '%s' must be a %s, not a %s", name, lua_typename(reader->lua, type),
         lua_typename(reader->lua, found));
}

static const RecipeField *find_recipe(const char *name) {
    for (int i = 0; i < N_RECIPE; i++) {
        if (strcmp(RECIPE[i].name, name) == 0) return &RECIPE[i];
    }
    return NULL;
}

static bool is_recipe_name(const char *name) {
    return find_recipe(name) || strcmp(name, "kind") == 0 || strcmp(name, "lr_schedule") == 0;
}

static void add_setting(const Reader *reader, const char *name, bool is_axis) {
    static const char *const AXES[] = {"ffn",     "head",  "heads", "kv_heads", "model",
                                       "patches", "pixel", "seq",   "source",   "vocab"};
    SettingTable *table = &reader->description->settings;
    const char *what = is_axis ? "axis" : "setting";
    Setting value = {.name = name};
    if (!is_identifier(name)) {
        fail(reader, "model: %s '%.64s' must be named by letters, digits and '_'", what, name);
    }
    if (script_name_is_taken(name)) {
        fail(reader, "model: %s '%s' needs another name: m.%s is something else", what, name, name);
    }
    if (is_recipe_name(name)) {
        fail(reader,
             "model: %s '%s' needs another name: it is the optimizer's, optimizer = { %s = ... } "
             "or --set optimizer.%s=...",
             what, name, name, name);
    }
    if (settings_find(table, name)) {
        fail(reader, "model: '%s' is an axis and a setting; it can be one of them", name);
    }
    for (size_t i = 0; !is_axis && i < sizeof(AXES) / sizeof(AXES[0]); i++) {
        if (strcmp(AXES[i], name) == 0) fail(reader, "model: '%s' belongs into axes", name);
    }
    if (!read_scalar(reader, &value)) {
        fail(reader,
             "model: field '%s' is a %s; a model has name, axes, sizes, size, optimizer, loss, "
             "training, and settings (numbers, truth values, texts)",
             name, luaL_typename(reader->lua, -1));
    }
    bool is_count = strcmp(name, "layers") == 0;
    bool is_whole = is_axis || is_count;
    Setting *setting = settings_add(table, name, is_whole ? SETTING_INTEGER : value.type, is_axis);
    setting->is_count = is_count;
    if (!setting_assign(setting, &value, "model", reader->description->loc,
                        reader->sandbox->diag)) {
        sandbox_fail(reader->lua);
    }
}

/* Fields of the model's table that are no settings. */
static bool is_other_field(const char *name) {
    static const char *const OTHERS[] = {"axes", "loss",  "name",    "optimizer",
                                         "size", "sizes", "training"};
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (strcmp(OTHERS[i], name) == 0) return true;
    }
    return false;
}

/* Puts what `training` has beside the model's own settings. */
static void add_training(const Reader *reader) {
    lua_State *lua = reader->lua;
    const char **keys;
    if (!push_field(reader, "training", LUA_TTABLE)) return;
    const int n = sorted_keys(reader, lua_gettop(lua), "training", &keys);
    for (int i = 0; i < n; i++) {
        lua_pushstring(lua, keys[i]);
        const bool both = lua_rawget(lua, reader->table) != LUA_TNIL;
        lua_pop(lua, 1);
        if (both || is_other_field(keys[i])) {
            fail(reader, "model: training has '%s', which %s", keys[i],
                 both ? "the model has, too" : "is no setting");
        }
        lua_pushstring(lua, keys[i]);
        lua_pushvalue(lua, -1);
        lua_rawget(lua, -3);
        lua_rawset(lua, reader->table);
    }
    lua_pop(lua, 1);
}

/* The axes, and every other scalar of the model's table. */
static void read_settings(const Reader *reader) {
    lua_State *lua = reader->lua;
    const char **keys;
    if (!push_field(reader, "axes", LUA_TTABLE)) fail(reader, "model: 'axes' is missing");
    int n = sorted_keys(reader, lua_gettop(lua), "axes", &keys);
    for (int i = 0; i < n; i++) {
        lua_pushstring(lua, keys[i]);
        lua_rawget(lua, -2);
        add_setting(reader, keys[i], true);
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1);
    add_training(reader);
    n = sorted_keys(reader, reader->table, "model", &keys);
    for (int i = 0; i < n; i++) {
        if (is_other_field(keys[i])) continue;
        lua_pushstring(lua, keys[i]);
        lua_rawget(lua, reader->table);
        add_setting(reader, keys[i], false);
        lua_pop(lua, 1);
    }
    settings_add_derived(&reader->description->settings);
}

/* The row of `sizes` on top of the stack. */
static void apply_row(const Reader *reader, const char *size) {
    const char **keys;
    lua_State *lua = reader->lua;
    ModelDescription *description = reader->description;
    const char *what = arena_printf(reader->sandbox->arena, "size '%s'", size);
    int row = lua_gettop(lua);
    int n = sorted_keys(reader, row, what, &keys);
    for (int i = 0; i < n; i++) {
        Setting *setting = settings_find(&description->settings, keys[i]);
        Setting value;
        if (!setting || !setting->is_settable) {
            settings_report_unknown(&description->settings, keys[i], what, description->loc,
                                    reader->sandbox->diag);
            sandbox_fail(lua);
        }
        lua_pushstring(lua, keys[i]);
        lua_rawget(lua, row);
        if (!read_scalar(reader, &value)) {
            fail(reader, "%s: '%s' must be %s, not a %s", what, keys[i],
                 setting_type_name(setting->type), luaL_typename(lua, -1));
        }
        if (!setting_assign(setting, &value, what, description->loc, reader->sandbox->diag)) {
            sandbox_fail(lua);
        }
        lua_pop(lua, 1);
    }
}

/* Picks the row: `given` by --set, or the model's own `size`. */
static void apply_size(const Reader *reader, const char *given) {
    lua_State *lua = reader->lua;
    Arena *arena = reader->sandbox->arena;
    const char *size = given;
    if (!size) {
        if (!push_field(reader, "size", LUA_TSTRING)) return;
        size = arena_strdup(arena, lua_tostring(lua, -1));
        lua_pop(lua, 1);
    }
    if (!push_field(reader, "sizes", LUA_TTABLE)) {
        fail(reader, "size '%s': the model has no sizes to pick from", size);
    }
    lua_pushstring(lua, size);
    int type = lua_rawget(lua, -2);
    if (type == LUA_TNIL) {
        const char **keys, *names = "";
        int n = sorted_keys(reader, lua_gettop(lua) - 1, "sizes", &keys);
        for (int i = 0; i < n; i++) {
            names = arena_printf(arena, "%s%s%s", names, i ? ", " : "", keys[i]);
        }
        fail(reader, "the model has no size '%s'; it has: %s", size, names);
    }
    if (type != LUA_TTABLE) {
        fail(reader, "size '%s' must be a table of settings, not a %s", size,
             lua_typename(lua, type));
    }
    apply_row(reader, size);
    lua_pop(lua, 2);
}

static void set_recipe(const Reader *reader, const RecipeField *field, double value,
                       const char *what) {
    bool fits = value < field->below &&
                (field->may_equal_least ? value >= field->least : value > field->least);
    if (!fits) {
        fail(reader, "%s: must be %s %g%s", what, field->may_equal_least ? "at least" : "more than",
             field->least,
             field->below == 1      ? " and less than 1"
             : field->below == 1e6  ? " and less than 1e6"
             : value < field->below ? ""
             : field->below == 1e9  ? " and less than 1e9"
                                    : " and less than 1e30");
    }
    memcpy((char *)&reader->description->recipe + field->offset, &value, sizeof(value));
}

static void set_optimizer(const Reader *reader, const char *kind, const char *what) {
    TrainingRecipe *recipe = &reader->description->recipe;
    for (int i = 0; i < OPTIMIZER_RULE; i++) {
        if (strcmp(kind, OPTIMIZERS[i]) != 0) continue;
        recipe->optimizer = (OptimizerKind)i;
        return;
    }
    if (!rule_push(reader->lua, kind)) {
        fail(reader,
             "%s: there is no optimizer '%s'; there are: adamw, lamb, lion, muon, sgd, and as "
             "formulas: %s",
             what, kind, rule_names(reader->lua));
    }
    lua_pop(reader->lua, 1);
    recipe->optimizer = OPTIMIZER_RULE;
    *reader->rule = arena_strdup(reader->sandbox->arena, kind);
}

/* Numbers of a formula: the optimizer's fields that the recipe does not know. */
static void add_own_number(const Reader *reader, const char *name, double value) {
    bool given = strcmp(name, "step") == 0 || strcmp(name, "decay") == 0;
    if (given || !is_identifier(name)) {
        fail(reader, "optimizer: '%.64s': %s", name,
             given ? "a formula is given its own t.step and t.decay"
                   : "a number must be named by letters, digits and '_'");
    }
    if (!own_number_add(reader->numbers, name, value)) {
        fail(reader, "optimizer: at most %d numbers of its own are possible", RULE_MOST_OWN);
    }
}

/* Now that it is known which optimizer it is, the formula's numbers: a model's own has what its
 * table says, the library's what they have by themselves, or the table says otherwise. */
static void settle_numbers(const Reader *reader) {
    const OwnNumbers said = *reader->numbers;
    bool is_rule = reader->description->recipe.optimizer == OPTIMIZER_RULE;
    if (is_rule && !*reader->rule) return;
    *reader->numbers = (OwnNumbers){0};
    if (is_rule) {
        rule_push(reader->lua, *reader->rule);
        rule_read_numbers(reader->lua, -1, reader->numbers);
        lua_pop(reader->lua, 1);
    }
    for (int i = 0; i < said.count && !*reader->has_formula; i++) {
        double *number = own_number_find(reader->numbers, said.names[i]);
        if (!number) {
            fail(reader, "optimizer: '%s' is unknown; known: %s%s", said.names[i], RECIPE_NAMES,
                 own_number_names(reader->numbers, reader->sandbox->arena));
        }
        *number = said.values[i];
    }
}

/* What the formula computes; its numbers are all said. */
static void trace_rule(const Reader *reader) {
    ModelDescription *description = reader->description;
    if (description->recipe.optimizer != OPTIMIZER_RULE) return;
    if (*reader->rule) {
        rule_push(reader->lua, *reader->rule);
    } else {
        lua_pushliteral(reader->lua, "optimizer");
        lua_rawget(reader->lua, reader->table);
    }
    rule_read(reader->lua, -1, reader->numbers, &description->recipe, description->loc);
    lua_pop(reader->lua, 1);
}

static void set_lr_schedule(const Reader *reader, const char *name, const char *what) {
    LrDecay decay;
    if (!lr_decay_parse(name, &decay)) {
        fail(reader, "%s: '%.64s' is none of " LR_DECAY_NAMES, what, name);
    }
    reader->description->recipe.lr_schedule = lr_decay_name(decay);
}

static void set_freeze(const Reader *reader, const char *patterns, const char *what) {
    ModelDescription *description = reader->description;
    Arena *arena = reader->sandbox->arena;
    description->freeze = (FreezeRule){.patterns = arena_strdup(arena, patterns),
                                       .what = arena_strdup(arena, what),
                                       .loc = description->loc};
}

static bool is_formula_field(const char *name) {
    return strcmp(name, "update") == 0 || strcmp(name, "states") == 0 ||
           strcmp(name, "squares") == 0;
}

static void read_recipe(const Reader *reader) {
    lua_State *lua = reader->lua;
    reader->description->recipe = (TrainingRecipe){.optimizer = OPTIMIZER_ADAMW,
                                                   .learning_rate = 3e-4,
                                                   .beta1 = 0.9,
                                                   .beta2 = NAN,
                                                   .eps = 1e-8,
                                                   .momentum = NAN,
                                                   .muon_rms = 0.2,
                                                   .weight_decay = 0.1,
                                                   .max_norm = 1.0};
    if (!push_field(reader, "optimizer", LUA_TTABLE)) return;
    if (lua_getmetatable(lua, -1)) { /* what it gives would not be seen */
        fail(reader, "optimizer: must be a plain table, and this one has a metatable");
    }
    const char **keys;
    int table = lua_gettop(lua), n = sorted_keys(reader, table, "optimizer", &keys);
    lua_pushliteral(lua, "update");
    *reader->has_formula = lua_rawget(lua, table) != LUA_TNIL;
    const bool is_function = lua_isfunction(lua, -1) && !lua_iscfunction(lua, -1);
    const SourceLoc formula = is_function ? sandbox_function_line(lua) : (SourceLoc){0};
    lua_pop(lua, 1);
    if (*reader->has_formula) reader->description->recipe.optimizer = OPTIMIZER_RULE;
    const SourceLoc model_loc = reader->description->loc;
    if (is_function) reader->description->loc = formula; /* a script that extends a model */
    for (int i = 0; i < n; i++) {
        const char *what = arena_printf(reader->sandbox->arena, "optimizer: '%s'", keys[i]);
        const RecipeField *field = find_recipe(keys[i]);
        lua_pushstring(lua, keys[i]);
        int type = lua_rawget(lua, table);
        if (field && type == LUA_TNUMBER) {
            set_recipe(reader, field, lua_tonumber(lua, -1), what);
        } else if (field) {
            fail(reader, "%s must be a number, not a %s", what, lua_typename(lua, type));
        } else if (is_formula_field(keys[i])) {
            if (!*reader->has_formula) fail(reader, "%s goes with 'update', a formula", what);
        } else if (strcmp(keys[i], "kind") == 0 && *reader->has_formula) {
            fail(reader, "%s: 'update' says what it is; leave one of them out", what);
        } else if (strcmp(keys[i], "kind") == 0 && type == LUA_TSTRING) {
            set_optimizer(reader, lua_tostring(lua, -1), "optimizer");
        } else if (strcmp(keys[i], "lr_schedule") == 0 && type == LUA_TSTRING) {
            set_lr_schedule(reader, lua_tostring(lua, -1), what);
        } else if (strcmp(keys[i], "freeze") == 0 && type == LUA_TSTRING) {
            set_freeze(reader, lua_tostring(lua, -1), what);
        } else if (type == LUA_TNUMBER) {
            add_own_number(reader, keys[i], lua_tonumber(lua, -1));
        } else if (*reader->has_formula) {
            fail(reader, "%s must be a number, as all are that a formula is given, not a %s", what,
                 lua_typename(lua, type));
        } else {
            fail(reader, "%s is unknown; known: %s", what, RECIPE_NAMES);
        }
        lua_pop(lua, 1);
    }
    lua_pop(lua, 1);
    reader->description->loc = model_loc;
}

/* As the model or --set says it. */
static const char *shown_kind(const Reader *reader) {
    const OptimizerKind kind = reader->description->recipe.optimizer;
    const char *name = kind == OPTIMIZER_RULE ? *reader->rule : OPTIMIZERS[kind];
    return name ? arena_printf(reader->sandbox->arena, "\"%s\"", name) : "a formula of its own";
}

/* What nobody said. */
static void complete_recipe(const Reader *reader) {
    TrainingRecipe *recipe = &reader->description->recipe;
    OptimizerKind kind = recipe->optimizer;
    if (isnan(recipe->beta2)) {
        recipe->beta2 = kind == OPTIMIZER_LAMB ? 0.999 : kind == OPTIMIZER_LION ? 0.99 : 0.95;
    }
    if (isnan(recipe->momentum)) recipe->momentum = kind == OPTIMIZER_MUON ? 0.95 : 0;
    LrDecay decay = LR_COSINE;
    if (recipe->lr_schedule) lr_decay_parse(recipe->lr_schedule, &decay);
    if (recipe->decay_steps > 0 && !lr_decay_has_end(decay)) {
        fail(reader,
             "optimizer: 'decay_steps' goes with lr_schedule wsd, wsd-linear or "
             "inverse-sqrt, not %s",
             lr_decay_name(decay));
    }
    if (recipe->decay_steps >= 1 && recipe->decay_steps != floor(recipe->decay_steps)) {
        fail(reader,
             "optimizer: 'decay_steps' is %g: neither a whole number of steps nor a share "
             "below 1",
             recipe->decay_steps);
    }
    if (recipe->adam_lr > 0 && kind != OPTIMIZER_MUON) {
        fail(reader, "optimizer: 'adam_lr' goes with kind = \"muon\", not %s", shown_kind(reader));
    }
    if (recipe->trust_max > 0 && kind != OPTIMIZER_LAMB) {
        fail(reader, "optimizer: 'trust_max' goes with kind = \"lamb\", not %s",
             shown_kind(reader));
    }
    if (recipe->adam_lr > 0 && recipe->learning_rate <= 0) {
        fail(reader, "optimizer: 'adam_lr' is taken as a multiple of 'lr', which is 0");
    }
    if (recipe->adam_lr > 0) recipe->adam_lr_scale = recipe->adam_lr / recipe->learning_rate;
}

static bool is_kind(const char *key) {
    return strcmp(key, "optimizer") == 0 || strcmp(key, "optimizer.kind") == 0 ||
           strcmp(key, "kind") == 0;
}

/* The kind of optimizer that --set says, which tells what else it may say. */
static void apply_kind(const Reader *reader, const ModelSetting *given, int n_given) {
    ModelDescription *description = reader->description;
    SourceLoc loc = description->loc;
    for (int i = 0; i < n_given; i++) {
        if (!is_kind(given[i].key)) continue;
        description->loc = (SourceLoc){reader->sandbox->path, 0};
        set_optimizer(
            reader, given[i].value,
            arena_printf(reader->sandbox->arena, "--set %s=%s", given[i].key, given[i].value));
    }
    description->loc = loc;
}

/* --set KEY=VALUE: a setting of the model, else one of the optimizer. */
static void apply_given(const Reader *reader, const ModelSetting *given) {
    ModelDescription *description = reader->description;
    Arena *arena = reader->sandbox->arena;
    Diag *diag = reader->sandbox->diag;
    SourceLoc whole = {reader->sandbox->path, 0};
    const char *what = arena_printf(arena, "--set %s=%s", given->key, given->value);
    description->loc = whole;
    Setting *setting = settings_find(&description->settings, given->key);
    if (setting && setting->is_settable) {
        if (!setting->own && setting->has_value) setting->own = setting_text(setting, arena);
        if (!setting_parse(setting, given->value, what, whole, diag, arena)) {
            sandbox_fail(reader->lua);
        }
        return;
    }
    bool prefixed = strncmp(given->key, "optimizer.", 10) == 0;
    const char *name = prefixed ? given->key + 10 : given->key;
    const RecipeField *field = find_recipe(name);
    if (field) {
        Setting number = {.name = field->name, .type = SETTING_NUMBER};
        if (!setting_parse(&number, given->value, what, whole, diag, arena)) {
            sandbox_fail(reader->lua);
        }
        set_recipe(reader, field, number.number, what);
    } else if (own_number_find(reader->numbers, name)) {
        Setting number = {.name = name, .type = SETTING_NUMBER};
        if (!setting_parse(&number, given->value, what, whole, diag, arena)) {
            sandbox_fail(reader->lua);
        }
        *own_number_find(reader->numbers, name) = number.number;
    } else if (is_kind(given->key)) {
        return; /* known by now */
    } else if (strcmp(name, "lr_schedule") == 0) {
        set_lr_schedule(reader, given->value, what);
    } else if (strcmp(name, "freeze") == 0) {
        set_freeze(reader, given->value, what);
    } else if (prefixed) {
        fail(reader, "%s: the optimizer has no setting '%s'; it has: %s%s", what, name,
             RECIPE_NAMES, own_number_names(reader->numbers, arena));
    } else {
        settings_report_unknown(&description->settings, given->key, what, whole, diag);
        diag_note(diag, NO_LOC, "also: size, and of the optimizer: %s%s", RECIPE_NAMES,
                  own_number_names(reader->numbers, arena));
        sandbox_fail(reader->lua);
    }
}

void model_read(lua_State *lua, int index, const ModelSetting *given, int n_given,
                ModelDescription *description) {
    Sandbox *sandbox = sandbox_of(lua);
    bool has_formula = false;
    const char *rule = NULL, *size = NULL;
    OwnNumbers numbers = {0};
    Reader reader = {.lua = lua,
                     .sandbox = sandbox,
                     .description = description,
                     .table = lua_absindex(lua, index),
                     .has_formula = &has_formula,
                     .rule = &rule,
                     .numbers = &numbers};
    description->settings.arena = sandbox->arena;
    if (!push_field(&reader, "name", LUA_TSTRING)) fail(&reader, "model: 'name' is missing");
    description->name = arena_strdup(sandbox->arena, lua_tostring(lua, -1));
    if (!is_identifier(description->name)) {
        fail(&reader, "model: 'name' must be letters, digits and '_'");
    }
    lua_pop(lua, 1);
    read_settings(&reader);
    read_recipe(&reader);
    apply_kind(&reader, given, n_given);
    settle_numbers(&reader);
    for (int i = 0; i < n_given; i++) {
        if (strcmp(given[i].key, "size") == 0) size = given[i].value;
    }
    SourceLoc model_loc = description->loc;
    if (size) description->loc = (SourceLoc){sandbox->path, 0};
    apply_size(&reader, size);
    for (int i = 0; i < n_given; i++) {
        if (strcmp(given[i].key, "size") != 0) apply_given(&reader, &given[i]);
    }
    if (!settings_derive(&description->settings, description->loc, sandbox->diag)) {
        sandbox_fail(lua);
    }
    description->loc = model_loc;
    complete_recipe(&reader);
    trace_rule(&reader);
}

int model_read_sizes(lua_State *lua, int index, const char ***out_names) {
    ModelDescription none = {.loc = {sandbox_of(lua)->path, 0}};
    Reader reader = {.lua = lua,
                     .sandbox = sandbox_of(lua),
                     .description = &none,
                     .table = lua_absindex(lua, index)};
    if (!push_field(&reader, "sizes", LUA_TTABLE)) return 0;
    int n = sorted_keys(&reader, lua_gettop(lua), "sizes", out_names);
    lua_pop(lua, 1);
    return n;
}
