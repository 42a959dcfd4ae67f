/* Manifests for Kubernetes: an indexed Job with a headless Service, or a PyTorchJob. A pod has one
 * container, whose shell starts a process for each of the pod's GPUs (ranks.sh).
 *
 * Fields as in the API's reference of batch/v1 (podFailurePolicy: from 1.26 on), and of
 * kubeflow.org/v1. In `command` and `args` Kubernetes replaces $(NAME), and $$ by $.
 */
#include "frontend/job/job.h"

#include <inttypes.h>
#include <string.h>

enum { PORT = 29500 };

static const char *container_name(const JobSpec *job) {
    return job->target == JOB_PYTORCHJOB ? "pytorch" : "train"; /* the operator's name */
}

/* A line of a block scalar. */
static void put_line(StrBuf *out, int indent, const char *line, size_t length) {
    if (length) strbuf_printf(out, "%*s", indent, "");
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '$') strbuf_put(out, "$");
        strbuf_put_bytes(out, line + i, 1);
    }
    strbuf_put(out, "\n");
}

/* Who the pod's first rank is, the plan's check, and the ranks; without comments. The program and
 * what it is given are the script's arguments. */
static void put_script(StrBuf *out, const JobSpec *job, int indent) {
    StrBuf text = strbuf_create();
    strbuf_put(&text, "set -u\nprogram=$1 plan=$3\n");
    job_put_check(&text, job, "");
    if (job->n_nodes == 1) {
        strbuf_printf(&text, "\nexport MASTER_ADDR=127.0.0.1 MASTER_PORT=%d\nnode=0\n", PORT);
    } else if (job->target == JOB_PYTORCHJOB) {
        strbuf_put(&text, "\n# The operator's RANK is the pod's number; the first may have been "
                          "told \"localhost\".\n"
                          "node=$RANK\n"
                          "[ \"$node\" -ne 0 ] || MASTER_ADDR=$(uname -n)\n"
                          "export MASTER_ADDR\n");
    } else {
        strbuf_put(&text, "\nnode=$JOB_COMPLETION_INDEX\n");
    }
    strbuf_printf(&text, "first=$((node * %d))\n", job->n_per_node);
    job_put_ranks(&text, job);
    strbuf_put(&text, "\nrun_ranks \"$@\"\nexit \"$code\"\n");
    for (const char *line = text.text; *line;) {
        size_t length = strcspn(line, "\n");
        if (line[strspn(line, " ")] != '#') put_line(out, indent, line, length);
        line += length + (line[length] == '\n');
    }
    strbuf_destroy(&text);
}

static void put_item(StrBuf *out, int indent, const char *text, bool expanded) {
    strbuf_printf(out, "%*s- ", indent, "");
    job_put_yaml(out, text, expanded);
    strbuf_put(out, "\n");
}

static void put_resources(StrBuf *out, const JobSpec *job, int indent) {
    if (!job->cuda && !job->cpus && !job->memory_bytes) return;
    strbuf_printf(out, "%*sresources:\n%*slimits:\n", indent, "", indent + 2, "");
    if (job->cuda) strbuf_printf(out, "%*snvidia.com/gpu: %d\n", indent + 4, "", job->n_per_node);
    if (job->cpus) {
        strbuf_printf(out, "%*scpu: %" PRId64 "\n", indent + 4, "",
                      (int64_t)job->cpus * job->n_per_node);
    }
    if (job->memory_bytes) {
        strbuf_printf(out, "%*smemory: %" PRId64 "Mi\n", indent + 4, "",
                      (job->memory_bytes + job->shm_bytes) >> 20);
    }
}

/* "/on/the/node:/in/the/pod", or a claim. */
static void put_volumes(StrBuf *out, const JobSpec *job, int indent, bool as_mounts) {
    if (!job->volumes.count && !job->shm_bytes) return;
    strbuf_printf(out, "%*s%s:\n", indent, "", as_mounts ? "volumeMounts" : "volumes");
    for (int i = 0; i < job->volumes.count; i++) {
        const char *text = job->volumes.items[i], *path = strrchr(text, ':') + 1;
        StrBuf from = strbuf_create();
        strbuf_put_bytes(&from, text, (size_t)(path - 1 - text));
        strbuf_printf(out, "%*s- name: volume-%d\n", indent, "", i);
        if (as_mounts) {
            strbuf_printf(out, "%*smountPath: ", indent + 2, "");
            job_put_yaml(out, path, false);
        } else {
            bool on_node = text[0] == '/';
            strbuf_printf(out, "%*s%s:\n%*s%s: ", indent + 2, "",
                          on_node ? "hostPath" : "persistentVolumeClaim", indent + 4, "",
                          on_node ? "path" : "claimName");
            job_put_yaml(out, from.text, false);
        }
        strbuf_put(out, "\n");
        strbuf_destroy(&from);
    }
    if (!job->shm_bytes) return;
    strbuf_printf(out, "%*s- name: shm\n", indent, "");
    if (as_mounts) {
        strbuf_printf(out, "%*smountPath: /dev/shm\n", indent + 2, "");
    } else {
        strbuf_printf(out, "%*semptyDir:\n%*smedium: Memory\n%*ssizeLimit: %" PRId64 "Mi\n",
                      indent + 2, "", indent + 4, "", indent + 4, "", job->shm_bytes >> 20);
    }
}

static void put_container(StrBuf *out, const JobSpec *job, int indent) {
    strbuf_printf(out, "%*s- name: %s\n", indent, "", container_name(job));
    indent += 2;
    strbuf_printf(out, "%*simage: ", indent, "");
    job_put_yaml(out, job->image, false);
    if (job->directory) {
        strbuf_printf(out, "\n%*sworkingDir: ", indent, "");
        job_put_yaml(out, job->directory, false);
    }
    strbuf_printf(out, "\n%*scommand:\n%*s- /bin/sh\n%*s- -c\n%*s- |\n", indent, "", indent, "",
                  indent, "", indent, "");
    put_script(out, job, indent + 2);
    strbuf_printf(out, "%*s- job\n%*sargs:\n", indent, "", indent, "");
    put_item(out, indent, job->program, true);
    put_item(out, indent, "train", true);
    put_item(out, indent, job->plan, true);
    for (int i = 0; i < job->arguments.count; i++) {
        put_item(out, indent, job->arguments.items[i], true);
    }
    if (job->target == JOB_KUBERNETES && job->n_nodes > 1) {
        strbuf_printf(out,
                      "%*senv:\n%*s- name: MASTER_ADDR\n%*svalue: %s-0.%s\n%*s- name: MASTER_PORT\n"
                      "%*svalue: \"%d\"\n",
                      indent, "", indent, "", indent + 2, "", job->name, job->name, indent, "",
                      indent + 2, "", PORT);
    }
    put_resources(out, job, indent);
    put_volumes(out, job, indent, true);
}

static void put_pod(StrBuf *out, const JobSpec *job, int indent) {
    if (job->target == JOB_KUBERNETES) {
        strbuf_printf(out, "%*srestartPolicy: Never\n", indent, "");
        if (job->n_nodes > 1) strbuf_printf(out, "%*ssubdomain: %s\n", indent, "", job->name);
    }
    strbuf_printf(out, "%*sterminationGracePeriodSeconds: %" PRId64 "\n%*scontainers:\n", indent,
                  "", job->stop_s, indent, "");
    put_container(out, job, indent);
    put_volumes(out, job, indent, false);
}

/* When one rank fails all do, each pod by itself: as many failures as there are pods. Wrong input
 * stays wrong. What was stopped (a drained node) has written a checkpoint and goes on from it. */
static void put_policy(StrBuf *out, const JobSpec *job) {
    strbuf_printf(out, "  backoffLimit: %" PRId64 "\n", (int64_t)job->restarts * job->n_nodes);
    if (job->time_s) strbuf_printf(out, "  activeDeadlineSeconds: %" PRId64 "\n", job->time_s);
    strbuf_put(out, "  podFailurePolicy:\n    rules:\n"
                    "    - action: FailJob\n"
                    "      onExitCodes:\n"
                    "        containerName: train\n"
                    "        operator: In\n"
                    "        values: [2]\n");
    if (job->goes_on) {
        strbuf_put(out, "    - action: Ignore\n"
                        "      onExitCodes:\n"
                        "        containerName: train\n"
                        "        operator: In\n"
                        "        values: [130]\n"
                        "    - action: Ignore\n"
                        "      onPodConditions:\n"
                        "      - type: DisruptionTarget\n"
                        "        status: \"True\"\n");
    }
}

static void write_indexed(StrBuf *out, const JobSpec *job) {
    if (job->n_nodes > 1) {
        strbuf_printf(out,
                      "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\nspec:\n"
                      "  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n"
                      "    job-name: %s\n---\n",
                      job->name, job->name);
    }
    strbuf_printf(out,
                  "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: %s\nspec:\n"
                  "  completionMode: Indexed\n  completions: %d\n  parallelism: %d\n",
                  job->name, job->n_nodes, job->n_nodes);
    put_policy(out, job);
    strbuf_put(out, "  template:\n    spec:\n");
    put_pod(out, job, 6);
}

static void put_replicas(StrBuf *out, const JobSpec *job, const char *kind, int count) {
    /* ExitCode: again after 128 and more alone, as 130. */
    strbuf_printf(out,
                  "    %s:\n      replicas: %d\n      restartPolicy: %s\n      template:\n"
                  "        spec:\n",
                  kind, count,
                  job->restarts  ? "OnFailure"
                  : job->goes_on ? "ExitCode"
                                 : "Never");
    put_pod(out, job, 10);
}

static void write_pytorchjob(StrBuf *out, const JobSpec *job) {
    strbuf_printf(out,
                  "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata:\n  name: %s\nspec:\n"
                  "  runPolicy:\n",
                  job->name);
    strbuf_put(out, "    cleanPodPolicy: Running\n");
    if (job->restarts) {
        strbuf_printf(out, "    backoffLimit: %" PRId64 "\n",
                      (int64_t)job->restarts * job->n_nodes);
    }
    if (job->time_s) strbuf_printf(out, "    activeDeadlineSeconds: %" PRId64 "\n", job->time_s);
    strbuf_put(out, "  pytorchReplicaSpecs:\n");
    put_replicas(out, job, "Master", 1);
    if (job->n_nodes > 1) put_replicas(out, job, "Worker", job->n_nodes - 1);
}

void job_write_kubernetes(StrBuf *out, const JobSpec *job) {
    job_put_head(out, job, "Made by");
    strbuf_put(out, "#\n# kubectl apply -f this file. $ is doubled in commands: Kubernetes halves "
                    "it again.\n");
    if (job->target == JOB_PYTORCHJOB) {
        write_pytorchjob(out, job);
    } else {
        write_indexed(out, job);
    }
}
