/* The folder of a sweep (--dir), and what is in it:
 *
 *     sweep.json          the definition: every run's options. Written before the first one starts
 *     sweep.lock          held while the sweep, or one of its runs, is at work
 *     001/command.sh      starts run 1 by hand
 *     001/log.jsonl       its log, 001/output.txt what it printed, 001/run.ckpt its checkpoint
 *     001/result.json     how it ended: {"exit": 0}, or with "stopped": at which step. Not there:
 *                         the run has not begun, or goes on
 *
 * All of them may have been changed by hand: they are untrusted. */
#ifndef FRONTEND_COMMANDS_SWEEP_FOLDER_H
#define FRONTEND_COMMANDS_SWEEP_FOLDER_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct SweepRun {
    const char *name;       /* "001" */
    const char *folder;     /* DIR/001 */
    const char **settings;  /* [n_keys]: what differs; NULL: not said for this one */
    const char **arguments; /* [n_arguments]: of train behind the model, but for files */
    int n_arguments;
    int64_t n_steps, eval_every;
    const char *plan; /* its fingerprint */
} SweepRun;

typedef struct Sweep {
    Arena *arena;
    const char *dir, *model;
    const char **keys; /* [n_keys] */
    int n_keys;
    SweepRun *runs;       /* [n_runs] */
    const char **outputs; /* [n_outputs]: option, name in the run's folder, option, name, ... */
    int n_runs, n_outputs;
    const char *checkpoint;  /* its name in a run's folder; NULL: none is written */
    bool removes_checkpoint; /* of runs that have ended: it was only for going on */
    int stop_worse, n_rungs; /* 0: all run to their ends */
    const char *by;          /* a value of logs, the greatest is the best; NULL: losses */
} Sweep;

bool is_sweep_folder(const char *path);

/* Sets name and folder of all runs. */
void sweep_name_runs(Sweep *sweep);
/* "lr=1e-3 set.layers=4" */
const char *sweep_describe(Arena *arena, const Sweep *sweep, const SweepRun *run);
/* A file of the run. */
const char *sweep_file(Arena *arena, const SweepRun *run, const char *name);

/* The sweep that a folder has. NULL: reported. */
Sweep *sweep_folder_read(Arena *arena, const char *dir, Diag *diag);
/* Takes the folder for this process and its runs until they have ended, and writes the definition,
 * or finds that it is the same. *out_is_new: it was not there. False: reported. */
bool sweep_folder_take(const Sweep *sweep, bool *out_is_new, Diag *diag);

typedef struct SweepResult {
    bool known;      /* else the run has no end yet */
    int exit_code;   /* of train; above 128: the signal that ended it */
    int64_t stopped; /* the step after which others were better; 0: none */
} SweepResult;
bool sweep_result_read(Arena *arena, const SweepRun *run, SweepResult *out, Diag *diag);
bool sweep_result_write(Arena *arena, const SweepRun *run, const SweepResult *result, Diag *diag);

/* Why a run failed: its exit code, or signal, and the error that it has printed (else its last
 * line), without what terminals act on. */
const char *sweep_failure(Arena *arena, const SweepRun *run, int exit_code);

/* Operands of compare and fit: in the place of a sweep's folder the logs of its runs that have come
 * to their ends. False: reported. */
bool sweep_expand_operands(Arena *arena, const char *const *operands, int n,
                           const char ***out_paths, int *out_count, Diag *diag);

#endif
