/* The IR's text and the passes: round trips of real models after every pass, a golden pair per
 * pass, exact errors for bad text, and text damaged at random, which may give an error but never a
 * crash.
 *
 *   BLESS=1 build/tests/test_ir   accepts what the passes and the parser say now
 */
#include "frontend/model.h"
#include "ir/op.h"
#include "planner/planner.h"
#include "tests/unit/check.h"

#include "ir/base/file.h"

#include <dirent.h>
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

/* Every pass in order, on two ranks of t. */
static void check_model(const char *path) {
    const ModelSetting settings[] = {{"layers", "2"}, {"dropout", "0.1"}, {"kv_heads", "2"}};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    char name[64];
    snprintf(name, sizeof(name), "%s: text of every pass reads back the same", path);
    check_begin(name);
    const Model *model = model_load(arena, path, settings, 3, 2, diag);
    CHECK(model, "%s", diag_text(diag));
    Graph *graph = model ? model->graph : NULL;
    if (graph) graph->mesh.size[MESH_T] = 2;
    for (int i = 0; graph && planner_pass_name(i); i++) {
        graph = planner_run_pass(arena, graph, planner_pass_name(i), diag);
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

/* tests/golden/passes/PASS.ir -> PASS.expect; a pass without its pair fails. */
static void check_pass(const char *pass) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    check_begin(arena_printf(arena, "pass %s", pass));
    const char *path = arena_printf(arena, "tests/golden/passes/%s.ir", pass);
    const char *text = file_read(arena, path, 1 << 20, &length, diag);
    const Graph *graph = text ? parse(arena, path, text, diag) : NULL;
    const Graph *after = graph ? planner_run_pass(arena, graph, pass, diag) : NULL;
    CHECK(after, "%s", diag_text(diag));
    if (after) {
        check_golden(arena_printf(arena, "tests/golden/passes/%s.expect", pass),
                     print(arena, after));
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
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

/* One to three bytes changed, dropped or doubled. Sanitizer builds see what a crash would hide. */
static void check_damage(void) {
    int n_rounds = getenv("TEST_LONG") ? 100000 : 3000, n_accepted = 0;
    unsigned seed = 12345;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    check_begin("text damaged at random: an error, never a crash");
    const char *text = file_read(arena, "tests/golden/passes/fuse.ir", 1 << 20, &length, diag);
    CHECK(text, "%s", diag_text(diag));
    for (int round = 0; text && round < n_rounds; round++) {
        Arena *scratch = arena_create();
        Diag *said = diag_create();
        char *damaged = arena_strndup(scratch, text, length);
        for (int k = rand_r(&seed) % 3; k >= 0; k--) {
            size_t at = (size_t)rand_r(&seed) % length;
            int kind = rand_r(&seed) % 3;
            if (kind == 0) damaged[at] = (char)(1 + rand_r(&seed) % 255);
            if (kind == 1) memmove(damaged + at, damaged + at + 1, strlen(damaged + at));
            if (kind == 2) damaged[at] = damaged[(size_t)rand_r(&seed) % length];
        }
        const Graph *graph = parse(scratch, "damaged", damaged, said);
        if (graph && graph_verify(graph, said)) n_accepted++;
        CHECK(graph || diag_error_count(said) > 0, "round %d: refused without a word", round);
        diag_destroy(said);
        arena_destroy(scratch);
    }
    CHECK(n_accepted < n_rounds, "nothing was ever refused");
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    check_model("models/gpt.lua");
    check_model("models/llama.lua");
    for (int i = 0; planner_pass_name(i); i++) check_pass(planner_pass_name(i));
    check_bad_texts();
    check_damage();
    return check_report();
}
