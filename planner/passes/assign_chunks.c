/* assign_chunks: contiguous runs of blocks become pipeline chunks.
 *
 * What comes before the blocks (embedding) runs with the first chunk, what comes after (final norm,
 * head, loss) with the last. The split minimises the costliest chunk by dynamic programming over
 * the FLOPs of each block, of which those below all that train have no backward. Where a stage
 * holds several chunks, or a heavy head leaves the others room, many splits are equal by that
 * measure: blocks are then moved from chunk to chunk as long as that lowers the costliest stage, or
 * evens out stages, or chunks. All deterministic.
 *
 * Every chunk gets a block where there are enough. Where there are not, the first and the last can
 * do without (Llama 3's 126 layers in 128 chunks, arXiv 2407.21783, section 3.3.2), as long as no
 * stage is left with next to nothing to do. --split may leave any chunk without: such a chunk
 * passes on what it receives.
 */
#include "ir/teacher.h"
#include "planner/passes/pass.h"
#include "planner/plan/schedule.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Forward and backward: a forward's FLOPs once more for each operand that gets a gradient. Without
 * frozen parameters all get one, but for masks and their like, and the forward says it all. */
static double backward_factor(const Node *node, const bool *learns) {
    int n = 0, n_learning = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        if (!dtype_is_float(value_type(node->inputs[i])->dtype)) continue;
        n++;
        n_learning += learns[node->inputs[i].node->id];
    }
    return n ? 1 + 2.0 * n_learning / n : 1;
}

/* `learns`: graph_find_learning, or NULL: nothing is frozen. */
static double node_cost(const Node *node, const bool *learns) {
    Type inputs[8];
    if (node->n_inputs > 8) return 0;
    for (int i = 0; i < node->n_inputs; i++) inputs[i] = *value_type(node->inputs[i]);
    double factor = learns ? backward_factor(node, learns) : 1;
    return factor * OPS[node->op].flops(node, inputs, node->types);
}

/* Does the node depend on a block? Nodes without a block that do not belong to the first chunk. */
static bool *find_after_blocks(const Graph *graph, Arena *arena) {
    bool *after = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        after[n] = node->block != NO_BLOCK && !(OPS[node->op].flags & LEAF);
        for (int i = 0; i < node->n_inputs; i++) after[n] |= after[node->inputs[i].node->id];
    }
    return after;
}

typedef struct Split {
    int n_blocks, n_chunks;
    Path path;
    const double *sum; /* of the costs of the first i blocks */
    double before, after;
    int least_first, least_last; /* blocks of the first and the last chunk: 0 or 1 */
} Split;

static int least_blocks(const Split *split, int chunk) {
    return chunk == 0 ? split->least_first : chunk == split->n_chunks - 1 ? split->least_last : 1;
}

/* Of all chunks. */
static int count_least(const Split *split) {
    return split->n_chunks - 2 + split->least_first + split->least_last;
}

static double chunk_cost(const Split *split, int chunk, int begin, int end) {
    return split->sum[end] - split->sum[begin] + (chunk == 0 ? split->before : 0) +
           (chunk == split->n_chunks - 1 ? split->after : 0);
}

/* Where the last of a run of blocks that ends at `end` begins, so that the larger of `most`, which
 * the chunks before need and never falls, and its own cost, which never rises, is least; of equal
 * places the first. `at` is one below or at the place where `most` becomes the larger, which moves
 * with `end` one way only. */
static int find_begin(const Split *split, int chunk, const double *most, int first, int last,
                      int end, int *at) {
    while (*at < last && most[*at] < chunk_cost(split, chunk, *at, end)) ++*at;
    int begin = *at;
    double least = chunk_cost(split, chunk, begin, end);
    if (most[begin] > least) least = most[begin];
    while (begin > first) {
        double cost = chunk_cost(split, chunk, begin - 1, end);
        if (most[begin - 1] > cost) cost = most[begin - 1];
        if (cost > least) break;
        least = cost;
        begin--;
    }
    return begin;
}

/* cuts[c] = first block of chunk c, minimising the largest chunk. */
static void balance(const Split *split, int *cuts, Arena *arena) {
    int n_blocks = split->n_blocks, n_chunks = split->n_chunks, width = n_blocks + 1;
    int needed = 0,
        needed_after = count_least(split); /* by the chunks so far; by those that follow */
    double *best = ARENA_ARRAY(arena, double, (size_t)width * 2), *next = best + width;
    int *from = ARENA_ARRAY(arena, int, (size_t)width *(size_t)(n_chunks + 1));
    for (int i = 1; i < width; i++) best[i] = 1e300;
    for (int c = 0; c < n_chunks; c++) {
        int least = least_blocks(split, c), needed_before = needed, at = needed_before;
        needed += least, needed_after -= least;
        for (int end = needed; end <= n_blocks - needed_after; end++) {
            int begin = find_begin(split, c, best, needed_before, end - least, end, &at);
            double cost = chunk_cost(split, c, begin, end);
            next[end] = best[begin] > cost ? best[begin] : cost;
            from[(size_t)(c + 1) * (size_t)width + (size_t)end] = begin;
        }
        double *swap = best;
        best = next;
        next = swap;
    }
    for (int c = n_chunks, end = n_blocks; c > 0; c--) {
        cuts[c - 1] = end = from[(size_t)c * (size_t)width + (size_t)end];
    }
}

/* Costliest stage, then the squares of stages and of chunks: smaller is better, in this order. */
typedef struct Badness {
    double most, stages, chunks;
} Badness;

static Badness rate(const Split *split, const int *cuts, double *stage_cost) {
    Badness bad = {0};
    for (int s = 0; s < split->path.p; s++) stage_cost[s] = 0;
    for (int c = 0; c < split->n_chunks; c++) {
        int end = c + 1 < split->n_chunks ? cuts[c + 1] : split->n_blocks;
        double cost = chunk_cost(split, c, cuts[c], end);
        stage_cost[path_stage(split->path, c)] += cost;
        bad.chunks += cost * cost;
    }
    for (int s = 0; s < split->path.p; s++) {
        if (stage_cost[s] > bad.most) bad.most = stage_cost[s];
        bad.stages += stage_cost[s] * stage_cost[s];
    }
    return bad;
}

/* Differences that only rounding makes do not count: they would move blocks in circles. */
static bool is_better(const Badness *a, const Badness *b) {
    const double less = 1 - 1e-9;
    if (a->most < b->most * less) return true;
    if (a->most * less > b->most) return false;
    if (a->stages < b->stages * less) return true;
    if (a->stages * less > b->stages) return false;
    return a->chunks < b->chunks * less;
}

/* Can a block more for chunk `to` be no gain at all? Its stage would then cost at least as much as
 * the chunk, and is_better looks at the costliest stage first. Says so of most pairs, at once. */
static bool is_too_much(const Split *split, const int *cuts, int from, int to, double most) {
    int end = to + 1 < split->n_chunks ? cuts[to + 1] : split->n_blocks;
    int begin = from < to ? cuts[to] - 1 : cuts[to];
    if (from > to) end++;
    Badness then = {chunk_cost(split, to, begin, end), 0, 0}, now = {most, INFINITY, INFINITY};
    return !is_better(&then, &now);
}

/* Moves one block from one chunk to another, those between passing one on. *bad: of the cuts. */
static bool try_move(const Split *split, int *cuts, int from, int to, Badness *bad, int *trial,
                     double *work) {
    int first = from < to ? from + 1 : to + 1, last = from < to ? to : from;
    int end = from + 1 < split->n_chunks ? cuts[from + 1] : split->n_blocks;
    if (end - cuts[from] <= least_blocks(split, from)) return false;
    if (is_too_much(split, cuts, from, to, bad->most)) return false;
    memcpy(trial, cuts, sizeof(int) * (size_t)split->n_chunks);
    for (int c = first; c <= last; c++) trial[c] += from < to ? -1 : 1;
    Badness then = rate(split, trial, work);
    if (!is_better(&then, bad)) return false;
    memcpy(cuts, trial, sizeof(int) * (size_t)split->n_chunks);
    *bad = then;
    return true;
}

static void even_out(const Split *split, int *cuts, Arena *arena) {
    enum { MOST_ROUNDS = 1000 };
    int *trial = ARENA_ARRAY(arena, int, split->n_chunks);
    double *work = ARENA_ARRAY(arena, double, split->path.p);
    Badness bad = rate(split, cuts, work);
    bool moved = true;
    for (int round = 0; moved && round < MOST_ROUNDS; round++) {
        moved = false;
        for (int from = 0; from < split->n_chunks; from++) {
            for (int to = 0; to < split->n_chunks; to++) {
                if (from != to) moved |= try_move(split, cuts, from, to, &bad, trial, work);
            }
        }
    }
}

static bool cut_as_told(PassContext *ctx, int n_chunks, int *cuts) {
    const PlanOptions *options = &ctx->options;
    int64_t total = 0;
    if (options->n_split != n_chunks) {
        diag_error(ctx->diag, NO_LOC, "--split names %d parts; p=%d x %d chunks need %d",
                   options->n_split, options->mesh.size[MESH_P], options->n_chunks, n_chunks);
        return false;
    }
    for (int c = 0; c < n_chunks; c++) {
        if (options->split[c] < 0) BUG("part %d of %d blocks", c + 1, options->split[c]);
        if (total <= ctx->n_blocks) cuts[c] = (int)total;
        total += options->split[c];
    }
    if (total == ctx->n_blocks) return true;
    diag_error(ctx->diag, NO_LOC, "--split adds up to %" PRId64 " blocks; the model has %d", total,
               ctx->n_blocks);
    return false;
}

/* Where blocks are fewer than chunks: an end may go without if its stage has other chunks, or if
 * what it carries is nearer to a block's work than to none. */
static int least_at_end(const Split *split, double carried) {
    double block = split->sum[split->n_blocks] / split->n_blocks;
    bool may_lack = split->n_chunks > split->path.p || carried >= block / 2;
    return split->n_blocks >= split->n_chunks || !may_lack;
}

static bool check_count(const Split *split, PassContext *ctx) {
    int needed = count_least(split);
    if (split->n_blocks >= needed) return true;
    diag_error(ctx->diag, NO_LOC,
               "p=%d x %d chunks need at least %d blocks; the model has %d: --split can leave any "
               "without",
               split->path.p, ctx->options.n_chunks, needed, split->n_blocks);
    return false;
}

/* FLOPs of the blocks, and of what comes before and after. */
static Split measure(const Graph *in, const bool *after, PassContext *ctx, int n_chunks) {
    double *costs = ARENA_ARRAY(ctx->arena, double, ctx->n_blocks + 1);
    double *sum = ARENA_ARRAY(ctx->arena, double, ctx->n_blocks + 1);
    Path path = {schedule_path(schedule_find(ctx->options.schedule)),
                 ctx->options.mesh.size[MESH_P]};
    Split split = {ctx->n_blocks, n_chunks, path, sum, 0, 0, 1, 1};
    const bool *learns = graph_has_frozen(in) ? graph_find_learning(in, ctx->arena) : NULL;
    for (int n = 0; n < in->n_nodes; n++) {
        const Node *node = in->nodes[n];
        double cost = node_cost(node, learns);
        if (node->block != NO_BLOCK) {
            costs[node->block] += cost;
        } else if (after[n]) {
            split.after += cost;
        } else {
            split.before += cost;
        }
    }
    for (int i = 0; i < ctx->n_blocks; i++) sum[i + 1] = sum[i] + costs[i];
    split.least_first = least_at_end(&split, split.before);
    split.least_last = least_at_end(&split, split.after);
    return split;
}

static bool find_cuts(const Graph *in, const bool *after, PassContext *ctx, int n_chunks,
                      int *cuts) {
    if (ctx->options.split) return cut_as_told(ctx, n_chunks, cuts);
    Split split = measure(in, after, ctx, n_chunks);
    if (!check_count(&split, ctx)) return false;
    balance(&split, cuts, ctx->arena);
    even_out(&split, cuts, ctx->arena);
    return true;
}

static bool has_teacher(const Graph *graph) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_PARAM && teacher_own_name(node_string(node, ATTR_name))) return true;
    }
    return false;
}

/* By id: the chunk of a node. Where a teacher's blocks come first, what is made of no block goes
 * with the first that reads it: else a student's embeddings, and their gradients, would travel past
 * all of the teacher's. */
static int *find_chunks(const Graph *in, const bool *after, const PassContext *ctx, int n_chunks) {
    int *chunks = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1);
    int *first = ARENA_ARRAY(ctx->arena, int, in->n_nodes + 1); /* of readers */
    const bool waits = has_teacher(in);
    for (int n = 0; n < in->n_nodes; n++) first[n] = n_chunks;
    for (int n = in->n_nodes - 1; n >= 0; n--) {
        const Node *node = in->nodes[n];
        if (node->block >= ctx->n_blocks) BUG("block %d of %d", node->block, ctx->n_blocks);
        bool moves = waits && first[n] < n_chunks && !(OPS[node->op].flags & LEAF) &&
                     !op_reads_tokens(node->op) && node->op != OP_NARROW;
        chunks[n] = node->block != NO_BLOCK ? ctx->chunk_of_block[node->block]
                    : after[n]              ? n_chunks - 1
                    : moves                 ? first[n]
                                            : 0;
        for (int i = 0; i < node->n_inputs; i++) {
            int *of = &first[node->inputs[i].node->id];
            if (chunks[n] < *of) *of = chunks[n];
        }
    }
    return chunks;
}

/* Lanes' rows of inputs, and documents of tokens: made of inputs alone, which are at hand
 * everywhere.
 */
static bool is_of_inputs(const Node *node) {
    if (node->op == OP_NARROW) return node->inputs[0].node->op == OP_INPUT;
    if (!op_reads_tokens(node->op)) return false;
    const Node *tokens = node->inputs[0].node;
    return OPS[tokens->op].flags & LEAF || is_of_inputs(tokens);
}

/* The like of `from` in the chunk, which the map says from here on. */
static bool find_again(const Node *from, int chunk, ValueMap *map, Graph *out, Diag *diag) {
    const Node *found = value_map_at(map, node_value((Node *)from, 0))->node;
    const Node *read = from->inputs[0].node;
    if (found->chunk == chunk) return true;
    if (is_of_inputs(read) && !find_again(read, chunk, map, out, diag)) return false;
    Value input = *value_map_at(map, from->inputs[0]);
    Node *here = graph_copy_node(out, found, &input, diag);
    if (!here) return false;
    here->chunk = chunk;
    value_map_set_node(map, from, here);
    return true;
}

/* What a node of another chunk reads of such is made anew there: nothing more crosses borders. */
static bool find_all_again(const Node *node, int chunk, ValueMap *map, Graph *out, Diag *diag) {
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        bool again = is_of_inputs(from) && !op_reads_tokens(node->op);
        if (again && !find_again(from, chunk, map, out, diag)) return false;
    }
    return true;
}

Graph *pass_assign_chunks(const Graph *in, PassContext *ctx) {
    int n_chunks = ctx->options.mesh.size[MESH_P] * ctx->options.n_chunks;
    bool *after = find_after_blocks(in, ctx->arena);
    if (n_chunks > 1) {
        int *cuts = ARENA_ARRAY(ctx->arena, int, n_chunks + 1);
        if (!find_cuts(in, after, ctx, n_chunks, cuts)) return NULL;
        cuts[n_chunks] = ctx->n_blocks;
        for (int c = 0; c < n_chunks; c++) {
            for (int b = cuts[c]; b < cuts[c + 1]; b++) ctx->chunk_of_block[b] = c;
        }
    }
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    const int *chunks = find_chunks(in, after, ctx, n_chunks);
    for (int n = 0; n < in->n_nodes; n++) {
        int chunk = chunks[n];
        if (!find_all_again(in->nodes[n], chunk, &map, out, ctx->diag)) return NULL;
        Node *copy = value_map_copy(&map, in->nodes[n], out, ctx->diag);
        if (!copy) return NULL;
        copy->chunk = chunk;
        for (int i = 0; i < copy->n_inputs; i++) {
            const Node *from = copy->inputs[i].node;
            if (from->chunk <= copy->chunk || (OPS[from->op].flags & LEAF)) continue;
            diag_error(ctx->diag, copy->loc,
                       "%s: reads a value of a later pipeline chunk; blocks must be used in order",
                       OPS[copy->op].name);
            diag_note(ctx->diag, from->loc, "the value is made here");
            return NULL;
        }
    }
    return out;
}
