/* Programs as a Graphviz digraph: a cluster per program, in it one per chunk and phase. Meant for
 * small models: `dot -Tsvg`. */
#include "ir/op.h"
#include "planner/show/show_facts.h"

enum { NAME_COLUMNS = 60 };

/* Inside a double-quoted DOT string: quotes and backslashes escaped, control characters dropped.
 * What is not ASCII goes through. */
static void put_escaped(StrBuf *out, const char *text, int n_most) {
    int n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        bool continues = (*c & 0xc0) == 0x80; /* the rest of a UTF-8 character */
        if (!continues && n++ == n_most) break;
        if (*c == '"' || *c == '\\') strbuf_put(out, "\\");
        strbuf_printf(out, "%c", *c < 32 || *c == 127 ? ' ' : *c);
    }
}

/* Colours by what a node is to the reader: data, arithmetic, message. */
static const char *node_style(const Node *node) {
    unsigned flags = OPS[node->op].flags;
    if (flags & COLLECTIVE) return "fillcolor=\"#f6c177\", shape=box, style=\"filled,bold\"";
    if (node->op == OP_SEND || node->op == OP_RECV) return "fillcolor=\"#f2a4a4\", shape=cds";
    if (flags & PERSISTENT) return "fillcolor=\"#b8d8ba\", shape=cylinder";
    if (flags & LEAF) return "fillcolor=\"#d9d9d9\", shape=box";
    if (node->op == OP_MATMUL) return "fillcolor=\"#9ecae8\", shape=box";
    return "fillcolor=\"#eef3f7\", shape=box";
}

static void put_node(StrBuf *out, int program, const Graph *graph, const Node *node) {
    strbuf_printf(out, "      p%d_n%d [%s, label=\"%s", program, node->id, node_style(node),
                  OPS[node->op].name);
    static const AttrKey WORDS[] = {ATTR_name, ATTR_mesh, ATTR_comm};
    for (size_t i = 0; i < sizeof(WORDS) / sizeof(*WORDS); i++) {
        if (!node_attr(node, WORDS[i])) continue;
        strbuf_put(out, " ");
        put_escaped(out, node_string(node, WORDS[i]), NAME_COLUMNS);
    }
    if (node->n_outputs) {
        StrBuf type = strbuf_create();
        type_print(&type, &graph->axes, &node->types[0], &node->shardings[0]);
        strbuf_put(out, "\\n");
        put_escaped(out, type.text, 200);
        strbuf_destroy(&type);
    }
    strbuf_put(out, "\"];\n");
}

static void put_edges(StrBuf *out, int program, const Graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const Node *node = graph->nodes[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const Node *from = node->inputs[k].node;
            bool crosses = from->phase != node->phase; /* kept from forward to backward */
            strbuf_printf(out, "    p%d_n%d -> p%d_n%d%s;\n", program, from->id, program, node->id,
                          crosses ? " [style=dashed, constraint=false]" : "");
        }
    }
}

static bool graph_has_phase(const Graph *graph, Phase phase) {
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->phase == phase) return true;
    }
    return false;
}

static void put_program(StrBuf *out, const Plan *plan, int index) {
    static const char *const PHASES[N_PHASES] = {"forward", "backward", "weights", "update"};
    const Graph *graph = plan->programs[index].graph;
    strbuf_printf(out, "  subgraph cluster_p%d {\n    label=\"program %d: stages", index, index);
    for (int stage = 0; stage < plan->n_stages; stage++) {
        if (plan->stages[stage].program != index) continue;
        int last = stage;
        while (last + 1 < plan->n_stages && plan->stages[last + 1].program == index) last++;
        strbuf_printf(out, last > stage ? " %d-%d" : " %d", stage, last);
        stage = last;
    }
    strbuf_put(out, "\";\n    color=\"#888888\";\n");
    for (int phase = 0; phase < N_PHASES; phase++) {
        if (phase == PHASE_WEIGHTS && !graph_has_phase(graph, PHASE_WEIGHTS)) continue;
        for (int chunk = 0; chunk < (phase == PHASE_UPDATE ? 1 : plan->n_chunks); chunk++) {
            strbuf_printf(out, "    subgraph cluster_p%d_%s%d {\n      label=\"%s", index,
                          PHASES[phase], chunk, PHASES[phase]);
            if (phase != PHASE_UPDATE) strbuf_printf(out, ", chunk %d", chunk);
            strbuf_put(out, "\";\n      color=\"#cccccc\";\n");
            for (int i = 0; i < graph->n_nodes; i++) {
                const Node *node = graph->nodes[i];
                if ((int)node->phase != phase) continue;
                if (phase != PHASE_UPDATE && node->chunk != chunk) continue;
                put_node(out, index, graph, node);
            }
            strbuf_put(out, "    }\n");
        }
    }
    put_edges(out, index, graph);
    strbuf_put(out, "  }\n");
}

/* The sends of one program's chunk to the receives of another's; `source` tells values apart. */
static void put_message_edges(StrBuf *out, const Plan *plan, int from, int from_chunk, int to,
                              int to_chunk, Phase phase) {
    const Graph *sender = plan->programs[from].graph, *receiver = plan->programs[to].graph;
    for (int i = 0; i < sender->n_nodes; i++) {
        const Node *send = sender->nodes[i];
        if (send->op != OP_SEND || send->phase != phase || send->chunk != from_chunk) continue;
        for (int k = 0; k < receiver->n_nodes; k++) {
            const Node *recv = receiver->nodes[k];
            if (recv->op != OP_RECV || recv->phase != phase || recv->chunk != to_chunk) continue;
            if (node_int(send, ATTR_source, 0) != node_int(recv, ATTR_source, 0)) continue;
            strbuf_printf(out,
                          "  p%d_n%d -> p%d_n%d [color=\"#c0392b\", penwidth=2, "
                          "constraint=false];\n",
                          from, send->id, to, recv->id);
        }
    }
}

/* Between programs, once for each pair however many stages share them. */
static void put_messages(StrBuf *out, const Plan *plan) {
    Arena *arena = arena_create();
    Path path = plan_path(plan);
    int p = plan->n_stages, n = plan->n_programs;
    bool *seen = ARENA_ARRAY(arena, bool, (size_t)n *(size_t)n *MAX_CHUNKS);
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        for (int stage = 0; stage < p; stage++) {
            int global = path_global(path, stage, chunk);
            if (!path_has_border(path, plan->n_chunks, stage, chunk, false)) continue;
            int next = path_stage(path, global + 1), next_chunk = path_chunk(path, global + 1);
            int from = plan->stages[stage].program, to = plan->stages[next].program;
            bool *pair = &seen[(from * n + to) * MAX_CHUNKS + chunk];
            if (*pair) continue;
            *pair = true;
            put_message_edges(out, plan, from, chunk, to, next_chunk, PHASE_FORWARD);
            put_message_edges(out, plan, to, next_chunk, from, chunk, PHASE_BACKWARD);
        }
    }
    arena_destroy(arena);
}

bool show_dot(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    (void)device, (void)diag;
    strbuf_put(out, "digraph plan {\n  label=\"");
    put_escaped(out, plan->model, NAME_COLUMNS);
    strbuf_put(out,
               "\";\n  rankdir=TB;\n  fontname=\"sans-serif\";\n  node [fontname=\"sans-serif\""
               ", fontsize=10, style=filled, color=\"#666666\"];\n  edge [color=\"#777777\"];"
               "\n");
    for (int i = 0; i < plan->n_programs; i++) put_program(out, plan, i);
    put_messages(out, plan);
    strbuf_put(out, "}\n");
    return true;
}
