/* The front end: exact texts of errors and of small graphs (tests/golden/frontend, run again with
 * BLESS=1 to accept what they say now), and what the models in models/ are made of.
 *
 * Would catch: a limit that a script gets around, an error at the wrong line, a parameter whose
 * name or shape other tools do not expect, a model with another number of parameters than
 * published.
 */
#include "frontend/lua/lua_graph.h"
#include "frontend/lua/model.h"
#include "ir/base/file.h"
#include "ir/op.h"
#include "tests/unit/check.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, MAX_SETS = 16, MAX_CASES = 500, FILE_LIMIT_BYTES = 4 << 20 };

static const char GOLDEN[] = "tests/golden/frontend";

/* "-- set: a=b c=d" in the first line gives settings. */
static int read_sets(Arena *arena, const char *text, ModelSetting *sets) {
    static const char MARK[] = "-- set: ";
    int n = 0;
    if (strncmp(text, MARK, strlen(MARK)) != 0) return 0;
    text += strlen(MARK);
    char *line = arena_strndup(arena, text, strcspn(text, "\n"));
    for (char *word = strtok(line, " "); word && n < MAX_SETS; word = strtok(NULL, " ")) {
        char *equals = strchr(word, '=');
        if (!equals) continue;
        *equals = '\0';
        sets[n++] = (ModelSetting){word, equals + 1};
    }
    return n;
}

static char *graph_text(Arena *arena, const Graph *graph) {
    StrBuf buf = strbuf_create();
    graph_print(&buf, graph);
    char *text = arena_strdup(arena, buf.text);
    strbuf_destroy(&buf);
    return text;
}

/* The error's text, or the graph's where there is no error, below the model's note. */
static const char *load_text(Arena *arena, const char *path, Diag *diag) {
    ModelSetting sets[MAX_SETS];
    size_t length;
    char *script = file_read(arena, path, FILE_LIMIT_BYTES, &length, diag);
    int n_sets = script ? read_sets(arena, script, sets) : 0;
    const Model *model = model_load(arena, path, sets, n_sets, BATCH, diag);
    if (!model) return diag_text(diag);
    CHECK(diag_error_count(diag) == 0, "loaded, but: %s", diag_text(diag));
    CHECK(graph_verify(model->graph, diag), "the graph is ill-formed: %s", diag_text(diag));
    const char *graph = graph_text(arena, model->graph);
    return model->note ? arena_printf(arena, "%s\n%s", model->note, graph) : graph;
}

static void test_golden(const char *file) {
    Arena *arena = arena_create();
    Diag *diag = diag_create(), *file_diag = diag_create();
    check_begin(arena_printf(arena, "frontend golden %s", file));
    const char *path = arena_printf(arena, "%s/%s", GOLDEN, file);
    const char *expect_path =
        arena_printf(arena, "%.*s.expect", (int)(strlen(path) - strlen(".lua")), path);
    const char *text = load_text(arena, path, diag);
    if (getenv("BLESS")) {
        bool written = file_write(expect_path, text, strlen(text), file_diag);
        CHECK(written, "%s", diag_text(file_diag));
    } else {
        size_t length;
        const char *expected = file_read(arena, expect_path, FILE_LIMIT_BYTES, &length, file_diag);
        CHECK(expected, "%s", diag_text(file_diag));
        CHECK(expected && strcmp(text, expected) == 0, "expected:\n%sgot:\n%s", expected, text);
    }
    check_end();
    diag_destroy(file_diag);
    diag_destroy(diag);
    arena_destroy(arena);
}

static int compare_texts(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void test_goldens(void) {
    Arena *arena = arena_create();
    char *files[MAX_CASES];
    int n = 0;
    DIR *folder = opendir(GOLDEN);
    check_begin("frontend golden cases are there");
    CHECK(folder, "no folder %s: run from the repository's root", GOLDEN);
    for (struct dirent *entry; folder && n < MAX_CASES && (entry = readdir(folder));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 4, ".lua") != 0) continue;
        if (strncmp(entry->d_name, "mod_", 4) == 0) continue; /* required by others */
        files[n++] = arena_strdup(arena, entry->d_name);
    }
    CHECK(n > 50, "only %d", n);
    if (folder) closedir(folder);
    qsort(files, (size_t)n, sizeof(files[0]), compare_texts);
    for (int i = 0; i < n; i++) test_golden(files[i]);
    arena_destroy(arena);
}

/* Models */

static int64_t count_parameters(const Graph *graph) {
    int64_t total = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == OP_PARAM) total += type_elements(&graph->nodes[n]->types[0]);
    }
    return total;
}

/* Published counts, of the released checkpoints: huggingface.co/openai-community, meta-llama,
 * mistralai, Qwen, google. */
static void test_published_counts(void) {
    static const struct {
        const char *path, *size;
        int64_t parameters;
    } MODELS[] = {
        {"models/gpt.lua", "124m", INT64_C(124439808)},
        {"models/gpt.lua", "350m", INT64_C(354823168)},
        {"models/gpt.lua", "774m", INT64_C(774030080)},
        {"models/gpt.lua", "1.5b", INT64_C(1557611200)},
        {"models/llama.lua", "1b", INT64_C(1235814400)},
        {"models/llama.lua", "3b", INT64_C(3212749824)},
        {"models/llama.lua", "2-7b", INT64_C(6738415616)},
        {"models/llama.lua", "8b", INT64_C(8030261248)},
        {"models/llama.lua", "70b", INT64_C(70553706496)},
        {"models/llama.lua", "405b", INT64_C(405853388800)},
        {"models/llama.lua", "mistral-7b", INT64_C(7241732096)},
        {"models/llama.lua", "qwen2.5-0.5b", INT64_C(494032768)},
        {"models/llama.lua", "qwen2.5-7b", INT64_C(7615616512)},
        {"models/llama.lua", "qwen3-0.6b", INT64_C(596049920)},
        {"models/llama.lua", "qwen3-8b", INT64_C(8190735360)},
        {"models/llama.lua", "phi3-mini", INT64_C(3821079552)},
        {"models/llama.lua", "phi4-mini", INT64_C(3836021760)},
        {"models/llama.lua", "phi4", INT64_C(14659507200)},
        {"models/llama.lua", "olmo2-1b", INT64_C(1484916736)},
        {"models/llama.lua", "olmo2-7b", INT64_C(7298617344)},
        {"models/llama.lua", "smollm3-3b", INT64_C(3075098624)},
        {"models/llama.lua", "granite-2b", INT64_C(2533531648)},
        {"models/llama.lua", "stablelm2-1.6b", INT64_C(1644515328)},
        {"models/neox.lua", "70m", INT64_C(70426624)},
        {"models/neox.lua", "160m", INT64_C(162322944)},
        {"models/neox.lua", "410m", INT64_C(405334016)},
        {"models/neox.lua", "1b", INT64_C(1011781632)},
        {"models/neox.lua", "1.4b", INT64_C(1414647808)},
        {"models/neox.lua", "2.8b", INT64_C(2775208960)},
        {"models/neox.lua", "6.9b", INT64_C(6857302016)},
        {"models/neox.lua", "12b", INT64_C(11846072320)},
        {"models/neox.lua", "20b", INT64_C(20554567680)},
        {"models/neox.lua", "phi2", INT64_C(2779683840)},
        {"models/neox.lua", "starcoder2-3b", INT64_C(3030371328)},
        {"models/gemma.lua", "3-1b", INT64_C(999885952)},
        {"models/gemma.lua", "2b", INT64_C(2614341888)},
        /* With the output's bias and norm; its transform has the pooler's size. */
        {"models/bert.lua", "base", INT64_C(109482240) + 2 * 768 + 30522},
        {"models/bert.lua", "large", INT64_C(335141888) + 2 * 1024 + 30522},
        {"models/bert.lua", "distilbert-base", INT64_C(66985530)},
        {"models/hybrid.lua", "lfm2-350m", INT64_C(354483968)},
        {"models/hybrid.lua", "lfm2-700m", INT64_C(742489344)},
        {"models/hybrid.lua", "lfm2-1.2b", INT64_C(1170340608)},
        {"models/hybrid.lua", "nemotron-h-8b", INT64_C(8100852736)},
        /* Published as 521 M and 7.59 B. */
        {"models/hybrid.lua", "falcon-h1-0.5b", INT64_C(521411104)},
        {"models/hybrid.lua", "falcon-h1-7b", INT64_C(7585519712)},
        /* As transformers counts them, and biases of 26 layers' experts. */
        {"models/kimi.lua", "linear-48b-a3b", INT64_C(49122675072) + 26 * 256},
        /* Published as 149 M and 395 M. */
        {"models/modernbert.lua", "base", INT64_C(149655232)},
        {"models/modernbert.lua", "large", INT64_C(395881664)},
        {"models/gemma.lua", "9b", INT64_C(9241705984)},
        {"models/gemma.lua", "27b", INT64_C(27227128320)},
    };
    for (size_t i = 0; i < sizeof(MODELS) / sizeof(MODELS[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        ModelSetting size = {"size", MODELS[i].size};
        check_begin(arena_printf(arena, "%s %s has its published number of parameters",
                                 MODELS[i].path, MODELS[i].size));
        const Model *model = model_load(arena, MODELS[i].path, &size, 1, BATCH, diag);
        CHECK(model, "%s", diag_text(diag));
        int64_t n = model ? count_parameters(model->graph) : 0;
        CHECK(n == MODELS[i].parameters, "%" PRId64 " instead of %" PRId64, n,
              MODELS[i].parameters);
        CHECK(model && graph_verify(model->graph, diag), "%s", diag_text(diag));
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* Narayanan et al. 2021, table 1, in billions to one decimal; and its equation 2 without rounding:
 * 12 l h^2 (1 + 13 / (12 h) + (V + s) / (12 l h)), to which the last norm adds 2 h. */
static void test_table_1(void) {
    static const struct {
        const char *size;
        double billions, l, h;
    } ROWS[] = {
        {"1.7b", 1.7, 24, 2304},       {"3.6b", 3.6, 30, 3072},      {"7.5b", 7.5, 36, 4096},
        {"18.4b", 18.4, 40, 6144},     {"39.1b", 39.1, 48, 8192},    {"76.1b", 76.1, 60, 10240},
        {"145.6b", 145.6, 80, 12288},  {"310.1b", 310.1, 96, 16384}, {"529.6b", 529.6, 105, 20480},
        {"1008b", 1008.0, 128, 25600}, {"1t", 1008.0, 128, 25600},   {"175b", 174.6, 96, 12288},
    };
    for (size_t i = 0; i < sizeof(ROWS) / sizeof(ROWS[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        ModelSetting size = {"size", ROWS[i].size};
        check_begin(arena_printf(arena, "models/gpt.lua %s has the paper's number of parameters",
                                 ROWS[i].size));
        const Model *model = model_load(arena, "models/gpt.lua", &size, 1, BATCH, diag);
        CHECK(model, "%s", diag_text(diag));
        double n = model ? (double)count_parameters(model->graph) : 0;
        double l = ROWS[i].l, h = ROWS[i].h;
        double formula = 12 * l * h * h + 13 * l * h + (51200 + 2048) * h + 2 * h;
        CHECK(n == formula, "%.0f instead of %.0f", n, formula);
        CHECK(fabs(n / 1e9 - ROWS[i].billions) < 0.0501, "%.2f billion instead of %.1f", n / 1e9,
              ROWS[i].billions);
        CHECK(model && model->n_blocks == (int)l && model->seq == 2048 && model->vocab == 51200,
              "blocks, seq or vocab");
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* The header of a safetensors file as JSON; NULL: reported. */
static json_t *read_header(Arena *arena, const char *path, Diag *diag) {
    size_t length;
    const char *bytes = file_read(arena, path, FILE_LIMIT_BYTES, &length, diag);
    uint64_t header = 0;
    if (!bytes || length < sizeof(header)) return NULL;
    memcpy(&header, bytes, sizeof(header));
    if (header > length - sizeof(header)) return NULL;
    return json_loadb(bytes + sizeof(header), (size_t)header, 0, NULL);
}

static bool same_shape(const Type *type, const json_t *shape) {
    if ((int)json_array_size(shape) != type->rank) return false;
    for (int i = 0; i < type->rank; i++) {
        if (json_integer_value(json_array_get(shape, (size_t)i)) != type->dims[i]) return false;
    }
    return true;
}

/* The parameters that the PyTorch reference has, with its shapes, and no others. */
static void test_reference(const char *name, const char *path, const ModelSetting *sets,
                           int n_sets) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(arena_printf(arena, "%s has the reference's parameters (%s)", path, name));
    const char *file = arena_printf(arena, "tests/reference/%s.safetensors", name);
    json_t *header = read_header(arena, file, diag);
    const Model *model = model_load(arena, path, sets, n_sets, 4, diag);
    CHECK(header && model, "cannot read %s: %s", file, diag_text(diag));
    int n_reference = 0, n_model = 0;
    const char *key;
    json_t *tensor;
    json_object_foreach(header, key, tensor) {
        n_reference += strncmp(key, "init/", 5) == 0;
    }
    for (int n = 0; model && n < model->graph->n_nodes; n++) {
        const Node *node = model->graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        n_model++;
        const char *logical = node_logical_name(node, 0, arena);
        tensor = json_object_get(header, arena_printf(arena, "init/%s", logical));
        CHECK(tensor, "the reference has no %s", logical);
        CHECK(same_shape(&node->types[0], json_object_get(tensor, "shape")), "shape of %s",
              logical);
    }
    CHECK(n_model == n_reference, "%d parameters, the reference has %d", n_model, n_reference);
    check_end();
    json_decref(header);
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_references(void) {
#define COMMON                                                                                     \
    {"layers", "2"}, {"model", "32"}, {"heads", "4"}, {"seq", "16"}, {                             \
        "vocab", "61"                                                                              \
    }
    const ModelSetting gpt[] = {COMMON, {"tied", "true"}}, untied[] = {COMMON, {"tied", "false"}};
    const ModelSetting llama[] = {COMMON, {"kv_heads", "2"}, {"ffn", "88"}, {"tied", "false"}};
    const ModelSetting tied[] = {COMMON, {"kv_heads", "2"}, {"ffn", "88"}, {"tied", "true"}};
#undef COMMON
    test_reference("gpt", "models/gpt.lua", gpt, 6);
    test_reference("gpt_untied", "models/gpt.lua", untied, 6);
    test_reference("llama", "models/llama.lua", llama, 8);
    test_reference("llama_tied", "models/llama.lua", tied, 8);
}

static void test_settings(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin("--set overrides the size, whatever the order, and reaches the recipe");
    const ModelSetting sets[] = {{"layers", "3"},      {"lr", "2e-4"},         {"size", "124m"},
                                 {"optimizer", "sgd"}, {"optimizer.eps", "1"}, {"dropout", "0.1"},
                                 {"momentum", "0.9"}};
    const Model *model = model_load(arena, "models/gpt.lua", sets, 7, BATCH, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        const TrainingRecipe *recipe = &model->recipe;
        CHECK(model->n_blocks == 3 && model->vocab == 50257 && model->seq == 1024, "the size");
        CHECK(recipe->optimizer == OPTIMIZER_SGD && recipe->learning_rate == 2e-4 &&
                  recipe->eps == 1 && recipe->momentum == 0.9 && recipe->beta2 == 0.95,
              "the recipe");
        int n_dropouts = 0;
        for (int n = 0; n < model->graph->n_nodes; n++) {
            const Node *node = model->graph->nodes[n];
            if (node->op != OP_DROPOUT) continue;
            int64_t expected = node->block == NO_BLOCK ? 0 : (n_dropouts - 1) % 2;
            CHECK(node_int(node, ATTR_key, -1) == expected, "key of dropout %d", n_dropouts);
            n_dropouts++;
        }
        CHECK(n_dropouts == 7, "%d dropouts", n_dropouts);
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Lua orders string keys by a seed of its own in each state. */
static void test_repeats(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    const ModelSetting sets[] = {{"norm", "rmsnorm"}, {"act", "relu"}};
    check_begin("a script gives the same graph each time, and it reads back");
    const char *first = NULL;
    for (int i = 0; i < 5; i++) {
        const Model *model = model_load(arena, "models/gpt.lua", sets, 2, BATCH, diag);
        CHECK(model, "%s", diag_text(diag));
        const char *text = model ? graph_text(arena, model->graph) : "";
        if (!first) first = text;
        CHECK(strcmp(first, text) == 0, "the graph differs");
    }
    const char *cursor = first;
    int line = 1;
    Graph *back = graph_parse(arena, "text", &cursor, &line, diag);
    CHECK(back && strcmp(graph_text(arena, back), first) == 0, "%s", diag_text(diag));
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* What editors offer is what there is. */
static void test_meta(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    check_begin("the .meta.lua files describe every op and every layer");
    const char *meta =
        file_read(arena, "frontend/lua/perilune.meta.lua", FILE_LIMIT_BYTES, &length, diag);
    const char *ops =
        file_read(arena, "frontend/lua/ops.meta.lua", FILE_LIMIT_BYTES, &length, diag);
    const char *sequence =
        file_read(arena, "frontend/lua/sequence.meta.lua", FILE_LIMIT_BYTES, &length, diag);
    const char *vision =
        file_read(arena, "frontend/lua/vision.meta.lua", FILE_LIMIT_BYTES, &length, diag);
    const char *states =
        file_read(arena, "frontend/lua/state.meta.lua", FILE_LIMIT_BYTES, &length, diag);
    static const char *const PARTS[] = {"",       "_attention",  "_experts", "_lora",  "_sequence",
                                        "_state", "_preference", "_classes", "_vision"};
    const char *nn = "";
    const bool read = meta && ops && sequence && vision && states;
    CHECK(read, "%s", diag_text(diag));
    if (read) meta = arena_printf(arena, "%s%s%s%s%s", meta, ops, sequence, vision, states);
    for (size_t i = 0; i < sizeof(PARTS) / sizeof(PARTS[0]); i++) {
        const char *path = arena_printf(arena, "frontend/lua/nn%s.lua", PARTS[i]);
        const char *part = file_read(arena, path, FILE_LIMIT_BYTES, &length, diag);
        CHECK(part, "%s", diag_text(diag));
        if (part) nn = arena_printf(arena, "%s%s", nn, part);
    }
    for (int op = 0; meta && op < N_OPS; op++) {
        const char *text = arena_printf(arena, "\nfunction ops.%s(", OPS[op].name);
        bool described = strstr(meta, text) != NULL;
        CHECK(described == script_op_is_callable(op), "op %s is %s", OPS[op].name,
              described ? "described but not for models" : "missing");
        for (int key = 0; described && key < N_ATTRS; key++) {
            bool required;
            if (!op_has_attr(op, key, &required)) continue;
            const char *comment = strstr(meta, text);
            while (comment > meta && strncmp(comment, "\n\n", 2) != 0) comment--;
            const char *end = strstr(meta, text);
            const char *found = strstr(comment, arena_printf(arena, " %s", ATTRS[key].name));
            CHECK(found && found < end, "op %s: attribute %s is missing", OPS[op].name,
                  ATTRS[key].name);
        }
    }
    int n_layers = 0;
    for (const char *at = nn; at && (at = strstr(at, "\nfunction nn.")); at++) {
        size_t name = strcspn(at + 1, "(") + 1;
        const char *text = arena_printf(arena, "%.*s(", (int)name, at);
        CHECK(strstr(meta, text), "%s is missing", text + 1);
        n_layers++;
    }
    CHECK(n_layers > 10, "only %d layers in nn.lua", n_layers);
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_batch(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin("a missing file, a folder and an empty batch are errors");
    CHECK(!model_load(arena, "tests/golden/frontend/none.lua", NULL, 0, 1, diag), "none");
    CHECK(!model_load(arena, "tests", NULL, 0, 1, diag), "folder");
    CHECK(!model_load(arena, "models/gpt.lua", NULL, 0, 0, diag), "batch 0");
    CHECK(diag_error_count(diag) == 3, "%s", diag_text(diag));
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    test_goldens();
    test_published_counts();
    test_table_1();
    test_references();
    test_settings();
    test_repeats();
    test_meta();
    test_batch();
    return check_report();
}
