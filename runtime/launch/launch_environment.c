#include "runtime/launch/launch_environment.h"

#include "runtime/launch/nodelist.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PORT = 65535, SHOWN_BYTES = 60 };

typedef struct Variables {
    LaunchLookup *lookup;
    const void *state;
    Diag *diag;
} Variables;

static const char *find(const Variables *variables, const char *name) {
    return variables->lookup(variables->state, name);
}

/* The first of two names that is set; *out_name says which. */
static const char *find_either(const Variables *variables, const char *name, const char *other,
                               const char **out_name) {
    const char *value = find(variables, name);
    *out_name = value ? name : other;
    return value ? value : find(variables, other);
}

/* A value as errors show it: short, and nothing in it can move a terminal's cursor. */
typedef struct Shown {
    char text[SHOWN_BYTES + 4];
} Shown;

static Shown show(const char *value) {
    Shown shown = {0};
    size_t length = strnlen(value, SHOWN_BYTES + 1);
    bool cut = length > SHOWN_BYTES;
    for (size_t i = 0; i < length && i < SHOWN_BYTES; i++) {
        shown.text[i] = value[i] >= ' ' && value[i] <= '~' ? value[i] : '?';
    }
    if (cut) memcpy(shown.text + SHOWN_BYTES, "...", 4);
    return shown;
}

static bool parse_number(const char *value, int64_t low, int64_t high, int64_t *out) {
    size_t length = strnlen(value, 20);
    if (length == 0 || length > 18 || strspn(value, "0123456789") != length) return false;
    *out = strtoll(value, NULL, 10);
    return *out >= low && *out <= high;
}

static bool read_value(const Variables *variables, const char *name, const char *value, int low,
                       int high, int *out) {
    int64_t number;
    if (!parse_number(value, low, high, &number)) {
        diag_error(variables->diag, NO_LOC, "%s is '%s': not a whole number from %d to %d", name,
                   show(value).text, low, high);
        return false;
    }
    *out = (int)number;
    return true;
}

/* A variable that must be there because `because` is. */
static bool read_needed(const Variables *variables, const char *name, const char *because, int low,
                        int high, int *out) {
    const char *value = find(variables, name);
    if (!value) {
        diag_error(variables->diag, NO_LOC, "%s is not set, but %s is '%s'; set both or neither",
                   name, because, show(find(variables, because)).text);
        return false;
    }
    return read_value(variables, name, value, low, high, out);
}

/* --- what all launchers have in common --- */

/* Rank and size under the launcher's names, and whether they agree. */
static bool read_rank(const Variables *variables, const char *rank_name, const char *size_name,
                      LaunchEnvironment *out) {
    const char *because = find(variables, rank_name) ? rank_name : size_name;
    if (!read_needed(variables, size_name, because, 1, LAUNCH_MAX_RANKS, &out->world) ||
        !read_needed(variables, rank_name, because, 0, LAUNCH_MAX_RANKS - 1, &out->rank)) {
        return false;
    }
    if (out->rank >= out->world) {
        diag_error(variables->diag, NO_LOC, "%s is '%d', but %s is '%d': ranks go from 0 to %d",
                   rank_name, out->rank, size_name, out->world, out->world - 1);
        return false;
    }
    return true;
}

static bool check_local(const Variables *variables, const char *rank_name, const char *size_name,
                        const LaunchEnvironment *launch) {
    if (launch->local_world > launch->world) {
        diag_error(variables->diag, NO_LOC, "%s is '%d', more than the job's %d processes",
                   size_name, launch->local_world, launch->world);
        return false;
    }
    if (launch->local_rank >= launch->local_world) {
        diag_error(variables->diag, NO_LOC, "%s is '%d', but %s is '%d': it must be less",
                   rank_name, launch->local_rank, size_name, launch->local_world);
        return false;
    }
    return true;
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 ||
           strcmp(host, "::1") == 0;
}

/* MASTER_ADDR, without the brackets of "[::1]"; leaves master_host "" when it is not set. */
static bool read_master_host(const Variables *variables, LaunchEnvironment *out) {
    static const char allowed[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "-._:%";
    const char *value = find(variables, "MASTER_ADDR");
    if (!value) return true;
    const char *start = value;
    size_t length = strnlen(value, LAUNCH_HOST_BYTES + 2);
    if (length > 2 && value[0] == '[' && value[length - 1] == ']') {
        start++;
        length -= 2;
    }
    if (length == 0 || length >= LAUNCH_HOST_BYTES || strspn(start, allowed) < length) {
        diag_error(variables->diag, NO_LOC, "MASTER_ADDR is '%s': not a host name or address",
                   show(value).text);
        return false;
    }
    memcpy(out->master_host, start, length);
    out->master_host[length] = '\0';
    return true;
}

/* MASTER_PORT, else what is in out->port already. */
static bool read_port(const Variables *variables, LaunchEnvironment *out) {
    const char *value = find(variables, "MASTER_PORT");
    return !value || read_value(variables, "MASTER_PORT", value, 1, MAX_PORT, &out->port);
}

/* Without MASTER_ADDR, rank 0 can only be found on this host. `how` tells how to pass it on. */
static bool settle_master_host(const Variables *variables, const char *size_name, const char *how,
                               LaunchEnvironment *out) {
    if (out->master_host[0]) return true;
    if (out->local_world != out->world) {
        diag_error(variables->diag, NO_LOC,
                   "MASTER_ADDR is not set, but %s is '%d' and only %d of them run on this host; "
                   "%s",
                   size_name, out->world, out->local_world, how);
        return false;
    }
    snprintf(out->master_host, sizeof out->master_host, "127.0.0.1");
    return true;
}

/* "job" and "job.step" for what the launcher calls them; both may be NULL. */
static bool read_job(const Variables *variables, const char *job, const char *step,
                     LaunchEnvironment *out) {
    const char *token = find(variables, "PERILUNE_JOB_TOKEN");
    if (token && (!token[0] || strnlen(token, LAUNCH_JOB_BYTES) >= LAUNCH_JOB_BYTES)) {
        diag_error(variables->diag, NO_LOC, "PERILUNE_JOB_TOKEN is %s; use 1 to %d characters",
                   token[0] ? "too long" : "empty", LAUNCH_JOB_BYTES - 1);
        return false;
    }
    /* What launchers set may be cut: it is the same on all ranks. */
    if (token)
        snprintf(out->job, sizeof out->job, "%s", token);
    else if (job)
        snprintf(out->job, sizeof out->job, "%.120s%s%.60s", job, step ? "." : "",
                 step ? step : "");
    return true;
}

/* --- torchrun, Kubernetes --- */

/* LOCAL_RANK and LOCAL_WORLD_SIZE come together. Without both, a job that stays on this host counts
 * here as it does as a whole, and in any other this is the host's only process (a pod's). */
static bool read_torchrun_local(const Variables *variables, LaunchEnvironment *out) {
    const char *rank = find(variables, "LOCAL_RANK");
    const char *size = find(variables, "LOCAL_WORLD_SIZE");
    if (!rank && !size) {
        bool one_host = !out->master_host[0] || is_loopback(out->master_host);
        out->local_rank = one_host ? out->rank : 0;
        out->local_world = one_host ? out->world : 1;
        return true;
    }
    const char *because = rank ? "LOCAL_RANK" : "LOCAL_WORLD_SIZE";
    return read_needed(variables, "LOCAL_WORLD_SIZE", because, 1, LAUNCH_MAX_RANKS,
                       &out->local_world) &&
           read_needed(variables, "LOCAL_RANK", because, 0, LAUNCH_MAX_RANKS - 1,
                       &out->local_rank) &&
           check_local(variables, "LOCAL_RANK", "LOCAL_WORLD_SIZE", out);
}

/* PyTorchJob's first operator tells rank 0 that it is at "localhost", and the others the name of
 * its pod: it must listen for them too. */
static void open_pod(const Variables *variables, LaunchEnvironment *out) {
    bool alone = out->world == 1 || find(variables, "LOCAL_WORLD_SIZE");
    if (alone || out->rank != 0 || !find(variables, "KUBERNETES_SERVICE_HOST")) return;
    if (strcmp(out->master_host, "localhost") != 0) return;
    snprintf(out->master_host, sizeof out->master_host, "%s", out->host);
    out->local_world = 1;
}

static bool read_torchrun(const Variables *variables, LaunchEnvironment *out) {
    const char *agent_store = find(variables, "TORCHELASTIC_USE_AGENT_STORE");
    out->kind = LAUNCH_TORCHRUN;
    out->port = LAUNCH_DEFAULT_PORT;
    if (!read_rank(variables, "RANK", "WORLD_SIZE", out) || !read_torchrun_local(variables, out) ||
        !read_port(variables, out) ||
        !settle_master_host(variables, "WORLD_SIZE", "set it to the host of rank 0", out)) {
        return false;
    }
    if (agent_store && strcmp(agent_store, "True") == 0) {
        out->port = out->port == MAX_PORT ? MAX_PORT - 1 : out->port + 1;
    }
    open_pod(variables, out);
    return read_job(variables, find(variables, "TORCHELASTIC_RUN_ID"), NULL, out);
}

/* --- mpirun --- */

static bool read_open_mpi(const Variables *variables, LaunchEnvironment *out) {
    static const char rank[] = "OMPI_COMM_WORLD_RANK", size[] = "OMPI_COMM_WORLD_SIZE";
    static const char local_rank[] = "OMPI_COMM_WORLD_LOCAL_RANK";
    static const char local_size[] = "OMPI_COMM_WORLD_LOCAL_SIZE";
    out->kind = LAUNCH_OPEN_MPI;
    out->port = LAUNCH_DEFAULT_PORT;
    return read_rank(variables, rank, size, out) &&
           read_needed(variables, local_size, rank, 1, LAUNCH_MAX_RANKS, &out->local_world) &&
           read_needed(variables, local_rank, rank, 0, LAUNCH_MAX_RANKS - 1, &out->local_rank) &&
           check_local(variables, local_rank, local_size, out) && read_port(variables, out) &&
           settle_master_host(variables, size, "use mpirun -x MASTER_ADDR=HOST with rank 0's host",
                              out) &&
           read_job(variables, find(variables, "PMIX_NAMESPACE"), NULL, out);
}

static bool read_hydra(const Variables *variables, LaunchEnvironment *out) {
    const char *rank_name, *size_name;
    const char *rank = find_either(variables, "MPI_LOCALRANKID", "PMI_LOCAL_RANK", &rank_name);
    const char *size = find_either(variables, "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", &size_name);
    out->kind = LAUNCH_HYDRA;
    out->port = LAUNCH_DEFAULT_PORT;
    if (!read_rank(variables, "PMI_RANK", "PMI_SIZE", out)) return false;
    if (rank && size) {
        if (!read_value(variables, size_name, size, 1, LAUNCH_MAX_RANKS, &out->local_world) ||
            !read_value(variables, rank_name, rank, 0, LAUNCH_MAX_RANKS - 1, &out->local_rank) ||
            !check_local(variables, rank_name, size_name, out)) {
            return false;
        }
    } else if (out->world == 1 || is_loopback(out->master_host)) {
        out->local_rank = out->rank;
        out->local_world = out->world;
    } else {
        diag_error(variables->diag, NO_LOC,
                   "%s is not set, but PMI_SIZE is '%d': which process of its host this is cannot "
                   "be told; set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE instead",
                   rank ? size_name : rank_name, out->world);
        return false;
    }
    return read_port(variables, out) &&
           settle_master_host(variables, "PMI_SIZE",
                              "use mpiexec -genv MASTER_ADDR HOST with rank 0's host", out) &&
           read_job(variables, find(variables, "SLURM_JOB_ID"), NULL, out);
}

/* --- Slurm --- */

/* The numbers from here on are no steps of srun's: 0xfffffffa is salloc's own shell, then come
 * batch scripts and what is below them (slurm.h). */
static const int64_t FIRST_SPECIAL_STEP = 0xfffffffa;

static const char *slurm_step(const Variables *variables) {
    const char *name;
    return find_either(variables, "SLURM_STEP_ID", "SLURM_STEPID", &name);
}

/* A batch script and salloc's shell are "rank 0 of all" too, and would wait for the others for
 * ever. */
static bool check_started_by_srun(const Variables *variables, const LaunchEnvironment *launch) {
    const char *step = slurm_step(variables);
    int64_t number;
    bool special = step && parse_number(step, FIRST_SPECIAL_STEP, INT64_MAX, &number);
    if (launch->world == 1 || (step && !special)) return true;
    diag_error(variables->diag, NO_LOC,
               "SLURM_NTASKS is '%d', but SLURM_STEP_ID is %s%s: this process was not started by "
               "srun; use srun, or set RANK=0 WORLD_SIZE=1 to run alone",
               launch->world, step ? show(step).text : "not set", step ? ", salloc's own" : "");
    return false;
}

/* How many tasks of the step run on this node. */
static bool read_slurm_tasks(const Variables *variables, LaunchEnvironment *out) {
    const char *name, *why = "";
    const char *list =
        find_either(variables, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", &name);
    if (list) {
        int node = -1;
        int64_t tasks = 0, total = 0;
        const char *node_id = find(variables, "SLURM_NODEID");
        if (node_id && !read_value(variables, "SLURM_NODEID", node_id, 0, LAUNCH_MAX_RANKS, &node))
            return false;
        if (!nodelist_count_tasks(list, node, &tasks, &total, &why)) {
            diag_error(variables->diag, NO_LOC, "%s is '%s': %s%s%s", name, show(list).text, why,
                       node_id ? " for SLURM_NODEID " : ", and SLURM_NODEID is not set",
                       node_id ? show(node_id).text : "");
            return false;
        }
        if (total != out->world) {
            diag_error(variables->diag, NO_LOC, "%s is '%s', %lld tasks, but SLURM_NTASKS is '%d'",
                       name, show(list).text, (long long)total, out->world);
            return false;
        }
        out->local_world = (int)tasks;
    } else if (find(variables, "SLURM_NTASKS_PER_NODE")) {
        name = "SLURM_NTASKS_PER_NODE";
        if (!read_needed(variables, name, name, 1, LAUNCH_MAX_RANKS, &out->local_world))
            return false;
        if (out->local_world > out->world) out->local_world = out->world; /* it is a maximum */
    } else if (out->world == 1) {
        out->local_world = 1;
    } else {
        diag_error(variables->diag, NO_LOC,
                   "SLURM_TASKS_PER_NODE is not set, but SLURM_NTASKS is '%d'; start with srun",
                   out->world);
        return false;
    }
    return check_local(variables, "SLURM_LOCALID", name, out);
}

/* The first host of the step, unless MASTER_ADDR said another. */
static bool read_slurm_master(const Variables *variables, LaunchEnvironment *out) {
    const char *name, *why = "";
    const char *list = find_either(variables, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", &name);
    if (!list) list = find_either(variables, "SLURM_NODELIST", "SLURM_NODELIST", &name);
    int64_t n_hosts = 0;
    if (out->master_host[0] || !list || out->local_world == out->world) {
        return settle_master_host(variables, "SLURM_NTASKS", "set it to the host of rank 0", out);
    }
    const char *distribution = find(variables, "SLURM_DISTRIBUTION");
    /* The list is sorted all the same. */
    if (distribution && strcmp(distribution, "arbitrary") == 0) {
        diag_error(variables->diag, NO_LOC,
                   "SLURM_DISTRIBUTION is 'arbitrary': rank 0 need not be on the first host of the "
                   "step; set MASTER_ADDR to the host of rank 0");
        return false;
    }
    if (!nodelist_find_host(list, 0, out->master_host, sizeof out->master_host, &n_hosts, &why)) {
        diag_error(variables->diag, NO_LOC, "%s is '%s': %s", name, show(list).text, why);
        return false;
    }
    return true;
}

static bool read_slurm(const Variables *variables, LaunchEnvironment *out) {
    const char *job = find(variables, "SLURM_JOB_ID"), *step = slurm_step(variables);
    int64_t job_number = 0, step_number = 0;
    out->kind = LAUNCH_SLURM;
    out->port = LAUNCH_DEFAULT_PORT;
    if (!read_rank(variables, "SLURM_PROCID", "SLURM_NTASKS", out)) return false;
    if (!check_started_by_srun(variables, out)) return false;
    if (out->world > 1 || find(variables, "SLURM_LOCALID")) {
        if (!read_needed(variables, "SLURM_LOCALID", "SLURM_PROCID", 0, LAUNCH_MAX_RANKS - 1,
                         &out->local_rank)) {
            return false;
        }
    }
    if (job && !parse_number(job, 0, INT64_MAX, &job_number)) {
        diag_error(variables->diag, NO_LOC, "SLURM_JOB_ID is '%s': not a number", show(job).text);
        return false;
    }
    if (step && !parse_number(step, 0, INT64_MAX, &step_number)) {
        diag_error(variables->diag, NO_LOC, "SLURM_STEP_ID is '%s': not a number", show(step).text);
        return false;
    }
    /* Steps of one job that run at the same time get different ports. */
    if (job) {
        out->port =
            LAUNCH_SLURM_FIRST_PORT +
            (int)((job_number + step_number % LAUNCH_SLURM_PORTS * 1009) % LAUNCH_SLURM_PORTS);
    }
    return read_slurm_tasks(variables, out) && read_port(variables, out) &&
           read_slurm_master(variables, out) && read_job(variables, job, step, out);
}

/* --- entry --- */

/* With srun --mpi=pmi2 tasks have PMI's variables too, and they say the same. So may chance have it
 * where srun has started hydra's proxies and these the processes: they then have hydra's own too.
 */
static bool slurm_says_the_same(const Variables *variables) {
    if (find(variables, "MPI_LOCALRANKID")) return false;
    const char *rank = find(variables, "SLURM_PROCID"), *pmi_rank = find(variables, "PMI_RANK");
    const char *size = find(variables, "SLURM_NTASKS"), *pmi_size = find(variables, "PMI_SIZE");
    return rank && size && pmi_rank && pmi_size && strcmp(rank, pmi_rank) == 0 &&
           strcmp(size, pmi_size) == 0;
}

bool launch_read(LaunchEnvironment *out, LaunchLookup *lookup, const void *state, Diag *diag) {
    Variables variables = {lookup, state, diag};
    *out = (LaunchEnvironment){.world = 1, .local_world = 1, .port = LAUNCH_DEFAULT_PORT};
    if (gethostname(out->host, sizeof out->host - 1) != 0 || !out->host[0]) {
        snprintf(out->host, sizeof out->host, "unknown host");
    }
    if (!read_master_host(&variables, out)) return false;
    if (find(&variables, "RANK") || find(&variables, "WORLD_SIZE")) {
        return read_torchrun(&variables, out);
    }
    if (find(&variables, "OMPI_COMM_WORLD_RANK")) return read_open_mpi(&variables, out);
    if ((find(&variables, "PMI_RANK") || find(&variables, "PMI_SIZE")) &&
        !slurm_says_the_same(&variables)) {
        return read_hydra(&variables, out);
    }
    if (find(&variables, "SLURM_PROCID")) return read_slurm(&variables, out);
    snprintf(out->master_host, sizeof out->master_host, "127.0.0.1");
    return read_job(&variables, NULL, NULL, out);
}

static const char *lookup_environment(const void *state, const char *name) {
    (void)state;
    return getenv(name);
}

bool launch_read_environment(LaunchEnvironment *out, Diag *diag) {
    return launch_read(out, lookup_environment, NULL, diag);
}

ShownHost launch_show_host(const char *host) {
    ShownHost shown;
    bool numeric_v6 = strchr(host, ':') != NULL;
    snprintf(shown.text, sizeof shown.text, "%s%.*s%s", numeric_v6 ? "[" : "",
             LAUNCH_HOST_BYTES - 1, host, numeric_v6 ? "]" : "");
    return shown;
}

void launch_describe(const LaunchEnvironment *launch, StrBuf *out) {
    static const char *const starters[] = {
        [LAUNCH_ALONE] = "",
        [LAUNCH_TORCHRUN] = "RANK and WORLD_SIZE",
        [LAUNCH_OPEN_MPI] = "mpirun (Open MPI)",
        [LAUNCH_HYDRA] = "mpiexec (PMI)",
        [LAUNCH_SLURM] = "srun",
    };
    if (launch->kind == LAUNCH_ALONE) {
        strbuf_printf(out, "one process on %s", launch->host);
        return;
    }
    strbuf_printf(out, "rank %d of %d on %s (%d of %d there), told by %s; rank 0 at %s:%d",
                  launch->rank, launch->world, launch->host, launch->local_rank,
                  launch->local_world, starters[launch->kind],
                  launch_show_host(launch->master_host).text, launch->port);
}
