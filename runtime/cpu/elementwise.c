/* Preparation: check the program, merge dimensions, decide for every register whether it is read or
 * written in place or kept in a slot of the tile buffer, and give out slots by last use. */
#include "runtime/cpu/elementwise.h"
#include "runtime/cpu/elementwise_tile.h"

#include <string.h>

/* Rows at least this long are tiled one by one, so that operands broadcast over rows stay in
 * place; shorter rows share tiles and such operands are copied in. */
#define MIN_ROW 256

typedef struct Builder {
    const ElementwiseSpec *spec;
    ElementwiseCall *call;
    int defined_at[ELEMENTWISE_MAX_REGISTERS]; /* instruction; -1: input; NEVER */
    int last_use[ELEMENTWISE_MAX_REGISTERS];   /* instruction; n_instr: stored at the end */
    int n_slots;
    bool slot_taken[ELEMENTWISE_MAX_REGISTERS];
} Builder;

#define NEVER (-2)

static const char *check_program(Builder *b) {
    const ElementwiseSpec *s = b->spec;
    if (s->n_dims < 0 || s->n_dims > ELEMENTWISE_MAX_DIMS) return "too many dimensions";
    if (s->n_in < 0 || s->n_in > ELEMENTWISE_MAX_IN) return "too many inputs";
    if (s->n_out < 0 || s->n_out > ELEMENTWISE_MAX_OUT) return "too many outputs";
    if (s->n_instr < 0 || s->n_instr > ELEMENTWISE_MAX_INSTR) return "too many instructions";
    for (int d = 0; d < s->n_dims; d++)
        if (s->dims[d] < 0) return "negative dimension";
    for (int r = 0; r < ELEMENTWISE_MAX_REGISTERS; r++) {
        b->defined_at[r] = r < s->n_in ? -1 : NEVER;
        b->last_use[r] = NEVER;
    }
    for (int i = 0; i < s->n_instr; i++) {
        const ElementwiseInstr *in = &s->instr[i];
        if ((int)in->op < 0 || in->op >= N_ELEMENTWISE_OPS) return "unknown op";
        for (int a = 0; a < ELEMENTWISE_N_ARGS[in->op]; a++) {
            const int r = in->arg[a];
            if (r < 0 || r >= ELEMENTWISE_MAX_REGISTERS || b->defined_at[r] == NEVER)
                return "an operand is read before it is written";
            b->last_use[r] = i;
        }
        if (in->dst < s->n_in || in->dst >= ELEMENTWISE_MAX_REGISTERS ||
            b->defined_at[in->dst] != NEVER)
            return "a register is written twice, or is none";
        b->defined_at[in->dst] = i;
        if (in->op == EW_DROPOUT && s->train && (!s->seed || !s->step))
            return "dropout without a seed and a step";
    }
    for (int o = 0; o < s->n_out; o++) {
        const int r = s->out_register[o];
        if (r < 0 || r >= ELEMENTWISE_MAX_REGISTERS || b->defined_at[r] == NEVER)
            return "an output is never written";
    }
    return NULL;
}

/* Adjacent dimensions become one where every input steps evenly across both. */
static void collapse_space(Builder *b) {
    const ElementwiseSpec *s = b->spec;
    ElementwiseCall *c = b->call;
    c->total = 1;
    for (int d = 0; d < s->n_dims; d++) {
        c->total *= s->dims[d];
        if (s->dims[d] == 1) continue;
        const int last = c->n_dims - 1;
        bool even = last >= 0;
        for (int i = 0; i < s->n_in && even; i++)
            even = c->in_stride[i][last] == s->in_stride[i][d] * s->dims[d];
        const int at = even ? last : c->n_dims++;
        c->dims[at] = even ? c->dims[at] * s->dims[d] : s->dims[d];
        for (int i = 0; i < s->n_in; i++) c->in_stride[i][at] = s->in_stride[i][d];
    }
    if (c->n_dims == 0) { /* one element: all strides are 1, which reads it in place */
        c->n_dims = 1;
        c->dims[0] = 1;
        for (int i = 0; i < s->n_in; i++) c->in_stride[i][0] = 1;
    }
    c->inner = c->dims[c->n_dims - 1];
}

static bool input_is_linear(const ElementwiseCall *c, int input) {
    int64_t expected = 1;
    for (int d = c->n_dims - 1; d >= 0; d--) {
        if (c->in_stride[input][d] != expected) return false;
        expected *= c->dims[d];
    }
    return true;
}

static bool input_in_place(const ElementwiseCall *c, int input, bool by_rows) {
    if (c->in_dtype[input] != DTYPE_F32) return false;
    return input_is_linear(c, input) || (by_rows && c->in_stride[input][c->n_dims - 1] == 1);
}

/* Would writing output `out` at instruction `at` destroy an input still to be read? */
static bool output_destroys_input(const Builder *b, int out, int at) {
    const ElementwiseSpec *s = b->spec;
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] == s->out[out] && b->last_use[i] > at) return true;
    return false;
}

static int take_slot(Builder *b) {
    int slot = 0;
    while (b->slot_taken[slot]) slot++;
    b->slot_taken[slot] = true;
    if (slot >= b->n_slots) b->n_slots = slot + 1;
    return slot;
}

/* Inputs last used by instruction `i`, and results too, free their slots for its own result: the
 * tile loops read an element before they write it. */
static void free_slots(Builder *b, int i) {
    for (int r = 0; r < ELEMENTWISE_MAX_REGISTERS; r++)
        if (b->defined_at[r] != NEVER && b->defined_at[r] < i && b->last_use[r] == i &&
            b->call->slot[r] >= 0 && b->call->slot[r] < TILE_OUT_PLACE)
            b->slot_taken[b->call->slot[r]] = false;
}

static ElementwiseStep *add_step(ElementwiseCall *c, int kind, int dst) {
    ElementwiseStep *step = &c->steps[c->n_steps++];
    *step = (ElementwiseStep){.kind = (int8_t)kind, .dst = (int16_t)dst};
    return step;
}

static void load_input(Builder *b, int input) {
    ElementwiseCall *c = b->call;
    if (c->slot[input] != TILE_UNPLACED) return;
    c->slot[input] = (int16_t)take_slot(b);
    add_step(c, TILE_LOAD, input);
}

/* The output that instruction `i` can write in place, or -1. */
static int choose_output(const Builder *b, int i) {
    const ElementwiseSpec *s = b->spec;
    for (int o = 0; o < s->n_out; o++)
        if (s->out_register[o] == s->instr[i].dst && !dtype_is_low(s->out_dtype[o]) &&
            !output_destroys_input(b, o, i))
            return o;
    return -1;
}

static void place_instruction(Builder *b, int i) {
    ElementwiseCall *c = b->call;
    const ElementwiseInstr *in = &b->spec->instr[i];
    for (int a = 0; a < ELEMENTWISE_N_ARGS[in->op]; a++)
        if (in->arg[a] < c->n_in) load_input(b, in->arg[a]);
    ElementwiseStep *step = add_step(c, TILE_COMPUTE, in->dst);
    step->op = (int8_t)in->op;
    step->imm = in->imm;
    step->key = in->key;
    for (int a = 0; a < 3; a++) /* unused operands name a valid register that is not looked at */
        step->arg[a] = (int16_t)(a < ELEMENTWISE_N_ARGS[in->op] ? in->arg[a] : in->dst);
    free_slots(b, i);
    const int out = choose_output(b, i);
    c->slot[in->dst] = (int16_t)(out >= 0 ? TILE_OUT_PLACE + out : take_slot(b));
    if (out < 0 && b->last_use[in->dst] == NEVER) /* nobody reads it: its slot is free again */
        b->slot_taken[c->slot[in->dst]] = false;
}

static void place_registers(Builder *b, bool by_rows) {
    const ElementwiseSpec *s = b->spec;
    ElementwiseCall *c = b->call;
    for (int o = 0; o < s->n_out; o++) b->last_use[s->out_register[o]] = s->n_instr;
    for (int r = 0; r < ELEMENTWISE_MAX_REGISTERS; r++) c->slot[r] = TILE_UNPLACED;
    for (int i = 0; i < s->n_in; i++)
        if (input_in_place(c, i, by_rows)) c->slot[i] = (int16_t)(-1 - i);
    for (int o = 0; o < s->n_out; o++) {
        const int r = s->out_register[o];
        if (r >= s->n_in) continue;
        c->slot[r] = TILE_UNPLACED; /* copied first, stored last: safe against any aliasing */
        load_input(b, r);
    }
    for (int i = 0; i < s->n_instr; i++) place_instruction(b, i);
    for (int o = 0; o < s->n_out; o++)
        if (c->slot[s->out_register[o]] != TILE_OUT_PLACE + o)
            add_step(c, TILE_STORE, o)->arg[0] = (int16_t)s->out_register[o];
}

void elementwise_set_immediate(ElementwiseCall *call, int instr, float imm) {
    for (int i = 0; i < call->n_steps; i++) {
        if (call->steps[i].kind == TILE_COMPUTE && instr-- == 0) call->steps[i].imm = imm;
    }
}

bool elementwise_prepare(const ElementwiseSpec *spec, ElementwiseCall *out_call,
                         const char **out_why) {
    Builder b = {.spec = spec, .call = out_call};
    ElementwiseCall *c = out_call;
    *c = (ElementwiseCall){.n_in = spec->n_in, .n_out = spec->n_out};
    *out_why = check_program(&b);
    if (*out_why) return false;
    memcpy(c->in, spec->in, sizeof c->in);
    memcpy(c->out, spec->out, sizeof c->out);
    memcpy(c->in_dtype, spec->in_dtype, sizeof c->in_dtype);
    memcpy(c->out_dtype, spec->out_dtype, sizeof c->out_dtype);
    memcpy(c->out_above, spec->out_above, sizeof c->out_above);
    collapse_space(&b);
    const bool by_rows = c->inner >= MIN_ROW && c->n_dims > 1;
    place_registers(&b, by_rows);
    for (int r = 0; r < ELEMENTWISE_MAX_REGISTERS; r++)
        if (b.defined_at[r] != NEVER) c->n_registers = r + 1;
    c->tile = b.n_slots > 0 ? TILE_BUFFER / b.n_slots / 64 * 64 : TILE_MAX;
    if (c->tile > TILE_MAX) c->tile = TILE_MAX;
    c->tiles_per_row = by_rows ? (c->inner + c->tile - 1) / c->tile : 0;
    c->n_tiles =
        by_rows ? c->total / c->inner * c->tiles_per_row : (c->total + c->tile - 1) / c->tile;
    if (c->total == 0) c->n_tiles = 0;
    PhiloxSpace space = {.n_dims = spec->n_dims};
    memcpy(space.dims, spec->dims, sizeof space.dims);
    memcpy(space.offset, spec->global_offset, sizeof space.offset);
    memcpy(space.stride, spec->global_stride, sizeof space.stride);
    c->space = philox_space_collapse(&space);
    c->seed = spec->seed;
    c->step = spec->step;
    c->train = spec->train;
    return true;
}
