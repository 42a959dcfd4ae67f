#include "ir/base/clock.h"
#include "runtime/comm/tcp_internal.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    MESSAGE_MAGIC = 0x504c434d, /* "PLCM" */
    WATCH_MS = 100,             /* how often the job's end is asked for */
    WATCH_LOST_MS = 10,         /* once a connection has closed */
};

/* At the end of a good run nothing is left to send; of what is, after all: */
static const double farewell_s = 10;

/* --- waiting, and the end --- */

void tcp_wake(TcpWorld *world) {
    uint64_t one = 1;
    ssize_t n = write(world->wake_fd, &one, sizeof one); /* fails only when it is set already */
    (void)n;
}

/* A connection of that rank's has closed, or nonsense came through it. */
static void note_lost(TcpWorld *world, int rank, const TcpLink *link) {
    int nobody = -1;
    if (link->is_broken) {
        comm_fail(&world->base,
                  "rank %d wrote what cannot be into the memory that it shares with rank %d", rank,
                  world->job.rank);
    } else if (atomic_load(&world->lost) < 0) {
        atomic_store(&world->lost_at, clock_now());
        atomic_compare_exchange_strong(&world->lost, &nobody, rank);
    }
}

bool tcp_lose(TcpWorld *world, int rank, const TcpLink *link) {
    note_lost(world, rank, link);
    tcp_wake(world);
    struct pollfd ended = {.fd = world->ended_fd, .events = POLLIN};
    double since = clock_now();
    bool late = false;
    while (tcp_wait(world, &ended, 1, since, &late)) {
    }
    return false;
}

bool tcp_wait(TcpWorld *world, struct pollfd *polls, int n, double since, bool *out_late) {
    const double limit = world->base.policy.timeout_s, before = clock_now();
    double left = limit > 0 ? since + limit - before : 1;
    polls[n - 1] = (struct pollfd){.fd = world->ended_fd, .events = POLLIN};
    int rc = poll(polls, (nfds_t)n, (int)ceil(fmin(fmax(left, 0), 1) * 1e3));
    wait_add_seconds(clock_now() - before);
    if (comm_world_is_aborted(&world->base)) return false;
    *out_late = rc == 0 && left <= 0;
    return !*out_late;
}

/* --- sending --- */

static size_t pending_bytes(const TcpPending *pending) {
    return sizeof(TcpMessage) + (size_t)pending->header.bytes;
}

/* Sends what the socket takes, with the channel's lock. False: the connection is closed. */
static bool pump(TcpChannel *channel) {
    bool freed = false;
    SocketResult result = SOCKET_MOVED;
    while (channel->n_pending > 0 && result == SOCKET_MOVED) {
        TcpPending *first = &channel->pending[channel->first];
        struct iovec pieces[2];
        int n = 0;
        size_t of_header = comm_min(channel->sent, sizeof(TcpMessage)), moved = 0;
        size_t of_bytes = channel->sent - of_header;
        if (of_header < sizeof(TcpMessage)) {
            pieces[n++] =
                (struct iovec){(char *)&first->header + of_header, sizeof(TcpMessage) - of_header};
        }
        if (of_bytes < first->header.bytes) {
            pieces[n++] = (struct iovec){(char *)first->bytes + of_bytes,
                                         (size_t)first->header.bytes - of_bytes};
        }
        result = tcp_link_move(&channel->link, pieces, n, true, &moved);
        channel->sent += moved;
        if (channel->sent < pending_bytes(first)) continue;
        channel->sent = 0;
        channel->first = (channel->first + 1) % channel->base.n_slots;
        atomic_fetch_sub(&channel->n_pending, 1);
        freed = true;
    }
    if (freed) wait_signal(&channel->base.event);
    return result != SOCKET_CLOSED;
}

static bool has_free_slot(const void *state) {
    const TcpChannel *channel = state;
    return atomic_load_explicit(&channel->n_pending, memory_order_acquire) < channel->base.n_slots;
}

bool tcp_channel_send(CommChannel *base, void *slot_base, size_t slot_bytes, const void *source,
                      size_t bytes) {
    TcpChannel *channel = (TcpChannel *)base;
    TcpWorld *world = (TcpWorld *)base->world;
    if (!channel->is_sender) BUG("channel '%s' sends the other way", base->name);
    if (!comm_channel_wait(base, has_free_slot, "send", bytes)) return false;
    char *place = (char *)slot_base + channel->next_slot * slot_bytes;
    if (bytes && place != source) memcpy(place, source, bytes);
    channel->next_slot = (channel->next_slot + 1) % base->n_slots;
    pthread_mutex_lock(&channel->lock);
    uint32_t last = (channel->first + channel->n_pending) % base->n_slots;
    channel->pending[last] =
        (TcpPending){.header = {MESSAGE_MAGIC, channel->sequence++, bytes}, .bytes = place};
    atomic_fetch_add(&channel->n_pending, 1);
    bool open = pump(channel), more = channel->n_pending > 0;
    pthread_mutex_unlock(&channel->lock);
    if (!open) return tcp_lose(world, channel->peer, &channel->link);
    if (more) tcp_wake(world);
    return !comm_world_is_aborted(base->world);
}

/* --- receiving --- */

/* Nothing of it is used but to say how it differs. */
static bool check_message(TcpChannel *channel, const TcpMessage *message, size_t bytes) {
    if (message->magic != MESSAGE_MAGIC || message->sequence != channel->sequence) {
        return comm_fail(channel->base.world, "channel '%s': rank %d sent what is no message",
                         channel->base.name, channel->peer);
    }
    if (message->bytes == bytes) return true;
    return comm_fail(channel->base.world,
                     "channel '%s': receive of %zu bytes meets a message of %llu",
                     channel->base.name, bytes, (unsigned long long)message->bytes);
}

bool tcp_channel_receive(CommChannel *base, void *destination, size_t bytes) {
    TcpChannel *channel = (TcpChannel *)base;
    TcpWorld *world = (TcpWorld *)base->world;
    TcpMessage message;
    size_t done = 0;
    double since = 0;
    int n_idle = 0;
    bool late = false, checked = false;
    if (channel->is_sender) BUG("channel '%s' receives at the other end", base->name);
    while (done < sizeof message + bytes) {
        size_t of_header = comm_min(done, sizeof message), of_bytes = done - of_header, moved;
        struct iovec pieces[2] = {{(char *)&message + of_header, sizeof message - of_header},
                                  {(char *)destination + of_bytes, bytes - of_bytes}};
        SocketResult result = tcp_link_move(&channel->link, pieces, 2, false, &moved);
        if (result == SOCKET_CLOSED) return tcp_lose(world, channel->peer, &channel->link);
        done += moved;
        if (!checked && done >= sizeof message) {
            if (!check_message(channel, &message, bytes)) return false;
            checked = true;
        }
        if (result == SOCKET_MOVED) {
            since = 0;
            n_idle = 0;
            continue;
        }
        if (tcp_link_is_shared(&channel->link) && ++n_idle <= base->world->policy.n_spins / 2 &&
            !comm_world_is_aborted(base->world)) {
            wait_pause();
            continue;
        }
        if (since == 0) since = clock_now();
        struct pollfd polls[2];
        if (!tcp_link_sleeps(&channel->link, false, true, &polls[0])) continue;
        if (tcp_wait(world, polls, 2, since, &late)) {
            tcp_link_wake(&channel->link, &polls[0]);
            continue;
        }
        return late && comm_fail(base->world,
                                 "channel '%s': receive of %zu bytes waited %g s for the other end",
                                 base->name, bytes, base->world->policy.timeout_s);
    }
    channel->sequence++;
    return !comm_world_is_aborted(base->world);
}

/* --- the service thread --- */

/* Channels that have something to send, behind the wake-up; *out_at_once: one can by now. */
static int collect_polls(const TcpWorld *world, bool *out_at_once) {
    int n = 0;
    *out_at_once = false;
    world->polls[n++] = (struct pollfd){.fd = world->wake_fd, .events = POLLIN};
    for (const CommChannel *c = world->base.channels; c; c = c->next) {
        TcpChannel *channel = (TcpChannel *)c;
        channel->poll = 0;
        if (!channel->is_sender || atomic_load(&channel->n_pending) == 0) continue;
        channel->poll = n;
        pthread_mutex_lock(&channel->lock);
        if (!tcp_link_sleeps(&channel->link, true, false, &world->polls[n++])) *out_at_once = true;
        pthread_mutex_unlock(&channel->lock);
    }
    return n;
}

static void pump_all(TcpWorld *world) {
    for (CommChannel *c = world->base.channels; c; c = c->next) {
        TcpChannel *channel = (TcpChannel *)c;
        if (!channel->is_sender || channel->poll == 0) continue;
        pthread_mutex_lock(&channel->lock);
        tcp_link_wake(&channel->link, &world->polls[channel->poll]);
        bool open = pump(channel);
        if (!open) note_lost(world, channel->peer, &channel->link);
        pthread_mutex_unlock(&channel->lock);
    }
}

static void watch(TcpWorld *world) {
    const char *why = world->job.why_failed(world->job.user);
    const int lost = atomic_load(&world->lost);
    if (why) {
        comm_world_abort(&world->base, why);
    } else if (lost >= 0 && clock_now() - atomic_load(&world->lost_at) > world->job.patience_s) {
        comm_fail(&world->base, "rank %d has closed its connection to rank %d", lost,
                  world->job.rank);
    }
}

void *tcp_serve(void *argument) {
    TcpWorld *world = argument;
    double stop_at = 0;
    for (;;) {
        bool at_once;
        int n = collect_polls(world, &at_once);
        bool stopping = atomic_load(&world->stopping);
        if (stopping && stop_at == 0) stop_at = clock_now() + farewell_s;
        if (stopping && (n == 1 || comm_world_is_aborted(&world->base) || clock_now() > stop_at)) {
            return NULL;
        }
        const bool aborted = comm_world_is_aborted(&world->base),
                   lost = atomic_load(&world->lost) >= 0;
        if (aborted || lost) { /* nothing is sent; a closed connection would never be quiet */
            n = 1;
            at_once = false;
        }
        int rc = poll(world->polls, (nfds_t)n,
                      at_once            ? 0
                      : lost && !aborted ? WATCH_LOST_MS
                                         : WATCH_MS);
        if (rc > 0 && world->polls[0].revents) {
            uint64_t count;
            ssize_t got = read(world->wake_fd, &count, sizeof count);
            (void)got;
        }
        if (aborted) continue;
        if (n > 1) pump_all(world);
        watch(world);
    }
}
