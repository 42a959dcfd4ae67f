/* Graphs, plans, programs of fused nodes, profiles; templates, patterns, scripts. */
#include "frontend/lua/cluster_read.h"
#include "frontend/lua/model.h"
#include "ir/expr.h"
#include "ir/graph.h"
#include "planner/clusters/device_profile.h"
#include "planner/plan/plan.h"
#include "runtime/jinja/jinja.h"
#include "runtime/tokenizer/pattern.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

/* What was read is printed, and that is read and printed alike. */
void fuzz_ir(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    const char *text = fuzz_text(&space, bytes, n);
    int line = 1;
    Graph *graph = graph_parse(space.arena, "fuzz", &text, &line, space.diag);
    if (graph) {
        StrBuf first = strbuf_create(), second = strbuf_create();
        graph_print(&first, graph);
        const char *again = first.text;
        line = 1;
        graph = graph_parse(space.arena, "again", &again, &line, space.diag);
        if (!graph) abort();
        graph_print(&second, graph);
        if (strcmp(first.text, second.text) != 0) abort();
        strbuf_destroy(&first);
        strbuf_destroy(&second);
    }
    fuzz_end(&space);
}

/* And proved: no plan, however made, may break the proofs, and one that they hold for is printed.
 */
void fuzz_plan(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    Plan *plan = plan_parse(space.arena, "fuzz", fuzz_text(&space, bytes, n), space.diag);
    if (plan) {
        plan->fingerprint = plan_fingerprint(plan);
        if (verify_plan(plan, space.diag)) {
            StrBuf text = strbuf_create();
            plan_print(&text, plan);
            if (!plan_from_text(space.arena, "again", text.text, space.diag)) abort();
            strbuf_destroy(&text);
        }
    }
    fuzz_end(&space);
}

void fuzz_expression(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    Expr expr;
    const char *error = NULL;
    if (n && expr_parse(fuzz_text(&space, bytes + 1, n - 1), bytes[0] % 8, &expr, &error)) {
        StrBuf first = strbuf_create(), second = strbuf_create();
        expr_print(&first, &expr);
        if (!expr_parse(first.text, bytes[0] % 8, &expr, &error)) abort();
        expr_print(&second, &expr);
        if (strcmp(first.text, second.text) != 0) abort();
        strbuf_destroy(&first);
        strbuf_destroy(&second);
    } else if (n && !error) {
        abort();
    }
    fuzz_end(&space);
}

void fuzz_profile(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    device_profile_parse(space.arena, "fuzz", fuzz_text(&space, bytes, n), n, space.diag);
    fuzz_end(&space);
}

void fuzz_jinja(const unsigned char *bytes, size_t n) {
    static const char MESSAGES[] = "[{\"role\": \"system\", \"content\": \"Be brief.\"}, "
                                   "{\"role\": \"user\", \"content\": \"<b>?\"},"
                                   " {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", "
                                   "\"text\": \"\\u00e9\"}, 1.5, null]}]";
    FuzzSpace space = fuzz_begin();
    const JinjaTemplate *template =
        jinja_parse(space.arena, "fuzz", fuzz_text(&space, bytes, n), n, space.diag);
    if (template) {
        json_t *messages = json_loads(MESSAGES, 0, NULL);
        Jinja *jinja = jinja_open(template, 0);
        JinjaText text;
        jinja_set_json(jinja, "messages", messages, true);
        jinja_set_unsaid(jinja, "messages", "role");
        jinja_set_text(jinja, "bos_token", "<s>");
        jinja_set_bool(jinja, "add_generation_prompt", true);
        if (jinja_render(jinja, &text)) {
            jinja_text_release(&text);
        } else if (!jinja_error(jinja)) {
            abort();
        }
        jinja_close(jinja);
        json_decref(messages);
    }
    fuzz_end(&space);
}

/* Finds itself in a text, or nothing; what it finds is within the text. */
void fuzz_pattern(const unsigned char *bytes, size_t n) {
    static const char TEXT[] =
        "It's 3.14 o\xE2\x80\x99"
        "clock,  \xC3\xA9t\xC3\xA9\n\n\tx_y 12345 \xE6\x97\xA5\xE6\x9C\xAC!!";
    FuzzSpace space = fuzz_begin();
    Pattern *pattern = n ? pattern_compile(fuzz_text(&space, bytes + 1, n - 1),
                                           bytes[0] & 1 ? PATTERN_RUST : PATTERN_ONIGURUMA,
                                           (SourceLoc){"fuzz", 1}, space.diag)
                         : NULL;
    if (pattern) {
        PatternSpace *scratch = pattern_space_create();
        size_t from = 0, begin, end;
        for (int i = 0; i < 40 && from <= sizeof(TEXT) - 1; i++) {
            if (pattern_find(pattern, scratch, (const unsigned char *)TEXT, sizeof(TEXT) - 1,
                             bytes[0] & 2, from, &begin, &end) != PATTERN_FOUND)
                break;
            if (begin < from || end < begin || end > sizeof(TEXT) - 1) abort();
            from = end > begin ? end : end + 1;
            while (from < sizeof(TEXT) - 1 && ((unsigned char)TEXT[from] & 0xc0) == 0x80) from++;
        }
        pattern_space_destroy(scratch);
        pattern_destroy(pattern);
    }
    fuzz_end(&space);
}

void fuzz_model(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    const char *path = fuzz_file("model.lua", bytes, n);
    model_load(space.arena, path, NULL, 0, 2, space.diag);
    fuzz_end(&space);
}

void fuzz_cluster(const unsigned char *bytes, size_t n) {
    FuzzSpace space = fuzz_begin();
    const char *path = fuzz_file("cluster.lua", bytes, n);
    cluster_read(space.arena, path, NULL, space.diag);
    fuzz_end(&space);
}
