/* All-reduces between ranks of this machine over shared memory and over TCP, beside those between
 * threads and beside plain copies: bench_messages [RANKS]. */
#include "ir/base/clock.h"
#include "tests/unit/tcp_team.h"

#include "runtime/comm/comm_wait.h"

enum { LARGEST = 1 << 26 };

static Team *team_open(int n) {
    return connect_team(n, false, NULL);
}

static void team_close(Team *team) {
    disconnect_team(team);
}

typedef struct Timing {
    Team *team;
    size_t count;
    int n_repeats;
    double seconds; /* rank 0's best of an all-reduce */
} Timing;

static void time_rank(int rank, void *shared) {
    Timing *timing = shared;
    CommGroup *group = timing->team->all[rank];
    float *x = calloc(timing->count, sizeof(float));
    for (int i = 0; i < timing->n_repeats + 1; i++) {
        comm_barrier(group, rank);
        double start = clock_now();
        comm_all_reduce(group, rank, REDUCE_SUM, DTYPE_F32, x, x, timing->count);
        double seconds = clock_now() - start;
        if (rank == 0 && i > 0 && seconds < timing->seconds) timing->seconds = seconds;
    }
    free(x);
}

static double time_team(Team *team, size_t bytes, int n_repeats) {
    Timing timing = {team, bytes / sizeof(float), n_repeats, 1e9};
    run_ranks(team->n, time_rank, &timing);
    return timing.seconds;
}

static double time_copy(size_t bytes, int n_repeats) {
    char *from = malloc(bytes), *to = malloc(bytes);
    double best = 1e9;
    memset(from, 1, bytes);
    memset(to, 1, bytes);
    for (int i = 0; i < n_repeats; i++) {
        double start = clock_now();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        best = fmin(best, clock_now() - start);
    }
    free(from);
    free(to);
    return best;
}

int main(int argc, char **argv) {
    const int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 2;
    if (n < 2 || n > MAX_RANKS) return 2;
    setenv(COMM_TCP_SHARES, "0", 1);
    Team *tcp = team_open(n);
    setenv(COMM_TCP_SHARES, "1", 1);
    Team *shared = team_open(n);
    Team threads = {.n = n};
    CommWorld *world = comm_world_create(n);
    CommGroup *all = comm_group_create(world, n, "all");
    for (int i = 0; i < n; i++) threads.all[i] = all;
    printf("%d ranks; GB/s: bytes of the tensor in the time of one all-reduce, or of a copy\n", n);
    printf("%10s %12s %12s %12s %12s\n", "bytes", "TCP", "shared", "threads", "memcpy");
    for (size_t bytes = 1 << 10; bytes <= LARGEST; bytes *= 8) {
        const int n_repeats = bytes < 1 << 20 ? 300 : 10;
        const double gb = (double)bytes * 1e-9;
        printf("%10zu %12.3f %12.3f %12.3f %12.3f\n", bytes, gb / time_team(tcp, bytes, n_repeats),
               gb / time_team(shared, bytes, n_repeats), gb / time_team(&threads, bytes, n_repeats),
               gb / time_copy(bytes, n_repeats));
    }
    comm_world_destroy(world);
    team_close(tcp);
    team_close(shared);
    return 0;
}
