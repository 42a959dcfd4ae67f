#include "runtime/comm/tcp_internal.h"

#include <string.h>

enum { WHOLE_BYTES = TCP_BLOCK_BYTES }; /* to all others together: sent whole, and summed by each */

/* What all collectives below know of their call. */
typedef struct Collective {
    TcpExchange exchange;
    TcpGroup *group;
    const CommCall *call;
    size_t element, row; /* bytes of one, and of `inner` of them */
    char *in, *out;      /* `in` is not written unless it is `out` */
} Collective;

/* --- what is where --- */

static TcpRuns one_run(char *base, size_t offset, size_t bytes) {
    return (TcpRuns){.base = base, .n = 1, .offset = {offset, 0}, .bytes = {bytes, 0}};
}

/* Rows that follow each other without a gap are one. */
static TcpRuns even_runs(char *base, size_t n, size_t pitch, size_t bytes) {
    if (bytes == pitch || n == 1) return one_run(base, 0, n * bytes);
    return (TcpRuns){.base = base, .n = n, .pitch = pitch, .bytes = {bytes, 0}};
}

/* A member's rows along the axis: where they lie with the member, or in the whole. */
static TcpRuns axis_runs(const Collective *c, char *base, int member, bool in_whole) {
    const CommCall *call = c->call;
    CommPart parts[2];
    const int n = comm_parts_of(&c->group->base, member, call->axis_local, call->axis_total, parts);
    TcpRuns runs = {.base = base,
                    .n = call->outer,
                    .pitch = (in_whole ? call->axis_total : call->axis_local) * c->row};
    for (int p = 0; p < n; p++) {
        runs.offset[p] = (in_whole ? parts[p].place : parts[p].at) * c->row;
        runs.bytes[p] = parts[p].rows * c->row;
    }
    return runs;
}

static TcpRuns slice_run(const Collective *c, char *base, int member) {
    const size_t count = c->call->inner, slice = comm_slice(&c->group->base, count, c->call->dtype);
    const size_t begin = comm_min((size_t)member * slice, count);
    return one_run(base, begin * c->element, comm_min(slice, count - begin) * c->element);
}

static void copy_runs(const TcpRuns *from, const TcpRuns *to) {
    const size_t total = tcp_runs_bytes(from);
    for (size_t at = 0; at < total;) {
        size_t from_bytes, to_bytes;
        const char *source = tcp_runs_piece(from, at, &from_bytes);
        char *place = tcp_runs_piece(to, at, &to_bytes);
        const size_t bytes = comm_min(from_bytes, to_bytes);
        if (source != place) memcpy(place, source, bytes);
        at += bytes;
    }
}

/* --- flows --- */

/* Both directions of a member's connection: nothing yet but headers. */
static void clear_flows(TcpGroup *group) {
    for (int i = 0; i < group->base.n_members; i++) {
        TcpPeer *peer = group->peers[i];
        if (peer) peer->out = peer->in = (TcpFlow){0};
    }
}

static void set_flow(TcpFlow *flow, size_t staged, TcpRuns first, TcpRuns second) {
    flow->staged = staged;
    flow->runs[0] = first;
    flow->runs[1] = second;
    flow->total = flow->free = staged + tcp_runs_bytes(&first) + tcp_runs_bytes(&second);
}

static const TcpRuns NOTHING = {0};

/* --- collectives --- */

/* Every member sums all of it: for what is small, or one would wait twice. */
static bool all_reduce_whole(Collective *c) {
    const size_t bytes = c->call->inner * c->element;
    for (int i = 0; i < c->group->base.n_members; i++) {
        TcpPeer *peer = c->group->peers[i];
        if (!peer) continue;
        set_flow(&peer->out, 0, one_run(c->in, 0, bytes), NOTHING);
        set_flow(&peer->in, bytes, NOTHING, NOTHING);
    }
    c->exchange.total = bytes;
    c->exchange.own_in = one_run(c->in, 0, bytes);
    c->exchange.own_out = one_run(c->out, 0, bytes);
    c->exchange.sends_first = true;
    return tcp_exchange(&c->exchange);
}

/* Where `in` is `out`: a member's sum of a block comes here only after it has this member's part of
 * that block. */
static bool all_reduce(Collective *c) {
    const int n = c->group->base.n_members, own = c->group->member;
    const size_t bytes = c->call->inner * c->element;
    if (bytes * (size_t)(n - 1) <= WHOLE_BYTES) return all_reduce_whole(c);
    c->exchange.own_in = slice_run(c, c->in, own);
    c->exchange.own_out = slice_run(c, c->out, own);
    c->exchange.total = tcp_runs_bytes(&c->exchange.own_in);
    for (int i = 0; i < n; i++) {
        TcpPeer *peer = c->group->peers[i];
        if (!peer) continue;
        TcpRuns theirs = slice_run(c, c->in, i);
        set_flow(&peer->out, 0, theirs, c->exchange.own_out);
        peer->out.free = tcp_runs_bytes(&theirs);
        set_flow(&peer->in, c->exchange.total, slice_run(c, c->out, i), NOTHING);
    }
    return tcp_exchange(&c->exchange);
}

static bool all_gather(Collective *c) {
    const int own = c->group->member;
    const TcpRuns from = axis_runs(c, c->in, own, false), to = axis_runs(c, c->out, own, true);
    for (int i = 0; i < c->group->base.n_members; i++) {
        TcpPeer *peer = c->group->peers[i];
        if (!peer) continue;
        set_flow(&peer->out, 0, from, NOTHING);
        set_flow(&peer->in, 0, axis_runs(c, c->out, i, true), NOTHING);
    }
    copy_runs(&from, &to);
    return tcp_exchange(&c->exchange);
}

static bool reduce_scatter(Collective *c) {
    const int own = c->group->member;
    const CommCall *call = c->call;
    c->exchange.own_in = axis_runs(c, c->in, own, true);
    c->exchange.own_out = axis_runs(c, c->out, own, false);
    c->exchange.total = tcp_runs_bytes(&c->exchange.own_in);
    for (int i = 0; i < c->group->base.n_members; i++) {
        TcpPeer *peer = c->group->peers[i];
        if (!peer) continue;
        set_flow(&peer->out, 0, axis_runs(c, c->in, i, true), NOTHING);
        set_flow(&peer->in, c->exchange.total, NOTHING, NOTHING);
    }
    const size_t rows = call->outer ? c->exchange.total / (c->row ? c->row : 1) / call->outer : 0;
    for (size_t o = 0; o < call->outer; o++) {
        memset(c->out + (o * call->axis_local + rows) * c->row, 0,
               (call->axis_local - rows) * c->row);
    }
    return tcp_exchange(&c->exchange);
}

/* A member's rows in blocks, [outer, member, rows, width], which are dealt out where the group
 * deals, or strips, [outer, rows, member, width]. */
static TcpRuns member_runs(const Collective *c, char *base, int member, bool strips) {
    const size_t n = (size_t)c->group->base.n_members, rows = c->call->axis_local,
                 at = (size_t)member;
    if (strips) return even_runs(base + at * c->row, c->call->outer * rows, n * c->row, c->row);
    if (c->group->base.deals) return axis_runs(c, base, member, true);
    return even_runs(base + at * rows * c->row, c->call->outer, n * rows * c->row, rows * c->row);
}

static bool all_to_all(Collective *c) {
    const bool strips = c->call->to_strips;
    for (int i = 0; i < c->group->base.n_members; i++) {
        const TcpRuns from = member_runs(c, c->in, i, !strips),
                      to = member_runs(c, c->out, i, strips);
        TcpPeer *peer = c->group->peers[i];
        if (peer) {
            set_flow(&peer->out, 0, from, NOTHING);
            set_flow(&peer->in, 0, to, NOTHING);
        } else {
            copy_runs(&from, &to);
        }
    }
    return tcp_exchange(&c->exchange);
}

/* The root deals out slices, which all pass on as they come. */
static bool broadcast(Collective *c) {
    const int root = c->call->root, own = c->group->member;
    for (int i = 0; i < c->group->base.n_members; i++) {
        TcpPeer *peer = c->group->peers[i];
        if (!peer) continue;
        const TcpRuns theirs = slice_run(c, c->out, i), mine = slice_run(c, c->out, own);
        if (own == root) {
            set_flow(&peer->out, 0, theirs, mine);
        } else if (i == root) {
            set_flow(&peer->in, 0, mine, theirs);
            c->exchange.gate = &peer->in;
        } else {
            set_flow(&peer->out, 0, mine, NOTHING);
            set_flow(&peer->in, 0, theirs, NOTHING);
            peer->out.free = 0;
        }
    }
    return tcp_exchange(&c->exchange);
}

static bool barrier(Collective *c) {
    return tcp_exchange(&c->exchange);
}

bool tcp_collect(CommGroup *base, int member, const CommCall *call, const void *in, void *out,
                 size_t n_in) {
    static bool (*const DO[N_COMM_OPERATIONS])(Collective *) = {
        all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier};
    TcpGroup *group = (TcpGroup *)base;
    const size_t element = (size_t)dtype_bytes(call->dtype);
    Collective c = {.exchange = {.group = group, .call = call},
                    .group = group,
                    .call = call,
                    .element = element,
                    .row = call->inner * element,
                    .in = (char *)in,
                    .out = out};
    if (member != group->member)
        BUG("group '%s': member %d is another process", base->name, member);
    (void)n_in;
    clear_flows(group);
    return DO[call->operation](&c);
}
