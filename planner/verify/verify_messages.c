/* Messages: what one side puts on a channel or communicator is what the other side takes off. */
#include "planner/verify/verify.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The messages of one chunk and direction of a program: its send or receive nodes by `source`. */
typedef struct Border {
    int count, capacity;
    const Node **nodes;
} Border;

/* By program, phase (forward, backward), chunk, and whether the nodes send. */
typedef struct Borders {
    Border of[2][MAX_CHUNKS][2];
} Borders;

typedef struct Messages {
    Verifier *v;
    const Plan *plan;
    Path path;
    const Links *links;
    Borders *borders; /* [n_programs] */
} Messages;

static int by_source(const void *left, const void *right) {
    const Node *a = *(const Node *const *)left, *b = *(const Node *const *)right;
    int64_t x = node_int(a, ATTR_source, 0), y = node_int(b, ATTR_source, 0);
    return x != y ? (x < y ? -1 : 1) : a->id - b->id;
}

/* Both sides have a border's values in the order of their numbers, or one would take what another
 * is to. */
static void check_numbers(Messages *m, int program, const Border *border) {
    for (int i = 1; i < border->count; i++) {
        if (by_source(&border->nodes[i - 1], &border->nodes[i]) < 0) continue;
        const Node *node = border->nodes[i];
        verify_defect(m->v, node->loc,
                      "program %d: %%%d %s: value %" PRId64 " crosses a border of "
                      "stages out of order",
                      program, node->id, OPS[node->op].name, node_int(node, ATTR_source, 0));
        return;
    }
}

static void collect_borders(Messages *m) {
    m->borders = ARENA_ARRAY(m->v->scratch, Borders, m->plan->n_programs);
    for (int i = 0; i < m->plan->n_programs; i++) {
        const Graph *graph = m->plan->programs[i].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op != OP_SEND && node->op != OP_RECV) continue;
            Border *border = &m->borders[i].of[node->phase][node->chunk][node->op == OP_SEND];
            ARENA_PUSH(m->v->scratch, border->nodes, border->count, border->capacity, node);
        }
        Border *all = &m->borders[i].of[0][0][0];
        for (int b = 0; b < 2 * MAX_CHUNKS * 2; b++) {
            if (all[b].count < 2) continue;
            check_numbers(m, i, &all[b]);
            qsort(all[b].nodes, (size_t)all[b].count, sizeof(*all[b].nodes), by_source);
        }
    }
}

static const Border *border_at(const Messages *m, int global, Phase phase, bool send) {
    const Stage *stage = &m->plan->stages[path_stage(m->path, global)];
    return &m->borders[stage->program].of[phase][path_chunk(m->path, global)][send];
}

static const Graph *graph_at(const Messages *m, int global) {
    return m->plan->programs[m->plan->stages[path_stage(m->path, global)].program].graph;
}

static Value message_value(const Node *node) {
    return node->op == OP_SEND ? node->inputs[0] : (Value){(Node *)node, 0};
}

/* Types of two programs: axes are compared by name. */
static bool same_type(const Graph *graph_a, Value a, const Graph *graph_b, Value b) {
    const Type *x = value_type(a), *y = value_type(b);
    if (x->dtype != y->dtype || x->rank != y->rank) return false;
    for (int i = 0; i < x->rank; i++) {
        if (x->dims[i] != y->dims[i]) return false;
        if (strcmp(graph_a->axes.names[x->axes[i]], graph_b->axes.names[y->axes[i]]) != 0) {
            return false;
        }
    }
    return sharding_equal(value_sharding(a), value_sharding(b), x->rank);
}

static const char *type_text(Messages *m, const Graph *graph, Value value) {
    StrBuf out = strbuf_create();
    type_print(&out, &graph->axes, value_type(value), value_sharding(value));
    const char *text = arena_strdup(m->v->scratch, out.text);
    strbuf_destroy(&out);
    return text;
}

static void check_pair(Messages *m, int from, int to, const Node *send, const Node *recv) {
    int sender_stage = path_stage(m->path, from), receiver_stage = path_stage(m->path, to);
    const Graph *sender = graph_at(m, from), *receiver = graph_at(m, to);
    long long x = node_int(send, ATTR_source, 0), y = node_int(recv, ATTR_source, 0);
    if (x != y) {
        verify_defect(m->v, send->loc, "%s sends value %lld (%s) where %s receives value %lld",
                      verify_stage_text(m->v, sender_stage), x,
                      verify_value_text(m->v, sender_stage, message_value(send)),
                      verify_stage_text(m->v, receiver_stage), y);
    } else if (!same_type(sender, message_value(send), receiver, message_value(recv))) {
        verify_defect(m->v, send->loc, "%s sends %s as %s, %s receives %s as %s",
                      verify_stage_text(m->v, sender_stage),
                      verify_value_text(m->v, sender_stage, message_value(send)),
                      type_text(m, sender, message_value(send)),
                      verify_stage_text(m->v, receiver_stage),
                      verify_value_text(m->v, receiver_stage, message_value(recv)),
                      type_text(m, receiver, message_value(recv)));
    }
}

static void check_slot(Messages *m, int from, const Border *sends, int channel) {
    int64_t most = plan_channel_value_bytes(m->plan, channel);
    for (int i = 0; i < sends->count; i++) {
        Value value = message_value(sends->nodes[i]);
        int64_t bytes = type_local_bytes(value_type(value), value_sharding(value), &m->plan->mesh);
        if (bytes <= most) continue;
        verify_defect(m->v, sends->nodes[i]->loc,
                      "%s: a value of %lld bytes that chunk %d sends does not fit its part of the "
                      "slot, %lld bytes",
                      verify_stage_text(m->v, path_stage(m->path, from)), (long long)bytes,
                      path_chunk(m->path, from), (long long)most);
        return;
    }
}

/* What global chunk `from` sends to `to` in the phase, value for value. */
static void check_border(Messages *m, int from, int to, Phase phase) {
    int sender = path_stage(m->path, from), receiver = path_stage(m->path, to);
    const Border *sends = border_at(m, from, phase, true);
    const Border *recvs = border_at(m, to, phase, false);
    uint8_t kind = phase == PHASE_FORWARD ? TASK_SEND_FORWARD : TASK_SEND_BACKWARD;
    Task task = {.kind = kind, .chunk = (uint8_t)path_chunk(m->path, from)};
    int channel = links_find(&m->links[sender], &task);
    for (int i = 0; i < sends->count && i < recvs->count; i++) {
        check_pair(m, from, to, sends->nodes[i], recvs->nodes[i]);
    }
    if (sends->count != recvs->count) {
        const Node *odd =
            sends->count > recvs->count ? sends->nodes[recvs->count] : recvs->nodes[sends->count];
        verify_defect(m->v, odd->loc,
                      "%s sends %d values %s from chunk %d, %s receives %d; one too many is %s",
                      verify_stage_text(m->v, sender), sends->count,
                      phase == PHASE_FORWARD ? "forward" : "backward", task.chunk,
                      verify_stage_text(m->v, receiver), recvs->count,
                      verify_value_text(m->v, sends->count > recvs->count ? sender : receiver,
                                        message_value(odd)));
    }
    if (channel >= 0) check_slot(m, from, sends, channel);
}

static void check_no_border(Messages *m, int global, Phase phase, bool send) {
    const Border *border = border_at(m, global, phase, send);
    if (!border->count) return;
    int stage = path_stage(m->path, global);
    verify_defect(m->v, border->nodes[0]->loc, "%s: %s %s of chunk %d: nothing is on that side",
                  verify_stage_text(m->v, stage), OPS[border->nodes[0]->op].name,
                  verify_value_text(m->v, stage, message_value(border->nodes[0])),
                  border->nodes[0]->chunk);
}

/* Nothing is sent from a stage to itself. */
static void check_turn(Messages *m, int global) {
    for (int send = 0; send < 2; send++) {
        check_no_border(m, send ? global : global + 1, PHASE_FORWARD, send);
        check_no_border(m, send ? global + 1 : global, PHASE_BACKWARD, send);
    }
}

static const char *channel_text(Messages *m, int channel) {
    const Channel *c = &m->plan->channels[channel];
    return arena_printf(m->v->scratch, "channel %s %d->%d", c->backward ? "backward" : "forward",
                        c->from, c->to);
}

static bool joins_neighbours(const Messages *m, int channel) {
    return plan_channel_serves(m->plan, channel, 0) || plan_channel_serves(m->plan, channel, 1);
}

static bool is_there_twice(const Messages *m, int channel) {
    const Channel *c = &m->plan->channels[channel];
    LinkKind kind = c->backward ? LINK_SEND_BACKWARD : LINK_SEND_FORWARD;
    for (int parity = 0; parity < 2; parity++) {
        bool serves = plan_channel_serves(m->plan, channel, parity);
        if (serves && m->links[c->from].channel[kind][parity] != channel) return true;
    }
    return false;
}

/* Every channel joins neighbours, once, and every task that needs one has one. */
static bool check_channels(Messages *m) {
    const Plan *plan = m->plan;
    int p = plan->n_stages, before = m->v->n_defects;
    for (int c = 0; c < plan->n_channels; c++) {
        const Channel *channel = &plan->channels[c];
        int from = channel->from, to = channel->to;
        bool inside = from >= 0 && from < p && to >= 0 && to < p;
        if (!inside || channel->slots < 1 || channel->slot_bytes < 0 ||
            channel->slot_bytes % ALIGN_BYTES) {
            verify_defect(m->v, NO_LOC, "%s: %d slots of %lld bytes between %d stages",
                          channel_text(m, c), channel->slots, (long long)channel->slot_bytes, p);
        } else if (!joins_neighbours(m, c)) {
            verify_defect(m->v, NO_LOC, "%s: joins stages that are no neighbours in the pipeline",
                          channel_text(m, c));
        } else if (is_there_twice(m, c)) {
            verify_defect(m->v, NO_LOC, "%s: is there twice", channel_text(m, c));
        }
    }
    for (int s = 0; s < p; s++) {
        bool used[N_LINK_KINDS][2] = {{false}};
        for (int i = 0; i < plan->stages[s].n_tasks; i++) {
            const Task *task = &plan->stages[s].tasks[i];
            int link = flow_link(task->kind);
            if (link < 0 || used[link][task->chunk % 2]) continue;
            used[link][task->chunk % 2] = true;
            if (links_find(&m->links[s], task) >= 0) continue;
            verify_defect(m->v, NO_LOC, "%s: task %d, %s: there is no channel for it",
                          verify_stage_text(m->v, s), i, verify_task_text(m->v, task));
        }
    }
    return m->v->n_defects == before;
}

/* The stage's next task of `kind` on the channel from *at on, or NULL. */
static const Task *next_of(const Messages *m, int stage, TaskKind kind, int channel, int *at) {
    const Stage *s = &m->plan->stages[stage];
    for (; *at < s->n_tasks; ++*at) {
        const Task *task = &s->tasks[*at];
        if (task->kind != kind || links_find(&m->links[stage], task) != channel) continue;
        return &s->tasks[(*at)++];
    }
    return NULL;
}

/* Both ends of a channel name the same messages in the same order. */
static void check_order(Messages *m, int channel) {
    const Channel *c = &m->plan->channels[channel];
    TaskKind sends = c->backward ? TASK_SEND_BACKWARD : TASK_SEND_FORWARD;
    TaskKind receives = c->backward ? TASK_RECV_BACKWARD : TASK_RECV_FORWARD;
    int at = 0, peer_at = 0;
    for (int number = 0;; number++) {
        const Task *send = next_of(m, c->from, sends, channel, &at);
        const Task *recv = next_of(m, c->to, receives, channel, &peer_at);
        if (!send && !recv) return;
        int sent = send ? path_global(m->path, c->from, send->chunk) + (c->backward ? -1 : 1) : -1;
        bool same = send && recv && send->micro == recv->micro;
        if (same && sent == path_global(m->path, c->to, recv->chunk)) continue;
        verify_defect(
            m->v, NO_LOC, "%s: message %d is %s of %s, but %s of %s", channel_text(m, channel),
            number, send ? verify_task_text(m->v, send) : "no task",
            verify_stage_text(m->v, c->from), recv ? verify_task_text(m->v, recv) : "no task",
            verify_stage_text(m->v, c->to));
        return;
    }
}

void verify_messages(Verifier *v) {
    const Plan *plan = v->plan;
    Messages m = {.v = v, .plan = plan, .path = plan_path(plan)};
    int last = plan->n_stages * plan->n_chunks - 1;
    m.links = flow_find_links(v->scratch, m.path, plan->channels, plan->n_channels);
    collect_borders(&m);
    if (!check_channels(&m)) return;
    for (int g = 0; g < last; g++) {
        if (path_turns(m.path, g)) {
            check_turn(&m, g);
            continue;
        }
        check_border(&m, g, g + 1, PHASE_FORWARD);
        check_border(&m, g + 1, g, PHASE_BACKWARD);
    }
    check_no_border(&m, 0, PHASE_FORWARD, false);
    check_no_border(&m, 0, PHASE_BACKWARD, true);
    check_no_border(&m, last, PHASE_FORWARD, true);
    check_no_border(&m, last, PHASE_BACKWARD, false);
    for (int c = 0; c < plan->n_channels; c++) check_order(&m, c);
}
