/* Teams for comm_cases.h whose ranks share nothing but connections: threads with a world each. */
#ifndef TESTS_UNIT_TCP_TEAM_H
#define TESTS_UNIT_TCP_TEAM_H

#include "runtime/comm/comm_tcp.h"
#include "tests/unit/comm_cases.h"

typedef struct Meeting {
    pthread_barrier_t barrier;
    unsigned char bytes[MAX_RANKS][4096];
    void (*listening)(int rank, const void *endpoint); /* before anybody connects; NULL: nothing */
} Meeting;

typedef struct Joining {
    Team *team;
    Meeting *meeting;
    int rank;
    bool deals;
} Joining;

static inline bool meet(void *user, const void *bytes, size_t n_bytes, void *out) {
    const Joining *joining = user;
    Meeting *meeting = joining->meeting;
    memcpy(meeting->bytes[joining->rank], bytes, n_bytes);
    pthread_barrier_wait(&meeting->barrier);
    if (meeting->listening && n_bytes > 64) meeting->listening(joining->rank, meeting->bytes[0]);
    for (int i = 0; i < joining->team->n; i++) {
        memcpy((char *)out + (size_t)i * n_bytes, meeting->bytes[i], n_bytes);
    }
    pthread_barrier_wait(&meeting->barrier);
    return true;
}

static inline const char *goes_on(void *user) {
    (void)user;
    return NULL;
}

static inline CommJob make_job(Joining *joining) {
    return (CommJob){.rank = joining->rank,
                     .world = joining->team->n,
                     .user = joining,
                     .all_gather = meet,
                     .why_failed = goes_on,
                     .own_address = "",
                     .connect_s = 10,
                     .patience_s = 0.05};
}

static inline void *join(void *argument) {
    Joining *joining = argument;
    Team *team = joining->team;
    const int n = team->n, rank = joining->rank;
    int ranks[MAX_RANKS];
    CommHost host;
    const CommJob job = make_job(joining);
    CommWorld *world = team->worlds[rank] = comm_tcp_create(&job);
    for (int i = 0; i < n; i++) ranks[i] = i;
    team->all[rank] = comm_tcp_group_create(world, ranks, n, 1, "all");
    if (joining->deals) comm_group_set_dealing(team->all[rank]);
    if (n % 2 == 0) {
        const int half = rank * 2 / n;
        team->halves[rank] =
            comm_tcp_group_create(world, ranks + half * n / 2, n / 2, 2 + (uint32_t)half, "half");
    }
    if (rank + 1 < n) {
        team->from[rank] = comm_tcp_channel_create(world, rank, rank + 1, 7, N_SLOTS, "next");
    }
    if (rank > 0) {
        team->to[rank - 1] = comm_tcp_channel_create(world, rank - 1, rank, 7, N_SLOTS, "next");
    }
    Diag *diag = diag_create();
    CHECK(comm_tcp_connect(world, &host, diag), "rank %d of %d: %s", rank, n, diag_text(diag));
    CHECK(host.n_ranks == n && host.n_sharing == n && host.n_cores > 0, "%d %d %d", host.n_ranks,
          host.n_sharing, host.n_cores);
    diag_destroy(diag);
    return NULL;
}

/* A thread for each rank of the team, given its Joining. */
static inline void run_joining(Team *team, bool deals,
                               void (*listening)(int rank, const void *endpoint),
                               void *(*run)(void *joining)) {
    Meeting *meeting = calloc(1, sizeof(*meeting));
    Joining joining[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    meeting->listening = listening;
    pthread_barrier_init(&meeting->barrier, NULL, (unsigned)team->n);
    for (int i = 0; i < team->n; i++) {
        joining[i] = (Joining){team, meeting, i, deals};
        pthread_create(&threads[i], NULL, run, &joining[i]);
    }
    for (int i = 0; i < team->n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting->barrier);
    free(meeting);
}

static inline Team *connect_team(int n, bool deals,
                                 void (*listening)(int rank, const void *endpoint)) {
    Team *team = calloc(1, sizeof(*team));
    team->n = n;
    run_joining(team, deals, listening, join);
    return team;
}

static inline void disconnect_team(Team *team) {
    for (int i = 0; i < team->n; i++) comm_world_destroy(team->worlds[i]);
    free(team);
}

#endif
