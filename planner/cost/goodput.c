#include "planner/cost/goodput.h"

#include <math.h>

/* Of the time, for fewer checkpoints behind training: each alone costs next to nothing, so that the
 * best would follow one upon the other, with the storage always busy. */
static const double WRITE_LESS_SHARE = 0.001;
/* Between checkpoints, of a run without an end. */
static const double MOST_STEPS = 1e15;

/* (1 - x) e^x falls from 1 at 0 to 0 at 1. Written as -log(1 - x) - x, which keeps its digits where
 * x is small. */
double checkpoint_interval(double mtbf_seconds, double pause_seconds) {
    enum { HALVINGS = 100 };
    double low = 0, high = 1;
    for (int i = 0; i < HALVINGS; i++) {
        double x = (low + high) / 2;
        *(-log1p(-x) - x < pause_seconds / mtbf_seconds ? &low : &high) = x;
    }
    return mtbf_seconds * low;
}

static bool is_hopeless(const GoodputInput *of) {
    return of->restart_seconds + of->pause_seconds + of->write_seconds + of->step_seconds >=
           of->mtbf_seconds;
}

Goodput goodput_at(const GoodputInput *of, int64_t every) {
    double mtbf = of->mtbf_seconds, work = (double)every * of->step_seconds;
    Goodput out = {
        .hopeless = is_hopeless(of), .every = every, .interval_seconds = work, .share = 0};
    if (out.hopeless) return out;
    double taken = mtbf * exp((of->restart_seconds + of->write_seconds) / mtbf) *
                   expm1((work + of->pause_seconds) / mtbf);
    out.share = work / taken;
    out.checkpoint_share = of->pause_seconds / taken;
    /* A restart takes mtbf (e^(restart / mtbf) - 1) with those that fail, and mtbf follows. */
    out.restart_share = -expm1(-of->restart_seconds / mtbf);
    out.lost_share = fmax(0, 1 - out.share - out.checkpoint_share - out.restart_share);
    return out;
}

/* The longest interval whose share is `enough`, from one whose is on; shares fall from there on. */
static Goodput longest(const GoodputInput *of, int64_t every, int64_t most, double enough) {
    int64_t good = every, bad = every;
    while (bad < most && goodput_at(of, bad).share >= enough) {
        good = bad;
        bad = bad < most / 2 ? 2 * bad : most;
    }
    if (goodput_at(of, bad).share >= enough) good = bad;
    while (bad - good > 1) {
        int64_t middle = good + (bad - good) / 2;
        *(goodput_at(of, middle).share >= enough ? &good : &bad) = middle;
    }
    return goodput_at(of, good);
}

/* The share has one maximum over the interval, so the best whole number is beside it. */
Goodput goodput_of(const GoodputInput *of) {
    double most = of->n_steps >= 1 ? fmin(ceil(of->n_steps), MOST_STEPS) : MOST_STEPS;
    double least = fmax(1, ceil((of->write_seconds - of->pause_seconds) / of->step_seconds));
    double best = checkpoint_interval(of->mtbf_seconds, of->pause_seconds) / of->step_seconds;
    double down = fmin(most, fmax(least, floor(best)));
    double up = fmin(most, fmax(least, floor(best) + 1));
    Goodput a = goodput_at(of, (int64_t)down), b = goodput_at(of, (int64_t)up);
    Goodput out = b.share > a.share ? b : a;
    if (out.hopeless || of->write_seconds <= 0) return out;
    return longest(of, out.every, (int64_t)most, out.share - WRITE_LESS_SHARE);
}

/* The share depends on the number of steps only where that is below the best interval: then there
 * is one checkpoint, at the end, and the time that it all takes is solved for the work. */
double goodput_steps_in(const GoodputInput *of, double seconds) {
    GoodputInput endless = *of;
    endless.n_steps = 0;
    Goodput best = goodput_of(&endless);
    double n = floor(seconds * best.share / of->step_seconds), mtbf = of->mtbf_seconds;
    if (best.hopeless || n >= (double)best.every) return n;
    double late = exp((of->restart_seconds + of->write_seconds) / mtbf);
    double work = mtbf * log1p(seconds / (mtbf * late)) - of->pause_seconds;
    return fmax(0, floor(work / of->step_seconds));
}
