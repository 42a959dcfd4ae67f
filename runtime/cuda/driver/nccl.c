#include "runtime/cuda/driver/nccl.h"

#include "ir/base/clock.h"
#include "runtime/cuda/collective.h"
#include "runtime/cuda/driver/abort_watch.h"
#include "runtime/cuda/emit.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct NcclComm {
    const char *name; /* "t", "tied wte", "activations 0 -> 1" */
    ncclComm_t comm;
    void *registered; /* the arena, with this communicator */
} NcclComm;

struct NcclWorld {
    const CudaDevice *device;
    const Plan *plan;
    Arena *arena;
    NcclExchange exchange;
    int rank;
    double timeout_seconds;
    bool no_registration;
    int n_groups, n_comms, capacity;
    NcclComm *comms;   /* those of this rank, in the order of their making */
    int *of_group;     /* [mesh axes and stage comms]: index into comms, or -1 */
    int *of_channel;   /* [channels]: the same */
    int *channel_peer; /* the other rank within the channel's communicator */
};

static bool report(const NcclWorld *world, const NcclComm *comm, ncclResult_t status,
                   const char *what, Diag *diag) {
    const CuApi *api = world->device->api;
    diag_error(diag, NO_LOC, "rank %d: NCCL: %s of communicator '%s': %s (%s)", world->rank, what,
               comm->name, api->ncclGetErrorString(status), api->ncclGetLastError(comm->comm));
    return false;
}

/* Between two looks at what other ranks have to do: at first at once, then now and then. False:
 * `what` is not to be waited for any longer; reported. */
static bool may_wait(const NcclWorld *world, const NcclComm *comm, int looks, double deadline,
                     const char *what, Diag *diag) {
    enum { SPINS = 1000, ASK_EVERY = 64 };
    const struct timespec pause = {0, 200 * 1000};
    const NcclExchange *job = &world->exchange;
    if (looks < SPINS) {
        sched_yield();
        return true;
    }
    const char *why = job->failed && looks % ASK_EVERY == 0 ? job->failed(job->user) : NULL;
    if (why) {
        diag_error(diag, NO_LOC, "%s", why);
        return false;
    }
    if (clock_now() > deadline) {
        diag_error(diag, NO_LOC,
                   "rank %d: NCCL: %s of communicator '%s' took more than %.0f s: another rank "
                   "is missing, or NCCL does not reach it (NCCL_SOCKET_IFNAME says by which "
                   "network, NCCL_DEBUG=INFO tells more)",
                   world->rank, what, comm->name, world->timeout_seconds);
        return false;
    }
    nanosleep(&pause, NULL);
    return true;
}

/* Waits until a non-blocking call has come to its end: mostly a matter of microseconds. */
static bool settle(const NcclWorld *world, const NcclComm *comm, ncclResult_t status,
                   const char *what, Diag *diag) {
    const CuApi *api = world->device->api;
    double deadline = clock_now() + world->timeout_seconds;
    for (int looks = 0; status == ncclInProgress; looks++) {
        ncclResult_t seen = api->ncclCommGetAsyncError(comm->comm, &status);
        if (seen != ncclSuccess) status = seen;
        if (status == ncclInProgress && !may_wait(world, comm, looks, deadline, what, diag)) {
            return false;
        }
    }
    return status == ncclSuccess || report(world, comm, status, what, diag);
}

/* Makes one communicator of `ranks` (this one among them, at `member`). Returns its index, or -1.
 */
static int make_comm(NcclWorld *world, const char *name, const int *ranks, int n_ranks, int member,
                     bool is_channel, Diag *diag) {
    enum { CHANNEL_CTAS = 8 }; /* NCCL would take up to 32 processors for a link of the pipeline */
    const CuApi *api = world->device->api;
    const NcclExchange *exchange = &world->exchange;
    ncclUniqueId id;
    NcclComm comm = {.name = name};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (is_channel) config.maxCTAs = CHANNEL_CTAS;
    memset(&id, 0, sizeof(id));
    if (member == 0) {
        ncclResult_t status = api->ncclGetUniqueId(&id);
        if (status != ncclSuccess) {
            report(world, &comm, status, "making the id", diag);
            return -1;
        }
    }
    if (!exchange->broadcast(exchange->user, ranks, n_ranks, &id, sizeof(id), diag)) return -1;
    ncclResult_t status = api->ncclCommInitRankConfig(&comm.comm, n_ranks, id, member, &config);
    ARENA_PUSH(world->arena, world->comms, world->n_comms, world->capacity, comm);
    if (!settle(world, &comm, status, "the start", diag)) return -1;
    return world->n_comms - 1;
}

static bool make_group(NcclWorld *world, int group, int n_members, int member, Diag *diag) {
    int *ranks = ARENA_ARRAY(world->arena, int, n_members);
    for (int k = 0; k < n_members; k++) {
        ranks[k] = emit_group_member(world->plan, group, world->rank, k);
    }
    world->of_group[group] = make_comm(world, emit_group_name(world->plan, group), ranks, n_members,
                                       member, false, diag);
    return world->of_group[group] >= 0;
}

static bool make_groups(NcclWorld *world, Diag *diag) {
    const Plan *plan = world->plan;
    MeshCoord coord = mesh_coord(&plan->mesh, world->rank);
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        bool own = axis != MESH_H; /* which has c's ranks */
        if (own && mesh_has_messages(&plan->mesh, axis) &&
            !make_group(world, axis, mesh_size(&plan->mesh, axis),
                        mesh_member(&plan->mesh, coord, axis), diag)) {
            return false;
        }
    }
    for (int i = 0; i < plan->n_comms; i++) {
        const StageComm *comm = &plan->comms[i];
        for (int k = 0; k < comm->n_stages; k++) {
            if (comm->stages[k] == coord.at[MESH_P] &&
                !make_group(world, N_MESH_GROUPS + i, comm->n_stages, k, diag)) {
                return false;
            }
        }
    }
    return true;
}

/* Channels in plan order on every rank: no circle of ranks waiting for each other. */
static bool make_channels(NcclWorld *world, Diag *diag) {
    const Plan *plan = world->plan;
    MeshCoord coord = mesh_coord(&plan->mesh, world->rank);
    int stage = coord.at[MESH_P];
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        int ranks[2];
        if (channel->from != stage && channel->to != stage) continue;
        /* Ascending, as exchanges have them: who is first does not matter to NCCL. */
        coord.at[MESH_P] = channel->from < channel->to ? channel->from : channel->to;
        ranks[0] = mesh_rank(&plan->mesh, coord);
        coord.at[MESH_P] = channel->from < channel->to ? channel->to : channel->from;
        ranks[1] = mesh_rank(&plan->mesh, coord);
        int member = world->rank == ranks[1];
        const char *name = arena_printf(world->arena, "%s, stage %d to %d",
                                        channel->backward ? "gradients" : "activations",
                                        channel->from, channel->to);
        world->of_channel[i] = make_comm(world, name, ranks, 2, member, true, diag);
        world->channel_peer[i] = 1 - member;
        if (world->of_channel[i] < 0) return false;
    }
    return true;
}

/* Parts lie one after the other, those to and from this rank too: as ncclAlltoAll of NCCL 2.28 has
 * them, without asking for it. */
static ncclResult_t call_all_to_all(const CuApi *api, const NcclCall *c, ncclComm_t comm,
                                    cudaStream_t stream) {
    size_t bytes = (size_t)(c->count * dtype_bytes(c->dtype));
    ncclResult_t status = api->ncclGroupStart(), end;
    if (status != ncclSuccess) return status;
    for (int k = 0; k < c->n_members && status == ncclSuccess; k++) {
        const char *from = (const char *)c->in + (size_t)k * bytes;
        char *to = (char *)c->out + (size_t)k * bytes;
        status = api->ncclSend(from, bytes, ncclUint8, k, comm, stream);
        if (status == ncclSuccess) {
            status = api->ncclRecv(to, bytes, ncclUint8, k, comm, stream);
        }
    }
    end = api->ncclGroupEnd();
    return status != ncclSuccess ? status : end;
}

/* --- connecting --- */

/* Waits for what was given to the stream, as settle does for a call. */
static bool drain(const NcclWorld *world, const NcclComm *comm, cudaStream_t stream, Diag *diag) {
    const CuApi *api = world->device->api;
    double deadline = clock_now() + world->timeout_seconds;
    cudaError_t status;
    for (int looks = 0; (status = api->cudaStreamQuery(stream)) == cudaErrorNotReady; looks++) {
        if (!may_wait(world, comm, looks, deadline, "the first message", diag)) return false;
    }
    return cuda_check(api, status, diag, "a first message");
}

static bool connect_channels(const NcclWorld *world, void *memory, size_t bytes,
                             cudaStream_t stream, Diag *diag) {
    const CuApi *api = world->device->api;
    const int stage = mesh_coord(&world->plan->mesh, world->rank).at[MESH_P];
    for (int i = 0; i < world->plan->n_channels; i++) {
        if (world->of_channel[i] < 0) continue;
        const NcclComm *comm = &world->comms[world->of_channel[i]];
        int peer = world->channel_peer[i];
        ncclResult_t status =
            world->plan->channels[i].from == stage
                ? api->ncclSend(memory, bytes, ncclUint8, peer, comm->comm, stream)
                : api->ncclRecv(memory, bytes, ncclUint8, peer, comm->comm, stream);
        if (!settle(world, comm, status, "the first message", diag) ||
            !drain(world, comm, stream, diag)) {
            return false;
        }
    }
    return true;
}

/* The communicators in which each rank of them sends to each: that of experts, and whichever else
 * the rank's program has all-to-alls in. */
static void find_exchanges(const NcclWorld *world, bool *out) {
    const Plan *plan = world->plan;
    int stage = mesh_coord(&plan->mesh, world->rank).at[MESH_P];
    const Graph *graph = plan->programs[plan->stages[stage].program].graph;
    out[MESH_E] = true;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_ALL_TO_ALL) continue;
        const char *name = node_string(node, ATTR_mesh);
        int mesh = mesh_axis_find(name, (int)strlen(name));
        if (mesh >= 0) out[mesh == MESH_H ? MESH_C : mesh] = true;
    }
}

static bool connect_members(const NcclWorld *world, int group, void *memory, size_t bytes,
                            cudaStream_t stream, Diag *diag) {
    const NcclComm *comm = &world->comms[world->of_group[group]];
    int n_members = mesh_size(&world->plan->mesh, group);
    const NcclCall all = {.kind = ALL_TO_ALL,
                          .dtype = DTYPE_F32,
                          .count = (int64_t)bytes / 4,
                          .n_members = n_members,
                          .in = memory,
                          .out = (char *)memory + (size_t)n_members * bytes};
    ncclResult_t status = call_all_to_all(world->device->api, &all, comm->comm, stream);
    return settle(world, comm, status, "the first message", diag) &&
           drain(world, comm, stream, diag);
}

/* NCCL connects two ranks when the first message goes from one to the other, which takes memory and
 * the time of both: here, and not in the middle of a step. In plan order on every rank. */
static bool connect_pairs(NcclWorld *world, Diag *diag) {
    enum { PAIR_BYTES = 16 };
    const CuApi *api = world->device->api;
    bool exchanges[N_MESH_GROUPS] = {false};
    size_t most = 1;
    void *memory = NULL;
    cudaStream_t stream = NULL;
    find_exchanges(world, exchanges);
    for (int group = 0; group < N_MESH_GROUPS; group++) {
        exchanges[group] &= world->of_group[group] >= 0;
        size_t n_members = (size_t)mesh_size(&world->plan->mesh, group);
        if (exchanges[group] && n_members > most) most = n_members;
    }
    bool fine = cuda_check(api, api->cudaMalloc(&memory, 2 * most * PAIR_BYTES), diag,
                           "memory for a message") &&
                cuda_check(api, api->cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                           diag, "making a stream");
    for (int group = 0; fine && group < N_MESH_GROUPS; group++) {
        if (!exchanges[group]) continue;
        fine = connect_members(world, group, memory, PAIR_BYTES, stream, diag);
    }
    fine = fine && connect_channels(world, memory, PAIR_BYTES, stream, diag);
    /* A kernel that waits for a lost rank ends no other way, and memory is not given back before.
     */
    if (!fine) nccl_world_destroy(world, true);
    if (stream) api->cudaStreamDestroy(stream);
    if (memory) api->cudaFree(memory);
    return fine;
}

/* Does a task between stages send several values? */
static bool sends_several(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        int n_sends[N_PHASES][MAX_CHUNKS] = {{0}};
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op == OP_SEND && ++n_sends[node->phase][node->chunk] > 1) return true;
        }
    }
    return false;
}

/* Messages of a graph, and those that are issued by themselves, never run at once here: each job is
 * waited for. That NCCL allows it costs two or three nodes a message that record events, behind
 * which the next one of the communicator waits: CUDA may put them on a queue where a kernel waits
 * for another rank, and no graph with them can live on the device. */
static void forgo_graph_mixing(void) {
    setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
}

/* Kernels of several communicators run side by side. In the order in which they are issued, which
 * is the plan's, no two ranks can each hold what the other one waits for. But then what a rank
 * receives also waits for what it has issued to be sent before, and of several values the second
 * one's send begins when the first has ended: with several chunks a stage two neighbours could wait
 * for each other so. */
static void choose_launch_order(const Plan *plan) {
    if (plan->n_chunks == 1 || !sends_several(plan)) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
}

/* Older NCCLs know nothing of that order: of several communicators' kernels, each rank may then
 * have others that fill the device. */
static bool check_version(const NcclWorld *world, Diag *diag) {
    enum { FIRST_ORDERED_VERSION = 22600 };
    const Plan *plan = world->plan;
    int version = 0, n_comms = plan->n_comms + plan->n_channels;
    for (int axis = 0; axis < N_MESH_GROUPS; axis++) {
        n_comms += axis != MESH_H && mesh_has_messages(&plan->mesh, axis);
    }
    ncclResult_t status = world->device->api->ncclGetVersion(&version);
    if (n_comms < 2 || (status == ncclSuccess && version >= FIRST_ORDERED_VERSION)) return true;
    diag_error(diag, NO_LOC,
               "NCCL %d.%d.%d (%s) is too old for a plan with several communicators, whose "
               "messages it does not keep in one order: 2.26 or newer is needed",
               version / 10000, version / 100 % 100, version % 100,
               world->device->api->path[LIBRARY_nccl]);
    return false;
}

/* Between machines a large message whose memory is registered with the network may wait for ever
 * behind a small one of the same graph, before 2.32.1 (NCCL's issue 2389). NCCL registers what a
 * graph's messages read and write by itself, too, as they are captured. False: it is not to. */
static bool choose_registration(const CuApi *api, const NcclOptions *options) {
    enum { FIRST_SOUND_VERSION = 23201 };
    int version = 0;
    bool sound = api->ncclGetVersion(&version) == ncclSuccess && version >= FIRST_SOUND_VERSION;
    bool registers = !options->no_registration && (sound || !options->several_hosts);
    if (!registers) setenv("NCCL_GRAPH_REGISTER", "0", 0);
    return registers;
}

NcclWorld *nccl_world_create(const CudaDevice *device, const Plan *plan, int rank,
                             const NcclExchange *exchange, const NcclOptions *options, Arena *arena,
                             Diag *diag) {
    enum { DEFAULT_TIMEOUT_SECONDS = 300 };
    if (!device->api->path[LIBRARY_nccl]) {
        diag_error(diag, NO_LOC, "NCCL was not found (%s); set PERILUNE_CUDA_LIBRARIES",
                   device->api->error[LIBRARY_nccl]);
        return NULL;
    }
    NcclWorld *world = ARENA_NEW(arena, NcclWorld);
    *world = (NcclWorld){.device = device,
                         .plan = plan,
                         .arena = arena,
                         .exchange = *exchange,
                         .rank = rank,
                         .timeout_seconds = options->timeout_seconds > 0 ? options->timeout_seconds
                                                                         : DEFAULT_TIMEOUT_SECONDS,
                         .no_registration = !choose_registration(device->api, options),
                         .n_groups = N_MESH_GROUPS + plan->n_comms};
    world->of_group = ARENA_ARRAY(arena, int, world->n_groups);
    world->of_channel = ARENA_ARRAY(arena, int, plan->n_channels + 1);
    world->channel_peer = ARENA_ARRAY(arena, int, plan->n_channels + 1);
    for (int i = 0; i < world->n_groups; i++) world->of_group[i] = -1;
    for (int i = 0; i < plan->n_channels; i++) world->of_channel[i] = -1;
    if (!check_version(world, diag)) return NULL;
    choose_launch_order(plan); /* before NCCL reads it */
    forgo_graph_mixing();
    if (make_groups(world, diag) && make_channels(world, diag) && connect_pairs(world, diag)) {
        return world;
    }
    nccl_world_destroy(world, true);
    return NULL;
}

/* The whole arena is registered: all ranks of a group lay theirs out alike, so what they exchange
 * lies at equal offsets. */
bool nccl_world_allocate(NcclWorld *world, size_t bytes, void **out, Diag *diag) {
    const CuApi *api = world->device->api;
    if (world->no_registration) {
        return cuda_check(api, api->cudaMalloc(out, bytes), diag, "allocating the rank's arena");
    }
    ncclResult_t status = api->ncclMemAlloc(out, bytes);
    if (status != ncclSuccess) {
        diag_error(diag, NO_LOC, "NCCL: allocating %.2f GiB: %s; try --no-nccl-registration",
                   (double)bytes / (1 << 30), api->ncclGetErrorString(status));
        return false;
    }
    for (int i = 0; i < world->n_comms; i++) {
        NcclComm *comm = &world->comms[i];
        status = api->ncclCommRegister(comm->comm, *out, bytes, &comm->registered);
        if (!settle(world, comm, status, "registering memory", diag)) return false;
    }
    return true;
}

static void deregister(const NcclWorld *world, NcclComm *comm) {
    if (comm->registered) world->device->api->ncclCommDeregister(comm->comm, comm->registered);
    comm->registered = NULL;
}

void nccl_world_free(NcclWorld *world, void *memory) {
    const CuApi *api = world->device->api;
    if (!memory) return;
    if (world->no_registration) {
        api->cudaFree(memory);
        return;
    }
    for (int i = 0; i < world->n_comms; i++) deregister(world, &world->comms[i]);
    api->ncclMemFree(memory);
}

static ncclDataType_t nccl_dtype(DType dtype) {
    static const ncclDataType_t TYPES[N_DTYPES] = {[DTYPE_F32] = ncclFloat32,
                                                   [DTYPE_I32] = ncclInt32,
                                                   [DTYPE_BF16] = ncclBfloat16,
                                                   [DTYPE_F16] = ncclFloat16,
                                                   [DTYPE_FP8] = ncclUint8};
    return TYPES[dtype];
}

static ncclResult_t call(const CuApi *api, const NcclCall *c, ncclComm_t comm,
                         cudaStream_t stream) {
    ncclRedOp_t op = c->reduce == REDUCE_MAX ? ncclMax : ncclSum;
    ncclDataType_t dtype = nccl_dtype(c->dtype);
    size_t count = (size_t)c->count;
    switch (c->kind) {
    case ALL_REDUCE: return api->ncclAllReduce(c->in, c->out, count, dtype, op, comm, stream);
    case ALL_GATHER: return api->ncclAllGather(c->in, c->out, count, dtype, comm, stream);
    case REDUCE_SCATTER:
        return api->ncclReduceScatter(c->in, c->out, count, dtype, op, comm, stream);
    case ALL_TO_ALL: return call_all_to_all(api, c, comm, stream);
    }
    return ncclInvalidArgument;
}

/* Several as a group: NCCL's collectives of one communicator and stream are then one kernel. */
static ncclResult_t call_all(const CuApi *api, const CollectiveStep *steps, int count,
                             ncclComm_t comm, cudaStream_t stream) {
    if (count == 1) return call(api, &steps[0].nccl, comm, stream);
    ncclResult_t status = api->ncclGroupStart(), end;
    if (status != ncclSuccess) return status;
    for (int i = 0; i < count && (status == ncclSuccess || status == ncclInProgress); i++) {
        status = call(api, &steps[i].nccl, comm, stream);
    }
    end = api->ncclGroupEnd();
    return status != ncclSuccess && status != ncclInProgress ? status : end;
}

static bool issue_launch(const NcclWorld *world, const LaunchCommand *launch, cudaStream_t stream,
                         Diag *diag) {
    const CudaDevice *device = world->device;
    return cuda_check(device->api,
                      cuda_launch(device, device->kernels[launch->kernel], launch, stream), diag,
                      KERNELS[launch->kernel].name);
}

/* Launches, and what is between them in groups. */
static bool issue_steps(const NcclWorld *world, const NcclComm *comm, const CollectiveStep *steps,
                        int n_steps, cudaStream_t stream, Diag *diag) {
    for (int i = 0, count; i < n_steps; i += count) {
        count = 1;
        if (steps[i].is_launch) {
            if (!issue_launch(world, &steps[i].launch, stream, diag)) return false;
            continue;
        }
        while (i + count < n_steps && !steps[i + count].is_launch) count++;
        ncclResult_t status = call_all(world->device->api, &steps[i], count, comm->comm, stream);
        if (!settle(world, comm, status, "a message", diag)) return false;
    }
    return true;
}

/* Once a step, where there is no graph: nothing of it may stay. */
static bool issue_collective(void *user, const CollectiveCommand *command, int rank,
                             cudaStream_t stream, Diag *diag) {
    NcclWorld *world = user;
    CollectiveStep *steps;
    const NcclComm *comm = &world->comms[world->of_group[command->group]];
    Arena *arena = arena_create();
    (void)rank;
    int n_steps = cuda_group_steps(command, arena, &steps);
    bool fine = n_steps > 0 && issue_steps(world, comm, steps, n_steps, stream, diag);
    if (n_steps == 0) {
        diag_error(diag, NO_LOC, "rank %d: a message of communicator '%s' is too large",
                   world->rank, comm->name);
    }
    arena_destroy(arena);
    return fine;
}

static bool issue_message(void *user, const Command *command, cudaStream_t stream, Diag *diag) {
    NcclWorld *world = user;
    const CuApi *api = world->device->api;
    const MessageCommand *message = &command->message;
    const NcclComm *comm = &world->comms[world->of_channel[message->channel]];
    int peer = world->channel_peer[message->channel];
    size_t bytes = (size_t)message->bytes;
    ncclResult_t status =
        command->kind == COMMAND_SEND
            ? api->ncclSend(message->memory, bytes, ncclUint8, peer, comm->comm, stream)
            : api->ncclRecv(message->memory, bytes, ncclUint8, peer, comm->comm, stream);
    return settle(world, comm, status, "a message", diag);
}

Messenger nccl_world_messenger(NcclWorld *world) {
    return (Messenger){world, issue_collective, issue_message};
}

bool nccl_world_check(NcclWorld *world, Diag *diag) {
    for (int i = 0; i < world->n_comms; i++) {
        ncclResult_t status = ncclSuccess;
        const NcclComm *comm = &world->comms[i];
        ncclResult_t seen = world->device->api->ncclCommGetAsyncError(comm->comm, &status);
        if (seen != ncclSuccess) status = seen;
        if (status != ncclSuccess && status != ncclInProgress) {
            return report(world, comm, status, "a message", diag);
        }
    }
    return true;
}

/* All at once: the kernels of one may wait for those of another to get out of the way. A group of
 * aborts is a blocking one also of communicators that are not. */
static void abort_all(NcclWorld *world) {
    const double MOST_SECONDS = 60;
    const CuApi *api = world->device->api;
    const NcclExchange *job = &world->exchange;
    if (world->n_comms == 0) return;
    AbortWatch *watch = abort_watch_begin(world->rank, fmin(world->timeout_seconds, MOST_SECONDS),
                                          job->failed ? job->failed(job->user) : NULL);
    bool grouped = api->ncclGroupStart() == ncclSuccess;
    for (int i = world->n_comms - 1; i >= 0; i--) {
        if (world->comms[i].comm) api->ncclCommAbort(world->comms[i].comm);
    }
    if (grouped) api->ncclGroupEnd();
    abort_watch_end(watch);
}

static void end_comm(NcclWorld *world, NcclComm *comm) {
    const CuApi *api = world->device->api;
    Diag *ignored = diag_create();
    deregister(world, comm);
    if (settle(world, comm, api->ncclCommFinalize(comm->comm), "the end", ignored)) {
        api->ncclCommDestroy(comm->comm);
    } else {
        api->ncclCommAbort(comm->comm);
    }
    diag_destroy(ignored);
}

void nccl_world_destroy(NcclWorld *world, bool abort) {
    if (!world) return;
    if (abort) abort_all(world);
    for (int i = world->n_comms - 1; i >= 0 && !abort; i--) {
        if (world->comms[i].comm) end_comm(world, &world->comms[i]);
    }
    world->n_comms = 0;
}
