/* What several scripts have. */
#include "frontend/job/job.h"

#include <inttypes.h>
#include <string.h>

extern const char embedded_ranks_sh[];
extern const size_t embedded_ranks_sh_bytes;

static const char *const NAMES[N_JOB_TARGETS] = {
    [JOB_SLURM] = "slurm", [JOB_KUBERNETES] = "kubernetes", [JOB_PYTORCHJOB] = "pytorchjob",
    [JOB_MPI] = "mpi",     [JOB_TORCHRUN] = "torchrun",     [JOB_SHELL] = "shell"};

const char *job_target_name(JobTarget target) {
    return NAMES[target];
}

bool job_target_find(const char *name, JobTarget *out) {
    for (int i = 0; i < N_JOB_TARGETS; i++) {
        if (strcmp(NAMES[i], name) != 0) continue;
        *out = (JobTarget)i;
        return true;
    }
    return false;
}

void job_write(StrBuf *out, const JobSpec *job) {
    static void (*const WRITERS[N_JOB_TARGETS])(StrBuf *, const JobSpec *) = {
        [JOB_SLURM] = job_write_slurm,           [JOB_KUBERNETES] = job_write_kubernetes,
        [JOB_PYTORCHJOB] = job_write_kubernetes, [JOB_MPI] = job_write_mpi,
        [JOB_TORCHRUN] = job_write_torchrun,     [JOB_SHELL] = job_write_shell};
    WRITERS[job->target](out, job);
}

void job_put_head(StrBuf *out, const JobSpec *job, const char *what) {
    strbuf_printf(out, "# %s\n#\n#     ", what);
    job_put_comment(out, job->made_by);
    strbuf_put(out, "\n#\n");
    if (job->has_fingerprint) {
        strbuf_printf(out, "# of a plan with the fingerprint %016" PRIx64 ": ", job->fingerprint);
    } else {
        strbuf_put(out, "# of a run that makes its plan itself: ");
    }
    strbuf_printf(out, "%d rank%s", job->n_ranks, job->n_ranks == 1 ? "" : "s");
    if (job->n_nodes > 1) {
        strbuf_printf(out, ", %d on each of %d machines.\n", job->n_per_node, job->n_nodes);
    } else {
        strbuf_put(out, " on one machine.\n");
    }
}

void job_put_command(StrBuf *out, const JobSpec *job) {
    strbuf_put(out, "program=");
    job_put_shell(out, job->program);
    strbuf_put(out, "\nplan=");
    job_put_shell(out, job->plan);
    if (job->directory) {
        strbuf_put(out, "\ncd -- ");
        job_put_shell(out, job->directory);
        strbuf_put(out, " || exit 2");
    }
    strbuf_put(out, "\nset -- train \"$plan\"");
    for (int i = 0; i < job->arguments.count; i++) {
        const char *text = job->arguments.items[i];
        bool is_option = strncmp(text, "--", 2) == 0;
        strbuf_put(out, is_option || i == 0 ? " \\\n    " : " ");
        if (job_text_is_plain(text) || (is_option && job_text_is_plain(text + 2))) {
            strbuf_put(out, text);
        } else {
            job_put_shell(out, text);
        }
    }
    strbuf_put(out, "\n");
}

void job_put_check(StrBuf *out, const JobSpec *job, const char *run) {
    if (!job->has_fingerprint) return;
    strbuf_printf(out,
                  "\n# Another plan has other ranks, or another need of memory.\n"
                  "verdict=$(%s\"$program\" check \"$plan\") || exit 2\n"
                  "case $verdict in\n"
                  "*'fingerprint %016" PRIx64 "') ;;\n"
                  "*)\n"
                  "    echo \"job: $plan is not the plan that this script was made for, which has"
                  " the fingerprint %016" PRIx64 ": make the script anew\" >&2\n"
                  "    exit 2\n"
                  "    ;;\n"
                  "esac\n",
                  run, job->fingerprint, job->fingerprint);
}

void job_put_attempts(StrBuf *out, const JobSpec *job) {
    if (job->restarts == 0) {
        strbuf_put(out, "\nlaunch \"$@\"\nstatus=$?\n");
        return;
    }
    strbuf_printf(out,
                  "\n# 2 is wrong input, 130 and 143 were stopped: again after anything else.\n"
                  "attempt=1\n"
                  "while :; do\n"
                  "    launch \"$@\"\n"
                  "    status=$?\n"
                  "    case $status in 0 | 2 | 130 | 143) break ;; esac\n"
                  "    [ \"$attempt\" -le %d ] || break\n"
                  "    [ \"${stops:-no}\" = no ] || break\n"
                  "    echo \"job: attempt $attempt ended with exit code $status; the next one"
                  " begins in ${JOB_PAUSE_SECONDS:-10} s\" >&2\n"
                  "    attempt=$((attempt + 1))\n"
                  "    sleep \"${JOB_PAUSE_SECONDS:-10}\"\n"
                  "    [ \"${stops:-no}\" = no ] || break\n"
                  "done\n",
                  job->restarts);
}

void job_put_ranks(StrBuf *out, const JobSpec *job) {
    strbuf_printf(out, "world=%d local=%d\n\n", job->n_ranks, job->n_per_node);
    strbuf_put_bytes(out, embedded_ranks_sh, embedded_ranks_sh_bytes);
}
