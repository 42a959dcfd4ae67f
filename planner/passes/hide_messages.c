/* hide_messages: work that a message does not need lies between its start and who reads it.
 *
 * Messages are those among the ranks that divide a layer, over t, c and e. Within one block of one
 * task nodes are put in the order in which a rank with one stream for work and one for messages
 * would best begin them (list scheduling, Graham 1969). First comes what a message waits for that
 * needs no more products, then what the first message in line waits for, and while that itself
 * waits, what can be done without: products of weights' gradients, the shared expert, the other
 * parts of the slots (part_slots.c), the other lanes (part_batch.c). Nodes of one kind keep their
 * order, so what is added up is added in the same order, and every rank, which runs the same
 * program, has the same order of messages.
 *
 * Lanes are work enough for each other's messages. What only gradients of weights need is then done
 * while a message is under way, and not kept for the end of the block, where its operands would
 * take room; and lanes go on from block to block. What leads to a message in the next block without
 * products (a norm, before the rows of all ranks are gathered) belongs to the end of this one, and
 * what waits for the last message of this one to the beginning of the next.
 *
 * How long the work takes beside a message is a guess in units of FLOPs: a rank's products, memory
 * and links in the proportions of an H100 whose group lies in a node. Where links are slower, less
 * work than could be is beside the first messages, and more beside the last, which gets all that is
 * left; so nothing is lost as long as all of it is shorter than the messages.
 *
 * What goes to another stage, and what comes from one, keeps its order: its receiver has the same.
 *
 * In a process on CPUs nothing overlaps, and nothing moves.
 */
#include "planner/passes/pass.h"

#include <string.h>

/* 600 TFLOP/s in products, 3 TB/s of memory, 300 GB/s to others of the node. */
enum { FLOPS_PER_BYTE = 200, FLOPS_PER_BYTE_SENT = 2000, MOST_MESSAGES = 64 };

/* Nodes of one block and task, by id, ascending but for those that the block before left. */
typedef struct Section {
    int *ids, n;
} Section;

typedef struct Scheduler {
    PassContext *ctx;
    const Graph *in;
    Type *operands;                   /* room for the widest node's */
    double *work;                     /* by id: how long it takes, in FLOPs */
    double *done;                     /* by id: when it is; of nodes with a place */
    int *task;                        /* by id: whose clock that is */
    uint64_t *messages;               /* by id, a bit each: of its section, those that need it */
    int products_left[MOST_MESSAGES]; /* that the message still needs */
    bool *placed, *leads;             /* by id; leads: to a message of the next block */
    int *crosses;                     /* by id: of a send or receive the task's one before, or -1 */
    bool *aside;                      /* by id: with lanes, only gradients of weights need it */
    int *order;                       /* [n_nodes] ids */
    int n_placed, n_tasks;
    double now, sent; /* when the work so far, and the messages so far, are done */
} Scheduler;

static bool has_messages(const Mesh *mesh) {
    return mesh->size[MESH_T] > 1 || mesh->size[MESH_C] > 1 || mesh->size[MESH_E] > 1;
}

static bool same_task(const Node *a, const Node *b) {
    return a->phase == b->phase && a->chunk == b->chunk;
}

static bool same_section(const Node *a, const Node *b) {
    return same_task(a, b) && a->block == b->block;
}

/* A weight of all ranks of d: gathered right before its first reader, so that spread_messages finds
 * gathers in the order in which they are read. */
static bool is_gathered_weight(const Node *node) {
    return node->op == OP_ALL_GATHER && !node_overlaps(node) &&
           OPS[node->inputs[0].node->op].flags & LEAF;
}

/* Is it there without work of the section's own? */
static bool is_given(const Node *node) {
    return OPS[node->op].flags & LEAF || is_gathered_weight(node);
}

static double estimate_flops(const Scheduler *s, const Node *node) {
    const Mesh *mesh = &s->in->mesh;
    Type outputs[MAX_OUTPUTS];
    double bytes = 0;
    bool data = OPS[node->op].flags & COLLECTIVE && !node_overlaps(node); /* beside all of it */
    if (!(OPS[node->op].flags & KERNEL) || data) return 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const Value in = node->inputs[i];
        s->operands[i] = type_local(value_type(in), value_sharding(in), mesh);
        bytes += (double)type_local_bytes(value_type(in), value_sharding(in), mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = type_local(&node->types[o], &node->shardings[o], mesh);
        bytes += (double)type_local_bytes(&node->types[o], &node->shardings[o], mesh);
    }
    if (OPS[node->op].flags & COLLECTIVE) {
        Value whole = node->op == OP_ALL_GATHER ? node_value((Node *)node, 0) : node->inputs[0];
        double sent = (double)type_local_bytes(value_type(whole), value_sharding(whole), mesh);
        return (node->op == OP_ALL_REDUCE ? 2 : 1) * sent * FLOPS_PER_BYTE_SENT;
    }
    double flops = OPS[node->op].flops(node, s->operands, outputs);
    return flops > bytes * FLOPS_PER_BYTE ? flops : bytes * FLOPS_PER_BYTE;
}

/* Fills `aside`: what all of its task that reads it is only for gradients of weights, or is one. */
static void find_aside(Scheduler *s) {
    const Graph *graph = s->in;
    bool *read = ARENA_ARRAY(s->ctx->arena, bool, graph->n_nodes + 1);   /* by the task's others */
    bool *summed = ARENA_ARRAY(s->ctx->arena, bool, graph->n_nodes + 1); /* by the update */
    for (int n = graph->n_nodes - 1; n >= 0; n--) {
        const Node *node = graph->nodes[n];
        s->aside[n] = node->n_outputs > 0 && node->phase != PHASE_FORWARD && summed[n] && !read[n];
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool updates = node->phase == PHASE_UPDATE && from->phase != PHASE_UPDATE;
            bool sums = updates || (s->aside[n] && same_task(from, node));
            summed[from->id] |= sums;
            read[from->id] |= !sums;
        }
    }
}

/* Of nodes [first, end), the next block's, those that a message there needs and that need no
 * product of that block, but something of the task so far. */
static void find_leading(const Scheduler *s, int first, int end) {
    for (int n = first; n < end; n++) {
        const Node *node = s->in->nodes[n];
        unsigned flags = OPS[node->op].flags;
        bool all = flags & KERNEL && !op_multiplies(node->op) && node->op != OP_ACCUMULATE;
        bool follows = false;
        for (int i = 0; i < node->n_inputs; i++) {
            const Node *from = node->inputs[i].node;
            bool given = is_given(from);
            all &= given || from->id < first || s->leads[from->id];
            follows |= same_task(from, node) && !given;
        }
        s->leads[n] = all && follows;
    }
    bool *needed = s->placed; /* of nodes without a place yet; cleared again */
    for (int n = end - 1; n >= first; n--) {
        const Node *node = s->in->nodes[n];
        needed[n] |= s->leads[n] && node_overlaps(node);
        s->leads[n] = needed[n] && (is_given(node) || s->leads[n]);
        for (int i = 0; s->leads[n] && i < node->n_inputs; i++) {
            if (node->inputs[i].node->id >= first) needed[node->inputs[i].node->id] = true;
        }
        needed[n] = false;
    }
}

static void find_crossings(Scheduler *s) {
    int last[2] = {-1, -1}; /* send, receive */
    for (int n = 0; n < s->in->n_nodes; n++) {
        const Node *node = s->in->nodes[n];
        int *before = &last[node->op == OP_RECV];
        s->crosses[n] = -1;
        if (node->op != OP_SEND && node->op != OP_RECV) continue;
        if (*before >= 0 && same_task(s->in->nodes[*before], node)) s->crosses[n] = *before;
        *before = n;
    }
}

/* A product, done or still to be, of these messages. */
static void count_product(Scheduler *s, const Node *node, uint64_t needs, int by) {
    if (!op_multiplies(node->op)) return;
    for (; needs; needs &= needs - 1) s->products_left[__builtin_ctzll(needs)] += by;
}

/* Which messages of the section each node there is needed for; a message is so itself. More than 64
 * share the last bit. Returns all. */
static uint64_t find_needs(Scheduler *s, const Section *section) {
    uint64_t next = 1, all = 0;
    for (int k = 0; k < section->n; k++) {
        int n = section->ids[k];
        s->messages[n] = 0;
        if (!node_overlaps(s->in->nodes[n])) continue;
        s->messages[n] = next;
        all |= next;
        if (next << 1) next <<= 1;
    }
    memset(s->products_left, 0, sizeof(s->products_left));
    for (int k = section->n - 1; k >= 0; k--) {
        const Node *node = s->in->nodes[section->ids[k]];
        uint64_t needs = s->messages[node->id];
        for (int i = 0; i < node->n_inputs; i++) s->messages[node->inputs[i].node->id] |= needs;
        count_product(s, node, needs, 1);
    }
    return all;
}

/* When what the node reads of its task is there; -1: some of it has no place yet. */
static double find_ready(const Scheduler *s, const Node *node) {
    double ready = 0;
    int before = s->crosses[node->id];
    if (before >= 0 && !s->placed[before]) return -1;
    for (int i = 0; i < node->n_inputs; i++) {
        int id = node->inputs[i].node->id;
        if (!s->placed[id] && is_gathered_weight(node->inputs[i].node)) continue;
        if (!s->placed[id]) return -1;
        if (s->task[id] == s->n_tasks && s->done[id] > ready) ready = s->done[id];
    }
    return ready;
}

/* The place in line of the first message that needs the node: those without products come first. */
static int find_line(const Scheduler *s, uint64_t needs) {
    int line = 2 * MOST_MESSAGES;
    for (; needs; needs &= needs - 1) {
        int m = __builtin_ctzll(needs);
        int at = s->products_left[m] ? MOST_MESSAGES + m : m;
        if (at < line) line = at;
    }
    return line;
}

/* The next node: of those that can start now, what gradients of weights need while a message is
 * under way; or one that the first message in line needs; or any. Else the one that can soonest.
 * *out_start: when. */
static int find_next(const Scheduler *s, const Section *section, uint64_t left, double *out_start) {
    int needed = -1, other = -1, soonest = -1, unread = -1, first = 2 * MOST_MESSAGES;
    double soon = 0;
    for (int k = 0; k < section->n; k++) {
        int n = section->ids[k];
        double ready = s->placed[n] ? -1 : find_ready(s, s->in->nodes[n]);
        if (ready < 0) continue;
        if (is_gathered_weight(s->in->nodes[n])) {
            unread = n;
            continue;
        }
        uint64_t needs = s->messages[n] & left;
        bool aside = s->aside[n] && !node_overlaps(s->in->nodes[n]) && s->sent > s->now;
        int line = aside ? -1 : find_line(s, needs);
        if (ready <= s->now && line < first) {
            needed = n;
            first = line;
        }
        if (ready <= s->now && other < 0) other = n;
        if (soonest < 0 || ready < soon) soonest = n, soon = ready;
    }
    *out_start = s->now;
    if (needed >= 0) return needed;
    if (other >= 0) return other;
    if (soonest < 0 && unread >= 0) return unread;
    if (soonest < 0) BUG("hide_messages: no node of %d can be next", section->n);
    *out_start = soon;
    return soonest;
}

static void place(Scheduler *s, const Node *node, double start) {
    bool message = node_overlaps(node);
    int before = s->crosses[node->id];
    if (before >= 0 && !s->placed[before]) place(s, s->in->nodes[before], start);
    for (int i = 0; i < node->n_inputs; i++) {
        const Node *from = node->inputs[i].node;
        if (!s->placed[from->id]) place(s, from, start);
    }
    if (message && start > s->sent) s->sent = start;
    if (message) {
        s->now = start;
        s->done[node->id] = s->sent += s->work[node->id];
    } else {
        s->done[node->id] = s->now = start + s->work[node->id];
    }
    count_product(s, node, s->messages[node->id], -1);
    s->placed[node->id] = true;
    s->task[node->id] = s->n_tasks;
    s->order[s->n_placed++] = node->id;
}

/* Has a product of the section no place yet? */
static bool has_products(const Scheduler *s, const Section *section) {
    bool any = false;
    for (int k = 0; k < section->n; k++) {
        int n = section->ids[k];
        any |= !s->placed[n] && op_multiplies(s->in->nodes[n]->op);
    }
    return any;
}

/* Gives the section's nodes their places; with `leaves`, but for what has to wait once all products
 * are done. How many those are, now the section's first. */
static int schedule_section(Scheduler *s, Section *section, bool leaves) {
    uint64_t left = find_needs(s, section);
    int n_left = 0;
    for (const int end = s->n_placed + section->n; s->n_placed < end;) {
        double start = s->now;
        const Node *node = s->in->nodes[find_next(s, section, left, &start)];
        if (leaves && start > s->now && !has_products(s, section)) break;
        if (node_overlaps(node)) left &= ~(s->messages[node->id] & -s->messages[node->id]);
        place(s, node, start);
    }
    for (int k = 0; k < section->n; k++) {
        if (!s->placed[section->ids[k]]) section->ids[n_left++] = section->ids[k];
    }
    return n_left;
}

static bool any_message(const Scheduler *s, const Section *section) {
    bool any = false;
    for (int k = 0; k < section->n; k++) any |= node_overlaps(s->in->nodes[section->ids[k]]);
    return any;
}

/* Where the section that begins with node `first` ends. */
static int find_end(const Graph *graph, int first) {
    int end = first + 1;
    while (end < graph->n_nodes && same_section(graph->nodes[first], graph->nodes[end])) end++;
    return end;
}

static void schedule(Scheduler *s) {
    const Graph *graph = s->in;
    const bool lanes = graph_has_lanes(graph);
    Section section = {.ids = ARENA_ARRAY(s->ctx->arena, int, graph->n_nodes + 1)};
    for (int first = 0, end; first < graph->n_nodes; first = end) {
        end = find_end(graph, first);
        for (int n = first; n < end; n++) {
            if (!s->leads[n]) section.ids[section.n++] = n;
        }
        bool goes_on =
            lanes && end < graph->n_nodes && same_task(graph->nodes[first], graph->nodes[end]);
        if (goes_on) {
            int after = find_end(graph, end);
            find_leading(s, end, after);
            for (int n = end; n < after; n++) {
                if (s->leads[n]) section.ids[section.n++] = n;
            }
        }
        if (any_message(s, &section)) {
            section.n = schedule_section(s, &section, goes_on);
        } else {
            for (int k = 0; k < section.n; k++) place(s, graph->nodes[section.ids[k]], s->now);
            section.n = 0;
        }
        if (goes_on) continue;
        if (section.n > 0) BUG("hide_messages: %d nodes are left", section.n);
        s->now = s->sent = 0;
        s->n_tasks++;
    }
}

Graph *pass_hide_messages(const Graph *in, PassContext *ctx) {
    if (!ctx->options.cuda || ctx->options.waits_for_messages || !has_messages(&in->mesh))
        return (Graph *)in;
    int n_nodes = in->n_nodes, most = 1;
    for (int n = 0; n < n_nodes; n++) {
        if (in->nodes[n]->n_inputs > most) most = in->nodes[n]->n_inputs;
    }
    Scheduler s = {.ctx = ctx, .in = in};
    s.operands = ARENA_ARRAY(ctx->arena, Type, most);
    s.work = ARENA_ARRAY(ctx->arena, double, n_nodes + 1);
    s.done = ARENA_ARRAY(ctx->arena, double, n_nodes + 1);
    s.task = ARENA_ARRAY(ctx->arena, int, n_nodes + 1);
    s.messages = ARENA_ARRAY(ctx->arena, uint64_t, n_nodes + 1);
    s.placed = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1);
    s.leads = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1);
    s.crosses = ARENA_ARRAY(ctx->arena, int, n_nodes + 1);
    s.aside = ARENA_ARRAY(ctx->arena, bool, n_nodes + 1);
    s.order = ARENA_ARRAY(ctx->arena, int, n_nodes + 1);
    for (int n = 0; n < n_nodes; n++) s.work[n] = estimate_flops(&s, in->nodes[n]);
    find_crossings(&s);
    if (graph_has_lanes(in)) find_aside(&s);
    schedule(&s);
    Graph *out = graph_create_like(in, ctx->arena);
    ValueMap map = value_map_create(in, ctx->arena);
    for (int k = 0; k < n_nodes; k++) {
        if (!value_map_copy(&map, in->nodes[s.order[k]], out, ctx->diag)) return NULL;
    }
    return out;
}
