#include "runtime/comm/comm_tcp.h"

#include "runtime/comm/tcp_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Both ends', which are resident in each of the two processes. */
static size_t shared_bytes(const TcpLink *link) {
    return ring_pair_bytes(&link->rings);
}

size_t comm_tcp_staging_bytes(const CommWorld *base) {
    const TcpWorld *world = (const TcpWorld *)base;
    size_t bytes = 0;
    for (int i = 0; i < world->job.world; i++) {
        const TcpPeer *peer = world->peers[i];
        if (peer) bytes += TCP_STAGING_BYTES + shared_bytes(&peer->link);
    }
    for (const CommChannel *c = base->channels; c; c = c->next) {
        bytes += shared_bytes(&((const TcpChannel *)c)->link);
    }
    return bytes;
}

static void wake(CommWorld *base) {
    const TcpWorld *world = (const TcpWorld *)base;
    uint64_t one = 1;
    ssize_t n = write(world->ended_fd, &one, sizeof one); /* stays readable: nobody reads it */
    (void)n;
}

static void close_if_open(int fd) {
    if (fd >= 0) close(fd);
}

static void destroy_world(CommWorld *base) {
    TcpWorld *world = (TcpWorld *)base;
    if (world->has_thread) {
        atomic_store(&world->stopping, true);
        tcp_wake(world);
        pthread_join(world->thread, NULL);
    }
    for (int i = 0; i < world->job.world; i++) {
        TcpPeer *peer = world->peers[i];
        if (!peer) continue;
        tcp_link_close(&peer->link);
        free(peer->staging);
        free(peer);
    }
    close_if_open(world->ended_fd);
    close_if_open(world->wake_fd);
    free(world->peers);
    free(world->polls);
}

static void destroy_group(CommGroup *base) {
    TcpGroup *group = (TcpGroup *)base;
    free(group->peers);
    free(group->inputs);
    free(group->polls);
}

static void destroy_channel(CommChannel *base) {
    TcpChannel *channel = (TcpChannel *)base;
    tcp_link_close(&channel->link);
    pthread_mutex_destroy(&channel->lock);
    free(channel->pending);
}

static const CommFilling TCP = {.collect = tcp_collect,
                                .send = tcp_channel_send,
                                .receive = tcp_channel_receive,
                                .wake = wake,
                                .destroy_world = destroy_world,
                                .destroy_group = destroy_group,
                                .destroy_channel = destroy_channel};

CommWorld *comm_tcp_create(const CommJob *job) {
    TcpWorld *world = comm_allocate(sizeof(*world));
    if (job->rank < 0 || job->rank >= job->world) BUG("rank %d of %d", job->rank, job->world);
    comm_world_init(&world->base, &TCP, 1);
    world->job = *job;
    snprintf(world->own_address, sizeof world->own_address, "%s", job->own_address);
    world->job.own_address = world->own_address;
    world->peers = comm_allocate(sizeof(*world->peers) * (size_t)job->world);
    world->ended_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    world->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    atomic_store(&world->lost, -1);
    if (world->ended_fd < 0 || world->wake_fd < 0) BUG("eventfd: %s", strerror(errno));
    return &world->base;
}

static TcpPeer *find_peer(TcpWorld *world, int rank) {
    if (rank < 0 || rank >= world->job.world) BUG("rank %d of %d", rank, world->job.world);
    if (rank == world->job.rank) return NULL;
    if (!world->peers[rank]) {
        TcpPeer *peer = world->peers[rank] = comm_allocate(sizeof(*peer));
        peer->rank = rank;
        peer->link = TCP_LINK_NONE;
        peer->staging = comm_allocate(TCP_STAGING_BYTES);
    }
    return world->peers[rank];
}

CommGroup *comm_tcp_group_create(CommWorld *base, const int *ranks, int n_members, uint32_t tag,
                                 const char *name) {
    TcpWorld *world = (TcpWorld *)base;
    TcpGroup *group = comm_allocate(sizeof(*group));
    comm_group_init(&group->base, base, n_members, name);
    const size_t n = (size_t)n_members;
    group->tag = tag;
    group->member = -1;
    group->peers = comm_allocate(n * sizeof(*group->peers));
    group->inputs = comm_allocate(n * sizeof(*group->inputs));
    group->polls = comm_allocate((n + 1) * sizeof(*group->polls));
    for (int i = 0; i < n_members; i++) {
        group->peers[i] = find_peer(world, ranks[i]);
        if (!group->peers[i]) group->member = i;
    }
    if (group->member < 0) BUG("group '%s' without rank %d", name, world->job.rank);
    return &group->base;
}

CommChannel *comm_tcp_channel_create(CommWorld *base, int from, int to, uint32_t tag, int n_slots,
                                     const char *name) {
    TcpWorld *world = (TcpWorld *)base;
    TcpChannel *channel = comm_allocate(sizeof(*channel));
    if (from == to || (from != world->job.rank && to != world->job.rank)) {
        BUG("channel '%s' from rank %d to %d, on rank %d", name, from, to, world->job.rank);
    }
    comm_channel_init(&channel->base, base, n_slots, name);
    channel->tag = tag;
    channel->is_sender = from == world->job.rank;
    channel->peer = channel->is_sender ? to : from;
    channel->link = TCP_LINK_NONE;
    pthread_mutex_init(&channel->lock, NULL);
    channel->pending = comm_allocate(sizeof(*channel->pending) * (size_t)n_slots);
    world->n_channels++;
    return &channel->base;
}
