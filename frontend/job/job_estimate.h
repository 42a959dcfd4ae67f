/* What a plan comes to on so many nodes: memory, time of a step and of a checkpoint, and how many
 * jobs of a time limit a run takes. Nothing is measured: planner's predictions, or what the user
 * says. */
#ifndef FRONTEND_JOB_JOB_ESTIMATE_H
#define FRONTEND_JOB_JOB_ESTIMATE_H

#include "planner/clusters/cluster.h"
#include "planner/cost/cost.h"
#include "planner/plan/plan.h"

typedef struct JobMemory {
    int64_t device_bytes; /* the fullest rank's, of its device; on CPUs of its machine */
    int64_t node_bytes;   /* of the fullest node's memory */
    int64_t limit_bytes;  /* a limit that leaves room */
} JobMemory;

/* Ranks in order, n_per_node on each node. `copies`: checkpoints are written from a copy of them.
 */
JobMemory job_memory(const Plan *plan, bool cuda, int n_per_node, bool copies);

/* What a checkpoint has at most: every weight in f32 and the optimizer's states. */
int64_t job_checkpoint_bytes(const Plan *plan);

/* At the rate of the cluster's storage, or where that is not said (NULL: no cluster), of 0.5 GB/s.
 */
double job_checkpoint_seconds(const Plan *plan, const Cluster *cluster, int n_nodes);

/* The cluster with nodes of so many devices, as the job uses them. */
Cluster *job_cluster(Arena *arena, const Cluster *cluster, int n_per_node);

/* A step's predicted seconds; 0: reported. */
double job_step_seconds(Arena *arena, const Plan *plan, const Device *device, Diag *diag);

/* The slowest of the axes with messages in every layer (t, c, e) of which groups are on several
 * nodes or begin within one, -1: none; *out_ranks: how many ranks such a group spans. */
int job_torn_axis(const Mesh *mesh, int n_per_node, int *out_ranks);

/* Seconds that a job must be given to stop: what is predicted twice, and a minute; up to the next
 * half minute. */
int64_t job_stop_seconds(double step_s, double checkpoint_s);

/* Steps that a job of so long takes before it is told to stop, from `start_s` after its beginning
 * on, with a checkpoint of pause_s every so many steps (0: none). */
int64_t job_steps(int64_t time_s, int64_t stop_s, double start_s, double step_s, double pause_s,
                  int64_t every);

#endif
