/* Text of a graph: one node per line, the inverse of parse.c.
 *
 *   graph "gpt" mesh(t=2, d=1, p=1) {
 *   forward:
 *     %0 = input() {name="tokens"} : i32[batch=4, seq=64]
 *     %3:2 = rmsnorm(%1, %2) {axis=model, eps=1e-05} : f32[...], f32[...] @b0 c0 "gpt.lua":12
 *   backward:
 *     %9 = silu_grad(%3.1, %8) : f32[...]
 *   }
 */
#include "ir/op.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const PHASES[N_PHASES] = {"forward", "backward", "weights", "update"};

/* Quotes, backslashes and control characters are escaped as \xx (two hex digits). */
static void print_quoted(StrBuf *out, const char *text) {
    strbuf_put(out, "\"");
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\' || *c < 32 || *c == 127) {
            strbuf_printf(out, "\\%02x", *c);
        } else {
            strbuf_put_bytes(out, c, 1);
        }
    }
    strbuf_put(out, "\"");
}

/* The shortest decimal that reads back as the same double. */
static void print_float(StrBuf *out, double value) {
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    strbuf_put(out, text);
}

static void print_attr(StrBuf *out, const Graph *graph, const Attr *attr) {
    strbuf_printf(out, "%s=", ATTRS[attr->key].name);
    switch (ATTRS[attr->key].kind) {
    case ATTR_INT: strbuf_printf(out, "%" PRId64, attr->i); break;
    case ATTR_FLOAT: print_float(out, attr->f); break;
    case ATTR_STRING: print_quoted(out, attr->s); break;
    case ATTR_AXIS: strbuf_put(out, graph->axes.names[attr->axis]); break;
    case ATTR_AXES:
        strbuf_put(out, "[");
        for (int i = 0; i < attr->axes.count; i++) {
            strbuf_printf(out, "%s%s", i ? ", " : "", graph->axes.names[attr->axes.items[i]]);
        }
        strbuf_put(out, "]");
        break;
    }
}

void node_print(StrBuf *out, const Graph *graph, const Node *node) {
    strbuf_put(out, "  ");
    if (node->n_outputs == 1) strbuf_printf(out, "%%%d = ", node->id);
    if (node->n_outputs > 1) strbuf_printf(out, "%%%d:%d = ", node->id, node->n_outputs);
    strbuf_printf(out, "%s(", OPS[node->op].name);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        strbuf_printf(out, "%s%%%d", i ? ", " : "", input.node->id);
        if (input.output) strbuf_printf(out, ".%d", input.output);
    }
    strbuf_put(out, ")");
    for (int i = 0; i < node->n_attrs; i++) {
        strbuf_put(out, i ? ", " : " {");
        print_attr(out, graph, &node->attrs[i]);
    }
    if (node->n_attrs) strbuf_put(out, "}");
    for (int i = 0; i < node->n_outputs; i++) {
        strbuf_put(out, i ? ", " : " : ");
        type_print(out, &graph->axes, &node->types[i], &node->shardings[i]);
    }
    if (node->block != NO_BLOCK) strbuf_printf(out, " @b%d", node->block);
    if (node->chunk) strbuf_printf(out, " c%d", node->chunk);
    if (node->loc.file) {
        strbuf_put(out, " ");
        print_quoted(out, node->loc.file);
        strbuf_printf(out, ":%d", node->loc.line);
    }
    strbuf_put(out, "\n");
}

void graph_print(StrBuf *out, const Graph *graph) {
    strbuf_put(out, "graph ");
    print_quoted(out, graph->name);
    strbuf_put(out, " mesh(");
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool optional = axis == MESH_C || axis == MESH_E || axis == MESH_R;
        if (optional && graph->mesh.size[axis] == 1) continue;
        strbuf_printf(out, "%s%s=%d", axis ? ", " : "", mesh_axis_name(axis),
                      graph->mesh.size[axis]);
    }
    strbuf_put(out, ")");
    int multiple = graph->mesh.vocab_multiple;
    if (multiple) strbuf_printf(out, " vocab_multiple=%d", multiple);
    strbuf_put(out, " {\n");
    int phase = -1;
    for (int n = 0; n < graph->n_nodes; n++) {
        if ((int)graph->nodes[n]->phase != phase) {
            phase = (int)graph->nodes[n]->phase;
            strbuf_printf(out, "%s:\n", PHASES[phase]);
        }
        node_print(out, graph, graph->nodes[n]);
    }
    strbuf_put(out, "}\n");
}
