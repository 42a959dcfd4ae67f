/* Zero bubble, ZB-H1 (Qi et al. 2024, section 2.3): 1F1B whose backwards are in two. B is what the
 * stage before waits for; W, the gradients of weights, waits until nothing else is to be done.
 *
 * Stage s is in 1F1B's order of forwards and backwards, and its W of a micro-batch follows s
 * backwards later: a later stage, which waits longer for the first forward and for the last
 * backwards, has as many more of them to fill the end with. A frame lives until its W, so every
 * stage has as many in flight as 1F1B has on the first: p. */
#include "planner/plan/schedule.h"

static int at_most(int a, int b) {
    return a < b ? a : b;
}

void schedule_zb_h1(const PipelineShape *shape, int stage, Task *out) {
    int m = shape->n_micro, n_warm = at_most(shape->p - 1 - stage, m);
    for (int i = 0; i < m + n_warm + stage; i++) {
        int done = i - n_warm, weights = done - stage;
        if (i < m) *out++ = (Task){.kind = TASK_FORWARD, .micro = i};
        if (done >= 0 && done < m) *out++ = (Task){.kind = TASK_BACKWARD, .micro = done};
        if (weights >= 0 && weights < m) *out++ = (Task){.kind = TASK_WEIGHTS, .micro = weights};
    }
}

/* The longest of the paths through a stage; up is from it back to stage 0, after its last B. */
typedef struct Through {
    double enter; /* from the step's start to the stage's first forward */
    double first; /* to the end of its first backward: once down the pipeline and back */
    double down;  /* from the end of its last forward down the pipeline and back, B included */
    double leave; /* after its last B: its own W's, or up to an earlier stage and that one's */
} Through;

static double later(double a, double b) {
    return a > b ? a : b;
}

/* Rounds between stage s and a later one, borders included: each e - s + 1 micro-batches. */
static double slowest_round(const PipelineTimes *times, int s) {
    enum { MOST_LEGS = 16 }; /* as for 1F1B */
    double round = times->forward_us[s] + times->backward_us[s] + times->weights_us[s];
    double slowest = round;
    for (int e = s + 1; e < times->shape.p && e - s <= MOST_LEGS; e++) {
        round += times->forward_us[e] + times->backward_us[e] + 2 * times->border_us[e - 1];
        slowest = later(slowest, round / (e - s + 1));
    }
    return slowest;
}

/* Entered by all forwards or by the first round trip, left by all backwards or after the last;
 * between the two, the stage's tasks, or rounds. */
static double longest_through(const PipelineTimes *times, int s, const Through *path) {
    int p = times->shape.p, m = times->shape.n_micro, n_warm = at_most(p - 1 - s, m - 1);
    double f = times->forward_us[s], b = times->backward_us[s], w = times->weights_us[s];
    int n_pairs = m - 1 - n_warm;                    /* forwards after the first backward */
    int n_before = m - 1 - s > 0 ? m - 1 - s : 0;    /* W's before the last backward */
    int n_early = n_pairs - s > 0 ? n_pairs - s : 0; /* before the last forward */
    double enter = later(path->enter + (n_warm + 1) * f + b, path->first); /* B 0 is done */
    double most = enter + n_pairs * f + (m - 1) * b + n_before * w + path->leave;
    double down = path->enter + m * f + n_pairs * b + n_early * w;
    if (n_pairs > 0) {
        int n_rounds = n_pairs - 1, n_bare = n_rounds - at_most(n_early, n_rounds);
        double rounds = n_rounds * slowest_round(times, s) - n_bare * w;
        down = later(down, enter + n_pairs * f + n_rounds * b + n_early * w);
        down = later(down, path->first + rounds + f);
    }
    return later(most, down + path->down + path->leave);
}

double schedule_zb_h1_span(const PipelineTimes *times) {
    const double *forward = times->forward_us, *backward = times->backward_us;
    int p = times->shape.p, m = times->shape.n_micro;
    double most = 0, enter = 0, leave = 0, below = 0, once = 0;
    for (int s = 0; s < p; s++) {
        double border = s + 1 < p ? times->border_us[s] : 0;
        once += forward[s] + border;
        below += backward[s] + border;
        most = later(most, (m - 1) * border);
    }
    most += once + below + times->weights_us[0];
    for (int s = 0; s < p; s++) {
        double border = s + 1 < p ? times->border_us[s] : 0;
        leave = later(leave, at_most(m, s + 1) * times->weights_us[s]);
        double down = once - enter - forward[s] + below; /* down, and up to the end of B here */
        Through path = {enter, once + below, down, leave};
        most = later(most, longest_through(times, s, &path));
        enter += forward[s] + border;
        below -= backward[s] + border;
        leave += backward[s] + border;
    }
    return most;
}

int schedule_zb_h1_frames(const PipelineShape *shape, int stage, int chunk, bool alone) {
    (void)stage;
    return (chunk == 0) == alone ? at_most(shape->p, shape->n_micro) : 0;
}
