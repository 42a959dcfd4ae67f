/* The plan's text: that it says everything, reads back the same, stays small, and that nothing an
 * editor, a disk or an attacker does to it gets past the reader. */
#include "planner/plan/plan_text.h"
#include "tests/unit/check.h"
#include "tests/unit/small_plan.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const SmallPlan FIXTURES[] = {
    {"1f1b", 1, 1, 1, 1, 2, 2},         {"gpipe", 1, 1, 2, 1, 4, 2},
    {"1f1b", 2, 2, 2, 1, 4, 4},         {"1f1b", 1, 1, 4, 1, 8, 4},
    {"1f1b", 2, 1, 1, 1, 1, 3},         {"interleaved", 1, 1, 2, 2, 4, 4},
    {"interleaved", 2, 2, 4, 2, 8, 16},
};
enum { N_FIXTURES = sizeof(FIXTURES) / sizeof(FIXTURES[0]) };
enum { N_TUNED = 3 }; /* products of the device section */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void test_round_trip(DType precision) {
    check_begin(precision == DTYPE_F32 ? "print, parse, print: the same text, and the proofs hold"
                                       : "the same in bf16");
    small_precision = precision;
    for (int i = 0; i < N_FIXTURES; i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        StrBuf first = strbuf_create(), second = strbuf_create();
        Plan *plan = small_plan(arena, FIXTURES[i], diag);
        CHECK(plan, "fixture %d: %s", i, diag_text(diag));
        if (plan) {
            plan_print(&first, plan);
            Plan *back = plan_parse(arena, "a.plan", first.text, diag);
            CHECK(back, "fixture %d: %s", i, diag_text(diag));
            if (back) plan_print(&second, back);
            CHECK(strcmp(first.text, second.text) == 0, "fixture %d differs", i);
            CHECK(back && verify_plan(back, diag), "fixture %d: %s", i, diag_text(diag));
            CHECK(back && back->fingerprint == plan->fingerprint, "fixture %d: fingerprint", i);
        }
        strbuf_destroy(&first);
        strbuf_destroy(&second);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* As after tuning: two products, bytes that count up; an attention by each kind of kernels. */
static void add_device(Arena *arena, Plan *plan) {
    PlanAlgo *algos = ARENA_ARRAY(arena, PlanAlgo, N_TUNED);
    PlanAttention *attentions = ARENA_ARRAY(arena, PlanAttention, N_ATTENTION_KERNELS);
    for (int i = 0; i < N_ATTENTION_KERNELS; i++) {
        attentions[i] = (PlanAttention){.backward = i == 1,
                                        .causal = true,
                                        .dtype = DTYPE_BF16,
                                        .batch = 8,
                                        .seq = 1024,
                                        .kv_heads = 25,
                                        .group = i < 4 ? 1 + i / 2 : i,
                                        .head = 64,
                                        .values = i == 2 ? 48 : 64,
                                        .window = i == 2 ? 256 : 0,
                                        .keys = i == 2 ? 4096 : 1024,
                                        .documents = i == 2,
                                        .kernels = (AttentionKernels)i};
    }
    for (int i = 0; i < N_TUNED; i++) {
        algos[i] = (PlanAlgo){.layout = {.batch = 1 + i,
                                         .m = 8192,
                                         .n = 1600,
                                         .k = INT64_C(1) << 40,
                                         .transpose_a = i == 1,
                                         .transpose_b = i != 1},
                              .in_dtype = i < 2 ? DTYPE_BF16 : DTYPE_FP8,
                              .tiles = i < 2 ? 0 : 2,
                              .out_dtype = i ? DTYPE_F32 : DTYPE_BF16,
                              .accumulate = i > 0,
                              .epilogue = 3 * i};
        for (int b = 0; b < PLAN_ALGO_BYTES; b++) algos[i].bytes[b] = (unsigned char)(b * 5 + i);
    }
    plan->device = (PlanDevice){.name = "NVIDIA \"H200\"",
                                .arch = "sm_90",
                                .library_version = 130100,
                                .attention_version = 91900,
                                .n_algos = N_TUNED,
                                .n_attentions = N_ATTENTION_KERNELS,
                                .algos = algos,
                                .attentions = attentions};
}

static void test_device(Arena *arena, Diag *diag) {
    StrBuf without = strbuf_create(), first = strbuf_create(), second = strbuf_create();
    check_begin("a device section reads back the same, and the fingerprint covers it");
    Plan *plan = small_plan(arena, FIXTURES[1], diag);
    CHECK(plan, "%s", diag_text(diag));
    if (!plan) return;
    plan_print(&without, plan);
    CHECK(!strstr(without.text, "device "), "a section that nobody made");
    uint64_t before = plan_fingerprint(plan);
    add_device(arena, plan);
    uint64_t tuned = plan_fingerprint(plan);
    CHECK(tuned != before, "the section does not change the fingerprint");
    plan_print(&first, plan);
    CHECK(strstr(first.text,
                 "\ndevice \"NVIDIA \\22H200\\22\" sm_90 cublasLt=130100 cudnn=91900\n"
                 "algo batch=1 m=8192 n=1600 k=1099511627776 ta=0 tb=1 shared=0 in=bf16 "
                 "out=bf16 accumulate=0 epilogue=0 00050a"),
          "another form");
    CHECK(strstr(first.text, " shared=0 in=fp8 tiles=2 out=f32 "), "another form of fp8");
    CHECK(strstr(first.text, "\nattention backward=1 causal=1 dtype=bf16 batch=8 seq=1024 "
                             "kv_heads=25 group=1 head=64 kernels=mma\n"),
          "another form of attention");
    CHECK(strstr(first.text, " group=2 head=64 values=48 window=256 keys=4096 documents=1 "
                             "kernels=wgmma\n"),
          "another form of attention with all that may be said of it");
    Plan *back = plan_parse(arena, "a.plan", first.text, diag);
    CHECK(back && verify_plan(back, diag), "%s", diag_text(diag));
    if (back) {
        const PlanDevice *device = &back->device;
        plan_print(&second, back);
        CHECK(strcmp(first.text, second.text) == 0, "the texts differ");
        CHECK(back->fingerprint == tuned, "another fingerprint");
        CHECK(device->n_algos == N_TUNED && strcmp(device->name, "NVIDIA \"H200\"") == 0 &&
                  device->library_version == 130100,
              "another device");
        for (int i = 0; i < device->n_algos; i++) {
            CHECK(plan_algo_same_product(&device->algos[i], &plan->device.algos[i]) &&
                      memcmp(device->algos[i].bytes, plan->device.algos[i].bytes,
                             PLAN_ALGO_BYTES) == 0,
                  "product %d is another", i);
        }
        device->algos[1].bytes[63] ^= 1;
        CHECK(plan_fingerprint(back) != tuned, "an algorithm's last bit is not covered");
    }
    strbuf_destroy(&without);
    strbuf_destroy(&first);
    strbuf_destroy(&second);
}

static void test_tasks(Arena *arena) {
    static const char TEXT[] = "    3x(F0.0 sf0.0)+1\n    rb0.0\n    2x(B0.0 F0.3)+1\n    U\n";
    Diag *diag = diag_create();
    PlanReader reader = {.at = TEXT, .file = "t", .line = 1, .arena = arena, .diag = diag};
    StrBuf out = strbuf_create();
    Task *tasks;
    int n;
    check_begin("runs of tasks expand and shrink again");
    CHECK(plan_reader_tasks(&reader, 5, 1, &tasks, &n), "%s", diag_text(diag));
    CHECK(n == 12 && tasks[4].micro == 2 && tasks[9].kind == TASK_BACKWARD && tasks[10].micro == 4,
          "%d tasks", n);
    plan_put_tasks(&out, tasks, n);
    CHECK(strcmp(out.text, TEXT) == 0, "%s", out.text);
    strbuf_destroy(&out);
    diag_destroy(diag);
}

/* A 1T-parameter run's schedule: 64 stages, 512 micro-batches; the graphs are small here. */
static void test_large(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    StrBuf text = strbuf_create();
    check_begin("64 stages, 512 micro-batches: under 1 MB of text, read and proved in a second");
    Plan *plan = small_plan(arena, (SmallPlan){"1f1b", 8, 6, 64, 1, 512, 128}, diag);
    CHECK(plan, "%s", diag_text(diag));
    if (plan) {
        plan_print(&text, plan);
        CHECK(text.length < 1 << 20, "%zu bytes", text.length);
        double start = seconds();
        Plan *back = plan_parse(arena, "big.plan", text.text, diag);
        double parsed = seconds();
        CHECK(back && verify_plan(back, diag), "%s", diag_text(diag));
        double verified = seconds();
        CHECK(verified - start < 1, "parse %.3f s, verify %.3f s", parsed - start,
              verified - parsed);
        if (getenv("SHOW_TIMES")) {
            printf("# %zu bytes, %d programs, parse %.4f s, verify %.4f s\n", text.length,
                   plan->n_programs, parsed - start, verified - parsed);
        }
    }
    strbuf_destroy(&text);
    diag_destroy(diag);
    arena_destroy(arena);
}

static bool write_text(const char *path, const char *text, size_t length) {
    FILE *file = fopen(path, "wb");
    if (!file) return false;
    bool written = fwrite(text, 1, length, file) == length;
    return fclose(file) == 0 && written;
}

static void expect_unreadable(const char *path, const char *what, const char *message) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    CHECK(!plan_read(arena, path, diag), "%s is read", what);
    CHECK(strstr(diag_text(diag), message), "%s: %s", what, diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_files(Arena *arena, Diag *diag) {
    char path[] = "/tmp/test_plan_XXXXXX";
    int fd = mkstemp(path);
    check_begin("files: written, read, and refused when edited or cut");
    CHECK(fd >= 0, "no temporary file");
    Plan *plan = small_plan(arena, FIXTURES[1], diag);
    CHECK(plan && plan_write(plan, path, diag), "%s", diag_text(diag));
    if (fd < 0 || !plan) return;
    close(fd);
    Plan *back = plan_read(arena, path, diag);
    CHECK(back, "%s", diag_text(diag));
    CHECK(back && back->fingerprint == plan_fingerprint(plan), "another fingerprint");
    StrBuf text = strbuf_create();
    plan_print(&text, plan);
    char *rate = strstr(text.text, "learning_rate=0.001");
    if (rate) rate[strlen("learning_rate=0.00")] = '3';
    CHECK(rate && write_text(path, text.text, text.length), "cannot write");
    expect_unreadable(path, "an edited plan", "was edited: its fingerprint says ");
    if (rate) rate[strlen("learning_rate=0.00")] = '1';
    write_text(path, text.text, text.length * 2 / 3);
    expect_unreadable(path, "a cut plan", path);
    text.text[text.length / 2] = '\0';
    write_text(path, text.text, text.length);
    expect_unreadable(path, "a plan with a zero byte", "is no plan: it has zero bytes");
    strbuf_destroy(&text);
    unlink(path);
    expect_unreadable(path, "a missing file", path);
}

/* `from` (its first occurrence) becomes `to`: the message must name the line. */
static void test_mistakes(Arena *arena, Diag *diag) {
    static const struct {
        const char *from, *to, *message;
    } CASES[] = {
        {"perilune plan 26", "perilune plan 27", "x.plan:1: the plan's format is version 27"},
        {"perilune plan 26", "perilune plan 6",
         "version 6; this program reads 26: make it again with perilune plan"},
        {"\nrecompute=none", "\nrecompute=all",
         "x.plan:21: expected what is recomputed: none, selective or full, at 'all'"},
        {"\npath=line", "\npath=zigzag", "expected the path of micro-batches: line, loop or v, at"},
        {"\nrecompute=none", "", "x.plan:21: expected 'recompute'"},
        {"perilune plan", "perilune plane", "x.plan:1: is not a plan"},
        {"fingerprint=", "fingerprint=xyz", "x.plan:2: expected 16 hexadecimal digits"},
        {"\nchunks=1", "\nchunks=33", "the number must lie in 0 to 32, at '33'"},
        {"\nchunks=1", "\nchunks=0", "has at least one of"},
        {"\nvocab_multiple=0", "\nvocab_multiple=65537", "the number must lie in 0 to 65536"},
        {") {\n", ") vocab_multiple=1 {\n", "number out of range"},
        {") {\n", ") vocab_multiple=65537 {\n", "number out of range"},
        {"\np=2", "\np=99999999", "x.plan:12: the number must lie in 0 to 1048576"},
        {"\np=2", "\np=2 3", "unexpected text at the end of a line, at '3'"},
        {"\nmicro_batches=4", "\nmicro_batches=-4", "the number must lie in 0 to 1048576"},
        {"\nmicro_batches=4", "\nmicro_batches=99999999999999999999", "the number must lie in"},
        {"\nlearning_rate=", "\nlearning_rate=nan", "expected a number that is not negative"},
        {"\nlearning_rate=0.001", "\nlearning_rate=1e999", "expected a finite number"},
        {"\nparameters=", "\nparameters=9223372036854775807", "must lie in 0 to 9007199254740992"},
        {"\nseed=7", "\nseed=99999999999999999999999", "the number does not fit 64 bits"},
        {"\nprecision=f32", "\nprecision=fp4",
         "x.plan:20: expected a precision, f32, bf16, f16 or fp8, at"},
        {"\nprecision=f32", "\nprecision=i32",
         "expected a precision, f32, bf16, f16 or fp8, at 'i32'"},
        {"\nprecision=f32", "\nprecision=", "expected a precision, f32, bf16, f16 or fp8"},
        {"\nprecision=f32", "\nprecision=f32x", "expected a precision, f32, bf16, f16 or fp8"},
        {" : f32[", " : f64[", "expected a type (f32, i32, bf16, f16, fp8, nf4, int8), at 'f64["},
        {"model=\"fixture\"", "model=\"fixture", "a quoted text does not end"},
        {"model=\"fixture\"", "model=\"fi\\zz\"", "bad escape in a quoted text"},
        {"channel forward 0->1", "channel forward 0->7", "the number must lie in 0 to 1"},
        {"channel forward", "channel sideways", "expected 'forward '"},
        {"device \"N", "device N", "x.plan:39: expected '\"'"},
        {"device \"NVIDIA \\22H200\\22\"", "device \"\"", "name has 1 to 127 bytes"},
        {" sm_90 ", " ", "expected 'cublasLt='"},
        {" sm_90 ", " SM ", "expected the device's architecture"},
        {" sm_90 ", " sm_90000000000000000 ", "expected the device's architecture"},
        {"cublasLt=130100", "cublasLt=-1", "the number must lie in 0 to"},
        {"cudnn=91900", "cudnn=91900 x", "unexpected text at the end of a line"},
        {" cudnn=91900", "", "expected 'cudnn='"},
        {"backward=0 causal=1", "backward=1 causal=1",
         "x.plan:44: an attention that was there before, at 'attention backward=1"},
        {"kv_heads=25", "kv_heads=0", "the number must lie in 1 to"},
        {"dtype=bf16 batch", "dtype=i32 batch", "expected f32, bf16 or f16"},
        {"kernels=cudnn", "kernels=cutlass", "expected cudnn, mma, wgmma or joint, at 'cutlass"},
        {"kernels=cudnn", "kernels=cudnn2", "unexpected text at the end of a line, at '2'"},
        {"kernels=cudnn", "kernels=", "expected cudnn, mma, wgmma or joint"},
        {"kernels=cudnn", "own=0", "expected 'kernels='"},
        {"values=48", "values=0", "the number must lie in 1 to"},
        {"kernels=wgmma", "kernels=wgmm", "expected cudnn, mma, wgmma or joint, at 'wgmm'"},
        {"batch=1", "batch=0", "x.plan:40: the number must lie in 1 to"},
        {"batch=1", "batch=4294967297", "the number must lie in 1 to"},
        {"m=8192", "n=8192", "expected 'm='"},
        {"k=1099511627776", "k=1099511627777", "the number must lie in 1 to 1099511627776"},
        {"ta=0", "ta=2", "the number must lie in 0 to 1"},
        {"in=bf16", "in=i32", "expected f32, bf16, f16 or fp8"},
        {"in=bf16", "in=", "expected f32, bf16, f16 or fp8"},
        {"in=bf16", "in=fp8", "expected 'tiles='"},
        {"in=fp8 tiles=2", "in=fp8 tiles=3", "the number must lie in 0 to 2"},
        {"out=bf16", "out=fp8", "expected f32, bf16 or f16"},
        {"accumulate=0", "accumulate", "expected 'accumulate='"},
        {"epilogue=0", "epilogue=-1", "the number must lie in 0 to"},
        {"00050a", "00050", "expected 128 hexadecimal digits"},
        {"00050a", "00050a0", "expected 128 hexadecimal digits"},
        {"00050a", "00050A", "expected 128 hexadecimal digits"},
        {"3b\nalgo batch=2", "3b algo batch=2", "unexpected text at the end of a line, at 'algo"},
        {"3b\nalgo batch=2 m=8192 n=1600 k=1099511627776 ta=1 tb=0 shared=0 in=bf16 out=f32 "
         "accumulate=1 epilogue=3",
         "3b\nalgo batch=1 m=8192 n=1600 k=1099511627776 ta=0 tb=1 shared=0 in=bf16 out=bf16 "
         "accumulate=0 epilogue=0",
         "x.plan:41: a product that was there before, at 'algo batch=1"},
        {"stages=0,1", "stages=0,1,0", "more members than stages"},
        {"program 1 {", "program 7 {", "expected program 1"},
        {"buffers {\n    %0 ", "buffers {\n    %1 ", "expected the buffer of %0, result 0"},
        {" parameter 0+", " parameters 0+", "expected a whole number, at 's 0+"},
        {" frame0 ", " frame3 ", "the number must lie in 0 to 0"},
        {" persistent parameter", " nowhere parameter", "expected 'frame'"},
        {"forward_flops=", "forward_flips=", "expected 'forward_flops'"},
        {"matmul(", "matmull(", "unknown op"},
        {"4x(F0.0", "4000000000x(F0.0", "the number must lie in 1 to 4"},
        {"4x(F0.0", "4x(F0.1", "a run goes past the last micro-batch"},
        {"4x(F0.0", "4x(F3.0", "the number must lie in 0 to 0"},
        {"4x(F0.0", "4x(U F0.0", "an update cannot repeat"},
        {"4x(F0.0", "4x(G0.0", "expected a task (rf F sf rb B sb W U)"},
        {"4x(F0.0 sf0.0)", "4x()", "the run is empty"},
        {")+1", ")+0", "the number must lie in 1 to 4"},
        {"    U\n", "    U U U U U U U U U U U U U U\n", "more tasks than 4 micro-batches"},
        {"\nend\n", "\nend\nmore", "text after the end of the plan"},
        {"\nend\n", "\n", "the plan ends early: no 'end'"},
    };
    check_begin("every mistake in the text is reported with its line");
    Plan *plan = small_plan(arena, FIXTURES[1], diag);
    CHECK(plan, "%s", diag_text(diag));
    StrBuf good = strbuf_create();
    if (plan) add_device(arena, plan);
    if (plan) plan_print(&good, plan);
    for (size_t i = 0; plan && i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *scratch = arena_create();
        Diag *mistake = diag_create();
        StrBuf bad = strbuf_create();
        char *at = strstr(good.text, CASES[i].from);
        CHECK(at, "case %zu: no '%s' in the plan", i, CASES[i].from);
        if (at) {
            strbuf_put_bytes(&bad, good.text, (size_t)(at - good.text));
            strbuf_put(&bad, CASES[i].to);
            strbuf_put(&bad, at + strlen(CASES[i].from));
            CHECK(!plan_parse(scratch, "x.plan", bad.text, mistake), "case %zu passes", i);
            CHECK(strncmp(diag_text(mistake), "x.plan:", 7) == 0 &&
                      strstr(diag_text(mistake), CASES[i].message),
                  "case %zu (%s): %s", i, CASES[i].to, diag_text(mistake));
        }
        strbuf_destroy(&bad);
        diag_destroy(mistake);
        arena_destroy(scratch);
    }
    strbuf_destroy(&good);
}

static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t random_below(uint32_t limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % limit);
}

static void mutate(char *text, size_t *length, size_t capacity) {
    static const char BYTES[] = "0123456789999-+.,=(){}%\"\n xFBUrsfb";
    size_t at = random_below((uint32_t)*length), count = 1 + random_below(40);
    switch (random_below(5)) {
    case 0: /* another byte, often one that the format knows */
        text[at] = random_below(3) ? BYTES[random_below(sizeof(BYTES) - 1)]
                                   : (char)(1 + random_below(255));
        break;
    case 1: /* a piece is missing */
        if (at + count > *length) count = *length - at;
        memmove(text + at, text + at + count, *length - at - count);
        *length -= count;
        break;
    case 2: /* a piece is there twice */
        if (at + count > *length || *length + count > capacity) return;
        memmove(text + at + count, text + at, *length - at);
        *length += count;
        break;
    case 3: /* two pieces change places */
        for (size_t i = 0, other = random_below((uint32_t)*length); i < count; i++) {
            if (at + i >= *length || other + i >= *length) break;
            char held = text[at + i];
            text[at + i] = text[other + i];
            text[other + i] = held;
        }
        break;
    default: /* a digit more or less: sizes, offsets, numbers of operands */
        while (at + 1 < *length && (text[at] < '0' || text[at] > '9')) at++;
        text[at] = (char)('0' + random_below(10));
        break;
    }
}

static void test_fuzz(Arena *arena, Diag *diag) {
    int n_rounds = getenv("TEST_LONG") ? 100000 : 3000, n_parsed = 0, n_proved = 0;
    check_begin("a few thousand broken plans: no crash, no hang, each refused or sound");
    for (int f = 1; f < N_FIXTURES; f += 4) {
        Plan *plan = small_plan(arena, FIXTURES[f], diag);
        CHECK(plan, "%s", diag_text(diag));
        if (!plan) return;
        StrBuf good = strbuf_create();
        add_device(arena, plan);
        plan_print(&good, plan);
        size_t capacity = good.length + 4096;
        char *text = malloc(capacity + 1);
        for (int round = 0; text && round < n_rounds / 2; round++) {
            Arena *scratch = arena_create();
            Diag *mistakes = diag_create();
            size_t length = good.length;
            memcpy(text, good.text, length);
            for (uint32_t i = 1 + random_below(2); i; i--) mutate(text, &length, capacity);
            text[length] = '\0';
            Plan *broken = plan_parse(scratch, "fuzz.plan", text, mistakes);
            n_parsed += broken != NULL;
            if (broken) n_proved += verify_plan(broken, mistakes);
            CHECK(broken || diag_error_count(mistakes), "refused without a reason");
            diag_destroy(mistakes);
            arena_destroy(scratch);
        }
        free(text);
        strbuf_destroy(&good);
    }
    if (getenv("SHOW_TIMES")) printf("# %d parsed, %d proved\n", n_parsed, n_proved);
    /* Names, line numbers, seeds and FLOPs may change without harm; the fingerprint sees that. */
    CHECK(n_parsed > 10 && n_proved < n_parsed, "%d parsed, %d proved", n_parsed, n_proved);
}

int main(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    test_round_trip(DTYPE_BF16);
    test_round_trip(DTYPE_F32);
    test_device(arena, diag);
    test_tasks(arena);
    test_large();
    test_files(arena, diag);
    test_mistakes(arena, diag);
    test_fuzz(arena, diag);
    diag_destroy(diag);
    arena_destroy(arena);
    return check_report();
}
