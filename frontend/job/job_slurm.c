/* sbatch's script. Slurm tells each process who it is, and where rank 0 is.
 *
 * --signal without B: goes to srun's processes alone: these end with 130 once their checkpoint is
 * written, and the script, still there, asks for the job to be queued again. scancel signals the
 * script, too, so what was cancelled stays cancelled. (sbatch(1), Slurm 22.05)
 */
#include "frontend/job/job.h"

#include <inttypes.h>

static void put_directives(StrBuf *out, const JobSpec *job) {
    strbuf_printf(out, "#SBATCH --job-name=%s\n#SBATCH --nodes=%d\n", job->name, job->n_nodes);
    strbuf_printf(out, "#SBATCH --ntasks-per-node=%d\n", job->n_per_node);
    if (job->cuda) strbuf_printf(out, "#SBATCH --gpus-per-node=%d\n", job->n_per_node);
    if (job->cpus) strbuf_printf(out, "#SBATCH --cpus-per-task=%d\n", job->cpus);
    if (job->cpus && !job->cuda) strbuf_put(out, "#SBATCH --hint=nomultithread\n");
    if (!job->shared) {
        strbuf_put(out, "#SBATCH --exclusive\n#SBATCH --mem=0\n");
    } else if (job->memory_bytes) {
        strbuf_printf(out, "#SBATCH --mem=%" PRId64 "M\n", job->memory_bytes >> 20);
    }
    if (job->time_s) {
        strbuf_put(out, "#SBATCH --time=");
        job_put_time(out, job->time_s);
        strbuf_put(out, "\n");
    }
    strbuf_printf(out, "#SBATCH --signal=TERM@%" PRId64 "\n", job->stop_s);
    strbuf_put(out, job->goes_on ? "#SBATCH --requeue\n" : "#SBATCH --no-requeue\n");
    strbuf_printf(out, "#SBATCH --open-mode=append\n#SBATCH --output=%s-%%j.log\n", job->name);
    if (job->partition) strbuf_printf(out, "#SBATCH --partition=%s\n", job->partition);
    if (job->account) strbuf_printf(out, "#SBATCH --account=%s\n", job->account);
    for (int i = 0; i < job->options.count; i++) {
        strbuf_printf(out, "#SBATCH %s\n", job->options.items[i]);
    }
}

/* Pyxis' options of srun. */
static void put_container(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "container() {\n    srun --mpi=none ");
    if (job->image) {
        strbuf_put(out, "--container-image=");
        job_put_shell(out, job->image);
        strbuf_put(out, " ");
        for (int i = 0; i < job->volumes.count; i++) {
            strbuf_put(out, i ? "," : "--container-mounts=");
            job_put_shell(out, job->volumes.items[i]);
        }
        if (job->volumes.count) strbuf_put(out, " ");
        if (job->directory) {
            strbuf_put(out, "--container-workdir=");
            job_put_shell(out, job->directory);
            strbuf_put(out, " ");
        }
    }
    strbuf_put(out, "\"$@\"\n}\n");
}

/* Ranks that follow one another are neighbours in the mesh, so nodes are filled one after the
 * other. GPUs must all be seen, or NCCL may not reach them; but on shared nodes not other jobs',
 * and `none` leaves CUDA_VISIBLE_DEVICES unset (Slurm 22.05). Ranks end each other themselves, and
 * must not be killed while the first still writes: --kill-on-bad-exit would. Of those that end
 * without a word nobody waits longer than --wait. */
static void put_launch(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "\nlaunch() {\n    container --distribution=block ");
    if (job->cuda && !job->shared) strbuf_put(out, "--gpu-bind=none ");
    if (job->cpus) {
        strbuf_printf(out, "--cpus-per-task=%d --cpu-bind=cores ", job->cpus);
    } else {
        strbuf_put(out, "--cpu-bind=none ");
    }
    strbuf_printf(out,
                  "\\\n        --kill-on-bad-exit=0 --wait=%" PRId64 " \"$program\" \"$@\"\n}\n",
                  job->ranks_may_leave ? 0 : 600 + job->stop_s);
}

static void put_requeue(StrBuf *out, const JobSpec *job) {
    if (!job->goes_on) return;
    strbuf_put(out,
               "\n# A run that was stopped ends with 130, with a checkpoint of one step more at "
               "least.\n"
               "if [ \"$status\" -eq 130 ] && [ \"$stops\" = no ]; then\n"
               "    echo \"job: stopped before the time limit, and queued again\" >&2\n"
               "    scontrol requeue \"$SLURM_JOB_ID\" ||\n"
               "        echo \"job: it was not: sbatch this script again to go on\" >&2\n"
               "fi\n");
}

void job_write_slurm(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "#!/bin/bash\n");
    put_directives(out, job);
    strbuf_put(out, "\n");
    job_put_head(out, job, "Made by");
    strbuf_put(out, "#\n# Submit it with sbatch, from the folder that its paths begin in. Slurm's "
                    "own lines are above.\n");
    if (job->goes_on) {
        strbuf_put(out, "# Before the time limit it stops, writes a checkpoint and is queued "
                        "again. scancel ends it.\n");
    }
    strbuf_put(out, "set -u\nstops=no\ntrap 'stops=yes' TERM\n\n");
    if (job->image && job->directory) { /* of the container, not of the node */
        JobSpec inside = *job;
        inside.directory = NULL;
        job_put_command(out, &inside);
    } else {
        job_put_command(out, job);
    }
    strbuf_put(out, "\n");
    put_container(out, job);
    job_put_check(out, job, job->image ? "container --nodes=1 --ntasks=1 " : "");
    put_launch(out, job);
    job_put_attempts(out, job);
    put_requeue(out, job);
    strbuf_put(out, "exit \"$status\"\n");
}
