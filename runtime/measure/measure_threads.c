/* Messages and collectives between ranks: threads, through comm_inproc, or processes, through
 * comm_tcp. */
#include "runtime/measure/measure_threads.h"

#include "ir/base/clock.h"
#include "runtime/comm/comm_tcp.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One experiment, shared by its threads. */
typedef struct Experiment {
    CommWorld *world;
    CommGroup *group;
    CommChannel *there, *back;
    ProfileCollectiveKind kind;
    int64_t n_members, bytes;
    int n_samples, n_repeats;
    double samples[MEASURE_MOST_SAMPLES]; /* member 0's, us per operation */
} Experiment;

typedef struct Member {
    Experiment *experiment;
    int number;
    bool is_message, failed;
    float *in, *out;
    pthread_t thread;
} Member;

static bool run_collective(const Member *member) {
    const Experiment *e = member->experiment;
    size_t count = (size_t)e->bytes / sizeof(float), part = count / (size_t)e->n_members;
    size_t whole = part * (size_t)e->n_members;
    switch (e->kind) {
    case PROFILE_ALL_REDUCE:
        return comm_all_reduce(e->group, member->number, REDUCE_SUM, DTYPE_F32, member->in,
                               member->out, count);
    case PROFILE_ALL_GATHER:
        return comm_all_gather(e->group, member->number, DTYPE_F32, member->in, member->out, 1,
                               part, whole, 1);
    default:
        return comm_reduce_scatter(e->group, member->number, REDUCE_SUM, DTYPE_F32, member->in,
                                   member->out, 1, part, whole, 1);
    }
}

/* There and back: twice the time of one message. `out` is the sender's slot. */
static bool run_message(const Member *member) {
    const Experiment *e = member->experiment;
    size_t bytes = (size_t)e->bytes;
    CommChannel *own = member->number == 0 ? e->there : e->back;
    CommChannel *other = member->number == 0 ? e->back : e->there;
    bool fine = true;
    if (member->number == 1) fine = comm_channel_recv(other, member->in, bytes);
    fine = fine && comm_channel_send(own, member->out, bytes, member->in, bytes);
    if (member->number == 0) fine = fine && comm_channel_recv(other, member->in, bytes);
    return fine;
}

static void *member_main(void *user) {
    Member *member = user;
    Experiment *e = member->experiment;
    bool fine = true;
    for (int s = -1; fine && s < e->n_samples; s++) { /* the first one warms up */
        fine = comm_barrier(e->group, member->number);
        double start = clock_now_us();
        for (int i = 0; fine && i < e->n_repeats; i++) {
            fine = member->is_message ? run_message(member) : run_collective(member);
        }
        if (s >= 0 && member->number == 0) {
            e->samples[s] = (clock_now_us() - start) / e->n_repeats / (member->is_message ? 2 : 1);
        }
    }
    /* What was sent may be freed once it has come. */
    member->failed = !fine || !comm_barrier(e->group, member->number);
    return NULL;
}

/* So many that a sample takes some milliseconds, supposing 2 GB/s and 20 us. */
static int choose_repeats(int64_t bytes, int64_t n_members, bool quick) {
    double guess_us = 20 + (double)bytes * (double)n_members / 2000;
    double wanted_us = quick ? 3000 : 8000;
    return guess_us >= wanted_us ? 1 : (int)(wanted_us / guess_us);
}

static bool allocate(Member *member, int64_t bytes) {
    size_t size = ((size_t)bytes + 63) / 64 * 64;
    member->in = aligned_alloc(64, size);
    member->out = aligned_alloc(64, size);
    if (!member->in || !member->out) return false;
    memset(member->in, 0, size);
    memset(member->out, 0, size);
    return true;
}

/* Threads for all members, or this one as the member that this process is. */
static bool run_members(Experiment *e, Member *members, int n, bool is_process) {
    bool fine = true;
    int n_started = 0;
    for (int i = 0; fine && i < n; i++) fine = allocate(&members[i], e->bytes);
    if (fine && is_process) member_main(&members[0]);
    for (; fine && !is_process && n_started < n; n_started++) {
        Member *member = &members[n_started];
        fine = pthread_create(&member->thread, NULL, member_main, member) == 0;
        if (!fine) break;
    }
    if (!fine) comm_world_abort(e->world, "no memory or no threads");
    for (int i = 0; i < n_started; i++) pthread_join(members[i].thread, NULL);
    for (int i = 0; i < n; i++) {
        fine = fine && !members[i].failed;
        free(members[i].in);
        free(members[i].out);
    }
    return fine;
}

/* `only`: the member that this process is, -1 for threads. */
static double run(Experiment *e, int only, bool is_message, Diag *diag) {
    const int n = only < 0 ? (int)e->n_members : 1;
    Member *members = calloc((size_t)n, sizeof(Member));
    for (int i = 0; members && i < n; i++) {
        members[i] =
            (Member){.experiment = e, .number = only < 0 ? i : only, .is_message = is_message};
    }
    const bool fine = members && run_members(e, members, n, only >= 0);
    free(members);
    if (fine) return only > 0 ? 0 : measure_quartile(e->samples, e->n_samples);
    diag_error(diag, NO_LOC, "measuring messages of %lld bytes: %s", (long long)e->bytes,
               comm_world_reason(e->world));
    return -1;
}

/* --- processes --- */

enum { MOST_GROUPS = 32 }; /* of 2, 4, 8, ... ranks, and of all */

struct MeasureTeam {
    int rank;
    CommWorld *world;
    CommGroup *all;
    CommGroup *first[MOST_GROUPS]; /* [k]: of 2^k ranks; NULL: this rank is none of them */
    CommChannel *there, *back;     /* between ranks 0 and 1 */
};

static void join_groups(MeasureTeam *team, int world) {
    int *ranks = calloc((size_t)world, sizeof(int));
    if (!ranks) BUG("out of memory");
    for (int i = 0; i < world; i++) ranks[i] = i;
    team->all = comm_tcp_group_create(team->world, ranks, world, MOST_GROUPS, "measured");
    for (int k = 1; 1 << k <= world; k++) {
        if (team->rank >= 1 << k) continue;
        team->first[k] =
            comm_tcp_group_create(team->world, ranks, 1 << k, (uint32_t)k, "measured first ones");
    }
    if (team->rank <= 1) {
        team->there = comm_tcp_channel_create(team->world, 0, 1, 0, 1, "there");
        team->back = comm_tcp_channel_create(team->world, 1, 0, 1, 1, "back");
    }
    free(ranks);
}

/* A profile tells of cores that all ranks share, and of no network. */
static bool check_host(const CommHost *host, int world, Diag *diag) {
    if (host->n_sharing == world) return true;
    diag_error(diag, NO_LOC,
               "profile: %s: a profile is of one host's ranks, which share its cores%s",
               host->n_ranks == world ? "the processes may use different cores"
                                      : "the processes are on several hosts",
               host->n_ranks == world ? " (mpirun --bind-to none, srun --cpu-bind=none)" : "");
    return false;
}

MeasureTeam *measure_team_create(const CommJob *job, Diag *diag) {
    MeasureTeam *team = calloc(1, sizeof(*team));
    CommHost host;
    if (!team) BUG("out of memory");
    team->rank = job->rank;
    team->world = comm_tcp_create(job);
    join_groups(team, job->world);
    if (comm_tcp_connect(team->world, &host, diag) && check_host(&host, job->world, diag)) {
        return team;
    }
    measure_team_destroy(team);
    return NULL;
}

void measure_team_destroy(MeasureTeam *team) {
    if (!team) return;
    comm_world_destroy(team->world);
    free(team);
}

static CommGroup *find_group(const MeasureTeam *team, int64_t members) {
    for (int k = 1; k < MOST_GROUPS; k++) {
        if ((int64_t)1 << k == members) return team->first[k];
    }
    return NULL;
}

/* Ranks that are not members wait until the others are done. */
static double run_in_team(const MeasureTeam *team, Experiment *e, bool is_message, Diag *diag) {
    double us = 0;
    e->world = team->world;
    e->group = find_group(team, e->n_members);
    if (e->group) us = run(e, team->rank, is_message, diag);
    if (us < 0 || comm_barrier(team->all, team->rank)) return us;
    diag_error(diag, NO_LOC, "measuring messages: %s", comm_world_reason(team->world));
    return -1;
}

/* --- both --- */

double measure_message_us(MeasureTeam *team, int64_t bytes, bool quick, Diag *diag) {
    Experiment e = {.n_members = 2, .bytes = bytes, .n_samples = quick ? 3 : 7};
    e.n_repeats = choose_repeats(bytes, 2, quick);
    if (team) {
        e.there = team->there;
        e.back = team->back;
        return run_in_team(team, &e, true, diag);
    }
    e.world = comm_world_create(2);
    e.group = comm_group_create(e.world, 2, "measured");
    e.there = comm_channel_create(e.world, 1, "there");
    e.back = comm_channel_create(e.world, 1, "back");
    double us = run(&e, -1, true, diag);
    comm_world_destroy(e.world);
    return us;
}

double measure_collective_us(MeasureTeam *team, ProfileCollectiveKind kind, int64_t members,
                             int64_t bytes, bool quick, Diag *diag) {
    Experiment e = {.kind = kind, .n_members = members, .bytes = bytes, .n_samples = quick ? 3 : 7};
    e.n_repeats = choose_repeats(bytes, members, quick);
    if (team) return run_in_team(team, &e, false, diag);
    e.world = comm_world_create((int)members);
    e.group = comm_group_create(e.world, (int)members, "measured");
    double us = run(&e, -1, false, diag);
    comm_world_destroy(e.world);
    return us;
}
