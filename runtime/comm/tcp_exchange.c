#include "ir/base/clock.h"
#include "runtime/comm/tcp_internal.h"

#include "runtime/comm/comm_reduce.h"
#include "runtime/comm/comm_wait.h"

#include <string.h>
#include <sys/uio.h>

enum {
    N_PIECES = 128,               /* of one read or write */
    TURN_BYTES = 1 << 19,         /* of one connection, before the others' turn */
    ANNOUNCED_MAGIC = 0x504c4343, /* "PLCC" */
};

char *tcp_runs_piece(const TcpRuns *runs, size_t at, size_t *out_bytes) {
    const size_t row = runs->bytes[0] + runs->bytes[1];
    const size_t within = at % row;
    const int part = within >= runs->bytes[0];
    const size_t begin = part ? within - runs->bytes[0] : within;
    *out_bytes = runs->bytes[part] - begin;
    return runs->base + at / row * runs->pitch + runs->offset[part] + begin;
}

/* --- headers --- */

static TcpHeader make_header(const TcpGroup *group, const CommCall *call) {
    return (TcpHeader){.magic = ANNOUNCED_MAGIC,
                       .tag = group->tag,
                       .sequence = group->n_calls,
                       .operation = (uint8_t)call->operation,
                       .kind = (uint8_t)call->kind,
                       .dtype = (uint8_t)call->dtype,
                       .to_strips = call->to_strips,
                       .root = (uint32_t)call->root,
                       .outer = call->outer,
                       .axis_local = call->axis_local,
                       .axis_total = call->axis_total,
                       .inner = call->inner};
}

/* Nothing of it is used but to say how it differs. */
static bool check_header(const TcpExchange *exchange, int other, TcpFlow *flow) {
    const TcpGroup *group = exchange->group;
    const TcpHeader *in = &flow->header;
    const TcpHeader own = make_header(group, exchange->call);
    flow->checked = true;
    if (memcmp(in, &own, sizeof own) == 0) return true;
    const int rank = group->peers[other]->rank;
    bool readable = in->magic == ANNOUNCED_MAGIC && in->operation < N_COMM_OPERATIONS &&
                    in->kind <= REDUCE_LSE && in->dtype < N_DTYPES && in->root <= INT32_MAX;
    if (!readable) {
        return comm_fail(group->base.world, "group '%s': rank %d sent what is no call",
                         group->base.name, rank);
    }
    if (in->tag != own.tag || in->sequence != own.sequence) {
        return comm_fail(
            group->base.world,
            "group '%s': member %d is in call %u of it, rank %d in call %u of %s group",
            group->base.name, group->member, own.sequence, rank, in->sequence,
            in->tag == own.tag ? "this" : "another");
    }
    CommCall theirs = {.operation = (CommOperation)in->operation,
                       .kind = (ReduceKind)in->kind,
                       .dtype = (DType)in->dtype,
                       .root = (int)in->root,
                       .outer = in->outer,
                       .axis_local = in->axis_local,
                       .axis_total = in->axis_total,
                       .inner = in->inner,
                       .to_strips = in->to_strips != 0};
    return comm_fail_mismatch(&group->base, group->member, exchange->call, other, &theirs);
}

/* --- one connection --- */

static char *flow_piece(const TcpFlow *flow, size_t at, size_t *out_bytes) {
    if (at < flow->staged) {
        size_t within = at % TCP_STAGING_BYTES;
        *out_bytes = comm_min(flow->staged - at, TCP_STAGING_BYTES - within);
        return (char *)flow->staging + within;
    }
    at -= flow->staged;
    const size_t first = tcp_runs_bytes(&flow->runs[0]);
    if (at < first) return tcp_runs_piece(&flow->runs[0], at, out_bytes);
    return tcp_runs_piece(&flow->runs[1], at - first, out_bytes);
}

static bool flow_is_done(const TcpFlow *flow) {
    return flow->header_at == sizeof(TcpHeader) && flow->at == flow->total;
}

static bool flow_may_move(const TcpFlow *flow) {
    return flow->header_at < sizeof(TcpHeader) || flow->at < flow->limit;
}

static int list_pieces(TcpFlow *flow, struct iovec pieces[N_PIECES]) {
    int n = 0;
    if (flow->header_at < sizeof(TcpHeader)) {
        pieces[n++] = (struct iovec){(char *)&flow->header + flow->header_at,
                                     sizeof(TcpHeader) - flow->header_at};
    }
    for (size_t at = flow->at; at < flow->limit && n < N_PIECES;) {
        size_t bytes;
        char *piece = flow_piece(flow, at, &bytes);
        bytes = comm_min(bytes, flow->limit - at);
        pieces[n++] = (struct iovec){piece, bytes};
        at += bytes;
    }
    return n;
}

static void count_moved(TcpFlow *flow, size_t bytes) {
    const size_t header = comm_min(bytes, sizeof(TcpHeader) - flow->header_at);
    flow->header_at += header;
    flow->at += bytes - header;
}

/* As much as the socket gives or takes now, up to a turn. */
static SocketResult move_flow(TcpLink *link, TcpFlow *flow, bool sends) {
    SocketResult result = SOCKET_WAIT;
    for (size_t moved = 0; flow_may_move(flow) && moved < TURN_BYTES;) {
        struct iovec pieces[N_PIECES];
        size_t bytes;
        const int n = list_pieces(flow, pieces);
        SocketResult now = tcp_link_move(link, pieces, n, sends, &bytes);
        if (now == SOCKET_CLOSED) return now;
        if (now == SOCKET_WAIT) break;
        count_moved(flow, bytes);
        moved += bytes;
        result = SOCKET_MOVED;
    }
    return result;
}

/* --- reductions --- */

static bool all_sent(const TcpGroup *group) {
    for (int i = 0; i < group->base.n_members; i++) {
        if (group->peers[i] && !flow_is_done(&group->peers[i]->out)) return false;
    }
    return true;
}

/* Bytes [at, at + n) of what is reduced, all of which have come. */
static void reduce_block(const TcpExchange *exchange, size_t at, size_t n) {
    const TcpGroup *group = exchange->group;
    const DType dtype = exchange->call->dtype;
    for (size_t done = 0; done < n;) {
        size_t in_bytes, out_bytes;
        const char *own = tcp_runs_piece(&exchange->own_in, at + done, &in_bytes);
        char *out = tcp_runs_piece(&exchange->own_out, at + done, &out_bytes);
        const size_t bytes = comm_min(comm_min(in_bytes, out_bytes), n - done);
        for (int i = 0; i < group->base.n_members; i++) {
            const TcpPeer *peer = group->peers[i];
            group->inputs[i] =
                peer ? (const char *)peer->staging + (at + done) % TCP_STAGING_BYTES : own;
        }
        comm_reduce(exchange->call->kind, dtype, group->inputs, group->base.n_members,
                    bytes / (size_t)dtype_bytes(dtype), out);
        done += bytes;
    }
}

/* Blocks that have come from all. */
static void reduce_ready(TcpExchange *exchange) {
    const TcpGroup *group = exchange->group;
    if (exchange->sends_first && !all_sent(group)) return;
    while (exchange->reduced < exchange->total) {
        size_t bytes = comm_min(TCP_BLOCK_BYTES, exchange->total - exchange->reduced);
        for (int i = 0; i < group->base.n_members; i++) {
            const TcpPeer *peer = group->peers[i];
            if (peer && (!peer->in.checked || peer->in.at < exchange->reduced + bytes)) return;
        }
        reduce_block(exchange, exchange->reduced, bytes);
        exchange->reduced += bytes;
    }
}

static void set_limits(const TcpExchange *exchange) {
    const TcpGroup *group = exchange->group;
    const size_t released = exchange->gate ? exchange->gate->at : exchange->reduced;
    for (int i = 0; i < group->base.n_members; i++) {
        TcpPeer *peer = group->peers[i];
        if (!peer) continue;
        peer->out.limit = comm_min(peer->out.total, peer->out.free + released);
        peer->in.limit = exchange->reduced == exchange->total
                             ? peer->in.total
                             : comm_min(peer->in.staged, exchange->reduced + TCP_STAGING_BYTES);
    }
}

/* --- all connections --- */

static bool is_done(const TcpExchange *exchange) {
    const TcpGroup *group = exchange->group;
    for (int i = 0; i < group->base.n_members; i++) {
        const TcpPeer *peer = group->peers[i];
        if (peer && (!flow_is_done(&peer->out) || !flow_is_done(&peer->in))) return false;
    }
    return exchange->reduced == exchange->total;
}

/* False: aborted. *out_moved: something did. */
static bool turn(TcpExchange *exchange, bool *out_moved) {
    const TcpGroup *group = exchange->group;
    TcpWorld *world = (TcpWorld *)group->base.world;
    *out_moved = false;
    for (int k = 1; k < group->base.n_members; k++) { /* different members begin differently */
        const int i = (group->member + k) % group->base.n_members;
        TcpPeer *peer = group->peers[i];
        for (int sends = 1; sends >= 0; sends--) { /* first: the other may find what differs */
            TcpFlow *flow = sends ? &peer->out : &peer->in;
            if (!flow_may_move(flow)) continue;
            SocketResult result = move_flow(&peer->link, flow, sends);
            if (result == SOCKET_CLOSED) return tcp_lose(world, peer->rank, &peer->link);
            *out_moved = *out_moved || result == SOCKET_MOVED;
            if (!sends && !flow->checked && flow->header_at == sizeof(TcpHeader) &&
                !check_header(exchange, i, flow)) {
                return false;
            }
        }
    }
    reduce_ready(exchange);
    set_limits(exchange);
    return true;
}

static bool fail_late(const TcpExchange *exchange) {
    const TcpGroup *group = exchange->group;
    int waits_for = -1, n_left = 0;
    for (int i = 0; i < group->base.n_members; i++) {
        const TcpPeer *peer = group->peers[i];
        if (!peer || (flow_is_done(&peer->in) && flow_is_done(&peer->out))) continue;
        if (n_left++ == 0) waits_for = peer->rank;
    }
    return comm_fail(group->base.world,
                     "group '%s': member %d: %s waited %g s for rank %d (%d of %d others came)",
                     group->base.name, group->member,
                     comm_operation_name(exchange->call->operation),
                     group->base.world->policy.timeout_s, waits_for,
                     group->base.n_members - 1 - n_left, group->base.n_members - 1);
}

/* Until a connection that may move does. */
static bool wait_for_others(const TcpExchange *exchange, double since) {
    const TcpGroup *group = exchange->group;
    const int n = group->base.n_members;
    bool late = false;
    for (int i = 0; i < n; i++) {
        TcpPeer *peer = group->peers[i];
        const bool sends = peer && flow_may_move(&peer->out),
                   receives = peer && flow_may_move(&peer->in);
        group->polls[i].fd = -1; /* not polled */
        if ((sends || receives) &&
            !tcp_link_sleeps(&peer->link, sends, receives, &group->polls[i])) {
            return true;
        }
    }
    if (!tcp_wait((TcpWorld *)group->base.world, group->polls, n + 1, since, &late)) {
        return late && fail_late(exchange);
    }
    for (int i = 0; i < n; i++) {
        if (group->polls[i].fd >= 0) tcp_link_wake(&group->peers[i]->link, &group->polls[i]);
    }
    return true;
}

bool tcp_exchange(TcpExchange *exchange) {
    TcpGroup *group = exchange->group;
    const CommWorld *world = group->base.world;
    const TcpHeader header = make_header(group, exchange->call);
    for (int i = 0; i < group->base.n_members; i++) {
        TcpPeer *peer = group->peers[i];
        if (!peer) continue;
        peer->out.header = header;
        peer->in.staging = peer->staging;
    }
    set_limits(exchange);
    double since = 0;
    for (int n_idle = 0;;) {
        bool moved;
        if (!turn(exchange, &moved)) return false;
        if (is_done(exchange)) break;
        if (moved) {
            n_idle = 0;
            since = 0;
            continue;
        }
        if (comm_world_is_aborted(world)) return false;
        if (++n_idle <= group->n_idle) {
            if (group->is_near) wait_pause();
            continue;
        }
        if (since == 0) since = clock_now();
        if (!wait_for_others(exchange, since)) return false;
    }
    group->n_calls++;
    return true;
}
