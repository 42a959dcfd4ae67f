/* The machine that runs PTX (tests/ptx), on kernels written by hand: what they compute, and that
 * each fault it is there for is found.
 *
 * Would catch: an instruction that computes something else; branches that do not meet again; a
 * race, a misaligned or early access, a register that is not there yet that goes unseen; a correct
 * kernel that is refused.
 */
#include "tests/ptx/ptx.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef struct KernelArgs {
    void *out;
    const void *in;
} KernelArgs;

static Arena *arena;

/* One launch of one block. NULL: it ran; else what it said. */
static const char *run_text(const char *body, int threads, int shared_bytes,
                            const KernelArgs *args) {
    const char *text = arena_printf(
        arena,
        ".version 9.0\n.target sm_90a\n.address_size 64\n"
        ".extern .shared .align 1024 .b8 tiles[];\n"
        ".func (.param .b64 func_retval0) twice(\n.param .b64 twice_param_0\n)\n{\n"
        ".reg .f64 %%fd<3>;\nld.param.f64 %%fd1, [twice_param_0];\nadd.f64 %%fd2, %%fd1, %%fd1;\n"
        "st.param.f64 [func_retval0+0], %%fd2;\nret;\n}\n"
        ".visible .entry k(\n.param .align 8 .b8 k_param_0[16]\n)\n.maxntid 128, 1, 1\n{\n"
        ".reg .pred %%p<9>;\n.reg .b16 %%rs<9>;\n.reg .b32 %%r<32>;\n.reg .f32 %%f<64>;\n"
        ".reg .f64 %%fd<4>;\n.reg .b64 %%rd<16>;\n"
        "ld.param.u64 %%rd1, [k_param_0];\nld.param.u64 %%rd2, [k_param_0+8];\n"
        "mov.u32 %%r1, %%tid.x;\nmul.wide.u32 %%rd3, %%r1, 4;\nadd.s64 %%rd4, %%rd1, %%rd3;\n"
        "add.s64 %%rd5, %%rd2, %%rd3;\nshl.b32 %%r2, %%r1, 2;\n"
        "%s\nret;\n}\n",
        body);
    Diag *diag = diag_create();
    PtxModule *module = ptx_module_create(arena);
    ptx_module_add(module, "k.ptx", text);
    const PtxKernel *kernel = ptx_module_find(module, "k", diag);
    const char *why = kernel ? NULL : arena_printf(arena, "%s", diag_text(diag));
    diag_destroy(diag);
    PtxLaunch launch = {.kernel = kernel,
                        .grid = {1, 1, 1},
                        .threads = threads,
                        .shared_bytes = shared_bytes,
                        .args = args,
                        .args_bytes = sizeof *args};
    if (kernel && !ptx_launch(&launch)) why = ptx_error();
    return why;
}

/* --- what instructions compute: of thread t, out[t] from in[t] --- */

typedef struct Computation {
    const char *name, *body; /* %r3 is the input, %r4 the result */
    uint32_t in, expected;
} Computation;

static const Computation COMPUTATIONS[] = {
    {"add wraps", "add.s32 %r4, %r3, 1;", 0xffffffff, 0},
    {"mul.hi, signed", "mul.hi.s32 %r4, %r3, 3;", 0x80000000, 0xfffffffe},
    {"mul.hi, unsigned", "mul.hi.u32 %r4, %r3, 3;", 0x80000000, 1},
    {"mul.wide, signed",
     "mul.wide.s32 %rd6, %r3, -2; shr.u64 %rd7, %rd6, 32; cvt.u32.u64 %r4, %rd7;", 5, 0xffffffff},
    {"mad.lo", "mad.lo.s32 %r4, %r3, 7, 9;", 6, 51},
    {"shr, signed", "shr.s32 %r4, %r3, 4;", 0x80000010, 0xf8000001},
    {"shr by more than all", "shr.u32 %r4, %r3, 40;", 0xffffffff, 0},
    {"division towards zero", "div.s32 %r4, %r3, 2;", (uint32_t)-7, (uint32_t)-3},
    {"remainder", "rem.s32 %r4, %r3, 4;", (uint32_t)-7, (uint32_t)-3},
    {"unsigned division", "div.u32 %r4, %r3, 2;", (uint32_t)-7, 0x7ffffffc},
    {"bfi", "bfi.b32 %r4, 5, %r3, 8, 4;", 0xffffffff, 0xfffff5ff},
    {"prmt: bytes 4, 5, 0, 1", "prmt.b32 %r4, %r3, 305419896, 4180;", 0xaabbccdd, 0xccdd5678},
    {"popc", "popc.b32 %r4, %r3;", 0xf0f00001, 9},
    {"selp and setp", "setp.lt.s32 %p1, %r3, 0; selp.b32 %r4, 7, 8, %p1;", 0xfffffff0, 7},
    {"setp, unsigned", "setp.lt.u32 %p1, %r3, 5; selp.b32 %r4, 7, 8, %p1;", 0xfffffff0, 8},
    {"predicates",
     "setp.eq.s32 %p1, %r3, 4; setp.ne.s32 %p2, %r3, 4; or.pred %p3, %p1, %p2; not.pred %p4, %p3; "
     "selp.b32 %r4, 1, 2, %p4;",
     4, 2},
    {"a guard", "mov.u32 %r4, 1; setp.eq.s32 %p1, %r3, 4; @!%p1 mov.u32 %r4, 2;", 5, 2},
    {"fma rounds once", "mov.b32 %f1, %r3; fma.rn.f32 %f2, %f1, %f1, 0fBF800002; mov.b32 %r4, %f2;",
     0x3f800001, 0x28800000},
    {"comparison with what is no number",
     "mov.b32 %f1, %r3; setp.neu.f32 %p1, %f1, %f1; setp.lt.f32 %p2, %f1, 0f3F800000; "
     "selp.b32 %r5, 1, 0, %p1; selp.b32 %r4, 16, %r5, %p2;",
     0x7fc00000, 1},
    {"max of zeros is the positive one",
     "mov.b32 %f1, %r3; max.f32 %f2, %f1, 0f00000000; mov.b32 %r4, %f2;", 0x80000000, 0},
    {"min of zeros is the negative one",
     "mov.b32 %f1, %r3; min.f32 %f2, %f1, 0f80000000; mov.b32 %r4, %f2;", 0, 0x80000000},
    {"max leaves out what is no number",
     "mov.b32 %f1, %r3; max.f32 %f2, %f1, 0fC0000000; mov.b32 %r4, %f2;", 0x7fc00000, 0xc0000000},
    {"to bf16, ties to even", "mov.b32 %f1, %r3; cvt.rn.bf16.f32 %rs1, %f1; cvt.u32.u16 %r4, %rs1;",
     0x3f818000, 0x3f82},
    {"to f16, below the normal ones",
     "mov.b32 %f1, %r3; cvt.rn.f16.f32 %rs1, %f1; cvt.u32.u16 %r4, %rs1;", 0x33c00000, 2},
    {"from f16", "cvt.u16.u32 %rs1, %r3; cvt.f32.f16 %f1, %rs1; mov.b32 %r4, %f1;", 0xbc01,
     0xbf802000},
    {"a pair of f16", "mov.b32 %f1, %r3; mov.f32 %f2, 0f40000000; cvt.rn.f16x2.f32 %r4, %f1, %f2;",
     0x3f800000, 0x3c004000},
    {"towards zero", "mov.b32 %f1, %r3; cvt.rzi.s32.f32 %r4, %f1;", 0xbfe00000, (uint32_t)-1},
    {"to an integer, saturated", "mov.b32 %f1, %r3; cvt.rzi.s32.f32 %r4, %f1;", 0x7f000000,
     0x7fffffff},
    {"halves of a word", "mov.b32 {%rs1, %rs2}, %r3; mov.b32 %r4, {%rs2, %rs1};", 0x12345678,
     0x56781234},
    {"a call",
     "cvt.rn.f64.s32 %fd1, %r3; { .param .b64 param0; st.param.f64 [param0+0], %fd1; "
     ".param .b64 retval0; call.uni (retval0), twice, (param0); ld.param.f64 %fd2, "
     "[retval0+0]; } cvt.rzi.s32.f64 %r4, %fd2;",
     21, 42},
    {"a loop of different lengths",
     "mov.u32 %r4, 0; $L1: setp.gt.u32 %p1, %r4, %r1; @%p1 bra $L2; add.s32 %r4, %r4, 1; bra.uni "
     "$L1; $L2: sub.s32 %r4, %r4, %r1; add.s32 %r4, %r4, %r3;",
     10, 11},
    {"a shuffle", "mov.u32 %r5, 31; mov.u32 %r6, -1; shfl.sync.bfly.b32 %r4|%p1, %r3, 3, %r5, %r6;",
     6, 6},
    {"votes",
     "setp.eq.s32 %p1, %r1, 3; mov.u32 %r6, -1; vote.sync.any.pred %p2, %p1, %r6; "
     "selp.b32 %r4, %r3, 0, %p2;",
     9, 9},
    {"a sum in memory",
     "mov.b32 %f1, %r3; st.global.f32 [%rd4], %f1; red.relaxed.gpu.global.add.f32 [%rd4], %f1; "
     "fence.acq_rel.gpu; ld.acquire.gpu.global.u32 %r4, [%rd4];",
     0x3f800000, 0x40000000},
    {"lanes that are alike", "mov.u32 %r6, -1; match.any.sync.b32 %r4, %r3, %r6;", 5, 0xffffffff},
};

static void test_computations(void) {
    for (size_t c = 0; c < sizeof COMPUTATIONS / sizeof COMPUTATIONS[0]; c++) {
        const Computation *what = &COMPUTATIONS[c];
        uint32_t in[32], out[32] = {0};
        KernelArgs args = {out, in};
        for (int t = 0; t < 32; t++) in[t] = what->in;
        check_begin(arena_printf(arena, "ptx: %s", what->name));
        const char *why = run_text(arena_printf(arena,
                                                "ld.global.u32 %%r3, [%%rd5];\n%s\n"
                                                "st.global.u32 [%%rd4], %%r4;",
                                                what->body),
                                   32, 0, &args);
        CHECK(!why, "%s", why);
        for (int t = 0; t < 32; t++) CHECK(out[t] == what->expected, "thread %d: %#x", t, out[t]);
        check_end();
    }
}

/* --- faults --- */

typedef struct Fault {
    const char *name, *body;
    int threads, shared_bytes;
    const char *expected; /* part of what it says; NULL: nothing is wrong */
} Fault;

#define SHARE "mov.u32 %r7, tiles; add.s32 %r8, %r7, %r2;\n"
#define NEXT  "xor.b32 %r9, %r8, 4;\n"
#define FAR   "xor.b32 %r9, %r8, 128;\n"
static const Fault FAULTS[] = {
    {"a neighbour's word behind a barrier",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r10, [%r9];", 64, 256, NULL},
    {"without the barrier", SHARE FAR "st.shared.u32 [%r8], %r1; ld.shared.u32 %r10, [%r9];", 64,
     256, "nothing wrote"},
    {"read, then overwritten by another warp",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r10, [%r9]; "
               "st.shared.u32 [%r8], %r10;",
     64, 256, "no barrier between"},
    {"read, and overwritten behind a barrier",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r10, [%r9]; bar.sync 0; "
               "st.shared.u32 [%r8], %r10;",
     64, 256, NULL},
    {"a lane's word without a barrier of the warp",
     SHARE NEXT "st.shared.u32 [%r8], %r1; ld.shared.u32 %r10, [%r9];", 32, 128,
     "no barrier between"},
    {"a lane's word behind one",
     SHARE NEXT "st.shared.u32 [%r8], %r1; bar.warp.sync -1; ld.shared.u32 %r10, [%r9];", 32, 128,
     NULL},
    {"another warp's word behind a warp's barrier",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; st.shared.u32 [%r8], %r1; bar.warp.sync -1; "
               "ld.shared.u32 %r10, [%r9];",
     64, 256, "no barrier between"},
    {"two threads write one word", SHARE "st.shared.u32 [%r7], %r1;", 32, 128,
     "no barrier between"},
    {"16 bytes at 4",
     SHARE
     "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r7+4];",
     32, 128, "misaligned"},
    {"beyond shared memory", SHARE "st.shared.u32 [%r8+4], %r1;", 32, 128, "beyond"},
    {"what nothing wrote", SHARE "ld.shared.u32 %r10, [%r8];", 32, 128, "nothing wrote"},
    {"a register that nothing wrote", "add.s32 %r3, %r4, 1;", 32, 0, "reads a register"},
    {"a register that some lanes wrote",
     "setp.lt.u32 %p1, %r1, 7; @%p1 mov.u32 %r4, 1; add.s32 %r3, %r4, 1;", 32, 0, "lane 7"},
    {"8 bytes of global memory at 4", "ld.global.u64 %rd6, [%rd5];", 2, 0, "misaligned"},
    {"no pointer", "ld.global.u32 %r3, [0];", 1, 0, "nothing is there"},
    {"beyond the argument", "ld.param.u32 %r3, [k_param_0+16];", 1, 0, "argument"},
    {"half a warp at the block's barrier",
     "setp.lt.u32 %p1, %r1, 16; @%p1 bra $L1; bar.sync 0; $L1: add.s32 %r3, %r1, 1;", 32, 0,
     "come to the block's barrier"},
    {"a warp that ends before the barrier",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync 0; $L1: add.s32 %r3, %r1, 1;", 64, 0,
     "ended"},
    {"warps at different barriers",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync 0;\nbra.uni $L2; $L1:\nbar.sync 0;\n$L2: "
     "add.s32 %r3, %r1, 1;",
     64, 0, "barrier"},
    {"a shuffle without all of its lanes",
     "mov.u32 %r6, -1; setp.lt.u32 %p1, %r1, 16; @%p1 bra $L1; shfl.sync.idx.b32 %r4|%p2, %r1, 0, "
     "31, %r6; $L1: add.s32 %r3, %r1, 1;",
     32, 0, "not here"},
    {"ldmatrix of half a warp",
     SHARE
     "st.shared.u32 [%r8], %r1; bar.sync 0; and.b32 %r9, %r1, 7; shl.b32 %r9, %r9, 4; setp.lt.u32 "
     "%p1, %r1, 16; @%p1 bra $L1; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r10, %r11}, "
     "[%r9]; $L1: add.s32 %r3, %r1, 1;",
     32, 128, "whole warp"},
    {"matrices stored, and read by others",
     SHARE "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r7; "
           "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r9], {%r1, %r1, %r1, %r1}; "
           "xor.b32 %r9, %r9, 16; ld.shared.u32 %r10, [%r9];",
     32, 512, "no barrier between"},
    {"behind a barrier",
     SHARE "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r7; "
           "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r9], {%r1, %r1, %r1, %r1}; "
           "bar.warp.sync -1; xor.b32 %r9, %r9, 16; ld.shared.u32 %r10, [%r9];",
     32, 512, NULL},
    {"a wait for a block that does not come",
     "$L1: ld.acquire.gpu.global.u32 %r3, [%rd2]; setp.ne.u32 %p1, %r3, 77; @%p1 bra $L1;", 32, 0,
     "waits for what no block before it does"},
    {"a copy that was waited for",
     SHARE
     "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r7; cp.async.cg.shared.global [%r9], [%rd2], 16; "
     "cp.async.commit_group; cp.async.wait_group 0; ld.shared.u32 %r10, [%r9];",
     8, 128, NULL},
    {"a copy that was not",
     SHARE
     "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r7; cp.async.cg.shared.global [%r9], [%rd2], 16; "
     "cp.async.commit_group; cp.async.wait_group 1; ld.shared.u32 %r10, [%r9];",
     8, 128, "under way"},
    {"another's copy without a barrier",
     SHARE
     "shl.b32 %r9, %r1, 4; add.s32 %r9, %r9, %r7; cp.async.cg.shared.global [%r9], [%rd2], 16; "
     "cp.async.commit_group; cp.async.wait_group 0; xor.b32 %r10, %r9, 16; ld.shared.u32 %r11, "
     "[%r10];",
     8, 128, "no barrier between"},
    {"a copy from a misaligned place",
     SHARE "add.s64 %rd6, %rd2, 4; cp.async.cg.shared.global [%r7], [%rd6], 16;", 1, 128,
     "misaligned"},
    {"a word handed on at a named barrier",
     SHARE FAR
     "st.shared.u32 [%r8], %r1; setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync 1, 64; "
     "ld.shared.u32 %r10, [%r9]; bra.uni $L2; $L1: bar.arrive 1, 64; $L2: mov.u32 %r3, 0;",
     64, 256, NULL},
    {"overwritten by the one that only arrived there",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r10, [%r9];\n"
               "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.arrive 1, 64; st.shared.u32 [%r8], "
               "%r1; bra.uni $L2; $L1: bar.sync 1, 64; $L2: mov.u32 %r3, 0;",
     64, 256, "no barrier between"},
    {"overwritten by the one that waited there",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; ld.shared.u32 %r10, [%r9];\n"
               "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync 1, 64; st.shared.u32 [%r8], "
               "%r1; bra.uni $L2; $L1: bar.arrive 1, 64; $L2: mov.u32 %r3, 0;",
     64, 256, NULL},
    {"another barrier than that at which it was handed on",
     SHARE FAR "st.shared.u32 [%r8], %r1; bar.sync 0; setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1;\n"
               "ld.shared.u32 %r10, [%r9]; bar.sync 2, 32; bra.uni $L2;\n"
               "$L1: bar.sync 1, 32; st.shared.u32 [%r8], %r1; $L2: mov.u32 %r3, 0;",
     64, 256, "no barrier between"},
    {"barriers whose numbers are in a register",
     SHARE FAR
     "st.shared.u32 [%r8], %r1; mov.u32 %r12, 3; setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.sync "
     "%r12, 64; ld.shared.u32 %r10, [%r9]; bra.uni $L2; $L1: bar.arrive %r12, 64; $L2: mov.u32 "
     "%r3, 0;",
     64, 256, NULL},
    {"a warp whose lanes come to two barriers",
     "and.b32 %r12, %r1, 1; bar.sync %r12, 32; mov.u32 %r3, 0;", 32, 0,
     "another barrier than lane 0"},
    {"a barrier in a register that there is not",
     "mov.u32 %r12, 16; bar.sync %r12, 32; mov.u32 %r3, 0;", 32, 0, "barriers 0 to 15 only"},
    {"a warp that comes to a barrier twice",
     "setp.lt.u32 %p1, %r1, 32; @!%p1 bra $L1; bar.arrive 1, 64; bar.arrive 1, 64; $L1: mov.u32 "
     "%r3, 0;",
     64, 0, "comes twice"},
    {"warps that expect other numbers at a barrier",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra $L1; bar.arrive 1, 96; bra.uni $L2; $L1: bar.arrive 1, "
     "64; $L2: mov.u32 %r3, 0;",
     96, 0, "others are at that barrier"},
    {"a barrier to which too few come",
     "setp.lt.u32 %p1, %r1, 32; @!%p1 bra $L1; bar.sync 1, 64; $L1: mov.u32 %r3, 0;", 64, 0,
     "waits for ever"},
    {"an end with warps at a barrier",
     "setp.lt.u32 %p1, %r1, 32; @!%p1 bra $L1; bar.arrive 1, 64; $L1: mov.u32 %r3, 0;", 64, 0,
     "ends with warps"},
    {"an instruction that is not known", "bogus.u32 %r3, %r4;", 1, 0, "k.ptx:"},
    {"a name that is not known", "add.s32 %r3, %q4, 1;", 1, 0, "%q4"},
    {"text that ends too soon", "{ add.s32 %r3, %r1, 1;", 1, 0, "ends within"},
    {"a label that is nowhere", "bra.uni $nowhere;", 1, 0, "no label"},
};

static void test_faults(void) {
    static _Alignas(16) uint32_t in[64], out[64];
    for (size_t f = 0; f < sizeof FAULTS / sizeof FAULTS[0]; f++) {
        const Fault *fault = &FAULTS[f];
        check_begin(arena_printf(arena, "ptx: %s", fault->name));
        const char *why =
            run_text(fault->body, fault->threads, fault->shared_bytes, &(KernelArgs){out, in});
        if (!fault->expected)
            CHECK(!why, "%s", why);
        else
            CHECK(why && strstr(why, fault->expected), "it says: %s", why ? why : "nothing");
        check_end();
    }
}

/* --- wgmma: d [64, 64] = a [64, 16] b [64, 16]^T of four warps --- */

/* Thread t stores row t of a (t < 64) or of b: 32 bytes, in two chunks that change places by row.
 */
#define FILL                                                                                       \
    "shl.b32 %r10, %r1, 5; cvt.u64.u32 %rd6, %r10; add.s64 %rd7, %rd2, %rd6;\n"                    \
    "ld.global.v4.u32 {%r11, %r12, %r13, %r14}, [%rd7];\n"                                         \
    "ld.global.v4.u32 {%r15, %r16, %r17, %r18}, [%rd7+16];\n"                                      \
    "and.b32 %r19, %r1, 7; shl.b32 %r19, %r19, 4; shl.b32 %r20, %r1, 7; mov.u32 %r7, tiles;\n"     \
    "add.s32 %r20, %r20, %r7; add.s32 %r21, %r20, %r19; xor.b32 %r22, %r19, 16;\n"                 \
    "add.s32 %r22, %r20, %r22;\n"                                                                  \
    "st.shared.v4.u32 [%r21], {%r11, %r12, %r13, %r14};\n"                                         \
    "st.shared.v4.u32 [%r22], {%r15, %r16, %r17, %r18};\n"
#define HAND_OVER "fence.proxy.async.shared::cta;\n"
#define BARRIER   "bar.sync 0;\n"
/* Start / 16, 1024 bytes from eight rows to the next, 128-byte swizzle. */
#define DESCRIBE                                                                                   \
    "shr.u32 %r23, %r7, 4; cvt.u64.u32 %rd8, %r23; add.s64 %rd8, %rd8, 4611686293305294848;\n"     \
    "add.s64 %rd9, %rd8, 512;\n"
#define FENCE  "wgmma.fence.sync.aligned;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define WAIT   "wgmma.wait_group.sync.aligned 0;\n"

static const char *multiply_text(void) {
    const char *list = "%f0";
    for (int r = 1; r < 32; r++) list = arena_printf(arena, "%s, %%f%d", list, r);
    return arena_printf(
        arena,
        "{ .reg .pred p; setp.ne.b32 p, %%r25, 0; "
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%s}, %%rd8, %%rd9, p, "
        "1, 1, 0, 0; }\n",
        list);
}

/* Thread t's 32 sums, one after the other. */
static const char *store_text(void) {
    const char *text =
        "shl.b32 %r26, %r1, 7; cvt.u64.u32 %rd10, %r26; add.s64 %rd10, %rd1, %rd10;\n";
    for (int r = 0; r < 32; r++)
        text = arena_printf(arena, "%sst.global.f32 [%%rd10+%d], %%f%d;\n", text, 4 * r, r);
    return text;
}

static float bf16_of(uint16_t bits) {
    uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, 4);
    return x;
}

typedef struct WgmmaFault {
    const char *name, *before, *after; /* of the operation; the sums are stored after it */
    const char *expected;
} WgmmaFault;
static const WgmmaFault WGMMA_FAULTS[] = {
    {"a product", FILL HAND_OVER BARRIER DESCRIBE FENCE, COMMIT WAIT, NULL},
    {"tiles not handed over", FILL BARRIER DESCRIBE FENCE, COMMIT WAIT, "no proxy fence"},
    {"handed over before they are written", HAND_OVER FILL BARRIER DESCRIBE FENCE, COMMIT WAIT,
     "no proxy fence"},
    {"no barrier", FILL HAND_OVER DESCRIBE FENCE, COMMIT WAIT, "nothing wrote it"},
    {"a tile that ends beyond shared memory",
     FILL HAND_OVER BARRIER DESCRIBE "add.s64 %rd9, %rd9, 64;\n" FENCE, COMMIT WAIT, "beyond"},
    {"accumulators changed after the fence",
     FILL HAND_OVER BARRIER DESCRIBE FENCE "mov.f32 %f7, 0f00000000;\n", COMMIT WAIT,
     "no wgmma.fence since"},
    {"no fence at all", FILL HAND_OVER BARRIER DESCRIBE, COMMIT WAIT, "no wgmma.fence since"},
    {"sums read after the fence",
     FILL HAND_OVER BARRIER DESCRIBE "mov.f32 %f7, 0f00000000;\n" FENCE "mov.f32 %f40, %f7;\n",
     COMMIT WAIT, "no wgmma.fence since"},
    {"sums read before they are there", FILL HAND_OVER BARRIER DESCRIBE FENCE, COMMIT, "under way"},
    {"not committed", FILL HAND_OVER BARRIER DESCRIBE FENCE, WAIT, "under way"},
    {"a tile overwritten meanwhile", FILL HAND_OVER BARRIER DESCRIBE FENCE,
     COMMIT "st.shared.u32 [%r21], %r1;\n" WAIT, "a tile of a wgmma under way"},
    {"sums added to what is not there", FILL HAND_OVER BARRIER DESCRIBE "mov.u32 %r25, 1;\n" FENCE,
     COMMIT WAIT, "was not written"},
};

static void test_wgmma(void) {
    static _Alignas(16) uint16_t in[128][16];
    static float out[128][32];
    for (int t = 0; t < 128; t++) {
        for (int k = 0; k < 16; k++) /* small integers in bf16 */
            in[t][k] = (uint16_t)(0x3f80 + 0x40 * ((t * 7 + k * 5) % 5) + (t + k) % 3 * 0x20);
    }
    for (size_t f = 0; f < sizeof WGMMA_FAULTS / sizeof WGMMA_FAULTS[0]; f++) {
        const WgmmaFault *fault = &WGMMA_FAULTS[f];
        check_begin(arena_printf(arena, "ptx, wgmma: %s", fault->name));
        const char *why = run_text(arena_printf(arena, "mov.u32 %%r25, 0;\n%s%s%s%s", fault->before,
                                                multiply_text(), fault->after, store_text()),
                                   128, 128 * 128, &(KernelArgs){out, in});
        if (fault->expected) {
            CHECK(why && strstr(why, fault->expected), "it says: %s", why ? why : "nothing");
        } else {
            CHECK(!why, "%s", why);
            for (int t = 0; t < 128; t++) {
                for (int r = 0; r < 32; r++) {
                    int row = t / 32 * 16 + t % 32 / 4 + r % 4 / 2 * 8;
                    int column = r / 4 * 8 + t % 4 * 2 + r % 2;
                    float sum = 0;
                    for (int k = 0; k < 16; k++)
                        sum += bf16_of(in[row][k]) * bf16_of(in[64 + column][k]);
                    CHECK(fabsf(out[t][r] - sum) < 1e-4f * sum, "%d, %d: %g, not %g", row, column,
                          (double)out[t][r], (double)sum);
                }
            }
        }
        check_end();
    }
}

/* --- bulk copies: thread t stores 3 t into shared memory, and one thread copies or adds that ---
 */

#define NUMBER                                                                                     \
    "mul.lo.u32 %r11, %r1, 3; cvt.rn.f32.u32 %f1, %r11; mov.u32 %r7, tiles; add.s32 %r8, %r7, "    \
    "%r2;\n"
#define PUT        "st.shared.f32 [%r8], %f1;\n"
#define FIRST_ONLY "setp.ne.u32 %p1, %r1, 0; @%p1 bra $L1;\n"
#define COPY_BULK  "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r7], 128;\n"
#define ADD_BULK                                                                                   \
    "cp.reduce.async.bulk.global.shared::cta"                                                      \
    ".bulk_group.add.f32 [%rd1], [%r7], 128;\n"
#define WAIT_BULK "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
#define END       "$L1: mov.u32 %r3, 0;\n"

typedef struct BulkCase {
    const char *name, *body, *expected;
    float times; /* where nothing is wrong */
} BulkCase;
static const BulkCase BULK_CASES[] = {
    {"a copy", NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK WAIT_BULK END, NULL, 1},
    {"a copy and a sum",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK WAIT_BULK ADD_BULK WAIT_BULK END, NULL, 2},
    {"not handed over", NUMBER PUT BARRIER FIRST_ONLY COPY_BULK WAIT_BULK END, "no proxy fence", 0},
    {"handed over before it is written",
     NUMBER HAND_OVER PUT BARRIER FIRST_ONLY ADD_BULK WAIT_BULK END, "no proxy fence", 0},
    {"no barrier", NUMBER PUT HAND_OVER FIRST_ONLY COPY_BULK WAIT_BULK END, "no barrier", 0},
    {"overwritten meanwhile", NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK PUT WAIT_BULK END,
     "a bulk copy under way reads", 0},
    {"overwritten by others behind the wait, without a barrier",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK WAIT_BULK END
     "xor.b32 %r9, %r8, 128; st.shared.f32 [%r9], %f1;\n",
     "no barrier", 0},
    {"not waited for",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK "cp.async.bulk.commit_group;\n" END,
     "ends with a bulk copy", 0},
    {"not committed",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY COPY_BULK "cp.async.bulk.wait_group 0;\n" END,
     "ends with a bulk copy", 0},
    {"beyond shared memory",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY "add.s32 %r7, %r7, 192;\n" COPY_BULK WAIT_BULK END,
     "beyond", 0},
    {"misaligned",
     NUMBER PUT HAND_OVER BARRIER FIRST_ONLY "add.s32 %r7, %r7, 8;\n" COPY_BULK WAIT_BULK END,
     "not whole 16 bytes", 0},
};

static void test_bulk(void) {
    static _Alignas(16) float out[32];
    for (size_t c = 0; c < sizeof BULK_CASES / sizeof BULK_CASES[0]; c++) {
        const BulkCase *what = &BULK_CASES[c];
        check_begin(arena_printf(arena, "ptx, bulk: %s", what->name));
        memset(out, 0, sizeof out);
        const char *why = run_text(what->body, 64, 256, &(KernelArgs){out, NULL});
        if (what->expected) {
            CHECK(why && strstr(why, what->expected), "it says: %s", why ? why : "nothing");
        } else {
            CHECK(!why, "%s", why);
            for (int t = 0; t < 32; t++)
                CHECK(out[t] == what->times * 3 * (float)t, "%d: %g", t, (double)out[t]);
        }
        check_end();
    }
}

int main(void) {
    arena = arena_create();
    test_computations();
    test_faults();
    test_wgmma();
    test_bulk();
    arena_destroy(arena);
    return check_report();
}
