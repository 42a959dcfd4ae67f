#include "runtime/cpu/cpu_comm.h"

#include "runtime/comm/comm_wait.h"

#include <string.h>

enum { TAG_RANKS = LAUNCH_MAX_RANKS }; /* below a group's number in its tag: its first rank */

typedef struct Joining {
    Engine *engine;
    CpuRank **ranks;
    CommWorld *world;
    bool is_remote; /* each rank is a process */
} Joining;

/* Between threads a group is made by its first member and found again by the others. */
static CommGroup *join_group(const Joining *joining, int *members, int n, int number,
                             CommGroup *of_first, const char *name) {
    if (joining->is_remote) {
        uint32_t tag = (uint32_t)number * TAG_RANKS + (uint32_t)members[0];
        return comm_tcp_group_create(joining->world, members, n, tag, name);
    }
    return of_first ? of_first : comm_group_create(joining->world, n, name);
}

/* One group along each mesh axis, one of all with the rank's weights. */
static void join_mesh(const Joining *joining, CpuRank *rank) {
    const RankContext *context = rank->context;
    const Mesh *mesh = &joining->engine->plan->mesh;
    CommGroups *groups = &rank->groups;
    Arena *arena = joining->engine->arena;
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        if (!mesh_has_messages(mesh, axis)) continue;
        const int n = mesh_size(mesh, axis);
        int *members = ARENA_ARRAY(arena, int, n);
        for (int i = 0; i < n; i++) {
            members[i] = mesh_rank(mesh, mesh_member_coord(mesh, context->coord, axis, i));
        }
        const CpuRank *first = joining->ranks[members[0]];
        groups->mesh[axis] =
            join_group(joining, members, n, axis, first ? first->groups.mesh[axis] : NULL,
                       arena_printf(arena, "%s of rank %d", mesh_axis_name(axis), members[0]));
        groups->member[axis] = mesh_member(mesh, context->coord, axis);
        if (mesh_deals(axis)) comm_group_set_dealing(groups->mesh[axis]);
    }
}

/* One group for each tied weight. */
static void join_stages(const Joining *joining, CpuRank *rank) {
    const RankContext *context = rank->context;
    const Plan *plan = joining->engine->plan;
    CommGroups *groups = &rank->groups;
    Arena *arena = joining->engine->arena;
    groups->n_stage = plan->n_comms;
    groups->stage_names = ARENA_ARRAY(arena, const char *, plan->n_comms + 1);
    groups->stage = ARENA_ARRAY(arena, CommGroup *, plan->n_comms + 1);
    groups->stage_member = ARENA_ARRAY(arena, int, plan->n_comms + 1);
    for (int i = 0; i < plan->n_comms; i++) {
        const StageComm *comm = &plan->comms[i];
        int *members = ARENA_ARRAY(arena, int, comm->n_stages);
        int own = -1;
        groups->stage_names[i] = comm->name;
        for (int k = 0; k < comm->n_stages; k++) {
            MeshCoord at = context->coord;
            at.at[MESH_P] = comm->stages[k];
            members[k] = mesh_rank(&plan->mesh, at);
            if (comm->stages[k] == context->stage_number) own = k;
        }
        if (own < 0) continue;
        const CpuRank *first = joining->ranks[members[0]];
        groups->stage[i] =
            join_group(joining, members, comm->n_stages, N_MESH_GROUPS + i,
                       first && first != rank ? first->groups.stage[i] : NULL, comm->name);
        groups->stage_member[i] = own;
    }
}

/* Channels link ranks of two stages with the same t, c and d. */
static void join_channels(const Joining *joining) {
    Engine *engine = joining->engine;
    const Plan *plan = engine->plan;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!joining->ranks[r]) continue;
        joining->ranks[r]->channels =
            ARENA_ARRAY(engine->arena, CommChannel *, plan->n_channels + 1);
    }
    for (int r = 0; r < engine->n_ranks; r++) {
        const RankContext *context = &engine->ranks[r];
        for (int i = 0; i < plan->n_channels; i++) {
            const Channel *channel = &plan->channels[i];
            if (channel->from != context->stage_number) continue;
            MeshCoord to = context->coord;
            to.at[MESH_P] = channel->to;
            const int peer = mesh_rank(&plan->mesh, to), n_slots = executor_channel_slots(plan, i);
            CpuRank *ends[2] = {joining->ranks[r], joining->ranks[peer]};
            if (!ends[0] && !ends[1]) continue;
            const char *name = arena_printf(engine->arena, "%s messages of rank %d to rank %d",
                                            channel->backward ? "gradient" : "activation", r, peer);
            CommChannel *made =
                joining->is_remote
                    ? comm_tcp_channel_create(joining->world, r, peer, (uint32_t)i, n_slots, name)
                    : comm_channel_create(joining->world, n_slots, name);
            for (int e = 0; e < 2; e++) {
                if (ends[e]) ends[e]->channels[i] = made;
            }
        }
    }
}

/* --- what the processes ask of the control plane --- */

static bool all_gather(void *user, const void *bytes, size_t n_bytes, void *out) {
    return control_all_gather(user, bytes, n_bytes, n_bytes, out, NULL);
}

static const char *why_failed(void *user) {
    const char *why;
    return control_failed(user, &why) ? why : NULL;
}

CommJob cpu_comm_job(Control *control, int rank, double connect_s, char address[64]) {
    const double PATIENCE_SECONDS = 5; /* for rank 0 to tell who was lost */
    const double CONNECT_SECONDS = 300;
    control_own_address(control, address, 64);
    return (CommJob){.rank = rank,
                     .world = control_world(control),
                     .user = control,
                     .all_gather = all_gather,
                     .why_failed = why_failed,
                     .own_address = address,
                     .connect_s = connect_s > 0 ? connect_s : CONNECT_SECONDS,
                     .patience_s = PATIENCE_SECONDS};
}

static CommWorld *create_world(const Engine *engine, const EngineOptions *options) {
    if (!options->control) return comm_world_create(engine->n_ranks);
    char address[64];
    const CommJob job =
        cpu_comm_job(options->control, options->rank, options->timeout_seconds, address);
    return comm_tcp_create(&job);
}

bool cpu_comm_join(Engine *engine, CpuRank **ranks, const EngineOptions *options,
                   CommWorld **out_world, CommHost *out_host, Diag *diag) {
    Joining joining = {engine, ranks, create_world(engine, options), options->control != NULL};
    *out_world = joining.world;
    *out_host = (CommHost){1, 1, wait_own_cores(NULL)};
    /* With processes the control plane finds who is stuck, and says more: it comes first. */
    if (options->timeout_seconds > 0) {
        comm_world_set_timeout(joining.world,
                               options->timeout_seconds * (joining.is_remote ? 2 : 1));
    }
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!ranks[r]) continue;
        join_mesh(&joining, ranks[r]);
        join_stages(&joining, ranks[r]);
    }
    join_channels(&joining);
    return !joining.is_remote || comm_tcp_connect(joining.world, out_host, diag);
}
