#include "frontend/lua/lua_model.h"

#include "frontend/lua/lua_sandbox.h"
#include "ir/init.h"
#include "ir/op.h"
#include "ir/teacher.h"

#include <ctype.h>
#include <lauxlib.h>
#include <limits.h>
#include <math.h>
#include <string.h>

enum { MAX_NAME = 100, MAX_BLOCKS = 10000, MOST_AXES = 40 /* others are of passes */ };

static const double DEFAULT_STD = 0.02; /* Radford et al. 2019, GPT-2 */

static void check_self(lua_State *lua, const char *method) {
    if (!lua_istable(lua, 1)) script_error(lua, "call it as m:%s(...), with a colon", method);
}

/* A dotted name: letters, digits, '_' and '.'. */
static const char *check_name(lua_State *lua, int index, const char *what) {
    size_t length = 0;
    const char *name =
        lua_type(lua, index) == LUA_TSTRING ? lua_tolstring(lua, index, &length) : "";
    bool valid = length > 0;
    for (size_t i = 0; valid && i < length; i++) {
        valid = isalnum((unsigned char)name[i]) || name[i] == '_' || name[i] == '.';
    }
    if (length > MAX_NAME) {
        script_error(lua, "%s: its name has %d characters; at most %d are possible", what,
                     length > INT_MAX ? INT_MAX : (int)length, MAX_NAME);
    }
    if (!valid) {
        script_error(lua, "%s: its name must be a text of letters, digits, '_' and '.'", what);
    }
    return name;
}

typedef struct ParamOptions {
    const char *init;
    double std, low, high, decay, lr_scale, balance;
    bool muon, frozen;
    /* Said, not left to the defaults. */
    bool gives_init, gives_std, gives_decay, gives_muon, gives_frozen, gives_lr_scale,
        gives_balance;
} ParamOptions;

static double check_std(lua_State *lua, const char *name) {
    double value = lua_type(lua, -1) == LUA_TNUMBER ? lua_tonumber(lua, -1) : NAN;
    if (!isfinite(value) || value < 0) {
        script_error(lua, "parameter '%s': 'std' must be a number, 0 or more", name);
    }
    return value;
}

static const char *check_init(lua_State *lua, const char *name) {
    const char *text = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "";
    const char *init = init_find(text);
    if (init) return init;
    script_error(lua, "parameter '%s': 'init' must be normal, uniform, range, zeros or ones", name);
}

static bool has_bounds(const char *init) {
    return strcmp(init, "uniform") == 0 || strcmp(init, "range") == 0;
}

/* Of an init that has both, the lesser first. */
static void read_bounds(lua_State *lua, int index, const char *name, ParamOptions *out) {
    bool low = lua_getfield(lua, index, "low") != LUA_TNIL;
    bool high = lua_getfield(lua, index, "high") != LUA_TNIL, any = low || high;
    bool numbers = lua_type(lua, -1) == LUA_TNUMBER && lua_type(lua, -2) == LUA_TNUMBER;
    out->high = numbers ? lua_tonumber(lua, -1) : NAN;
    out->low = numbers ? lua_tonumber(lua, -2) : NAN;
    lua_pop(lua, 2);
    bool bounded = has_bounds(out->init);
    if (!bounded && any) {
        script_error(lua,
                     "parameter '%s': 'low' and 'high' go with init = \"uniform\" or \"range\", "
                     "not \"%s\"",
                     name, out->init);
    }
    if (bounded && !(fabs(out->low) <= 1e6 && fabs(out->high) <= 1e6 && out->low <= out->high)) {
        script_error(lua,
                     "parameter '%s': a %s init needs 'low' and 'high', numbers from -1e6 to 1e6, "
                     "the lesser first",
                     name, out->init);
    }
}

static bool check_flag(lua_State *lua, const char *option, const char *name) {
    if (lua_isboolean(lua, -1)) return lua_toboolean(lua, -1);
    if (lua_type(lua, -1) == LUA_TNUMBER) {
        double value = lua_tonumber(lua, -1);
        if (value == 0 || value == 1) return value == 1;
    }
    script_error(lua, "parameter '%s': '%s' must be 0 or 1", name, option);
}

/* Of what the recipe says. */
static double check_factor(lua_State *lua, const char *option, const char *name) {
    double value = lua_type(lua, -1) == LUA_TNUMBER ? lua_tonumber(lua, -1) : NAN;
    if (!(value >= 0 && value <= 1e6)) {
        script_error(lua, "parameter '%s': '%s' must be a number from 0 to 1e6", name, option);
    }
    return value;
}

static double check_decay(lua_State *lua, const char *name) {
    if (lua_isboolean(lua, -1)) return lua_toboolean(lua, -1);
    return check_factor(lua, "decay", name);
}

static bool is_option(const char *key) {
    static const char *const KNOWN[] = {"balance", "decay",    "frozen", "high", "init",
                                        "low",     "lr_scale", "muon",   "std"};
    for (size_t i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++) {
        if (strcmp(KNOWN[i], key) == 0) return true;
    }
    return false;
}

/* {init = "normal", std = 0.02, decay = 1, frozen = 0}. Weights drawn at random decay, others do
 * not. */
static ParamOptions read_options(lua_State *lua, int index, const char *name) {
    ParamOptions options = {.init = "normal", .std = DEFAULT_STD, .lr_scale = 1};
    const char *unknown = NULL;
    if (lua_isnoneornil(lua, index)) {
        options.decay = 1;
        return options;
    }
    if (!lua_istable(lua, index)) {
        script_error(lua,
                     "parameter '%s': options must be a table: {init, std, low, high, decay, "
                     "frozen, lr_scale, muon, balance}",
                     name);
    }
    lua_pushnil(lua);
    while (lua_next(lua, index)) {
        lua_pop(lua, 1);
        const char *key = lua_type(lua, -1) == LUA_TSTRING ? lua_tostring(lua, -1) : "?";
        if (!is_option(key) && (!unknown || strcmp(key, unknown) < 0)) unknown = key;
    }
    if (unknown) {
        script_error(lua,
                     "parameter '%s': unknown option '%.64s'; known: balance, decay, frozen, "
                     "high, init, low, lr_scale, muon, std",
                     name, unknown);
    }
    options.gives_init = lua_getfield(lua, index, "init") != LUA_TNIL;
    if (options.gives_init) options.init = check_init(lua, name);
    options.gives_std = lua_getfield(lua, index, "std") != LUA_TNIL;
    if (options.gives_std) options.std = check_std(lua, name);
    read_bounds(lua, index, name, &options);
    bool normal = strcmp(options.init, "normal") == 0;
    options.gives_decay = lua_getfield(lua, index, "decay") != LUA_TNIL;
    options.decay = options.gives_decay ? check_decay(lua, name) : normal;
    options.gives_muon = lua_getfield(lua, index, "muon") != LUA_TNIL;
    if (options.gives_muon) options.muon = check_flag(lua, "muon", name);
    options.gives_lr_scale = lua_getfield(lua, index, "lr_scale") != LUA_TNIL;
    if (options.gives_lr_scale) options.lr_scale = check_factor(lua, "lr_scale", name);
    options.gives_frozen = lua_getfield(lua, index, "frozen") != LUA_TNIL;
    if (options.gives_frozen) options.frozen = check_flag(lua, "frozen", name);
    options.gives_balance = lua_getfield(lua, index, "balance") != LUA_TNIL;
    if (options.gives_balance) options.balance = check_factor(lua, "balance", name);
    lua_pop(lua, 7);
    if (options.gives_std && !normal) {
        script_error(lua, "parameter '%s': 'std' goes with init = \"normal\", not \"%s\"", name,
                     options.init);
    }
    return options;
}

static uint32_t hash_name(const char *name) {
    uint32_t hash = 0;
    while (*name) hash = hash * 31 + (unsigned char)*name++;
    return hash;
}

static Node *find_param(const ScriptParam *params, int count, const char *name) {
    uint32_t hash = hash_name(name);
    for (int i = 0; i < count; i++) {
        if (params[i].hash == hash && strcmp(params[i].name, name) == 0) return params[i].node;
    }
    return NULL;
}

/* Reports that `name` is asked for in a way that the parameter made before does not allow. */
static _Noreturn void fail_param(lua_State *lua, const Node *made, const char *name,
                                 const char *why) {
    Diag *diag = sandbox_of(lua)->diag;
    diag_error(diag, sandbox_user_line(lua), "parameter '%s' %s", name, why);
    diag_note(diag, made->loc, "first made here");
    sandbox_fail(lua);
}

/* What is said again of a parameter that others made must be what they said. */
static void check_same_options(lua_State *lua, const Node *made, const char *name,
                               const ParamOptions *options) {
    bool normal = strcmp(node_string(made, ATTR_init), "normal") == 0;
    bool init = !options->gives_init || strcmp(options->init, node_string(made, ATTR_init)) == 0;
    if (options->gives_init && init && has_bounds(options->init)) {
        init = options->low == node_float(made, ATTR_low, 0) &&
               options->high == node_float(made, ATTR_high, 0);
    }
    bool std = !options->gives_std || (normal && options->std == node_float(made, ATTR_std, 0));
    bool decay = !options->gives_decay || options->decay == node_float(made, ATTR_decay, 0);
    bool muon = !options->gives_muon || (int)options->muon == (int)node_int(made, ATTR_muon, -1);
    bool rate = !options->gives_lr_scale || options->lr_scale == node_float(made, ATTR_lr_scale, 1);
    bool frozen = !options->gives_frozen || options->frozen == node_is_frozen(made);
    bool balance =
        !options->gives_balance || options->balance == node_float(made, ATTR_balance, -1);
    if (init && std && decay && muon && rate && frozen && balance) return;
    fail_param(lua, made, name,
               !init     ? "has another 'init' than where it was first made"
               : !std    ? "has another 'std' than where it was first made"
               : !decay  ? "has another 'decay' than where it was first made"
               : !muon   ? "has another 'muon' than where it was first made"
               : !rate   ? "has another 'lr_scale' than where it was first made"
               : !frozen ? "has another 'frozen' than where it was first made"
                         : "has another 'balance' than where it was first made");
}

static Node *make_param(lua_State *lua, const char *name, const Type *type,
                        const ParamOptions *options) {
    Attr attrs[9] = {attr_string(ATTR_name, name), attr_string(ATTR_init, options->init),
                     attr_float(ATTR_decay, options->decay)};
    int n_attrs = 3;
    if (strcmp(options->init, "normal") == 0) attrs[n_attrs++] = attr_float(ATTR_std, options->std);
    if (has_bounds(options->init)) {
        attrs[n_attrs++] = attr_float(ATTR_low, options->low);
        attrs[n_attrs++] = attr_float(ATTR_high, options->high);
    }
    if (options->gives_muon) attrs[n_attrs++] = attr_int(ATTR_muon, options->muon);
    if (options->lr_scale != 1) {
        attrs[n_attrs++] = attr_float(ATTR_lr_scale, options->lr_scale);
    }
    if (options->frozen) attrs[n_attrs++] = attr_int(ATTR_frozen, 1);
    if (options->gives_balance) attrs[n_attrs++] = attr_float(ATTR_balance, options->balance);
    return script_add_node(
        lua, (NodeSpec){.op = OP_PARAM, .attrs = attrs, .n_attrs = n_attrs, .type = type});
}

/* The full name of the parameter that the argument at `index` asks for. */
static const char *check_param_name(lua_State *lua, int index, bool in_block) {
    static const char PREFIX[] = "blocks.";
    const char *name = check_name(lua, index, "a parameter");
    if (in_block) return arena_printf(sandbox_of(lua)->arena, "%s#.%s", PREFIX, name);
    if (strncmp(name, PREFIX, strlen(PREFIX)) == 0) {
        script_error(lua,
                     "parameter '%s': names of blocks' parameters begin with '%s'; choose "
                     "another outside of blocks",
                     name, PREFIX);
    }
    return arena_strdup(sandbox_of(lua)->arena, name);
}

/* Shape of a parameter along `axes`, of the sizes that the model declares. */
static Type param_type(lua_State *lua, int index, const char *name) {
    const ScriptGraph *script = script_graph(lua);
    const char *what = arena_printf(sandbox_of(lua)->arena, "parameter '%s'", name);
    Type type = {.dtype = DTYPE_F32};
    type.rank = script_check_axes(lua, index, what, type.axes);
    for (int i = 0; i < type.rank; i++) {
        if (strcmp(script->graph->axes.names[type.axes[i]], "batch") == 0) {
            script_error(lua,
                         "%s cannot have axis 'batch': its size is the plan's (micro-batch x "
                         "d), not the model's",
                         what);
        }
        type.dims[i] = script->axis_sizes[type.axes[i]];
    }
    return type;
}

/* The parameter of the block whose weights the current one has; NULL: it has none of that name. */
static Node *find_others_param(const ScriptGraph *script, const char *name) {
    if (script->weights_of == NO_BLOCK) return NULL;
    const BlockParams *made = &script->made[script->weights_of];
    return find_param(made->params, made->count, name);
}

/* m:param(name, axes, options) -> value. Outside of blocks the same name gives the same parameter:
 * that is how weights are tied. In a block that has another's weights it is that one's, if it has
 * one of this name. */
static int model_param(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    Arena *arena = sandbox_of(lua)->arena;
    check_self(lua, "param");
    lua_settop(lua, 4);
    bool in_block = script->block != NO_BLOCK;
    const char *name = check_param_name(lua, 2, in_block);
    Type type = param_type(lua, 3, name);
    Node *node = in_block ? find_param(script->block_params, script->n_block_params, name)
                          : find_param(script->params, script->n_params, name);
    if (node && in_block) {
        fail_param(lua, node, name, "exists in this block already: name one of the layers");
    }
    if (in_block) node = find_others_param(script, name);
    if (node && !type_equal(&node->types[0], &type)) {
        fail_param(lua, node, name, "has other axes than where it was first made");
    }
    ParamOptions options = read_options(lua, 4, name);
    bool is_new = !node;
    if (node) check_same_options(lua, node, name, &options);
    if (!node) node = make_param(lua, name, &type, &options);
    ScriptParam made = {name, hash_name(name), node};
    if (in_block) {
        ARENA_PUSH(arena, script->block_params, script->n_block_params,
                   script->block_params_capacity, made);
    } else if (is_new) {
        ARENA_PUSH(arena, script->params, script->n_params, script->params_capacity, made);
    }
    script_push_value(lua, node_value(node, 0));
    return 1;
}

/* A function that forgets its `return` would be found out where the next layer has no value. */
static void check_returned(lua_State *lua, lua_Integer i, int n_returned) {
    if (n_returned > 0 && !lua_isnil(lua, -n_returned)) return;
    lua_pushvalue(lua, 3);
    SourceLoc loc = sandbox_function_line(lua);
    diag_error(sandbox_of(lua)->diag, loc,
               "block %d: this function returns nothing: end it with `return` of what the block "
               "computes",
               (int)i);
    sandbox_fail(lua);
}

/* The number, counted from 0, of the block that options at 4, { weights = 1 }, say; or NO_BLOCK. */
static int read_weights_of(lua_State *lua, const ScriptGraph *script) {
    if (lua_isnoneornil(lua, 4)) return NO_BLOCK;
    if (!lua_istable(lua, 4)) {
        script_error(lua, "block: options must be a table, { weights = 1 }, not a %s",
                     luaL_typename(lua, 4));
    }
    lua_pushnil(lua);
    while (lua_next(lua, 4)) {
        bool known =
            lua_type(lua, -2) == LUA_TSTRING && strcmp(lua_tostring(lua, -2), "weights") == 0;
        if (!known) script_error(lua, "block: its one option is 'weights'");
        lua_pop(lua, 1);
    }
    int whole = 0;
    lua_getfield(lua, 4, "weights");
    lua_Integer i = lua_type(lua, -1) == LUA_TNUMBER ? lua_tointegerx(lua, -1, &whole) : 0;
    bool absent = lua_isnil(lua, -1);
    lua_pop(lua, 1);
    if (absent) return NO_BLOCK;
    if (!whole || i < 1 || i > script->n_blocks) {
        script_error(lua,
                     "block: 'weights' must be the number of a block before this one, which is %d",
                     script->n_blocks + 1);
    }
    return (int)i - 1;
}

/* m:block(i, f, options) -> what f returns. */
static int model_block(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    check_self(lua, "block");
    lua_settop(lua, 4);
    int whole = 0, n_returned;
    lua_Integer i = lua_type(lua, 2) == LUA_TNUMBER ? lua_tointegerx(lua, 2, &whole) : 0;
    if (!whole || !lua_isfunction(lua, 3)) {
        script_error(lua, "block: takes its number and a function, as in m:block(i, function() "
                          "... end)");
    }
    if (script->block != NO_BLOCK) script_error(lua, "block: a block cannot lie within another");
    if (i != script->n_blocks + 1) {
        script_error(lua, "block: blocks are numbered 1, 2, 3, ... in order; this one must be %d",
                     script->n_blocks + 1);
    }
    if (i > MAX_BLOCKS) script_error(lua, "block: at most %d blocks are possible", MAX_BLOCKS);
    Arena *arena = sandbox_of(lua)->arena;
    int n_made = script->n_blocks; /* blocks before this one */
    script->weights_of = read_weights_of(lua, script);
    script->block = script->n_blocks;
    ARENA_PUSH(arena, script->block_locs, script->n_blocks, script->block_locs_capacity,
               sandbox_user_line(lua));
    script->n_block_dropouts = 0;
    script->block_params = NULL;
    script->n_block_params = script->block_params_capacity = 0;
    lua_pushvalue(lua, 3);
    lua_call(lua, 0, LUA_MULTRET);
    script->block = NO_BLOCK;
    BlockParams params = {script->n_block_params, script->block_params};
    ARENA_PUSH(arena, script->made, n_made, script->made_capacity, params);
    n_returned = lua_gettop(lua) - 4;
    check_returned(lua, i, n_returned);
    return n_returned;
}

/* A single number goes to the log of training. */
static void check_reported(lua_State *lua, const char *name, Value value) {
    static const char *const OWN[] = OUTPUT_OWN_NAMES;
    const Graph *graph = script_graph(lua)->graph;
    if (value_type(value)->rank != 0 || value_type(value)->dtype != DTYPE_F32) return;
    for (size_t i = 0; i < sizeof(OWN) / sizeof(OWN[0]); i++) {
        if (strcmp(OWN[i], name) != 0) continue;
        script_error(lua, "output '%s': training has one of its own; choose another name", name);
    }
    int n_reported = 0;
    for (int n = 0; n < graph->n_nodes; n++) n_reported += output_is_reported(graph->nodes[n]);
    if (n_reported < OUTPUT_MOST_REPORTED) return;
    script_error(lua, "output '%s': at most %d single numbers are told of a step", name,
                 OUTPUT_MOST_REPORTED);
}

/* m:output(name, value) */
static int model_output(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    Arena *arena = sandbox_of(lua)->arena;
    check_self(lua, "output");
    const char *name = arena_strdup(arena, check_name(lua, 2, "an output"));
    Value value = script_to_value(lua, 3);
    if (!value.node) script_error(lua, "output '%s': takes a value of the graph", name);
    if (script->block != NO_BLOCK) {
        script_error(lua, "output '%s': outputs are made outside of blocks", name);
    }
    if (strcmp(name, "loss") == 0) {
        script_error(lua, "output 'loss' is what the loss function returns");
    }
    check_reported(lua, name, value);
    for (int i = 0; i < script->n_outputs; i++) {
        if (strcmp(script->outputs[i], name) == 0) {
            bool logits = strcmp(name, "logits") == 0;
            script_error(lua, "there is an output '%s' already%s", name,
                         logits ? ": one nn.cross_entropy makes it, others are given { output = "
                                  "false }"
                                : "");
        }
    }
    Attr attr = attr_string(ATTR_name, name);
    script_add_node(
        lua,
        (NodeSpec){.op = OP_OUTPUT, .inputs = &value, .n_inputs = 1, .attrs = &attr, .n_attrs = 1});
    ARENA_PUSH(arena, script->outputs, script->n_outputs, script->outputs_capacity, name);
    return 0;
}

/* An input along the first n_axes of batch, seq and `third`, once for the graph; `what` asks. */
static int push_numbers(lua_State *lua, const char *what, const char *name, DType dtype, int n_axes,
                        const char *third) {
    const char *const AXES[] = {"batch", "seq", third};
    const Graph *graph = script_graph(lua)->graph;
    if (script_graph(lua)->block != NO_BLOCK) {
        script_error(lua, "%s: it is asked for outside of blocks", what);
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_INPUT || strcmp(node_string(node, ATTR_name), name) != 0) continue;
        script_push_value(lua, node_value((Node *)node, 0));
        return 1;
    }
    Type type = {.dtype = dtype, .rank = n_axes};
    for (int i = 0; i < n_axes; i++) {
        type.axes[i] = axis_find(&graph->axes, AXES[i], (int)strlen(AXES[i]));
        type.dims[i] = script_graph(lua)->axis_sizes[type.axes[i]];
    }
    Attr attr = attr_string(ATTR_name, name);
    Node *node = script_add_node(
        lua, (NodeSpec){.op = OP_INPUT, .attrs = &attr, .n_attrs = 1, .type = &type});
    script_push_value(lua, node_value(node, 0));
    return 1;
}

/* m:reference() -> f32[batch]: what the output "row_scores" was before training, a number of the
 * data. */
static int model_reference(lua_State *lua) {
    check_self(lua, "reference");
    return push_numbers(lua, "reference", INPUT_REFERENCE, DTYPE_F32, 1, NULL);
}

/* m:numbers(name) -> f32[batch, seq]: numbers of each label (TokenNumbers). */
static int model_numbers(lua_State *lua) {
    check_self(lua, "numbers");
    const char *name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "";
    TokenNumbers which = token_numbers_find(name);
    if (which == N_TOKEN_NUMBERS || token_numbers_axis(which)) {
        script_error(lua, "numbers: of labels there are centered_rewards, advantages, "
                          "old_scores, reference_scores and weights, of rows desirable, "
                          "divergence and extra_weights");
    }
    return push_numbers(lua, "numbers", TOKEN_NUMBER_NAMES[which], DTYPE_F32, 2, NULL);
}

/* m:teacher() -> f32[batch, seq, vocab]: what another model, --teacher's, says of the same tokens.
 */
static int model_teacher(lua_State *lua) {
    check_self(lua, "teacher");
    return push_numbers(lua, "teacher", INPUT_TEACHER, DTYPE_F32, 3, "vocab");
}

/* m:stored(count) -> i32[batch, seq, stored], f32[batch, seq, stored]: the likeliest words that a
 * file has of each label, and their log-probabilities. */
static int model_stored(lua_State *lua) {
    check_self(lua, "stored");
    ScriptGraph *script = script_graph(lua);
    const int vocab = axis_find(&script->graph->axes, "vocab", 5);
    const int64_t most = vocab < 0 ? 0 : script->axis_sizes[vocab];
    int whole = 0;
    const lua_Integer count = lua_tointegerx(lua, 2, &whole);
    if (!whole || count < 1 || count > most) {
        script_error(lua, "stored: how many words of each label? a whole number from 1 to %d",
                     (int)most);
    }
    const int axis = graph_axis(script->graph, AXIS_STORED, (int)strlen(AXIS_STORED));
    if (axis < 0) script_error(lua, "stored: at most %d axes are possible", MAX_AXES);
    if (script->axis_sizes[axis] != 0 && script->axis_sizes[axis] != count) {
        script_error(lua, "stored: there is an axis '" AXIS_STORED "' of another size already");
    }
    script->axis_sizes[axis] = count;
    push_numbers(lua, "stored", TOKEN_NUMBER_NAMES[TOKEN_STORED_WORDS], DTYPE_I32, 3, AXIS_STORED);
    return 1 + push_numbers(lua, "stored", TOKEN_NUMBER_NAMES[TOKEN_STORED_LOGPROBS], DTYPE_F32, 3,
                            AXIS_STORED);
}

/* m:targets() -> f32[batch, seq, class]: what the data say of each class at a label. */
static int model_targets(lua_State *lua) {
    check_self(lua, "targets");
    const ScriptGraph *script = script_graph(lua);
    if (axis_find(&script->graph->axes, AXIS_CLASS, (int)strlen(AXIS_CLASS)) < 0) {
        script_error(lua, "targets: the model has no axis '" AXIS_CLASS "', of as many");
    }
    return push_numbers(lua, "targets", TOKEN_NUMBER_NAMES[TOKEN_TARGETS], DTYPE_F32, 3,
                        AXIS_CLASS);
}

/* m:tally(parameter, numbers): what the parameter, made with `balance`, moves against. */
static int model_tally(lua_State *lua) {
    check_self(lua, "tally");
    Value operands[2] = {script_to_value(lua, 2), script_to_value(lua, 3)};
    if (!operands[0].node || !operands[1].node) {
        script_error(lua, "tally: takes a parameter and numbers of each of its elements, both "
                          "values of the graph");
    }
    script_add_node(lua, (NodeSpec){.op = OP_TALLY, .inputs = operands, .n_inputs = 2});
    return 0;
}

/* m:axis(name, size): an axis whose size the model works out; the same again is no mistake. */
static int model_axis(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    AxisTable *axes = &script->graph->axes;
    check_self(lua, "axis");
    const char *name = check_name(lua, 2, "an axis");
    int whole = 0, length = (int)strlen(name);
    lua_Integer size = lua_type(lua, 3) == LUA_TNUMBER ? lua_tointegerx(lua, 3, &whole) : 0;
    if (strchr(name, '.')) script_error(lua, "axis '%s': its name can have no '.'", name);
    if (strcmp(name, "batch") == 0) script_error(lua, "axis 'batch': its size is the plan's");
    if (!whole || size < 1 || size > MAX_AXIS_SIZE) {
        script_error(lua, "axis '%s': its size must be a whole number from 1 to %d", name,
                     MAX_AXIS_SIZE);
    }
    int axis = axis_find(axes, name, length);
    if (axis >= 0 && script->axis_sizes[axis] != size) {
        script_error(lua, "axis '%s' is %lld; it cannot be %lld as well", name,
                     (long long)script->axis_sizes[axis], (long long)size);
    }
    if (axis < 0 && axes->count >= MOST_AXES) {
        script_error(lua, "axis '%s': a model can have at most %d axes", name, MOST_AXES);
    }
    if (axis < 0) axis = graph_axis(script->graph, name, length);
    if (axis < 0)
        script_error(lua,
                     "axis '%s': its name must begin with a letter, and have at most "
                     "64 characters",
                     name);
    script->axis_sizes[axis] = size;
    return 0;
}

/* m:freeze(patterns): of names, as in freeze.h; once the loss function has made all parameters. */
static int model_freeze(lua_State *lua) {
    ScriptGraph *script = script_graph(lua);
    Arena *arena = sandbox_of(lua)->arena;
    check_self(lua, "freeze");
    if (lua_type(lua, 2) != LUA_TSTRING) {
        script_error(lua, "freeze: takes a text, patterns of parameters' names, not a %s",
                     luaL_typename(lua, 2));
    }
    FreezeRule rule = {arena_strdup(arena, lua_tostring(lua, 2)), "freeze", sandbox_user_line(lua)};
    ARENA_PUSH(arena, script->freezes, script->n_freezes, script->freezes_capacity, rule);
    return 0;
}

static const luaL_Reg METHODS[] = {
    {"axis", model_axis},           {"block", model_block},     {"freeze", model_freeze},
    {"numbers", model_numbers},     {"output", model_output},   {"param", model_param},
    {"reference", model_reference}, {"tally", model_tally},     {"teacher", model_teacher},
    {"stored", model_stored},       {"targets", model_targets}, {NULL, NULL}};

bool script_name_is_taken(const char *name) {
    static const char *const FIELDS[] = {"batch", "group", "loss", "name", "setting", "size"};
    for (const luaL_Reg *method = METHODS; method->name; method++) {
        if (strcmp(method->name, name) == 0) return true;
    }
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(FIELDS[0]); i++) {
        if (strcmp(FIELDS[i], name) == 0) return true;
    }
    return false;
}

static void push_setting(lua_State *lua, const Setting *setting) {
    switch (setting->type) {
    case SETTING_INTEGER: lua_pushinteger(lua, setting->integer); break;
    case SETTING_NUMBER: lua_pushnumber(lua, setting->number); break;
    case SETTING_BOOLEAN: lua_pushboolean(lua, setting->boolean); break;
    case SETTING_STRING: lua_pushstring(lua, setting->text); break;
    }
}

/* The setting of the name that is argument 2, pushed and noted as read; false: there is none. */
static bool read_setting(lua_State *lua) {
    const SettingTable *settings = lua_touserdata(lua, lua_upvalueindex(1));
    const char *name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : NULL;
    Setting *setting = name ? settings_find(settings, name) : NULL;
    if (!setting || !setting->has_value) return false;
    setting->is_read = true;
    push_setting(lua, setting);
    return true;
}

/* m.NAME, where m has no method of that name. Upvalue: the settings. */
static int index_model(lua_State *lua) {
    if (read_setting(lua)) return 1;
    const SettingTable *settings = lua_touserdata(lua, lua_upvalueindex(1));
    const char *name = lua_type(lua, 2) == LUA_TSTRING ? lua_tostring(lua, 2) : "?";
    script_error(lua,
                 "m has no field '%.64s'; it has: %s, and the methods axis, block, freeze, "
                 "numbers, output, param, reference, setting, tally, targets, teacher",
                 name, settings_names(settings, true));
}

/* m:setting(name): the setting, or nil where the model has none. Upvalue: the settings. */
static int model_setting_method(lua_State *lua) {
    check_self(lua, "setting");
    if (lua_type(lua, 2) != LUA_TSTRING) script_error(lua, "setting: takes the name of one");
    if (!read_setting(lua)) lua_pushnil(lua);
    return 1;
}

/* pairs(m): all settings, and all are read. Upvalue: the settings. */
static int list_settings(lua_State *lua) {
    const SettingTable *settings = lua_touserdata(lua, lua_upvalueindex(1));
    lua_getglobal(lua, "next");
    lua_newtable(lua);
    for (int i = 0; i < settings->count; i++) {
        Setting *setting = &settings->items[i];
        if (!setting->has_value) continue;
        setting->is_read = true;
        push_setting(lua, setting);
        lua_setfield(lua, -2, setting->name);
    }
    lua_pushnil(lua);
    return 3;
}

static void set_closure(lua_State *lua, const char *name, lua_CFunction function,
                        SettingTable *settings) {
    lua_pushlightuserdata(lua, settings);
    lua_pushcclosure(lua, function, 1);
    lua_setfield(lua, -2, name);
}

void script_push_model(lua_State *lua, SettingTable *settings) {
    lua_newtable(lua);
    luaL_setfuncs(lua, METHODS, 0);
    set_closure(lua, "setting", model_setting_method, settings);
    lua_newtable(lua);
    set_closure(lua, "__index", index_model, settings);
    set_closure(lua, "__pairs", list_settings, settings);
    lua_pushboolean(lua, false);
    lua_setfield(lua, -2, "__metatable");
    lua_setmetatable(lua, -2);
}
