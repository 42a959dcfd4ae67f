#include "frontend/lua/model.h"

#include "frontend/lua/lua_graph.h"
#include "frontend/lua/lua_model.h"
#include "frontend/lua/lua_sandbox.h"
#include "frontend/lua/model_check.h"
#include "frontend/lua/model_read.h"
#include "ir/op.h"
#include "ir/teacher.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <string.h>

static const int64_t MAX_BATCH = INT64_C(1) << 31;

extern const char embedded_bert_lua[], embedded_deepseek_lua[], embedded_gemma_lua[],
    embedded_gpt_lua[], embedded_gptoss_lua[], embedded_hybrid_lua[], embedded_kimi_lua[],
    embedded_llama_lua[], embedded_llama4_lua[], embedded_llava_lua[], embedded_modernbert_lua[],
    embedded_moe_lua[], embedded_neox_lua[], embedded_t5_lua[];
extern const size_t embedded_bert_lua_bytes, embedded_deepseek_lua_bytes, embedded_gemma_lua_bytes,
    embedded_gpt_lua_bytes, embedded_gptoss_lua_bytes, embedded_hybrid_lua_bytes,
    embedded_kimi_lua_bytes, embedded_llama_lua_bytes, embedded_llama4_lua_bytes,
    embedded_llava_lua_bytes, embedded_modernbert_lua_bytes, embedded_moe_lua_bytes,
    embedded_neox_lua_bytes, embedded_t5_lua_bytes;
static const EmbeddedScript SHIPPED[] = {
    {"bert", "models/bert.lua", embedded_bert_lua, &embedded_bert_lua_bytes, false},
    {"deepseek", "models/deepseek.lua", embedded_deepseek_lua, &embedded_deepseek_lua_bytes, false},
    {"gemma", "models/gemma.lua", embedded_gemma_lua, &embedded_gemma_lua_bytes, false},
    {"gpt", "models/gpt.lua", embedded_gpt_lua, &embedded_gpt_lua_bytes, false},
    {"gptoss", "models/gptoss.lua", embedded_gptoss_lua, &embedded_gptoss_lua_bytes, false},
    {"hybrid", "models/hybrid.lua", embedded_hybrid_lua, &embedded_hybrid_lua_bytes, false},
    {"kimi", "models/kimi.lua", embedded_kimi_lua, &embedded_kimi_lua_bytes, false},
    {"llama", "models/llama.lua", embedded_llama_lua, &embedded_llama_lua_bytes, false},
    {"llama4", "models/llama4.lua", embedded_llama4_lua, &embedded_llama4_lua_bytes, false},
    {"llava", "models/llava.lua", embedded_llava_lua, &embedded_llava_lua_bytes, false},
    {"modernbert", "models/modernbert.lua", embedded_modernbert_lua, &embedded_modernbert_lua_bytes,
     false},
    {"moe", "models/moe.lua", embedded_moe_lua, &embedded_moe_lua_bytes, false},
    {"neox", "models/neox.lua", embedded_neox_lua, &embedded_neox_lua_bytes, false},
    {"t5", "models/t5.lua", embedded_t5_lua, &embedded_t5_lua_bytes, false}};

/* Key of the registry's table of tables that `model` was called with. */
static char MODELS;

/* One model_load, or model_sizes: Sandbox.context points to `script`, its first member. */
typedef struct Loading {
    ScriptGraph script;
    const char *path;
    const ModelSetting *given;
    int n_given;
    int64_t batch;
    const Distillation *distillation; /* NULL: it has no teacher */
    ModelDescription description;
    const char **sizes; /* of model_sizes */
} Loading;

/* model{...} -> the same table, marked. */
static int mark_model(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    Loading *loading = sandbox->context;
    if (!lua_istable(lua, 1)) script_error(lua, "model: takes a table, as in model { ... }");
    lua_settop(lua, 1);
    loading->description.loc = sandbox_user_line(lua);
    lua_rawgetp(lua, LUA_REGISTRYINDEX, &MODELS);
    lua_pushvalue(lua, 1);
    lua_pushboolean(lua, true);
    lua_rawset(lua, -3);
    lua_settop(lua, 1);
    return 1;
}

/* Leaves the table that the script returns at stack index 1. */
static void run_script(lua_State *lua, const char *path) {
    lua_newtable(lua);
    lua_rawsetp(lua, LUA_REGISTRYINDEX, &MODELS);
    lua_pushcfunction(lua, mark_model);
    lua_setglobal(lua, "model");
    script_open_ops(lua);
    lua_settop(lua, 0);
    int n_results = sandbox_run_script(lua);
    bool marked = false;
    if (n_results == 1 && lua_istable(lua, 1)) {
        lua_rawgetp(lua, LUA_REGISTRYINDEX, &MODELS);
        lua_pushvalue(lua, 1);
        marked = lua_rawget(lua, -2) != LUA_TNIL;
        lua_settop(lua, 1);
    }
    if (!marked) {
        diag_error(sandbox_of(lua)->diag, (SourceLoc){path, 0},
                   "the script must end in `return model { ... }`; it returned %s",
                   n_results == 0        ? "nothing"
                   : n_results > 1       ? "several values"
                   : lua_istable(lua, 1) ? "a table without `model`"
                                         : luaL_typename(lua, 1));
        sandbox_fail(lua);
    }
}

/* Every axis that the model declares, `batch` first, then by name. */
static void add_axes(lua_State *lua, Loading *loading) {
    const SettingTable *settings = &loading->description.settings;
    Graph *graph = loading->script.graph;
    loading->script.axis_sizes[graph_axis(graph, "batch", 5)] = loading->batch;
    for (int i = 0; i < settings->count; i++) {
        const Setting *setting = &settings->items[i];
        if (!setting->is_axis) continue;
        int axis = graph_axis(graph, setting->name, (int)strlen(setting->name));
        if (axis >= 0) {
            loading->script.axis_sizes[axis] = setting->integer;
        } else {
            script_error(lua, "model: at most %d axes are possible", MAX_AXES);
        }
    }
}

static int64_t declared_size(lua_State *lua, const Loading *loading, const char *name) {
    const Setting *setting = settings_find(&loading->description.settings, name);
    if (setting && setting->is_axis) return setting->integer;
    diag_error(sandbox_of(lua)->diag, loading->description.loc,
               "model: axis '%s' is missing from 'axes'", name);
    sandbox_fail(lua);
}

/* tokens or labels: i32[batch, seq]; what an encoder reads: i32[batch, source]; images: i32[batch,
 * patches, pixel]. `numbers`: the last axis, or NULL. */
static Value add_input(lua_State *lua, Loading *loading, const char *name, const char *positions,
                       const char *numbers) {
    Graph *graph = loading->script.graph;
    const char *const names[] = {"batch", positions, numbers};
    Type type = {.dtype = DTYPE_I32, .rank = numbers ? 3 : 2};
    for (int i = 0; i < type.rank; i++) {
        type.axes[i] = axis_find(&graph->axes, names[i], (int)strlen(names[i]));
        type.dims[i] = loading->script.axis_sizes[type.axes[i]];
    }
    Attr attr = attr_string(ATTR_name, name);
    Node *node = graph_add(graph,
                           &(NodeSpec){.op = OP_INPUT,
                                       .attrs = &attr,
                                       .n_attrs = 1,
                                       .type = &type,
                                       .block = NO_BLOCK,
                                       .loc = loading->description.loc},
                           sandbox_of(lua)->diag);
    if (!node) sandbox_fail(lua);
    return node_value(node, 0);
}

/* `loss` is what the loss function left on top of the stack, as a value. */
static void check_loss(lua_State *lua, const Loading *loading, Value loss) {
    Diag *diag = sandbox_of(lua)->diag;
    if (loss.node && value_type(loss)->rank == 0 && value_type(loss)->dtype == DTYPE_F32) return;
    diag_error(diag, loading->description.loc,
               "model: the loss function must return a scalar f32 value, not %s",
               loss.node ? "one with axes: sum or average it" : luaL_typename(lua, -1));
    if (loss.node) diag_note(diag, loss.node->loc, "made here");
    sandbox_fail(lua);
}

static const Node *find_node(const Graph *graph, OpKind op, const char *name) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == op && (!name || strcmp(node_string(node, ATTR_name), name) == 0))
            return node;
    }
    return NULL;
}

static _Noreturn void refuse_teacher(lua_State *lua, const Loading *loading, const char *why) {
    diag_error(sandbox_of(lua)->diag, loading->description.loc, "--teacher%s: %s",
               loading->distillation->stored ? "-logits" : "", why);
    sandbox_fail(lua);
}

static void check_stored(lua_State *lua, const Loading *loading) {
    const Distillation *how = loading->distillation;
    const int64_t vocab = settings_find(&loading->description.settings, "vocab")->integer;
    if (!how->stored || how->stored_vocab == vocab) return;
    refuse_teacher(lua, loading,
                   arena_printf(sandbox_of(lua)->arena,
                                "the file's teacher chose among %" PRId64 " words, the model has "
                                "%" PRId64 ": both need the same tokens",
                                how->stored_vocab, vocab));
}

/* The logits that a teacher's are compared with. */
static Value find_students_logits(lua_State *lua, const Loading *loading) {
    const Graph *graph = loading->script.graph;
    const Node *logits = find_node(graph, OP_OUTPUT, "logits");
    const Type *type = logits ? value_type(logits->inputs[0]) : NULL;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool numbers = node->op == OP_INPUT && node->types[0].dtype != DTYPE_I32;
        if (numbers || node->op == OP_OF_PAIRS) {
            refuse_teacher(lua, loading,
                           "a model that learns from preferences or rewards, or by diffusion, has "
                           "none: its loss has to be of tokens");
        }
    }
    if (!type || type->rank != 3 || type->axes[2] != AXIS_VOCAB) {
        refuse_teacher(lua, loading, "the model has no output 'logits' of tokens to compare");
    }
    return logits->inputs[0];
}

static void set_number(lua_State *lua, const char *key, double value) {
    lua_pushnumber(lua, value);
    lua_setfield(lua, -2, key);
}

/* nn.distill's options, on top of the stack: as asked for, and of the labels that the model's own
 * loss counts. */
static void push_distillation(lua_State *lua, const Loading *loading) {
    const Distillation *how = loading->distillation;
    const Node *share = find_node(loading->script.graph, OP_LABEL_SHARE, NULL);
    lua_newtable(lua);
    lua_pushstring(lua, how->kind);
    lua_setfield(lua, -2, "kind");
    set_number(lua, "alpha", how->alpha);
    set_number(lua, "temperature", how->temperature);
    set_number(lua, "beta", how->beta);
    if (how->stored) {
        lua_pushinteger(lua, (lua_Integer)how->stored);
        lua_setfield(lua, -2, "stored");
    }
    if (!share) return;
    lua_pushinteger(lua, (lua_Integer)node_float(share, ATTR_value, -1));
    lua_setfield(lua, -2, "ignore");
    script_push_value(lua, node_value((Node *)share, 0));
    lua_setfield(lua, -2, "share");
}

/* The loss mixed with a teacher's, by the library's nn.distill, unless the script's own reads the
 * teacher. `m`: where the model's table is on the stack. */
static Value distill(lua_State *lua, const Loading *loading, int m, Value loss) {
    const Graph *graph = loading->script.graph;
    const Distillation *how = loading->distillation;
    if (!how) return loss;
    check_stored(lua, loading);
    if (find_node(graph, OP_INPUT, INPUT_TEACHER) ||
        find_node(graph, OP_INPUT, TOKEN_NUMBER_NAMES[TOKEN_STORED_WORDS])) {
        if (!how->is_given) return loss;
        refuse_teacher(lua, loading,
                       "the model's own loss reads the teacher, and says how: --distill and its "
                       "like are for losses that do not");
    }
    Value logits = find_students_logits(lua, loading);
    lua_getglobal(lua, "require");
    lua_pushliteral(lua, "nn");
    lua_call(lua, 1, 1);
    lua_getfield(lua, -1, "distill");
    lua_pushvalue(lua, m);
    script_push_value(lua, loss);
    script_push_value(lua, logits);
    script_push_value(lua, node_value((Node *)find_node(graph, OP_INPUT, "labels"), 0));
    lua_pushliteral(lua, "vocab");
    push_distillation(lua, loading);
    lua_call(lua, 6, 1);
    return script_to_value(lua, -1);
}

static bool has_axis(const Loading *loading, const char *name) {
    const Setting *setting = settings_find(&loading->description.settings, name);
    return setting && setting->is_axis;
}

/* Calls loss(m, tokens, labels), or with an axis `source` loss(m, tokens, labels, source), with
 * axes `patches` and `pixel` one more behind that, pixels, and makes its result the output "loss".
 */
static void run_loss(lua_State *lua, Loading *loading) {
    ModelDescription *description = &loading->description;
    Diag *diag = sandbox_of(lua)->diag;
    lua_pushliteral(lua, "loss");
    if (lua_rawget(lua, 1) != LUA_TFUNCTION) {
        diag_error(diag, description->loc, "model: 'loss' must be a function, not a %s",
                   luaL_typename(lua, -1));
        sandbox_fail(lua);
    }
    script_push_model(lua, &description->settings);
    lua_pushinteger(lua, loading->batch);
    lua_setfield(lua, -2, "batch");
    const int m = lua_gettop(lua) - 1;
    lua_pushvalue(lua, -1);
    lua_insert(lua, m);
    int n_inputs = 2;
    script_push_value(lua, add_input(lua, loading, "tokens", "seq", NULL));
    script_push_value(lua, add_input(lua, loading, "labels", "seq", NULL));
    if (has_axis(loading, "source")) {
        script_push_value(lua, add_input(lua, loading, "source", "source", NULL));
        n_inputs++;
    }
    if (has_axis(loading, "patches") && has_axis(loading, "pixel")) {
        script_push_value(lua, add_input(lua, loading, "pixels", "patches", "pixel"));
        n_inputs++;
    }
    lua_call(lua, 1 + n_inputs, 1);
    Value loss = script_to_value(lua, -1);
    check_loss(lua, loading, loss);
    loss = distill(lua, loading, m, loss);
    Attr attr = attr_string(ATTR_name, "loss");
    Node *output = graph_add(loading->script.graph,
                             &(NodeSpec){.op = OP_OUTPUT,
                                         .inputs = &loss,
                                         .n_inputs = 1,
                                         .attrs = &attr,
                                         .n_attrs = 1,
                                         .block = NO_BLOCK,
                                         .loc = loss.node->loc},
                             diag);
    if (!output) sandbox_fail(lua);
}

/* A parameter of a block that another block reads, or that is read outside of blocks, belongs to
 * the whole model, as one made outside of blocks does: 'blocks.#.w' of the first block is called
 * 'blocks.0.w', and lies on every pipeline stage that reads it. Initial values and checkpoints do
 * not notice: they go by that name. */
static void release_shared_params(Graph *graph) {
    bool *shared = ARENA_ARRAY(graph->arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            shared[from->id] |= from->op == OP_PARAM && from->block != node->block;
        }
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (!shared[n] || node->block == NO_BLOCK) continue;
        const char *name = node_logical_name(node, 0, graph->arena);
        for (int a = 0; a < node->n_attrs; a++) {
            if (node->attrs[a].key == ATTR_name) node->attrs[a] = attr_string(ATTR_name, name);
        }
        node->block = NO_BLOCK;
    }
}

/* Rules of the script, then the recipe's or the command line's; parameters that nothing could teach
 * are frozen, too. */
static void freeze_params(lua_State *lua, Loading *loading) {
    ScriptGraph *script = &loading->script;
    const FreezeRule *given = &loading->description.freeze;
    Diag *diag = sandbox_of(lua)->diag;
    for (int i = 0; i < script->n_freezes; i++) {
        if (!freeze_apply(script->graph, &script->freezes[i], diag)) sandbox_fail(lua);
    }
    if (given->patterns && !freeze_apply(script->graph, given, diag)) sandbox_fail(lua);
    model_freeze_held(script->graph);
    for (int n = 0; n < script->graph->n_nodes; n++) {
        const Node *node = script->graph->nodes[n];
        if (node->op == OP_PARAM && !node_is_frozen(node)) return;
    }
    diag_error(
        diag, loading->description.loc,
        "model: every parameter is frozen, so there is nothing to train: let some train with "
        "'!' before a pattern of their names, as in --set 'freeze=*,!head'");
    sandbox_fail(lua);
}

static int load_body(lua_State *lua) {
    Sandbox *sandbox = sandbox_of(lua);
    Loading *loading = sandbox->context;
    run_script(lua, loading->path);
    model_read(lua, 1, loading->given, loading->n_given, &loading->description);
    declared_size(lua, loading, "seq");
    declared_size(lua, loading, "vocab");
    loading->script.graph = graph_create(sandbox->arena, loading->description.name);
    add_axes(lua, loading);
    run_loss(lua, loading);
    model_check(lua, &loading->script, loading->description.loc);
    release_shared_params(loading->script.graph);
    freeze_params(lua, loading);
    return 0;
}

static Model *load(Arena *arena, const char *path, const EmbeddedScript *shipped,
                   const ModelSetting *settings, int n_settings, int64_t batch,
                   const Distillation *how, Diag *diag) {
    if (batch < 1 || batch > MAX_BATCH) {
        diag_error(diag, NO_LOC, "a micro-batch has 1 to %" PRId64 " sequences, not %" PRId64,
                   MAX_BATCH, batch);
        return NULL;
    }
    Sandbox *sandbox = sandbox_create(arena, path, diag);
    if (!sandbox) return NULL;
    sandbox->script = shipped;
    Loading *loading = ARENA_NEW(arena, Loading);
    *loading = (Loading){.script = {.block = NO_BLOCK},
                         .path = sandbox->path,
                         .given = settings,
                         .n_given = n_settings,
                         .batch = batch,
                         .distillation = how};
    sandbox->context = loading;
    bool ok = sandbox_run(sandbox, load_body);
    sandbox_destroy(sandbox);
    if (!ok) return NULL;
    const ModelDescription *description = &loading->description;
    Model *model = ARENA_NEW(arena, Model);
    model->name = description->name;
    model->graph = loading->script.graph;
    model->n_blocks = loading->script.n_blocks;
    model->seq = settings_find(&description->settings, "seq")->integer;
    model->vocab = settings_find(&description->settings, "vocab")->integer;
    model->recipe = description->recipe;
    model->settings = description->settings;
    model->note = model_check_inputs(model->graph, description->loc);
    return model;
}

Model *model_load(Arena *arena, const char *path, const ModelSetting *settings, int n_settings,
                  int64_t batch, Diag *diag) {
    return load(arena, path, NULL, settings, n_settings, batch, NULL, diag);
}

Model *model_load_student(Arena *arena, const char *path, const ModelSetting *settings,
                          int n_settings, int64_t batch, const Distillation *how, Diag *diag) {
    return load(arena, path, NULL, settings, n_settings, batch, how, diag);
}

Model *model_load_shipped(Arena *arena, const char *name, const ModelSetting *settings,
                          int n_settings, int64_t batch, Diag *diag) {
    for (size_t i = 0; i < sizeof(SHIPPED) / sizeof(SHIPPED[0]); i++) {
        if (strcmp(SHIPPED[i].name, name) != 0) continue;
        return load(arena, SHIPPED[i].path, &SHIPPED[i], settings, n_settings, batch, NULL, diag);
    }
    BUG("no model '%s' is part of the program", name);
}

static int sizes_body(lua_State *lua) {
    Loading *loading = sandbox_of(lua)->context;
    const char **names, **list;
    run_script(lua, loading->path);
    int n = model_read_sizes(lua, 1, &names);
    list = ARENA_ARRAY(sandbox_of(lua)->arena, const char *, n + 1);
    for (int i = 0; i < n; i++) list[i] = names[i];
    loading->sizes = list;
    return 0;
}

const char **model_sizes(Arena *arena, const char *path, Diag *diag) {
    Sandbox *sandbox = sandbox_create(arena, path, diag);
    if (!sandbox) return NULL;
    Loading *loading = ARENA_NEW(arena, Loading);
    *loading = (Loading){.script = {.block = NO_BLOCK}, .path = sandbox->path};
    sandbox->context = loading;
    bool good = sandbox_run(sandbox, sizes_body);
    sandbox_destroy(sandbox);
    return good ? loading->sizes : NULL;
}
