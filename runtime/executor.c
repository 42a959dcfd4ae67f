#include "runtime/executor.h"

#include "ir/reported.h"

#include <string.h>

RankContext rank_context(const Plan *plan, int rank, Arena *arena) {
    RankContext context = {.plan = plan, .rank = rank, .arena = arena};
    context.coord = mesh_coord(&plan->mesh, rank);
    context.stage_number = context.coord.at[MESH_P];
    context.stage = &plan->stages[context.stage_number];
    context.program = &plan->programs[context.stage->program];
    context.parts = program_workspace(context.program->graph, plan->cuda);
    context.slots = ARENA_ARRAY(arena, int32_t, (size_t)plan->n_chunks * (size_t)plan->n_micro);
    if (plan_frame_slots(plan, context.stage, context.slots) >= 0) BUG("too few frame slots");
    int64_t at = context.program->host_bytes;
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        context.slot_bytes[pool] = plan_slot_bytes(plan, context.stage, pool);
        context.host_slot_bytes[pool] = plan_host_slot_bytes(plan, context.stage, pool);
        context.host_frame_base[pool] = at;
        at += context.stage->frame_slots[pool] * context.host_slot_bytes[pool];
    }
    return context;
}

void rank_set_memory(RankContext *rank, void *memory) {
    rank->memory = memory;
    rank->workspace =
        rank->memory + rank->stage->scratch_base + rank->program->scratch_bytes - rank->parts.total;
}

static int value_index(Value value) {
    return value.node->id * MAX_OUTPUTS + value.output;
}

static int64_t frame_base(const RankContext *rank, int chunk, int micro, bool host) {
    int pool = rank->stage->frame_pool[chunk];
    int32_t slot = rank->slots[(size_t)chunk * (size_t)rank->plan->n_micro + (size_t)micro];
    return host ? rank->host_frame_base[pool] + slot * rank->host_slot_bytes[pool]
                : rank->stage->frame_base[pool] + slot * rank->slot_bytes[pool];
}

void *executor_address(const RankContext *rank, Value value, int micro) {
    const Stage *stage = rank->stage;
    const Buffer *buffer = &rank->program->buffers[value_index(value)];
    int64_t base = 0;
    switch (buffer->region) {
    case REGION_PERSISTENT: base = stage->persistent_base; break;
    case REGION_FRAME: base = frame_base(rank, buffer->chunk, micro, false); break;
    case REGION_SCRATCH: base = stage->scratch_base; break;
    case REGION_HOST: return rank->host + buffer->offset_bytes;
    case REGION_HOST_FRAME:
        return rank->host + frame_base(rank, buffer->chunk, micro, true) + buffer->offset_bytes;
    default: BUG("a value without memory");
    }
    return rank->memory + base + buffer->offset_bytes;
}

int executor_block(const RankContext *rank, const Node *node) {
    return node->block == NO_BLOCK ? NO_BLOCK : rank->stage->first_block[node->chunk] + node->block;
}

/* One walk: a rank, where it goes to, and whom to tell of mistakes. */
typedef struct Walk {
    const RankContext *rank;
    const Emitter *emitter;
    Diag *diag;
    bool forward_only;
} Walk;

/* All of it, as it is: what it is depends on the chunk, and nothing is divided. */
static bool emit_decode_input(const Walk *walk, const Node *node, const Task *task) {
    const RankContext *rank = walk->rank;
    int input = decode_input_find(node_string(node, ATTR_name));
    if (input < 0 || node->types[0].dtype != DTYPE_I32) {
        diag_error(walk->diag, node->loc, "input '%s': decoding has no such",
                   node_string(node, ATTR_name));
        return false;
    }
    InputSlice slice = {.decode = input + 1,
                        .rows = 1,
                        .count = type_elements(&node->types[0]),
                        .to = executor_address(rank, node_value((Node *)node, 0), task->micro)};
    CallInfo info = {.micro = task->micro, .chunk = task->chunk, .kind = (TaskKind)task->kind};
    return walk->emitter->input(walk->emitter->user, &slice, &info);
}

/* Where an input lies in a row of what the engine is given. */
typedef struct InputRow {
    bool labels;
    int64_t first, count, pitch; /* from `first` on, of rows of `pitch` */
} InputRow;

static bool find_row(const Plan *plan, const Node *node, InputRow *out) {
    const char *name = node_string(node, ATTR_name);
    int64_t source = plan_source(plan);
    *out = (InputRow){strcmp(name, "labels") == 0, 0, plan->seq, plan->seq};
    if (out->labels || token_numbers_find(name) < N_TOKEN_NUMBERS) return true;
    const int64_t pixels = plan_pixels(plan);
    out->pitch += source + pixels;
    out->first = source;
    if (strcmp(name, "tokens") == 0) return true;
    if (strcmp(name, "pixels") == 0) {
        out->first = source + plan->seq;
        out->count = pixels;
        return true;
    }
    out->first = 0;
    out->count = source;
    return strcmp(name, "source") == 0;
}

/* A number for each row, f32[batch]. */
static bool is_reference(const Plan *plan, const Node *node, const Type *local) {
    return strcmp(node_string(node, ATTR_name), INPUT_REFERENCE) == 0 &&
           local->dtype == DTYPE_F32 && local->rank == 1 && local->dims[0] == plan->micro_batch;
}

/* Samples micro * (b d e) + (coord.d * e + coord.e) * b ... of the global batch; c deals out their
 * positions. */
/* Are these all rows of a micro-batch, in lanes or not? */
static bool is_rows(const RankContext *rank, const Node *node, const Type *local) {
    const int64_t rows = rank->plan->micro_batch, lanes = local->rank == 3 ? local->dims[1] : 1;
    const AxisTable *axes = &rank->program->graph->axes;
    if (local->rank == 2) return local->dims[0] == rows;
    return local->rank == 3 &&
           local->axes[1] == axis_find(axes, AXIS_LANE, (int)strlen(AXIS_LANE)) &&
           node->types[0].dims[1] == lanes && lanes > 0 && rows % lanes == 0 &&
           local->dims[0] == rows / lanes;
}

/* Numbers of each position, of whose axis the type is rid then, if it has one; 0: it should. */
static int64_t take_width(const Plan *plan, TokenNumbers numbers, Type *local) {
    if (!token_numbers_axis(numbers)) return 1;
    const int last = local->rank - 1;
    if (last < 2 || local->dims[last] != plan_numbers_width(plan, numbers)) return 0;
    local->rank--;
    return local->dims[last];
}

/* Patches and their pixels as one axis; nothing divides either. */
static void join_pixels(const Node *node, Type *type) {
    const int last = type->rank - 1;
    if (strcmp(node_string(node, ATTR_name), "pixels") != 0 || last < 2) return;
    type->dims[last - 1] *= type->dims[last];
    type->rank--;
}

static bool emit_input(const Walk *walk, const Node *node, const Task *task) {
    const RankContext *rank = walk->rank;
    const Plan *plan = rank->plan;
    InputRow in;
    if (plan->context) return emit_decode_input(walk, node, task);
    const Type local = type_local(&node->types[0], &node->shardings[0], &plan->mesh);
    const TokenNumbers numbers = token_numbers_find(node_string(node, ATTR_name));
    Type rows = local,
         whole = node->types[0]; /* an element for each position, of `width` numbers */
    const int64_t width = take_width(plan, numbers, &rows);
    join_pixels(node, &rows);
    join_pixels(node, &whole);
    const int last = rows.rank - 1;
    bool reference = is_reference(plan, node, &local);
    const bool is_i32 = numbers == N_TOKEN_NUMBERS || numbers == TOKEN_STORED_WORDS;
    if (reference) {
        in = (InputRow){.count = 1, .pitch = 1};
    } else if (width == 0 || !find_row(plan, node, &in) || !is_rows(rank, node, &rows) ||
               local.dtype != (is_i32 ? DTYPE_I32 : DTYPE_F32) || whole.dims[last] != in.count) {
        diag_error(walk->diag, node->loc,
                   "input '%s': inputs are tokens and labels, i32[batch, seq], what an encoder "
                   "reads, source, i32[batch, source], numbers of labels, such as advantages, "
                   "f32[batch, seq], stored words and their logprobs, [batch, seq, stored], "
                   "images, pixels, i32[batch, patches, pixel], targets, f32[batch, seq, class], "
                   "all perhaps in lanes, and what another model said of a row, reference, "
                   "f32[batch]",
                   node_string(node, ATTR_name));
        return false;
    }
    int64_t row = (int64_t)task->micro * mesh_batch_parts(&plan->mesh) +
                  mesh_member(&plan->mesh, rank->coord, MESH_RDE);
    const int64_t first = row * plan->micro_batch * in.pitch + in.first; /* position */
    InputSlice slice = {.labels = in.labels,
                        .reference = reference,
                        .numbers = numbers < N_TOKEN_NUMBERS ? (int)numbers + 1 : 0,
                        .offset = first * width,
                        .rows = 1,
                        .count = type_elements(&local),
                        .to = executor_address(rank, node_value((Node *)node, 0), task->micro)};
    CallInfo info = {.micro = task->micro, .chunk = task->chunk, .kind = (TaskKind)task->kind};
    if (reference || rows.dims[last] == in.pitch) {
        return walk->emitter->input(walk->emitter->user, &slice, &info);
    }
    DimSpan span = type_span(&whole, last, node->shardings[0].mesh[last], &plan->mesh, rank->coord);
    slice.rows = plan->micro_batch;
    slice.pitch = in.pitch * width;
    slice.to_pitch = rows.dims[last] * width;
    int64_t run = span.split > 0 && span.split < rows.dims[last] ? span.split : rows.dims[last];
    int32_t *const to = slice.to;
    for (int64_t at = 0; at < rows.dims[last]; at += run) {
        slice.offset = (first + span_at(&span, at)) * width;
        slice.count = run * width;
        slice.to = to + at * width;
        if (!walk->emitter->input(walk->emitter->user, &slice, &info)) return false;
    }
    return true;
}

int executor_channel_slots(const Plan *plan, int channel) {
    return plan->channels[channel].slots * plan_channel_values(plan, channel);
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

static bool emit_message(const Walk *walk, const Node *node, const Task *task, bool send) {
    const RankContext *rank = walk->rank;
    const Plan *plan = rank->plan;
    int channel = plan_find_channel(plan, rank->stage_number, task);
    if (channel < 0) {
        diag_error(walk->diag, node->loc, "rank %d: %s%d.%d has no channel", rank->rank,
                   task_kind_word((TaskKind)task->kind), task->chunk, task->micro);
        return false;
    }
    Value value = send ? node->inputs[0] : node_value((Node *)node, 0);
    MessageSlice message = {
        .channel = channel,
        .send = send,
        .memory = executor_address(rank, value, task->micro),
        .bytes = (size_t)type_local_bytes(value_type(value), value_sharding(value), &plan->mesh),
        .n_slots = executor_channel_slots(plan, channel)};
    if (send) {
        message.slots = channel_memory(rank, channel);
        message.slot_bytes = (size_t)plan_channel_value_bytes(plan, channel);
    }
    CallInfo info = {
        .node = node, .micro = task->micro, .chunk = task->chunk, .kind = (TaskKind)task->kind};
    if (!send) info.out[0] = message.memory;
    return walk->emitter->message(walk->emitter->user, &message, &info, walk->diag);
}

/* Is the value the first link of an accumulator chain? */
static bool is_first_share(const Node *node) {
    for (int o = 0; o < node->n_outputs; o++) {
        int alias = op_alias(node, o);
        if (alias >= 0 && node->inputs[alias].node->op == OP_ACCUMULATOR) return true;
    }
    return false;
}

static bool emit_node(const Walk *walk, const Node *node, const Task *task, bool first_micro) {
    const RankContext *rank = walk->rank;
    const Program *program = rank->program;
    WorkspacePart part = node_workspace_part(node);
    Binding b = {.graph = program->graph,
                 .node = node,
                 .arena = rank->arena,
                 .diag = walk->diag,
                 .coord = rank->coord,
                 .block = executor_block(rank, node),
                 .micro = task->micro,
                 .n_micro = rank->plan->n_micro,
                 .overwrite = first_micro && is_first_share(node),
                 .workspace = rank->workspace + rank->parts.offset[part],
                 .workspace_bytes = rank->parts.bytes[part]};
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
    CallInfo info = {
        .node = node, .micro = task->micro, .chunk = task->chunk, .kind = (TaskKind)task->kind};
    for (int o = 0; o < node->n_outputs; o++) {
        info.out[o] = b.out[o] = executor_address(rank, node_value((Node *)node, o), task->micro);
        b.out_local[o] = type_local(&node->types[o], &node->shardings[o], &rank->plan->mesh);
    }
    return walk->emitter->node(walk->emitter->user, &b, &info);
}

static Phase task_phase(TaskKind kind) {
    switch (kind) {
    case TASK_RECV_FORWARD:
    case TASK_FORWARD:
    case TASK_SEND_FORWARD: return PHASE_FORWARD;
    case TASK_WEIGHTS: return PHASE_WEIGHTS;
    case TASK_UPDATE: return PHASE_UPDATE;
    default: return PHASE_BACKWARD;
    }
}

static bool emit_task(const Walk *walk, const Task *task, bool first_micro) {
    const Graph *graph = walk->rank->program->graph;
    TaskKind kind = (TaskKind)task->kind;
    bool send = kind == TASK_SEND_FORWARD || kind == TASK_SEND_BACKWARD;
    bool recv = kind == TASK_RECV_FORWARD || kind == TASK_RECV_BACKWARD;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool fine = true;
        if (node->op == OP_INPUT) {
            /* Inputs are there before the chunk's forward, whichever phase reads them. */
            if (kind == TASK_FORWARD && node->chunk == task->chunk) {
                fine = emit_input(walk, node, task);
            }
        } else if (node->phase != task_phase(kind) ||
                   (kind != TASK_UPDATE && node->chunk != task->chunk)) {
            continue;
        } else if (node->op == OP_SEND || node->op == OP_RECV) {
            if (node->op == OP_SEND ? send : recv) fine = emit_message(walk, node, task, send);
        } else if (node_is_once(node) && !first_micro) {
            continue; /* is there since the step's first */
        } else if (walk->forward_only && node->op == OP_OFFLOAD) {
            continue; /* nothing fetches it */
        } else if (!send && !recv && !(OPS[node->op].flags & LEAF) && node->op != OP_OUTPUT) {
            fine = emit_node(walk, node, task, first_micro);
        }
        if (!fine) return false;
    }
    return true;
}

bool executor_emit_train(const RankContext *rank, const Emitter *emitter, Diag *diag) {
    Walk walk = {rank, emitter, diag, false};
    bool seen[N_PHASES][MAX_CHUNKS] = {{false}};
    for (int t = 0; t < rank->stage->n_tasks; t++) {
        const Task *task = &rank->stage->tasks[t];
        bool first = false;
        if (task_is_work(task)) {
            bool *known = &seen[task_phase((TaskKind)task->kind)][task->chunk];
            first = !*known;
            *known = true;
        }
        if (!emit_task(&walk, task, first)) return false;
    }
    return true;
}

static bool has_task(const RankContext *rank, TaskKind kind, int chunk) {
    for (int t = 0; t < rank->stage->n_tasks; t++) {
        if (rank->stage->tasks[t].kind == kind && rank->stage->tasks[t].chunk == chunk) return true;
    }
    return false;
}

/* What forward-only work has behind a chunk's forward. */
static bool emit_reported(const Walk *walk, int chunk, int micro) {
    const Graph *graph = walk->rank->program->graph;
    Arena *scratch = arena_create();
    bool *reported = ARENA_ARRAY(scratch, bool, graph->n_nodes + 1);
    const Task task = {TASK_FORWARD, (uint8_t)chunk, micro};
    bool fine = true;
    graph_find_reported(graph, reported);
    for (int n = 0; fine && n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (!reported[n] || node->chunk != chunk) continue;
        if (node->op == OP_SEND || node->op == OP_RECV) {
            diag_error(walk->diag, node->loc,
                       "the loss is made of what another stage's backward sends");
            fine = false;
        } else {
            fine = emit_node(walk, node, &task, micro == 0);
        }
    }
    arena_destroy(scratch);
    return fine;
}

bool executor_emit_chunk(const RankContext *rank, int chunk, int micro, const Emitter *emitter,
                         Diag *diag) {
    static const TaskKind KINDS[] = {TASK_RECV_FORWARD, TASK_FORWARD, TASK_SEND_FORWARD};
    Walk walk = {rank, emitter, diag, true};
    for (int k = 0; k < 3; k++) {
        Task task = {(uint8_t)KINDS[k], (uint8_t)chunk, micro};
        if (!has_task(rank, KINDS[k], chunk)) continue;
        if (!emit_task(&walk, &task, micro == 0)) return false;
        if (KINDS[k] == TASK_FORWARD && !emit_reported(&walk, chunk, micro)) return false;
    }
    return true;
}

/* One micro-batch after the other: no schedule is needed without backward. */
bool executor_emit_forward(const RankContext *rank, int micro, const Emitter *emitter, Diag *diag) {
    for (int c = 0; c < rank->plan->n_chunks; c++) {
        if (!executor_emit_chunk(rank, c, micro, emitter, diag)) return false;
    }
    return true;
}
