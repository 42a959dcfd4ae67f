/* Reads the text that plan.c writes. The text is untrusted: every number has a range, every
 * index is checked, and memory asked for stays in proportion to the text (plan_tasks.c bounds the
 * runs). What the plan means is verify_plan's business. */
#include "planner/plan/plan_text.h"

#include "planner/plan/schedule.h"

#include <inttypes.h>
#include <string.h>

static bool read_ints(PlanReader *reader, const char *name, int most, int *items, int count) {
    plan_reader_expect(reader, name);
    for (int i = 0; i < count && !reader->failed; i++) {
        plan_reader_expect(reader, i ? "," : "=");
        plan_reader_int32(reader, 0, most, &items[i]);
    }
    return plan_reader_end_line(reader);
}

static bool read_sizes(PlanReader *reader, const char *name, int64_t *items, int count) {
    plan_reader_expect(reader, name);
    for (int i = 0; i < count && !reader->failed; i++) {
        plan_reader_expect(reader, i ? "," : "=");
        plan_reader_int(reader, 0, MAX_SIZE_BYTES, &items[i]);
    }
    return plan_reader_end_line(reader);
}

static bool read_doubles(PlanReader *reader, const char *name, double *items, int count) {
    plan_reader_expect(reader, name);
    for (int i = 0; i < count && !reader->failed; i++) {
        plan_reader_expect(reader, i ? "," : "=");
        plan_reader_double(reader, &items[i]);
    }
    return plan_reader_end_line(reader);
}

static void read_precision(PlanReader *reader, DType *out) {
    int length = (int)strspn(reader->at, "abcdefghijklmnopqrstuvwxyz0123456789");
    int dtype = dtype_find(reader->at, length);
    if (dtype < 0 || !dtype_is_precision((DType)dtype)) {
        plan_reader_fail(reader, "expected a precision, f32, bf16, f16 or fp8");
        return;
    }
    reader->at += length;
    *out = (DType)dtype;
}

static void read_recompute(PlanReader *reader, Recompute *out) {
    int length = (int)strspn(reader->at, "abcdefghijklmnopqrstuvwxyz");
    int mode = recompute_mode_find(reader->at, length);
    if (mode < 0) {
        plan_reader_fail(reader, "expected what is recomputed: none, selective or full");
        return;
    }
    reader->at += length;
    *out = (Recompute)mode;
}

static void read_path(PlanReader *reader, PathKind *out) {
    for (int kind = 0; kind < N_PATH_KINDS; kind++) {
        if (!plan_reader_accept(reader, path_name((PathKind)kind))) continue;
        *out = (PathKind)kind;
        return;
    }
    plan_reader_fail(reader, "expected the path of micro-batches: line, loop or v");
}

static bool read_field(PlanReader *reader, Plan *plan, const PlanField *field) {
    void *at = (char *)plan + field->offset;
    int64_t number = 0;
    plan_reader_expect(reader, field->name);
    if (!plan_reader_expect(reader, "=")) return false;
    switch (field->kind) {
    case FIELD_INT:
        plan_reader_int(reader, 0, field->most, &number);
        *(int *)at = (int)number;
        break;
    case FIELD_INT64: plan_reader_int(reader, 0, field->most, at); break;
    case FIELD_UINT64: plan_reader_uint64(reader, at); break;
    case FIELD_DOUBLE: plan_reader_double(reader, at); break;
    case FIELD_BOOL:
        plan_reader_int(reader, 0, 1, &number);
        *(bool *)at = number != 0;
        break;
    case FIELD_PRECISION: read_precision(reader, at); break;
    case FIELD_RECOMPUTE: read_recompute(reader, at); break;
    case FIELD_PATH: read_path(reader, at); break;
    case FIELD_TEXT: *(const char **)at = plan_reader_quoted(reader); break;
    }
    return plan_reader_end_line(reader);
}

static bool read_fingerprint(PlanReader *reader, uint64_t *out) {
    *out = 0;
    if (!plan_reader_expect(reader, "fingerprint=")) return false;
    for (int i = 0; i < 16; i++, reader->at++) {
        static const char DIGITS[] = "0123456789abcdef";
        const char *digit = *reader->at ? strchr(DIGITS, *reader->at) : NULL;
        if (!digit) return plan_reader_fail(reader, "expected 16 hexadecimal digits");
        *out = *out << 4 | (uint64_t)(digit - DIGITS);
    }
    return plan_reader_end_line(reader);
}

static bool read_channel(PlanReader *reader, const Plan *plan, Channel *channel) {
    int p = plan->mesh.size[MESH_P];
    if (!plan_reader_expect(reader, "channel ")) return false;
    channel->backward = plan_reader_accept(reader, "backward ");
    if (!channel->backward && !plan_reader_expect(reader, "forward ")) return false;
    plan_reader_int32(reader, 0, p - 1, &channel->from);
    plan_reader_expect(reader, "->");
    plan_reader_int32(reader, 0, p - 1, &channel->to);
    plan_reader_expect(reader, "slots=");
    plan_reader_int32(reader, 1, MAX_MICRO * MAX_CHUNKS, &channel->slots);
    plan_reader_expect(reader, "slot_bytes=");
    plan_reader_int(reader, 0, MAX_SIZE_BYTES, &channel->slot_bytes);
    return plan_reader_end_line(reader);
}

static bool read_comm(PlanReader *reader, const Plan *plan, StageComm *comm) {
    int capacity = 0, p = plan->mesh.size[MESH_P];
    plan_reader_expect(reader, "comm ");
    comm->name = plan_reader_quoted(reader);
    plan_reader_expect(reader, "stages=");
    while (!reader->failed) {
        int stage;
        if (!plan_reader_int32(reader, 0, p - 1, &stage)) return false;
        if (comm->n_stages == p) return plan_reader_fail(reader, "more members than stages");
        ARENA_PUSH(reader->arena, comm->stages, comm->n_stages, capacity, stage);
        if (!plan_reader_accept(reader, ",")) break;
    }
    return plan_reader_end_line(reader);
}

/* %7.1 frame1 activation 64+256 */
static bool read_buffer(PlanReader *reader, const Plan *plan, int node, int output, Buffer *b) {
    int at_node, at_output = 0;
    plan_reader_expect(reader, "%");
    if (!plan_reader_int32(reader, 0, 1 << 30, &at_node)) return false;
    if (plan_reader_accept(reader, ".") &&
        !plan_reader_int32(reader, 1, MAX_OUTPUTS - 1, &at_output)) {
        return false;
    }
    if (at_node != node || at_output != output) {
        return plan_reader_fail(reader, "expected the buffer of %%%d, result %d", node, output);
    }
    if (plan_reader_accept(reader, "persistent ")) {
        b->region = REGION_PERSISTENT;
    } else if (plan_reader_accept(reader, "scratch ")) {
        b->region = REGION_SCRATCH;
    } else if (plan_reader_accept(reader, "host ")) {
        b->region = REGION_HOST;
    } else if (plan_reader_accept(reader, "none ")) {
        b->region = REGION_NONE;
    } else {
        b->region = plan_reader_accept(reader, "host_frame") ? REGION_HOST_FRAME : REGION_FRAME;
        if (b->region == REGION_FRAME) plan_reader_expect(reader, "frame");
        if (!plan_reader_int32(reader, 0, plan->n_chunks - 1, &b->chunk)) return false;
    }
    int kind = 0;
    while (kind < N_BUFFER_CLASSES && !plan_reader_accept(reader, buffer_class_name(kind))) {
        kind++;
    }
    if (kind == N_BUFFER_CLASSES) return plan_reader_fail(reader, "expected a buffer's class");
    b->class = (BufferClass)kind;
    plan_reader_int(reader, 0, MAX_SIZE_BYTES, &b->offset_bytes);
    plan_reader_expect(reader, "+");
    plan_reader_int(reader, 0, MAX_SIZE_BYTES, &b->bytes);
    return plan_reader_end_line(reader);
}

static bool read_header_line(PlanReader *reader, const char *word, int index) {
    int number;
    plan_reader_expect(reader, word);
    if (!plan_reader_int32(reader, 0, MAX_STAGES, &number)) return false;
    if (number != index) return plan_reader_fail(reader, "expected %s%d", word, index);
    plan_reader_expect(reader, "{");
    return plan_reader_end_line(reader);
}

static bool read_closing(PlanReader *reader) {
    plan_reader_expect(reader, "}");
    return plan_reader_end_line(reader);
}

static bool read_program(PlanReader *reader, const Plan *plan, int index, Program *program) {
    if (!read_header_line(reader, "program ", index)) return false;
    read_sizes(reader, "persistent_bytes", &program->persistent_bytes, 1);
    read_sizes(reader, "scratch_bytes", &program->scratch_bytes, 1);
    read_sizes(reader, "host_bytes", &program->host_bytes, 1);
    read_sizes(reader, "frame_bytes", program->frame_bytes, plan->n_chunks);
    read_sizes(reader, "host_frame_bytes", program->host_frame_bytes, plan->n_chunks);
    read_sizes(reader, "class_bytes", program->class_bytes, N_BUFFER_CLASSES);
    read_doubles(reader, "forward_flops", program->forward_flops, plan->n_chunks);
    read_doubles(reader, "backward_flops", program->backward_flops, plan->n_chunks);
    if (!read_doubles(reader, "update_flops", &program->update_flops, 1)) return false;
    program->graph =
        graph_parse(reader->arena, reader->file, &reader->at, &reader->line, reader->diag);
    if (!program->graph) {
        reader->failed = true; /* reported */
        return false;
    }
    const Graph *graph = program->graph;
    program->buffers = ARENA_ARRAY(reader->arena, Buffer, (size_t)graph->n_nodes * MAX_OUTPUTS + 1);
    plan_reader_end_line(reader);
    plan_reader_expect(reader, "buffers {");
    plan_reader_end_line(reader);
    for (int n = 0; n < graph->n_nodes && !reader->failed; n++) {
        for (int k = 0; k < graph->nodes[n]->n_outputs && !reader->failed; k++) {
            read_buffer(reader, plan, n, k, &program->buffers[n * MAX_OUTPUTS + k]);
        }
    }
    read_closing(reader);
    return read_closing(reader);
}

static bool read_stage(PlanReader *reader, const Plan *plan, int index, Stage *stage) {
    if (!read_header_line(reader, "stage ", index)) return false;
    read_ints(reader, "program", plan->n_programs - 1, &stage->program, 1);
    read_ints(reader, "first_block", plan->n_blocks, stage->first_block, plan->n_chunks);
    read_ints(reader, "blocks", plan->n_blocks, stage->n_blocks, plan->n_chunks);
    read_ints(reader, "frame_pool", plan->n_chunks - 1, stage->frame_pool, plan->n_chunks);
    read_ints(reader, "frame_slots", plan->n_micro * plan->n_chunks, stage->frame_slots,
              plan->n_chunks);
    read_sizes(reader, "persistent_base", &stage->persistent_base, 1);
    read_sizes(reader, "frame_base", stage->frame_base, plan->n_chunks);
    read_sizes(reader, "message_base", &stage->message_base, 1);
    read_sizes(reader, "message_bytes", &stage->message_bytes, 1);
    read_sizes(reader, "scratch_base", &stage->scratch_base, 1);
    read_sizes(reader, "arena_bytes", &stage->arena_bytes, 1);
    plan_reader_expect(reader, "tasks {");
    if (!plan_reader_end_line(reader)) return false;
    if (!plan_reader_tasks(reader, plan->n_micro, plan->n_chunks, &stage->tasks, &stage->n_tasks)) {
        return false;
    }
    read_closing(reader);
    return read_closing(reader);
}

static bool read_header(PlanReader *reader, Plan *plan) {
    int version;
    if (!plan_reader_accept(reader, "perilune plan ")) {
        return plan_reader_fail(reader,
                                "is not a plan; `perilune plan MODEL.lua -o FILE` makes one");
    }
    if (!plan_reader_int32(reader, 0, 1 << 30, &version)) return false;
    if (version != PLAN_FORMAT_VERSION) {
        return plan_reader_fail(reader,
                                "the plan's format is version %d; this program reads %d: %s",
                                version, PLAN_FORMAT_VERSION,
                                version < PLAN_FORMAT_VERSION ? "make it again with perilune plan"
                                                              : "a newer perilune wrote it");
    }
    plan_reader_end_line(reader);
    if (!read_fingerprint(reader, &plan->fingerprint)) return false;
    for (int i = 0; i < N_PLAN_FIELDS; i++) {
        if (!read_field(reader, plan, &PLAN_FIELDS[i])) return false;
    }
    int p = plan->mesh.size[MESH_P];
    if (p < 1 || p > MAX_STAGES || plan->n_chunks < 1 || plan->n_micro < 1 ||
        plan->n_programs < 1) {
        return plan_reader_fail(reader,
                                "a plan has at least one of p (at most %d), chunks, "
                                "micro_batches and programs",
                                MAX_STAGES);
    }
    plan->n_stages = p;
    return true;
}

static bool read_plan(PlanReader *reader, Plan *plan) {
    Arena *arena = reader->arena;
    if (!read_header(reader, plan) || !plan_reader_device(reader, &plan->device)) return false;
    plan->channels = ARENA_ARRAY(arena, Channel, plan->n_channels + 1);
    plan->comms = ARENA_ARRAY(arena, StageComm, plan->n_comms + 1);
    plan->programs = ARENA_ARRAY(arena, Program, plan->n_programs);
    plan->stages = ARENA_ARRAY(arena, Stage, plan->n_stages);
    for (int c = 0; c < plan->n_channels; c++) {
        if (!read_channel(reader, plan, &plan->channels[c])) return false;
    }
    for (int c = 0; c < plan->n_comms; c++) {
        if (!read_comm(reader, plan, &plan->comms[c])) return false;
    }
    for (int i = 0; i < plan->n_programs; i++) {
        if (!read_program(reader, plan, i, &plan->programs[i])) return false;
    }
    for (int s = 0; s < plan->n_stages; s++) {
        if (!read_stage(reader, plan, s, &plan->stages[s])) return false;
    }
    plan_reader_expect(reader, "end");
    if (!plan_reader_end_line(reader)) return false;
    return !*reader->at || plan_reader_fail(reader, "text after the end of the plan");
}

Plan *plan_parse(Arena *arena, const char *file, const char *text, Diag *diag) {
    PlanReader reader = {.at = text, .file = file, .line = 1, .arena = arena, .diag = diag};
    Plan *plan = ARENA_NEW(arena, Plan);
    plan->arena = arena;
    return read_plan(&reader, plan) ? plan : NULL;
}
