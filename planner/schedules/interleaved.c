/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2), and with backwards in two (Qi et al.
 * 2024, section 2; PyTorch's ScheduleInterleavedZeroBubble is its like).
 *
 * Micro-batches travel in groups of p: a stage takes a group through its chunk 0, then the same
 * group through chunk 1, and so on; backwards go through the chunks in reverse. The warm-up covers
 * the earlier chunks of the first group (p each) and, for each stage that follows, a forward on the
 * way there and one more while its gradient is on the way back.
 *
 * W's come in the order of backwards, on stage s that many later: they fill what it would wait for
 * at the end. Stage 0 has the most frames in flight, as many as without W's. Later stages have
 * frames for 2 * stage W's: as many would lose time where stages are many, as stage 0, whose W's
 * wait for nothing, then cannot keep up. With one chunk these are 1f1b and zb-h1. */
#include "planner/plan/schedule.h"

/* How many steps behind its backward a W comes; without W's, none. */
static int count_waiting(int stage, bool splits) {
    return splits ? stage : 0;
}

static int at_most(int a, int b) {
    return a < b ? a : b;
}

static int not_less(int a) {
    return a > 0 ? a : 0;
}

static double later(double a, double b) {
    return a > b ? a : b;
}

static int count_warm(const PipelineShape *shape, int stage) {
    int n_after = shape->p - 1 - stage, n_warm = 2 * n_after + (shape->n_chunks - 1) * shape->p;
    return at_most(n_warm, shape->n_micro * shape->n_chunks);
}

static Task step(const PipelineShape *shape, TaskKind kind, int index) {
    int in_group = index % (shape->p * shape->n_chunks);
    int group = index / (shape->p * shape->n_chunks), chunk = in_group / shape->p;
    if (kind != TASK_FORWARD) chunk = shape->n_chunks - 1 - chunk;
    return (Task){.kind = (uint8_t)kind,
                  .chunk = (uint8_t)chunk,
                  .micro = group * shape->p + in_group % shape->p};
}

static void order_tasks(const PipelineShape *shape, int stage, bool splits, Task *out) {
    int n = shape->n_micro * shape->n_chunks, n_warm = count_warm(shape, stage);
    int n_waiting = count_waiting(stage, splits);
    for (int i = 0; i < n + n_warm + n_waiting; i++) {
        int done = i - n_warm, weights = done - n_waiting;
        if (i < n) *out++ = step(shape, TASK_FORWARD, i);
        if (done >= 0 && done < n) *out++ = step(shape, TASK_BACKWARD, done);
        if (splits && weights >= 0 && weights < n) *out++ = step(shape, TASK_WEIGHTS, weights);
    }
}

void schedule_interleaved(const PipelineShape *shape, int stage, Task *out) {
    if (shape->n_chunks == 1) {
        schedule_one_f_one_b(shape, stage, out);
    } else {
        order_tasks(shape, stage, false, out);
    }
}

void schedule_zb_chunked(const PipelineShape *shape, int stage, Task *out) {
    if (shape->n_chunks == 1) {
        schedule_zb_h1(shape, stage, out);
    } else {
        order_tasks(shape, stage, true, out);
    }
}

/* What the paths through a stage have in common. */
typedef struct Chain {
    double forward, backward; /* of one micro-batch through all chunks, with borders */
    double in;                /* forwards of chunk 0 before the stage */
    double down, up;          /* of the last chunk after the stage: forwards; backwards */
    double leave;             /* after the stage's last B: its W's, or up, and an earlier stage's */
    double end;               /* after stage 0's last B */
} Chain;

/* Of a stage's chunks. */
typedef struct Means {
    double forward, backward, weights;
} Means;

static Means means_of(const PipelineTimes *times, int stage, bool splits) {
    Means mean = {0};
    int v = times->shape.n_chunks;
    for (int c = 0; c < v; c++) {
        int g = c * times->shape.p + stage;
        mean.forward += times->forward_us[g] / v;
        mean.backward += times->backward_us[g] / v;
        if (splits) mean.weights += times->weights_us[g] / v;
    }
    return mean;
}

/* The longest path through stage s: all its tasks; or, at the start, one micro-batch through all
 * chunks to the stage's first backward; or, at the end, the same from its last forward; or both. */
static double longest_through(const PipelineTimes *times, int s, bool splits, const Chain *chain) {
    int n = times->shape.n_micro * times->shape.n_chunks, n_warm = count_warm(&times->shape, s);
    int n_waiting = count_waiting(s, splits), n_before = not_less(n - 1 - n_waiting);
    Means mean = means_of(times, s, splits);
    double f = mean.forward, b = mean.backward, w = mean.weights;
    double around = chain->in + n * (f + b) + n_before * w + chain->leave;
    if (n_warm >= n) return around;
    int n_steady = n - n_warm; /* pairs of a forward and a backward */
    int n_early = not_less(n_steady - 1 - n_waiting);
    double first = chain->forward + chain->up, last = chain->down + chain->backward + chain->end;
    double enter = first + (n_steady - 1) * f + n * b + n_before * w + chain->leave;
    double leave = chain->in + n * f + (n_steady - 1) * b + n_early * w + last;
    double both = first + (n_steady - 1) * (f + b) + n_early * w + last;
    return later(later(around, enter), later(leave, both));
}

/* Where chunks differ, stages that are in a heavy chunk hold up those that are in a light one, as
 * neighbours change chunks at different times. Once per group of p micro-batches the pipeline loses
 * the difference once for each border, less what the micro-batches in flight make up for: found by
 * playing 96 patterns of chunks of one and two, or three and four, blocks, and exact for them. */
static double hold_up(const PipelineTimes *times, bool splits) {
    int p = times->shape.p, v = times->shape.n_chunks, n_groups = times->shape.n_micro / p;
    double heavy = 0, light = 1e300;
    for (int c = 0; c < v; c++) {
        double mean = 0;
        for (int g = c * p; g < (c + 1) * p; g++) {
            double weights = splits ? times->weights_us[g] : 0;
            mean += (times->forward_us[g] + times->backward_us[g] + weights) / p;
        }
        heavy = later(heavy, mean);
        if (mean < light) light = mean;
    }
    double lost = (p - 1) * (heavy - light) - heavy;
    return n_groups > 2 && lost > 0 ? (n_groups - 2) * lost : 0;
}

static double span(const PipelineTimes *times, bool splits) {
    int p = times->shape.p, v = times->shape.n_chunks, last = (v - 1) * p;
    const double *forward = times->forward_us, *backward = times->backward_us;
    Chain chain = {.end = splits ? times->weights_us[0] : 0};
    for (int g = 0; g < p * v; g++) {
        double border = g + 1 < p * v ? times->border_us[g % p] : 0;
        chain.forward += forward[g] + border;
        chain.backward += backward[g] + border;
    }
    for (int s = 1; s < p; s++) {
        chain.down += forward[last + s] + times->border_us[s - 1];
        chain.up += backward[last + s] + times->border_us[s - 1];
    }
    double most = 0;
    for (int s = 0; s < p; s++) {
        int n_left = at_most(times->shape.n_micro * v, count_waiting(s, splits) + 1);
        chain.leave = later(chain.leave, n_left * means_of(times, s, splits).weights);
        most = later(most, longest_through(times, s, splits, &chain));
        if (s + 1 == p) break;
        chain.in += forward[s] + times->border_us[s];
        chain.leave += backward[s] + times->border_us[s];
        chain.down -= forward[last + s + 1] + times->border_us[s];
        chain.up -= backward[last + s + 1] + times->border_us[s];
    }
    return most + hold_up(times, splits);
}

double schedule_interleaved_span(const PipelineTimes *times) {
    return times->shape.n_chunks == 1 ? schedule_one_f_one_b_span(times) : span(times, false);
}

double schedule_zb_chunked_span(const PipelineTimes *times) {
    return times->shape.n_chunks == 1 ? schedule_zb_h1_span(times) : span(times, true);
}

/* How many of the first n forwards are chunk c's; for backwards, ask for chunk v - 1 - c. */
static int count_of_chunk(const PipelineShape *shape, int chunk, int n) {
    int p = shape->p, round = p * shape->n_chunks, rest = n % round - chunk * p;
    return n / round * p + (rest < 0 ? 0 : rest > p ? p : rest);
}

/* Before its release number `done` the stage has run so many forwards more (all, near the end). */
static int count_in_flight(const PipelineShape *shape, int n_ahead, int chunk, int done) {
    int n = shape->n_micro * shape->n_chunks;
    return count_of_chunk(shape, chunk, at_most(n_ahead + done, n)) -
           count_of_chunk(shape, shape->n_chunks - 1 - chunk, done);
}

/* A chunk's frames in flight rise while forwards are the chunk's, fall while what releases them
 * (backwards; W's) is, and repeat every p * v steps: they peak where the chunk's forwards end or
 * its releases begin, and all others' do where its forwards begin or its releases end, since all
 * together are as many from the first release to the last forward, and ever fewer from there on. */
static int frames(const PipelineShape *shape, int stage, bool splits, int chunk, bool alone) {
    int p = shape->p, v = shape->n_chunks, round = p * v, most = 0, n = shape->n_micro * v;
    int n_ahead = count_warm(shape, stage) + count_waiting(stage, splits) + 1;
    int all = at_most(n_ahead, n);
    if (chunk == NO_CHUNK) return all;
    int forwards = (((chunk + alone) * p - n_ahead) % round + round) % round;
    int releases = (v - alone - chunk) * p;
    int turns[] = {0, forwards, releases, forwards + round, releases + round, n - all};
    for (int i = 0; i < 6; i++) {
        int done = turns[i];
        if (done >= n || (!alone && done > n - all)) continue;
        int own = count_in_flight(shape, n_ahead, chunk, done);
        int in_flight = alone ? own : all - own;
        if (in_flight > most) most = in_flight;
    }
    return most;
}

int schedule_interleaved_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    if (chunk >= shape->n_chunks) return 0;
    if (shape->n_chunks == 1) return schedule_one_f_one_b_frames(shape, stage, chunk, alone);
    return frames(shape, stage, false, chunk, alone);
}

int schedule_zb_chunked_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    if (chunk >= shape->n_chunks) return 0;
    if (shape->n_chunks == 1) return schedule_zb_h1_frames(shape, stage, chunk, alone);
    return frames(shape, stage, true, chunk, alone);
}
