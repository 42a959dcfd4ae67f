/* A model's graph for all chunks of decoding. */
#include "planner/decode/decode_proof.h"
#include "planner/decode/latent.h"
#include "planner/passes/pass.h"

#include <string.h>

/* Building one chunk after the other. */
typedef struct Deriver {
    const DecodeRequest *request;
    const DecodeFacts *facts;
    Arena *arena;
    Graph *out;
    Diag *diag;              /* of nodes that cannot be made; why becomes the obstacle */
    ValueMap leaves, caches; /* of all chunks; caches: of attentions, outputs 0 and 1 */
    int chunk;
    int64_t batch, seq;  /* of it */
    ValueMap full, last; /* of all its new positions, of the last of them */
    Value inputs[N_DECODE_INPUTS];
    int n_caches;
} Deriver;

static Node *add(Deriver *d, const Node *like, OpKind op, const Value *inputs, int n_inputs,
                 const Attr *attrs, int n_attrs, const Type *type) {
    return graph_add(d->out,
                     &(NodeSpec){.op = op,
                                 .inputs = inputs,
                                 .n_inputs = n_inputs,
                                 .attrs = attrs,
                                 .n_attrs = n_attrs,
                                 .type = type,
                                 .n_outputs = like->n_outputs,
                                 .block = like->block,
                                 .chunk = d->chunk,
                                 .loc = like->loc},
                     d->diag);
}

/* The same of one output. NO_VALUE: an operand is, or it cannot be made. */
static Value add_value(Deriver *d, const Node *like, OpKind op, const Value *inputs, int n_inputs,
                       const Attr *attrs, int n_attrs) {
    const Node one = {.block = like->block, .loc = like->loc, .n_outputs = 1};
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].node) return NO_VALUE;
    }
    Node *node = add(d, &one, op, inputs, n_inputs, attrs, n_attrs, NULL);
    return node ? node_value(node, 0) : NO_VALUE;
}

/* Numbers of the rows of the batch; with an axis, of its elements in each. */
static bool add_input_of(Deriver *d, DecodeInput input, int axis, int64_t size) {
    const DecodeFacts *f = d->facts;
    Type type = {.dtype = DTYPE_I32, .rank = axis < 0 ? 1 : 2};
    type.axes[0] = f->batch;
    type.axes[1] = axis;
    type.dims[0] = d->batch;
    type.dims[1] = size;
    Attr name = attr_string(ATTR_name, decode_input_name(input));
    const Node like = {.block = NO_BLOCK, .loc = f->logits->loc};
    Node *node = add(d, &like, OP_INPUT, NULL, 0, &name, 1, &type);
    if (node) d->inputs[input] = node_value(node, 0);
    return node != NULL;
}

static bool add_input(Deriver *d, DecodeInput input) {
    const bool per_row = input == DECODE_ROWS || input == DECODE_LAST;
    return add_input_of(d, input, per_row ? -1 : d->facts->seq, d->seq);
}

static Value select_last(Deriver *d, Value value, const Node *like) {
    Attr seq = attr_axis(ATTR_seq, d->facts->seq);
    Node *node =
        add(d, like, OP_SELECT_ROW, (Value[]){value, d->inputs[DECODE_LAST]}, 2, &seq, 1, NULL);
    return node ? node_value(node, 0) : NO_VALUE;
}

/* What `value` of the model is here, for all new positions or for the last. */
static Value find_value(Deriver *d, Value value, bool last) {
    const Node *node = value.node;
    Value full = *value_map_at(&d->full, value), *narrow = value_map_at(&d->last, value);
    if (OPS[node->op].flags & PERSISTENT && !decode_has_axis(node, d->facts->seq)) {
        return *value_map_at(&d->leaves, value);
    }
    if (!last || d->seq == 1 || !d->facts->moves[node->id]) return full;
    if (!narrow->node && full.node) *narrow = select_last(d, full, node);
    return *narrow;
}

static Value find_input(Deriver *d, DecodeInput input, bool last, const Node *like) {
    return last && d->seq > 1 ? select_last(d, d->inputs[input], like) : d->inputs[input];
}

/* A table [seq, ...] is looked up at the positions; any other leaf is there once for all chunks.
 */
static bool add_leaf(Deriver *d, const Node *node) {
    Value *leaf = value_map_at(&d->leaves, node_value((Node *)node, 0));
    if (!leaf->node) {
        Node *made = add(d, node, node->op, NULL, 0, node->attrs, node->n_attrs, &node->types[0]);
        if (!made) return false;
        *leaf = node_value(made, 0);
    }
    if (!decode_has_axis(node, d->facts->seq)) return true;
    Attr axis = attr_axis(ATTR_axis, d->facts->seq);
    Node *rows =
        add(d, node, OP_EMBEDDING, (Value[]){d->inputs[DECODE_PLACES], *leaf}, 2, &axis, 1, NULL);
    if (rows) *value_map_at(&d->full, node_value((Node *)node, 0)) = node_value(rows, 0);
    return rows != NULL;
}

/* Makes the cache [sequences, ...] if it is not there; `type` has its other axes. */
static bool make_cache(Deriver *d, const Node *of, Type type, Value *cache) {
    if (cache->node) return true;
    type.axes[0] = graph_axis(d->out, "sequences", 9);
    type.dims[0] = d->request->sequences;
    for (int i = 0; i < type.rank; i++) {
        if (type.axes[i] < 0) return false;
    }
    Attr attrs[2] = {attr_string(ATTR_name, arena_printf(d->arena, "cache.%d", d->n_caches++)),
                     attr_string(ATTR_of, "")};
    const Node like = {.block = NO_BLOCK, .loc = of->loc};
    Node *made = add(d, &like, OP_STATE, NULL, 0, attrs, 2, &type);
    if (made) *cache = node_value(made, 0);
    return made != NULL;
}

/* The cache of an attention's keys (0) or values (1), with the new positions' `rows` in it. */
static Value append(Deriver *d, const Node *attention, int which, Value rows) {
    Value *cache = value_map_at(&d->caches, node_value((Node *)attention, which));
    if (!rows.node) return NO_VALUE;
    Type type = *value_type(rows);
    type.axes[1] = graph_axis(d->out, "context", 7);
    type.dims[1] = d->request->context;
    if (!make_cache(d, attention, type, cache)) return NO_VALUE;
    Value node = add_value(
        d, attention, OP_CACHE_APPEND,
        (Value[]){*cache, rows, d->inputs[DECODE_ROWS], d->inputs[DECODE_PLACES]}, 4, NULL, 0);
    if (node.node) *cache = node;
    return node;
}

/* Attention of queries to caches; `head`: the axis along which they are multiplied. */
static Node *attend(Deriver *d, const Node *node, bool last, Value queries, Value keys,
                    Value values, int head) {
    Attr own[N_ATTRS], attrs[N_ATTRS];
    int n_own = attention_undropped(node, own), n_attrs = 0;
    Value inputs[6] = {queries, keys, values, d->inputs[DECODE_ROWS],
                       find_input(d, DECODE_PLACES, last, node)};
    int documents = attention_documents(node);
    if (documents >= 0) inputs[5] = find_value(d, node->inputs[documents], last);
    for (int i = 0; i < n_own; i++) {
        if (own[i].key == ATTR_causal) continue;
        attrs[n_attrs] = own[i];
        if (attrs[n_attrs].key == ATTR_head) attrs[n_attrs].axis = head;
        n_attrs++;
    }
    for (int i = 0; i < 5 + (documents >= 0); i++) {
        if (!inputs[i].node) return NULL;
    }
    return add(d, node, OP_CACHE_ATTENTION, inputs, 5 + (documents >= 0), attrs, n_attrs, NULL);
}

/* The value with these axes. */
static Value reorder(Deriver *d, const Node *node, Value value, const int *axes, int n_axes) {
    Attr to = attr_axes(ATTR_to, axes, n_axes);
    return add_value(d, node, OP_TRANSPOSE, &value, 1, &to, 1);
}

/* [batch, seq, heads, from], of axes `outer` and `from`, times weights [rank, heads, part] along
 * `from`, which is one of the latter's -> [batch, seq, heads, to], the other. Products have what
 * is not summed in front: the weights are read, and written in that order, once more. */
static Value multiply(Deriver *d, const Node *node, const int *outer, Value x, int from,
                      Value weights, int to) {
    const int heads = outer[2];
    if (!x.node || !weights.node) return NO_VALUE;
    const int *own = value_type(weights)->axes;
    Value left = reorder(d, node, x, (int[]){heads, outer[0], outer[1], from}, 4);
    Value right = reorder(d, node, weights, (int[]){heads, own[0], own[2]}, 3);
    Attr over = attr_axes(ATTR_over, &from, 1);
    Value product = add_value(d, node, OP_MATMUL, (Value[]){left, right}, 2, &over, 1);
    return reorder(d, node, product, (int[]){outer[0], outer[1], heads, to}, 4);
}

/* Latent attention without its keys and values: queries are multiplied by the keys' weights, and
 * outputs by the values'; what is cached is the latent with the keys' positions, and the latent. */
static Node *add_latent_attention(Deriver *d, const Node *node, const LatentAttention *l,
                                  bool last) {
    const Type *query = value_type(l->query), *out = &node->types[0];
    const int latent = graph_axis(d->out, "latent", 6), parts[2] = {l->rank, l->rope};
    if (latent < 0) return NULL;
    const Attr join[2] = {attr_axes(ATTR_over, parts, 2), attr_axes(ATTR_to, &latent, 1)};
    Value c = find_value(d, l->latent, false), key_turned = find_value(d, l->key_turned, false);
    Value of_latent = multiply(d, node, query->axes, find_value(d, l->query, last), query->axes[3],
                               find_value(d, l->key_weights, false), l->rank);
    Value queries = add_value(
        d, node, OP_CONCAT, (Value[]){of_latent, find_value(d, l->query_turned, last)}, 2, join, 2);
    Value keys = add_value(d, node, OP_CONCAT, (Value[]){c, key_turned}, 2, join, 2);
    Node *attention =
        attend(d, node, last, queries, append(d, node, 0, keys), append(d, node, 1, c), latent);
    if (!attention) return NULL;
    return multiply(d, node, out->axes, node_value(attention, 0), l->rank,
                    find_value(d, l->value_weights, false), out->axes[3])
        .node;
}

static Node *add_attention(Deriver *d, const Node *node, bool last) {
    LatentAttention latent;
    if (find_latent_attention(node, d->request->context, &latent)) {
        return add_latent_attention(d, node, &latent, last);
    }
    Value queries = find_value(d, node->inputs[0], last);
    Value keys = append(d, node, 0, find_value(d, node->inputs[1], false));
    Value values = append(d, node, 1, find_value(d, node->inputs[2], false));
    return attend(d, node, last, queries, keys, values, node_axis(node, ATTR_head));
}

/* The node with the chunk's sizes. A token goes to an expert once at most, so that as many slots as
 * there are new positions drop nothing. */
static Node *add_like(Deriver *d, const Node *node, bool last) {
    Value *inputs = ARENA_ARRAY(d->arena, Value, node->n_inputs + 2);
    Attr attrs[N_ATTRS];
    Type type = node->types[0];
    const int64_t seq = last ? 1 : d->seq;
    int n_inputs = node->n_inputs;
    for (int i = 0; i < n_inputs; i++) {
        inputs[i] = find_value(d, node->inputs[i], last);
        if (!inputs[i].node) return NULL;
    }
    const bool looks = d->facts->looks[node->id];
    if (node->op == OP_ROTARY && !looks)
        inputs[n_inputs++] = find_input(d, DECODE_PLACES, last, node);
    memcpy(attrs, node->attrs, sizeof(Attr) * (size_t)node->n_attrs);
    const int n_attrs = node->op == OP_ATTENTION ? attention_undropped(node, attrs) : node->n_attrs;
    for (int i = 0; i < n_attrs; i++) {
        if (node->op == OP_ROUTE && !looks && attrs[i].key == ATTR_slots) attrs[i].i = seq;
    }
    for (int i = 0; i < type.rank; i++) {
        if (type.axes[i] == d->facts->batch) type.dims[i] = d->batch;
        if (type.axes[i] == d->facts->seq) type.dims[i] = seq;
    }
    return add(d, node, node->op, inputs, n_inputs, attrs, n_attrs, &type);
}

/* The layer with what its cache has, which is then what it leaves there. */
static Node *go_on(Deriver *d, const Node *node, OpKind op, const Value *inputs, int n_inputs,
                   Value *cache) {
    for (int i = 0; i < n_inputs; i++) {
        if (!inputs[i].node) return NULL;
    }
    const Node two = {.block = node->block, .loc = node->loc, .n_outputs = 2};
    Node *made = add(d, &two, op, inputs, n_inputs, node->attrs, node->n_attrs, NULL);
    if (made) *cache = node_value(made, 1);
    return made;
}

static Node *add_linear_attention(Deriver *d, const Node *node) {
    enum { VALUES = 2, PLACES = 5 };
    Value *states = value_map_at(&d->caches, node_value((Node *)node, 0)), inputs[8];
    const Type *q = value_type(node->inputs[0]), *v = value_type(node->inputs[VALUES]);
    Type type = *v; /* [sequences, (groups,) (heads,) keys, values] */
    for (int i = 1; i < v->rank - 2; i++) {
        type.axes[i] = v->axes[i + 1];
        type.dims[i] = v->dims[i + 1];
    }
    type.axes[v->rank - 2] = q->axes[q->rank - 1];
    type.dims[v->rank - 2] = q->dims[q->rank - 1];
    if (!make_cache(d, node, type_with_dtype(&type, DTYPE_F32), states)) return NULL;
    for (int i = 0; i < node->n_inputs; i++) {
        inputs[i <= VALUES ? i : i + PLACES - VALUES] = find_value(d, node->inputs[i], false);
    }
    inputs[VALUES + 1] = *states;
    inputs[PLACES - 1] = d->inputs[DECODE_ROWS];
    inputs[PLACES] = d->inputs[DECODE_PLACES];
    return go_on(d, node, OP_CACHE_LINEAR_ATTENTION, inputs, node->n_inputs + 3, states);
}

static Node *add_convolve(Deriver *d, const Node *node) {
    Value *last = value_map_at(&d->caches, node_value((Node *)node, 0));
    Value x = find_value(d, node->inputs[0], false);
    Value inputs[6] = {x, NO_VALUE, find_value(d, node->inputs[1], false), d->inputs[DECODE_ROWS],
                       d->inputs[DECODE_PLACES]};
    int places = convolve_places(node);
    if (places >= 0) inputs[5] = find_value(d, node->inputs[places], false);
    if (!x.node) return NULL;
    Type type = *value_type(x);
    int64_t taps = value_type(node->inputs[1])->dims[0];
    /* Of one tap nothing is kept; a cache of nothing is none. */
    if (taps == 1) return add_like(d, node, false);
    const char *before = arena_printf(d->arena, "before_%d", (int)taps);
    type.axes[1] = graph_axis(d->out, before, (int)strlen(before));
    type.dims[1] = taps - 1;
    if (!make_cache(d, node, type, last)) return NULL;
    inputs[1] = *last;
    return go_on(d, node, OP_CACHE_CONVOLVE, inputs, places >= 0 ? 6 : 5, last);
}

/* The cache of what is seen, [sequences, slots, ...]. */
static Value vectors_cache(Deriver *d) {
    const Node *placed = d->facts->placed;
    Value *cache = value_map_at(&d->caches, node_value((Node *)placed, 0));
    Type type = *value_type(placed->inputs[1]);
    type.axes[1] = graph_axis(d->out, "slots", 5);
    return make_cache(d, placed, type, cache) ? *cache : NO_VALUE;
}

/* Of each position its image's vector, or zeros. */
static Node *add_placed(Deriver *d, const Node *node, bool last) {
    const Value read[3] = {vectors_cache(d), d->inputs[DECODE_ROWS],
                           find_input(d, DECODE_OCCURRENCES, last, node)};
    return add_value(d, node, OP_CACHE_READ, read, 3, NULL, 0).node;
}

static bool add_seen(Deriver *d, const Node *node) {
    const Value self = node_value((Node *)node, 0);
    if (node->op == OP_DROPOUT || node->op == OP_STOP_GRADIENT) {
        *value_map_at(&d->full, self) = find_value(d, node->inputs[0], false);
        return true;
    }
    Node *made = add_like(d, node, false);
    for (int o = 0; made && o < node->n_outputs; o++) {
        *value_map_at(&d->full, node_value((Node *)node, o)) = node_value(made, o);
    }
    return made != NULL;
}

/* The images of one sequence; the result, which shows that it is done, is the first vector. */
static bool add_looking(Deriver *d) {
    const DecodeFacts *f = d->facts;
    const Value vectors = f->placed->inputs[1];
    const Type *type = value_type(vectors);
    if (!add_input_of(d, DECODE_PLACES, type->axes[1], type->dims[1]) ||
        !add_input(d, DECODE_ROWS) || !add_input(d, DECODE_OCCURRENCES)) {
        return false;
    }
    for (int n = 0; n < f->graph->n_nodes; n++) {
        const Node *node = f->graph->nodes[n];
        const bool leaf = OPS[node->op].flags & PERSISTENT;
        if (!f->sees[n]) continue;
        if (leaf ? !add_leaf(d, node) : !add_seen(d, node)) return false;
    }
    const Value append[4] = {vectors_cache(d), *value_map_at(&d->full, vectors),
                             d->inputs[DECODE_ROWS], d->inputs[DECODE_PLACES]};
    const Value kept = add_value(d, f->placed, OP_CACHE_APPEND, append, 4, NULL, 0);
    const Value read[3] = {kept, d->inputs[DECODE_ROWS], d->inputs[DECODE_OCCURRENCES]};
    const Value first = add_value(d, f->placed, OP_CACHE_READ, read, 3, NULL, 0);
    const Attr name = attr_string(ATTR_name, "seen");
    return first.node && add(d, f->logits, OP_OUTPUT, &first, 1, &name, 1, NULL);
}

/* Behind the last position, or where texts are scored behind all; where ranks divide them, whole on
 * each. */
static bool add_logits(Deriver *d, const Node *node) {
    const Attr attrs[2] = {attr_string(ATTR_name, node_string(node, ATTR_name)),
                           attr_int(ATTR_whole, 1)};
    Value logits = find_value(d, node->inputs[0], d->chunk != DECODE_SCORE);
    if (!logits.node) return false;
    return add(d, node, OP_OUTPUT, &logits, 1, attrs, d->request->t > 1 ? 2 : 1, NULL) != NULL;
}

static bool add_node(Deriver *d, const Node *node) {
    const bool last = d->chunk != DECODE_SCORE && d->facts->moves[node->id] &&
                      !d->facts->feeds[node->id] && !decode_carries_state(node);
    ValueMap *map = last && d->seq > 1 ? &d->last : &d->full;
    Value self = node_value((Node *)node, 0);
    Node *made;
    switch (node->op) {
    case OP_INPUT: *value_map_at(&d->full, self) = d->inputs[DECODE_TOKENS]; return true;
    case OP_OCCURRENCE: *value_map_at(&d->full, self) = d->inputs[DECODE_OCCURRENCES]; return true;
    case OP_DOCUMENTS:
        *value_map_at(&d->full, self) = d->inputs[DECODE_STARTS];
        *value_map_at(&d->full, node_value((Node *)node, 1)) = d->inputs[DECODE_DOCUMENT_PLACES];
        return true;
    case OP_DROPOUT:
    case OP_STOP_GRADIENT:
        *value_map_at(map, self) = find_value(d, node->inputs[0], last);
        return true;
    case OP_PARAM:
    case OP_STATE: return add_leaf(d, node);
    case OP_ATTENTION: made = add_attention(d, node, last); break;
    case OP_LINEAR_ATTENTION: made = add_linear_attention(d, node); break;
    case OP_CONVOLVE: made = add_convolve(d, node); break;
    case OP_OUTPUT: return add_logits(d, node);
    default: made = node == d->facts->placed ? add_placed(d, node, last) : add_like(d, node, last);
    }
    /* What a cached layer gives besides is its cache. */
    int n_outputs = decode_carries_state(node) ? 1 : node->n_outputs;
    for (int o = 0; made && o < n_outputs; o++) {
        *value_map_at(map, node_value((Node *)node, o)) = node_value(made, o);
    }
    return made != NULL;
}

static bool add_chunk(Deriver *d, int chunk, DecodeObstacle *out) {
    const Graph *in = d->facts->graph;
    d->chunk = chunk;
    const int most[N_DECODE_CHUNKS] = {d->request->chunk, DECODE_FEW,    1,
                                       DECODE_PIECE,      DECODE_SCORED, 1};
    const bool pieces = chunk == DECODE_READ_TOGETHER;
    d->batch = chunk == DECODE_WRITE || chunk == DECODE_SCORE ? d->request->sequences : 1;
    if (pieces && d->request->chunk > DECODE_PIECE) d->batch = d->request->chunk / DECODE_PIECE;
    d->seq = most[chunk];
    const bool part = chunk == DECODE_READ_FEW || pieces; /* of what is read at once */
    if (part && d->seq > d->request->chunk) d->seq = d->request->chunk;
    if (d->seq > d->request->context) d->seq = d->request->context;
    d->full = value_map_create(in, d->arena);
    d->last = value_map_create(in, d->arena);
    if (chunk == DECODE_LOOK) return add_looking(d);
    for (int i = 0; i < DECODE_PIXELS; i++) {
        if (!add_input(d, (DecodeInput)i)) return false;
    }
    for (int n = 0; n < in->n_nodes; n++) {
        if (!d->facts->needed[n] || d->facts->looks[n] || add_node(d, in->nodes[n])) continue;
        decode_refuse(out, in->nodes[n], "is not the same of fewer positions", d->arena);
        return false;
    }
    return true;
}

/* Rows are those of a group of ranks: nothing divides them over d. */
static void rename_rows(Graph *graph, int batch, Arena *arena) {
    const char *name = "rows";
    while (axis_find(&graph->axes, name, (int)strlen(name)) >= 0)
        name = arena_printf(arena, "%s_", name);
    graph->axes.names[batch] = name;
}

int decode_count_chunks(const DecodeRequest *request, bool looks) {
    if (looks) return N_DECODE_CHUNKS;
    if (request->scores) return DECODE_LOOK;
    return request->sequences > 1 ? DECODE_SCORE : DECODE_READ_TOGETHER;
}

Graph *decode_graph(Arena *arena, const DecodeRequest *request, DecodeTokens *out_tokens,
                    DecodeObstacle *out) {
    DecodeFacts facts;
    if (!decode_find_facts(request, arena, &facts, out)) return NULL;
    const Node *documents = facts.documents, *occurrence = facts.occurrence;
    out_tokens->separator = documents ? node_int(documents, ATTR_separator, 0) : -1;
    out_tokens->image = facts.placed ? node_int(occurrence, ATTR_token, 0) : -1;
    Deriver d = {.request = request,
                 .facts = &facts,
                 .arena = arena,
                 .out = graph_create_like(request->forward, arena),
                 .diag = diag_create(),
                 .leaves = value_map_create(request->forward, arena),
                 .caches = value_map_create(request->forward, arena)};
    for (int axis = 0; axis < N_MESH_AXES; axis++) d.out->mesh.size[axis] = 1;
    if (request->copies > 1) rename_rows(d.out, facts.batch, arena);
    bool made = true;
    const int n_chunks = decode_count_chunks(request, facts.placed != NULL);
    for (int chunk = 0; chunk < n_chunks && made; chunk++) made = add_chunk(&d, chunk, out);
    if (!made && !out->what) *out = (DecodeObstacle){facts.logits->loc, "too many axes"};
    diag_destroy(d.diag);
    return made ? d.out : NULL;
}
