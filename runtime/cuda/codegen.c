#include "runtime/cuda/codegen.h"

#include "ir/base/strbuf.h"

#include <inttypes.h>
#include <string.h>

_Static_assert((int)FUSED_MAX_IN == EXPR_MAX_INPUTS && (int)FUSED_MAX_OUT == MAX_OUTPUTS &&
                   (int)FUSED_MAX_DIMS == MAX_RANK &&
                   (int)FUSED_MAX_IMMEDIATES == EXPR_MAX_INSTRUCTIONS &&
                   (int)FUSED_MAX_NUMBERS == RULE_MOST_NUMBERS,
               "fused_args.h");

extern const char embedded_state_h[], embedded_fused_args_h[], embedded_low_cuh[],
    embedded_threshold_cuh[], embedded_philox_cuh[], embedded_fused_cuh[];

/* --- kernels made so far --- */

typedef struct CacheEntry {
    GeneratedKernel kernel;
    uint64_t body_hash;
    const char *body;
} CacheEntry;

struct KernelCache {
    Arena *arena;
    const char *prelude;
    uint64_t prelude_hash;
    int count, capacity;
    CacheEntry **entries;
};

static uint64_t hash_text(uint64_t hash, const char *text) {
    while (*text) hash = (hash ^ (unsigned char)*text++) * UINT64_C(1099511628211);
    return hash;
}

/* A text without their includes: the source is to be complete. */
static void put_without_includes(StrBuf *out, const char *text) {
    while (*text) {
        size_t length = strcspn(text, "\n") + 1;
        if (!text[length - 1]) length--;
        if (strncmp(text, "#include", 8) != 0) strbuf_put_bytes(out, text, length);
        text += length;
    }
}

KernelCache *kernel_cache_create(Arena *arena) {
    KernelCache *cache = ARENA_NEW(arena, KernelCache);
    StrBuf text = strbuf_create();
    put_without_includes(&text, embedded_state_h);
    put_without_includes(&text, embedded_fused_args_h);
    put_without_includes(&text, embedded_low_cuh);
    put_without_includes(&text, embedded_threshold_cuh);
    put_without_includes(&text, embedded_philox_cuh);
    put_without_includes(&text, embedded_fused_cuh);
    *cache = (KernelCache){.arena = arena, .prelude = arena_strdup(arena, text.text)};
    cache->prelude_hash = hash_text(UINT64_C(14695981039346656037), text.text);
    strbuf_destroy(&text);
    return cache;
}

int kernel_cache_count(const KernelCache *cache) {
    return cache->count;
}

const GeneratedKernel *kernel_cache_get(const KernelCache *cache, int i) {
    return &cache->entries[i]->kernel;
}

/* Binding asks for the same few bodies thousands of times; whole sources are made only once. */
static const GeneratedKernel *find_or_add(KernelCache *cache, const char *body) {
    uint64_t hash = hash_text(cache->prelude_hash, body);
    for (int i = 0; i < cache->count; i++) {
        const CacheEntry *entry = cache->entries[i];
        if (entry->body_hash != hash) continue;
        if (strcmp(entry->body, body) == 0) return &entry->kernel;
        hash++; /* another body of the same hash: names must differ */
        i = -1;
    }
    CacheEntry *entry = ARENA_NEW(cache->arena, CacheEntry);
    const char *name = arena_printf(cache->arena, "fused_%016" PRIx64, hash);
    *entry = (CacheEntry){.body_hash = hash, .body = arena_strdup(cache->arena, body)};
    entry->kernel = (GeneratedKernel){
        .name = name,
        .source = arena_printf(cache->arena,
                               "%s\nextern \"C\" __global__ void __launch_bounds__(FUSED_THREADS) "
                               "%s(FusedArgs a) {\n%s}\n",
                               cache->prelude, name, body),
        .hash = hash,
    };
    ARENA_PUSH(cache->arena, cache->entries, cache->count, cache->capacity, entry);
    return &entry->kernel;
}

/* --- analysis --- */

/* How the values of an operand reach a thread's consecutive elements. */
typedef enum Reach {
    REACH_UNUSED,
    REACH_LINEAR, /* contiguous over the whole space */
    REACH_VECTOR, /* consecutive too, but where they begin follows from the coordinates */
    REACH_SCALAR, /* one value for all */
    REACH_GATHER  /* apart */
} Reach;

typedef struct Space {
    const FusedSpec *spec;
    int n_dims; /* merged */
    int64_t dims[MAX_RANK], total;
    int64_t stride[EXPR_MAX_INPUTS][MAX_RANK];
    uint64_t global_offset, global_stride[MAX_RANK];
    Reach reach[EXPR_MAX_INPUTS];
    bool dropout;
    bool blocks;    /* dropout's random numbers are used block by block */
    bool located;   /* something needs coordinates */
    bool wide;      /* 64-bit indices */
    int per_thread; /* elements of a chunk */
    int n_unrolled; /* chunks of a thread */
} Space;

static const char *c_type(DType dtype) {
    static const char *const NAMES[N_DTYPES] = {[DTYPE_F32] = "float",
                                                [DTYPE_I32] = "int32_t",
                                                [DTYPE_BF16] = "bf16_t",
                                                [DTYPE_F16] = "f16_t"};
    return NAMES[dtype];
}

/* One that comes in the arguments, not a rule's number. */
static bool has_immediate(const ExprInstruction *ins) {
    OpKind op = ins->op;
    bool required;
    if (ins->number) return false;
    return op_has_attr(op, ATTR_value, &required) || op_has_attr(op, ATTR_p, &required);
}

static void find_used(Space *s) {
    const Expr *expr = s->spec->expr;
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        s->dropout |= ins->op == OP_DROPOUT;
        for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
            if (ins->operands[i] < 0) s->reach[~ins->operands[i]] = REACH_LINEAR;
        }
    }
}

/* Adjacent dimensions become one where all operands, and the numbers of elements in the whole if
 * they matter, step evenly across both. */
static void merge_dims(Space *s) {
    const FusedSpec *spec = s->spec;
    s->total = 1;
    for (int d = 0; d < spec->n_dims; d++) {
        s->total *= spec->dims[d];
        s->global_offset += spec->global_offset[d] * spec->global_stride[d];
        if (spec->dims[d] == 1) continue;
        int last = s->n_dims - 1;
        bool even = last >= 0;
        for (int k = 0; k < spec->expr->n_inputs && even; k++) {
            even = !s->reach[k] || s->stride[k][last] == spec->in_stride[k][d] * spec->dims[d];
        }
        if (even && s->dropout) {
            even = s->global_stride[last] == spec->global_stride[d] * (uint64_t)spec->dims[d];
        }
        int at = even ? last : s->n_dims++;
        s->dims[at] = even ? s->dims[at] * spec->dims[d] : spec->dims[d];
        s->global_stride[at] = spec->global_stride[d];
        for (int k = 0; k < spec->expr->n_inputs; k++) s->stride[k][at] = spec->in_stride[k][d];
    }
    if (s->n_dims == 0) { /* one element: whatever the strides, it is the first */
        s->n_dims = 1;
        s->dims[0] = 1;
        s->global_stride[0] = 1;
        for (int k = 0; k < spec->expr->n_inputs; k++) s->stride[k][0] = 1;
    }
}

static Reach find_reach(const Space *s, int k) {
    int64_t expected = 1, inner = s->stride[k][s->n_dims - 1];
    bool linear = true;
    for (int d = s->n_dims - 1; d >= 0; d--) {
        linear &= s->stride[k][d] == expected;
        expected *= s->dims[d];
    }
    if (linear) return REACH_LINEAR;
    return inner == 1 ? REACH_VECTOR : inner == 0 ? REACH_SCALAR : REACH_GATHER;
}

static bool address_allows(const void *address, DType dtype, int per_thread) {
    int bytes = per_thread * dtype_bytes(dtype);
    return (uintptr_t)address % (uintptr_t)(bytes < 16 ? bytes : 16) == 0;
}

/* Can all operands and results be read and written `n` elements at a time? */
static bool width_allowed(const Space *s, int n) {
    const FusedSpec *spec = s->spec;
    if (s->dims[s->n_dims - 1] % n) return false;
    for (int k = 0; k < spec->expr->n_inputs; k++) {
        if (s->reach[k] != REACH_LINEAR && s->reach[k] != REACH_VECTOR) continue;
        if (!address_allows(spec->in[k], spec->in_dtype[k], n)) return false;
        for (int d = 0; d < s->n_dims - 1; d++) {
            if (s->stride[k][d] % n) return false;
        }
    }
    for (int o = 0; o < spec->expr->n_outputs; o++) {
        if (!address_allows(spec->out[o], spec->out_dtype[o], n)) return false;
    }
    return true;
}

/* Threads with little to do take several chunks, so that enough loads are under way. */
static void choose_width(Space *s) {
    const FusedSpec *spec = s->spec;
    int n_streams = spec->expr->n_outputs, widest = 4;
    for (int k = 0; k < spec->expr->n_inputs; k++) {
        if (s->reach[k] != REACH_LINEAR && s->reach[k] != REACH_VECTOR) continue;
        n_streams++;
        if (dtype_is_low(spec->in_dtype[k])) widest = 8;
    }
    for (int o = 0; o < spec->expr->n_outputs; o++) {
        if (dtype_is_low(spec->out_dtype[o])) widest = 8;
    }
    for (s->per_thread = widest; s->per_thread > 1; s->per_thread /= 2) {
        if (width_allowed(s, s->per_thread)) break;
    }
    s->n_unrolled = s->dropout ? 1 : s->per_thread <= 2 ? 4 : n_streams <= 3 ? 2 : 1;
}

static void choose_dropout(Space *s) {
    int inner = s->n_dims - 1;
    s->blocks = s->dropout && s->per_thread % 4 == 0 && s->global_stride[inner] == 1 &&
                s->global_offset % 4 == 0;
    for (int d = 0; d < inner; d++) s->blocks &= s->global_stride[d] % 4 == 0;
}

static void analyse(Space *s, const FusedSpec *spec) {
    *s = (Space){.spec = spec};
    find_used(s);
    merge_dims(s);
    s->located = s->dropout;
    for (int k = 0; k < spec->expr->n_inputs; k++) {
        if (!s->reach[k]) continue;
        s->reach[k] = find_reach(s, k);
        s->located |= s->reach[k] != REACH_LINEAR;
    }
    s->wide = s->total > INT32_MAX;
    choose_width(s);
    choose_dropout(s);
}

/* --- the source --- */

/* at: the first element of chunk u; c0, c1, ..: its coordinates; r1, ..: what is left to divide.
 * beyond: what becomes of a chunk past the last. */
static void put_place(StrBuf *out, const Space *s, const char *beyond) {
    strbuf_printf(out,
                  "        index_t chunk = first + u * FUSED_THREADS;\n"
                  "        if (chunk >= (index_t)a.n_chunks) %s;\n"
                  "        index_t at = chunk * %d, r%d = at;\n",
                  beyond, s->per_thread, s->n_dims);
    if (!s->located) return;
    for (int d = s->n_dims - 1; d > 0; d--) {
        if (s->wide) {
            strbuf_printf(out, "        index_t r%d = r%d / a.dims[%d]", d, d + 1, d);
        } else {
            strbuf_printf(out, "        index_t r%d = divide(r%d, a.multiplier[%d], a.shift[%d])",
                          d, d + 1, d, d);
        }
        strbuf_printf(out, ", c%d = r%d - r%d * (index_t)a.dims[%d];\n", d, d + 1, d, d);
    }
    strbuf_put(out, "        index_t c0 = r1;\n");
}

/* Where operand k's values for chunk u begin. */
static void put_offset(StrBuf *out, const Space *s, int k) {
    if (s->reach[k] == REACH_LINEAR) {
        strbuf_put(out, "at");
        return;
    }
    bool any = false;
    for (int d = 0; d < s->n_dims; d++) {
        if (!s->stride[k][d]) continue;
        strbuf_printf(out, "%sc%d", any ? " + " : "", d);
        any = true;
        bool unit = s->reach[k] == REACH_VECTOR && d == s->n_dims - 1;
        if (!unit) strbuf_printf(out, " * (index_t)a.stride[%d][%d]", k, d);
    }
    if (!any) strbuf_put(out, "0");
}

/* Of a step: by one thread, in f64, for all of its block. */
static void put_numbers(StrBuf *out, const FusedSpec *spec) {
    strbuf_put(out, "    float factor = *a.factor;\n"
                    "    if (!(fabsf(factor) <= 3.402823466e+38f)) return;\n"
                    "    uint32_t threshold = threshold_of(*a.updates);\n"
                    "    __shared__ float numbers[FUSED_MAX_NUMBERS];\n"
                    "    if (threadIdx.x == 0) {\n"
                    "double n0 = (double)factor;\n"
                    "double n1 = (double)*a.rate * a.rate_scale;\n"
                    "double n2 = (double)*a.updates;\n"
                    "double n3 = a.decay;\n");
    rule_print_numbers(out, spec->rule);
    for (int n = 0; n < spec->rule->n_numbers; n++) {
        strbuf_printf(out, "numbers[%d] = (float)n%d;\n", n, n);
    }
    strbuf_put(out, "    }\n");
}

static void put_declarations(StrBuf *out, const Space *s) {
    const FusedSpec *spec = s->spec;
    strbuf_printf(out, "    typedef %s index_t;\n", s->wide ? "uint64_t" : "uint32_t");
    strbuf_printf(out, "    index_t first = (index_t)blockIdx.x * %d + threadIdx.x;\n",
                  s->n_unrolled * FUSED_THREADS);
    for (int k = 0; k < spec->expr->n_inputs; k++) {
        const char *type = c_type(spec->in_dtype[k]);
        if (!s->reach[k]) continue;
        strbuf_printf(out, "    const %s *in%d = (const %s *)a.in[%d];\n", type, k, type, k);
        strbuf_printf(out, "    float x%d[%d]", k, s->n_unrolled);
        if (s->reach[k] != REACH_SCALAR) strbuf_printf(out, "[%d]", s->per_thread);
        strbuf_put(out, ";\n");
    }
    if (s->spec->rule) put_numbers(out, s->spec);
    if (!s->dropout) return;
    strbuf_put(out, "    bool train = a.state->train != 0;\n"
                    "    uint64_t seed = a.state->seed;\n"
                    "    uint32_t step = (uint32_t)a.state->step;\n");
}

static void put_loop(StrBuf *out, const Space *s, const char *beyond) {
    strbuf_printf(out, "#pragma unroll\n    for (int u = 0; u < %d; u++) {\n", s->n_unrolled);
    put_place(out, s, beyond);
}

/* All of a thread's loads come before any is waited for: no branch is between them (the last chunk
 * is loaded for one past it, and not used), and the barrier, no instruction where a warp is
 * together, keeps ptxas from putting some off until the first chunk is computed, to save registers.
 */
static void put_loads(StrBuf *out, const Space *s) {
    put_loop(out, s, "chunk = (index_t)a.n_chunks - 1");
    for (int k = 0; k < s->spec->expr->n_inputs; k++) {
        if (!s->reach[k]) continue;
        bool scalar = s->reach[k] == REACH_SCALAR, gather = s->reach[k] == REACH_GATHER;
        if (scalar) {
            strbuf_printf(out, "        x%d[u] = to_float(in%d[", k, k);
        } else {
            strbuf_printf(out, "        %s(in%d%s", gather ? "gather" : "load", k,
                          gather ? ", " : " + ");
        }
        put_offset(out, s, k);
        if (gather) strbuf_printf(out, ", (index_t)a.stride[%d][%d]", k, s->n_dims - 1);
        if (scalar) {
            strbuf_put(out, "]);\n");
        } else {
            strbuf_printf(out, ", x%d[u]);\n", k);
        }
    }
    strbuf_printf(out, "    }\n    %s();\n", s->spec->rule ? "__syncthreads" : "__syncwarp");
}

/* Uniforms of dropout instruction n, which has immediate i. */
static void put_draw(StrBuf *out, const Space *s, int n, int i) {
    strbuf_printf(out,
                  "        float u%d[%d] = {}, p%d = train ? a.immediate[%d] : 0.0f;\n"
                  "        float f%d = keep_factor(p%d);\n"
                  "        if (train) draw<%s>(seed, step, a.key[%d], element, "
                  "a.global_stride[%d], u%d);\n",
                  n, s->per_thread, n, i, n, n, s->blocks ? "true" : "false", i, s->n_dims - 1, n);
}

static void put_instruction(StrBuf *out, const Space *s, int n, int immediate) {
    const ExprInstruction *ins = &s->spec->expr->instructions[n];
    const char *comma = OPS[ins->op].min_inputs ? ", " : "";
    strbuf_printf(out, "            float t%d = op_%s(", n, OPS[ins->op].name);
    for (int i = 0; i < OPS[ins->op].min_inputs; i++) {
        int operand = ins->operands[i];
        if (i) strbuf_put(out, ", ");
        if (operand >= 0) {
            strbuf_printf(out, "t%d", operand);
        } else {
            strbuf_printf(out, "x%d[u]%s", ~operand,
                          s->reach[~operand] == REACH_SCALAR ? "" : "[v]");
        }
    }
    if (ins->op == OP_DROPOUT) {
        strbuf_printf(out, ", u%d[v], p%d, f%d", n, n, n);
    } else if (immediate >= 0) {
        strbuf_printf(out, "%sa.immediate[%d]", comma, immediate);
    } else if (ins->number) {
        strbuf_printf(out, "%snumbers[%d]", comma, ins->number - 1);
    }
    strbuf_put(out, ");\n");
}

static void put_compute(StrBuf *out, const Space *s) {
    const Expr *expr = s->spec->expr;
    int n_immediates = 0;
    put_loop(out, s, "continue");
    if (s->dropout) {
        strbuf_put(out, "        uint64_t element = a.global_offset");
        for (int d = 0; d < s->n_dims; d++) {
            strbuf_printf(out, " + c%d * a.global_stride[%d]", d, d);
        }
        strbuf_put(out, ";\n");
    }
    for (int n = 0; n < expr->n_instructions; n++) {
        const ExprInstruction *ins = &expr->instructions[n];
        if (ins->op == OP_DROPOUT) put_draw(out, s, n, n_immediates);
        n_immediates += has_immediate(ins);
    }
    for (int o = 0; o < expr->n_outputs; o++) {
        strbuf_printf(out, "        float y%d[%d];\n", o, s->per_thread);
    }
    strbuf_printf(out, "#pragma unroll\n        for (int v = 0; v < %d; v++) {\n", s->per_thread);
    n_immediates = 0;
    for (int n = 0; n < expr->n_instructions; n++) {
        bool immediate = has_immediate(&expr->instructions[n]);
        put_instruction(out, s, n, immediate ? n_immediates++ : -1);
    }
    for (int o = 0; o < expr->n_outputs; o++) {
        strbuf_printf(out, "            y%d[v] = t%d;\n", o, expr->outputs[o]);
    }
    strbuf_put(out, "        }\n");
    for (int o = 0; o < expr->n_outputs; o++) {
        bool above = s->spec->out_above[o];
        strbuf_printf(out, "        store%s((%s *)a.out[%d] + at, y%d%s);\n", above ? "_above" : "",
                      c_type(s->spec->out_dtype[o]), o, o, above ? ", threshold" : "");
    }
    strbuf_put(out, "    }\n");
}

/* --- the launch --- */

/* n / divisor = n * multiplier >> shift for n < 2^31: with 2^(l-1) < divisor <= 2^l the rounded-up
 * 2^(31+l) / divisor is less than 2^l too large (after Granlund & Montgomery 1994). */
static void find_divisor(int64_t divisor, uint32_t *out_multiplier, uint32_t *out_shift) {
    uint32_t l = 0;
    while ((INT64_C(1) << l) < divisor) l++;
    uint64_t scale = UINT64_C(1) << (31 + l);
    *out_multiplier = (uint32_t)((scale + (uint64_t)divisor - 1) / (uint64_t)divisor);
    *out_shift = 31 + l;
}

static void fill_args(const Space *s, FusedArgs *args) {
    const FusedSpec *spec = s->spec;
    int n_immediates = 0;
    *args = (FusedArgs){.state = s->dropout ? spec->state : NULL,
                        .n_chunks = s->total / s->per_thread,
                        .global_offset = s->dropout ? s->global_offset : 0,
                        .factor = spec->factor,
                        .rate = spec->rate,
                        .updates = spec->updates,
                        .rate_scale = spec->rate_scale,
                        .decay = spec->decay};
    for (int k = 0; k < spec->expr->n_inputs; k++) {
        if (!s->reach[k]) continue;
        args->in[k] = spec->in[k];
        memcpy(args->stride[k], s->stride[k], sizeof(args->stride[k]));
    }
    for (int o = 0; o < spec->expr->n_outputs; o++) args->out[o] = spec->out[o];
    for (int d = 0; d < s->n_dims; d++) {
        args->dims[d] = s->dims[d];
        if (s->dropout) args->global_stride[d] = s->global_stride[d];
        if (!s->wide) find_divisor(s->dims[d], &args->multiplier[d], &args->shift[d]);
    }
    for (int n = 0; n < spec->expr->n_instructions; n++) {
        const ExprInstruction *ins = &spec->expr->instructions[n];
        if (!has_immediate(ins)) continue;
        args->immediate[n_immediates] = (float)ins->imm;
        args->key[n_immediates++] = spec->key[n];
    }
}

FusedLaunch codegen_fused(KernelCache *cache, const FusedSpec *spec) {
    FusedLaunch launch = {.threads = FUSED_THREADS};
    Space s;
    analyse(&s, spec);
    if (s.total == 0) return launch;
    StrBuf body = strbuf_create();
    put_declarations(&body, &s);
    put_loads(&body, &s);
    put_compute(&body, &s);
    launch.kernel = find_or_add(cache, body.text);
    strbuf_destroy(&body);
    fill_args(&s, &launch.args);
    int64_t per_block = (int64_t)s.n_unrolled * FUSED_THREADS;
    launch.grid = (Grid){(uint32_t)((launch.args.n_chunks + per_block - 1) / per_block), 1, 1};
    return launch;
}
