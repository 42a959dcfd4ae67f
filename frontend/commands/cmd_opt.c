/* perilune opt: one pass on a graph in its text form. */
#include "frontend/commands/cli.h"
#include "ir/base/file.h"
#include "planner/planner.h"

#include <ctype.h>

enum { GRAPH_LIMIT_BYTES = 256 << 20 };

static int list_passes(const CliArgs *args) {
    static const CliOption OTHERS[] = {OPT_PASS, OPT_OUTPUT};
    if (args->operand) {
        return cli_usage_error("opt --list: reads no graph; what is '%s'?", args->operand);
    }
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (!cli_given(args, OTHERS[i])) continue;
        return cli_usage_error("opt --list: runs no pass: leave out --%s",
                               CLI_OPTIONS[OTHERS[i]].name);
    }
    for (int i = 0; planner_pass_name(i); i++) {
        printf("%2d  %-20s %s\n", i + 1, planner_pass_name(i), planner_pass_reason(i));
    }
    return EXIT_DONE;
}

static Graph *read_graph(CliArgs *args, Diag *diag) {
    size_t length;
    char *text = file_read(args->arena, args->operand, GRAPH_LIMIT_BYTES, &length, diag);
    if (!text) return NULL;
    const char *cursor = text;
    int line = 1;
    Graph *graph = graph_parse(args->arena, args->operand, &cursor, &line, diag);
    if (!graph) return NULL;
    for (; *cursor; cursor++) {
        if (*cursor == '\n') line++;
        if (isspace((unsigned char)*cursor)) continue;
        diag_error(diag, (SourceLoc){args->operand, line}, "something follows the graph");
        return NULL;
    }
    return graph;
}

static int run_pass(CliArgs *args, Diag *diag) {
    if (!args->operand) {
        diag_error(diag, NO_LOC, "opt: which GRAPH.ir? see perilune help opt");
        return EXIT_USAGE;
    }
    if (!cli_given(args, OPT_PASS)) {
        diag_error(diag, NO_LOC, "opt: which --pass? see perilune opt --list");
        return EXIT_USAGE;
    }
    Graph *graph = read_graph(args, diag);
    if (!graph) return EXIT_USAGE;
    const char *pass = cli_text(args, OPT_PASS, NULL);
    Graph *result = planner_run_pass(args->arena, graph, pass, diag);
    if (!result) return EXIT_USAGE;
    StrBuf text = strbuf_create();
    graph_print(&text, result);
    bool good = cli_write(cli_text(args, OPT_OUTPUT, NULL), &text, diag);
    strbuf_destroy(&text);
    return good ? EXIT_DONE : EXIT_FAILED;
}

int cmd_opt(CliArgs *args) {
    if (cli_given(args, OPT_LIST)) return list_passes(args);
    Diag *diag = diag_create();
    int status = run_pass(args, diag);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
