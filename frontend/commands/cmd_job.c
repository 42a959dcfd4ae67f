/* perilune job: a plan and what train is given -> the script that starts it on a cluster. */
#include "frontend/commands/job_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/job/job_estimate.h"
#include "frontend/lua/cluster_read.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_json_put.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MOST_STOP_S = 65535 /* Slurm's */ };
enum { MOST_WARNINGS = 10, UNKNOWN_STOP_S = 600, TRAIN_STEPS = 1000, ASSUMED_START_S = 60 };
enum { TORCHRUN_PATIENCE_S = 30, SLURM_EARLY_S = 60 /* sbatch(1), --signal */ };

typedef struct JobReport {
    JobArgs job;
    const Cluster *cluster; /* whose nodes are as the job's; NULL: none is known */
    bool cluster_given;
    const char *on; /* what times are predicted on; NULL: they are not */
    JobMemory memory;
    double step_s, checkpoint_s, start_s;                          /* 0: not known */
    int64_t checkpoint_bytes, n_steps, every, steps_a_job, n_jobs; /* 0: not known */
    const char *warnings[MOST_WARNINGS];
    int n_warnings;
} JobReport;

static void warn(JobReport *report, const char *text) {
    if (report->n_warnings < MOST_WARNINGS) report->warnings[report->n_warnings++] = text;
}

/* --- the cluster --- */

static bool find_cluster(JobReport *report, Diag *diag) {
    CliArgs *args = report->job.args;
    const JobSpec *spec = &report->job.spec;
    const char *name = cli_text(&report->job.train, OPT_CLUSTER, NULL);
    name = cli_text(args, OPT_CLUSTER, name);
    report->cluster_given = name;
    if (cli_given(args, OPT_PROFILE) && name) {
        diag_error(diag, NO_LOC, "--profile and --cluster: one of them says what is predicted on");
        return false;
    }
    if (!name && cli_given(args, OPT_PROFILE)) return true;
    if (!name && !report->job.plan->cuda && spec->n_nodes > 1) name = "cpu-10gbe";
    if (!name) name = default_cluster(report->job.plan->cuda);
    const Cluster *cluster = cluster_read(args->arena, name, NULL, diag);
    if (!cluster) return false;
    if (report->cluster_given && spec->n_per_node > cluster->node.n_devices) {
        diag_error(diag, NO_LOC, "--cluster %s: a node has %d device%s, not %d", cluster->name,
                   cluster->node.n_devices, cluster->node.n_devices == 1 ? "" : "s",
                   spec->n_per_node);
        return false;
    }
    if (report->cluster_given && cluster->max_devices && spec->n_ranks > cluster->max_devices) {
        diag_error(diag, NO_LOC, "--cluster %s: it has %" PRId64 " devices, the job %d ranks",
                   cluster->name, cluster->max_devices, spec->n_ranks);
        return false;
    }
    report->cluster = job_cluster(args->arena, cluster, spec->n_per_node);
    return true;
}

/* --- memory --- */

/* What the plan needs against what a cluster that was named has. */
static bool check_memory(const JobReport *report, Diag *diag) {
    const Cluster *cluster = report->cluster;
    const JobSpec *spec = &report->job.spec;
    char need[UNIT_TEXT], have[UNIT_TEXT];
    if (!cluster || !report->cluster_given) return true;
    double device = cluster->device.memory_bytes * cluster->device.memory_usable;
    if ((double)report->memory.device_bytes > device) {
        diag_error(diag, NO_LOC,
                   "the plan needs %s a device, and %s has %s: plan with --zero, "
                   "--recompute or more ranks",
                   unit_bytes((double)report->memory.device_bytes, need), cluster->name,
                   unit_bytes(device, have));
        return false;
    }
    double host = cluster->node.host_memory_bytes;
    double offloaded = (double)plan_largest_host_bytes(report->job.plan) * spec->n_per_node;
    if (!spec->cuda || host <= 0 || offloaded <= host) return true;
    diag_error(diag, NO_LOC,
               "the plan keeps %s of %s in a node's memory, and %s has %s: offload less, or fewer "
               "ranks on each node",
               unit_bytes(offloaded, need), plan_offload_phrase(report->job.plan), cluster->name,
               unit_bytes(host, have));
    return false;
}

static bool find_memory(JobReport *report, Diag *diag) {
    JobSpec *spec = &report->job.spec;
    const CliArgs *args = report->job.args;
    if (report->job.plan) {
        report->memory = job_memory(report->job.plan, spec->cuda, spec->n_per_node,
                                    cli_given(&report->job.train, OPT_CHECKPOINT_ASYNC));
    }
    spec->memory_bytes = report->memory.limit_bytes;
    double asked = cli_real(args, OPT_HOST_MEMORY, 0) * (1 << 30);
    if (asked > 0 && asked < (double)report->memory.node_bytes) {
        char need[UNIT_TEXT];
        diag_error(diag, NO_LOC,
                   "--host-memory: %g GiB are less than the %s that the ranks of a "
                   "node need",
                   cli_real(args, OPT_HOST_MEMORY, 0),
                   unit_bytes((double)report->memory.node_bytes, need));
        return false;
    }
    if (asked > 0) spec->memory_bytes = (int64_t)ceil(asked / (1 << 20)) << 20;
    if (spec->cuda && job_is_kubernetes(spec->target)) { /* NCCL's, where it uses it: assumed */
        spec->shm_bytes = (int64_t)spec->n_per_node << 30;
    }
    return !report->job.plan || check_memory(report, diag);
}

/* --- times --- */

static bool find_step(JobReport *report, Diag *diag) {
    CliArgs *args = report->job.args;
    const Plan *plan = report->job.plan;
    const DeviceProfile *profile;
    Device device;
    report->step_s = cli_real(args, OPT_STEP_SECONDS, 0);
    if (!plan || report->step_s > 0) return true;
    if (!profile_from_args(args, &profile, diag)) return false;
    if (profile) {
        device = device_of_profile(profile, report->job.spec.n_per_node, args->arena);
        report->on = profile->path;
    } else {
        device = device_of_cluster(report->cluster, plan->precision);
        report->on = report->cluster->name;
    }
    report->step_s = job_step_seconds(args->arena, plan, &device, diag);
    return report->step_s > 0;
}

static bool find_jobs(JobReport *report, Diag *diag) {
    JobSpec *spec = &report->job.spec;
    report->n_steps = cli_int(&report->job.train, OPT_STEPS, TRAIN_STEPS);
    if (!spec->time_s) return true;
    const int64_t end_s = spec->stop_s + (spec->target == JOB_SLURM ? SLURM_EARLY_S : 0);
    if (spec->time_s <= end_s) {
        diag_error(diag, NO_LOC,
                   "--time: the run may be told to end %" PRId64 " s before the limit "
                   "(--stop-seconds%s), and has %" PRId64 " s in all",
                   end_s, spec->target == JOB_SLURM ? ", up to a minute earlier" : "",
                   spec->time_s);
        return false;
    }
    if (report->step_s <= 0) return true;
    report->steps_a_job = job_steps(spec->time_s, end_s, report->start_s, report->step_s,
                                    report->checkpoint_s, report->every);
    if (report->steps_a_job < 1) {
        diag_error(diag, NO_LOC,
                   "--time: not a step of %.3g s fits beside %.0f s to start (--restart-minutes) "
                   "and %" PRId64 " s to end",
                   report->step_s, report->start_s, end_s);
        return false;
    }
    report->n_jobs = (report->n_steps + report->steps_a_job - 1) / report->steps_a_job;
    return true;
}

static bool find_times(JobReport *report, Diag *diag) {
    CliArgs *args = report->job.args;
    JobSpec *spec = &report->job.spec;
    if (!find_step(report, diag)) return false;
    if (report->job.checkpoint && report->job.plan) {
        report->checkpoint_bytes = job_checkpoint_bytes(report->job.plan);
        report->checkpoint_s =
            job_checkpoint_seconds(report->job.plan, report->cluster, spec->n_nodes);
    }
    report->checkpoint_s = cli_real(args, OPT_CHECKPOINT_SECONDS, report->checkpoint_s);
    report->every = cli_int(&report->job.train, OPT_CHECKPOINT_EVERY, 0);
    double minutes = report->cluster_given ? report->cluster->failures.restart_minutes : 0;
    minutes = minutes > 0 ? minutes : ASSUMED_START_S / 60.0;
    report->start_s = cli_real(args, OPT_RESTART_MINUTES, minutes) * 60;
    spec->stop_s = report->step_s > 0 ? job_stop_seconds(report->step_s, report->checkpoint_s)
                                      : UNKNOWN_STOP_S;
    spec->stop_s = cli_int(args, OPT_STOP_SECONDS, spec->stop_s);
    if (spec->stop_s > MOST_STOP_S) {
        warn(report, arena_printf(args->arena,
                                  "the run may need %" PRId64
                                  " s to end, and %d are the most that can be asked for",
                                  spec->stop_s, MOST_STOP_S));
        spec->stop_s = MOST_STOP_S;
    }
    return find_jobs(report, diag);
}

/* --- what is not as it might be --- */

/* Of groups whose messages are in every layer, on several nodes: what a step would take if a node
 * had as many devices as they have ranks. */
static bool warn_of_torn_groups(JobReport *report, Diag *diag) {
    const JobSpec *spec = &report->job.spec;
    const Plan *plan = report->job.plan;
    Arena *arena = report->job.args->arena;
    char now[UNIT_TEXT], then[UNIT_TEXT];
    int n_ranks = 0, axis = job_torn_axis(&plan->mesh, spec->n_per_node, &n_ranks);
    if (axis < 0) return true;
    const char *text =
        arena_printf(arena, "groups of %s, %d ranks side by side, are not within nodes of %d",
                     mesh_axis_name(axis), n_ranks, spec->n_per_node);
    if (report->cluster && report->on && report->cluster->network.n_nics > 0) {
        Cluster *larger = job_cluster(arena, report->cluster, n_ranks);
        Device device = device_of_cluster(larger, plan->precision);
        double step_s = job_step_seconds(arena, plan, &device, diag);
        if (step_s <= 0) return false;
        text = arena_printf(arena, "%s: a step is predicted to take %s, and %s if they were", text,
                            unit_us(report->step_s * 1e6, now), unit_us(step_s * 1e6, then));
    }
    warn(report, text);
    return true;
}

static void find_warnings(JobReport *report) {
    const JobSpec *spec = &report->job.spec;
    const CliArgs *train = &report->job.train;
    Arena *arena = report->job.args->arena;
    if (!report->job.checkpoint) {
        warn(report, "no --checkpoint: what is done when the job ends is lost");
    } else if (!report->every) {
        warn(report, "no --checkpoint-every: a failure loses all since the job's beginning");
    }
    if (report->n_jobs > 1 && !report->job.checkpoint) {
        warn(report, "the run takes longer than --time, and cannot go on after it");
    }
    if (cli_int(train, OPT_EVAL_EVERY, 0) > 0) {
        warn(report, "--eval-every: validations' times are not counted; a stop waits for the one "
                     "that is under way (--stop-seconds)");
    }
    if (!report->job.plan && !cli_given(report->job.args, OPT_STOP_SECONDS)) {
        warn(report, arena_printf(arena,
                                  "the layout is found by the run itself, so nothing is predicted: "
                                  "%d s are left to stop (--stop-seconds)",
                                  UNKNOWN_STOP_S));
    }
    if (job_is_kubernetes(spec->target) && spec->volumes.count == 0) {
        warn(report, "no --volume: what the run writes goes with its pods");
    }
    if (job_is_kubernetes(spec->target) && !spec->cuda && !spec->cpus) {
        warn(report, "no --cpus: how many cores the pods have is the cluster's to say");
    }
    if (job_is_kubernetes(spec->target) && !spec->memory_bytes) {
        warn(report, "no --host-memory: the pods' need of memory is not known");
    }
    if (spec->target == JOB_TORCHRUN && spec->stop_s > TORCHRUN_PATIENCE_S) {
        warn(report, arena_printf(arena,
                                  "torchrun kills its processes %d s after a signal; the run may "
                                  "need %" PRId64 " s to end",
                                  TORCHRUN_PATIENCE_S, spec->stop_s));
    }
}

/* --- telling --- */

static void put_text(StrBuf *out, const JobReport *report) {
    const JobSpec *spec = &report->job.spec;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    strbuf_printf(out, "job      %s for %s: %d node%s, %d rank%s on each, %s\n", spec->name,
                  job_target_name(spec->target), spec->n_nodes, spec->n_nodes == 1 ? "" : "s",
                  spec->n_per_node, spec->n_per_node == 1 ? "" : "s",
                  spec->cuda ? "a GPU for each" : "on processors");
    if (report->job.plan) {
        strbuf_printf(out, "memory   %s in the fullest rank%s",
                      unit_bytes((double)report->memory.device_bytes, a),
                      spec->cuda ? "'s device" : "");
        if (report->cluster_given && report->cluster) {
            strbuf_printf(out, " of %s (%s)",
                          unit_bytes(report->cluster->device.memory_bytes *
                                         report->cluster->device.memory_usable,
                                     b),
                          report->cluster->name);
        }
        strbuf_printf(out, "; a node's ranks take about %s of its memory\n",
                      unit_bytes((double)report->memory.node_bytes, a));
    }
    if (report->step_s > 0) {
        strbuf_printf(out, "step     %s%s%s\n", unit_us(report->step_s * 1e6, a),
                      report->on ? ", predicted on " : "", report->on ? report->on : "");
    }
    if (report->checkpoint_bytes) {
        strbuf_printf(out, "saves    %s in %s", unit_bytes((double)report->checkpoint_bytes, a),
                      unit_us(report->checkpoint_s * 1e6, b));
        if (report->every && report->step_s > 0) {
            strbuf_printf(out, ", every %s",
                          unit_us(report->step_s * (double)report->every * 1e6, a));
        }
        strbuf_put(out, "\n");
    }
    strbuf_printf(out, "stop     %" PRId64 " s from a signal to the end\n", spec->stop_s);
    if (report->steps_a_job) {
        strbuf_put(out, "time     ");
        job_put_time(out, spec->time_s);
        strbuf_printf(out,
                      " are %" PRId64 " steps, after %.0f s to start; the run's %" PRId64
                      " take %" PRId64 " job%s\n",
                      report->steps_a_job, report->start_s, report->n_steps, report->n_jobs,
                      report->n_jobs == 1 ? "" : "s");
    }
    for (int i = 0; i < report->n_warnings; i++) {
        strbuf_printf(out, "warning  %s\n", report->warnings[i]);
    }
}

static void put_json(StrBuf *out, const JobReport *report) {
    const JobSpec *spec = &report->job.spec;
    json_t *root = json_object();
    json_put_name(root, "name", spec->name);
    json_put_name(root, "for", job_target_name(spec->target));
    json_put_int(root, "ranks", spec->n_ranks);
    json_put_int(root, "nodes", spec->n_nodes);
    json_put_int(root, "ranks_per_node", spec->n_per_node);
    json_object_set_new(root, "cuda", json_boolean(spec->cuda));
    char fingerprint[20];
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, spec->fingerprint);
    json_object_set_new(root, "fingerprint",
                        spec->has_fingerprint ? json_string(fingerprint) : json_null());
    json_put_known(root, "device_bytes", (double)report->memory.device_bytes);
    json_put_known(root, "node_bytes", (double)report->memory.node_bytes);
    json_put_known(root, "node_limit_bytes", (double)spec->memory_bytes);
    json_object_set_new(root, "predicted_on", report->on ? json_name(report->on) : json_null());
    json_put_known(root, "step_seconds", report->step_s);
    json_put_known(root, "checkpoint_bytes", (double)report->checkpoint_bytes);
    json_put_known(root, "checkpoint_seconds", report->checkpoint_s);
    json_put_int(root, "stop_seconds", spec->stop_s);
    json_put_known(root, "time_seconds", (double)spec->time_s);
    json_put_int(root, "steps", report->n_steps);
    json_put_known(root, "steps_per_job", (double)report->steps_a_job);
    json_put_known(root, "jobs", (double)report->n_jobs);
    json_t *warnings = json_put_new(root, "warnings", json_array());
    for (int i = 0; i < report->n_warnings; i++) {
        json_array_append_new(warnings, json_name(report->warnings[i]));
    }
    json_put_document(out, root);
}

static bool write_all(const JobReport *report, Diag *diag) {
    const CliArgs *args = report->job.args;
    const char *path = cli_text(args, OPT_OUTPUT, NULL);
    const bool json = cli_given(args, OPT_JSON);
    StrBuf script = strbuf_create(), summary = strbuf_create();
    bool good = true;
    job_write(&script, &report->job.spec);
    if (path || !json) good = cli_write(path, &script, diag);
    if (json) {
        put_json(&summary, report);
        good = good && cli_write(NULL, &summary, diag);
    } else if (good) {
        put_text(&summary, report);
        fputs(summary.text, stderr);
    }
    strbuf_destroy(&script);
    strbuf_destroy(&summary);
    return good;
}

int cmd_job(CliArgs *args) {
    JobReport report = {.job = {.args = args}};
    Diag *diag = diag_create();
    StrBuf made_by = strbuf_create();
    int status = job_args_parse_train(&report.job);
    if (status < 0) {
        status = EXIT_USAGE;
        job_args_describe(args, &made_by);
        report.job.spec.made_by = made_by.text;
        bool good = job_args_read(&report.job, diag) && find_cluster(&report, diag) &&
                    find_memory(&report, diag) && find_times(&report, diag) &&
                    (!report.job.plan || warn_of_torn_groups(&report, diag));
        if (good) find_warnings(&report);
        if (good) status = write_all(&report, diag) ? EXIT_DONE : EXIT_FAILED;
    }
    cli_fail(diag, status);
    strbuf_destroy(&made_by);
    diag_destroy(diag);
    return status;
}
