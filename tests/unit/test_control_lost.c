/* The control plane when ranks are lost, stuck, fail or disagree: all others end, in time, and know
 * why. */
#include "ir/base/clock.h"
#include "tests/unit/control_job.h"

#include <signal.h>
#include <stdatomic.h>

/* Trains until the job fails; rank `victim` does what `fate` says at step 12. */
typedef enum Fate { FATE_KILLED, FATE_STOPPED, FATE_STUCK, FATE_REPORTS, FATE_ABORTS } Fate;
static Fate fate;
static int victim;

static void meet_fate(Control *control) {
    for (int i = 0; i < 15 || (fate == FATE_STUCK && !control_failed(control, NULL)); i++) {
        /* Again and again the same is no progress. Long enough for a heartbeat to say it. */
        control_update_progress(control, 12, 5, 3, false,
                                "B0.5 all_reduce of blocks.1.mlp.w1, models/gpt.lua:42");
        sleep_s(0.02);
    }
    if (fate == FATE_KILLED) raise(SIGKILL);
    if (fate == FATE_STOPPED) raise(SIGSTOP);
    if (fate == FATE_REPORTS) control_report(control, "no memory left on the device");
    if (fate == FATE_ABORTS) control_abort(control, "interrupted");
}

static void count_call(void *state, const char *reason) {
    (void)reason;
    atomic_fetch_add((atomic_int *)state, 1);
}

static bool fated_rank(Job *job, int rank, char *said) {
    atomic_int n_calls = 0;
    int n_held = count_held();
    job->options.on_failure = count_call;
    job->options.on_failure_state = &n_calls;
    Control *control = join(job, rank, said);
    if (!control) return false;
    for (int step = 0;; step++) {
        char text[64];
        snprintf(text, sizeof text, "step %d on rank %d", step, rank);
        control_update_progress(control, step, 0, 0, true, text);
        if (rank == victim && step == 12) meet_fate(control);
        if (!control_barrier(control)) break;
        sleep_s(0.005);
    }
    const char *reason = "";
    EXPECT(control_failed(control, &reason));
    EXPECT(!control_barrier(control)); /* it stays failed */
    EXPECT(!control_close(control));
    snprintf(said, SAID_BYTES, "%s", reason);
    control_destroy(control);
    if (n_calls == 1 && holds_as_many(n_held)) return true;
    snprintf(said, SAID_BYTES, "%d calls of on_failure, or descriptors or threads are left",
             n_calls);
    return false;
}

#define PLACE "at step 12: was in B0.5 all_reduce of blocks.1.mlp.w1, models/gpt.lua:42"

typedef struct FateCase {
    const char *name; /* NULL: as the one before */
    Fate fate;
    int victim;
    double seconds; /* in which all must have ended; less than lost_s where that does not count */
    const char *expected;
} FateCase;

static const FateCase fate_cases[] = {
    {"a killed rank ends all others, who name it and where it was", FATE_KILLED, 3, 4.5,
     "rank 3 (host-3) was lost " PLACE " (its connection closed)"},
    {"so does rank 0, which the others notice", FATE_KILLED, 0, 4.5,
     "rank 0 (host-0) was lost " PLACE " (its connection closed)"},
    {"a rank that stops answering is lost after lost_s", FATE_STOPPED, 2, 12,
     "rank 2 (host-2) was lost " PLACE " (nothing heard for 1"},
    {"so is rank 0", FATE_STOPPED, 0, 12,
     "rank 0 (host-0) was lost " PLACE " (nothing heard for 1"},
    {"a rank without progress is stuck, not those that wait for it", FATE_STUCK, 2, 12,
     "rank 2 (host-2) is stuck at step 12: has been in B0.5 all_reduce of blocks.1.mlp.w1, "
     "models/gpt.lua:42 for 1"},
    {NULL, FATE_STUCK, 0, 12, "(others: rank 1 in step 12 on rank 1, rank 2 in"},
    {"a rank's report and its wish to end reach all", FATE_REPORTS, 1, 12,
     "rank 1 (host-1) failed at step 12: no memory left on the"},
    {NULL, FATE_REPORTS, 0, 12, "rank 0 (host-0) failed at step 12: no memory left on the"},
    {NULL, FATE_ABORTS, 1, 12, "ended by rank 1 (host-1): interrupted"},
};

enum { N_FATES = sizeof fate_cases / sizeof fate_cases[0], N_AT_ONCE = 3 };

static Job start_fate(const FateCase *item) {
    fate = item->fate;
    victim = item->victim;
    Job job = job_create(4, fated_rank);
    if (fate == FATE_STOPPED) job.options.lost_s = 1;
    if (fate == FATE_STUCK) job.options.stuck_s = 1;
    job_start(&job);
    return job;
}

/* All ranks but a dead one end in time, with the same reason. */
static void check_fate(const FateCase *item, Job *job, double begin) {
    bool dies = item->fate == FATE_KILLED || item->fate == FATE_STOPPED;
    for (int i = 0; i < job->world; i++) {
        if (i != item->victim) job_finish_rank(job, i);
    }
    if (item->fate == FATE_STOPPED) kill(job->pids[item->victim], SIGKILL);
    job_finish_rank(job, item->victim);
    for (int i = 0; i < job->world; i++) {
        if (dies && i == item->victim) {
            CHECK(job->was_killed[i], "rank %d was not killed", i);
            continue;
        }
        CHECK(job->went_well[i], "rank %d: %s", i, job->said[i]);
        check_said(job, i, item->expected);
        CHECK(job->ended[i] < begin + item->seconds, "rank %d took %g s", i, job->ended[i] - begin);
    }
}

/* Some jobs at a time: they mostly wait. */
static void test_fates(void) {
    for (int first = 0; first < N_FATES; first += N_AT_ONCE) {
        Job jobs[N_AT_ONCE];
        double begin = clock_now();
        for (int i = 0; i < N_AT_ONCE; i++) jobs[i] = start_fate(&fate_cases[first + i]);
        for (int i = 0; i < N_AT_ONCE; i++) {
            const FateCase *item = &fate_cases[first + i];
            char name[128];
            snprintf(name, sizeof name, "control: %s", item->name ? item->name : "");
            if (item->name) check_begin(name);
            check_fate(item, &jobs[i], begin);
        }
    }
}

_Static_assert(N_FATES % N_AT_ONCE == 0, "whole groups");

/* --- calls that do not meet --- */

static int quarrel;

static bool quarrel_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return true; /* the others quarrelled before it had started; it knows why */
    char byte = 0;
    bool ok = true;
    if (quarrel == 0)
        ok = rank == 1 ? control_broadcast(control, 2, &byte, 1) : control_barrier(control);
    if (quarrel == 1) ok = rank == 1 ? control_close(control) : control_barrier(control);
    if (quarrel == 2 && rank != 1) ok = control_barrier(control);
    while (!control_failed(control, NULL)) sleep_s(0.01);
    const char *reason;
    control_failed(control, &reason);
    snprintf(said, SAID_BYTES, "%s", reason);
    control_destroy(control);
    return !ok || (quarrel == 2 && rank == 1);
}

static void test_quarrels(void) {
    static const char *const expected[] = {"broadcast, 1 bytes from rank 2", "the end of the job",
                                           " s in barrier for ranks 1"};
    check_begin("control: calls that do not match, or do not come, are named");
    for (quarrel = 0; quarrel < 3; quarrel++) {
        Job job = job_create(3, quarrel_rank);
        if (quarrel == 2) job.options.operation_s = 1;
        job_start(&job);
        job_finish(&job);
        check_all_well(&job);
        for (int i = 0; i < 3; i++) check_said(&job, i, expected[quarrel]);
        if (quarrel < 2)
            check_said(&job, 2, "all ranks must make the same calls in the same order");
    }
}

/* --- no false alarm --- */

static bool is_still;

/* One call after the other: there is always something to send when a heartbeat is due. */
static bool busy_rank(Job *job, int rank, char *said) {
    Control *control = join(job, rank, said);
    if (!control) return false;
    int goes_on = 1;
    double begin = clock_now();
    for (int step = 0; goes_on; step++) {
        control_update_progress(control, step, 0, 0, is_still && rank != victim, "computing");
        if (is_still && rank == victim && step == 3) sleep_s(2);
        goes_on = rank != 0 || clock_now() < begin + 1.2;
        EXPECT(control_broadcast(control, 0, &goes_on, sizeof goes_on));
    }
    EXPECT(control_close(control));
    control_destroy(control);
    return true;
}

static void test_busy(void) {
    check_begin("control: ranks that move all the time are not stuck");
    Job job = job_create(3, busy_rank);
    job.options.stuck_s = 0.5;
    job_start(&job);
    job_finish(&job);
    check_all_well(&job);

    check_begin("control: heartbeats come more often than a rank may be still");
    job = job_create(3, busy_rank);
    job.options.stuck_s = 0.5;
    job.options.heartbeat_s = 60;
    victim = 1;
    is_still = true;
    job_start(&job);
    job_finish(&job);
    check_said(&job, 0, "rank 1 (host-1) is stuck at step 3: has been in computing");
}

int main(void) {
    test_fates();
    test_busy();
    test_quarrels();
    return check_report();
}
