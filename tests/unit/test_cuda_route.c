/* CUDA kernels of sparse mixtures of experts, through their binders and the emulator, against
 * float64, rows in f32, bf16 and f16.
 *
 * Would catch: places counted wrong across threads, warps or tiles; an expert that takes more than
 * its slots; empty or padding slots not emptied; a rank that takes its experts for the first ones;
 * rows of no whole vectors; a choice that ties, or is not a number, chosen otherwise than on the
 * CPU; results that depend on the order of threads.
 */
#include "runtime/cuda/kernels/args.h"
#include "tests/unit/cuda_check.h"

static const double TOLERANCE = 3e-6; /* as in test_cuda_layers */
static bool launched[N_KERNELS];

static void check_nodes(const char *name, const char *mesh, const char *nodes) {
    check_begin(name);
    cuda_check(
        &(CudaCase){.mesh = mesh, .nodes = nodes, .tolerance = TOLERANCE, .launched = launched});
    check_end();
}

#define INPUT(id, values, type) "%" #id " = input() {name=\"" values "\"} : " type "\n"
#define EXPERTS(n)              "experts=" #n

static void test_choices(void) {
    check_nodes(
        "choices, ties of zeros, and of all", NULL,
        INPUT(0, "", "f32[rows=37, routes=67]") INPUT(1, ":0", "f32[rows=2, routes=5]") INPUT(
            2, ":nan",
            "f32[routes=40]") "%3 = top(%0) {axis=routes, to=[choice], count=8} : i32[rows=37, "
                              "choice=8]\n"
                              "%4 = top(%1) {axis=routes, to=[choice], count=5} : i32[rows=2, "
                              "choice=5]\n"
                              "%5 = top(%2) {axis=routes, to=[choice], count=2} : i32[choice=2]\n"
                              "%6 = take(%0, %3) {axis=routes} : f32[rows=37, choice=8]\n"
                              "%7 = put(%6, %3) {axis=routes, count=67} : f32[rows=37, routes=67]\n"
                              "%8 = put(%6, %3) {axis=routes, count=30} : f32[rows=37, "
                              "routes=30]\n");
}

/* Tables: more choices than a tile of a block, experts that overflow and that get nothing; numbers
 * of experts that there are not. */
static void test_tables(void) {
    check_nodes(
        "a route of several tiles", NULL,
        INPUT(0, "#4",
              "i32[batch=2, seq=1700, choice=3]") "%1:3 = route(%0) {to=[experts, slot, routes], "
                                                  "experts=3, slots=900} : i32[batch=2, "
                                                  "seq=1700, choice=3], i32[experts=3, batch=2, "
                                                  "slot=900], f32[batch=2, routes=3]\n");
    check_nodes(
        "a route with room for all", NULL,
        INPUT(0, "#3",
              "i32[batch=3, seq=9, choice=1]") "%1:3 = route(%0) {to=[experts, slot, routes], "
                                               "experts=5, slots=9} : i32[batch=3, "
                                               "seq=9, choice=1], i32[experts=5, batch=3, slot=9], "
                                               "f32[batch=3, routes=5]\n");
}

/* 5 experts over t=2: the second rank's third is padding. A[ is each dtype, $ the row's numbers. */
static const char MOVES[] = INPUT(0, "#5", "i32[batch=4/d, seq=11, choice=2]")
    INPUT(1, "", "A[batch=4/d, seq=11, model=$]") INPUT(
        2, "+", "f32[batch=4/d, seq=11, choice=2]") "%3:3 = route(%0) {to=[experts, slot, routes], "
                                                    "experts=5, slots=4} : i32[batch=4/d, seq=11, "
                                                    "choice=2], i32[experts=5/t, batch=4/d, "
                                                    "slot=4], f32[batch=4/d, routes=5]\n"
                                                    "%4 = dispatch(%1, %3, %3.1) : A[experts=5/t, "
                                                    "batch=4/d, slot=4, model=$]\n"
                                                    "%5 = dispatch(%1, %3, %3.1, %2) : "
                                                    "A[experts=5/t, batch=4/d, slot=4, model=$]\n"
                                                    "%6 = combine(%4, %3, %3.1, %2) : A[batch=4/d, "
                                                    "seq=11, model=$]~sum(t)\n"
                                                    "%7 = combine(%5, %3, %3.1) : A[batch=4/d, "
                                                    "seq=11, model=$]~sum(t)\n"
                                                    "%8 = slot_dot(%5, %3, %3.1, %1) : "
                                                    "f32[batch=4/d, seq=11, choice=2]~sum(t)\n";

static void check_moves(const char *dtype, int model) {
    Arena *arena = arena_create();
    const char *text = "", *at = MOVES, *next;
    for (; (next = strpbrk(at, "A$")); at = next + 1) {
        const char *with = *next == 'A' ? dtype : arena_printf(arena, "%d", model);
        text = arena_printf(arena, "%s%.*s%s", text, (int)(next - at), at, with);
    }
    text = arena_printf(arena, "%s%s", text, at);
    check_begin(arena_printf(arena, "rows of %d, %s, experts divided", model, dtype));
    cuda_check(&(CudaCase){.mesh = "t=2, d=2, p=1",
                           .nodes = text,
                           .tolerance = dtype[0] == 'f' && dtype[1] == '3' ? TOLERANCE : 0.004,
                           .launched = launched,
                           .nonzero_pads = true}); /* of tokens: -1 */
    check_end();
    arena_destroy(arena);
}

int main(void) {
    static const char *const DTYPES[] = {"f32", "bf16", "f16"};
    if (cuda_check_missing()) return 0;
    test_choices();
    test_tables();
    for (int i = 0; i < 3; i++) {
        check_moves(DTYPES[i], 7);
        check_moves(DTYPES[i], 264);
    }
    cuda_check_coverage(launched, KERNEL_route_top, KERNEL_route_dot_f16);
    return check_report();
}
