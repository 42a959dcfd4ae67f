/* What a node costs that another's kernel does beside its own work: nothing, and only that.
 * Catches: sums that a norm does not make, or a second one, for nothing; log-sum-exps for nothing
 * whose logits are read once more: rows that do not fit, of other weights, or not of this loss;
 * programs for nothing that no product does as it stores its result; any of it where software does
 * none. */
#include "check.h"

#include "frontend/lua/cluster_read.h"
#include "ir/op.h"
#include "planner/cost/node_cost.h"

/* # is the number of words. */
#define ROWS                                                                                       \
    "%0 = input() {name=\"\"} : bf16[rows=512, cols=768]\n"                                        \
    "%1 = input() {name=\"\"} : f32[cols=768]\n"                                                   \
    "%2 = input() {name=\"\"} : f32[rows=512]\n"                                                   \
    "%3:3 = layernorm_grad(%0, %1, %2, %2, %0) {axis=cols} : bf16[rows=512, cols=768], "           \
    "f32[cols=768], f32[cols=768]\n"
#define SUM(number, of)                                                                            \
    "%" number " = reduce_sum(%" of ") {over=[rows], dtype=\"f32\"} : f32[cols=768]\n"
#define LOGITS                                                                                     \
    "%0 = input() {name=\"\"} : bf16[rows=512, vocab=#]\n"                                         \
    "%1 = input() {name=\"\"} : i32[rows=512]\n"                                                   \
    "%2 = logsumexp(%0) {axis=vocab} : f32[rows=512]\n"
#define MEAN                                                                                       \
    "%3 = const() {value=1} : f32[]\n"                                                             \
    "%4 = broadcast(%3) : f32[rows=512]\n"
#define PRODUCT                                                                                    \
    "%0 = input() {name=\"\"} : bf16[rows=512, cols=768]\n"                                        \
    "%1 = input() {name=\"\"} : bf16[cols=768, to=768]\n"                                          \
    "%2 = matmul(%0, %1) {over=[cols]} : bf16[rows=512, to=768]\n"
#define GRADIENT "%5 = cross_entropy_grad(%0, %1, %2, %4) {axis=vocab} : bf16[rows=512, vocab=#]\n"

typedef struct Case {
    const char *name, *nodes, *words;
    int node;
    bool absorbed;
} Case;

static const Case CASES[] = {
    {"the sum of a norm's gradient", ROWS SUM("4", "3"), "", 4, true},
    {"with what came past the norm",
     ROWS "%4 = add(%0, %3) : bf16[rows=512, cols=768]\n" SUM("5", "4"), "", 5, true},
    {"a second sum", ROWS SUM("4", "3") SUM("5", "3"), "", 5, false},
    {"a sum of what the norm reads", ROWS SUM("4", "0"), "", 4, false},
    {"a sum over columns",
     ROWS "%4 = reduce_sum(%3) {over=[cols], dtype=\"f32\"} : f32[rows=512]\n", "", 4, false},
    {"the log-sum-exp of a mean's rows", LOGITS MEAN GRADIENT, "50304", 2, true},
    {"rows that do not fit", LOGITS MEAN GRADIENT, "50440", 2, false},
    {"rows of other weights",
     LOGITS "%3 = input() {name=\"\"} : f32[rows=512]\n"
            "%4 = scale(%3) {value=2} : f32[rows=512]\n" GRADIENT,
     "50304", 2, false},
    {"of other logits",
     LOGITS MEAN "%5 = input() {name=\"\"} : bf16[rows=512, vocab=#]\n"
                 "%6 = cross_entropy_grad(%5, %1, %2, %4) {axis=vocab} : "
                 "bf16[rows=512, vocab=#]\n",
     "50304", 2, false},
    {"without a gradient", LOGITS, "50304", 2, false},
    {"gelu of a product", PRODUCT "%3 = gelu(%2) : bf16[rows=512, to=768]\n", "", 3, true},
    {"silu of a product", PRODUCT "%3 = silu(%2) : bf16[rows=512, to=768]\n", "", 3, false},
    {"gelu of a product and its square",
     PRODUCT "%3 = fused(%2) {program=\"t0=gelu(i0) t1=square(t0) -> t1\"} : "
             "bf16[rows=512, to=768]\n",
     "", 3, false},
};

static Graph *read_graph(const Case *c, Arena *arena, Diag *diag) {
    StrBuf text = strbuf_create();
    int line = 1;
    strbuf_put(&text, "graph \"\" mesh(t=1, d=1, p=1) {\nbackward:\n");
    for (const char *at = c->nodes; *at; at++) {
        if (*at == '#') {
            strbuf_put(&text, c->words);
        } else {
            strbuf_put_bytes(&text, at, 1);
        }
    }
    strbuf_put(&text, "}\n");
    const char *cursor = text.text;
    Graph *graph = graph_parse(arena, "case", &cursor, &line, diag);
    strbuf_destroy(&text);
    return graph;
}

static double price(const Graph *graph, const Node *node, const char *cluster_name, Arena *arena,
                    Diag *diag) {
    Cluster *cluster = cluster_read(arena, cluster_name, NULL, diag);
    CHECK(cluster, "%s", diag_text(diag));
    if (!cluster) return -1;
    PhaseCost cost = {0};
    NodePricer pricer = node_pricer_create(cluster, graph, arena);
    node_cost_add(&cost, &pricer, node);
    CHECK((cost.memory_us > 0) == (cost.n_ops > 0), "%g us in %g operations", cost.memory_us,
          (double)cost.n_ops);
    return cost.memory_us;
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const Case *c = &CASES[i];
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        check_begin(c->name);
        const Graph *graph = read_graph(c, arena, diag);
        CHECK(graph, "%s", diag_text(diag));
        if (graph) {
            const Node *node = graph->nodes[c->node];
            double gpu = price(graph, node, "h200-dgx", arena, diag);
            CHECK((gpu == 0) == c->absorbed, "%g us on a GPU", gpu);
            CHECK(price(graph, node, "cpu", arena, diag) > 0, "nothing on a processor");
        }
        check_end();
        diag_destroy(diag);
        arena_destroy(arena);
    }
    return check_report();
}
