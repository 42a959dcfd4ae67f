/* Who this process is among the processes of a job, as the launcher's environment says.
 *
 * One process per GPU (or per host of CPUs); no MPI library is used. Understood, the first that is
 * there counts:
 *
 *   torchrun  RANK WORLD_SIZE, and LOCAL_RANK LOCAL_WORLD_SIZE where a host has several processes.
 *             Kubernetes' training operators set these too.
 *   Open MPI  OMPI_COMM_WORLD_RANK _SIZE _LOCAL_RANK _LOCAL_SIZE
 *   hydra     PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS: MPICH, Intel MPI
 *             (Cray: PMI_LOCAL_RANK PMI_LOCAL_SIZE)
 *   Slurm     SLURM_PROCID SLURM_NTASKS SLURM_LOCALID and the step's node and task lists; only what
 *             srun has started, not a batch script or salloc's shell
 *   nothing   one process
 *
 * Rank 0's address is MASTER_ADDR and MASTER_PORT. Without them: under Slurm the first host of the
 * step (but of an arbitrary distribution) and a port from the job's number, elsewhere 127.0.0.1
 * (refused when several hosts take part) and port 29500. torchrun's own store listens on
 * MASTER_PORT, so that with TORCHELASTIC_USE_AGENT_STORE=True the port after it is taken.
 *
 * `job` keeps jobs apart: PERILUNE_JOB_TOKEN, else what the launcher calls the job, else "". It is
 * never printed.
 *
 * All values are untrusted. A value that is malformed or contradicts another is one error that
 * names the variable and shows the value.
 */
#ifndef RUNTIME_LAUNCH_LAUNCH_ENVIRONMENT_H
#define RUNTIME_LAUNCH_LAUNCH_ENVIRONMENT_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <stdbool.h>

enum {
    LAUNCH_HOST_BYTES = 256,
    LAUNCH_JOB_BYTES = 192,
    LAUNCH_MAX_RANKS = 1 << 20,
    LAUNCH_DEFAULT_PORT = 29500,
    LAUNCH_SLURM_FIRST_PORT = 20000,
    LAUNCH_SLURM_PORTS = 40000,
};

typedef enum LaunchKind {
    LAUNCH_ALONE,
    LAUNCH_TORCHRUN,
    LAUNCH_OPEN_MPI,
    LAUNCH_HYDRA,
    LAUNCH_SLURM
} LaunchKind;

typedef struct LaunchEnvironment {
    LaunchKind kind;
    int rank, world; /* rank 0..world-1 */
    int local_rank,
        local_world; /* among the processes on this host: which GPU, how many share it */
    char master_host[LAUNCH_HOST_BYTES];
    int port;
    char host[LAUNCH_HOST_BYTES]; /* this machine's name, for reports */
    char job[LAUNCH_JOB_BYTES];
} LaunchEnvironment;

/* The value of a variable, NULL when it is not set. */
typedef const char *LaunchLookup(const void *state, const char *name);

/* From any set of variables, for tests. Reports, returns false. */
bool launch_read(LaunchEnvironment *out, LaunchLookup *lookup, const void *state, Diag *diag);
/* From this process' environment. */
bool launch_read_environment(LaunchEnvironment *out, Diag *diag);

/* As it is written before a port: an IPv6 address in brackets. */
typedef struct ShownHost {
    char text[LAUNCH_HOST_BYTES + 2];
} ShownHost;
ShownHost launch_show_host(const char *host);

/* One line without its end: "rank 3 of 8 on gpu-a2 (1 of 4 there), told by srun; rank 0 at
 * gpu-a1:23456". */
void launch_describe(const LaunchEnvironment *launch, StrBuf *out);

#endif
