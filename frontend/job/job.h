/* Job scripts: what starts a plan's ranks on the machines of a cluster, for Slurm, Kubernetes, MPI,
 * torchrun, or a shell on one machine. JobSpec -> text, by one writer each.
 *
 * Texts of the user's are untrusted: none becomes code. In shells they are within single quotes, in
 * YAML double-quoted with `$` doubled where Kubernetes would expand it, in comments without control
 * characters; what goes where nothing can be quoted (#SBATCH lines, host lists) has been checked by
 * job_text_is_plain or job_text_is_option.
 */
#ifndef FRONTEND_JOB_JOB_H
#define FRONTEND_JOB_JOB_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum JobTarget {
    JOB_SLURM,
    JOB_KUBERNETES, /* an indexed Job with a headless Service: no operator is needed */
    JOB_PYTORCHJOB, /* of Kubeflow's training operator, v1 */
    JOB_MPI,        /* Open MPI, MPICH or Intel MPI: the script looks which */
    JOB_TORCHRUN,
    JOB_SHELL, /* one machine, nothing but a shell */
    N_JOB_TARGETS
} JobTarget;
#define JOB_TARGET_NAMES "slurm, kubernetes, pytorchjob, mpi, torchrun or shell"
const char *job_target_name(JobTarget target);
bool job_target_find(const char *name, JobTarget *out);

static inline bool job_is_kubernetes(JobTarget target) {
    return target == JOB_KUBERNETES || target == JOB_PYTORCHJOB;
}

typedef struct JobTexts {
    const char **items;
    int count;
} JobTexts;

typedef struct JobSpec {
    JobTarget target;
    const char *made_by;                    /* the command, for the script's head */
    const char *name;                       /* a DNS label of at most 50 characters */
    const char *program, *plan, *directory; /* directory: to start in; NULL: where one is */
    bool has_fingerprint;                   /* the script compares it */
    uint64_t fingerprint;
    bool cuda;            /* a GPU for each rank */
    bool ranks_may_leave; /* a run that searches its layout may have more ranks than it needs */
    int n_ranks, n_nodes, n_per_node;
    int cpus;             /* of a rank; 0: ranks share their node's */
    bool shared;          /* with other jobs of the node */
    int64_t memory_bytes; /* that a node's ranks need of its memory, as a limit; 0: not known */
    int64_t shm_bytes;    /* of /dev/shm within a pod, part of it */
    int64_t time_s;       /* 0: no limit */
    int64_t stop_s;       /* from a signal to the last rank's end */
    int restarts;         /* after failures */
    bool goes_on;         /* from its checkpoint: may be started again and again */
    JobTexts arguments;   /* of train, behind the plan */
    JobTexts hosts;       /* none: one machine, or the launcher knows */
    JobTexts volumes;     /* NAME:PATH */
    JobTexts options;     /* for the launcher, as they are */
    const char *partition, *account, *image; /* or NULL */
} JobSpec;

void job_write(StrBuf *out, const JobSpec *job);

/* The writers. */
void job_write_slurm(StrBuf *out, const JobSpec *job);
void job_write_kubernetes(StrBuf *out, const JobSpec *job);
void job_write_mpi(StrBuf *out, const JobSpec *job);
void job_write_torchrun(StrBuf *out, const JobSpec *job);
void job_write_shell(StrBuf *out, const JobSpec *job);

/* --- parts of scripts (job_parts.c) --- */

/* Comment lines: what this is, of which command and plan. */
void job_put_head(StrBuf *out, const JobSpec *job, const char *what);
/* `program=... plan=...`, the folder, and `set -- train PLAN ARGUMENTS`. */
void job_put_command(StrBuf *out, const JobSpec *job);
/* Ends the script with 2 unless $plan has the fingerprint; `run` precedes the program ("": none).
 */
void job_put_check(StrBuf *out, const JobSpec *job, const char *run);
/* Runs the shell function `launch` with "$@", again after failures; $status is its exit code. */
void job_put_attempts(StrBuf *out, const JobSpec *job);
/* The functions of ranks.sh, each line behind `indent`. */
void job_put_ranks(StrBuf *out, const JobSpec *job);

/* --- texts (job_text.c) --- */

/* As one word of a POSIX shell. */
void job_put_shell(StrBuf *out, const char *text);
/* The same, but plain texts and options as they are. */
void job_put_word(StrBuf *out, const char *text);
/* As a double-quoted scalar of YAML; `expanded`: where Kubernetes replaces $(NAME). */
void job_put_yaml(StrBuf *out, const char *text, bool expanded);
/* Within a comment: without control characters and what else ends a line. */
void job_put_comment(StrBuf *out, const char *text);
/* Letters, digits and some of ._,+@:/=- : needs no quotes anywhere. */
bool job_text_is_plain(const char *text);
/* Begins with a -, and has no control characters, quotes, backslashes or #. */
bool job_text_is_option(const char *text);
/* Lower case letters, digits and -, not at the ends, 1 to `most` characters (RFC 1123). */
bool job_text_is_label(const char *text, int most);
/* [D-]HH:MM:SS in seconds. */
bool job_time_parse(const char *text, int64_t *out_s);
void job_put_time(StrBuf *out, int64_t seconds);

#endif
