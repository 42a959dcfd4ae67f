/* Goodput: the closed form against a simulation of failures, the best interval against Daly's and
 * Young's and against all others, published runs, and what a layout writes, by hand. Would catch: a
 * failure during a restart, or while a checkpoint is still being written, that costs nothing; an
 * interval that is not the best one; ranks that write what others have written. */
#include "planner/cost/run_goodput.h"
#include "tests/unit/check.h"

#include <math.h>

static bool within(double a, double b, double tolerance) {
    return fabs(a - b) <= tolerance * fabs(b);
}

/* --- a run that fails, event by event ------------------------------------------------------------
 */

typedef struct Random {
    uint64_t state;
} Random;

/* splitmix64 (Steele et al. 2014); in (0, 1]. */
static double draw(Random *random) {
    uint64_t x = random->state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53 + 0x1p-53;
}

typedef struct Played {
    double time, trained, restarting, waited;
} Played;

/* `n_failures` of them: work, a pause, the write behind the work that follows; a failure takes all
 * back to the last checkpoint that was written, and the restart may fail as well. */
static Played play(const GoodputInput *of, int64_t every, int n_failures) {
    Played out = {0};
    Random random = {7};
    double work = (double)every * of->step_seconds;
    for (int i = 0; i < n_failures; i++) {
        double left = -of->mtbf_seconds * log(draw(&random));
        out.time += left;
        if (left < of->restart_seconds) {
            out.restarting += left;
            continue;
        }
        out.restarting += of->restart_seconds;
        left -= of->restart_seconds;
        for (double at = 0;;) { /* since the restart: when the next checkpoint has been copied */
            at += work + of->pause_seconds;
            if (at + of->write_seconds > left) break;
            out.trained += work;
            out.waited += of->pause_seconds;
        }
    }
    return out;
}

/* A hundred thousand failures: the standard error of a share is about 0.3 % of what is lost. */
static void test_simulation(void) {
    static const GoodputInput CASES[] = {
        {.mtbf_seconds = 11000, .step_seconds = 6, .pause_seconds = 3, .restart_seconds = 600},
        {.mtbf_seconds = 3000, .step_seconds = 40, .pause_seconds = 120, .restart_seconds = 900},
        {.mtbf_seconds = 2000,
         .step_seconds = 9,
         .pause_seconds = 1,
         .write_seconds = 70,
         .restart_seconds = 300},
        {.mtbf_seconds = 900, .step_seconds = 30, .pause_seconds = 5, .write_seconds = 250},
        {.mtbf_seconds = 700, .step_seconds = 100, .pause_seconds = 200, .restart_seconds = 300},
    };
    check_begin("goodput: the closed form is what a simulation gives");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(*CASES); i++) {
        const GoodputInput *of = &CASES[i];
        Goodput best = goodput_of(of);
        CHECK(!best.hopeless && best.interval_seconds < of->mtbf_seconds, "case %zu", i);
        for (int k = 1; k <= 3; k += 2) {
            Goodput said = goodput_at(of, k * best.every);
            Played played = play(of, k * best.every, 100000 / LAYOUT_STEP);
            double share = played.trained / played.time;
            CHECK(fabs(share - said.share) < 0.01, "case %zu, %dx: %g, not %g", i, k, said.share,
                  share);
            double restarting = played.restarting / played.time;
            CHECK(fabs(restarting - said.restart_share) < 0.01, "case %zu: restarts %g, not %g", i,
                  said.restart_share, restarting);
            double waited = played.waited / played.time;
            CHECK(fabs(waited - said.checkpoint_share) < 0.01, "case %zu: waits %g, not %g", i,
                  said.checkpoint_share, waited);
            double sum = said.share + said.restart_share + said.checkpoint_share + said.lost_share;
            CHECK(fabs(sum - 1) < 1e-9, "shares are %g", sum);
        }
    }
}

/* --- the interval --------------------------------------------------------------------------------
 */

/* Daly's figures 3 to 5: 117, 57 and 9.1 minutes for failures every 24 h, 6 h and 15 min, and
 * checkpoints of 5 min; to his rounding, and what his approximation is off. */
static void test_daly(void) {
    check_begin("goodput: the best interval is Daly's, and Young's for short pauses");
    double minute = 60, hour = 3600;
    CHECK(within(checkpoint_interval(24 * hour, 5 * minute) / minute, 117, 0.005), "%g",
          checkpoint_interval(24 * hour, 5 * minute) / minute);
    CHECK(within(checkpoint_interval(6 * hour, 5 * minute) / minute, 57, 0.01), "%g",
          checkpoint_interval(6 * hour, 5 * minute) / minute);
    CHECK(within(checkpoint_interval(15 * minute, 5 * minute) / minute, 9.1, 0.01), "%g",
          checkpoint_interval(15 * minute, 5 * minute) / minute);
    for (double pause = 1e-6; pause < 1; pause *= 10) {
        double young = sqrt(2 * pause * 1e5);
        CHECK(within(checkpoint_interval(1e5, pause), young, 0.002), "%g: %g, not %g", pause,
              checkpoint_interval(1e5, pause), young);
    }
}

static void test_best(void) {
    check_begin("goodput: no other number of steps is better");
    Random random = {3};
    for (int i = 0; i < 100; i++) {
        GoodputInput of = {.mtbf_seconds = 3000 * exp(4 * draw(&random)),
                           .step_seconds = 1 + 20 * draw(&random),
                           .pause_seconds = i % 5 ? 100 * draw(&random) : 0,
                           .write_seconds = i % 3 ? 0 : 400 * draw(&random),
                           .restart_seconds = 900 * draw(&random),
                           .n_steps = i % 7 ? 0 : 30};
        Goodput best = goodput_of(&of);
        double highest = 0;
        for (int64_t every = 1; every < 12000; every++) {
            double covered = (double)every * of.step_seconds + of.pause_seconds;
            bool allowed = covered >= of.write_seconds && (!of.n_steps || every <= of.n_steps);
            if (!allowed) continue;
            Goodput other = goodput_at(&of, every);
            double more = of.write_seconds > 0 ? 0.001 : 0; /* that is given for fewer */
            CHECK(other.share <= best.share + more + 1e-12, "%lld steps: %g, not %g by %lld",
                  (long long)every, other.share, best.share, (long long)best.every);
            highest = fmax(highest, other.share);
        }
        bool last = of.n_steps > 0 && (double)best.every >= of.n_steps;
        CHECK(of.write_seconds <= 0 || last ||
                  goodput_at(&of, best.every + 1).share < highest - 0.001,
              "%lld steps are not the most of so good a share", (long long)best.every);
        CHECK((double)best.every * of.step_seconds + of.pause_seconds >= of.write_seconds ||
                  (double)best.every == of.n_steps,
              "a checkpoint before the last is written");
    }
}

/* Steps and their checkpoints take so many seconds, and one more would take longer. */
static void test_steps(void) {
    check_begin("goodput: the steps of so many seconds are the most that fit");
    Random random = {5};
    int n_short = 0;
    for (int i = 0; i < 300; i++) {
        GoodputInput of = {.mtbf_seconds = 3000 * exp(4 * draw(&random)),
                           .step_seconds = 1 + 20 * draw(&random),
                           .pause_seconds = i % 5 ? 100 * draw(&random) : 0,
                           .write_seconds = i % 3 ? 0 : 400 * draw(&random),
                           .restart_seconds = 900 * draw(&random)};
        double seconds = 10 * exp(9 * draw(&random)), n = goodput_steps_in(&of, seconds);
        bool one =
            goodput_of(&of).share * seconds < of.step_seconds * (double)goodput_of(&of).every;
        n_short += one && n > 0;
        for (double more = fmax(n - 20, 1); more <= n + 20; more++) {
            of.n_steps = more;
            Goodput run = goodput_of(&of);
            double took = more * of.step_seconds / run.share;
            bool fits = took <= seconds * (1 + 1e-12);
            CHECK(fits == (more <= n), "case %d: %g steps take %g of %g s, and %g are said", i,
                  more, took, seconds, n);
            if (one && fits) CHECK((double)run.every == more, "case %d: a checkpoint more", i);
        }
    }
    CHECK(n_short > 30 && n_short < 270, "%d with one checkpoint", n_short);
    GoodputInput never = {.mtbf_seconds = 100, .step_seconds = 1, .restart_seconds = 100};
    CHECK(goodput_steps_in(&never, 1e9) == 0, "%g", goodput_steps_in(&never, 1e9));
    GoodputInput endless = {.mtbf_seconds = 1e5, .step_seconds = 1, .n_steps = 1e40};
    endless.pause_seconds = 1;
    CHECK(within(goodput_of(&endless).share, goodput_steps_in(&endless, 1e12) / 1e12, 1e-9), "%g",
          goodput_of(&endless).share);
}

static void test_ends(void) {
    check_begin("goodput: where nothing fails, or all does");
    GoodputInput of = {.mtbf_seconds = 1e9, .step_seconds = 1, .pause_seconds = 1e-3};
    CHECK(goodput_of(&of).share > 0.99999, "%g", goodput_of(&of).share);
    of.pause_seconds = 0;
    CHECK(goodput_of(&of).every == 1, "%lld", (long long)goodput_of(&of).every);
    of = (GoodputInput){.mtbf_seconds = 100, .step_seconds = 40, .pause_seconds = 30};
    CHECK(!goodput_of(&of).hopeless && goodput_of(&of).share > 0.1, "70 of 100 s");
    of.restart_seconds = 30;
    CHECK(goodput_of(&of).hopeless && goodput_of(&of).share == 0, "100 of 100 s");
    of = (GoodputInput){.mtbf_seconds = 100, .step_seconds = 120};
    CHECK(goodput_of(&of).hopeless, "a step of 120 s");
    of = (GoodputInput){.mtbf_seconds = 1e-300, .step_seconds = 1e300, .pause_seconds = 1e300};
    CHECK(goodput_of(&of).hopeless, "numbers at their ends");
}

/* --- runs, and who writes what -----------------------------------------------------------------
 */

static Cluster machine(void) {
    Cluster cluster = {.name = "m", .node.n_devices = 8};
    cluster.node.host_bytes_per_second = 50e9, cluster.node.host_fraction = 0.8;
    cluster.storage.node_bytes_per_second = 4e9, cluster.storage.bytes_per_second = 20e9;
    cluster.storage.n_nodes = 32;
    return cluster;
}

/* Llama 3 405B (arXiv 2407.21783): 419 interruptions in 54 days on 16,384 H100s, storage of 2 TB/s,
 * over 90 % of the time effective; a step of 16.8 M tokens at 400 TFLOP/s takes 6.2 s. */
static void test_llama(void) {
    check_begin("goodput: Llama 3's");
    Cluster cluster = machine();
    cluster.storage = (ClusterStorage){.bytes_per_second = 2e12};
    cluster.failures = (ClusterFailures){54 * 24 * 16384 / 419.0, 10, NULL};
    ModelCosts costs = {
        .cluster = &cluster, .saved_weight_bytes = 1624e9, .saved_state_bytes = 3248e9};
    Candidate of = {.t = 8, .d = 128, .p = 16, .zero = 1, .micro_batch = 1, .n_micro = 16};
    RunGoodput run = run_goodput(&costs, &of, true, 6.2, 0, NULL);
    CHECK(run.state == GOODPUT_KNOWN && within(run.input.mtbf_seconds, 54 * 86400 / 419.0, 1e-9),
          "a failure every %g s", run.input.mtbf_seconds);
    CHECK(run.share > 0.90 && run.share < 0.95, "%g", run.share);
    CHECK(run.goodput.restart_share > run.goodput.lost_share, "%g", run.goodput.lost_share);
    FailureChoice slow = {.has_restart = true, .restart_minutes = 30};
    CHECK(run_goodput(&costs, &of, true, 6.2, 0, &slow).share < 0.87, "half an hour each");
}

/* 1.2 TB of weights, 2.4 TB of states; nodes of 8, which write 4 GB/s, 20 GB/s for each 32. */
static void test_writers(void) {
    check_begin("goodput: checkpoints are written by those that have something of their own");
    Cluster cluster = machine();
    ModelCosts costs = {
        .cluster = &cluster, .saved_weight_bytes = 1200e9, .saved_state_bytes = 2400e9};
    Candidate of = {.t = 8, .d = 16, .p = 4}; /* 64 nodes: 40 GB/s; a node of each stage writes */
    double seconds = checkpoint_write_seconds(&costs, &of, true);
    CHECK(within(seconds, 900 / 4.0, 1e-9), "%g", seconds);
    seconds = checkpoint_copy_seconds(&costs, &of, true);
    CHECK(within(seconds, 900 / 8.0 / 40, 1e-9), "copied in %g", seconds);
    of.zero = 1; /* all do: 56 GB a node, of 16 nodes a stage; 3600 GB in all */
    seconds = checkpoint_write_seconds(&costs, &of, true);
    CHECK(within(seconds, 3600 / 40.0, 1e-9), "ZeRO: %g", seconds);
    seconds = checkpoint_copy_seconds(&costs, &of, true);
    CHECK(within(seconds, 900 / 128.0 / 40, 1e-9), "ZeRO: copied in %g", seconds);
    cluster.storage.bytes_per_second = 40e9; /* weights by one node a stage: that is slower */
    seconds = checkpoint_write_seconds(&costs, &of, false);
    CHECK(within(seconds, (300 + 600 / 16.0) / 4, 1e-9), "ZeRO in f32: %g", seconds);
    of = (Candidate){.t = 2, .d = 1, .p = 16}; /* four stages in each of four nodes */
    seconds = checkpoint_write_seconds(&costs, &of, true);
    CHECK(within(seconds, 3600 / 4 / 4.0, 1e-9), "small stages: %g", seconds);
    cluster.storage = (ClusterStorage){.bytes_per_second = 1e12}; /* of a node: what cards send */
    cluster.network =
        (ClusterNetwork){.n_nics = 8, .nic_bytes_per_second = 50e9, .nic_fraction = 0.5};
    seconds = checkpoint_write_seconds(&costs, &of, true);
    CHECK(within(seconds, 900 / 200.0, 1e-9), "by cards: %g", seconds);
}

static void test_states(void) {
    check_begin("goodput: what is not said is not assumed");
    Cluster cluster = machine();
    ModelCosts costs = {.cluster = &cluster, .saved_weight_bytes = 4e9, .saved_state_bytes = 8e9};
    Candidate of = {.t = 1, .d = 8, .p = 1};
    CHECK(run_goodput(&costs, &of, true, 1, 0, NULL).state == GOODPUT_NONE, "no failures");
    FailureChoice choice = {.has_mtbf = true};
    CHECK(run_goodput(&costs, &of, true, 1, 0, &choice).state == GOODPUT_UNASKED, "none");
    choice.device_mtbf_hours = 1000;
    RunGoodput run = run_goodput(&costs, &of, true, 1, 0, &choice);
    CHECK(run.state == GOODPUT_KNOWN && run.input.mtbf_seconds == 1000 * 3600 / 8.0, "%g s",
          run.input.mtbf_seconds);
    CHECK(within(run.input.pause_seconds, 12 / 4.0 + 12 / 40.0, 1e-9), "a pause of %g s",
          run.input.pause_seconds);
    choice.async = true;
    run = run_goodput(&costs, &of, true, 1, 0, &choice);
    CHECK(within(run.input.pause_seconds, 12 / 40.0, 1e-9) && run.input.write_seconds == 3,
          "behind training: %g, %g", run.input.pause_seconds, run.input.write_seconds);
    cluster.node.host_bytes_per_second = 0;
    CHECK(run_goodput(&costs, &of, true, 1, 0, &choice).state == GOODPUT_NO_COPY, "no way");
    choice.async = false;
    cluster.storage = (ClusterStorage){0};
    run = run_goodput(&costs, &of, true, 1, 0, &choice);
    CHECK(run.state == GOODPUT_NO_STORAGE && run.share == 1, "no storage");
    choice.has_write = true, choice.write_seconds = 20;
    choice.has_restart = true, choice.restart_minutes = 2;
    run = run_goodput(&costs, &of, true, 1, 0, &choice);
    CHECK(run.state == GOODPUT_KNOWN && run.input.pause_seconds == 20 &&
              run.input.restart_seconds == 120,
          "as it was said");
    choice.device_mtbf_hours = 0.3;
    run = run_goodput(&costs, &of, true, 1, 0, &choice);
    CHECK(run.state == GOODPUT_HOPELESS && run.share == 0, "135 s between failures, 141 s each");
}

int main(void) {
    test_simulation();
    test_daly();
    test_best();
    test_steps();
    test_ends();
    test_llama();
    test_writers();
    test_states();
    return check_report();
}
