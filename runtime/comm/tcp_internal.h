/* What the files of the filling over TCP share; see comm_tcp.h for what it does.
 *
 *     comm_tcp.c      worlds, groups, channels and their ends
 *     tcp_collect.c   each collective as what goes to and comes from every member
 *     tcp_exchange.c  moves that, and reduces
 *     tcp_channel.c   messages, and the thread that goes on sending them
 *     tcp_link.c      a connection: a socket or, on one host, shared memory (ring.c)
 *     tcp_connect.c   finding and proving each other
 *     tcp_address.c   under which addresses this rank can be reached
 */
#ifndef RUNTIME_COMM_TCP_INTERNAL_H
#define RUNTIME_COMM_TCP_INTERNAL_H

#include "runtime/comm/comm_internal.h"
#include "runtime/comm/comm_tcp.h"
#include "runtime/comm/ring.h"
#include "runtime/launch/socket.h"

#include <poll.h>

enum {
    TCP_BLOCK_BYTES = 1 << 16,              /* summed at a time */
    TCP_STAGING_BYTES = 2 * TCP_BLOCK_BYTES /* of each peer: one is summed, one comes in */
};

/* What precedes a member's bytes in every collective. In this machine's byte order, which
 * connecting compares. */
typedef struct TcpHeader {
    uint32_t magic, tag, sequence;
    uint8_t operation, kind, dtype, to_strips;
    uint32_t root, zero;
    uint64_t outer, axis_local, axis_total, inner;
} TcpHeader;

/* n rows at base + i * pitch, each of one or two parts. */
typedef struct TcpRuns {
    char *base;
    size_t n, pitch;
    size_t offset[2], bytes[2];
} TcpRuns;

static inline size_t tcp_runs_bytes(const TcpRuns *runs) {
    return runs->n * (runs->bytes[0] + runs->bytes[1]);
}

/* One direction of one connection in a collective: the header, `staged` bytes through the peer's
 * staging, then runs. */
typedef struct TcpFlow {
    TcpHeader header;
    size_t header_at;
    bool checked; /* a header that came in */
    unsigned char *staging;
    size_t staged;
    TcpRuns runs[2];
    size_t total, at; /* bytes behind the header */
    size_t limit;     /* how far they may go now */
    size_t free;      /* bytes that do not wait for what is released */
} TcpFlow;

typedef struct TcpLink {
    int fd; /* -1: none */
    RingPair rings;
    bool is_closed, is_broken; /* of rings: the other process has ended, or writes nonsense */
} TcpLink;

#define TCP_LINK_NONE ((TcpLink){.fd = -1})

typedef struct TcpPeer {
    int rank;
    TcpLink link;
    unsigned char *staging; /* [TCP_STAGING_BYTES] */
    TcpFlow out, in;
} TcpPeer;

typedef struct TcpGroup {
    CommGroup base;
    uint32_t tag, n_calls;
    int member;
    int n_idle;           /* turns in which nothing moves, before sleeping */
    bool is_near;         /* all of its links are shared memory: turns cost next to nothing */
    TcpPeer **peers;      /* [n_members]; NULL: this rank */
    const void **inputs;  /* [n_members] */
    struct pollfd *polls; /* [n_members + 1] */
} TcpGroup;

/* One call of this member. What is `released` to flows that wait: what was reduced or, of `gate`,
 * what has come in. */
typedef struct TcpExchange {
    TcpGroup *group;
    const CommCall *call;
    size_t total, reduced; /* bytes to reduce from staging and own_in into own_out */
    TcpRuns own_in, own_out;
    bool sends_first; /* reduced only when all is sent: own_out is what is sent */
    const TcpFlow *gate;
} TcpExchange;

typedef struct TcpMessage {
    uint32_t magic, sequence;
    uint64_t bytes;
} TcpMessage;

typedef struct TcpPending {
    TcpMessage header;
    const char *bytes;
} TcpPending;

typedef struct TcpChannel {
    CommChannel base;
    uint32_t tag;
    bool is_sender;
    int peer;
    TcpLink link;                 /* the sender's with the lock */
    uint32_t next_slot, sequence; /* the calling thread's */
    pthread_mutex_t lock;         /* over what follows */
    TcpPending *pending;          /* [n_slots], of which n_pending from `first` on */
    uint32_t first;
    _Atomic uint32_t n_pending;
    size_t sent; /* bytes of the first, with its header */
    int poll;    /* the service thread's: where in its list; 0: nowhere */
} TcpChannel;

typedef struct TcpWorld {
    CommWorld base;
    CommJob job;
    char own_address[64];
    TcpPeer **peers; /* by rank; NULL: shares no group */
    int n_channels;
    int ended_fd;         /* an eventfd: readable once the world is aborted */
    int wake_fd;          /* an eventfd: wakes the service thread */
    struct pollfd *polls; /* the service thread's: [n_channels + 1] */
    pthread_t thread;
    bool has_thread;
    atomic_bool stopping;
    _Atomic int lost; /* a rank whose connection closed; -1: none */
    _Atomic double lost_at;
} TcpWorld;

/* --- tcp_channel.c --- */

void tcp_wake(TcpWorld *world);
/* A rank's connection has closed: the world's end, soon. Always false. */
bool tcp_lose(TcpWorld *world, int rank, const TcpLink *link);
/* Waits until `polls` [n], of which the last is to be ended_fd's, have something: at most from
 * `since` until the time-out, by clock_now. False: aborted, or it took too long: *out_late. */
bool tcp_wait(TcpWorld *world, struct pollfd *polls, int n, double since, bool *out_late);
bool tcp_channel_send(CommChannel *base, void *slot_base, size_t slot_bytes, const void *source,
                      size_t bytes);
bool tcp_channel_receive(CommChannel *base, void *destination, size_t bytes);
/* The service thread's main, given the TcpWorld. */
void *tcp_serve(void *argument);

/* --- tcp_link.c --- */

void tcp_link_close(TcpLink *link);
bool tcp_link_is_shared(const TcpLink *link);
/* As socket_move_pieces. */
SocketResult tcp_link_move(TcpLink *link, struct iovec *pieces, int n, bool sends,
                           size_t *out_bytes);
/* Before a poll that is to end when something may move; false: something may by now. */
bool tcp_link_sleeps(TcpLink *link, bool sends, bool receives, struct pollfd *out_poll);
/* After it. */
void tcp_link_wake(TcpLink *link, const struct pollfd *polled);

/* --- tcp_exchange.c --- */

/* Moves all flows of the group's peers, whose totals, frees and runs are set. */
bool tcp_exchange(TcpExchange *exchange);
/* What runs have together from byte `at` on: where, and *out_bytes how many. */
char *tcp_runs_piece(const TcpRuns *runs, size_t at, size_t *out_bytes);

/* --- tcp_collect.c --- */

bool tcp_collect(CommGroup *base, int member, const CommCall *call, const void *in, void *out,
                 size_t n_in);

/* --- tcp_address.c --- */

enum { TCP_ADDRESS_BYTES = 48, TCP_MOST_ADDRESSES = 12 };

/* Addresses of this machine's interfaces, as numbers; false: reported (none, or no interface of
 * those that COMM_TCP_INTERFACES names). */
bool tcp_own_addresses(const char *first, char out[TCP_MOST_ADDRESSES][TCP_ADDRESS_BYTES],
                       int *out_n, Diag *diag);
/* Only characters of a number: never looked up as a name. */
bool tcp_is_address(const char text[TCP_ADDRESS_BYTES]);
/* Equal for processes of one machine and network namespace; *out_machine: of one machine. */
uint64_t tcp_host_id(uint64_t *out_machine);

#endif
