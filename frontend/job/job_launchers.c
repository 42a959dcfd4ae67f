/* mpirun, torchrun, and a shell: the launchers that are a command. */
#include "frontend/job/job.h"

#include <inttypes.h>

static void put_start(StrBuf *out, const JobSpec *job, const char *how) {
    strbuf_put(out, "#!/bin/sh\n");
    job_put_head(out, job, "Made by");
    strbuf_printf(out, "#\n%s", how);
    strbuf_put(out, "set -u\n\n");
    job_put_command(out, job);
}

static void put_hosts(StrBuf *out, const JobSpec *job, bool with_slots) {
    for (int i = 0; i < job->hosts.count; i++) {
        strbuf_printf(out, "%s%s", i ? "," : "", job->hosts.items[i]);
        if (with_slots) strbuf_printf(out, ":%d", job->n_per_node);
    }
}

static void put_options(StrBuf *out, const JobSpec *job) {
    for (int i = 0; i < job->options.count; i++) {
        strbuf_put(out, " ");
        job_put_shell(out, job->options.items[i]);
    }
}

/* Open MPI gives processes a second from SIGTERM to SIGKILL, unless it is told otherwise (4: mca
 * parameters of OMPI_, 5: of PRTE_), and passes on no variables but its own; hydra passes on all.
 */
static void put_open_mpi(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "*'Open MPI'* | *OpenRTE* | *prterun*)\n");
    strbuf_printf(out,
                  "    export OMPI_MCA_odls_base_sigkill_timeout=%" PRId64
                  " PRTE_MCA_odls_base_sigkill_timeout=%" PRId64 "\n",
                  job->stop_s, job->stop_s);
    strbuf_put(out, "    variables=$(env | sed -n "
                    "'s/^\\(MASTER_[A-Z]*\\|\\(NCCL\\|PERILUNE\\|OMP\\)_[A-Z0-9_]*\\|"
                    "LD_LIBRARY_PATH\\)=.*/-x \\1/p')\n"
                    "    # shellcheck disable=SC2086 # words without spaces\n");
    strbuf_printf(out, "    set -- -np %d", job->n_ranks);
    if (job->cpus) {
        strbuf_printf(out, " --map-by ppr:%d:node:PE=%d --bind-to core", job->n_per_node,
                      job->cpus);
    } else {
        strbuf_printf(out, " --map-by ppr:%d:node:OVERSUBSCRIBE --bind-to none", job->n_per_node);
    }
    if (job->hosts.count) {
        strbuf_put(out, " -H ");
        put_hosts(out, job, true);
    }
    put_options(out, job);
    strbuf_put(out, " $variables \"$program\" \"$@\"\n    ;;\n");
}

static void put_hydra(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "*HYDRA* | *'Intel(R) MPI'*)\n");
    if (job->cpus) strbuf_printf(out, "    export I_MPI_PIN_DOMAIN=%d\n", job->cpus);
    strbuf_printf(out, "    set -- -n %d -ppn %d", job->n_ranks, job->n_per_node);
    if (job->cpus) strbuf_printf(out, " -bind-to core:%d", job->cpus);
    if (job->hosts.count) {
        strbuf_put(out, " -hosts ");
        put_hosts(out, job, false);
    }
    put_options(out, job);
    strbuf_put(out, " \"$program\" \"$@\"\n    ;;\n");
}

void job_write_mpi(StrBuf *out, const JobSpec *job) {
    put_start(out, job,
              "# Run it with sh, where the launcher is: MPIRUN=mpiexec.hydra says another than\n"
              "# mpirun. SIGTERM stops the run, with a checkpoint (Open MPI then ends with 1).\n");
    job_put_check(out, job, "");
    if (job->hosts.count > 1) {
        strbuf_printf(out, "\nexport MASTER_ADDR=%s\n", job->hosts.items[0]);
    }
    strbuf_put(out, "\nmpirun=${MPIRUN:-mpirun}\ncase $(\"$mpirun\" --version 2>&1) in\n");
    put_open_mpi(out, job);
    put_hydra(out, job);
    strbuf_put(out, "*)\n    echo \"job: $mpirun is neither Open MPI's nor hydra (MPICH, Intel "
                    "MPI)\" >&2\n    exit 2\n    ;;\nesac\n");
    if (job->restarts == 0) {
        strbuf_put(out, "exec \"$mpirun\" \"$@\"\n");
        return;
    }
    strbuf_put(out, "\nstops=no launched=''\n"
                    "trap 'stops=yes; [ -z \"$launched\" ] || kill \"$launched\"' TERM INT HUP\n"
                    "launch() {\n"
                    "    \"$mpirun\" \"$@\" &\n"
                    "    launched=$!\n"
                    "    wait \"$launched\"\n"
                    "    result=$?\n"
                    "    while [ \"$stops\" = yes ] && kill -0 \"$launched\" 2>/dev/null; do\n"
                    "        wait \"$launched\"\n"
                    "        result=$?\n"
                    "    done\n"
                    "    return \"$result\"\n"
                    "}\n");
    job_put_attempts(out, job);
    strbuf_put(out, "exit \"$status\"\n");
}

void job_write_torchrun(StrBuf *out, const JobSpec *job) {
    bool alone = job->n_nodes == 1;
    put_start(out, job,
              alone ? "# Run it with sh.\n"
                    : "# Run it with sh on each machine, at about the same time.\n");
    job_put_check(out, job, "");
    strbuf_printf(out, "\nexec torchrun --nnodes=%d --nproc-per-node=%d --max-restarts=%d \\\n    ",
                  job->n_nodes, job->n_per_node, job->restarts);
    if (alone) {
        strbuf_put(out, "--standalone");
    } else if (job->hosts.count) {
        strbuf_printf(out, "--rdzv-backend=c10d --rdzv-id=%s --rdzv-endpoint=%s:29400", job->name,
                      job->hosts.items[0]);
    } else {
        strbuf_printf(out,
                      "--rdzv-backend=c10d --rdzv-id=%s \\\n"
                      "    --rdzv-endpoint=\"${MASTER_ADDR:?is the first machine}:29400\"",
                      job->name);
    }
    put_options(out, job);
    strbuf_put(out, " \\\n    --no-python \"$program\" \"$@\"\n");
}

void job_write_shell(StrBuf *out, const JobSpec *job) {
    put_start(out, job,
              "# Run it with sh, on one machine. SIGTERM or Ctrl-C stops the run, with a "
              "checkpoint.\n");
    job_put_check(out, job, "");
    strbuf_put(out, "\nexport MASTER_ADDR=127.0.0.1 MASTER_PORT=\"${MASTER_PORT:-29500}\"\n"
                    "first=0 ");
    job_put_ranks(out, job);
    strbuf_put(out, "\nlaunch() {\n    run_ranks \"$program\" \"$@\"\n    return \"$code\"\n}\n");
    job_put_attempts(out, job);
    strbuf_put(out, "exit \"$status\"\n");
}
