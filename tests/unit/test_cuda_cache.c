/* CUDA kernels of decoding, through their binders and the emulator, against float64: caches,
 * attention to them, layers that go on from a state, positions that are told one by one.
 *
 * Would catch: rows that go into another sequence or place, or beyond the cache; keys that are seen
 * and should not be, at either end of a run, a window, a document or a tile; runs that overlap or
 * leave a tile out; a maximum or sum that is not carried over, within a run or between them; rows
 * past the last that count; a group's members taken for positions; a state that is not kept, that
 * goes on where it begins anew, or that changes where nothing is new; a tap of another sequence's
 * cache; results that depend on the order of threads.
 */
#include "runtime/cuda/kernels/args.h"
#include "tests/unit/cuda_check.h"

#include <math.h>

static bool launched[N_KERNELS];

typedef enum Kind { F32, BF16, F16, N_KINDS } Kind;
static const char *const NAMES[N_KINDS] = {"f32", "bf16", "f16"};

/* "A[" in the nodes stands for a tensor of the kind. */
static const char *put_kind(Arena *arena, const char *nodes, Kind kind) {
    const char *text = "";
    for (const char *at; (at = strstr(nodes, "A[")); nodes = at + 1) {
        text = arena_printf(arena, "%s%.*s%s", text, (int)(at - nodes), nodes, NAMES[kind]);
    }
    return arena_printf(arena, "%s%s", text, nodes);
}

static void check_nodes(const char *name, const char *nodes, Kind kind, double tolerance) {
    Arena *arena = arena_create();
    check_begin(arena_printf(arena, "%s, %s", name, NAMES[kind]));
    cuda_check(&(CudaCase){
        .nodes = put_kind(arena, nodes, kind), .tolerance = tolerance, .launched = launched});
    check_end();
    arena_destroy(arena);
}

#define INPUT(id, values, type) "%" #id " = input() {name=\"" values "\"} : " type "\n"

/* Rows and places lie within the caches, and beyond; units of 2, 4 and 16 bytes. */
static void test_rows(void) {
    static const char *const CACHES[] = {
        INPUT(0, "", "A[sequences=3, context=7, kv=2, head=8]")
            INPUT(1, "", "A[batch=2, seq=4, kv=2, head=8]") INPUT(2, "#4", "i32[batch=2]")
                INPUT(3, "#9", "i32[batch=2, seq=4]") "%4 = cache_append(%0, %1, %2, %3) : "
                                                      "A[sequences=3, context=7, kv=2, head=8]\n",
        INPUT(0, "", "A[sequences=2, context=5, head=3]") INPUT(1, "", "A[batch=2, seq=1, head=3]")
            INPUT(2, "#3", "i32[batch=2]") INPUT(3, ":-1", "i32[batch=2, seq=1]")
                INPUT(4, "#5", "i32[batch=2, seq=1]") "%5 = cache_append(%0, %1, %2, %3) : "
                                                      "A[sequences=2, context=5, head=3]\n"
                                                      "%6 = cache_append(%5, %1, %2, %4) : "
                                                      "A[sequences=2, context=5, head=3]\n"};
    static const char *const SELECTED[] = {
        INPUT(0, "", "A[batch=3, seq=4, model=200]") INPUT(
            1, "#6",
            "i32[batch=3]") "%2 = select_row(%0, %1) {seq=seq} : A[batch=3, seq=1, model=200]\n",
        INPUT(0, "", "A[batch=3, seq=4, model=3]") INPUT(1, "#6", "i32[batch=3]") INPUT(
            2, "#9",
            "i32[batch=3, seq=4]") "%3 = select_row(%0, %1) {seq=seq} : A[batch=3, seq=1, "
                                   "model=3]\n"
                                   "%4 = select_row(%2, %1) {seq=seq} : i32[batch=3, seq=1]\n"};
    static const char *const READ[] = {
        INPUT(0, "", "A[sequences=3, context=7, kv=2, head=8]") INPUT(1, "#4", "i32[batch=2]")
            INPUT(2, "#9", "i32[batch=2, seq=4]") "%3 = cache_read(%0, %1, %2) : "
                                                  "A[batch=2, seq=4, kv=2, head=8]\n",
        INPUT(0, "", "A[sequences=2, context=5, head=3]") INPUT(1, "#3", "i32[batch=3]") INPUT(
            2, "#7",
            "i32[batch=3, seq=1]") "%3 = cache_read(%0, %1, %2) : A[batch=3, seq=1, head=3]\n"};
    for (int kind = 0; kind < N_KINDS; kind++) {
        for (int i = 0; i < 2; i++) {
            check_nodes("rows go into a cache", CACHES[i], (Kind)kind, 0);
            check_nodes("what is there comes out", READ[i], (Kind)kind, 0);
            check_nodes("a row comes out", SELECTED[i], (Kind)kind, 0);
        }
    }
}

typedef struct Shape {
    int batch, seq, kv_heads, group, head, context;
    Kind kind;
    const char *places; /* what they are drawn from */
    int window;         /* 0: none */
    const char *starts; /* of documents; NULL: there are none */
    double softcap;     /* 0: none */
    double scale;       /* 0: about 1 / sqrt(head) */
    int values;         /* 0: head */
    bool shared;        /* keys and values by all heads */
    const char *rows;   /* NULL: drawn from some that there are and one that there is not */
} Shape;

static const char *make_nodes(Arena *arena, const Shape *s) {
    const char *value = s->values ? arena_printf(arena, "value=%d", s->values)
                                  : arena_printf(arena, "head=%d", s->head);
    const char *heads = s->shared ? arena_printf(arena, "heads=%d", s->group)
                                  : arena_printf(arena, "kv=%d, group=%d", s->kv_heads, s->group);
    const char *cache = arena_printf(arena, "A[sequences=3, context=%d", s->context);
    if (!s->shared) cache = arena_printf(arena, "%s, kv=%d", cache, s->kv_heads);
    const char *rows = arena_printf(arena, "[batch=%d, seq=%d", s->batch, s->seq);
    const char *leaf = "%%%d = input() {name=\"%s\"} : %s\n";
    const char *leaves = arena_printf(
        arena, "%s%s%s%s%s",
        arena_printf(arena, leaf, 0, "",
                     arena_printf(arena, "A%s, %s, head=%d]", rows, heads, s->head)),
        arena_printf(arena, leaf, 1, "", arena_printf(arena, "%s, head=%d]", cache, s->head)),
        arena_printf(arena, leaf, 2, "", arena_printf(arena, "%s, %s]", cache, value)),
        arena_printf(arena, leaf, 3, s->rows ? s->rows : "#4",
                     arena_printf(arena, "i32[batch=%d]", s->batch)),
        arena_printf(arena, leaf, 4, s->places, arena_printf(arena, "i32%s]", rows)));
    if (s->starts) {
        leaves = arena_printf(
            arena, "%s%s", leaves,
            arena_printf(arena, leaf, 5, s->starts, arena_printf(arena, "i32%s]", rows)));
    }
    const char *window = s->window ? arena_printf(arena, "window=%d, ", s->window) : "";
    const char *cap = s->softcap > 0 ? arena_printf(arena, ", softcap=%g", s->softcap) : "";
    return arena_printf(arena,
                        "%s%%%d:2 = cache_attention(%%0, %%1, %%2, %%3, %%4%s) {seq=seq, "
                        "head=head, %sscale=%.9g%s} : A%s, %s, %s], f32%s, %s]\n",
                        leaves, s->starts ? 6 : 5, s->starts ? ", %5" : "", window,
                        s->scale != 0 ? s->scale : 1.7 / sqrt(s->head), cap, rows, heads, value,
                        rows, heads);
}

/* Runs are of 64 keys at least, of 32 with heads over 128 and without tensor cores; tiles of 64
 * rows, of 128 with heads of 256, of 16 without tensor cores. */
static void test_attention(void) {
    static const Shape SHAPES[] = {
        /* one new position: of one run and of several; of none */
        {2, 1, 2, 3, 64, 50, BF16, "#50", 0, NULL, 0, 0, 0, false, NULL},
        {3, 1, 2, 4, 128, 270, BF16, "#300", 0, NULL, 0, 0, 0, false, NULL},
        {2, 1, 1, 1, 32, 200, F16, "#200", 0, NULL, 0, 0, 0, false, NULL},
        {2, 1, 1, 2, 64, 90, F16, ":-1", 0, NULL, 0, 0, 0, false, NULL},
        /* several, in any order: rows of two tiles, a group that is no power of two */
        {1, 23, 2, 3, 64, 150, BF16, "#160", 0, NULL, 0, 0, 0, false, NULL},
        {2, 70, 1, 1, 32, 100, BF16, "#100", 0, NULL, 0, 0, 0, false, NULL},
        {1, 5, 1, 7, 80, 140, F16, "#140", 0, NULL, 0, 0, 0, false, NULL},
        /* so many heads that a run is of several tiles; peaked, so that maxima grow */
        {2, 1, 66, 2, 32, 300, BF16, ":299", 0, NULL, 0, 10, 0, false, ":1"},
        {1, 1, 132, 1, 20, 130, F32, ":129", 0, NULL, 0, 2, 0, false, ":1"},
        /* windows, documents, soft caps, peaked */
        {2, 6, 2, 2, 64, 260, BF16, "#260", 33, NULL, 0, 0, 0, false, NULL},
        {2, 4, 1, 3, 32, 200, F16, "#200", 0, "#200", 2, 1, 0, false, NULL},
        {2, 3, 1, 2, 128, 270, BF16, "#270", 150, "#250", 0, 1, 0, false, NULL},
        /* heads over 128, values of another size, keys and values of all heads */
        {1, 3, 1, 2, 192, 110, BF16, "#110", 0, NULL, 0, 0, 128, false, NULL},
        {2, 2, 1, 3, 72, 70, F16, "#70", 0, NULL, 3, 0, 40, false, NULL},
        {1, 9, 1, 16, 256, 70, BF16, "#70", 0, NULL, 0, 0, 0, false, NULL},
        {1, 2, 1, 1, 168, 40, F16, "#40", 20, NULL, 0, 0, 168, false, NULL},
        {2, 2, 1, 5, 72, 100, BF16, "#100", 0, NULL, 0, 0, 64, true, NULL},
        /* without tensor cores */
        {2, 1, 2, 3, 40, 130, F32, "#140", 0, NULL, 0, 0, 0, false, NULL},
        {2, 7, 1, 5, 33, 100, F32, "#100", 20, "#90", 3, 0, 0, false, NULL},
        {1, 3, 1, 2, 255, 40, F32, "#40", 0, NULL, 0, -0.3, 0, false, NULL},
        {2, 3, 1, 3, 13, 70, BF16, "#70", 0, NULL, 0, 0, 20, false, NULL},
        {1, 2, 1, 2, 64, 70, F16, "#70", 0, NULL, 0, -0.2, 0, false, NULL},
        {2, 2, 1, 18, 576, 70, BF16, "#70", 0, NULL, 0, 0.05, 512, true, NULL},
        {1, 1, 1, 3, 40, 70, F32, "#70", 0, NULL, 0, 0, 36, true, NULL},
    };
    static const double TOLERANCE[N_KINDS] = {1e-5, 4e-2, 5e-3};
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) {
        const Shape *s = &SHAPES[i];
        Arena *arena = arena_create();
        check_nodes(arena_printf(arena,
                                 "attention to a cache of %d, batch %d, seq %d, kv %d, group %d, "
                                 "head %d%s%s%s%s",
                                 s->context, s->batch, s->seq, s->kv_heads, s->group, s->head,
                                 s->values ? arena_printf(arena, ", values %d", s->values) : "",
                                 s->window ? arena_printf(arena, ", window %d", s->window) : "",
                                 s->starts ? ", documents" : "",
                                 s->softcap > 0 ? ", soft cap" : ""),
                    make_nodes(arena, s), s->kind, TOLERANCE[s->kind]);
        arena_destroy(arena);
    }
}

/* States: a group of heads, the delta rule; tiles that are not full; places begin anew at 0, rows
 * are others than those of the batch and beyond them. */
static void test_states(void) {
    static const char GROUPS[] = INPUT(0, "", "A[batch=2, seq=7, kv=2, head=5]")
        INPUT(1, "", "A[batch=2, seq=7, kv=2, head=5]")
            INPUT(2, "", "A[batch=2, seq=7, kv=2, group=3, value=4]")
                INPUT(3, "", "f32[sequences=3, kv=2, group=3, head=5, value=4]")
                    INPUT(4, "#4", "i32[batch=2]") INPUT(5, "#3", "i32[batch=2, seq=7]") INPUT(
                        6, "-",
                        "f32[batch=2, seq=7, kv=2, group=3]") "%7:2 = cache_linear_attention(%0, "
                                                              "%1, %2, %3, %4, %5, %6) {seq=seq, "
                                                              "head=head, scale=0.5} : A[batch=2, "
                                                              "seq=7, kv=2, group=3, value=4], "
                                                              "f32[sequences=3, kv=2, group=3, "
                                                              "head=5, value=4]\n";
#define WRITTEN(keys, values, places, of)                                                          \
    INPUT(0, ":0.125", "A[batch=1, seq=5, head=" keys "]")                                         \
    INPUT(1, ":0.0625", "A[batch=1, seq=5, head=" keys "]")                                        \
    INPUT(2, "", "A[batch=1, seq=5, value=" values "]")                                            \
    INPUT(3, "", "f32[sequences=2, head=" keys ", value=" values "]")                              \
    INPUT(4, "#2", "i32[batch=1]")                                                                 \
    INPUT(5, places, "i32[batch=1, seq=5]")                                                        \
    INPUT(6, "-", "f32[batch=1, seq=5" of "]")                                                     \
    INPUT(7, "+", "f32[batch=1, seq=5]")                                                           \
    "%8:2 = cache_linear_attention(%0, %1, %2, %3, %4, "                                           \
    "%5, %6, %7) {seq=seq, head=head, scale=1} "                                                   \
    ": A[batch=1, seq=5, value=" values "], f32[sequences=2, head=" keys ", value=" values "]\n"
    for (int kind = 0; kind < N_KINDS; kind++) {
        check_nodes("states of groups", GROUPS, (Kind)kind, 6e-6);
        check_nodes("states, the delta rule", WRITTEN("70", "41", "#9", ""), (Kind)kind, 6e-6);
        check_nodes("states, decays of keys", WRITTEN("7", "41", "#9", ", head=7"), (Kind)kind,
                    6e-6);
        check_nodes("states, nothing new", WRITTEN("3", "70", ":-1", ""), (Kind)kind, 6e-6);
    }
    check_nodes("states of many keys", WRITTEN("255", "33", "#2", ""), F32, 6e-6);
    check_nodes("decays of many keys", WRITTEN("130", "3", "#2", ", head=130"), F32, 6e-6);
    check_nodes("decays of more keys than warps have rows", WRITTEN("70", "3", "#2", ", head=70"),
                F32, 6e-6);
}

/* Channels of more than a block, more taps than positions, documents, nothing new. */
static void test_convolve(void) {
#define CONVOLVED(batch, seq, cols, taps, before, places)                                          \
    INPUT(0, "", "A[batch=" batch ", seq=" seq ", cols=" cols "]")                                 \
    INPUT(1, "", "A[sequences=3, before=" before ", cols=" cols "]")                               \
    INPUT(2, "", "f32[taps=" taps ", cols=" cols "]")                                              \
    INPUT(3, "#4", "i32[batch=" batch "]")                                                         \
    INPUT(4, places, "i32[batch=" batch ", seq=" seq "]")                                          \
    INPUT(5, "#4", "i32[batch=" batch ", seq=" seq "]")                                            \
    "%6:2 = cache_convolve(%0, %1, %2, %3, %4, %5) {seq=seq, axis=taps} : "                        \
    "A[batch=" batch ", seq=" seq ", cols=" cols "], A[sequences=3, before=" before ", cols=" cols \
    "]\n"
    for (int kind = 0; kind < N_KINDS; kind++) {
        check_nodes("convolutions go on", CONVOLVED("1", "5", "37", "4", "3", "#9"), (Kind)kind,
                    6e-6);
        check_nodes("convolutions of more taps", CONVOLVED("1", "2", "300", "8", "7", "#9"),
                    (Kind)kind, 6e-6);
        check_nodes("convolutions, nothing new", CONVOLVED("2", "1", "6", "3", "2", ":-1"),
                    (Kind)kind, 6e-6);
    }
}

/* Each sequence is at another place. */
static void test_rotary(void) {
    static const char TURNED[] = INPUT(0, "", "A[batch=3, seq=2, kv=2, group=2, head=16]")
        INPUT(1, "#90", "i32[batch=3, seq=2]") "%2 = rotary(%0, %1) {seq=seq, head=head, base=100, "
                                               "direction=1} : A[batch=3, seq=2, "
                                               "kv=2, group=2, head=16]\n";
    for (int kind = 0; kind < N_KINDS; kind++)
        check_nodes("rotary places", TURNED, (Kind)kind, 1e-5);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_rows();
    test_attention();
    test_states();
    test_convolve();
    test_rotary();
    cuda_check_coverage(launched, KERNEL_cache_append_2, KERNEL_cache_convolve_keep);
    return check_report();
}
