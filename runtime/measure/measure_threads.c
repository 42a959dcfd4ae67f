/* Messages and collectives between rank threads, through comm_inproc. */
#include "runtime/measure/measure_threads.h"

#include "runtime/comm/comm.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

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
        double start = now_us();
        for (int i = 0; fine && i < e->n_repeats; i++) {
            fine = member->is_message ? run_message(member) : run_collective(member);
        }
        if (s >= 0 && member->number == 0) {
            e->samples[s] = (now_us() - start) / e->n_repeats / (member->is_message ? 2 : 1);
        }
    }
    member->failed = !fine;
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

static double run(Experiment *e, bool is_message, Diag *diag) {
    Member *members = calloc((size_t)e->n_members, sizeof(Member));
    int n_started = 0;
    bool fine = members != NULL;
    for (int i = 0; fine && i < e->n_members; i++) {
        members[i] = (Member){.experiment = e, .number = i, .is_message = is_message};
        fine = allocate(&members[i], e->bytes);
    }
    for (; fine && n_started < e->n_members; n_started++) {
        fine =
            pthread_create(&members[n_started].thread, NULL, member_main, &members[n_started]) == 0;
        if (!fine) break;
    }
    if (!fine) comm_world_abort(e->world, "no memory or no threads");
    for (int i = 0; i < n_started; i++) {
        pthread_join(members[i].thread, NULL);
        fine = fine && !members[i].failed;
    }
    for (int i = 0; members && i < e->n_members; i++) {
        free(members[i].in);
        free(members[i].out);
    }
    free(members);
    if (fine) return measure_quartile(e->samples, e->n_samples);
    diag_error(diag, NO_LOC, "measuring messages of %lld bytes: %s", (long long)e->bytes,
               comm_world_reason(e->world));
    return -1;
}

double measure_message_us(int64_t bytes, bool quick, Diag *diag) {
    Experiment e = {.n_members = 2, .bytes = bytes, .n_samples = quick ? 3 : 7};
    e.n_repeats = choose_repeats(bytes, 2, quick);
    e.world = comm_world_create(2);
    e.group = comm_group_create(e.world, 2, "measured");
    e.there = comm_channel_create(e.world, 1, "there");
    e.back = comm_channel_create(e.world, 1, "back");
    double us = run(&e, true, diag);
    comm_world_destroy(e.world);
    return us;
}

double measure_collective_us(ProfileCollectiveKind kind, int64_t members, int64_t bytes, bool quick,
                             Diag *diag) {
    Experiment e = {.kind = kind, .n_members = members, .bytes = bytes, .n_samples = quick ? 3 : 7};
    e.n_repeats = choose_repeats(bytes, members, quick);
    e.world = comm_world_create((int)members);
    e.group = comm_group_create(e.world, (int)members, "measured");
    double us = run(&e, false, diag);
    comm_world_destroy(e.world);
    return us;
}
