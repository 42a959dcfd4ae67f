/* verify_plan against plans that are broken on purpose: each defect is found, and its message names
 * the stage and the culprit (task, value, channel, Lua line). A plan that passes here would hang a
 * cluster or train garbage. */
#include "planner/plan/plan_text.h"
#include "tests/unit/check.h"
#include "tests/unit/small_plan.h"

/* What the cases break: a pipeline of four with a tied weight on stages 0 and 3; an interleaved
 * one; one with tensor and data parallelism. */
static const SmallPlan PIPELINE = {"1f1b", 1, 1, 4, 1, 8, 8};
static const SmallPlan INTERLEAVED = {"interleaved", 1, 1, 2, 2, 4, 4};
static const SmallPlan PAIR = {"1f1b", 1, 1, 2, 1, 2, 2};
static const SmallPlan LONG_PAIR = {"1f1b", 1, 1, 2, 1, 8, 2};
static const SmallPlan SHARDED = {"1f1b", 2, 2, 2, 1, 2, 2};

static int find_task(const Stage *stage, TaskKind kind, int chunk, int micro) {
    for (int i = 0; i < stage->n_tasks; i++) {
        const Task *task = &stage->tasks[i];
        if (task->kind == kind && task->chunk == chunk && task->micro == micro) return i;
    }
    BUG("no such task");
}

static void remove_task(Stage *stage, int at) {
    stage->n_tasks--;
    memmove(&stage->tasks[at], &stage->tasks[at + 1], sizeof(Task) * (size_t)(stage->n_tasks - at));
}

static void swap_tasks(Stage *stage, int a, int b, int count) {
    for (int i = 0; i < count; i++) {
        Task held = stage->tasks[a + i];
        stage->tasks[a + i] = stage->tasks[b + i];
        stage->tasks[b + i] = held;
    }
}

static Program *program_of(Plan *plan, int stage) {
    return &plan->programs[plan->stages[stage].program];
}

/* The `number`-th node of the op in a stage's program. */
static Node *find_node(Plan *plan, int stage, OpKind op, int number) {
    Graph *graph = program_of(plan, stage)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op && number-- == 0) return graph->nodes[n];
    }
    BUG("no such node");
}

static Buffer *buffer_of(Plan *plan, int stage, Value value) {
    return &program_of(plan, stage)->buffers[value.node->id * MAX_OUTPUTS + value.output];
}

static Buffer *first_buffer(Plan *plan, int stage, OpKind op) {
    return buffer_of(plan, stage, node_value(find_node(plan, stage, op, 0), 0));
}

/* ---- The whole ---- */
static void wrong_batch(Plan *plan) {
    plan->global_batch++;
}
static void dropped_block(Plan *plan) {
    plan->n_blocks++;
}
static void shifted_blocks(Plan *plan) {
    plan->stages[2].first_block[0]++;
}
static void moved_block(Plan *plan) {
    plan->stages[1].n_blocks[0]++;
    plan->stages[2].n_blocks[0]--;
    plan->stages[2].first_block[0]++;
}
static void other_mesh(Plan *plan) {
    program_of(plan, 1)->graph->mesh.size[MESH_T] = 2;
}
static void missing_program(Plan *plan) {
    plan->stages[2].program = plan->n_programs;
}

static void no_sequence(Plan *plan) {
    plan->seq = 0;
}
static void no_vocabulary(Plan *plan) {
    plan->vocab = 0;
}
static void wide_vocabulary(Plan *plan) {
    plan->vocab = INT64_C(1) << 32; /* 0, as the number of a token */
}

static void other_vocabulary(Plan *plan) {
    plan->vocab += 1; /* data could have a token that no table has */
}

/* ---- Programs ---- */
static void other_sequence(Plan *plan) {
    plan->seq *= 2; /* data would be cut by it */
}
static void outside_region(Plan *plan) {
    first_buffer(plan, 0, OP_EMBEDDING)->offset_bytes = program_of(plan, 0)->frame_bytes[0];
}
static void unaligned(Plan *plan) {
    first_buffer(plan, 0, OP_PARAM)->offset_bytes += 4;
}
static void wrong_size(Plan *plan) {
    first_buffer(plan, 1, OP_MATMUL)->bytes -= 64;
}
static void wrong_region(Plan *plan) {
    first_buffer(plan, 1, OP_PARAM)->region = REGION_SCRATCH;
}
static void no_writer(Plan *plan) {
    /* An activation that the backward reads is no longer kept in a frame. */
    Node *reader = find_node(plan, 1, OP_GELU_GRAD, 0);
    Buffer *buffer = buffer_of(plan, 1, reader->inputs[0]);
    buffer->region = REGION_SCRATCH;
    buffer->offset_bytes = 0;
    program_of(plan, 1)->scratch_bytes = 1 << 20;
    for (int s = 0; s < plan->n_stages; s++) plan->stages[s].arena_bytes += 1 << 20;
}
static void in_workspace(Plan *plan) {
    /* The end of scratch belongs to the kernels. */
    Node *node = find_node(plan, 1, OP_RMSNORM_GRAD, 0);
    Buffer *buffer = buffer_of(plan, 1, node_value(node, 0));
    buffer->offset_bytes = program_of(plan, 1)->scratch_bytes - buffer->bytes;
}
static void composite(Plan *plan) {
    Node *node = find_node(plan, 3, OP_PICK, 0);
    node->op = OP_CROSS_ENTROPY;
    node->n_outputs = 2;
    node->types[1] = node->types[0];
    node->shardings[1] = node->shardings[0];
}
static void wrong_type(Plan *plan) {
    find_node(plan, 1, OP_GELU, 0)->types[0].dims[0]++;
}
static void early_all_reduce(Plan *plan) {
    find_node(plan, 0, OP_ALL_REDUCE, 0)->attrs[0].s = "p";
}

/* ---- Lifetimes ---- */
static void overlapping_parameters(Plan *plan) {
    Node *first = find_node(plan, 1, OP_PARAM, 1), *second = find_node(plan, 1, OP_PARAM, 2);
    Program *program = program_of(plan, 1);
    Value moved = node_value(second, 0);
    int64_t to = buffer_of(plan, 1, node_value(first, 0))->offset_bytes;
    int64_t from = buffer_of(plan, 1, moved)->offset_bytes;
    for (int i = 0; i < program->graph->n_nodes * MAX_OUTPUTS; i++) {
        Buffer *buffer = &program->buffers[i];
        if (buffer->region == REGION_PERSISTENT && buffer->offset_bytes == from) {
            buffer->offset_bytes = to;
        }
    }
}
static void overlapping_frames(Plan *plan) {
    Value kept = find_node(plan, 1, OP_GELU_GRAD, 0)->inputs[0];
    Value other = find_node(plan, 1, OP_RMSNORM, 0)->inputs[0];
    buffer_of(plan, 1, kept)->offset_bytes = buffer_of(plan, 1, other)->offset_bytes;
}
static void overlapping_scratch(Plan *plan) {
    Node *norm = find_node(plan, 1, OP_RMSNORM_GRAD, 0);
    buffer_of(plan, 1, node_value(norm, 1))->offset_bytes =
        buffer_of(plan, 1, node_value(norm, 0))->offset_bytes;
}
static void overwritten_square(Plan *plan) {
    /* The factor of gradients, where one's sum of squares lies that a run reads after the step. */
    Node *square = find_node(plan, 1, OP_SUMSQ, 0), *clip = find_node(plan, 1, OP_CLIP_SCALE, 0);
    buffer_of(plan, 1, node_value(clip, 0))->offset_bytes =
        buffer_of(plan, 1, node_value(square, 0))->offset_bytes;
}
static void results_in_one_place(Plan *plan) {
    Node *node = find_node(plan, 1, OP_GELU_GRAD, 0);
    node->op = OP_FUSED;
    node->n_attrs = 1;
    node->attrs = ARENA_NEW(plan->arena, Attr);
    node->attrs[0] = attr_string(ATTR_program, "t0=gelu_grad(i0,i1) t1=neg(t0) -> t0 t1");
    node->n_outputs = 2;
    node->types[1] = node->types[0];
    node->shardings[1] = node->shardings[0];
    *buffer_of(plan, 1, node_value(node, 1)) = *buffer_of(plan, 1, node_value(node, 0));
}
static void not_in_place(Plan *plan) {
    Node *node = find_node(plan, 1, OP_ADAMW, 0);
    buffer_of(plan, 1, node_value(node, 0))->offset_bytes =
        buffer_of(plan, 1, node_value(find_node(plan, 1, OP_ADAMW, 1), 0))->offset_bytes;
    buffer_of(plan, 1, node_value(node, 0))->offset_bytes += 64 * 64;
}
static void read_after_update(Plan *plan) {
    /* The second optimizer step takes the first one's old parameter as its gradient. */
    Node *first = find_node(plan, 1, OP_ADAMW, 1), *later = find_node(plan, 1, OP_ADAMW, 4);
    if (!type_equal(value_type(first->inputs[0]), value_type(later->inputs[1]))) BUG("shapes");
    later->inputs[1] = first->inputs[0];
}

/* ---- Stages ---- */
static void small_arena(Plan *plan) {
    plan->stages[2].arena_bytes -= ALIGN_BYTES;
}
static void overlapping_regions(Plan *plan) {
    plan->stages[1].scratch_base = plan->stages[1].message_base;
}
static void small_message_region(Plan *plan) {
    plan->stages[1].message_bytes -= ALIGN_BYTES;
}
static void few_frame_slots(Plan *plan) {
    plan->stages[0].frame_slots[0]--;
}
static void no_frame_slots(Plan *plan) {
    plan->stages[3].frame_slots[0] = 0;
}
static void no_such_pool(Plan *plan) {
    plan->stages[2].frame_pool[0] = 1;
}
static void task_twice(Plan *plan) {
    Stage *stage = &plan->stages[3];
    stage->tasks[find_task(stage, TASK_FORWARD, 0, 3)].micro = 2;
}
static void missing_backward(Plan *plan) {
    Stage *stage = &plan->stages[3];
    int at = find_task(stage, TASK_BACKWARD, 0, 7);
    remove_task(stage, at);
    remove_task(stage, at);
}
static void backward_first(Plan *plan) {
    Stage *stage = &plan->stages[3]; /* rf F B sb */
    swap_tasks(stage, find_task(stage, TASK_FORWARD, 0, 2), find_task(stage, TASK_BACKWARD, 0, 2),
               1);
}
static void missing_send(Plan *plan) {
    remove_task(&plan->stages[1], find_task(&plan->stages[1], TASK_SEND_FORWARD, 0, 5));
}
static void missing_receive(Plan *plan) {
    remove_task(&plan->stages[2], find_task(&plan->stages[2], TASK_RECV_BACKWARD, 0, 5));
}
static void late_send(Plan *plan) {
    Stage *stage = &plan->stages[1];
    int at = find_task(stage, TASK_SEND_FORWARD, 0, 0);
    swap_tasks(stage, at, at + 1, 1);
}
static void early_update(Plan *plan) {
    Stage *stage = &plan->stages[0];
    swap_tasks(stage, stage->n_tasks - 1, stage->n_tasks - 2, 1);
}
static void no_update(Plan *plan) {
    plan->stages[0].n_tasks--;
}
static void unknown_micro(Plan *plan) {
    plan->stages[0].tasks[0].micro = 99;
}

/* ---- Messages ---- */
static void swapped_messages(Plan *plan) {
    /* Stage 1 runs (rf F sf) of micro-batch 1 before that of 0; its peers do not. */
    Stage *stage = &plan->stages[1];
    swap_tasks(stage, find_task(stage, TASK_RECV_FORWARD, 0, 0),
               find_task(stage, TASK_RECV_FORWARD, 0, 1), 3);
}
static void wrong_peer(Plan *plan) {
    plan->channels[0].to = 2;
}
static void twin_channels(Plan *plan) {
    plan->channels[0].slots = 1; /* so that both fit the sender's memory */
    plan->channels[2] = plan->channels[0];
}
static void small_slot(Plan *plan) {
    plan->channels[0].slot_bytes -= ALIGN_BYTES;
}
static void missing_recv_node(Plan *plan) {
    find_node(plan, 1, OP_RECV, 0)->phase = PHASE_FORWARD;
    Node *node = find_node(plan, 0, OP_SEND, 0);
    node->op = OP_OUTPUT;
    node->attrs[0] = attr_string(ATTR_name, "lost");
}
static void wrong_source(Plan *plan) {
    find_node(plan, 1, OP_RECV, 0)->attrs[0].i = 3;
}
static void sent_as_other_type(Plan *plan) {
    /* Stage 0 sends what lies in memory as [batch, seq, ffn]: a value of another type. */
    find_node(plan, 0, OP_SEND, 0)->inputs[0] = node_value(find_node(plan, 0, OP_GELU, 0), 0);
    for (int c = 0; c < plan->n_channels; c++) plan->channels[c].slot_bytes *= 2;
    for (int s = 0; s < plan->n_stages; s++) {
        plan->stages[s].message_bytes *= 2;
        plan->stages[s].scratch_base = plan->stages[s].arena_bytes;
        plan->stages[s].arena_bytes += 1 << 20;
        plan->stages[s].message_base = plan->stages[s].arena_bytes - (1 << 19);
    }
}

/* ---- Across stages ---- */
static void wrong_members(Plan *plan) {
    plan->comms[0].stages[1] = 2;
}
static void unknown_comm(Plan *plan) {
    plan->comms[0].name = "tied/other";
}
static void missing_member_call(Plan *plan) {
    Node *node = find_node(plan, 3, OP_STAGE_REDUCE, 0);
    node->op = OP_SCALE;
    node->attrs[0] = attr_float(ATTR_value, 1);
}
static void tied_otherwise(Plan *plan) {
    Node *param = NULL;
    for (int n = 0; !param; n++) {
        param = find_node(plan, 3, OP_PARAM, n);
        if (strcmp(node_string(param, ATTR_name), "wte") != 0) param = NULL;
    }
    for (int i = 0; i < param->n_attrs; i++) {
        if (param->attrs[i].key == ATTR_std) param->attrs[i].f *= 2;
    }
}

static void untied(Plan *plan) {
    for (int s = 0; s < 4; s += 3) {
        Node *node = find_node(plan, s, OP_STAGE_REDUCE, 0);
        node->op = OP_ALL_REDUCE;
        node->attrs[0] = attr_string(ATTR_mesh, "t");
    }
}
static void same_name(Plan *plan) {
    find_node(plan, 1, OP_PARAM, 2)->attrs[0].s = "blocks.#.up";
}
/* As if it were the block before the first of its chunk: -1 is NO_BLOCK. */
static void no_block(Plan *plan) {
    Graph *graph = program_of(plan, 1)->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (strcmp(node_string(node, ATTR_name), "blocks.#.up") == 0) node->block = NO_BLOCK;
    }
}
static void lost_owner(Plan *plan) {
    Node *node = find_node(plan, 1, OP_STATE, 0);
    node->attrs[node->n_attrs - 1].s = "blocks.#.nothing";
}
/* ---- Waiting for each other ---- */
static void move_node(Program *program, int from, int to) {
    Graph *graph = program->graph;
    Buffer held[MAX_OUTPUTS];
    Node *node = graph->nodes[from];
    size_t bytes = sizeof(held);
    memcpy(held, &program->buffers[from * MAX_OUTPUTS], bytes);
    for (int n = from; n < to; n++) {
        graph->nodes[n] = graph->nodes[n + 1];
        memcpy(&program->buffers[n * MAX_OUTPUTS], &program->buffers[(n + 1) * MAX_OUTPUTS], bytes);
    }
    graph->nodes[to] = node;
    memcpy(&program->buffers[to * MAX_OUTPUTS], held, bytes);
    for (int n = from; n <= to; n++) graph->nodes[n]->id = n;
}

/* Stage 0 sums the tied gradient, then the norm; stage 3 the other way round. */
static void opposite_collectives(Plan *plan) {
    Node *tied = find_node(plan, 3, OP_STAGE_REDUCE, 0);
    Node *norm = find_node(plan, 3, OP_ALL_REDUCE, 0);
    int64_t *scratch_bytes = &program_of(plan, 3)->scratch_bytes;
    Buffer *buffer = buffer_of(plan, 3, node_value(tied, 0));
    /* Memory of its own, since it lives elsewhen; the kernels' workspace stays behind it. */
    buffer->region = REGION_SCRATCH;
    buffer->offset_bytes = *scratch_bytes;
    *scratch_bytes += 1 << 16;
    plan->stages[3].arena_bytes += 1 << 16;
    move_node(program_of(plan, 3), tied->id, norm->id);
}

static void set_tasks(Plan *plan, int stage, const char *text, int slots) {
    Diag *diag = diag_create();
    PlanReader reader = {.at = text, .line = 1, .arena = plan->arena, .diag = diag};
    Stage *s = &plan->stages[stage];
    if (!plan_reader_tasks(&reader, plan->n_micro, 1, &s->tasks, &s->n_tasks)) {
        BUG("%s", diag_text(diag));
    }
    diag_destroy(diag);
    s->frame_slots[0] = slots;
    s->frame_base[0] = s->arena_bytes;
    s->arena_bytes += slots * program_of(plan, stage)->frame_bytes[0];
}

/* Stage 0 wants the first gradient before it sends its second activation; stage 1 wants two
 * activations before it starts a backward. Both agree on every channel's order. */
static void crossed_waits(Plan *plan) {
    set_tasks(plan, 0, "2x(F0.0 sf0.0 rb0.0 B0.0)+1 U", 1);
    set_tasks(plan, 1, "2x(rf0.0 F0.0)+1 2x(B0.0 sb0.0)+1 U", 2);
}

/* Stage 0 runs GPipe, stage 1 1F1B: its gradients fill the channel, then it stops taking. */
static void full_channels(Plan *plan) {
    set_tasks(plan, 0, "8x(F0.0 sf0.0)+1 8x(rb0.0 B0.0)+1 U", 8);
}

/* ---- Copies in bf16 ---- */
static Node *nth_update_with_copy(Plan *plan, int number) {
    for (int i = 0;; i++) {
        Node *node = find_node(plan, 1, OP_ADAMW, i);
        if (node->n_inputs == 8 && number-- == 0) return node;
    }
}

static void copy_not_written(Plan *plan) {
    Node *update = nth_update_with_copy(plan, 0);
    update->n_inputs--;
    update->n_outputs--;
}

/* Up-projections of two blocks: of one shape. */
static void swapped_copies(Plan *plan) {
    Node *a = nth_update_with_copy(plan, 0), *b = nth_update_with_copy(plan, 2);
    Value held = a->inputs[7];
    a->inputs[7] = b->inputs[7];
    b->inputs[7] = held;
}

static void copies_in_f32_plan(Plan *plan) {
    plan->precision = DTYPE_F32;
}

static void rounded_master(Plan *plan) {
    find_node(plan, 1, OP_PARAM, 1)->types[0].dtype = DTYPE_BF16;
}

typedef struct Case {
    const char *name;
    const SmallPlan *shape;
    void (*damage)(Plan *plan);
    const char *message, *also; /* both must be in the report */
} Case;

static const Case CASES[] = {
    {"batch that does not multiply out", &PIPELINE, wrong_batch, "global batch 17 is not", ""},
    {"no sequence", &PIPELINE, no_sequence, "sequences of 0 tokens, a vocabulary of 64: out of",
     ""},
    {"no vocabulary", &PIPELINE, no_vocabulary,
     "8 tokens, a vocabulary of 0: out of range, 1 to 2147483647", ""},
    {"vocabulary of more than tokens have", &PIPELINE, wide_vocabulary,
     "a vocabulary of 4294967296: out of range, 1 to 2147483647", ""},
    {"vocabulary of other tables", &PIPELINE, other_vocabulary, "words, the plan of ",
     "stage 0 (rank 0)"},
    {"inputs of another length", &PIPELINE, other_sequence,
     "input 'tokens' is no sequence of 16, as the plan says", "stage 0 (rank 0)"},
    {"block on no stage", &PIPELINE, dropped_block, "blocks 8 to 8 of the model are on no stage",
     ""},
    {"blocks that skip one", &PIPELINE, shifted_blocks, "stage 2 (rank 2): chunk 0 holds blocks 5",
     "block 4 of 8 comes next"},
    {"block that another stage computes", &PIPELINE, moved_block, "stage 1 (rank 1): program 1 has",
     "no forward nodes of block 4"},
    {"program of another mesh", &PIPELINE, other_mesh, "stage 1 (rank 1): its program is made for",
     ""},
    {"program that is not there", &PIPELINE, missing_program, "stage 2 (rank 2): there is no", ""},
    {"buffer outside its region", &PIPELINE, outside_region, "%2 embedding: bytes ",
     "are outside its region: frame has "},
    {"unaligned buffer", &PIPELINE, unaligned, "stage 0 (rank 0): 'wte': offset 4 is no multiple",
     "fixture.lua:"},
    {"buffer of another size", &PIPELINE, wrong_size, "matmul: its buffer has 1984 bytes, its type",
     "2048"},
    {"parameter in scratch", &PIPELINE, wrong_region, "lives across steps but lies in the scratch",
     "'blocks.2.norm'"},
    {"read without a writer", &PIPELINE, no_writer, "which no one writes there: it is made in",
     "gelu_grad: in backward(0) reads %"},
    {"value in the kernels' workspace", &PIPELINE, in_workspace, "rmsnorm_grad: bytes",
     "outside its region: scratch has"},
    {"op without a kernel", &PIPELINE, composite, "cross_entropy: no kernel does this op",
     "stage 3 (rank 3)"},
    {"type that inference does not give", &PIPELINE, wrong_type, "gelu: result 0 has another type",
     "fixture.lua:"},
    {"pipeline-wide collective in a forward", &SHARDED, early_all_reduce,
     "over the pipeline there is only all_reduce, in the update", "stage 0 (ranks 0-3)"},
    {"overlapping parameters", &PIPELINE, overlapping_parameters,
     "'blocks.2.up' and 'blocks.2.down' overlap", "of persistent, alive together"},
    {"overlapping activations", &PIPELINE, overlapping_frames, "overlap: bytes", "of frame"},
    {"overlapping scratch", &PIPELINE, overlapping_scratch, "rmsnorm_grad", "of scratch"},
    {"a gradient's size overwritten", &PIPELINE, overwritten_square, "sumsq and %",
     "clip_scale overlap"},
    {"two results in one operand's place", &PIPELINE, results_in_one_place, "overlap: bytes",
     "fused"},
    {"update beside its operand", &PIPELINE, not_in_place, "must update 'blocks.2.", "in place"},
    {"parameter read after its update", &PIPELINE, read_after_update, "adamw reads 'blocks.2.up'",
     "adamw has overwritten in place"},
    {"arena too small", &PIPELINE, small_arena, "stage 2 (rank 2): region 'scratch'",
     "does not fit the arena"},
    {"overlapping regions", &PIPELINE, overlapping_regions, "stage 1 (rank 1): regions '",
     "overlap"},
    {"no room for messages", &PIPELINE, small_message_region, "stage 1 (rank 1): region 'messages'",
     "slots need"},
    {"too few frame slots", &PIPELINE, few_frame_slots, "all 3 frame slots of pool 0 are taken",
     "stage 0 (rank 0): task 6, F0.3"},
    {"no frame slots", &PIPELINE, no_frame_slots, "all 0 frame slots of pool 0",
     "stage 3 (rank 3)"},
    {"no such frame pool", &PIPELINE, no_such_pool, "chunk 0's frames are in pool 1 of 1",
     "stage 2 (rank 2)"},
    {"task twice", &PIPELINE, task_twice, "stage 3 (rank 3): task 13, F0.2: runs a second time",
     "F0.3 never runs"},
    {"task missing", &PIPELINE, missing_backward, "stage 3 (rank 3): B0.7 never runs", ""},
    {"backward before forward", &PIPELINE, backward_first, "B0.2: runs before its forward",
     "stage 3 (rank 3)"},
    {"missing send", &PIPELINE, missing_send, "F0.5: no send (sf) directly after it",
     "stage 1 (rank 1)"},
    {"missing receive", &PIPELINE, missing_receive, "B0.5: no receive (rb) directly before it",
     "stage 2 (rank 2)"},
    {"send in the wrong place", &PIPELINE, late_send, "sf0.0: is not beside its task F0.0",
     "stage 1 (rank 1)"},
    {"update before the end", &PIPELINE, early_update, "U: the update is not the last task", ""},
    {"no update", &PIPELINE, no_update, "the last task is not the update", "stage 0 (rank 0)"},
    {"micro-batch that is not there", &PIPELINE, unknown_micro, "task 0, F0.99: there are 1 chunks",
     ""},
    {"swapped messages", &PIPELINE, swapped_messages,
     "channel forward 0->1: message 0 is sf0.0 of stage 0 (rank 0), but rf0.1 of stage 1 (rank 1)",
     ""},
    {"swapped messages between chunks", &INTERLEAVED, swapped_messages, "channel forward 0->1", ""},
    {"wrong peer", &PIPELINE, wrong_peer, "channel forward 0->2: joins stages that are no neighbo",
     "stage 0 (rank 0): task 1, sf0.0: there is no channel for it"},
    {"channel twice", &PIPELINE, twin_channels, "is there twice", "there is no channel for it"},
    {"slot too small", &PIPELINE, small_slot, "sends does not fit its part of the slot, 768 bytes",
     "fixture.lua:"},
    {"value received but not sent", &PIPELINE, missing_recv_node,
     "stage 0 (rank 0) sends 0 values forward from chunk 0, stage 1 (rank 1) receives 1", "recv"},
    {"value under another number", &PIPELINE, wrong_source, "stage 0 (rank 0) sends value 0 (%",
     "where stage 1 (rank 1) receives value 3"},
    {"another type at the other end", &PIPELINE, sent_as_other_type, "ffn=32], stage 1 (rank 1)",
     "model=16]"},
    {"communicator with other members", &PIPELINE, wrong_members, "stage_reduce: is no member",
     "stage 3 (rank 3)"},
    {"communicator that is not there", &PIPELINE, unknown_comm,
     "stage_reduce: there is no communicator 'tied/wte'", ""},
    {"member that does not call", &PIPELINE, missing_member_call,
     "communicator 'tied/wte': call 0 is stage_reduce %", "but no call of stage 3 (rank 3)"},
    {"tied weight that begins in two ways", &PIPELINE, tied_otherwise,
     "'wte' begins or learns in another way than on stage 0", ""},
    {"tied weight that comes apart", &PIPELINE, untied, "'wte' is on 2 stages, but its gradient",
     "stage 0 (rank 0)"},
    {"two parameters of one name", &PIPELINE, same_name, "two values are called 'blocks.2.up'",
     "stage 1 (rank 1)"},
    {"state without its parameter", &PIPELINE, lost_owner,
     "belongs to 'blocks.2.nothing', which is not here", "stage 1 (rank 1)"},
    {"weight of a block that is of no block", &PIPELINE, no_block,
     "stage 1 (rank 1): 'blocks.#.up' is called like a block's value, and is of no block",
     "fixture.lua:"},
    {"collectives in opposite order", &PIPELINE, opposite_collectives,
     "deadlock: stage 0 (rank 0) waits for ever; who waits for whom:\n  note: fixture.lua:",
     "stage_reduce over 'tied/wte', waits for stage 3 (rank 3)"},
    {"tasks that wait for each other", &PAIR, crossed_waits,
     "note: stage 0 (rank 0), task 2, rb0.0, channel backward 1->0 with 0 of 2 slots in use, waits "
     "for stage 1 (rank 1)",
     "note: stage 1 (rank 1), task 2, rf0.1, channel forward 0->1 with 0 of 2 slots in use, waits "
     "for stage 0 (rank 0)"},
    {"channels too short for the order", &LONG_PAIR, full_channels,
     "channel forward 0->1 with 2 of 2 slots in use, waits for stage 1 (rank 1)",
     "channel backward 1->0 with 2 of 2 slots in use, waits for stage 0 (rank 0)"},
};

static const Case LOW_CASES[] = {
    {"copy that no update writes", &PIPELINE, copy_not_written,
     "the update of 'blocks.2.up' does not write its copy 'blocks.2.up.bf16'", "stage 1 (rank 1)"},
    {"copies of each other's weights", &PIPELINE, swapped_copies,
     "adamw must update 'blocks.3.up.bf16' in place, and may not here", "stage 1 (rank 1)"},
    {"copies in a plan of f32", &PIPELINE, copies_in_f32_plan,
     "'blocks.2.up.bf16' is a copy in bf16, the plan's precision is f32", "stage 1 (rank 1)"},
    {"parameter that is not f32", &PIPELINE, rounded_master, "operand 1 is bf16; it must be f32",
     "adamw"},
};

static void test_case(const Case *c) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(c->name);
    Plan *plan = small_plan(arena, *c->shape, diag);
    CHECK(plan && verify_plan(plan, diag), "the plan was broken before: %s", diag_text(diag));
    if (plan) {
        c->damage(plan);
        CHECK(!verify_plan(plan, diag), "not found");
        CHECK(strstr(diag_text(diag), c->message), "%s", diag_text(diag));
        CHECK(strstr(diag_text(diag), c->also), "%s", diag_text(diag));
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) test_case(&CASES[i]);
    small_precision = DTYPE_BF16;
    for (size_t i = 0; i < sizeof(LOW_CASES) / sizeof(LOW_CASES[0]); i++) test_case(&LOW_CASES[i]);
    return check_report();
}
