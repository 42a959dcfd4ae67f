/* Interleaved 1F1B (Narayanan et al. 2021, section 2.2.2).
 *
 * Micro-batches travel in groups of p: a stage takes a group through its chunk 0, then the same
 * group through chunk 1, and so on; backwards go through the chunks in reverse. The warm-up covers
 * the earlier chunks of the first group (p each) and, for each stage that follows, a forward on the
 * way there and one more while its gradient is on the way back. */
#include "planner/plan/schedule.h"

#include <math.h>

static Task step(const PipelineShape *shape, TaskKind kind, int index) {
    int in_group = index % (shape->p * shape->n_chunks);
    int group = index / (shape->p * shape->n_chunks);
    int chunk = in_group / shape->p;
    if (kind == TASK_BACKWARD) chunk = shape->n_chunks - 1 - chunk;
    return (Task){.kind = (uint8_t)kind,
                  .chunk = (uint8_t)chunk,
                  .micro = group * shape->p + in_group % shape->p};
}

static int count_warm(const PipelineShape *shape, int stage) {
    int n_steps = shape->n_micro * shape->n_chunks, n_after = shape->p - 1 - stage;
    /* With one chunk nothing is to be interleaved, and 1F1B's shorter warm-up is enough. */
    int n_warm = shape->n_chunks == 1 ? n_after : 2 * n_after + (shape->n_chunks - 1) * shape->p;
    return n_warm < n_steps ? n_warm : n_steps;
}

void schedule_interleaved(const PipelineShape *shape, int stage, Task *out) {
    int n_steps = shape->n_micro * shape->n_chunks, n_warm = count_warm(shape, stage);
    for (int i = 0; i < n_steps + n_warm; i++) {
        if (i < n_steps) *out++ = step(shape, TASK_FORWARD, i);
        if (i >= n_warm) *out++ = step(shape, TASK_BACKWARD, i - n_warm);
    }
}

/* What the paths through a stage have in common. */
typedef struct Chain {
    double forward, backward; /* of one micro-batch through all chunks, with borders */
    double in, out;           /* forwards of chunk 0 before the stage; backwards of it */
    double down, up;          /* of the last chunk after the stage: forwards; backwards */
} Chain;

/* The longest path through stage s: all its tasks; or, at the start, one micro-batch through all
 * chunks to the stage's first backward; or, at the end, the same from its last forward; or both. */
static double longest_through(const PipelineTimes *times, int s, const Chain *chain) {
    int p = times->shape.p, v = times->shape.n_chunks, m = times->shape.n_micro;
    int n_steps = m * v, n_warm = count_warm(&times->shape, s);
    double forward = 0, backward = 0; /* means of a chunk */
    for (int c = 0; c < v; c++) {
        forward += times->forward_us[c * p + s] / v;
        backward += times->backward_us[c * p + s] / v;
    }
    double around = chain->in + n_steps * (forward + backward) + chain->out;
    if (n_warm >= n_steps) return around;
    int n_steady = n_steps - n_warm; /* pairs of a forward and a backward */
    double first = chain->forward + chain->up, last = chain->down + chain->backward;
    double enter = first + (n_steady - 1) * forward + n_steps * backward + chain->out;
    double leave = chain->in + n_steps * forward + (n_steady - 1) * backward + last;
    double both = first + (n_steady - 1) * (forward + backward) + last;
    double most = around > enter ? around : enter;
    if (leave > most) most = leave;
    return both > most ? both : most;
}

/* Where chunks differ, stages that are in a heavy chunk hold up those that are in a light one, as
 * neighbours change chunks at different times. Once per group of p micro-batches the pipeline loses
 * the difference once for each border, less what the micro-batches in flight make up for: found by
 * playing 96 patterns of chunks of one and two, or three and four, blocks, and exact for them. */
static double hold_up(const PipelineTimes *times) {
    int p = times->shape.p, v = times->shape.n_chunks, n_groups = times->shape.n_micro / p;
    double heavy = 0, light = INFINITY;
    for (int c = 0; c < v; c++) {
        double mean = 0;
        for (int s = 0; s < p; s++) {
            mean += (times->forward_us[c * p + s] + times->backward_us[c * p + s]) / p;
        }
        if (mean > heavy) heavy = mean;
        if (mean < light) light = mean;
    }
    double lost = (p - 1) * (heavy - light) - heavy;
    return n_groups > 2 && lost > 0 ? (n_groups - 2) * lost : 0;
}

double schedule_interleaved_span(const PipelineTimes *times) {
    int p = times->shape.p, v = times->shape.n_chunks;
    if (v == 1) return schedule_one_f_one_b_span(times);
    const double *forward = times->forward_us, *backward = times->backward_us;
    Chain chain = {0};
    for (int g = 0; g < p * v; g++) {
        double border = g + 1 < p * v ? times->border_us[g % p] : 0;
        chain.forward += forward[g] + border;
        chain.backward += backward[g] + border;
    }
    int last = (v - 1) * p;
    for (int s = 1; s < p; s++) {
        chain.down += forward[last + s] + times->border_us[s - 1];
        chain.up += backward[last + s] + times->border_us[s - 1];
    }
    double most = 0;
    for (int s = 0; s < p; s++) {
        double length = longest_through(times, s, &chain);
        if (length > most) most = length;
        if (s + 1 == p) break;
        chain.in += forward[s] + times->border_us[s];
        chain.out += backward[s] + times->border_us[s];
        chain.down -= forward[last + s + 1] + times->border_us[s];
        chain.up -= backward[last + s + 1] + times->border_us[s];
    }
    return most + hold_up(times);
}

/* How many of the first n forwards are chunk c's; for backwards, ask for chunk v - 1 - c. */
static int count_of_chunk(const PipelineShape *shape, int chunk, int n) {
    int p = shape->p, round = p * shape->n_chunks, rest = n % round - chunk * p;
    return n / round * p + (rest < 0 ? 0 : rest > p ? p : rest);
}

/* Before backward j the stage has run n_warm + 1 + j forwards (all, near the end). */
static int count_in_flight(const PipelineShape *shape, int n_warm, int chunk, int backward) {
    int n_steps = shape->n_micro * shape->n_chunks, n_forward = n_warm + 1 + backward;
    if (n_forward > n_steps) n_forward = n_steps;
    return count_of_chunk(shape, chunk, n_forward) -
           count_of_chunk(shape, shape->n_chunks - 1 - chunk, backward);
}

/* A chunk's frames in flight rise while forwards are the chunk's, fall while backwards are, and
 * repeat every p * v steps: they peak where the chunk's forwards end or its backwards begin, and
 * all others' do where its forwards begin or its backwards end, since all together are as many
 * from the first backward to the last forward, and ever fewer from there on. */
int schedule_interleaved_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    int p = shape->p, v = shape->n_chunks, round = p * v, most = 0;
    if (chunk >= v) return 0;
    if (v == 1) return schedule_one_f_one_b_frames(shape, stage, chunk, alone);
    int n_steps = shape->n_micro * v, n_warm = count_warm(shape, stage);
    int all = n_warm + 1 < n_steps ? n_warm + 1 : n_steps;
    if (chunk == NO_CHUNK) return all;
    int forwards = (((chunk + alone) * p - n_warm - 1) % round + round) % round;
    int backwards = (v - alone - chunk) * p;
    int turns[] = {0, forwards, backwards, forwards + round, backwards + round, n_steps - all};
    for (int i = 0; i < 6; i++) {
        int backward = turns[i];
        if (backward >= n_steps || (!alone && backward > n_steps - all)) continue;
        int own = count_in_flight(shape, n_warm, chunk, backward);
        int in_flight = alone ? own : all - own;
        if (in_flight > most) most = in_flight;
    }
    return most;
}
