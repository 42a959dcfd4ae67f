/* CUDA kernels of linear attention, position by position, and convolutions, through their binders
 * and the emulator, against float64, in f32, bf16 and f16.
 *
 * Would catch: rows or columns that there are not and that count; a thread that takes another's
 * rows; sums that miss a group of columns, a warp, a tile or a head; a run or a part of the
 * sequence that begins with another state than the one before left; errors that are not the stored
 * ones; a sequence, document or head that sees another's; sums that go on behind a decay to
 * nothing; results that depend on the order of threads.
 */
#include "runtime/cuda/kernels/args.h"
#include "tests/unit/cuda_check.h"

/* Sums of up to 300 terms through states of as many positions: some f32 roundings of 6e-8. Results
 * in 16 bits are allowed their own rounding on top (kernel_run_error). */
static const double TOLERANCE = 6e-6;

static bool launched[N_KERNELS];
static const char *const WIDE[] = {"f32", "bf16", "f16"};

/* "A[" in the nodes is f32[, bf16[ and f16[ in turn, "SEQ" and the like the number of that name. */
typedef struct Size {
    const char *name;
    int value;
} Size;

static const char *put_sizes(Arena *arena, const char *nodes, const char *dtype,
                             const Size *sizes) {
    const char *text = "";
    while (*nodes) {
        const char *with = *nodes == 'A' && nodes[1] == '[' ? dtype : NULL;
        size_t length = 1;
        for (const Size *size = sizes; size->name && !with; size++) {
            if (strncmp(nodes, size->name, strlen(size->name)) != 0) continue;
            length = strlen(size->name);
            with = arena_printf(arena, "%d", size->value);
        }
        text = with ? arena_printf(arena, "%s%s", text, with)
                    : arena_printf(arena, "%s%c", text, *nodes);
        nodes += length;
    }
    return text;
}

/* low: the tolerance in 16 bits; 0: f32 alone. */
static void check_ranks(const char *name, const char *mesh, const char *nodes, const Size *sizes,
                        double low) {
    for (int type = 0; type < (low > 0 ? 3 : 1); type++) {
        Arena *arena = arena_create();
        check_begin(arena_printf(arena, "%s, %s", name, WIDE[type]));
        cuda_check(&(CudaCase){.mesh = mesh,
                               .nodes = put_sizes(arena, nodes, WIDE[type], sizes),
                               .tolerance = type ? low : TOLERANCE,
                               .launched = launched});
        check_end();
        arena_destroy(arena);
    }
}

static void check_nodes(const char *name, const char *nodes, const Size *sizes) {
    check_ranks(name, NULL, nodes, sizes, TOLERANCE);
}

#define PARAM(id, values, type)                                                                    \
    "%" #id " = param() {name=\"" values "\", init=\"zeros\", decay=1} : " type "\n"
#define INPUT(id, values, type) "%" #id " = input() {name=\"" values "\"} : " type "\n"

/* Linear attention */

#define QUERIES "A[batch=BATCH, seq=SEQ, kv=KV, head=KEYS]"
#define VALUES  "A[batch=BATCH, seq=SEQ, kv=KV, group=HEADS, value=VALUES]"
#define NUMBERS "f32[batch=BATCH, seq=SEQ, kv=KV, group=HEADS]"
#define EACH    "f32[batch=BATCH, seq=SEQ, kv=KV, group=HEADS, head=KEYS]"
#define SCALED  " {seq=seq, head=head, scale=0.5} : "
#define OPERANDS(decay, of)                                                                        \
    INPUT(0, "", QUERIES)                                                                          \
    INPUT(1, "", QUERIES) INPUT(2, "", VALUES) INPUT(3, decay, of) INPUT(4, "", VALUES)
/* Decays are `of` heads, NUMBERS, or of keys, EACH. */
#define PLAIN(decay, of)                                                                           \
    OPERANDS(decay, of)                                                                            \
    "%5 = linear_attention(%0, %1, %2, %3)" SCALED VALUES "\n"                                     \
    "%6:4 = linear_attention_grad(%0, %1, %2, %4, %3)" SCALED QUERIES ", " QUERIES ", " VALUES     \
    ", " of "\n"
#define DELTA(decay, of, write)                                                                    \
    OPERANDS(decay, of)                                                                            \
    INPUT(5, write, NUMBERS)                                                                       \
    "%6:2 = linear_attention(%0, %1, %2, %3, %5)" SCALED VALUES ", " VALUES "\n"                   \
    "%7:4 = linear_attention_grad(%0, %1, %2, %4, %3, %5)" SCALED QUERIES ", " QUERIES ", " VALUES \
    ", " of "\n"

static void check_linear_attention(int batch, int seq, int kv, int heads, int keys, int values) {
    Arena *arena = arena_create();
    const Size sizes[] = {{"BATCH", batch}, {"SEQ", seq},       {"KV", kv}, {"HEADS", heads},
                          {"KEYS", keys},   {"VALUES", values}, {0}};
    const char *name = arena_printf(arena, "linear attention, %d x %d, %d x %d, %d x %d", batch,
                                    seq, kv, heads, keys, values);
    /* test_cuda_chunk has what goes by chunks in 16 bits. */
    bool chunks = keys % 8 == 0 && values % 8 == 0;
    check_ranks(name, NULL, PLAIN("-", NUMBERS), sizes, chunks ? 0 : TOLERANCE);
    /* So little of many keys that states do not grow. */
    chunks &= keys <= LINEAR_ATTENTION_CHUNK_DELTA_KEYS;
    check_ranks(arena_printf(arena, "%s, the delta rule", name), NULL,
                keys <= 5 ? DELTA("-", NUMBERS, "+") : DELTA("-", NUMBERS, ":0.03125"), sizes,
                chunks ? 0 : TOLERANCE);
    arena_destroy(arena);
}

/* With a decay for each key, which go position by position in all dtypes. */
static void check_decays_of_keys(int batch, int seq, int kv, int heads, int keys, int values) {
    Arena *arena = arena_create();
    const Size sizes[] = {{"BATCH", batch}, {"SEQ", seq},       {"KV", kv}, {"HEADS", heads},
                          {"KEYS", keys},   {"VALUES", values}, {0}};
    const char *name = arena_printf(arena, "decays of keys, %d x %d, %d x %d, %d x %d", batch, seq,
                                    kv, heads, keys, values);
    const double low = keys <= 19 ? TOLERANCE : 0;
    check_ranks(name, NULL, PLAIN("-", EACH), sizes, low);
    check_ranks(arena_printf(arena, "%s, the delta rule", name), NULL,
                keys <= 5 ? DELTA("-", EACH, "+") : DELTA("-", EACH, ":0.03125"), sizes, low);
    arena_destroy(arena);
}

/* Of each number of keys that kernels are for, whole 16 bytes and not; values of a warp, several,
 * and two tiles; runs that are not full, and one that is; two parts of a sequence. */
static void test_linear_attention(void) {
    check_linear_attention(2, 11, 2, 3, 5, 3);
    check_linear_attention(1, 8, 1, 2, 16, 40);
    check_linear_attention(1, 9, 1, 1, 24, 72);
    check_linear_attention(1, 3, 2, 1, 19, 33);
    check_linear_attention(1, 9, 1, 1, 40, 24);
    check_linear_attention(1, 4, 1, 1, 61, 17);
    check_linear_attention(1, 9, 1, 1, 128, 72);
    check_linear_attention(1, 5, 1, 1, 67, 21);
    check_linear_attention(1, 5, 1, 1, 136, 40);
    check_linear_attention(1, 3, 1, 1, 255, 9);
    check_linear_attention(1, 259, 1, 2, 3, 2);
}

/* Each kernel; whole 16 bytes and not, in 16 bits, too; two tiles; two parts of a sequence. */
static void test_decays_of_keys(void) {
    check_decays_of_keys(2, 11, 2, 3, 5, 3);
    check_decays_of_keys(1, 9, 1, 2, 16, 72);
    check_decays_of_keys(1, 3, 2, 1, 19, 33);
    check_decays_of_keys(1, 5, 1, 1, 61, 17);
    check_decays_of_keys(1, 9, 1, 1, 128, 72);
    check_decays_of_keys(1, 5, 1, 1, 136, 40);
    check_decays_of_keys(1, 259, 1, 2, 3, 2);
}

/* Decays to nothing, whose gradients are zero without what sums leave that should be. */
static void test_decays_to_nothing(void) {
    const Size sizes[] = {{"BATCH", 1}, {"SEQ", 35},   {"KV", 1}, {"HEADS", 1},
                          {"KEYS", 7},  {"VALUES", 5}, {0}};
    check_nodes("linear attention, decays to nothing", PLAIN(":-1000", NUMBERS), sizes);
    check_nodes("the delta rule, decays to nothing", DELTA(":-1000", NUMBERS, "+"), sizes);
    check_nodes("decays of keys to nothing", DELTA(":-1000", EACH, "+"), sizes);
}

/* Heads of one group over two ranks, the last of which has one less; sequences likewise. Each rank
 * rounds its share of the sums over heads. */
static void test_divided(void) {
    static const char HEADS[] = PARAM(0, "", "A[batch=3/d, seq=5, head=12]") PARAM(
        1, "", "A[batch=3/d, seq=5, head=12]") PARAM(2, "",
                                                     "A[batch=3/d, seq=5, heads=3/t, value=8]")
        PARAM(3, "-", "f32[batch=3/d, seq=5, heads=3/t]")
            PARAM(4, "", "A[batch=3/d, seq=5, heads=3/t, value=8]") PARAM(
                5, ":0.125",
                "f32[batch=3/d, seq=5, heads=3/t]") "%6:2 = linear_attention(%0, %1, %2, %3, %5) "
                                                    "{seq=seq, head=head, scale=1} : "
                                                    "A[batch=3/d, seq=5, heads=3/t, value=8], "
                                                    "A[batch=3/d, seq=5, heads=3/t, value=8]\n"
                                                    "%7:4 = linear_attention_grad(%0, %1, %6.1, "
                                                    "%4, %3, %5) {seq=seq, head=head, scale=1} : "
                                                    "A[batch=3/d, seq=5, head=12]~sum(t), "
                                                    "A[batch=3/d, seq=5, head=12]~sum(t), "
                                                    "A[batch=3/d, seq=5, heads=3/t, value=8], "
                                                    "f32[batch=3/d, seq=5, heads=3/t]\n";
    static const char CHANNELS[] = PARAM(0, "", "A[batch=3/d, seq=5, cols=7/t]")
        PARAM(1, "", "f32[taps=4, cols=7/t]") "%2 = convolve(%0, %1) {seq=seq, axis=taps} : "
                                              "A[batch=3/d, seq=5, cols=7/t]\n"
                                              "%3:2 = convolve_grad(%0, %1, %2) {seq=seq, "
                                              "axis=taps} : A[batch=3/d, seq=5, cols=7/t], "
                                              "f32[taps=4, cols=7/t]~sum(d)\n";
    const Size none[] = {{0}};
    check_ranks("linear attention, heads and sequences divided", "t=2, d=2, p=1", HEADS, none,
                0.01);
    check_ranks("convolutions, channels and sequences divided", "t=2, d=2, p=1", CHANNELS, none,
                TOLERANCE);
}

/* Convolutions */

static const char CONVOLVE[] = INPUT(0, "", "A[batch=BATCH, seq=SEQ, cols=COLS]") INPUT(
    1, "", "f32[taps=TAPS, cols=COLS]") INPUT(2, "", "A[batch=BATCH, seq=SEQ, cols=COLS]")
    INPUT(3, "#5", "i32[batch=BATCH, seq=SEQ]") "%4 = convolve(%0, %1) {seq=seq, axis=taps} : "
                                                "A[batch=BATCH, seq=SEQ, cols=COLS]\n"
                                                "%5 = convolve(%0, %1, %3) {seq=seq, axis=taps} : "
                                                "A[batch=BATCH, seq=SEQ, cols=COLS]\n"
                                                "%6:2 = convolve_grad(%0, %1, %2) {seq=seq, "
                                                "axis=taps} : A[batch=BATCH, seq=SEQ, cols=COLS], "
                                                "f32[taps=TAPS, cols=COLS]\n"
                                                "%7:2 = convolve_grad(%0, %1, %2, %3) {seq=seq, "
                                                "axis=taps} : A[batch=BATCH, seq=SEQ, "
                                                "cols=COLS], f32[taps=TAPS, cols=COLS]\n";

static void check_convolve(int batch, int seq, int cols, int taps) {
    Arena *arena = arena_create();
    const Size sizes[] = {{"BATCH", batch}, {"SEQ", seq}, {"COLS", cols}, {"TAPS", taps}, {0}};
    check_nodes(arena_printf(arena, "convolutions, %d x %d x %d, %d taps", batch, seq, cols, taps),
                CONVOLVE, sizes);
    arena_destroy(arena);
}

/* Channels in packs and not, more than a block's; groups of rows that end within a sequence; more
 * taps than positions. */
static void test_convolve(void) {
    check_convolve(2, 7, 5, 4);
    check_convolve(3, 37, 12, 4);
    check_convolve(2, 3, 520, 8);
    check_convolve(1, 40, 131, 3);
    check_convolve(2, 1, 8, 1);
}

int main(void) {
    if (cuda_check_missing()) return 0;
    test_linear_attention();
    test_decays_of_keys();
    test_decays_to_nothing();
    test_convolve();
    test_divided();
    cuda_check_coverage(launched, KERNEL_linear_attention_16,
                        KERNEL_linear_chunk_states_64_bf16 - 1);
    cuda_check_coverage(launched, KERNEL_linear_chunk_decays + 1, KERNEL_convolve_grad_packs_f16);
    return check_report();
}
