#include "runtime/cuda/emit.h"

#include "runtime/cuda/accumulation.h"
#include "runtime/cuda/bias_grad.h"
#include "runtime/cuda/fused_loss.h"
#include "runtime/cuda/join_messages.h"
#include "runtime/cuda/join_products.h"
#include "runtime/cuda/join_sums.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/merge.h"
#include "runtime/cuda/norm_addend.h"
#include "runtime/cuda/norm_sum.h"
#include "runtime/cuda/stack_products.h"
#include "runtime/cuda/virtual.h"

#include <string.h>

int64_t emit_decode_positions(const Plan *plan) {
    const Graph *graph = plan->programs[0].graph;
    int64_t most = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        int64_t count = type_elements(&graph->nodes[n]->types[0]);
        if (graph->nodes[n]->op == OP_INPUT && count > most) most = count;
    }
    return most;
}

Value emit_decode_logits(const Plan *plan, int chunk) {
    const Graph *graph = plan->programs[0].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op == OP_OUTPUT && node->chunk == chunk) return node->inputs[0];
    }
    BUG("a chunk without logits");
}

int64_t emit_logits_bytes(const Plan *plan, int chunk) {
    Value logits = emit_decode_logits(plan, chunk);
    return type_local_bytes(value_type(logits), value_sharding(logits), &plan->mesh);
}

int64_t emit_staged_numbers(const Plan *plan, TokenNumbers which) {
    int64_t at = plan->global_batch * (plan_row(plan) + plan->seq + 1);
    for (TokenNumbers i = 0; i < which; i++) {
        if (plan_reads_numbers(plan, i)) at += plan->global_batch * plan_numbers_row(plan, i);
    }
    return at;
}

int64_t emit_staging_bytes(const Plan *plan) {
    int64_t numbers = plan->context ? N_DECODE_INPUTS * emit_decode_positions(plan)
                                    : emit_staged_numbers(plan, N_TOKEN_NUMBERS);
    int64_t bytes = STAGING_HEADER + numbers * dtype_bytes(DTYPE_I32);
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* One walk over a rank's tasks. */
typedef struct CudaWalk {
    CudaEmitter emitter; /* first: binders see it as Binding.backend */
    const RankContext *rank;
    const EmitMemory *memory;
    int *n_sent; /* by channel, so far */
    bool first;  /* of the ranks here: it has what is there once for all of them */
} CudaWalk;

static Access *new_accesses(CudaWalk *walk, int count) {
    return ARENA_ARRAY(walk->rank->arena, Access, count);
}

static void push_launch(CudaWalk *walk, KernelId kernel, int64_t count, const void *args,
                        size_t args_bytes, Access *accesses, int n_accesses) {
    enum { THREADS = 256 };
    Command command = {.kind = COMMAND_LAUNCH,
                       .stream = STREAM_COMPUTE,
                       .info = {.rank = walk->rank->rank, .block = NO_BLOCK},
                       .accesses = accesses,
                       .n_accesses = n_accesses};
    command.launch = (LaunchCommand){.kernel = kernel,
                                     .grid = {cuda_blocks(count, THREADS), 1, 1},
                                     .threads = count > 1 ? THREADS : 1,
                                     .args = args,
                                     .args_bytes = args_bytes};
    command_list_push(walk->emitter.list, &command);
}

static void emit_begin(CudaWalk *walk) {
    BeginStepArgs *args = ARENA_NEW(walk->rank->arena, BeginStepArgs);
    *args = (BeginStepArgs){walk->memory->state, walk->memory->staging,
                            emit_staging_bytes(walk->rank->plan)};
    Access *accesses = new_accesses(walk, 2);
    accesses[0] = access_to(args->state, sizeof(DeviceState), false); /* counts launches there */
    accesses[1] = access_to(args->state, sizeof(DeviceState), true);
    push_launch(walk, KERNEL_begin_step, 1, args, sizeof(*args), accesses, 2);
}

static StepScalar which_scalar(const char *name) {
    return strcmp(name, "step") == 0           ? SCALAR_STEP
           : strcmp(name, MOST_NORM_NAME) == 0 ? SCALAR_MOST_NORM
                                               : SCALAR_LEARNING_RATE;
}

/* The plan's scalars live in the arena. */
static void emit_scalars(CudaWalk *walk) {
    const Graph *graph = walk->rank->program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_SCALAR) continue;
        CopyScalarArgs *args = ARENA_NEW(walk->rank->arena, CopyScalarArgs);
        *args = (CopyScalarArgs){
            .state = walk->memory->state,
            .which = which_scalar(node_string(node, ATTR_name)),
            .to = executor_address(walk->rank, node_value(node, 0), 0),
        };
        Access *accesses = new_accesses(walk, 2);
        accesses[0] = access_to(args->state, sizeof(DeviceState), false);
        accesses[1] = access_to(args->to, sizeof(float), true);
        push_launch(walk, KERNEL_copy_scalar, 1, args, sizeof(*args), accesses, 2);
    }
}

/* The number of a staging slot, after its header, that the slice begins with. */
static int64_t staged_first(const Plan *plan, const InputSlice *slice) {
    int64_t batch = plan->global_batch * plan_row(plan);
    if (slice->decode) return (slice->decode - 1) * emit_decode_positions(plan);
    if (slice->labels) return slice->offset + batch;
    if (slice->numbers) {
        return slice->offset + emit_staged_numbers(plan, (TokenNumbers)(slice->numbers - 1));
    }
    return slice->offset + (slice->reference ? batch + plan->global_batch * plan->seq : 0);
}

static bool emit_input(void *user, const InputSlice *slice, const CallInfo *info) {
    CudaWalk *walk = user;
    const Plan *plan = walk->rank->plan;
    CopyInputArgs *args = ARENA_NEW(walk->rank->arena, CopyInputArgs);
    int64_t first = staged_first(plan, slice);
    *args = (CopyInputArgs){.state = walk->memory->state,
                            .staging = walk->memory->staging,
                            .slot_bytes = emit_staging_bytes(plan),
                            .offset_bytes = STAGING_HEADER + first * dtype_bytes(DTYPE_I32),
                            .count = slice->rows * slice->count,
                            .width = slice->count,
                            .pitch = slice->pitch,
                            .to_pitch = slice->to_pitch,
                            .to = slice->to};
    Access *accesses = new_accesses(walk, 2);
    accesses[0] = access_to(args->state, sizeof(DeviceState), false);
    int64_t reach = (slice->rows - 1) * slice->to_pitch + slice->count;
    accesses[1] = access_to(slice->to, reach * dtype_bytes(DTYPE_I32), true);
    push_launch(walk, KERNEL_copy_input, args->count, args, sizeof(*args), accesses, 2);
    Command *last = &walk->emitter.list->items[walk->emitter.list->count - 1];
    last->info.micro = info->micro;
    last->info.task = info->kind;
    last->info.chunk = info->chunk;
    return true;
}

static StreamKind message_stream(Path path, const CallInfo *info) {
    bool back = path_goes_up(path, info->chunk);
    switch (info->kind) {
    case TASK_SEND_FORWARD: return back ? STREAM_BACK_SEND_FORWARD : STREAM_SEND_FORWARD;
    case TASK_RECV_FORWARD: return back ? STREAM_BACK_RECV_FORWARD : STREAM_RECV_FORWARD;
    case TASK_SEND_BACKWARD: return back ? STREAM_BACK_SEND_BACKWARD : STREAM_SEND_BACKWARD;
    default: return back ? STREAM_BACK_RECV_BACKWARD : STREAM_RECV_BACKWARD;
    }
}

static bool emit_message(void *user, const MessageSlice *slice, const CallInfo *info, Diag *diag) {
    (void)diag;
    CudaWalk *walk = user;
    const Channel *channel = &walk->rank->plan->channels[slice->channel];
    MeshCoord peer = walk->rank->coord;
    peer.at[MESH_P] = slice->send ? channel->to : channel->from;
    Command command = {
        .kind = slice->send ? COMMAND_SEND : COMMAND_RECV,
        .stream = message_stream(plan_path(walk->rank->plan), info),
        .info = {info->node, walk->rank->rank, info->micro, NO_BLOCK, info->kind, info->chunk}};
    command.message = (MessageCommand){.channel = slice->channel,
                                       .peer = mesh_rank(&walk->rank->plan->mesh, peer),
                                       .memory = slice->memory,
                                       .n_slots = slice->n_slots,
                                       .bytes = (int64_t)slice->bytes};
    if (slice->send) {
        int slot = walk->n_sent[slice->channel]++ % slice->n_slots;
        command.message.slot = slice->slots + (size_t)slot * slice->slot_bytes;
    }
    command_list_push(walk->emitter.list, &command);
    return true;
}

/* A node's commands touch its operands, its results and, where they have any, their workspace. */
static void set_accesses(CudaWalk *walk, const Binding *b, const CallInfo *info, int first) {
    CommandList *list = walk->emitter.list;
    const Node *node = b->node;
    CommandKind kind = list->items[first].kind;
    bool library = kind == COMMAND_GEMM || kind == COMMAND_ATTENTION; /* may use all there is */
    int count = 0;
    Access *accesses = new_accesses(walk, node->n_inputs + node->n_outputs + 2);
    for (int i = 0; i < node->n_inputs; i++) {
        const Type *local = &b->in_local[i];
        accesses[count++] = access_to(b->in[i], type_bytes(local), false);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        const Type *local = &b->out_local[o];
        accesses[count++] = access_to(b->out[o], type_bytes(local), true);
    }
    if (b->workspace_bytes &&
        (library || cuda_workspace_bytes(node, b->in_local, b->out_local) > 0)) {
        accesses[count] = access_to(b->workspace, b->workspace_bytes, true);
        accesses[count++].workspace = true;
    }
    accesses[count++] = access_to(walk->memory->state, sizeof(DeviceState), false);
    for (int i = first; i < list->count; i++) {
        Command *command = &list->items[i];
        command->info =
            (CommandInfo){node, walk->rank->rank, info->micro, b->block, info->kind, info->chunk};
        command->accesses = accesses;
        command->n_accesses = count;
    }
}

static bool emit_node(void *user, Binding *binding, const CallInfo *info) {
    CudaWalk *walk = user;
    int first = walk->emitter.list->count;
    binding->backend = &walk->emitter;
    if (!cuda_bind(binding)) return false;
    if (walk->emitter.list->count > first) set_accesses(walk, binding, info, first);
    return true;
}

/* The logits go to the host as the chunk's last command. */
static void emit_logits(CudaWalk *walk, int chunk) {
    const RankContext *rank = walk->rank;
    Value logits = emit_decode_logits(rank->plan, chunk);
    const int64_t bytes = emit_logits_bytes(rank->plan, chunk);
    Command copy = {.kind = COMMAND_COPY,
                    .stream = STREAM_COMPUTE,
                    .info = {.rank = rank->rank, .block = NO_BLOCK, .chunk = chunk}};
    Access *accesses = new_accesses(walk, 2);
    copy.copy = (CopyCommand){.to = walk->memory->logits,
                              .from = executor_address(rank, logits, 0),
                              .bytes = bytes,
                              .to_host = true};
    accesses[0] = access_to(copy.copy.from, bytes, false);
    accesses[1] = access_to(copy.copy.to, bytes, true);
    copy.accesses = accesses;
    copy.n_accesses = 2;
    command_list_push(walk->emitter.list, &copy);
}

/* A chunk of a plan for decoding; or as many micro-batches' forward as the job has. */
static bool emit_forward(CudaWalk *walk, EmitJob job, const Emitter *emitter, Diag *diag) {
    const RankContext *rank = walk->rank;
    if (job >= EMIT_DECODE) {
        int chunk = (int)job - EMIT_DECODE;
        if (!executor_emit_chunk(rank, chunk, 0, emitter, diag)) return false;
        if (walk->memory->logits && walk->first) emit_logits(walk, chunk);
        return true;
    }
    int n_micro = job == EMIT_FIRST ? 1 : rank->plan->n_micro;
    for (int micro = 0; micro < n_micro; micro++) {
        if (!executor_emit_forward(rank, micro, emitter, diag)) return false;
    }
    return true;
}

/* The rank's walk; messages are left as they are. */
static bool emit_walk(const RankContext *rank, const EmitMemory *memory, EmitJob job, bool begin,
                      struct KernelCache *generated, CommandList *out, Diag *diag) {
    CudaWalk walk = {.emitter = {.list = out,
                                 .state = memory->state,
                                 .generated = generated,
                                 .plan = rank->plan,
                                 .attention = memory->attention,
                                 .own_products = memory->own_products},
                     .rank = rank,
                     .memory = memory,
                     .first = begin,
                     .n_sent = ARENA_ARRAY(rank->arena, int, rank->plan->n_channels + 1)};
    Emitter emitter = {&walk, emit_input, emit_message, emit_node};
    if (begin) emit_begin(&walk);
    if (job == EMIT_TRAIN) {
        emit_scalars(&walk);
        if (!executor_emit_train(rank, &emitter, diag)) return false;
    } else if (!emit_forward(&walk, job, &emitter, diag)) {
        return false;
    }
    if (memory->epilogues) {
        cuda_fold_epilogues(out, rank->program->graph, memory->epilogues, rank->arena);
        cuda_fold_norm_addends(out, rank->program->graph, rank->arena);
        cuda_fold_bias_gradients(out, memory->epilogues, rank->arena);
        cuda_fold_accumulations(out, rank->program->graph, rank->arena);
        cuda_fold_norm_sums(out, rank->program->graph, rank->arena);
        cuda_join_sums(out, rank->arena);
        cuda_join_products(out, memory->epilogues, rank->arena);
        if (job == EMIT_TRAIN) {
            const Workspace *parts = &rank->parts;
            StackRoom room = {rank->workspace + parts->offset[WORKSPACE_WEIGHTS],
                              parts->bytes[WORKSPACE_WEIGHTS]};
            cuda_stack_products(out, rank->program->graph, room, memory->attention, rank->arena);
            cuda_fuse_losses(out, rank->arena);
        }
    }
    if (job == EMIT_TRAIN) cuda_merge_updates(out, rank->arena);
    return true;
}

/* A message's copy to or from its slot, where `command` stands. */
static void push_copy(CommandList *out, const Command *command, StreamKind stream, void *to,
                      const void *from, Arena *arena) {
    Command copy = {.kind = COMMAND_COPY, .stream = stream, .info = command->info};
    Access *accesses = ARENA_ARRAY(arena, Access, 2);
    copy.copy = (CopyCommand){.to = to, .from = from, .bytes = command->message.bytes};
    accesses[0] = access_to(from, command->message.bytes, false);
    accesses[1] = access_to(to, command->message.bytes, true);
    copy.accesses = accesses;
    copy.n_accesses = 2;
    command_list_push(out, &copy);
}

/* The slot is filled on the compute stream; from there the send stream takes it. */
static void push_message(CommandList *out, const Command *command, Arena *arena) {
    Command message = *command;
    bool send = command->kind == COMMAND_SEND;
    Access *accesses = ARENA_ARRAY(arena, Access, 1);
    if (send) {
        push_copy(out, command, STREAM_COMPUTE, command->message.slot, command->message.memory,
                  arena);
        message.message.memory = command->message.slot;
    }
    accesses[0] = access_to(message.message.memory, message.message.bytes, !send);
    message.accesses = accesses;
    message.n_accesses = 1;
    command_list_push(out, &message);
}

/* Tells the host that a message has been done. */
static void push_mark(CommandList *out, const Command *message, const EmitMemory *memory,
                      uint32_t *n_done, Arena *arena) {
    Command mark = {.kind = COMMAND_LAUNCH, .stream = message->stream, .info = message->info};
    MarkProgressArgs *args = ARENA_NEW(arena, MarkProgressArgs);
    *args = (MarkProgressArgs){&memory->progress[message->stream], ++n_done[message->stream]};
    mark.launch = (LaunchCommand){.kernel = KERNEL_mark_progress,
                                  .grid = {1, 1, 1},
                                  .threads = 1,
                                  .args = args,
                                  .args_bytes = sizeof(*args)};
    command_list_push(out, &mark);
}

bool emit_rank(const RankContext *rank, const EmitMemory *memory, EmitJob job,
               struct KernelCache *generated, CommandList *out, Diag *diag) {
    CommandList raw = {0};
    uint32_t n_done[N_STREAM_KINDS] = {0};
    bool fine = emit_walk(rank, memory, job, true, generated, &raw, diag);
    if (fine) cuda_join_messages(&raw, rank->arena);
    for (int i = 0; fine && i < raw.count; i++) {
        const Command *command = &raw.items[i];
        if (command->kind == COMMAND_SEND || command->kind == COMMAND_RECV) {
            push_message(out, command, rank->arena);
        } else {
            command_list_push(out, command);
        }
        if (memory->progress && command->kind >= COMMAND_COLLECTIVE) {
            push_mark(out, command, memory, n_done, rank->arena);
        }
    }
    command_list_release(&raw);
    return fine;
}

/* One rank's list while lists are merged, and how far it has come. */
typedef struct Merging {
    CommandList raw;
    int next;
} Merging;

/* A pipeline link in the making: slots filled and not yet read, in order. */
typedef struct Link {
    int n_sent, n_received, capacity;
    const void **slots;
} Link;

typedef struct Merger {
    const Plan *plan;
    Arena *arena;
    int n_ranks;
    Merging *ranks;
    Link *links; /* [channel][sending rank] */
    CommandList *out;
} Merger;

static Link *find_link(const Merger *m, const Command *command) {
    int sender = command->kind == COMMAND_SEND ? command->info.rank : command->message.peer;
    return &m->links[command->message.channel * m->n_ranks + sender];
}

static bool merge_send(Merger *m, const Command *command) {
    Link *link = find_link(m, command);
    if (link->n_sent - link->n_received == command->message.n_slots) return false;
    push_copy(m->out, command, command->stream, command->message.slot, command->message.memory,
              m->arena);
    ARENA_PUSH(m->arena, link->slots, link->n_sent, link->capacity, command->message.slot);
    return true;
}

static bool merge_recv(Merger *m, const Command *command) {
    Link *link = find_link(m, command);
    if (link->n_sent == link->n_received) return false;
    push_copy(m->out, command, command->stream, command->message.memory,
              link->slots[link->n_received++], m->arena);
    return true;
}

/* All members must stand at a collective of the group; then one launch does it for all. */
static bool merge_collective(Merger *m, const Command *command) {
    const CollectiveCommand *first = &command->collective;
    int n = first->n_members, n_accesses = 0;
    const CollectiveCommand **members = ARENA_ARRAY(m->arena, const CollectiveCommand *, n);
    for (int k = 0; k < n; k++) {
        int rank = emit_group_member(m->plan, first->group, command->info.rank, k);
        const Merging *other = &m->ranks[rank];
        if (other->next == other->raw.count) return false;
        const Command *theirs = &other->raw.items[other->next];
        if (theirs->kind != COMMAND_COLLECTIVE || theirs->collective.group != first->group) {
            return false;
        }
        members[k] = &theirs->collective;
        n_accesses += theirs->n_accesses;
    }
    Command launch = *command;
    Access *accesses = ARENA_ARRAY(m->arena, Access, n_accesses);
    launch.kind = COMMAND_LAUNCH;
    launch.accesses = accesses;
    launch.n_accesses = n_accesses;
    if (!cuda_virtual_collective(members, n, m->arena, &launch.launch)) return false;
    for (int k = 0; k < n; k++) {
        int rank = emit_group_member(m->plan, first->group, command->info.rank, k);
        const Command *theirs = &m->ranks[rank].raw.items[m->ranks[rank].next];
        memcpy(accesses, theirs->accesses, (size_t)theirs->n_accesses * sizeof(*accesses));
        accesses += theirs->n_accesses;
        m->ranks[rank].next++;
    }
    command_list_push(m->out, &launch);
    return true;
}

/* Takes what rank r can do next; false: it waits for others. */
static bool merge_next(Merger *m, int r) {
    Merging *rank = &m->ranks[r];
    if (rank->next == rank->raw.count) return false;
    const Command *command = &rank->raw.items[rank->next];
    switch (command->kind) {
    case COMMAND_COLLECTIVE: return merge_collective(m, command);
    case COMMAND_SEND:
        if (!merge_send(m, command)) return false;
        break;
    case COMMAND_RECV:
        if (!merge_recv(m, command)) return false;
        break;
    default: command_list_push(m->out, command);
    }
    rank->next++;
    return true;
}

static bool merge(Merger *m, Diag *diag) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < m->n_ranks; r++) {
            while (merge_next(m, r)) moved = true;
        }
    }
    for (int r = 0; r < m->n_ranks; r++) {
        const Merging *rank = &m->ranks[r];
        if (rank->next == rank->raw.count) continue;
        const Command *stuck = &rank->raw.items[rank->next];
        diag_error(diag, stuck->info.node ? stuck->info.node->loc : NO_LOC,
                   "rank %d waits for ever at %s of micro-batch %d: no other rank comes to it", r,
                   command_kind_name(stuck->kind), stuck->info.micro);
        return false;
    }
    return true;
}

bool emit_virtual(const RankContext *ranks, int n_ranks, const EmitMemory *memory, EmitJob job,
                  struct KernelCache *generated, Arena *arena, CommandList *out, Diag *diag) {
    const Plan *plan = ranks[0].plan;
    Merger m = {.plan = plan, .arena = arena, .n_ranks = n_ranks, .out = out};
    m.ranks = ARENA_ARRAY(arena, Merging, n_ranks);
    m.links = ARENA_ARRAY(arena, Link, plan->n_channels * n_ranks + 1);
    bool fine = true;
    for (int r = 0; fine && r < n_ranks; r++) {
        fine = emit_walk(&ranks[r], memory, job, r == 0, generated, &m.ranks[r].raw, diag);
    }
    fine = fine && merge(&m, diag);
    for (int r = 0; r < n_ranks; r++) command_list_release(&m.ranks[r].raw);
    return fine;
}

int emit_group_member(const Plan *plan, int group, int rank, int k) {
    MeshCoord coord = mesh_coord(&plan->mesh, rank);
    if (group < N_MESH_GROUPS) {
        coord = mesh_member_coord(&plan->mesh, coord, group, k);
    } else {
        coord.at[MESH_P] = plan->comms[group - N_MESH_GROUPS].stages[k];
    }
    return mesh_rank(&plan->mesh, coord);
}

int emit_group_leader(const Plan *plan, int group, int rank) {
    return emit_group_member(plan, group, rank, 0);
}

const char *emit_group_name(const Plan *plan, int group) {
    return group < N_MESH_GROUPS ? mesh_axis_name(group) : plan->comms[group - N_MESH_GROUPS].name;
}
