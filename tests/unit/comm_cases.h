/* Cases of comm.h that every filling must pass: collectives against a fixed-order reference bit by
 * bit, a long mixed sequence, a pipeline of channels. The test says how teams are made.
 */
#ifndef TESTS_UNIT_COMM_CASES_H
#define TESTS_UNIT_COMM_CASES_H

#include "runtime/comm/comm.h"

#include "runtime/cpu/vec_low.h"
#include "tests/support/reference_eval.h"
#include "tests/unit/check.h"

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANKS = 8, N_SLOTS = 3 };

/* Ranks and what they meet in; worlds and groups may be the same for all. */
typedef struct Team {
    int n;
    CommWorld *worlds[MAX_RANKS];
    CommGroup *all[MAX_RANKS];
    CommGroup *halves[MAX_RANKS];                         /* of an even n: the rank's own half */
    CommChannel *from[MAX_RANKS - 1], *to[MAX_RANKS - 1]; /* rank i to i + 1, at either end */
} Team;

static Team *team_open(int n);
static void team_close(Team *team);

/* --- ranks as threads --- */

typedef void RankMain(int rank, void *shared);

typedef struct Rank {
    int rank;
    RankMain *run;
    void *shared;
} Rank;

static void *rank_thread(void *argument) {
    Rank *rank = argument;
    rank->run(rank->rank, rank->shared);
    return NULL;
}

static void run_ranks(int n, RankMain *run, void *shared) {
    pthread_t threads[MAX_RANKS];
    Rank ranks[MAX_RANKS];
    for (int i = 0; i < n; i++) {
        ranks[i] = (Rank){i, run, shared};
        pthread_create(&threads[i], NULL, rank_thread, &ranks[i]);
    }
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void fill(float *x, size_t n, uint32_t seed) {
    for (size_t i = 0; i < n; i++) x[i] = (float)next_random(&seed) / 8388608.0f - 1.0f;
}

/* Elements 0..n-1 of `values` joined in order, as the header promises. */
static float reduce(ReduceKind kind, const float *values, int n) {
    float top = values[0], sum = values[0];
    for (int i = 1; i < n; i++) {
        sum += values[i];
        if (values[i] > top || isnan(values[i])) top = values[i];
    }
    if (kind == REDUCE_SUM) return sum;
    if (kind == REDUCE_MAX || !isfinite(top)) return top;
    double total = 0;
    for (int i = 0; i < n; i++) total += exp((double)values[i] - (double)top);
    return (float)((double)top + log(total));
}

/* --- collectives: all shapes of one kind, compared on every rank --- */

static DType moved; /* what the jobs move: f32, bf16 or f16 */

static void begin(const char *what) {
    static char name[120];
    snprintf(name, sizeof name, "%s %s", dtype_name(moved), what);
    check_begin(name);
}

/* What a reduction gives. */
static float stored(float x) {
    return (float)reference_rounded(moved, (double)x);
}

/* Of floats that are exact in it; nothing is rounded here. */
static void *narrow(const float *x, size_t n) {
    uint16_t *out = malloc((n + 1) * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++) vec_put(out, moved, (int64_t)i, x[i]);
    return out;
}

typedef struct Job {
    Team *team;
    int n_ranks;
    ReduceKind kind;
    bool in_place;
    size_t outer, axis_local, axis_total, inner;
    bool to_strips;
    float *in[MAX_RANKS], *out[MAX_RANKS];
    size_t n_in, n_out; /* elements of each */
    bool ok[MAX_RANKS];
} Job;

static Job job_create(int n_ranks, size_t in_floats, size_t out_floats) {
    Job job = {
        .n_ranks = n_ranks, .team = team_open(n_ranks), .n_in = in_floats, .n_out = out_floats};
    for (int i = 0; i < n_ranks; i++) {
        job.in[i] = malloc((in_floats + 1) * sizeof(float));
        job.out[i] = malloc((out_floats + 1) * sizeof(float));
        fill(job.in[i], in_floats, 77u + (uint32_t)i);
        for (size_t k = 0; k < in_floats; k++) job.in[i][k] = stored(job.in[i][k]);
        memset(job.out[i], 0xff, out_floats * sizeof(float));
    }
    return job;
}

static void job_destroy(Job *job) {
    for (int i = 0; i < job->n_ranks; i++) {
        free(job->in[i]);
        free(job->out[i]);
        CHECK(job->ok[i], "rank %d: %s", i, comm_world_reason(job->team->worlds[i]));
    }
    team_close(job->team);
}

/* The rank's buffers as the call takes them; closed once all ranks have returned from it. */
typedef struct Buffers {
    DType dtype;
    void *in, *out;
} Buffers;

static Buffers open_buffers(const Job *job, int rank) {
    if (moved == DTYPE_F32) return (Buffers){DTYPE_F32, job->in[rank], job->out[rank]};
    Buffers buffers = {moved, narrow(job->in[rank], job->n_in), malloc(job->n_out * 2 + 2)};
    memset(buffers.out, 0xff, job->n_out * 2);
    return buffers;
}

static void close_buffers(Job *job, int rank, Buffers *buffers) {
    if (moved == DTYPE_F32) return;
    /* Others may still read what this rank has offered. */
    job->ok[rank] &= comm_barrier(job->team->all[rank], rank);
    vec_low_load(moved, buffers->out, job->out[rank], (int64_t)job->n_out);
    free(buffers->in), free(buffers->out);
}

static void all_reduce_rank(int rank, void *shared) {
    Job *job = shared;
    Buffers b = open_buffers(job, rank);
    if (job->in_place) memcpy(b.out, b.in, job->inner * (size_t)dtype_bytes(b.dtype));
    job->ok[rank] = comm_all_reduce(job->team->all[rank], rank, job->kind, b.dtype,
                                    job->in_place ? b.out : b.in, b.out, job->inner);
    close_buffers(job, rank, &b);
}

static void check_all_reduce(int n, ReduceKind kind, size_t count, bool in_place) {
    Job job = job_create(n, count, count);
    job.kind = kind;
    job.inner = count;
    job.in_place = in_place;
    run_ranks(n, all_reduce_rank, &job);
    for (size_t i = 0; i < count; i++) {
        float values[MAX_RANKS] = {0};
        for (int j = 0; j < n; j++) values[j] = job.in[j][i];
        float expected = stored(reduce(kind, values, n));
        for (int j = 0; j < n; j++) {
            CHECK(memcmp(&job.out[j][i], &expected, sizeof expected) == 0,
                  "%d ranks, kind %d, element %zu of %zu on rank %d: %a, not %a", n, (int)kind, i,
                  count, j, (double)job.out[j][i], (double)expected);
        }
    }
    job_destroy(&job);
}

static void test_all_reduce(void) {
    static const size_t counts[] = {0, 1, 5, 2048, 2049, 20011};
    static const int sizes[] = {1, 2, 3, 8};
    begin("all_reduce: fixed order, same bits on all ranks, in place and not");
    for (int s = 0; s < 4; s++) {
        for (int c = 0; c < 6; c++) {
            for (int kind = REDUCE_SUM; kind <= REDUCE_LSE; kind++) {
                check_all_reduce(sizes[s], (ReduceKind)kind, counts[c], kind % 2 == c % 2);
            }
        }
    }
    begin("all_reduce: the path for large messages with idle slices (17 elements a slice)");
    check_all_reduce(8, REDUCE_SUM, 2050, true);
    check_all_reduce(7, REDUCE_SUM, 4097, false);
}

static void test_special_values(void) {
    static const float cases[][2] = {{-INFINITY, -INFINITY}, {-INFINITY, 2}, {INFINITY, 1},
                                     {1000, 1000},           {NAN, 1},       {1, NAN},
                                     {-1000, -1000},         {0, -200}};
    static const float expected[] = {
        -INFINITY, 2, INFINITY, (float)(1000 + M_LN2), NAN, NAN, (float)(-1000 + M_LN2), 0};
    enum { N = sizeof expected / sizeof expected[0] };
    check_begin("all_reduce: log-sum-exp and maximum of infinities, NaN and large values");
    Job job = job_create(2, N, N);
    job.inner = N;
    for (int kind = REDUCE_MAX; kind <= REDUCE_LSE; kind++) {
        for (int i = 0; i < N; i++) {
            for (int j = 0; j < 2; j++) job.in[j][i] = cases[i][j];
        }
        job.kind = (ReduceKind)kind;
        run_ranks(2, all_reduce_rank, &job);
        for (int i = 0; i < N; i++) {
            float got = job.out[1][i], want = expected[i];
            if (kind == REDUCE_MAX && !isnan(want)) want = fmaxf(cases[i][0], cases[i][1]);
            CHECK(isnan(want) ? isnan(got) : got == want, "kind %d case %d: %g, not %g", kind, i,
                  (double)got, (double)want);
        }
    }
    job_destroy(&job);
}

static void all_gather_rank(int rank, void *shared) {
    Job *job = shared;
    Buffers b = open_buffers(job, rank);
    job->ok[rank] = comm_all_gather(job->team->all[rank], rank, b.dtype, b.in, b.out, job->outer,
                                    job->axis_local, job->axis_total, job->inner);
    close_buffers(job, rank, &b);
}

static void check_all_gather(int n, size_t outer, size_t total, size_t inner) {
    size_t local = (total + (size_t)n - 1) / (size_t)n;
    Job job = job_create(n, outer * local * inner, outer * total * inner);
    job.outer = outer, job.axis_local = local, job.axis_total = total, job.inner = inner;
    run_ranks(n, all_gather_rank, &job);
    for (int rank = 0; rank < n; rank++) {
        for (size_t i = 0; i < outer * total * inner; i++) {
            size_t o = i / (total * inner), row = i / inner % total;
            float want = job.in[row / local][(o * local + row % local) * inner + i % inner];
            CHECK(job.out[rank][i] == want, "%d ranks [%zu, %zu, %zu]: element %zu on rank %d", n,
                  outer, total, inner, i, rank);
        }
    }
    job_destroy(&job);
}

static void reduce_scatter_rank(int rank, void *shared) {
    Job *job = shared;
    Buffers b = open_buffers(job, rank);
    job->ok[rank] = comm_reduce_scatter(job->team->all[rank], rank, job->kind, b.dtype, b.in, b.out,
                                        job->outer, job->axis_local, job->axis_total, job->inner);
    close_buffers(job, rank, &b);
}

static void check_reduce_scatter(int n, ReduceKind kind, size_t outer, size_t total, size_t inner) {
    size_t local = (total + (size_t)n - 1) / (size_t)n;
    Job job = job_create(n, outer * total * inner, outer * local * inner);
    job.kind = kind;
    job.outer = outer, job.axis_local = local, job.axis_total = total, job.inner = inner;
    run_ranks(n, reduce_scatter_rank, &job);
    for (int rank = 0; rank < n; rank++) {
        for (size_t i = 0; i < outer * local * inner; i++) {
            size_t o = i / (local * inner), row = i / inner % local + (size_t)rank * local;
            float values[MAX_RANKS] = {0}, want = 0;
            for (int j = 0; j < n && row < total; j++) {
                values[j] = job.in[j][(o * total + row) * inner + i % inner];
            }
            if (row < total) want = stored(reduce(kind, values, n));
            CHECK(memcmp(&job.out[rank][i], &want, sizeof want) == 0,
                  "%d ranks [%zu, %zu, %zu]: element %zu on rank %d: %a, not %a", n, outer, total,
                  inner, i, rank, (double)job.out[rank][i], (double)want);
        }
    }
    job_destroy(&job);
}

static void all_to_all_rank(int rank, void *shared) {
    Job *job = shared;
    Buffers b = open_buffers(job, rank);
    job->ok[rank] = comm_all_to_all(job->team->all[rank], rank, b.dtype, b.in, b.out, job->outer,
                                    job->axis_local, job->inner, job->to_strips);
    close_buffers(job, rank, &b);
}

/* Where an element of a member's part for, or from, `other` lies. */
static size_t place_for(const Job *job, bool strips, size_t n, size_t other, size_t o, size_t row) {
    size_t rows = job->axis_local;
    return (strips ? (o * rows + row) * n + other : (o * n + other) * rows + row) * job->inner;
}

static void check_all_to_all(int n, size_t outer, size_t rows, size_t width, bool to_strips) {
    size_t members = (size_t)n, count = outer * members * rows * width;
    Job job = job_create(n, count, count);
    job.outer = outer, job.axis_local = rows, job.inner = width, job.to_strips = to_strips;
    run_ranks(n, all_to_all_rank, &job);
    for (size_t i = 0; i < members * count; i++) {
        size_t w = i % width, row = i / width % rows, o = i / width / rows % outer;
        size_t from = i / width / rows / outer % members, to = i / count;
        float want = job.in[from][place_for(&job, !to_strips, members, to, o, row) + w];
        float got = job.out[to][place_for(&job, to_strips, members, from, o, row) + w];
        CHECK(got == want, "%d ranks [%zu, %zu, %zu]: row %zu from %zu to %zu", n, outer, rows,
              width, row, from, to);
    }
    job_destroy(&job);
}

static void test_all_to_all(void) {
    static const size_t shapes[][3] = {{1, 1, 1}, {1, 3, 5}, {2, 5, 7}, {1, 64, 300}, {3, 1, 2000}};
    begin("all_to_all: blocks and strips, small and large");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int n = 1; n <= 4; n++) {
            for (int to_strips = 0; to_strips < 2; to_strips++) {
                check_all_to_all(n, shapes[s][0], shapes[s][1], shapes[s][2], to_strips);
            }
        }
    }
}

static void test_gather_and_scatter(void) {
    /* 9 rows on 4 members of 3: the last has none; 5 on 4 of 2: one padded, one empty. */
    static const size_t shapes[][3] = {{1, 8, 1},    {3, 9, 5},    {2, 5, 7},   {1, 1, 1},
                                       {4, 13, 300}, {1, 9, 2000}, {100, 8, 37}};
    begin("all_gather: parts in order, padding dropped, small and large");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int n = 1; n <= 4; n++) check_all_gather(n, shapes[s][0], shapes[s][1], shapes[s][2]);
    }
    begin("reduce_scatter: own rows in fixed order, padding zero, small and large");
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (int n = 1; n <= 4; n++) {
            check_reduce_scatter(n, s % 2 ? REDUCE_MAX : REDUCE_SUM, shapes[s][0], shapes[s][1],
                                 shapes[s][2]);
        }
    }
}

/* --- a long mixed sequence: catches a member that runs ahead into others' reads --- */

enum { N_MIXED = 400 };

typedef struct Mixed {
    Team *team;
    int n_ranks;
    double checksum[MAX_RANKS];
    bool ok[MAX_RANKS];
} Mixed;

static void mixed_rank(int rank, void *shared) {
    Mixed *mixed = shared;
    enum { MAX_COUNT = 6000 };
    float *in = calloc(MAX_COUNT, sizeof(float)), *out = calloc(MAX_COUNT * 8, sizeof(float));
    uint32_t choice = 5;
    bool ok = true;
    double checksum = 0;
    CommGroup *all = mixed->team->all[rank], *half = mixed->team->halves[rank];
    int in_half = rank % (mixed->n_ranks / 2);
    for (int step = 0; ok && step < N_MIXED; step++) {
        size_t count = next_random(&choice) % (step % 4 ? 300 : MAX_COUNT) + 1;
        uint32_t n = (uint32_t)mixed->n_ranks;
        for (size_t i = 0; i < count; i++) in[i] = (float)((rank + 1) * (step + 1) % 97);
        switch (next_random(&choice) % 5) {
        case 0: ok = comm_all_reduce(all, rank, REDUCE_SUM, DTYPE_F32, in, in, count); break;
        case 1:
            ok = comm_all_gather(all, rank, DTYPE_F32, in, out, 1, count, count * n, 1);
            memcpy(in, out + count * (n - 1), count * sizeof(float));
            break;
        case 2: ok = comm_broadcast(all, rank, step % mixed->n_ranks, DTYPE_F32, in, count); break;
        case 3:
            ok = comm_all_reduce(half, in_half, REDUCE_SUM, DTYPE_F32, in, in, count) &&
                 comm_all_reduce(all, rank, REDUCE_MAX, DTYPE_F32, in, in, count);
            break;
        default:
            ok = comm_barrier(all, rank) &&
                 comm_all_reduce(all, rank, REDUCE_MAX, DTYPE_F32, in, in, count);
        }
        for (size_t i = 0; i < count; i++) checksum += (double)in[i] * (double)(i % 7 + 1);
    }
    mixed->ok[rank] = ok;
    mixed->checksum[rank] = checksum;
    free(in);
    free(out);
}

static void test_mixed(void) {
    check_begin("collectives: 400 mixed calls on 8 ranks and their halves agree on all ranks");
    for (int n = 2; n <= 8; n *= 2) {
        Mixed mixed = {.n_ranks = n, .team = team_open(n)};
        run_ranks(n, mixed_rank, &mixed);
        for (int i = 0; i < n; i++) {
            CHECK(mixed.ok[i], "%s", comm_world_reason(mixed.team->worlds[i]));
            CHECK(mixed.checksum[i] == mixed.checksum[0], "rank %d of %d has other sums", i, n);
        }
        team_close(mixed.team);
    }
}

/* --- channels --- */

enum { N_MESSAGES = 2000, N_STAGES = 4, MESSAGE_FLOATS = 33 };

typedef struct Pipeline {
    Team *team;
    float slots[N_STAGES][N_SLOTS][MESSAGE_FLOATS];
    bool ok;
} Pipeline;

/* Stage 0 sends k, every stage adds 1, the last checks k + N_STAGES - 2 in order. */
static void pipeline_rank(int rank, void *shared) {
    Pipeline *pipeline = shared;
    float message[MESSAGE_FLOATS];
    bool ok = true;
    for (int k = 0; ok && k < N_MESSAGES; k++) {
        size_t bytes = sizeof(float) * (size_t)(k % MESSAGE_FLOATS + 1);
        for (int i = 0; i < MESSAGE_FLOATS; i++) message[i] = (float)(k + i);
        if (rank > 0) {
            memset(message, 0, sizeof message);
            ok = comm_channel_recv(pipeline->team->to[rank - 1], message, bytes);
        }
        if (rank == N_STAGES - 1) {
            for (int i = 0; i <= k % MESSAGE_FLOATS; i++) {
                ok = ok && message[i] == (float)(k + i + N_STAGES - 2);
            }
        } else {
            for (int i = 0; rank > 0 && i < MESSAGE_FLOATS; i++) message[i] += 1;
            ok = ok && comm_channel_send(pipeline->team->from[rank], pipeline->slots[rank],
                                         sizeof pipeline->slots[rank][0], message, bytes);
        }
    }
    if (!ok) comm_world_abort(pipeline->team->worlds[rank], "a message is wrong");
}

static void test_pipeline(void) {
    check_begin("channel: 2000 messages through 4 stages arrive whole and in order");
    Pipeline *pipeline = calloc(1, sizeof(*pipeline));
    pipeline->team = team_open(N_STAGES);
    run_ranks(N_STAGES, pipeline_rank, pipeline);
    for (int i = 0; i < N_STAGES; i++) {
        CHECK(!comm_world_is_aborted(pipeline->team->worlds[i]), "%s",
              comm_world_reason(pipeline->team->worlds[i]));
    }
    team_close(pipeline->team);
    free(pipeline);
}

static inline void test_cases(void) {
    static const DType DTYPES[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        moved = DTYPES[i];
        test_all_reduce();
        test_gather_and_scatter();
        test_all_to_all();
    }
    test_special_values();
    test_mixed();
    test_pipeline();
}

#endif
