/* Collectives and channels between ranks that share nothing but connections: the cases of all
 * fillings, then random calls bit by bit against those between threads.
 *
 * Catches: parts in another order or place, blocks reduced before all have come, sums passed on too
 * early, sends that block each other, strangers that are let in, sizes of the other end believed, a
 * closed connection that nobody tells of. */
#include "runtime/comm/comm_tcp.h"
#include "runtime/launch/socket.h"
#include "tests/unit/comm_cases.h"

#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- ranks are threads with a world each --- */

typedef struct Meeting {
    pthread_barrier_t barrier;
    unsigned char bytes[MAX_RANKS][4096];
    atomic_int garbage_port; /* a stranger's: where rank 0 listens */
} Meeting;

typedef struct Joining {
    Team *team;
    Meeting *meeting;
    int rank;
    bool deals;
} Joining;

static bool meet(void *user, const void *bytes, size_t n_bytes, void *out) {
    const Joining *joining = user;
    Meeting *meeting = joining->meeting;
    memcpy(meeting->bytes[joining->rank], bytes, n_bytes);
    pthread_barrier_wait(&meeting->barrier);
    for (int i = 0; i < joining->team->n; i++) {
        memcpy((char *)out + (size_t)i * n_bytes, meeting->bytes[i], n_bytes);
    }
    pthread_barrier_wait(&meeting->barrier);
    return true;
}

static const char *goes_on(void *user) {
    (void)user;
    return NULL;
}

static void *join(void *argument) {
    Joining *joining = argument;
    Team *team = joining->team;
    const int n = team->n, rank = joining->rank;
    int ranks[MAX_RANKS];
    CommHost host;
    CommJob job = {.rank = rank,
                   .world = n,
                   .user = joining,
                   .all_gather = meet,
                   .why_failed = goes_on,
                   .own_address = "",
                   .connect_s = 20,
                   .patience_s = 0.05};
    CommWorld *world = team->worlds[rank] = comm_tcp_create(&job);
    for (int i = 0; i < n; i++) ranks[i] = i;
    team->all[rank] = comm_tcp_group_create(world, ranks, n, 1, "all");
    if (joining->deals) comm_group_set_dealing(team->all[rank]);
    if (n % 2 == 0) {
        const int half = rank * 2 / n;
        team->halves[rank] = comm_tcp_group_create(world, ranks + half * n / 2, n / 2,
                                                   2 + (uint32_t)half, "half");
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

static Team *connect_team(int n, bool deals) {
    Team *team = calloc(1, sizeof(*team));
    Meeting *meeting = calloc(1, sizeof(*meeting));
    Joining joining[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    team->n = n;
    pthread_barrier_init(&meeting->barrier, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        joining[i] = (Joining){team, meeting, i, deals};
        pthread_create(&threads[i], NULL, join, &joining[i]);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&meeting->barrier);
    free(meeting);
    return team;
}

static void disconnect_team(Team *team) {
    for (int i = 0; i < team->n; i++) comm_world_destroy(team->worlds[i]);
    free(team);
}

/* All cases of one size use the same connections. */
static Team *teams[MAX_RANKS + 1];

static Team *team_open(int n) {
    if (!teams[n]) teams[n] = connect_team(n, false);
    return teams[n];
}

static void team_close(Team *team) {
    (void)team;
}

int main(void) {
    test_cases();
    for (int n = 0; n <= MAX_RANKS; n++) {
        if (teams[n]) disconnect_team(teams[n]);
    }
    return check_report();
}
