#include "runtime/executor.h"

#include <stdlib.h>
#include <string.h>

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

void *executor_address(const RankContext *rank, Value value, int micro) {
    const Stage *stage = rank->stage;
    const Buffer *buffer = &rank->program->buffers[value_index(value)];
    int64_t base = 0;
    switch (buffer->region) {
    case REGION_PERSISTENT: base = stage->persistent_base; break;
    case REGION_FRAME:
        base = stage->frame_base[buffer->chunk] + micro % stage->frame_slots[buffer->chunk] *
                                                      rank->program->frame_bytes[buffer->chunk];
        break;
    case REGION_SCRATCH: base = stage->scratch_base; break;
    case REGION_NONE: BUG("a value without memory");
    }
    return rank->memory + base + buffer->offset_bytes;
}

int executor_block(const RankContext *rank, const Node *node) {
    return node->block == NO_BLOCK ? NO_BLOCK : rank->stage->first_block[node->chunk] + node->block;
}

static void set_capacity(CallList *list, int capacity) {
    size_t count = capacity ? (size_t)capacity : 1;
    list->calls = realloc(list->calls, count * sizeof(*list->calls));
    list->info = realloc(list->info, count * sizeof(*list->info));
    if (!list->calls || !list->info) BUG("out of memory for %d calls", capacity);
    list->capacity = capacity;
}

static void push(CallList *list, CpuCall call, CallInfo info) {
    if (list->count == list->capacity) set_capacity(list, list->count ? 2 * list->count : 256);
    list->info[list->count] = info;
    list->calls[list->count++] = call;
}

typedef struct CopyArgs {
    const HostBatch *batch;
    bool labels;
    int32_t *out;
    size_t offset, count;
} CopyArgs;

static bool run_copy_input(const void *args) {
    const CopyArgs *a = args;
    const int32_t *from = a->labels ? a->batch->labels : a->batch->tokens;
    memcpy(a->out, from + a->offset, a->count * sizeof(int32_t));
    return true;
}

/* This rank's rows of a micro-batch: samples micro * (b d) + coord.d * b ... of the global batch.
 */
static bool emit_input(RankContext *rank, CallList *list, const Node *node, int micro,
                       TaskKind kind, Diag *diag) {
    const Plan *plan = rank->plan;
    const char *name = node_string(node, ATTR_name);
    Type local = type_local(&node->types[0], &node->shardings[0], &plan->mesh);
    bool labels = strcmp(name, "labels") == 0;
    if ((!labels && strcmp(name, "tokens") != 0) || local.dtype != DTYPE_I32 || local.rank != 2 ||
        local.dims[0] != plan->micro_batch || local.dims[1] != plan->seq) {
        diag_error(diag, node->loc, "input '%s': inputs are tokens and labels, i32[batch, seq]",
                   name);
        return false;
    }
    CopyArgs *args = ARENA_NEW(rank->arena, CopyArgs);
    int d = rank->coord.at[MESH_D], n_d = plan->mesh.size[MESH_D];
    args->batch = rank->batch;
    args->labels = labels;
    args->out = executor_address(rank, node_value((Node *)node, 0), micro);
    args->offset =
        ((size_t)micro * (size_t)n_d + (size_t)d) * (size_t)plan->micro_batch * (size_t)plan->seq;
    args->count = (size_t)type_elements(&local);
    push(list, (CpuCall){run_copy_input, args}, (CallInfo){.micro = micro, .kind = kind});
    return true;
}

typedef struct MessageArgs {
    CommChannel *channel;
    void *slots, *memory;
    size_t slot_bytes, bytes;
} MessageArgs;

static bool run_send(const void *args) {
    const MessageArgs *a = args;
    return comm_channel_send(a->channel, a->slots, a->slot_bytes, a->memory, a->bytes);
}

static bool run_recv(const void *args) {
    const MessageArgs *a = args;
    return comm_channel_recv(a->channel, a->memory, a->bytes);
}

/* Values that one send task of the channel carries, at most. */
static int count_values(const Plan *plan, int channel) {
    const Channel *c = &plan->channels[channel];
    const Graph *graph = plan->programs[plan->stages[c->from].program].graph;
    Phase phase = c->backward ? PHASE_BACKWARD : PHASE_FORWARD;
    int most = 1;
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        int count = 0;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            count += node->op == OP_SEND && node->phase == phase && node->chunk == chunk;
        }
        if (count > most) most = count;
    }
    return most;
}

/* Where the channel's slots begin in the sender's message region: channels in plan order. */
static unsigned char *channel_memory(const RankContext *rank, int channel) {
    const Plan *plan = rank->plan;
    int64_t at = rank->stage->message_base;
    for (int i = 0; i < channel; i++) {
        const Channel *other = &plan->channels[i];
        if (other->from == rank->stage_number) at += other->slots * other->slot_bytes;
    }
    return rank->memory + at;
}

static bool emit_message(RankContext *rank, CallList *list, const Node *node, const Task *task,
                         bool send, Diag *diag) {
    int channel = plan_find_channel(rank->plan, rank->stage_number, task);
    if (channel < 0 || !rank->channels[channel]) {
        diag_error(diag, node->loc, "rank %d: %s%d.%d has no channel", rank->rank,
                   task_kind_word((TaskKind)task->kind), task->chunk, task->micro);
        return false;
    }
    MessageArgs *args = ARENA_NEW(rank->arena, MessageArgs);
    Value value = send ? node->inputs[0] : node_value((Node *)node, 0);
    args->channel = rank->channels[channel];
    args->memory = executor_address(rank, value, task->micro);
    args->bytes =
        (size_t)type_local_bytes(value_type(value), value_sharding(value), &rank->plan->mesh);
    if (send) {
        args->slots = channel_memory(rank, channel);
        args->slot_bytes =
            (size_t)(rank->plan->channels[channel].slot_bytes / count_values(rank->plan, channel));
    }
    CallInfo info = {.node = node, .micro = task->micro, .kind = (TaskKind)task->kind};
    if (!send) info.out[0] = args->memory;
    push(list, (CpuCall){send ? run_send : run_recv, args}, info);
    return true;
}

/* Is the value the first link of an accumulator chain? */
static bool is_first_share(const Node *node) {
    for (int o = 0; o < node->n_outputs; o++) {
        int alias = op_alias(node, o);
        if (alias >= 0 && node->inputs[alias].node->op == OP_ACCUMULATOR) return true;
    }
    return false;
}

static bool emit_node(RankContext *rank, CallList *list, const Node *node, const Task *task,
                      bool first_micro, Diag *diag) {
    const Program *program = rank->program;
    Binding b = {.graph = program->graph,
                 .node = node,
                 .arena = rank->arena,
                 .diag = diag,
                 .coord = rank->coord,
                 .block = executor_block(rank, node),
                 .micro = task->micro,
                 .n_micro = rank->plan->n_micro,
                 .overwrite = first_micro && is_first_share(node),
                 .state = &rank->state,
                 .products = rank->products,
                 .groups = &rank->groups};
    b.workspace = rank->workspace;
    void *few_in[8];
    Type few_types[8];
    bool few = node->n_inputs <= 8;
    b.in = few ? few_in : ARENA_ARRAY(rank->arena, void *, node->n_inputs);
    b.in_local = few ? few_types : ARENA_ARRAY(rank->arena, Type, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++) {
        Value input = node->inputs[i];
        b.in[i] = executor_address(rank, input, task->micro);
        b.in_local[i] = type_local(value_type(input), value_sharding(input), &rank->plan->mesh);
    }
    CallInfo info = {.node = node, .micro = task->micro, .kind = (TaskKind)task->kind};
    for (int o = 0; o < node->n_outputs; o++) {
        info.out[o] = b.out[o] = executor_address(rank, node_value((Node *)node, o), task->micro);
        b.out_local[o] = type_local(&node->types[o], &node->shardings[o], &rank->plan->mesh);
    }
    CpuCall call;
    if (!cpu_bind(&b, &call)) return false;
    push(list, call, info);
    return true;
}

static Phase task_phase(TaskKind kind) {
    switch (kind) {
    case TASK_RECV_FORWARD:
    case TASK_FORWARD:
    case TASK_SEND_FORWARD: return PHASE_FORWARD;
    case TASK_UPDATE: return PHASE_UPDATE;
    default: return PHASE_BACKWARD;
    }
}

static bool emit_task(RankContext *rank, CallList *list, const Task *task, bool first_micro,
                      Diag *diag) {
    const Graph *graph = rank->program->graph;
    TaskKind kind = (TaskKind)task->kind;
    bool send = kind == TASK_SEND_FORWARD || kind == TASK_SEND_BACKWARD;
    bool recv = kind == TASK_RECV_FORWARD || kind == TASK_RECV_BACKWARD;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool fine = true;
        if (node->op == OP_INPUT) {
            /* Inputs are there before the chunk's forward, whichever phase reads them. */
            if (kind == TASK_FORWARD && node->chunk == task->chunk) {
                fine = emit_input(rank, list, node, task->micro, kind, diag);
            }
        } else if (node->phase != task_phase(kind) ||
                   (kind != TASK_UPDATE && node->chunk != task->chunk)) {
            continue;
        } else if (node->op == OP_SEND || node->op == OP_RECV) {
            if (node->op == OP_SEND ? send : recv) {
                fine = emit_message(rank, list, node, task, send, diag);
            }
        } else if (!send && !recv && !(OPS[node->op].flags & LEAF) && node->op != OP_OUTPUT) {
            fine = emit_node(rank, list, node, task, first_micro, diag);
        }
        if (!fine) return false;
    }
    return true;
}

static bool emit_train(RankContext *rank, Diag *diag) {
    bool seen[2][MAX_CHUNKS] = {{false}};
    for (int t = 0; t < rank->stage->n_tasks; t++) {
        const Task *task = &rank->stage->tasks[t];
        bool first = false;
        if (task->kind == TASK_FORWARD || task->kind == TASK_BACKWARD) {
            bool *known = &seen[task->kind == TASK_BACKWARD][task->chunk];
            first = !*known;
            *known = true;
        }
        if (!emit_task(rank, &rank->train, task, first, diag)) return false;
    }
    return true;
}

static bool has_task(const RankContext *rank, TaskKind kind, int chunk) {
    for (int t = 0; t < rank->stage->n_tasks; t++) {
        if (rank->stage->tasks[t].kind == kind && rank->stage->tasks[t].chunk == chunk) return true;
    }
    return false;
}

/* Micro-batches one after the other through all chunks: no schedule is needed without backward. */
static bool emit_forward(RankContext *rank, Diag *diag) {
    static const TaskKind KINDS[] = {TASK_RECV_FORWARD, TASK_FORWARD, TASK_SEND_FORWARD};
    for (int micro = 0; micro < rank->plan->n_micro; micro++) {
        for (int c = 0; c < rank->plan->n_chunks; c++) {
            for (int k = 0; k < 3; k++) {
                Task task = {(uint8_t)KINDS[k], (uint8_t)c, micro};
                if (!has_task(rank, KINDS[k], c)) continue;
                if (!emit_task(rank, &rank->forward, &task, micro == 0, diag)) return false;
            }
        }
        if (micro == 0) rank->n_first = rank->forward.count;
    }
    return true;
}

bool executor_emit(RankContext *rank, Diag *diag) {
    rank->products = gemm_plans_create();
    if (!rank->products) BUG("out of memory");
    if (!emit_train(rank, diag) || !emit_forward(rank, diag)) return false;
    set_capacity(&rank->train, rank->train.count);
    set_capacity(&rank->forward, rank->forward.count);
    return true;
}

void executor_release(RankContext *rank) {
    free(rank->train.calls), free(rank->train.info);
    free(rank->forward.calls), free(rank->forward.info);
    rank->train = rank->forward = (CallList){0};
    gemm_plans_destroy(rank->products);
    rank->products = NULL;
}
