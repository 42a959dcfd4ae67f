/* Decoding: caches of keys and values, attention to them, the row of a position.
 *
 * rows i32[batch] says which sequence of a cache each row of the batch goes on with; places
 * i32[batch, seq] where its new positions are, ascending. Kernels take whatever numbers come: what
 * lies outside of the cache is written nowhere and sees nothing.
 */
#include "ir/ops/decode.h"

static bool fail_operand(const Node *node, int input, Diag *diag, const char *what) {
    diag_error(diag, node->loc, "%s: operand %d %s", OPS[node->op].name, input + 1, what);
    diag_note(diag, node->inputs[input].node->loc, "made here");
    return false;
}

bool decode_check_numbers(const Node *node, int input, const Type *like, int n, Diag *diag) {
    const Type *type = value_type(node->inputs[input]);
    bool fits = type->dtype == DTYPE_I32 && type->rank == n && like->rank >= n;
    for (int i = 0; fits && i < n; i++) {
        fits = type->axes[i] == like->axes[i] && type->dims[i] == like->dims[i];
    }
    return fits || fail_operand(node, input, diag,
                                n == 1 ? "must be i32[batch]" : "must be i32[batch, seq]");
}

/* Has the cache [sequences, context, ...] the type's axes from `from` on, and its dtype? */
static bool check_cache(const Node *node, int input, const Type *type, int from, Diag *diag) {
    const Type *cache = value_type(node->inputs[input]);
    bool fits = cache->dtype == type->dtype && cache->rank == type->rank - from + 2;
    for (int i = from; fits && i < type->rank; i++) {
        int at = i - from + 2;
        fits = cache->axes[at] == type->axes[i] && cache->dims[at] == type->dims[i];
    }
    return fits || fail_operand(node, input, diag, "must be [sequences, context, ...] as the rows");
}

/* cache [sequences, context, ...], x [batch, seq, ...], rows, places -> the cache with x in it */
bool infer_cache_append(Graph *graph, Node *node, Diag *diag) {
    const Type *x = value_type(node->inputs[1]);
    (void)graph;
    if (x->rank < 2) return fail_operand(node, 1, diag, "must be [batch, seq, ...]");
    if (!check_cache(node, 0, x, 2, diag) || !decode_check_numbers(node, 2, x, 1, diag) ||
        !decode_check_numbers(node, 3, x, 2, diag)) {
        return false;
    }
    node->types[0] = *value_type(node->inputs[0]);
    return true;
}

/* cache [sequences, context, ...], rows i32[batch], places i32[batch, seq] -> [batch, seq, ...] */
bool infer_cache_read(Graph *graph, Node *node, Diag *diag) {
    const Type *cache = value_type(node->inputs[0]), *places = value_type(node->inputs[2]);
    if (places->rank != 2) return fail_operand(node, 2, diag, "must be i32[batch, seq]");
    if (cache->rank < 2) return fail_operand(node, 0, diag, "must be [sequences, context, ...]");
    if (!decode_check_numbers(node, 1, places, 1, diag) ||
        !decode_check_numbers(node, 2, places, 2, diag)) {
        return false;
    }
    Type out = *cache;
    for (int i = 0; i < 2; i++) {
        out.axes[i] = places->axes[i];
        out.dims[i] = places->dims[i];
        if (type_find_axis(cache, places->axes[i]) >= 0) {
            return fail_operand(node, 0, diag, "must not have the places' axes");
        }
    }
    (void)graph;
    node->types[0] = out;
    return true;
}

/* Values may have an axis of their own, and as many of it, in place of the keys' last. */
static bool check_cached_values(const Node *node, const Type *keys, int64_t longest, Diag *diag) {
    const Type *k = value_type(node->inputs[1]), *v = value_type(node->inputs[2]);
    const int last = keys->rank - 1;
    Type values = *keys;
    if (v->rank == keys->rank && type_find_axis(keys, v->axes[last]) < 0) {
        values.axes[last] = v->axes[last];
        values.dims[last] = v->dims[last] <= longest ? v->dims[last] : 0;
    }
    if (!check_cache(node, 2, &values, 2, diag)) return false;
    bool alike = v->axes[0] == k->axes[0] && v->axes[1] == k->axes[1] && v->dims[0] == k->dims[0] &&
                 v->dims[1] == k->dims[1];
    return alike || fail_operand(node, 2, diag, "must be as large as the cache of keys");
}

/* q [batch, seq, kv_heads, (group,) head], caches of k and v [sequences, context, kv_heads, head]
 * (of values: head, or an axis of their own), rows, places, perhaps where documents begin
 * i32[batch, seq] -> like q, with the values' last axis. Or q [batch, seq, heads, head] and caches
 * [sequences, context, head] that all heads share. */
bool infer_cache_attention(Graph *graph, Node *node, Diag *diag) {
    const Type *q = value_type(node->inputs[0]);
    int64_t window = node_int(node, ATTR_window, 1);
    const bool shared = q->rank == 4 && value_type(node->inputs[1])->rank == 3;
    const int64_t longest = shared ? ATTENTION_LONGEST_SHARED : ATTENTION_LONGEST_HEAD;
    bool fits = dtype_is_float(q->dtype) && (q->rank == 4 || q->rank == 5) &&
                q->axes[1] == node_axis(node, ATTR_seq) &&
                q->axes[q->rank - 1] == node_axis(node, ATTR_head) &&
                q->dims[q->rank - 1] <= longest;
    (void)graph;
    if (!fits) return fail_operand(node, 0, diag, "must be queries as attention has them");
    Type keys = *q;
    keys.rank = shared ? 3 : 4;
    keys.axes[keys.rank - 1] = q->axes[q->rank - 1];
    keys.dims[keys.rank - 1] = q->dims[q->rank - 1];
    if (!check_cache(node, 1, &keys, 2, diag) || !check_cached_values(node, &keys, longest, diag)) {
        return false;
    }
    if (!decode_check_numbers(node, 3, q, 1, diag) || !decode_check_numbers(node, 4, q, 2, diag))
        return false;
    if (node->n_inputs == 6 && !decode_check_numbers(node, 5, q, 2, diag)) return false;
    if (window < 1) {
        diag_error(diag, node->loc, "cache_attention: a window of %lld", (long long)window);
        return false;
    }
    if (!attention_check_factors(node, diag)) return false;
    const Type *v = value_type(node->inputs[2]);
    node->types[0] = *q;
    node->types[0].axes[q->rank - 1] = v->axes[v->rank - 1];
    node->types[0].dims[q->rank - 1] = v->dims[v->rank - 1];
    node->types[1] = *q;
    node->types[1].rank--;
    node->types[1].dtype = DTYPE_F32;
    return true;
}

/* x [batch, seq, ...], numbers i32[batch] -> [batch, seq=1, ...] */
bool infer_select_row(Graph *graph, Node *node, Diag *diag) {
    const Type *x = value_type(node->inputs[0]);
    (void)graph;
    if (x->rank < 2 || x->axes[1] != node_axis(node, ATTR_seq)) {
        return fail_operand(node, 0, diag, "must be [batch, seq, ...]");
    }
    if (!decode_check_numbers(node, 1, x, 1, diag)) return false;
    node->types[0] = *x;
    node->types[0].dims[1] = 1;
    return true;
}
