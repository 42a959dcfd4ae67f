/* Collectives against a fixed-order reference bit by bit, channels, and every way to be aborted. */
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

enum { MAX_RANKS = 8 };

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
    CommWorld *world;
    CommGroup *group;
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
    Job job = {.n_ranks = n_ranks,
               .world = comm_world_create(n_ranks),
               .n_in = in_floats,
               .n_out = out_floats};
    job.group = comm_group_create(job.world, n_ranks, "test");
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
        CHECK(job->ok[i], "rank %d: %s", i, comm_world_reason(job->world));
    }
    comm_world_destroy(job->world);
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
    job->ok[rank] &= comm_barrier(job->group, rank);
    vec_low_load(moved, buffers->out, job->out[rank], (int64_t)job->n_out);
    free(buffers->in), free(buffers->out);
}

static void all_reduce_rank(int rank, void *shared) {
    Job *job = shared;
    Buffers b = open_buffers(job, rank);
    if (job->in_place) memcpy(b.out, b.in, job->inner * (size_t)dtype_bytes(b.dtype));
    job->ok[rank] = comm_all_reduce(job->group, rank, job->kind, b.dtype,
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
    job->ok[rank] = comm_all_gather(job->group, rank, b.dtype, b.in, b.out, job->outer,
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
    job->ok[rank] = comm_reduce_scatter(job->group, rank, job->kind, b.dtype, b.in, b.out,
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
    job->ok[rank] = comm_all_to_all(job->group, rank, b.dtype, b.in, b.out, job->outer,
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
    CommWorld *world;
    CommGroup *all, *halves[2];
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
    int half = rank * 2 / mixed->n_ranks, in_half = rank % (mixed->n_ranks / 2);
    for (int step = 0; ok && step < N_MIXED; step++) {
        size_t count = next_random(&choice) % (step % 4 ? 300 : MAX_COUNT) + 1;
        uint32_t n = (uint32_t)mixed->n_ranks;
        for (size_t i = 0; i < count; i++) in[i] = (float)((rank + 1) * (step + 1) % 97);
        switch (next_random(&choice) % 5) {
        case 0: ok = comm_all_reduce(mixed->all, rank, REDUCE_SUM, DTYPE_F32, in, in, count); break;
        case 1:
            ok = comm_all_gather(mixed->all, rank, DTYPE_F32, in, out, 1, count, count * n, 1);
            memcpy(in, out + count * (n - 1), count * sizeof(float));
            break;
        case 2:
            ok = comm_broadcast(mixed->all, rank, step % mixed->n_ranks, DTYPE_F32, in, count);
            break;
        case 3:
            ok = comm_all_reduce(mixed->halves[half], in_half, REDUCE_SUM, DTYPE_F32, in, in,
                                 count) &&
                 comm_all_reduce(mixed->all, rank, REDUCE_MAX, DTYPE_F32, in, in, count);
            break;
        default:
            ok = comm_barrier(mixed->all, rank) &&
                 comm_all_reduce(mixed->all, rank, REDUCE_MAX, DTYPE_F32, in, in, count);
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
        Mixed mixed = {.n_ranks = n, .world = comm_world_create(n)};
        mixed.all = comm_group_create(mixed.world, n, "all");
        for (int i = 0; i < 2; i++) mixed.halves[i] = comm_group_create(mixed.world, n / 2, "half");
        run_ranks(n, mixed_rank, &mixed);
        for (int i = 0; i < n; i++) {
            CHECK(mixed.ok[i], "%s", comm_world_reason(mixed.world));
            CHECK(mixed.checksum[i] == mixed.checksum[0], "rank %d of %d has other sums", i, n);
        }
        comm_world_destroy(mixed.world);
    }
}

/* --- channels --- */

enum { N_MESSAGES = 2000, N_STAGES = 4, MESSAGE_FLOATS = 33, N_SLOTS = 3 };

typedef struct Pipeline {
    CommWorld *world;
    CommChannel *channels[N_STAGES];
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
            ok = comm_channel_recv(pipeline->channels[rank - 1], message, bytes);
        }
        if (rank == N_STAGES - 1) {
            for (int i = 0; i <= k % MESSAGE_FLOATS; i++) {
                ok = ok && message[i] == (float)(k + i + N_STAGES - 2);
            }
        } else {
            for (int i = 0; rank > 0 && i < MESSAGE_FLOATS; i++) message[i] += 1;
            ok = ok && comm_channel_send(pipeline->channels[rank], pipeline->slots[rank],
                                         sizeof pipeline->slots[rank][0], message, bytes);
        }
    }
    if (!ok) comm_world_abort(pipeline->world, "a message is wrong");
}

static void test_channels(void) {
    check_begin("channel: 2000 messages through 4 stages arrive whole and in order");
    Pipeline *pipeline = calloc(1, sizeof(*pipeline));
    pipeline->world = comm_world_create(N_STAGES);
    for (int i = 0; i < N_STAGES; i++) {
        pipeline->channels[i] = comm_channel_create(pipeline->world, N_SLOTS, "stage");
    }
    run_ranks(N_STAGES, pipeline_rank, pipeline);
    CHECK(!comm_world_is_aborted(pipeline->world), "%s", comm_world_reason(pipeline->world));
    comm_world_destroy(pipeline->world);
    free(pipeline);

    check_begin("channel: sends beyond n_slots wait, and the time-out says so");
    CommWorld *world = comm_world_create(1);
    CommChannel *channel = comm_channel_create(world, 2, "0->1");
    float slots[2] = {0}, value = 1;
    comm_world_set_timeout(world, 0.05);
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "first");
    value = 2;
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "second");
    CHECK(slots[0] == 1 && slots[1] == 2, "the slots hold the messages");
    CHECK(comm_channel_recv(channel, &value, 4) && value == 1, "received %g", (double)value);
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "third, into the freed slot");
    CHECK(!comm_channel_send(channel, slots, 4, &value, 4), "fourth was taken");
    const char *reason = comm_world_reason(world);
    CHECK(strstr(reason, "channel '0->1': send of 4 bytes waited 0.05 s"), "%s", reason);
    comm_world_destroy(world);

    check_begin("channel: messages of another size or too large are errors");
    world = comm_world_create(1);
    channel = comm_channel_create(world, 2, "0->1");
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "send");
    CHECK(!comm_channel_recv(channel, slots, 8), "other size was taken");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "receive of 8 bytes meets a message of 4"), "%s", reason);
    comm_world_destroy(world);
    world = comm_world_create(1);
    channel = comm_channel_create(world, 2, "0->1");
    CHECK(!comm_channel_send(channel, slots, 4, slots, 8), "too large was taken");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "send of 8 bytes into slots of 4 bytes"), "%s", reason);
    comm_world_destroy(world);
}

/* --- aborts --- */

typedef struct Stuck {
    CommWorld *world;
    CommGroup *group;
    CommChannel *channel;
    bool mismatch;
    bool result[MAX_RANKS];
} Stuck;

static void stuck_rank(int rank, void *shared) {
    Stuck *stuck = shared;
    float x[4] = {0};
    if (rank == 0 && !stuck->mismatch) {
        struct timespec delay = {0, 20 * 1000 * 1000};
        nanosleep(&delay, NULL);
        comm_world_abort(stuck->world, "rank 0 gave up");
        comm_world_abort(stuck->world, "a later reason");
    } else if (rank == 1 && !stuck->mismatch) {
        stuck->result[rank] = comm_channel_recv(stuck->channel, x, sizeof x);
    } else {
        size_t count = rank == 2 && stuck->mismatch ? 3 : 4;
        stuck->result[rank] =
            comm_all_reduce(stuck->group, rank, REDUCE_SUM, DTYPE_F32, x, x, count);
    }
    if (comm_barrier(stuck->group, rank)) stuck->result[rank] = true;
}

static void test_aborts(void) {
    Stuck stuck = {.world = comm_world_create(4)};
    stuck.group = comm_group_create(stuck.world, 4, "tp");
    stuck.channel = comm_channel_create(stuck.world, 1, "0->1");
    check_begin("abort: wakes members and receivers; the first reason stays");
    run_ranks(4, stuck_rank, &stuck);
    for (int i = 0; i < 4; i++) CHECK(!stuck.result[i], "rank %d returned true", i);
    CHECK(strcmp(comm_world_reason(stuck.world), "rank 0 gave up") == 0, "%s",
          comm_world_reason(stuck.world));
    comm_world_destroy(stuck.world);

    check_begin("abort: members whose calls differ are told so");
    stuck = (Stuck){.world = comm_world_create(4), .mismatch = true};
    stuck.group = comm_group_create(stuck.world, 4, "tp");
    run_ranks(4, stuck_rank, &stuck);
    for (int i = 0; i < 4; i++) CHECK(!stuck.result[i], "rank %d returned true", i);
    const char *reason = comm_world_reason(stuck.world);
    CHECK(strstr(reason, "group 'tp': member") && strstr(reason, "inner 3") &&
              strstr(reason, "inner 4"),
          "%s", reason);
    comm_world_destroy(stuck.world);

    check_begin("time-out: names group, member and operation");
    CommWorld *world = comm_world_create(2);
    CommGroup *group = comm_group_create(world, 2, "data");
    float x = 0;
    comm_world_set_timeout(world, 0.05);
    CHECK(!comm_all_reduce(group, 1, REDUCE_SUM, DTYPE_F32, &x, &x, 1), "returned true");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "group 'data': member 1: all_reduce waited 0.05 s for the others (1 of 2"),
          "%s", reason);
    comm_world_destroy(world);
}

int main(void) {
    static const DType DTYPES[] = {DTYPE_BF16, DTYPE_F16, DTYPE_F32};
    for (int i = 0; i < 3; i++) {
        moved = DTYPES[i];
        test_all_reduce();
        test_gather_and_scatter();
        test_all_to_all();
    }
    test_special_values();
    test_mixed();
    test_channels();
    test_aborts();
    return check_report();
}
