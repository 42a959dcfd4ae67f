/* The IR's text and the passes: round trips of real models after every pass, a golden pair per
 * pass, exact errors for bad text, graphs that the verifier must not accept, and text damaged at
 * random, which may give an error but never a crash, in no pass either. And the arena that all of
 * it lies in: zeroed, apart, and under AddressSanitizer guarded to the byte.
 *
 *   BLESS=1 build/tests/test_ir   accepts what the passes and the parser say now
 */
#include "frontend/lua/model.h"
#include "ir/op.h"
#include "planner/planner.h"
#include "tests/unit/check.h"

#include "ir/base/file.h"

#include <dirent.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static Graph *parse(Arena *arena, const char *file, const char *text, Diag *diag) {
    int line = 1;
    return graph_parse(arena, file, &text, &line, diag);
}

static char *print(Arena *arena, const Graph *graph) {
    StrBuf text = strbuf_create();
    graph_print(&text, graph);
    char *copy = arena_strdup(arena, text.text);
    strbuf_destroy(&text);
    return copy;
}

static void check_round_trip(const Graph *graph, const char *pass) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char *first = print(arena, graph);
    const Graph *again = parse(arena, "text", first, diag);
    CHECK(again, "after %s: %s", pass, diag_text(diag));
    CHECK(!again || strcmp(first, print(arena, again)) == 0, "after %s: text changes", pass);
    CHECK(!again || graph_verify(again, diag), "after %s: %s", pass, diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

/* The pass in an arena, on a graph in another, which are gone before what it made is read, as
 * plan_make has it: with sanitizers a graph that shares anything with either shows. But for where
 * a script has each node: that text stays the model's. */
static Graph *run_apart(Arena *arena, const Graph *graph, const char *pass, Diag *diag) {
    Arena *apart = arena_create(), *before = arena_create();
    const Graph *read = graph_copy(graph, before);
    for (int n = 0; n < graph->n_nodes; n++) read->nodes[n]->loc = graph->nodes[n]->loc;
    const Graph *made = planner_run_pass(apart, read, pass, diag);
    if (made != read) arena_destroy(before);
    const char *text = made ? print(arena, made) : NULL;
    Graph *copy = made ? graph_copy(made, arena) : NULL;
    if (made == read) arena_destroy(before);
    arena_destroy(apart);
    CHECK(!copy || strcmp(text, print(arena, copy)) == 0, "after %s: a copy's text differs", pass);
    return copy;
}

/* Every pass in order. */
static void check_model(const char *path, Mesh mesh) {
    const ModelSetting settings[] = {{"layers", "2"}, {"dropout", "0.1"}, {"kv_heads", "2"}};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(arena_printf(arena, "%s on t=%d d=%d p=%d: text of every pass reads back the same",
                             path, mesh.size[MESH_T], mesh.size[MESH_D], mesh.size[MESH_P]));
    const Model *model = model_load(arena, path, settings, 3, 4, diag);
    CHECK(model, "%s", diag_text(diag));
    Graph *graph = model ? model->graph : NULL;
    if (graph) graph->mesh = mesh;
    for (int i = 0; graph && planner_pass_name(i); i++) {
        graph = run_apart(arena, graph, planner_pass_name(i), diag);
        CHECK(graph, "%s: %s", planner_pass_name(i), diag_text(diag));
        if (graph) check_round_trip(graph, planner_pass_name(i));
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Compares with FILE, or writes it when blessing. */
static void check_golden(const char *path, const char *text) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    if (getenv("BLESS")) {
        CHECK(file_write(path, text, strlen(text), diag), "%s", diag_text(diag));
    } else {
        const char *expected = file_read(arena, path, 1 << 20, &length, diag);
        CHECK(expected, "%s", diag_text(diag));
        CHECK(!expected || strcmp(expected, text) == 0, "is not what %s says:\n%s", path, text);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* tests/golden/passes/NAME.ir -> NAME.expect: the graph after the pass, or why there is none. */
static void check_pass(const char *pass, const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    check_begin(arena_printf(arena, "pass %s", name));
    const char *path = arena_printf(arena, "tests/golden/passes/%s.ir", name);
    const char *text = file_read(arena, path, 1 << 20, &length, diag);
    const Graph *graph = text ? parse(arena, path, text, diag) : NULL;
    CHECK(graph, "%s", diag_text(diag));
    if (graph) {
        const Graph *after = planner_run_pass(arena, graph, pass, diag);
        CHECK(after || strcmp(pass, name) != 0, "%s", diag_text(diag));
        check_golden(arena_printf(arena, "tests/golden/passes/%s.expect", name),
                     after ? print(arena, after) : diag_text(diag));
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

/* PASS-WHAT.ir: what else a pass does, its errors among them. */
static void check_pass_variants(const char *pass) {
    DIR *folder = opendir("tests/golden/passes");
    size_t prefix = strlen(pass);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *name = entry->d_name;
        size_t length = strlen(name);
        if (strncmp(name, pass, prefix) != 0 || name[prefix] != '-') continue;
        if (strcmp(name + length - 3, ".ir") != 0) continue;
        char base[256];
        snprintf(base, sizeof(base), "%.*s", (int)(length - 3), name);
        check_pass(pass, base);
    }
    if (folder) closedir(folder);
}

/* tests/golden/ir/NAME.ir -> NAME.expect: what the parser says of it. */
static void check_bad_texts(void) {
    DIR *folder = opendir("tests/golden/ir");
    int n_texts = 0;
    check_begin("bad graph texts are there");
    CHECK(folder, "no tests/golden/ir");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        size_t size = strlen(entry->d_name), length;
        if (size < 4 || strcmp(entry->d_name + size - 3, ".ir") != 0) continue;
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        const char *base = arena_strndup(arena, entry->d_name, size - 3);
        const char *path = arena_printf(arena, "tests/golden/ir/%s.ir", base);
        check_begin(arena_printf(arena, "bad graph text: %s", base));
        const char *text = file_read(arena, path, 1 << 20, &length, diag);
        const Graph *graph = text ? parse(arena, path, text, diag) : NULL;
        CHECK(!graph || !graph_verify(graph, diag), "is accepted");
        check_golden(arena_printf(arena, "tests/golden/ir/%s.expect", base), diag_text(diag));
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
        n_texts++;
    }
    if (folder) closedir(folder);
    check_begin("bad graph texts cover the grammar");
    CHECK(n_texts >= 10, "only %d", n_texts);
    check_end();
}

/* Each changes one thing of the small training step in tests/golden/passes/fuse.ir. */
typedef void Corruption(Graph *graph);

static Node *find(const Graph *graph, OpKind op) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op) return graph->nodes[n];
    }
    BUG("no %s in the graph", OPS[op].name);
}

static void corrupt_type(Graph *graph) {
    find(graph, OP_MATMUL)->types[0].dims[0]++;
}
static void corrupt_dtype(Graph *graph) {
    find(graph, OP_ADD)->types[0].dtype = DTYPE_I32;
}
static void corrupt_leaf_type(Graph *graph) {
    find(graph, OP_PARAM)->types[0].dims[1]++;
}
static void corrupt_order(Graph *graph) {
    Node *node = find(graph, OP_MATMUL);
    node->inputs[0] = node_value(graph->nodes[node->id + 1], 0);
}
static void corrupt_self(Graph *graph) {
    Node *node = find(graph, OP_MATMUL);
    node->inputs[1] = node_value(node, 0);
}
static void corrupt_foreign(Graph *graph) {
    Node *node = find(graph, OP_MATMUL), *copy = ARENA_NEW(graph->arena, Node);
    *copy = *node->inputs[0].node;
    node->inputs[0].node = copy;
}
static void corrupt_output(Graph *graph) {
    find(graph, OP_MATMUL)->inputs[0].output = 1;
}
static void corrupt_operand_count(Graph *graph) {
    find(graph, OP_MATMUL)->n_inputs = 1;
}
static void corrupt_result_count(Graph *graph) {
    find(graph, OP_ADD)->n_outputs = 2;
}
static void corrupt_attribute_missing(Graph *graph) {
    find(graph, OP_MATMUL)->n_attrs = 0;
}
static void corrupt_attribute_foreign(Graph *graph) {
    find(graph, OP_MATMUL)->attrs[0].key = ATTR_axis;
}
static void corrupt_axis(Graph *graph) {
    find(graph, OP_PARAM)->types[0].axes[0] = graph->axes.count;
}
static void corrupt_size(Graph *graph) {
    find(graph, OP_PARAM)->types[0].dims[0] = 0;
}
static void corrupt_sharding_twice(Graph *graph) {
    Node *node = find(graph, OP_PARAM);
    node->shardings[0].mesh[0] = node->shardings[0].mesh[1] = MESH_T;
}
static void corrupt_sharding_partial(Graph *graph) {
    Node *node = find(graph, OP_MATMUL);
    node->shardings[0].mesh[0] = MESH_T;
    node->shardings[0].partial = 1 << MESH_T;
}
static void corrupt_sharding_unknown(Graph *graph) {
    find(graph, OP_MATMUL)->shardings[0].partial = 1 << N_MESH_AXES;
}
static void corrupt_sharding_size(Graph *graph) {
    graph->mesh.size[MESH_T] = 1000;
    find(graph, OP_PARAM)->shardings[0].mesh[0] = MESH_T;
}
static void corrupt_phase(Graph *graph) {
    graph->nodes[graph->n_nodes - 1]->phase = PHASE_FORWARD;
}

static void check_verifier(void) {
    static const struct {
        const char *name;
        Corruption *corrupt;
    } CASES[] = {
        {"a result of another size", corrupt_type},
        {"a result of another dtype", corrupt_dtype},
        {"a parameter of another size than its uses", corrupt_leaf_type},
        {"an operand defined later", corrupt_order},
        {"an operand that is the node itself", corrupt_self},
        {"an operand of no node of the graph", corrupt_foreign},
        {"an operand that its node does not have", corrupt_output},
        {"too few operands", corrupt_operand_count},
        {"too many results", corrupt_result_count},
        {"a missing attribute", corrupt_attribute_missing},
        {"an attribute of other ops", corrupt_attribute_foreign},
        {"an axis without a name", corrupt_axis},
        {"an empty axis", corrupt_size},
        {"two axes divided by one mesh axis", corrupt_sharding_twice},
        {"divided and partial over one mesh axis", corrupt_sharding_partial},
        {"partial over no mesh axis", corrupt_sharding_unknown},
        {"more shards than elements", corrupt_sharding_size},
        {"a forward node after the update", corrupt_phase},
    };
    static const char PATH[] = "tests/golden/passes/fuse.ir";
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        size_t length;
        check_begin(arena_printf(arena, "the verifier refuses %s", CASES[i].name));
        const char *text = file_read(arena, PATH, 1 << 20, &length, diag);
        Graph *graph = text ? parse(arena, PATH, text, diag) : NULL;
        CHECK(graph && graph_verify(graph, diag), "%s", diag_text(diag));
        if (graph) {
            CASES[i].corrupt(graph);
            CHECK(!graph_verify(graph, diag), "accepted");
            CHECK(diag_error_count(diag) > 0, "refused without a word");
        }
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* One of: a byte changed, dropped or copied, a digit changed, a line dropped, a word put elsewhere.
 */
static void damage(char *text, unsigned *seed) {
    size_t length = strlen(text), at = (size_t)rand_r(seed) % (length + 1);
    size_t from = (size_t)rand_r(seed) % (length + 1), word = strcspn(text + from, " ,)]=\n");
    char *digit = strpbrk(text + at, "0123456789"), *line = strchr(text + at, '\n');
    if (at == length) return;
    switch (rand_r(seed) % 6) {
    case 0: text[at] = (char)(1 + rand_r(seed) % 255); break;
    case 1: memmove(text + at, text + at + 1, strlen(text + at)); break;
    case 2: text[at] = text[from] ? text[from] : 'x'; break;
    case 3:
        if (digit) *digit = (char)('0' + rand_r(seed) % 10);
        break;
    case 4:
        if (line && (line = strchr(line + 1, '\n'))) {
            memmove(text + at, line, strlen(line) + 1);
        }
        break;
    default:
        if (word < 20 && at + word < length) memmove(text + at, text + from, word);
    }
}

/* Whatever the verifier accepts, every pass must take or refuse with a reason. */
static bool run_passes(Arena *arena, const Graph *graph) {
    bool good = true;
    for (int i = 0; planner_pass_name(i); i++) {
        Diag *diag = diag_create();
        const Graph *after = planner_run_pass(arena, graph, planner_pass_name(i), diag);
        good &= after || diag_error_count(diag) > 0;
        diag_destroy(diag);
    }
    return good;
}

/* One to three changes. Sanitizer builds see what a crash would hide. */
static void check_damage(const char *pass) {
    int n_rounds = getenv("TEST_LONG") ? 30000 : 600, n_accepted = 0;
    unsigned seed = 12345;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    check_begin(arena_printf(arena, "%s.ir damaged at random: an error, never a crash", pass));
    const char *path = arena_printf(arena, "tests/golden/passes/%s.ir", pass);
    const char *text = file_read(arena, path, 1 << 20, &length, diag);
    CHECK(text, "%s", diag_text(diag));
    for (int round = 0; text && round < n_rounds; round++) {
        Arena *scratch = arena_create();
        Diag *said = diag_create();
        char *damaged = arena_strndup(scratch, text, length);
        for (int k = rand_r(&seed) % 3; k >= 0; k--) damage(damaged, &seed);
        const Graph *graph = parse(scratch, "damaged", damaged, said);
        bool accepted = graph && graph_verify(graph, said);
        CHECK(accepted || diag_error_count(said) > 0, "round %d: refused without a word", round);
        CHECK(!accepted || run_passes(scratch, graph), "round %d: a pass fails silently", round);
        n_accepted += accepted;
        diag_destroy(said);
        arena_destroy(scratch);
    }
    CHECK(n_accepted > 0 && n_accepted < n_rounds, "%d of %d accepted", n_accepted, n_rounds);
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

static bool is_guarded(const unsigned char *memory) {
#ifdef __SANITIZE_ADDRESS__
    int __asan_address_is_poisoned(const volatile void *address); /* NOLINT */
    return __asan_address_is_poisoned(memory) != 0;
#else
    (void)memory;
    return true;
#endif
}

static void check_arena(void) {
    enum { MOST = 40000 };
    check_begin("an arena: zeroed, aligned, apart, guarded");
    Arena *arena = arena_create();
    for (int round = 0; round < 2; round++) {
        for (size_t bytes = 0; bytes < MOST; bytes += bytes < 70 ? 1 : bytes / 3) {
            unsigned char *memory = arena_alloc(arena, bytes);
            size_t n_zero = 0;
            for (size_t i = 0; i < bytes; i++) n_zero += memory[i] == 0;
            CHECK(n_zero == bytes && (uintptr_t)memory % 16 == 0, "%zu bytes, %zu of them zero",
                  bytes, n_zero);
            CHECK(is_guarded(memory + bytes), "beyond %zu bytes", bytes);
            memset(memory, 0xff, bytes);
        }
    }
    arena_destroy(arena);
}

int main(void) {
    static const Mesh MESHES[] = {{.size = {1, 1, 1, 1, 1, 1}},
                                  {.size = {2, 1, 1, 1, 1, 1}},
                                  {.size = {2, 1, 1, 2, 1, 1}, .vocab_multiple = 48},
                                  {.size = {1, 1, 1, 1, 1, 2}},
                                  {.size = {2, 2, 1, 2, 1, 1}}};
    for (size_t i = 0; i < sizeof(MESHES) / sizeof(MESHES[0]); i++) {
        check_model("models/gpt.lua", MESHES[i]);
        check_model("models/llama.lua", MESHES[i]);
    }
    for (int i = 0; planner_pass_name(i); i++) {
        check_pass(planner_pass_name(i), planner_pass_name(i)); /* the one that each must have */
        check_pass_variants(planner_pass_name(i));
        check_damage(planner_pass_name(i));
    }
    check_bad_texts();
    check_verifier();
    check_arena();
    return check_report();
}
