#include "tests/support/op_cases.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = 10 };

const char *op_case_name(Arena *arena, const OpCase *op_case, const char *what) {
    return arena_printf(arena, "%s(%s) {%s} %s", OPS[op_case->op].name,
                        op_case->operands ? op_case->operands : "", op_case->attrs, what);
}

/* "rows=3 cols=5" */
static Type read_axes(Graph *graph, const char *text, DType dtype) {
    Type type = {.dtype = dtype};
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t length = strcspn(text, "=");
        char *end;
        type.axes[type.rank] = graph_axis(graph, text, (int)length);
        type.dims[type.rank++] = strtol(text + length + 1, &end, 10);
        text = end;
    }
    return type;
}

static Attr read_attr(Graph *graph, AttrKey key, const char *value) {
    Attr attr = {.key = key};
    switch (ATTRS[key].kind) {
    case ATTR_INT: attr.i = strtol(value, NULL, 10); break;
    case ATTR_FLOAT: attr.f = strtod(value, NULL); break;
    case ATTR_STRING: attr.s = value; break;
    case ATTR_AXIS: attr.axis = graph_axis(graph, value, (int)strlen(value)); break;
    case ATTR_AXES:
        while (*value) {
            size_t length = strcspn(value, ",");
            attr.axes.items[attr.axes.count++] = graph_axis(graph, value, (int)length);
            value += length + (value[length] == ',');
        }
        break;
    }
    return attr;
}

static int read_attrs(Graph *graph, const char *text, Attr *attrs) {
    int count = 0;
    while (*text) {
        size_t name = strcspn(text, "=");
        int key = attr_find(text, (int)name);
        bool quoted = text[name + 1] == '\'';
        size_t length = key == ATTR_program ? strlen(text)
                        : quoted            ? name + 3 + strcspn(text + name + 2, "'")
                                            : strcspn(text, " ");
        char *value = arena_strndup(graph->arena, text + name + 1 + quoted,
                                    length - name - 1 - 2 * (size_t)quoted);
        attrs[count++] = read_attr(graph, (AttrKey)key, value);
        text += length + (text[length] == ' ');
    }
    return count;
}

/* The operand's text without what it says about values. */
static const char *axes_text(const char *operand) {
    operand += strspn(operand, " ~^");
    return *operand && strchr("+#:=%", *operand) ? operand + strcspn(operand, " ") : operand;
}

static int split_operands(Arena *arena, const char *text, const char **out) {
    int count = 0;
    for (bool more = text != NULL; more && count < MOST_OPERANDS;) {
        size_t length = strcspn(text, ";");
        out[count] = arena_strndup(arena, text, length);
        out[count] += strspn(out[count], " ");
        count++;
        more = text[length] == ';';
        text += length + more;
    }
    return count;
}

/* Results of a route of what the operand's leaf chooses. */
static Node *add_route(Graph *graph, Value chosen, const char *operand, Diag *diag) {
    const char *names[3] = {"experts", "slot", "routes"}, *slash = strchr(operand, '/');
    int axes[3];
    for (int i = 0; i < 3; i++) axes[i] = graph_axis(graph, names[i], (int)strlen(names[i]));
    Attr attrs[3] = {attr_axes(ATTR_to, axes, 3), attr_int(ATTR_experts, atoi(operand + 1)),
                     attr_int(ATTR_slots, atoi(slash + 1))};
    return graph_add(graph,
                     &(NodeSpec){.op = OP_ROUTE,
                                 .inputs = &chosen,
                                 .n_inputs = 1,
                                 .attrs = attrs,
                                 .n_attrs = 3,
                                 .block = NO_BLOCK},
                     diag);
}

/* Puts a route between the choices, if operand 1 is some, and the op. */
static bool route_choices(Graph *graph, const char **operands, Value *inputs, int n, Diag *diag) {
    if (n < 3 || strcmp(operands[2], "@tokens") != 0) return true;
    Node *route = add_route(graph, inputs[1], operands[1], diag);
    for (int i = 0; i < 2; i++) inputs[1 + i] = node_value(route, i);
    return route != NULL;
}

/* Puts the searches for documents between attention's tokens, if it has some, and attention: those
 * of operand 4 are the same, for their ends, and then separators are apart. */
static bool find_documents(Graph *graph, const OpCase *op_case, Value *inputs, int n, Diag *diag) {
    bool apart = n > 4 && !dtype_is_float(value_type(inputs[4])->dtype);
    bool has_some = n > 3 && !dtype_is_float(value_type(inputs[3])->dtype);
    if (op_case->op != OP_ATTENTION || !has_some) return true;
    Attr attrs[3] = {{.key = ATTR_axis, .axis = value_type(inputs[3])->axes[1]},
                     attr_int(ATTR_separator, 0),
                     attr_int(ATTR_apart, 1)};
    for (int i = 3; i < 4 + apart; i++) {
        Node *found = graph_add(graph,
                                &(NodeSpec){.op = i == 3 ? OP_DOCUMENTS : OP_DOCUMENT_ENDS,
                                            .inputs = &inputs[i],
                                            .n_inputs = 1,
                                            .attrs = attrs,
                                            .n_attrs = apart ? 3 : 2,
                                            .block = NO_BLOCK},
                                diag);
        if (!found) return false;
        inputs[i] = node_value(found, 0);
    }
    return true;
}

/* Puts a quantize of the leaf, which the case's attributes are for, before a dequantize. */
static bool quantize_first(Graph *graph, const OpCase *op_case, const char *attrs_text,
                           Value *inputs, Diag *diag) {
    Attr attrs[N_ATTRS];
    if (op_case->op != OP_DEQUANTIZE) return true;
    NodeSpec spec = {.op = OP_QUANTIZE,
                     .inputs = inputs,
                     .n_inputs = 1,
                     .attrs = attrs,
                     .n_attrs = read_attrs(graph, attrs_text, attrs),
                     .block = NO_BLOCK};
    Node *quantize = graph_add(graph, &spec, diag);
    for (int i = 0; quantize && i < 2; i++) inputs[i] = node_value(quantize, i);
    return quantize != NULL;
}

static Node *add_leaf(Graph *graph, OpKind op, const char *name, const Type *type, Diag *diag) {
    Attr attrs[4] = {attr_string(ATTR_name, name), attr_string(ATTR_init, "zeros"),
                     attr_float(ATTR_decay, 1), attr_int(ATTR_frozen, 1)};
    return graph_add(graph,
                     &(NodeSpec){.op = op,
                                 .attrs = attrs,
                                 .n_attrs = dtype_is_blocked(type->dtype) ? 4
                                            : op == OP_PARAM              ? 3
                                                                          : 1,
                                 .type = type,
                                 .block = NO_BLOCK},
                     diag);
}

static Node *add(Graph *graph, OpKind op, Value *inputs, int n_inputs, const Attr *attr,
                 Diag *diag) {
    return graph_add(graph,
                     &(NodeSpec){.op = op,
                                 .inputs = inputs,
                                 .n_inputs = n_inputs,
                                 .attrs = attr,
                                 .n_attrs = attr ? 1 : 0,
                                 .block = NO_BLOCK},
                     diag);
}

static bool add_loss(Graph *graph, Value result, Value weights, Diag *diag) {
    if (dtype_is_low(value_type(result)->dtype)) {
        result = node_value(add(graph, OP_TO_F32, &result, 1, NULL, diag), 0);
    }
    const Type *type = value_type(result);
    Attr over = attr_axes(ATTR_over, type->axes, type->rank), name = attr_string(ATTR_name, "loss");
    Value operands[2] = {result, weights};
    Node *loss = add(graph, OP_MUL, operands, 2, NULL, diag);
    for (int step = 0; loss && step < 2; step++) {
        Value value = node_value(loss, 0);
        if (step == 0 && type->rank == 0) continue;
        loss = add(graph, step ? OP_OUTPUT : OP_REDUCE_SUM, &value, 1, step ? &name : &over, diag);
    }
    return loss != NULL;
}

static bool takes_low(const OpCase *op_case, int operand) {
    OperandPrecision precision = op_operand_precision(op_case->op, operand);
    return precision == OPERAND_FOLLOWS || precision == OPERAND_EITHER;
}

bool op_case_takes_low(const OpCase *op_case) {
    const char *text = op_case->operands;
    if (!text || strchr(text, '~') || op_is_cast(op_case->op)) return false;
    for (int i = 0; text; i++, text = strchr(text, ';'), text += text != NULL) {
        if (takes_low(op_case, i) && text[strspn(text, " ")] != '#') return true;
    }
    return false;
}

bool op_case_is_integer(const OpCase *op_case) {
    return (op_case->op == OP_SHIFT || op_case->op == OP_RENAME) && op_case->operands[0] == '#';
}

static bool has_low_operand(const OpCase *op_case) {
    return op_case->operands && strchr(op_case->operands, '~');
}

bool op_case_says_low(const OpCase *op_case) {
    return has_low_operand(op_case) || strstr(op_case->attrs, "low");
}

/* `text` with the dtype's name wherever it says "low". */
static const char *name_low(Arena *arena, const char *text, DType low) {
    const char *at = strstr(text, "low");
    if (!at) return text;
    return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, dtype_name(low),
                        name_low(arena, at + strlen("low"), low));
}

Graph *op_case_build(Arena *arena, const OpCase *op_case, DType precision, bool loss, Diag *diag) {
    const DType low = dtype_is_low(precision) ? precision : DTYPE_BF16;
    const bool lowered = dtype_is_low(precision) && !has_low_operand(op_case);
    const char *attrs_text = name_low(arena, op_case->attrs, low);
    Graph *graph = graph_create(arena, OPS[op_case->op].name);
    const char *operands[MOST_OPERANDS];
    Value inputs[MOST_OPERANDS];
    Attr attrs[N_ATTRS];
    bool broadcast = op_case->op == OP_BROADCAST;
    int n = split_operands(arena, op_case->operands, operands);
    for (int i = 0; i < n; i++) {
        if (strcmp(operands[i], "@tokens") == 0) continue;
        if (*operands[i] == '@') {
            inputs[i] = inputs[atoi(operands[i] + 1)];
            continue;
        }
        bool tokens = *operands[i] == '#';
        bool is_low = *operands[i] == '~' || (lowered && takes_low(op_case, i));
        bool is_state = *operands[i] == '^';
        DType dtype = tokens ? DTYPE_I32 : is_state ? DTYPE_BF16 : is_low ? low : DTYPE_F32;
        if (*operands[i] == '%') dtype = operands[i][1] == '4' ? DTYPE_NF4 : DTYPE_INT8;
        Type type = read_axes(graph, axes_text(operands[i]), dtype);
        OpKind op = tokens || *operands[i] == '=' ? OP_INPUT : OP_PARAM;
        inputs[i] = node_value(add_leaf(graph, op, arena_printf(arena, "%d", i), &type, diag), 0);
    }
    if (!route_choices(graph, operands, inputs, n, diag)) return NULL;
    if (!find_documents(graph, op_case, inputs, n, diag)) return NULL;
    if (!quantize_first(graph, op_case, attrs_text, inputs, diag)) return NULL;
    bool dequantizes = op_case->op == OP_DEQUANTIZE;
    /* The weights' leaf must come before the op: its type is found on a copy. */
    Type type = {0};
    if (broadcast) {
        type = read_axes(graph, attrs_text + 3, lowered ? low : DTYPE_F32);
    }
    NodeSpec spec = {.op = op_case->op,
                     .inputs = inputs,
                     .n_inputs = dequantizes ? 2 : n,
                     .attrs = attrs,
                     .n_attrs = broadcast || dequantizes ? 0 : read_attrs(graph, attrs_text, attrs),
                     .type = &type,
                     .n_outputs = op_case->outputs,
                     .block = op_case->block ? op_case->block - 1 : NO_BLOCK};
    if (lowered && op_case->op == OP_MATMUL && n == 3) {
        attrs[spec.n_attrs++] = attr_string(ATTR_dtype, "f32");
    }
    Node *node = graph_add(graph, &spec, diag);
    if (!node || !loss) return node ? graph : NULL;
    Type weights_type = type_with_dtype(&node->types[0], DTYPE_F32);
    graph->n_nodes--;
    Node *weights = add_leaf(graph, OP_INPUT, "w", &weights_type, diag);
    node = graph_add(graph, &spec, diag);
    Value result = node_value(node, 0);
    if (op_case->op == OP_CROSS_ENTROPY && op_case->outputs == 2) {
        Value lse = node_value(node, 1); /* squared, as in a z-loss */
        Value both[2] = {result, node_value(add(graph, OP_SQUARE, &lse, 1, NULL, diag), 0)};
        result = node_value(add(graph, OP_ADD, both, 2, NULL, diag), 0);
    }
    bool good = add_loss(graph, result, node_value(weights, 0), diag);
    return good ? graph : NULL;
}

/* Multiples of 2^-12 in [0, 1): sums and differences of a few are exact in f32. */
static double uniform(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 52) / 4096;
}

double op_case_draw(const char *operand, uint64_t *state) {
    double u = uniform(state);
    operand += *operand == '~' || *operand == '^';
    switch (*operand) {
    case '#': return (double)(int)(u * atoi(operand + 1));
    case '=':
    case ':': return strtod(operand + 1, NULL);
    case '+': return 0.5 + 1.5 * u;
    case '-': return u < 0.0625 ? -200 : -u;
    default: return 2 * u - 1;
    }
}

void op_case_fill(const OpCase *op_case, const Graph *graph, Reference *reference) {
    const char *operands[MOST_OPERANDS];
    uint64_t state = 2026;
    split_operands(reference->arena, op_case->operands, operands);
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        const char *name = node_string(node, ATTR_name);
        double *values = reference_value(reference, node_value(node, 0));
        if (node->op != OP_PARAM && node->op != OP_INPUT) continue;
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            values[i] = op_case_draw(*name == 'w' ? "" : operands[atoi(name)], &state);
            values[i] = reference_rounded(node->types[0].dtype, values[i]);
        }
    }
}
