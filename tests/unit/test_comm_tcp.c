/* Collectives and channels between ranks that share nothing but connections, over TCP and over
 * memory that is handed over: the cases of all fillings, then random calls bit by bit against those
 * between threads.
 *
 * Catches: parts in another order or place, blocks reduced before all have come, sums passed on too
 * early, sends that block each other, strangers that are let in, sizes of the other end believed, a
 * closed connection that nobody tells of. */
#define _GNU_SOURCE /* memfd_create, seals */
#include "ir/base/clock.h"
#include "runtime/comm/comm_wait.h"
#include "runtime/comm/tcp_internal.h"
#include "runtime/launch/local_socket.h"
#include "runtime/measure/measure_threads.h"
#include "tests/unit/tcp_team.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

/* All cases of one size use the same connections. */
static Team *teams[MAX_RANKS + 1];

static Team *team_open(int n) {
    if (!teams[n]) teams[n] = connect_team(n, false, NULL);
    return teams[n];
}

static void team_close(Team *team) {
    (void)team;
}

/* --- random calls, beside the same between threads --- */

enum { N_RANDOM = 60, MOST_BYTES = 1 << 21 };

/* Drawn alike by all ranks. */
typedef struct Draw {
    int operation, root;
    ReduceKind kind;
    DType dtype;
    bool in_place, to_strips;
    size_t outer, local, total, inner; /* inner: the count, without axes */
    size_t n_in, n_out;                /* elements */
} Draw;

static Draw draw_call(uint32_t *random, int n, bool deals) {
    static const DType DTYPES[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    Draw d = {.operation = (int)(next_random(random) % 5),
              .root = (int)(next_random(random) % (uint32_t)n),
              .kind = (ReduceKind)(next_random(random) % 3),
              .dtype = DTYPES[next_random(random) % 3],
              .in_place = next_random(random) % 2,
              .to_strips = next_random(random) % 2,
              .outer = next_random(random) % 4 + 1,
              .local = 2 * (next_random(random) % 6 + 1)};
    const bool large = next_random(random) % 3 == 0;
    d.total = (size_t)n * d.local;
    if (!deals) d.total -= next_random(random) % d.total; /* padding, to members without a row */
    if (d.operation == 0 || d.operation == 4) {
        d.inner = next_random(random) % (large ? 400000 : 3000);
        d.n_in = d.n_out = d.inner;
        return d;
    }
    d.inner = next_random(random) % (large ? 2000 : 40) + 1;
    const size_t whole = d.outer * d.total * d.inner, part = d.outer * d.local * d.inner;
    d.n_in = d.operation == 1 ? part : d.operation == 2 ? whole : (size_t)n * part;
    d.n_out = d.operation == 1 ? whole : d.operation == 2 ? part : (size_t)n * part;
    return d;
}

static bool do_call(const Draw *d, CommGroup *group, int rank, void *in, void *out) {
    switch (d->operation) {
    case 0: return comm_all_reduce(group, rank, d->kind, d->dtype, in, out, d->inner);
    case 1:
        return comm_all_gather(group, rank, d->dtype, in, out, d->outer, d->local, d->total,
                               d->inner);
    case 2:
        return comm_reduce_scatter(group, rank, d->kind, d->dtype, in, out, d->outer, d->local,
                                   d->total, d->inner);
    case 3:
        return comm_all_to_all(group, rank, d->dtype, in, out, d->outer, d->local, d->inner,
                               d->to_strips);
    default:
        memcpy(out, in, d->n_in * (size_t)dtype_bytes(d->dtype));
        return comm_broadcast(group, rank, d->root, d->dtype, out, d->inner);
    }
}

typedef struct Random {
    Team *tcp;
    CommWorld *threads;
    CommGroup *among_threads;
    bool deals;
    int n_different[MAX_RANKS], first[MAX_RANKS];
} Random;

static void random_rank(int rank, void *shared) {
    Random *r = shared;
    const int n = r->tcp->n;
    uint32_t random = 11u + (uint32_t)n;
    unsigned char *in = malloc(MOST_BYTES);
    unsigned char *out[2] = {malloc(MOST_BYTES), malloc(MOST_BYTES)};
    for (int call = 0; call < N_RANDOM; call++) {
        Draw d = draw_call(&random, n, r->deals);
        const size_t size = (size_t)dtype_bytes(d.dtype);
        if (d.n_in * size > MOST_BYTES || d.n_out * size > MOST_BYTES) continue;
        uint32_t own = (uint32_t)(call * MAX_RANKS + rank);
        for (size_t i = 0; i < d.n_in; i++) {
            vec_put(in, d.dtype, (int64_t)i, (float)next_random(&own) / 8388608.0f - 1.0f);
        }
        bool ok = true;
        for (int k = 0; k < 2; k++) {
            const bool reuse = d.in_place && d.operation == 0;
            memset(out[k], 0xee, d.n_out * size);
            if (reuse) memcpy(out[k], in, d.n_in * size);
            ok = ok && do_call(&d, k ? r->tcp->all[rank] : r->among_threads, rank,
                               reuse ? out[k] : in, out[k]);
            ok = ok && comm_barrier(r->among_threads, rank);
        }
        if (ok && memcmp(out[0], out[1], d.n_out * size) == 0) continue;
        if (r->n_different[rank]++ == 0) r->first[rank] = call;
    }
    free(in), free(out[0]), free(out[1]);
}

/* So that what is sent over TCP comes in small pieces, not in whole blocks. */
static void shrink_buffers(const Team *team) {
    const int few = 2048;
    for (int rank = 0; rank < team->n; rank++) {
        const TcpGroup *group = (const TcpGroup *)team->all[rank];
        for (int i = 0; i < team->n; i++) {
            if (!group->peers[i]) continue;
            setsockopt(group->peers[i]->link.fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few);
        }
    }
}

static void test_random(void) {
    check_begin("random calls: the bits of those between threads; sizes, types, padding");
    for (int n = 2; n <= 5; n++) {
        for (int deals = 0; deals < 2; deals++) {
            Random r = {.tcp = connect_team(n, deals, NULL),
                        .threads = comm_world_create(n),
                        .deals = deals};
            r.among_threads = comm_group_create(r.threads, n, "threads");
            if (deals) comm_group_set_dealing(r.among_threads);
            if (n == 3) shrink_buffers(r.tcp);
            run_ranks(n, random_rank, &r);
            for (int i = 0; i < n; i++) {
                CHECK(r.n_different[i] == 0,
                      "rank %d of %d, dealing %d: %d calls, the first is %d; %s", i, n, deals,
                      r.n_different[i], r.first[i], comm_world_reason(r.tcp->worlds[i]));
            }
            comm_world_destroy(r.threads);
            disconnect_team(r.tcp);
        }
    }
}

/* --- what goes wrong --- */

/* Strangers at rank 0's port: garbage, silence, and a hello with another secret. */
enum { N_STRANGERS = 5 };
static int strangers[N_STRANGERS];

static void send_strangers(int rank, const void *endpoint) {
    char why[SOCKET_WHY_BYTES], bytes[64];
    const char *local = (const char *)endpoint + 16;
    uint32_t port, hello[8] = {0x504c4848, 1, 0, 1, 0, 0, 1, 2};
    size_t n;
    memcpy(&port, endpoint, sizeof port);
    if (rank != 1) return;
    for (int i = 0; i < N_STRANGERS; i++) {
        strangers[i] = i < 3 ? socket_connect("127.0.0.1", (int)port, 5, why)
                             : local_socket_connect(local, why);
        CHECK(strangers[i] >= 0, "%s", why);
    }
    memset(bytes, 'x', sizeof bytes);
    socket_send(strangers[0], bytes, sizeof bytes, &n);
    socket_send(strangers[1], hello, sizeof hello, &n);
    socket_send(strangers[3], bytes, sizeof bytes, &n);
    hello[5] = 1; /* asks for memory */
    socket_send(strangers[4], hello, sizeof hello, &n);
}

/* More than may wait at once, before any rank is there: they are many hosts' ranks, or nobody. */
enum { N_SILENT = 150 };
static int silent[N_SILENT];

static void crowd(int rank, const void *endpoint) {
    char why[SOCKET_WHY_BYTES];
    for (int i = 0; rank == 1 && i < N_SILENT; i++) {
        silent[i] = local_socket_connect((const char *)endpoint + 16, why);
    }
}

static void test_crowd(void) {
    check_begin("a crowd that says nothing keeps no rank from shared memory");
    Team *team = connect_team(4, false, crowd);
    for (int i = 0; i < team->n; i++) {
        size_t bytes = comm_tcp_staging_bytes(team->worlds[i]);
        CHECK(!comm_world_is_aborted(team->worlds[i]), "%s", comm_world_reason(team->worlds[i]));
        CHECK(bytes >= 3 * (TCP_STAGING_BYTES + RING_LEAST_BYTES),
              "rank %d has %zu bytes for messages: no rings", i, bytes);
    }
    for (int i = 0; i < N_SILENT; i++) {
        if (silent[i] >= 0) close(silent[i]);
    }
    disconnect_team(team);
}

static void test_strangers(void) {
    check_begin("strangers that connect are dropped, and change nothing");
    Team *team = connect_team(3, false, send_strangers);
    for (int i = 0; i < N_STRANGERS; i++) {
        char byte;
        size_t n;
        bool closed = socket_wait(strangers[i], false, 5) &&
                      socket_receive(strangers[i], &byte, 1, &n) == SOCKET_CLOSED;
        CHECK(closed, "stranger %d was answered or is still there", i);
        close(strangers[i]);
    }
    CHECK(!comm_world_is_aborted(team->worlds[0]), "%s", comm_world_reason(team->worlds[0]));
    disconnect_team(team);
}

typedef enum Fault {
    FAULT_COUNT,
    FAULT_CALL,
    FAULT_MESSAGE,
    FAULT_GARBAGE,
    FAULT_CLOSED,
    FAULT_HALF, /* in the middle of a header */
    FAULT_WRITTEN,
    FAULT_READ
} Fault;

typedef struct Faulty {
    Team *team;
    Fault fault;
    bool result[MAX_RANKS];
} Faulty;

/* What a rank that is not this program could send, through a connection that was let in. */
static void send_raw(TcpLink *link, void *bytes, size_t size) {
    struct iovec piece = {bytes, size};
    size_t n;
    SocketResult result = tcp_link_move(link, &piece, 1, true, &n);
    CHECK(result == SOCKET_MOVED && n == size, "sent %zu", n);
}

/* So that it must look how far the other end has read. */
static bool send_more_than_a_ring(const Team *team) {
    const size_t count = RING_MOST_BYTES;
    float *x = calloc(count, sizeof(float));
    bool result = comm_all_reduce(team->all[0], 0, REDUCE_SUM, DTYPE_F32, x, x, count);
    free(x);
    return result;
}

/* Rank 1 does something else than rank 0. */
static void faulty_rank(int rank, void *shared) {
    Faulty *f = shared;
    Team *team = f->team;
    float x[8] = {0}, slots[N_SLOTS * 8] = {0};
    TcpLink *link = &((TcpGroup *)team->all[rank])->peers[!rank]->link;
    switch (f->fault) {
    case FAULT_COUNT:
        f->result[rank] =
            comm_all_reduce(team->all[rank], rank, REDUCE_SUM, DTYPE_F32, x, x, rank ? 7 : 8);
        break;
    case FAULT_CALL:
        f->result[rank] = rank ? comm_barrier(team->all[rank], rank)
                               : comm_broadcast(team->all[rank], rank, 0, DTYPE_F32, x, 8);
        break;
    case FAULT_MESSAGE:
        f->result[rank] = rank ? comm_channel_recv(team->to[0], x, 16)
                               : comm_channel_send(team->from[0], slots, 32, x, 32);
        break;
    case FAULT_GARBAGE:
    case FAULT_CLOSED:
    case FAULT_HALF:
    case FAULT_WRITTEN:
    case FAULT_READ:
        if (rank == 0) {
            f->result[0] = f->fault == FAULT_READ ? send_more_than_a_ring(team)
                                                  : comm_barrier(team->all[0], 0);
            break;
        }
        if (f->fault == FAULT_GARBAGE) send_raw(link, slots, sizeof slots);
        if (f->fault == FAULT_HALF) send_raw(link, slots, sizeof(TcpHeader) / 2);
        if (f->fault == FAULT_WRITTEN)
            atomic_store(&link->rings.out.shared->written, link->rings.out.size + 1);
        if (f->fault == FAULT_READ) atomic_store(&link->rings.in.shared->read, (uint64_t)1 << 40);
        if (f->fault == FAULT_CLOSED || f->fault == FAULT_HALF) shutdown(link->fd, SHUT_RDWR);
        socket_send(link->fd, "", 1, &(size_t){0}); /* a wake-up */
    }
}

static void check_fault(Fault fault, int who, const char *text) {
    Faulty f = {.team = connect_team(2, false, NULL), .fault = fault};
    for (int i = 0; i < 2; i++) comm_world_set_timeout(f.team->worlds[i], 5);
    run_ranks(2, faulty_rank, &f);
    const char *reason = comm_world_reason(f.team->worlds[who]);
    CHECK(!f.result[who], "rank %d went on", who);
    CHECK(strstr(reason, text), "'%s', not '%s'", reason, text);
    disconnect_team(f.team);
}

static void test_faults(void) {
    check_begin("calls that differ, sizes that differ and garbage end the world and say why");
    check_fault(FAULT_COUNT, 0,
                "inner 8), member 1 calls all_reduce(f32, kind 0, root 0, outer 0, "
                "axis 0 of 0, inner 7)");
    check_fault(FAULT_CALL, 1, "member 1 calls barrier(");
    check_fault(FAULT_MESSAGE, 1, "receive of 16 bytes meets a message of 32");
    check_fault(FAULT_GARBAGE, 0, "group 'all': rank 1 sent what is no call");
    check_begin("a connection that closes ends the world");
    check_fault(FAULT_CLOSED, 0, "rank 1 has closed its connection to rank 0");
    check_fault(FAULT_HALF, 0, "rank 1 has closed its connection to rank 0");
}

static void test_late(void) {
    check_begin("time-outs name who is waited for");
    Team *team = connect_team(3, false, NULL);
    float x = 0;
    comm_world_set_timeout(team->worlds[1], 0.05);
    CHECK(!comm_all_reduce(team->all[1], 1, REDUCE_SUM, DTYPE_F32, &x, &x, 1), "returned true");
    const char *reason = comm_world_reason(team->worlds[1]);
    CHECK(strstr(reason, "group 'all': member 1: all_reduce waited 0.05 s for rank 0 (0 of 2"),
          "%s", reason);
    comm_world_set_timeout(team->worlds[2], 0.05);
    CHECK(!comm_channel_recv(team->to[1], &x, 4), "returned true");
    reason = comm_world_reason(team->worlds[2]);
    CHECK(strstr(reason, "channel 'next': receive of 4 bytes waited 0.05 s"), "%s", reason);
    disconnect_team(team);
}

static double processor_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* What is left to send to a lost rank must not keep a thread busy until its loss is explained. */
static void test_quiet(void) {
    check_begin("a lost rank that more is to be sent to is waited for asleep");
    enum { BYTES = 32 << 20 };
    Team *team = connect_team(2, false, NULL);
    char *slots = calloc(N_SLOTS, BYTES);
    ((TcpWorld *)team->worlds[0])->job.patience_s = 0.5;
    CHECK(comm_channel_send(team->from[0], slots, BYTES, slots, BYTES), "%s",
          comm_world_reason(team->worlds[0]));
    shutdown(((TcpChannel *)team->to[0])->link.fd, SHUT_RDWR);
    const double before = processor_seconds(), deadline = clock_now() + 20;
    while (!comm_world_is_aborted(team->worlds[0]) && clock_now() < deadline) usleep(10000);
    CHECK(comm_world_is_aborted(team->worlds[0]), "the loss was not seen");
    CHECK(processor_seconds() - before < 0.03, "%g s of processor time",
          processor_seconds() - before);
    disconnect_team(team);
    free(slots);
}

/* A sender goes on until its slots are full, however large the messages are. */
static void test_slots(void) {
    check_begin("channel: sends of more than sockets hold wait for a slot, not for the receiver");
    enum { BYTES = 8 << 20 };
    Team *team = connect_team(2, false, NULL);
    char *slots = calloc(N_SLOTS, BYTES), *got = malloc(BYTES);
    bool ok = true;
    comm_world_set_timeout(team->worlds[0], 0.2);
    for (int i = 0; i < N_SLOTS; i++) {
        memset(slots + (size_t)i * BYTES, 'a' + i, BYTES);
        ok = ok && comm_channel_send(team->from[0], slots, BYTES, slots + (size_t)i * BYTES, BYTES);
    }
    CHECK(ok, "a send waited: %s", comm_world_reason(team->worlds[0]));
    for (int i = 0; i < N_SLOTS; i++) {
        ok = ok && comm_channel_recv(team->to[0], got, BYTES);
        CHECK(ok && got[0] == 'a' + i && got[BYTES - 1] == 'a' + i, "message %d: %s", i,
              comm_world_reason(team->worlds[1]));
    }
    disconnect_team(team);
    free(slots);
    free(got);
}

/* --- shared memory --- */

static void test_positions(void) {
    check_begin("positions that cannot be, in shared memory, end the world");
    check_fault(FAULT_WRITTEN, 0, "rank 1 wrote what cannot be into the memory that it shares");
    check_fault(FAULT_READ, 0, "rank 1 wrote what cannot be into the memory that it shares");
}

/* Memory whose size could change under this process would end it by SIGBUS. */
static void test_handed_over(void) {
    check_begin("what is handed over as memory is refused unless it is");
    enum { RIGHT = 4096 + 2 * RING_LEAST_BYTES };
    static const struct {
        off_t size;
        int seals;
    } CASES[] = {{RIGHT, 0},
                 {RIGHT - 4096, F_SEAL_SHRINK},
                 {RIGHT + 1, F_SEAL_SHRINK},
                 {0, F_SEAL_SHRINK},
                 {(off_t)1 << 40, F_SEAL_SHRINK}};
    RingPair pair;
    char why[RING_WHY_BYTES];
    for (int i = 0; i < (int)(sizeof CASES / sizeof CASES[0]); i++) {
        int memory = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        CHECK(ftruncate(memory, CASES[i].size) == 0, "case %d", i);
        CHECK(fcntl(memory, F_ADD_SEALS, CASES[i].seals) == 0, "case %d", i);
        CHECK(!ring_pair_open(memory, &pair, why), "case %d was taken", i);
        close(memory);
    }
    int pipes[2];
    CHECK(pipe(pipes) == 0, "no pipe");
    CHECK(!ring_pair_open(pipes[0], &pair, why), "a pipe was taken");
    close(pipes[0]), close(pipes[1]);
}

/* A limit on files' sizes is one on memory's that is a file, too. */
static void test_no_memory(void) {
    check_begin("without memory to share messages go over TCP, and it is said");
    struct rlimit before, limit;
    char said[1024] = "";
    int text = memfd_create("said", MFD_CLOEXEC), was = dup(2);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 1 << 16;
    signal(SIGXFSZ, SIG_IGN);
    dup2(text, 2);
    setrlimit(RLIMIT_FSIZE, &limit);
    Team *team = connect_team(2, false, NULL);
    setrlimit(RLIMIT_FSIZE, &before);
    dup2(was, 2);
    CHECK(pread(text, said, sizeof said - 1, 0) > 0, "nothing was said");
    CHECK(strstr(said, "on the same host (fallocate: File too large): their messages go over TCP"),
          "%s", said);
    const TcpLink *link = &((TcpGroup *)team->all[0])->peers[1]->link;
    CHECK(link->fd >= 0 && !tcp_link_is_shared(link), "memory is shared");
    disconnect_team(team);
    close(text), close(was);
}

/* --- measuring between processes --- */

static void *measure_rank(void *argument) {
    Joining *joining = argument;
    const CommJob job = make_job(joining);
    Diag *diag = diag_create();
    MeasureTeam *team = measure_team_create(&job, diag);
    double us[3] = {-1, -1, -1};
    if (team) {
        us[0] = measure_message_us(team, 1 << 16, true, diag);
        us[1] = measure_collective_us(team, PROFILE_ALL_REDUCE, 2, 1 << 16, true, diag);
        us[2] = measure_collective_us(team, PROFILE_ALL_GATHER, 4, 1 << 10, true, diag);
    }
    measure_team_destroy(team);
    for (int i = 0; i < 3; i++) {
        const bool right = joining->rank == 0 ? us[i] > 0 && us[i] < 1e6 : us[i] == 0;
        CHECK(right, "rank %d, row %d: %g us; %s", joining->rank, i, us[i], diag_text(diag));
    }
    diag_destroy(diag);
    return NULL;
}

static void test_measuring(void) {
    check_begin("times of messages between processes; those that have no part in them wait");
    Team team = {.n = 4};
    run_joining(&team, false, NULL, measure_rank);
}

/* Is it what the cases are said to be about? */
static void check_transport(bool shares) {
    check_begin(shares ? "ranks of one host share memory" : "ranks that share no memory");
    Team *team = connect_team(2, false, NULL);
    CHECK(tcp_link_is_shared(&((TcpGroup *)team->all[1])->peers[0]->link) == shares, "%d", shares);
    CHECK(tcp_link_is_shared(&((TcpChannel *)team->to[0])->link) == shares, "%d", shares);
    disconnect_team(team);
}

int main(void) {
    for (int shares = 1; shares >= 0; shares--) {
        setenv(COMM_TCP_SHARES, shares ? "1" : "0", 1);
        check_transport(shares);
        test_cases();
        for (int n = 0; n <= MAX_RANKS; n++) {
            if (teams[n]) disconnect_team(teams[n]);
            teams[n] = NULL;
        }
        test_random();
        test_faults();
        test_late();
        test_slots();
        test_quiet();
    }
    setenv(COMM_TCP_SHARES, "1", 1);
    test_strangers();
    test_crowd();
    test_positions();
    test_handed_over();
    test_no_memory();
    test_measuring();
    return check_report();
}
