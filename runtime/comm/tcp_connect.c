#include "ir/base/clock.h"
#include "runtime/comm/tcp_internal.h"

#include "runtime/launch/local_socket.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    CONFIRMED = 'm',            /* the guest has the memory */
    HELLO_MAGIC = 0x504c4848,   /* "PLHH" */
    WELCOME_MAGIC = 0x504c5757, /* "PLWW" */
    BYTE_ORDER_MARK = 0x01020304,
    VERSION = 2,
    LINK_GROUPS = 1, /* of two ranks: for all groups that both are in */
    LINK_CHANNEL = 2,
    MOST_STRANGERS = 64, /* guests that have not said hello */
    STRANGER_MS = 200,   /* to do so before a later one may have its place */
    GUEST_SECONDS = 5,   /* at most */
    MOST_TURNS = 50,     /* tries of sockets before sleeping, where ranks have own cores */
    NEAR_TURN = 4,       /* a turn over rings takes as long as so many of comm_wait.h's tests */
    OTHER_DESCRIPTORS = 512,
    NEAR_BYTES = 1 << 25, /* for all rings of a rank, unless they are many */
};

/* Of every rank, before anybody listens. */
typedef struct HostFacts {
    uint32_t byte_order, version;
    uint64_t host, cores;
    uint64_t machine;      /* as `host`, without regard to namespaces */
    uint32_t shares, zero; /* memory, with ranks of its host */
} HostFacts;

/* Where a rank listens. */
typedef struct Endpoint {
    uint32_t port, n_addresses;
    uint64_t secret;              /* of who may connect */
    char local[LOCAL_NAME_BYTES]; /* where one on its host shares memory; "": nowhere */
    char addresses[TCP_MOST_ADDRESSES][TCP_ADDRESS_BYTES];
} Endpoint;

typedef struct Hello {
    uint32_t magic, kind, tag, from, to;
    uint32_t shares; /* through a local socket, for memory */
    uint64_t secret; /* the listener's */
} Hello;

typedef struct Welcome {
    uint64_t magic, secret; /* who said hello's */
} Welcome;

/* A connection to be made: the higher rank connects to the lower, a sender to its receiver. */
typedef struct Wanted {
    int peer;
    uint32_t kind, tag;
    bool accepts;
    TcpLink *link;
} Wanted;

typedef struct Guest {
    TcpLink link;
    bool is_local, was_welcome; /* welcome, it confirms that it has the memory */
    size_t n;                   /* bytes of the hello so far */
    Hello hello;
    double opened;
} Guest;

typedef struct Connecting {
    TcpWorld *world;
    Diag *diag;
    double deadline;
    HostFacts *facts;    /* [world] */
    Endpoint *endpoints; /* [world] */
    atomic_bool told;    /* by note_unshared, in: */
    char unshared[320];
    Wanted *wanted;
    int n_wanted;
    size_t ring_bytes;            /* of each ring that this rank makes */
    int listener, local_listener; /* -1: none */
    atomic_int n_missing;         /* that this rank accepts */
    atomic_bool stopping;
    Guest *guests;        /* [MOST_STRANGERS + n_wanted]: those that were welcome stay */
    struct pollfd *polls; /* [MOST_STRANGERS + n_wanted + 2] */
    int n_guests;
} Connecting;

/* --- what is to be connected --- */

static void list_wanted(Connecting *c) {
    TcpWorld *world = c->world;
    const int own = world->job.rank;
    c->wanted =
        comm_allocate(sizeof(*c->wanted) * (size_t)(world->job.world + world->n_channels + 1));
    for (int rank = 0; rank < world->job.world; rank++) {
        TcpPeer *peer = world->peers[rank];
        if (peer)
            c->wanted[c->n_wanted++] = (Wanted){rank, LINK_GROUPS, 0, rank > own, &peer->link};
    }
    for (CommChannel *base = world->base.channels; base; base = base->next) {
        TcpChannel *channel = (TcpChannel *)base;
        c->wanted[c->n_wanted++] = (Wanted){channel->peer, LINK_CHANNEL, channel->tag,
                                            !channel->is_sender, &channel->link};
    }
    for (int i = 0; i < c->n_wanted; i++) atomic_fetch_add(&c->n_missing, c->wanted[i].accepts);
}

/* Once: why another rank and this one, on one machine, talk over TCP. With many ranks it is one
 * reason for all. It is said when all are connected: where the job ends before, nothing is. */
static void note_unshared(Connecting *c, int peer, const char *why) {
    if (atomic_exchange(&c->told, true)) return;
    snprintf(c->unshared, sizeof(c->unshared),
             "rank %d shares no memory with rank %d on the same host (%s): their messages go over "
             "TCP\n",
             c->world->job.rank, peer, why);
}

/* --- those who connect to this rank --- */

static Wanted *find_wanted(const Connecting *c, const Guest *guest) {
    const Hello *hello = &guest->hello;
    const CommJob *job = &c->world->job;
    if (hello->magic != HELLO_MAGIC || hello->shares != guest->is_local ||
        hello->to != (uint32_t)job->rank || hello->secret != c->endpoints[job->rank].secret) {
        return NULL;
    }
    for (int i = 0; i < c->n_wanted; i++) {
        Wanted *wanted = &c->wanted[i];
        if (wanted->accepts && wanted->link->fd < 0 && (uint32_t)wanted->peer == hello->from &&
            wanted->kind == hello->kind && wanted->tag == hello->tag) {
            return wanted;
        }
    }
    return NULL;
}

static void remove_guest(Connecting *c, int i) {
    tcp_link_close(&c->guests[i].link);
    c->guests[i] = c->guests[--c->n_guests];
}

static void let_stay(Connecting *c, int i, const Wanted *wanted) {
    *wanted->link = c->guests[i].link;
    c->guests[i].link = TCP_LINK_NONE;
    remove_guest(c, i);
    atomic_fetch_sub(&c->n_missing, 1);
}

/* With memory for both, if it is a local one. Into an empty buffer: it never has to wait. */
static bool welcome_guest(Connecting *c, Guest *guest, const Wanted *wanted) {
    const Welcome welcome = {WELCOME_MAGIC, c->endpoints[wanted->peer].secret};
    char why[RING_WHY_BYTES];
    size_t n;
    if (!guest->is_local) {
        return socket_send(guest->link.fd, &welcome, sizeof welcome, &n) == SOCKET_MOVED &&
               n == sizeof welcome;
    }
    int memory = ring_pair_create(c->ring_bytes, &guest->link.rings, why);
    if (memory < 0) note_unshared(c, wanted->peer, why);
    bool sent = local_socket_send(guest->link.fd, &welcome, sizeof welcome, memory);
    if (memory >= 0) close(memory);
    return sent && memory >= 0;
}

/* What a guest sends: a hello that is right makes it a connection, at once or, where memory is
 * shared, once it confirms that it has it; all else is dropped. */
static void hear_guest(Connecting *c, int i) {
    Guest *guest = &c->guests[i];
    const size_t size = sizeof(Hello) + (guest->was_welcome ? 1 : 0);
    size_t n;
    char confirmed;
    char *place = guest->was_welcome ? &confirmed : (char *)&guest->hello + guest->n;
    SocketResult result = socket_receive(guest->link.fd, place, size - guest->n, &n);
    if (result == SOCKET_WAIT) return;
    guest->n += n;
    if (result == SOCKET_CLOSED) {
        remove_guest(c, i);
        return;
    }
    if (guest->n < size) return;
    const Wanted *wanted = find_wanted(c, guest); /* another may have been before it */
    if (!wanted || (guest->was_welcome ? confirmed != CONFIRMED : !welcome_guest(c, guest, wanted)))
        remove_guest(c, i);
    else if (guest->is_local && !guest->was_welcome)
        guest->was_welcome = true;
    else
        let_stay(c, i, wanted);
}

/* The stranger that has been here longest, who counts them; -1: none. */
static int find_oldest(const Connecting *c, int *out_strangers) {
    int oldest = -1;
    *out_strangers = 0;
    for (int i = 0; i < c->n_guests; i++) {
        if (c->guests[i].was_welcome) continue;
        (*out_strangers)++;
        if (oldest < 0 || c->guests[i].opened < c->guests[oldest].opened) oldest = i;
    }
    return oldest;
}

/* Room for one more? Who has just come may be a rank whose hello is on its way: of too many at
 * once the others wait in the listener's queue. */
static bool make_room(Connecting *c) {
    int n;
    const int oldest = find_oldest(c, &n);
    if (c->n_guests == MOST_STRANGERS + c->n_wanted) return false;
    if (n < MOST_STRANGERS) return true;
    if (clock_now() - c->guests[oldest].opened < 1e-3 * STRANGER_MS) return false;
    remove_guest(c, oldest);
    return true;
}

static void let_in(Connecting *c, int listener) {
    bool exhausted = false;
    while (make_room(c)) {
        int fd = socket_accept(listener, &exhausted);
        if (fd < 0) return;
        c->guests[c->n_guests++] = (Guest){
            .link = {.fd = fd}, .is_local = listener == c->local_listener, .opened = clock_now()};
    }
}

/* Until all have come or the main thread stops it. Who was welcome has proved itself and may count
 * on the connection by now: it goes only when it closes its end. */
static void *accept_all(void *argument) {
    Connecting *c = argument;
    struct pollfd *polls = c->polls;
    while (atomic_load(&c->n_missing) > 0 && !atomic_load(&c->stopping)) {
        const bool has_room = make_room(c);
        polls[0] = (struct pollfd){.fd = has_room ? c->listener : -1, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = has_room ? c->local_listener : -1, .events = POLLIN};
        for (int i = 0; i < c->n_guests; i++) {
            polls[i + 2] = (struct pollfd){.fd = c->guests[i].link.fd, .events = POLLIN};
        }
        if (poll(polls, (nfds_t)c->n_guests + 2, 20) < 0) continue;
        for (int i = c->n_guests - 1; i >= 0; i--) { /* those that go are replaced by later ones */
            const Guest *guest = &c->guests[i];
            if (polls[i + 2].revents)
                hear_guest(c, i);
            else if (!guest->was_welcome && clock_now() - guest->opened > GUEST_SECONDS)
                remove_guest(c, i);
        }
        if (polls[0].revents) let_in(c, c->listener);
        if (polls[1].revents) let_in(c, c->local_listener);
    }
    while (c->n_guests > 0) remove_guest(c, c->n_guests - 1);
    return NULL;
}

/* --- those that this rank connects to --- */

static bool job_goes_on(const Connecting *c) {
    const char *why = c->world->job.why_failed(c->world->job.user);
    if (why) diag_error(c->diag, NO_LOC, "%s", why);
    return !why;
}

static void pause_for(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

/* Is it the rank that is meant that answers? *out_memory: what it handed over, -1 for none. */
static bool prove(const Connecting *c, int fd, const Wanted *wanted, bool is_local, double until,
                  int *out_memory, char *why) {
    const int own = c->world->job.rank;
    Hello hello = {.magic = HELLO_MAGIC,
                   .kind = wanted->kind,
                   .tag = wanted->tag,
                   .from = (uint32_t)own,
                   .to = (uint32_t)wanted->peer,
                   .shares = is_local,
                   .secret = c->endpoints[wanted->peer].secret};
    Welcome welcome = {0};
    size_t n = 0, done = 0;
    *out_memory = -1;
    snprintf(why, SOCKET_WHY_BYTES, "connected, but it is another that answers");
    if (socket_send(fd, &hello, sizeof hello, &n) != SOCKET_MOVED || n != sizeof hello) {
        return false;
    }
    while (done < sizeof welcome) {
        int memory = -1;
        if (!socket_wait(fd, false, until - clock_now())) {
            snprintf(why, SOCKET_WHY_BYTES, "connected, but nothing answers");
            return false;
        }
        SocketResult result =
            is_local ? local_socket_receive(fd, (char *)&welcome + done, sizeof welcome - done, &n,
                                            &memory)
                     : socket_receive(fd, (char *)&welcome + done, sizeof welcome - done, &n);
        if (memory >= 0 && *out_memory < 0)
            *out_memory = memory;
        else if (memory >= 0)
            close(memory);
        if (result == SOCKET_CLOSED) return false;
        done += n;
    }
    return welcome.magic == WELCOME_MAGIC && welcome.secret == c->endpoints[own].secret;
}

static bool try_address(const Connecting *c, const char *address, const Wanted *wanted, char *why) {
    const double until = fmin(c->deadline, clock_now() + GUEST_SECONDS);
    int memory;
    int fd =
        socket_connect(address, (int)c->endpoints[wanted->peer].port, until - clock_now(), why);
    if (fd >= 0 && !prove(c, fd, wanted, false, until, &memory, why)) {
        close(fd);
        fd = -1;
    }
    wanted->link->fd = fd;
    return fd >= 0;
}

/* The other side counts on the memory only once this one confirms that it has it. */
static bool confirm(TcpLink *link, int memory, char *why) {
    const char confirmed = CONFIRMED;
    size_t n;
    if (memory < 0) {
        snprintf(why, SOCKET_WHY_BYTES, "it had none to hand over");
        return false;
    }
    char why_none[RING_WHY_BYTES];
    if (!ring_pair_open(memory, &link->rings, why_none)) {
        snprintf(why, SOCKET_WHY_BYTES, "%s", why_none);
        return false;
    }
    snprintf(why, SOCKET_WHY_BYTES, "its local socket closed");
    return socket_send(link->fd, &confirmed, 1, &n) == SOCKET_MOVED;
}

/* Through its local socket, if it seems to be on this host: that it is shows when it answers. */
static bool try_sharing(Connecting *c, const Wanted *wanted) {
    const int own = c->world->job.rank;
    const HostFacts *mine = &c->facts[own], *theirs = &c->facts[wanted->peer];
    const double until = fmin(c->deadline, clock_now() + GUEST_SECONDS);
    char why[SOCKET_WHY_BYTES] = "";
    int memory = -1;
    if (!mine->shares || !theirs->shares || mine->host != theirs->host) {
        /* One machine's containers have one boot id and networks of their own. */
        if (mine->shares && theirs->shares && mine->machine == theirs->machine)
            note_unshared(c, wanted->peer, "their host names or network namespaces differ");
        return false;
    }
    TcpLink link = TCP_LINK_NONE;
    if (!c->endpoints[wanted->peer].local[0] || !c->endpoints[own].local[0])
        snprintf(why, sizeof why, "no local socket");
    else
        link.fd = local_socket_connect(c->endpoints[wanted->peer].local, why);
    bool fine = link.fd >= 0 && prove(c, link.fd, wanted, true, until, &memory, why) &&
                confirm(&link, memory, why);
    if (memory >= 0) close(memory);
    if (fine) {
        *wanted->link = link;
    } else {
        tcp_link_close(&link);
        note_unshared(c, wanted->peer, why);
    }
    return fine;
}

/* All addresses of the peer in turn, again and again. */
static bool reach(Connecting *c, const Wanted *wanted) {
    static const char *const LOOPBACK[] = {"127.0.0.1", "::1"};
    const int own = c->world->job.rank;
    const Endpoint *there = &c->endpoints[wanted->peer];
    const int n_near = c->facts[own].host == c->facts[wanted->peer].host ? 2 : 0;
    const int n = n_near + (int)there->n_addresses;
    char why[SOCKET_WHY_BYTES] = "it has no address";
    const char *address = "";
    if (try_sharing(c, wanted)) return true;
    for (double pause = 0.01;; pause = fmin(2 * pause, 0.5)) {
        for (int i = 0; i < n; i++) {
            if (!job_goes_on(c)) return false;
            address = i < n_near ? LOOPBACK[i] : there->addresses[i - n_near];
            if (try_address(c, address, wanted, why)) return true;
            if (clock_now() >= c->deadline) break;
        }
        if (n == 0 || clock_now() >= c->deadline) break;
        pause_for(pause);
    }
    diag_error(c->diag, NO_LOC,
               "rank %d cannot connect to rank %d, last at %s port %u, within %.3g s: %s (which "
               "interfaces are tried can be said by %s)",
               own, wanted->peer, address, there->port, c->world->job.connect_s, why,
               COMM_TCP_INTERFACES);
    return false;
}

static bool connect_all(Connecting *c) {
    for (int i = 0; i < c->n_wanted; i++) {
        if (!c->wanted[i].accepts && !reach(c, &c->wanted[i])) return false;
    }
    while (atomic_load(&c->n_missing) > 0) {
        if (!job_goes_on(c)) return false;
        if (clock_now() >= c->deadline) {
            diag_error(c->diag, NO_LOC,
                       "rank %d waited %.3g s for %d connections of other ranks for their messages",
                       c->world->job.rank, c->world->job.connect_s, atomic_load(&c->n_missing));
            return false;
        }
        pause_for(0.001);
    }
    return true;
}

/* --- what the ranks tell each other --- */

static bool share(const Connecting *c, const void *own, size_t n_bytes, void *out) {
    const CommJob *job = &c->world->job;
    if (job->all_gather(job->user, own, n_bytes, out)) return true;
    if (job_goes_on(c)) diag_error(c->diag, NO_LOC, "the ranks could not tell their addresses");
    return false;
}

bool comm_tcp_may_share(bool *out, Diag *diag) {
    const char *setting = getenv(COMM_TCP_SHARES);
    *out = !setting || strcmp(setting, "1") == 0;
    if (*out || strcmp(setting, "0") == 0) return true;
    diag_error(diag, NO_LOC, "%s is '%.40s'; it must be 0 (all messages over TCP) or 1",
               COMM_TCP_SHARES, setting);
    return false;
}

static bool share_facts(Connecting *c, CommHost *out) {
    const int own_rank = c->world->job.rank;
    HostFacts own = {
        .byte_order = BYTE_ORDER_MARK, .version = VERSION, .host = tcp_host_id(&own.machine)};
    bool shares;
    if (!comm_tcp_may_share(&shares, c->diag)) return false;
    own.shares = shares;
    out->n_cores = wait_own_cores(&own.cores);
    if (!share(c, &own, sizeof own, c->facts)) return false;
    for (int i = 0; i < c->world->job.world; i++) {
        const HostFacts *facts = &c->facts[i];
        if (facts->byte_order != own.byte_order || facts->version != own.version) {
            diag_error(c->diag, NO_LOC, "rank %d has another byte order or version than rank %d", i,
                       own_rank);
            return false;
        }
        out->n_ranks += facts->host == own.host;
        out->n_sharing += facts->host == own.host && facts->cores == own.cores;
    }
    return true;
}

/* Large rings let ranks go on that seldom run at the same time. */
static void choose_rings(Connecting *c) {
    const HostFacts *own = &c->facts[c->world->job.rank];
    size_t n = 0;
    for (int i = 0; i < c->n_wanted; i++) n += c->facts[c->wanted[i].peer].host == own->host;
    c->ring_bytes = RING_MOST_BYTES;
    while (c->ring_bytes > RING_LEAST_BYTES && 2 * n * c->ring_bytes > NEAR_BYTES) {
        c->ring_bytes /= 2;
    }
}

/* On the loopback address alone, where all ranks are on one host. */
static bool open_listener(Connecting *c, const CommHost *host) {
    char why[SOCKET_WHY_BYTES] = "";
    bool together = host->n_ranks == c->world->job.world;
    c->listener = together ? socket_listen("127.0.0.1", 0, why) : -1;
    if (together && c->listener < 0) c->listener = socket_listen("::1", 0, why);
    if (c->listener < 0) c->listener = socket_listen("", 0, why);
    if (c->listener < 0) {
        diag_error(c->diag, NO_LOC, "rank %d cannot listen: %s", c->world->job.rank, why);
    }
    return c->listener >= 0;
}

static bool share_endpoints(Connecting *c) {
    const CommJob *job = &c->world->job;
    int n = 0;
    Endpoint own = {.port = (uint32_t)socket_port(c->listener)};
    if (!tcp_own_addresses(job->own_address, own.addresses, &n, c->diag)) return false;
    own.n_addresses = (uint32_t)n;
    c->local_listener = c->facts[job->rank].shares ? local_socket_listen(own.local) : -1;
    if (getrandom(&own.secret, sizeof own.secret, 0) != (ssize_t)sizeof own.secret) {
        diag_error(c->diag, NO_LOC, "getrandom: %s", strerror(errno));
        return false;
    }
    if (!share(c, &own, sizeof own, c->endpoints)) return false;
    for (int i = 0; i < job->world; i++) {
        const Endpoint *other = &c->endpoints[i];
        bool right = other->n_addresses <= TCP_MOST_ADDRESSES && other->port > 0 &&
                     other->port <= UINT16_MAX && local_socket_is_name(other->local);
        for (uint32_t a = 0; right && a < other->n_addresses; a++) {
            right = tcp_is_address(other->addresses[a]);
        }
        if (right) continue;
        diag_error(c->diag, NO_LOC, "rank %d told what are no addresses", i);
        return false;
    }
    return true;
}

static bool start_service(const Connecting *c) {
    TcpWorld *world = c->world;
    world->polls = comm_allocate(sizeof(*world->polls) * (size_t)(world->n_channels + 1));
    int error = pthread_create(&world->thread, NULL, tcp_serve, world);
    world->has_thread = error == 0;
    if (error)
        diag_error(c->diag, NO_LOC, "cannot start a thread for messages: %s", strerror(error));
    return error == 0;
}

static bool connect_among(Connecting *c, CommHost *out_host) {
    size_t limit;
    pthread_t thread;
    if (!socket_reserve_descriptors((size_t)c->n_wanted + OTHER_DESCRIPTORS, &limit)) {
        diag_error(c->diag, NO_LOC,
                   "rank %d needs %d connections, and this system lets a process have %zu open "
                   "files (ulimit -n)",
                   c->world->job.rank, c->n_wanted, limit);
        return false;
    }
    if (!share_facts(c, out_host) || !open_listener(c, out_host) || !share_endpoints(c)) {
        return false;
    }
    choose_rings(c);
    c->deadline = clock_now() + c->world->job.connect_s;
    int error = pthread_create(&thread, NULL, accept_all, c);
    if (error) {
        diag_error(c->diag, NO_LOC, "cannot start a thread to connect: %s", strerror(error));
        return false;
    }
    bool fine = connect_all(c);
    atomic_store(&c->stopping, true);
    pthread_join(thread, NULL);
    return fine && start_service(c);
}

/* Turns over sockets are system calls, over shared memory a few loads. */
static void set_idle_turns(TcpWorld *world) {
    const int n_spins = world->base.policy.n_spins;
    for (CommGroup *base = world->base.groups; base; base = base->next) {
        TcpGroup *group = (TcpGroup *)base;
        group->is_near = true;
        for (int i = 0; i < base->n_members; i++) {
            const TcpPeer *peer = group->peers[i];
            group->is_near = group->is_near && (!peer || tcp_link_is_shared(&peer->link));
        }
        group->n_idle = group->is_near ? n_spins / NEAR_TURN : n_spins > 0 ? MOST_TURNS : 0;
    }
}

bool comm_tcp_connect(CommWorld *base, CommHost *out_host, Diag *diag) {
    TcpWorld *world = (TcpWorld *)base;
    const size_t n = (size_t)world->job.world;
    Connecting *c = comm_allocate(sizeof(*c));
    *c = (Connecting){.world = world, .diag = diag, .listener = -1, .local_listener = -1};
    c->facts = comm_allocate(n * sizeof(*c->facts));
    c->endpoints = comm_allocate(n * sizeof(*c->endpoints));
    *out_host = (CommHost){0};
    list_wanted(c);
    const size_t most_guests = (size_t)(MOST_STRANGERS + c->n_wanted);
    c->guests = comm_allocate(most_guests * sizeof(*c->guests));
    c->polls = comm_allocate((most_guests + 2) * sizeof(*c->polls));
    bool fine = connect_among(c, out_host);
    if (fine) fputs(c->unshared, stderr);
    if (c->listener >= 0) close(c->listener);
    if (c->local_listener >= 0) close(c->local_listener);
    base->policy.n_spins = wait_choose_spins(out_host->n_sharing);
    set_idle_turns(world);
    free(c->facts);
    free(c->endpoints);
    free(c->wanted);
    free(c->guests);
    free(c->polls);
    free(c);
    return fine;
}
