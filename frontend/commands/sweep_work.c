#define _GNU_SOURCE /* sigtimedwait, environ */
#include "frontend/commands/sweep_work.h"

#include "frontend/commands/run_curve.h"
#include "frontend/commands/sweep_loss.h"
#include "frontend/sweep/halving.h"
#include "ir/base/clock.h"
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_JOBS = 256 };

/* What a run has come to. */
typedef enum RunFate { RUN_OPEN, RUN_ENDED, RUN_LEFT_OUT, RUN_HAS_FAILED } RunFate;

typedef struct Slot {
    pid_t pid; /* 0: free */
    int run;
} Slot;

typedef struct Work {
    const SweepWork *asked;
    const Sweep *sweep;
    Arena *arena;
    Diag *diag;
    RunFate *states;  /* [n_runs] */
    int64_t *reached; /* [n_runs]: the step that can be gone on from */
    int64_t *targets; /* [n_runs]: of this rung */
    Slot slots[MOST_JOBS];
    sigset_t waited; /* signals: of children, and those that end */
    bool stopping, broken;
    double begun_s, done_s,
        left_s; /* since the rung's beginning; predicted, of runs' ends and left */
    int n_running;
} Work;

/* --- one process --- */

/* Where the sweep is killed its runs end, too, after their steps. */
static _Noreturn void become_run(const char *const *argv, char *const *environment, int output,
                                 pid_t sweep, const sigset_t *mask) {
    int nothing = open("/dev/null", O_RDONLY);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0) {
        _exit(EXIT_FAILED);
    }
    setpgid(0, 0); /* a terminal's Ctrl-C is for the sweep, which passes it on */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != sweep) _exit(EXIT_INTERRUPTED);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execve("/proc/self/exe", (char *const *)argv, environment);
    static const char why[] = "perilune: cannot be started again\n";
    if (write(STDERR_FILENO, why, sizeof(why) - 1) < 0) _exit(EXIT_FAILED);
    _exit(EXIT_FAILED);
}

/* This process's, with one GPU of those that it sees, the slot's. */
static char **environment_of(Work *work, int slot) {
    static const char NAME[] = "CUDA_VISIBLE_DEVICES=";
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char **list = NULL;
    int n = 0, capacity = 0;
    for (char **at = environ; *at; at++) {
        if (work->asked->cuda && strncmp(*at, NAME, sizeof(NAME) - 1) == 0) continue;
        ARENA_PUSH(work->arena, list, n, capacity, *at);
    }
    if (work->asked->cuda) {
        const char *device = visible;
        for (int i = 0; device && i < slot; i++) {
            device = strchr(device, ',');
            if (device) device++;
        }
        char *own =
            device ? arena_printf(work->arena, "%s%.*s", NAME, (int)strcspn(device, ","), device)
                   : arena_printf(work->arena, "%s%d", NAME, slot);
        ARENA_PUSH(work->arena, list, n, capacity, own);
    }
    ARENA_PUSH(work->arena, list, n, capacity, NULL);
    return list;
}

static bool has_checkpoint(const Work *work, const SweepRun *run) {
    return work->sweep->checkpoint &&
           access(sweep_file(work->arena, run, work->sweep->checkpoint), F_OK) == 0;
}

/* What an earlier attempt has printed goes, unless the run goes on. */
static bool start(Work *work, int slot, int r) {
    const SweepRun *run = &work->sweep->runs[r];
    const char *path = sweep_file(work->arena, run, "output.txt");
    int n = 0, fresh = has_checkpoint(work, run) ? 0 : O_TRUNC;
    const char **argv = sweep_command(work->arena, work->sweep, run, "perilune", work->targets[r],
                                      work->asked->n_threads, &n);
    char **environment = environment_of(work, slot);
    int output = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | fresh, 0666);
    if (output < 0) {
        diag_error(work->diag, (SourceLoc){path, 0}, "cannot be written: %s", strerror(errno));
        return false;
    }
    sigset_t none;
    sigemptyset(&none);
    fflush(NULL);
    const pid_t sweep = getpid(), pid = fork();
    if (pid == 0) become_run(argv, environment, output, sweep, &none);
    if (pid < 0) diag_error(work->diag, NO_LOC, "sweep: no process: %s", strerror(errno));
    close(output);
    if (pid < 0) return false;
    setpgid(pid, pid); /* whoever comes first */
    work->slots[slot] = (Slot){pid, r};
    work->n_running++;
    return true;
}

/* --- what became of it --- */

/* Its log; NULL: none that can be read. */
static const RunCurve *read_curve(Work *work, Arena *arena, int r) {
    Diag *why = diag_create();
    const char *path = sweep_file(arena, &work->sweep->runs[r], "log.jsonl");
    const RunCurve *curve = access(path, F_OK) == 0 ? run_curve_read(arena, path, why) : NULL;
    diag_destroy(why);
    return curve;
}

static void tell(Work *work, int r, const char *how) {
    const SweepRun *run = &work->sweep->runs[r];
    int n = 0;
    if (work->asked->quiet) return;
    for (int i = 0; i < work->sweep->n_runs; i++) {
        n += work->states[i] != RUN_OPEN || work->reached[i] >= work->targets[i];
    }
    double elapsed = clock_now() - work->begun_s;
    char left[48] = "";
    if (work->left_s > 0 && work->done_s > 0) {
        double seconds = elapsed / work->done_s * work->left_s;
        snprintf(left, sizeof(left), seconds < 90 ? "; about %.0f s left" : "; about %.0f min left",
                 seconds < 90 ? seconds : seconds / 60);
    }
    fprintf(stderr, "%d/%d  %s  %s: %s%s\n", n, work->sweep->n_runs, run->name,
            sweep_describe(work->arena, work->sweep, run), how, left);
}

static void tell_losses(Work *work, int r) {
    Arena *arena = arena_create();
    const RunCurve *curve = read_curve(work, arena, r);
    const char *how = "no log";
    if (curve) {
        const double val = curve->series[S_VAL_LOSS].last;
        how = arena_printf(arena, "step %.0f, loss %.4f", curve->series[S_STEP].last,
                           sweep_loss_of(curve, INT64_MAX, NULL).end);
        if (isfinite(val)) how = arena_printf(arena, "%s, %.4f in validation", how, val);
        how = arena_printf(arena, "%s, %.1f s", how, run_curve_seconds(curve));
    }
    tell(work, r, how);
    arena_destroy(arena);
}

static bool end_run(Work *work, int r, SweepResult result) {
    const SweepRun *run = &work->sweep->runs[r];
    result.known = true;
    if (!sweep_result_write(work->arena, run, &result, work->diag)) return false;
    work->states[r] = result.exit_code ? RUN_HAS_FAILED : result.stopped ? RUN_LEFT_OUT : RUN_ENDED;
    if (work->sweep->removes_checkpoint && !result.exit_code) {
        unlink(sweep_file(work->arena, run, work->sweep->checkpoint));
    }
    return true;
}

static void stop_all(Work *work) {
    if (!work->stopping && !work->broken) {
        fprintf(stderr, "\ninterrupted: the runs end after their steps (again: at once)\n");
    }
    for (int s = 0; s < work->asked->n_jobs; s++) {
        if (work->slots[s].pid) kill(work->slots[s].pid, SIGTERM);
    }
}

/* False: what it came to cannot be written. */
static bool take_end(Work *work, Slot *slot, int how) {
    const int r = slot->run;
    const SweepRun *run = &work->sweep->runs[r];
    const int code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    const double weight = (double)(work->targets[r] - work->reached[r]) * work->asked->step_s[r];
    *slot = (Slot){0};
    work->n_running--;
    work->left_s -= weight;
    if (code == EXIT_INTERRUPTED || (work->stopping && code > 128)) {
        /* A run that somebody else stopped waits for the next time, as all do then. */
        if (!work->stopping) stop_all(work);
        work->stopping = true;
        return true;
    }
    work->done_s += weight;
    bool good = true;
    if (code != EXIT_DONE) {
        good = end_run(work, r, (SweepResult){.exit_code = code});
        const char *why = sweep_failure(work->arena, run, code);
        tell(work, r, arena_printf(work->arena, "failed: %s", why));
        return good;
    }
    work->reached[r] = work->targets[r];
    if (work->targets[r] == run->n_steps) good = end_run(work, r, (SweepResult){0});
    tell_losses(work, r);
    return good;
}

static bool collect(Work *work) {
    bool good = true;
    for (int s = 0; s < work->asked->n_jobs; s++) {
        int how = 0;
        Slot *slot = &work->slots[s];
        if (slot->pid && waitpid(slot->pid, &how, WNOHANG) == slot->pid) {
            good = take_end(work, slot, how) && good;
        }
    }
    return good;
}

/* --- a rung --- */

static void wait_for_signal(Work *work) {
    const struct timespec most = {.tv_sec = 1};
    int number = sigtimedwait(&work->waited, NULL, &most);
    if (number < 0 || number == SIGCHLD) return;
    stop_all(work);
    work->stopping = true;
}

/* The next run that is not where it is to be; -1: none. */
static int next_run(const Work *work, int from) {
    for (int r = from; r < work->sweep->n_runs; r++) {
        if (work->states[r] == RUN_OPEN && work->reached[r] < work->targets[r]) return r;
    }
    return -1;
}

/* All runs that are open to their targets. */
static bool run_all(Work *work) {
    int next = next_run(work, 0);
    work->begun_s = clock_now();
    work->done_s = work->left_s = 0;
    for (int r = next; r >= 0; r = next_run(work, r + 1)) {
        work->left_s += (double)(work->targets[r] - work->reached[r]) * work->asked->step_s[r];
    }
    while (work->n_running > 0 || (next >= 0 && !work->stopping && !work->broken)) {
        for (int s = 0; s < work->asked->n_jobs && next >= 0; s++) {
            if (work->slots[s].pid || work->stopping || work->broken) continue;
            if (!start(work, s, next)) work->broken = true;
            next = next_run(work, next + 1);
        }
        if (work->n_running > 0) wait_for_signal(work);
        const bool was_broken = work->broken;
        if (!collect(work)) work->broken = true;
        if (work->broken && !was_broken) stop_all(work);
    }
    return !work->broken && !work->stopping;
}

/* Leaves out all but the best of those that have ever come to this rung, whatever became of them
 * later: so a sweep that goes on finds what it found before. */
static bool leave_out(Work *work, int n_rungs_left) {
    const Sweep *sweep = work->sweep;
    Arena *arena = arena_create();
    SweepLoss *of = ARENA_ARRAY(arena, SweepLoss, sweep->n_runs);
    double *losses = ARENA_ARRAY(arena, double, sweep->n_runs);
    bool *kept = ARENA_ARRAY(arena, bool, sweep->n_runs);
    bool good = true, has_any = false;
    int n_open = 0, n_out = 0;
    for (int r = 0; r < sweep->n_runs; r++) {
        Arena *log = arena_create();
        const RunCurve *curve = read_curve(work, log, r);
        const bool was_here = curve && curve->series[S_STEP].last >= (double)work->targets[r];
        if (was_here) of[r] = sweep_loss_of(curve, work->targets[r], sweep->by);
        arena_destroy(log);
    }
    sweep_losses(of, sweep->n_runs, losses);
    for (int r = 0; r < sweep->n_runs; r++) has_any |= isfinite(losses[r]) != 0;
    if (!has_any && sweep->by) {
        sweep_loss_report_absent(sweep->by, work->diag);
        arena_destroy(arena);
        return false;
    }
    halving_choose(losses, sweep->n_runs, sweep->stop_worse, kept);
    for (int r = 0; r < sweep->n_runs && good; r++) {
        if (work->states[r] != RUN_OPEN) continue;
        if (kept[r]) {
            n_open++;
        } else {
            n_out++;
            good = end_run(work, r, (SweepResult){.stopped = work->targets[r]});
        }
    }
    if (good && n_out > 0 && !work->asked->quiet) {
        fprintf(stderr, "rung    %d run%s go%s on; %d rung%s to come\n", n_open,
                n_open == 1 ? "" : "s", n_open == 1 ? "es" : "", n_rungs_left,
                n_rungs_left == 1 ? "" : "s");
    }
    arena_destroy(arena);
    return good;
}

static bool climb(Work *work) {
    const Sweep *sweep = work->sweep;
    for (int rung = 0; rung <= sweep->n_rungs; rung++) {
        for (int r = 0; r < sweep->n_runs; r++) {
            const SweepRun *run = &sweep->runs[r];
            work->targets[r] = halving_step(run->n_steps, sweep->stop_worse, sweep->n_rungs, rung,
                                            run->eval_every);
        }
        if (!run_all(work)) return false;
        if (rung < sweep->n_rungs && !leave_out(work, sweep->n_rungs - rung - 1)) return false;
    }
    return true;
}

/* --- from where it was --- */

/* How far a run has come that has no result: to its log's last step, if it can go on from there. */
static int64_t find_reached(Work *work, int r) {
    Arena *arena = arena_create();
    const RunCurve *curve =
        has_checkpoint(work, &work->sweep->runs[r]) ? read_curve(work, arena, r) : NULL;
    int64_t step = curve ? (int64_t)curve->series[S_STEP].last : 0;
    arena_destroy(arena);
    /* At its end it writes what it has to once more. */
    return step < work->sweep->runs[r].n_steps ? step : work->sweep->runs[r].n_steps - 1;
}

static bool look_back(Work *work) {
    int n_ended = 0;
    for (int r = 0; r < work->sweep->n_runs; r++) {
        SweepResult result;
        const SweepRun *run = &work->sweep->runs[r];
        if (!sweep_result_read(work->arena, run, &result, work->diag)) return false;
        if (result.known && result.exit_code && work->asked->retry) {
            result = (SweepResult){0}; /* from now on it is begun, whatever comes between */
            unlink(sweep_file(work->arena, run, "result.json"));
        }
        work->states[r] = !result.known      ? RUN_OPEN
                          : result.exit_code ? RUN_HAS_FAILED
                          : result.stopped   ? RUN_LEFT_OUT
                                             : RUN_ENDED;
        n_ended += result.known;
        work->reached[r] = result.known ? run->n_steps : find_reached(work, r);
    }
    if (n_ended > 0 && !work->asked->quiet) {
        fprintf(stderr, "going on: %d of %d runs have ended\n", n_ended, work->sweep->n_runs);
    }
    return true;
}

/* Signals are waited for, not handled; those that are ignored, as by nohup, stay so. */
static void block_signals(Work *work, sigset_t *out_before) {
    static const int ENDING[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before;
    signal(SIGCHLD, SIG_DFL); /* where it was ignored, nobody's end could be waited for */
    sigemptyset(&work->waited);
    sigaddset(&work->waited, SIGCHLD);
    for (int i = 0; i < 3; i++) {
        bool ignored = sigaction(ENDING[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored) sigaddset(&work->waited, ENDING[i]);
    }
    sigprocmask(SIG_BLOCK, &work->waited, out_before);
}

int sweep_work(const SweepWork *asked, Diag *diag) {
    const int n = asked->sweep->n_runs;
    Work work = {.asked = asked, .sweep = asked->sweep, .arena = asked->sweep->arena, .diag = diag};
    sigset_t before;
    work.states = ARENA_ARRAY(work.arena, RunFate, n);
    work.reached = ARENA_ARRAY(work.arena, int64_t, n);
    work.targets = ARENA_ARRAY(work.arena, int64_t, n);
    if (!look_back(&work)) return EXIT_USAGE;
    block_signals(&work, &before);
    bool good = climb(&work);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (work.stopping && !work.broken) return EXIT_INTERRUPTED;
    for (int r = 0; r < n; r++) good = good && work.states[r] != RUN_HAS_FAILED;
    return good ? EXIT_DONE : EXIT_FAILED;
}
