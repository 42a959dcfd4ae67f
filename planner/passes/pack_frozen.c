/* pack_frozen: with --frozen-bits 4 or 8, frozen weights of blocks are kept in nf4 or int8
 * (ir/blocks.h) and widened before each product that reads them (QLoRA, Dettmers et al. 2023, arXiv
 * 2305.14314, section 3).
 *
 * Which ones: those that products alone read, and whose numbers make whole blocks of 64, by logical
 * sizes, so that it does not depend on a layout. Tables, heads, gains and biases stay as they are,
 * and so does what is trained. The widened weight is scratch of the product: one of a block's
 * products in a phase makes it, none keeps it. With --zero 3 the codes are gathered, not it.
 */
#include "ir/blocks.h"
#include "planner/passes/pass.h"

typedef struct Widened {
    const Node *from; /* of the graph that comes in */
    Phase phase;
    int block, chunk;
    Value value;
} Widened;

typedef struct Packer {
    PassContext *ctx;
    Graph *out;
    ValueMap map;
    bool *packs; /* by id of a parameter */
    Widened *widened;
    int n_widened, capacity;
} Packer;

static DType packed_dtype(int bits) {
    return bits == 4 ? DTYPE_NF4 : DTYPE_INT8;
}

/* Multiplied, or rounded to fp8 to be multiplied. */
static bool is_product(const Node *node, int i) {
    return (node->op == OP_MATMUL && i < 2) || node->op == OP_QUANTIZE;
}

static void find_packed(Packer *p, const Graph *in) {
    int *uses = graph_count_uses(in, p->ctx->arena);
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        p->packs[n] = node->op == OP_PARAM && node_is_frozen(node) && uses[n * MAX_OUTPUTS] > 0 &&
                      dtype_is_float(node->types[0].dtype) &&
                      type_elements(&node->types[0]) % WEIGHT_BLOCK == 0;
        for (int i = 0; i < node->n_inputs; i++) {
            if (!is_product(node, i) || node->block == NO_BLOCK)
                p->packs[node->inputs[i].node->id] = false;
        }
    }
}

static Node *copy_packed(Packer *p, const Node *param) {
    Type type = type_with_dtype(&param->types[0], packed_dtype(p->ctx->options.frozen_bits));
    Node like = *param;
    like.types[0] = type;
    return pass_build(p->ctx, p->out, OP_PARAM, &like, param->phase, NULL, 0, param->attrs,
                      param->n_attrs);
}

static Value widen(Packer *p, const Node *param, const Node *reader) {
    for (int i = p->n_widened - 1; i >= 0; i--) {
        const Widened *known = &p->widened[i];
        if (known->phase != reader->phase || known->block != reader->block) break;
        if (known->chunk == reader->chunk && known->from == param) return known->value;
    }
    Value packed = *value_map_at(&p->map, node_value((Node *)param, 0));
    Attr dtype = attr_string(ATTR_dtype, dtype_name(param->types[0].dtype));
    Node *node = pass_build(p->ctx, p->out, OP_WIDEN, reader, reader->phase, &packed, 1, &dtype, 1);
    if (!node) BUG("pack_frozen: cannot widen");
    Widened made = {param, reader->phase, reader->block, reader->chunk, node_value(node, 0)};
    ARENA_PUSH(p->ctx->arena, p->widened, p->n_widened, p->capacity, made);
    return made.value;
}

static Node *copy_node(Packer *p, const Node *node) {
    if (p->packs[node->id]) return copy_packed(p, node);
    Value *inputs = ARENA_ARRAY(p->ctx->arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        inputs[i] =
            p->packs[input.node->id] ? widen(p, input.node, node) : *value_map_at(&p->map, input);
    }
    return graph_copy_node(p->out, node, inputs, p->ctx->diag);
}

Graph *pass_pack_frozen(const Graph *in, PassContext *ctx) {
    if (ctx->options.frozen_bits == 0) return (Graph *)in;
    Packer p = {.ctx = ctx,
                .out = graph_create_like(in, ctx->arena),
                .map = value_map_create(in, ctx->arena),
                .packs = ARENA_ARRAY(ctx->arena, bool, in->n_nodes + 1)};
    find_packed(&p, in);
    for (int n = 0; n < in->n_nodes; n++) {
        Node *copy = copy_node(&p, in->nodes[n]);
        if (!copy) return NULL;
        value_map_set_node(&p.map, in->nodes[n], copy);
    }
    return p.out;
}

bool check_packed(const Graph *graph, int bits, Diag *diag) {
    bool any = bits == 0;
    for (int n = 0; n < graph->n_nodes && !any; n++) any = graph->nodes[n]->op == OP_WIDEN;
    if (any) return true;
    diag_error(
        diag, NO_LOC,
        "--frozen-bits %d: no block has a frozen weight that products alone read and that "
        "holds whole blocks of %d numbers; freeze some (--set lora=16, --set freeze=...), or "
        "leave it out",
        bits, WEIGHT_BLOCK);
    return false;
}
