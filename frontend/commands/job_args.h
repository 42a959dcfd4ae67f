/* perilune job's options -> what a script needs (frontend/job), checked. */
#ifndef FRONTEND_COMMANDS_JOB_ARGS_H
#define FRONTEND_COMMANDS_JOB_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/job/job.h"
#include "planner/plan/plan.h"

typedef struct JobArgs {
    CliArgs *args;
    CliArgs train;    /* what the ranks are started with, parsed as train does */
    const Plan *plan; /* NULL: the run searches its layout */
    JobSpec spec;
    const char *checkpoint; /* NULL: none is written */
} JobArgs;

/* The command line that made it, quoted for a shell. */
void job_args_describe(const CliArgs *args, StrBuf *out);

/* Where this program is. */
const char *job_args_own_program(Arena *arena);

/* Parses what train is given. Returns -1 to go on, or the exit code. */
int job_args_parse_train(JobArgs *job);

/* Reads or makes the plan, and sets all of the spec but memory and times. False: reported. */
bool job_args_read(JobArgs *job, Diag *diag);

#endif
