/* Attention by cuDNN: on the fake, which runs what the descriptors say, and with PERILUNE_TEST_GPU
 * on a GPU, against float64.
 *
 * Would catch: an operation graph that is not attention or its gradient, wrong strides, heads of a
 * group mixed up, memory given for another tensor, a workspace too small or shared, an engine that
 * adds up in any order, versions with known faults.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip cuDNN: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cpu/vec_low.h"
#include "runtime/cuda/driver/attention.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gpu_run.h"
#include "tests/support/op_cases.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- against float64 --- */

typedef struct Shape {
    int batch, seq, kv_heads, group, head;
    bool causal;
    float scale;
    DType dtype;
    int window, values; /* 0: none; head */
} Shape;

/* q, k, v, d_o; o, lse; dq, dk, dv: of the dtype but for lse, which is f32. */
enum { Q, K, V, D_O, O, LSE, DQ, DK, DV, N_TENSORS };

typedef struct Bench {
    const Shape *shape;
    Arena *arena;
    Diag *diag;
    const Graph *graph;
    Reference *reference;
    CudaDevice device;
    AttentionTable *table;
    cudaStream_t stream;
    void *memory[N_TENSORS], *workspace;
    int64_t workspace_bytes;
} Bench;

enum { WORKSPACE_BYTES = 64 << 20 };

/* As in test_cuda_attention.c: q, k, v and the gradient of o; attention; its gradient. */
static const char *make_nodes(Arena *arena, const Shape *s) {
    const char *dtype = dtype_name(s->dtype);
    const char *rows = arena_printf(arena, "[batch=%d, seq=%d, kv=%d, group=%d", s->batch, s->seq,
                                    s->kv_heads, s->group);
    const char *q = arena_printf(arena, "%s%s, head=%d]", dtype, rows, s->head);
    const char *k = arena_printf(arena, "%s[batch=%d, seq=%d, kv=%d, head=%d]", dtype, s->batch,
                                 s->seq, s->kv_heads, s->head);
    const char *value = s->values ? arena_printf(arena, "value=%d", s->values)
                                  : arena_printf(arena, "head=%d", s->head);
    const char *o = arena_printf(arena, "%s%s, %s]", dtype, rows, value);
    const char *v = arena_printf(arena, "%s[batch=%d, seq=%d, kv=%d, %s]", dtype, s->batch, s->seq,
                                 s->kv_heads, value);
    const char *window = s->window ? arena_printf(arena, "window=%d, ", s->window) : "";
    const char *attrs = arena_printf(arena, "{seq=seq, head=head, causal=%d, %sscale=%.9g",
                                     s->causal, window, (double)s->scale);
    const char *leaf = "%%%d = param() {name=\"\", init=\"zeros\", decay=1} : %s\n";
    const char *leaves = arena_printf(
        arena, "%s%s%s%s", arena_printf(arena, leaf, 0, q), arena_printf(arena, leaf, 1, k),
        arena_printf(arena, leaf, 2, v), arena_printf(arena, leaf, 3, o));
    return arena_printf(arena,
                        "%s%%4:2 = attention(%%0, %%1, %%2) %s} : %s, f32%s]\n"
                        "%%5:3 = attention_grad(%%0, %%1, %%2, %%4, %%4.1, %%3) %s, room=1} : %s, "
                        "%s, %s\n",
                        leaves, attrs, o, rows, attrs, q, k, v);
}

static Value value_of(const Bench *b, int tensor) {
    static const int NODE[] = {0, 1, 2, 3, 4, 4, 5, 5, 5}, OUTPUT[] = {0, 0, 0, 0, 0, 1, 0, 1, 2};
    return node_value(b->graph->nodes[NODE[tensor]], OUTPUT[tensor]);
}

static size_t bytes_of(const Bench *b, int tensor) {
    const Type *type = value_type(value_of(b, tensor));
    return (size_t)(type_elements(type) * dtype_bytes(type->dtype));
}

/* The leaves' numbers are rounded already. */
static bool upload(Bench *b, int tensor) {
    const double *from = reference_value(b->reference, value_of(b, tensor));
    size_t bytes = bytes_of(b, tensor);
    uint16_t *host = arena_alloc(b->arena, bytes);
    for (size_t i = 0; i < bytes / 2; i++) {
        vec_put(host, b->shape->dtype, (int64_t)i, (float)from[i]);
    }
    return b->device.api->cudaMemcpy(b->memory[tensor], host, bytes, cudaMemcpyHostToDevice) ==
           cudaSuccess;
}

/* The graph and its values in float64. */
static bool make_reference(Bench *b) {
    uint64_t state = 7;
    int line = 1;
    b->arena = arena_create();
    b->diag = diag_create();
    const char *text = arena_printf(b->arena, "graph \"\" mesh(t=1, d=1, p=1) {\nforward:\n%s}\n",
                                    make_nodes(b->arena, b->shape));
    b->graph = graph_parse(b->arena, "case", &text, &line, b->diag);
    if (!b->graph) return false;
    b->reference = reference_create(b->arena, b->graph);
    for (int n = 0; n <= D_O; n++) {
        Node *leaf = b->graph->nodes[n];
        double *values = reference_value(b->reference, node_value(leaf, 0));
        for (int64_t i = 0; i < type_elements(&leaf->types[0]); i++) {
            values[i] = reference_rounded(b->shape->dtype, op_case_draw("", &state));
        }
    }
    reference_run(b->reference);
    return true;
}

/* False: a CHECK has said why. */
static bool open_bench(Bench *b, const Shape *shape) {
    *b = (Bench){.shape = shape, .workspace_bytes = WORKSPACE_BYTES};
    if (!gpu_run_wanted()) {
        cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true, .cudnn_version = 91900}));
    }
    const CuApi *api = cuda_api();
    bool fine = make_reference(b) && cuda_device_open(&b->device, api, 0, b->diag);
    CHECK(fine, "%s", diag_text(b->diag));
    if (!fine) return false;
    b->table = attention_table_create(&b->device, b->arena);
    fine = api->cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking) == cudaSuccess &&
           api->cudaMalloc(&b->workspace, WORKSPACE_BYTES) == cudaSuccess;
    for (int t = 0; fine && t < N_TENSORS; t++) {
        fine = api->cudaMalloc(&b->memory[t], bytes_of(b, t)) == cudaSuccess &&
               (t > D_O || upload(b, t));
    }
    fine = fine && api->cudaDeviceSynchronize() == cudaSuccess; /* the stream waits for no copy */
    CHECK(fine, "no memory");
    return fine;
}

static void close_bench(Bench *b) {
    const CuApi *api = b->device.api;
    if (api) {
        attention_table_destroy(b->table);
        for (int t = 0; t < N_TENSORS; t++) api->cudaFree(b->memory[t]);
        api->cudaFree(b->workspace);
        if (b->stream) api->cudaStreamDestroy(b->stream);
        cuda_device_close(&b->device);
    }
    diag_destroy(b->diag);
    arena_destroy(b->arena);
    if (gpu_run_wanted()) return;
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%d defects: %s", fake_cuda_n_defects(), fake_cuda_defect(0));
    cuda_api_replace(NULL);
    fake_cuda_destroy();
}

static AttentionCommand make_command(const Bench *b, bool backward) {
    const Shape *s = b->shape;
    return (AttentionCommand){.shape = {.dtype = s->dtype,
                                        .backward = backward,
                                        .causal = s->causal,
                                        .batch = s->batch,
                                        .seq = s->seq,
                                        .kv_heads = s->kv_heads,
                                        .group = s->group,
                                        .head = s->head,
                                        .scale = s->scale,
                                        .window = s->window,
                                        .values = s->values},
                              .q = b->memory[Q],
                              .k = b->memory[K],
                              .v = b->memory[V],
                              .o = b->memory[O],
                              .lse = b->memory[LSE],
                              .d_o = backward ? b->memory[D_O] : NULL,
                              .dq = backward ? b->memory[DQ] : NULL,
                              .dk = backward ? b->memory[DK] : NULL,
                              .dv = backward ? b->memory[DV] : NULL,
                              .workspace = b->workspace,
                              .workspace_bytes = b->workspace_bytes};
}

/* What a plan leaves for it must do. */
static void check_room(const Bench *b, const AttentionEntry *entry) {
    const Node *node = b->graph->nodes[5];
    Type inputs[6];
    for (int i = 0; i < 6; i++) inputs[i] = *value_type(node->inputs[i]);
    int64_t room = op_cuda_workspace_bytes(node, inputs, node->types);
    int64_t needed = attention_entry_workspace_bytes(entry);
    CHECK(needed <= room, "a workspace of %lld bytes, plans leave %lld", (long long)needed,
          (long long)room);
}

static bool run_command(Bench *b, const AttentionCommand *command) {
    const char *why;
    bool backward = command->shape.backward;
    const AttentionEntry *entry = attention_table_find(b->table, command, &why);
    CHECK(entry, "%s: %s", backward ? "backward" : "forward", why);
    if (!entry) return false;
    if (backward) check_room(b, entry);
    bool fine =
        attention_check(b->table, attention_issue(b->table, entry, command, b->stream), b->diag);
    fine = fine && cuda_check(b->device.api, b->device.api->cudaStreamSynchronize(b->stream),
                              b->diag, "attention");
    CHECK(fine, "%s", diag_text(b->diag));
    return fine;
}

static bool run(Bench *b, bool backward) {
    AttentionCommand command = make_command(b, backward);
    return run_command(b, &command);
}

static void *download(const Bench *b, int tensor) {
    size_t bytes = bytes_of(b, tensor);
    void *host = arena_alloc(b->arena, bytes);
    CHECK(b->device.api->cudaMemcpy(host, b->memory[tensor], bytes, cudaMemcpyDeviceToHost) ==
              cudaSuccess,
          "a copy");
    return host;
}

/* The tolerances of the own kernels (test_cuda_attention.c), but for groups: the gradients of keys
 * and values for each query head are rounded before they are summed, once more than there: half as
 * much again. What one element may differ by counts in the size of all: of queries that see few
 * keys the gradients are larger than most, and so are their errors. */
static void compare(const Bench *b, int tensor) {
    static const char *const NAMES[] = {"", "", "", "", "o", "lse", "dq", "dk", "dv"};
    const Type *type = value_type(value_of(b, tensor));
    const double *expected = reference_exact(b->reference, value_of(b, tensor));
    const void *got = download(b, tensor);
    double squares = 0, errors = 0, most = 0, count = (double)type_elements(type);
    for (int64_t i = 0; i < type_elements(type); i++) {
        double error = (double)vec_get(got, type->dtype, i) - expected[i];
        squares += expected[i] * expected[i];
        errors += error * error;
        if (!(fabs(error) <= most)) most = isnan(error) ? INFINITY : fabs(error);
    }
    double size = sqrt(squares / count) + 1e-3, mean = sqrt(errors / count) / size;
    double more = b->shape->group > 1 && tensor >= DK ? 1.5 : 1;
    bool precise = b->shape->dtype == DTYPE_F16 && tensor != LSE;
    double mean_allowed = (precise ? 0.16 : 1) * more *
                          (tensor == LSE ? 2e-6
                           : tensor == O ? 3e-3
                                         : 5e-3);
    double most_allowed = (precise ? 0.25 : 1) * more *
                          (tensor == LSE ? 2e-5
                           : tensor == O ? 5e-2
                                         : 1.5e-1);
    CHECK(mean <= mean_allowed && most / size <= most_allowed, "%s: error %.3g, at most %.3g",
          NAMES[tensor], mean, most / size);
    if (getenv("TEST_SHOW")) printf("  %-4s %.2g %.2g\n", NAMES[tensor], mean, most / size);
}

/* The gradient with memory for the smallest part alone: the same, all of it. */
static void check_parts(Bench *b) {
    AttentionCommand command = make_command(b, true);
    AttentionPart least = attention_part(&command.shape, 0);
    b->workspace_bytes = attention_library_bytes(&command.shape, least);
    for (int t = DQ; t <= DV; t++) { /* no numbers, until they are written */
        void *host = arena_alloc(b->arena, bytes_of(b, t));
        memset(host, 0xff, bytes_of(b, t));
        CHECK(b->device.api->cudaMemcpy(b->memory[t], host, bytes_of(b, t),
                                        cudaMemcpyHostToDevice) == cudaSuccess,
              "a copy");
    }
    CHECK(b->device.api->cudaDeviceSynchronize() == cudaSuccess, "waiting");
    if (!run(b, true)) return;
    for (int t = DQ; t <= DV; t++) compare(b, t);
}

/* The gradients of a position in one row, of which the last numbers are nobody's. */
static void check_side_by_side(Bench *b) {
    enum { BESIDE = 8, UNTOUCHED = 0x5a };
    const Shape *s = b->shape;
    const CuApi *api = b->device.api;
    int64_t key = (int64_t)s->kv_heads * s->head,
            value = (int64_t)s->kv_heads * (s->values ? s->values : s->head);
    int64_t width[] = {s->group * key, key, value}, first[] = {value + key, value, 0};
    int64_t row = first[0] + width[0] + BESIDE, n_rows = (int64_t)s->batch * s->seq;
    size_t bytes = (size_t)(n_rows * row) * 2;
    AttentionCommand command = make_command(b, true);
    uint16_t *host = arena_alloc(b->arena, bytes);
    void *memory = NULL;
    memset(host, UNTOUCHED, bytes);
    bool fine = api->cudaMalloc(&memory, bytes) == cudaSuccess &&
                api->cudaMemcpy(memory, host, bytes, cudaMemcpyHostToDevice) == cudaSuccess &&
                api->cudaDeviceSynchronize() == cudaSuccess;
    CHECK(fine, "no memory");
    command.shape.gradient_row = row;
    command.dq = (uint16_t *)memory + first[0];
    command.dk = (uint16_t *)memory + first[1];
    command.dv = (uint16_t *)memory + first[2];
    fine = fine && run_command(b, &command) &&
           api->cudaMemcpy(host, memory, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
    for (int t = DQ; fine && t <= DV; t++) {
        uint16_t *packed = arena_alloc(b->arena, bytes_of(b, t));
        for (int64_t i = 0; i < n_rows; i++)
            memcpy(packed + i * width[t - DQ], host + i * row + first[t - DQ],
                   (size_t)width[t - DQ] * 2);
        CHECK(api->cudaMemcpy(b->memory[t], packed, bytes_of(b, t), cudaMemcpyHostToDevice) ==
                  cudaSuccess,
              "a copy");
        compare(b, t);
    }
    for (int64_t i = 0; fine && i < n_rows; i++) {
        for (int64_t k = row - BESIDE; k < row; k++)
            CHECK(host[i * row + k] == (UNTOUCHED << 8 | UNTOUCHED), "written beside");
    }
    api->cudaFree(memory);
}

static void check_shape(const Shape *s) {
    Bench b;
    char name[160];
    snprintf(name, sizeof(name),
             "cuDNN: %s, batch %d, seq %d, kv %d, group %d, head %d, values %d, window %d%s",
             dtype_name(s->dtype), s->batch, s->seq, s->kv_heads, s->group, s->head, s->values,
             s->window, s->causal ? ", causal" : "");
    check_begin(name);
    if (open_bench(&b, s) && run(&b, false) && run(&b, true)) {
        void *first[N_TENSORS];
        for (int t = O; t <= DV; t++) compare(&b, t);
        for (int t = O; t <= DV; t++) first[t] = download(&b, t);
        bool again = run(&b, false) && run(&b, true);
        for (int t = O; again && t <= DV; t++) {
            CHECK(memcmp(first[t], download(&b, t), bytes_of(&b, t)) == 0, "other bits again");
        }
        if (again) check_side_by_side(&b);
        if (again && s->batch * s->kv_heads > 1) {
            check_parts(&b);
            check_side_by_side(&b); /* in parts */
        }
    }
    close_bench(&b);
    check_end();
}

static void test_shapes(void) {
    static const Shape SHAPES[] = {
        {2, 7, 2, 1, 16, true, 0.25f, DTYPE_BF16, 0, 0},
        {1, 9, 2, 4, 8, true, 0.35f, DTYPE_BF16, 0, 0},
        {2, 13, 1, 3, 64, true, 0.125f, DTYPE_BF16, 0, 0},
        {1, 128, 2, 1, 128, false, 0.09f, DTYPE_BF16, 0, 0},
        {1, 33, 1, 2, 32, true, 3, DTYPE_BF16, 0, 0},
        {1, 16, 2, 1, 8, true, 0.2f, DTYPE_BF16, 0, 0},
        {3, 8, 2, 2, 8, true, 0.35f, DTYPE_BF16, 0, 0},
        {2, 7, 2, 1, 16, true, 0.25f, DTYPE_F16, 0, 0},
        {2, 13, 1, 3, 64, true, 0.125f, DTYPE_F16, 0, 0},
        {2, 13, 1, 3, 16, true, 0.25f, DTYPE_BF16, 4, 0},
        {2, 13, 1, 3, 24, true, 0.2f, DTYPE_BF16, 0, 16},
        {1, 17, 2, 1, 192, true, 0.07f, DTYPE_BF16, 0, 128},
    };
    static const Shape LARGE[] = {{2, 300, 4, 1, 64, true, 0.125f, DTYPE_BF16, 0, 0},
                                  {1, 512, 2, 4, 128, true, 0.09f, DTYPE_BF16, 0, 0},
                                  {2, 256, 2, 2, 64, false, 0.125f, DTYPE_BF16, 0, 0},
                                  {1, 512, 2, 4, 128, true, 0.09f, DTYPE_F16, 0, 0},
                                  {1, 512, 2, 4, 128, true, 0.09f, DTYPE_BF16, 100, 0},
                                  {1, 512, 4, 1, 192, true, 0.07f, DTYPE_BF16, 0, 128}};
    for (size_t i = 0; i < sizeof(SHAPES) / sizeof(SHAPES[0]); i++) check_shape(&SHAPES[i]);
    for (size_t i = 0; gpu_run_wanted() && i < sizeof(LARGE) / sizeof(LARGE[0]); i++) {
        check_shape(&LARGE[i]);
    }
}

/* Whole sequences, then heads of one; all parts alike. */
static void test_parts(void) {
    static const struct {
        int64_t batch, kv_heads, group, fit; /* heads of queries that memory is there for */
        AttentionPart part;
    } CASES[] = {
        {6, 4, 2, 48, {6, 4}}, {6, 4, 2, 47, {3, 4}}, {6, 4, 2, 16, {2, 4}}, {6, 4, 2, 8, {1, 4}},
        {6, 4, 2, 7, {1, 2}},  {6, 4, 2, 1, {1, 2}},  {6, 4, 4, 4, {1, 1}},  {5, 3, 1, 8, {1, 3}},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        AttentionShape shape = {.batch = CASES[i].batch,
                                .seq = 256,
                                .kv_heads = CASES[i].kv_heads,
                                .group = CASES[i].group,
                                .head = 64};
        AttentionPart one = {1, 1};
        check_begin("cuDNN: parts of a gradient by memory");
        /* Of one query head, and what all have once. */
        int64_t little = 4096;
        int64_t head = (attention_library_bytes(&shape, one) - little) / shape.group;
        AttentionPart part = attention_part(&shape, CASES[i].fit * head + little);
        CHECK(part.batch == CASES[i].part.batch && part.kv_heads == CASES[i].part.kv_heads,
              "case %d: %d sequences, %d heads", (int)i, (int)part.batch, (int)part.kv_heads);
        check_end();
    }
}

/* --- what is refused --- */

typedef struct Refusal {
    const char *name;
    int version;
    Shape shape;
    bool backward;
    int64_t workspace_bytes;
    const char *why;
} Refusal;

static void check_refusal(const Refusal *r) {
    CudaDevice device;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Bench b = {.shape = &r->shape, .workspace_bytes = r->workspace_bytes};
    const char *why = "";
    check_begin(r->name);
    bool opened = cuda_device_open(
        &device, fake_cuda_create(&(FakeOptions){.cudnn_version = r->version}), 0, diag);
    CHECK(opened, "%s", diag_text(diag));
    AttentionTable *table = attention_table_create(&device, arena);
    AttentionCommand command = make_command(&b, r->backward);
    CHECK(!attention_table_find(table, &command, &why), "not refused");
    CHECK(why && strcmp(why, r->why) == 0, "it says: %s", why ? why : "nothing");
    attention_table_destroy(table);
    cuda_device_close(&device);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%s", fake_cuda_defect(0));
    fake_cuda_destroy();
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

static void test_refusals(void) {
    static const Refusal REFUSALS[] = {
        {"no cuDNN",
         0,
         {1, 8, 1, 1, 8, true, 1, DTYPE_BF16, 0, 0},
         false,
         1 << 20,
         "cuDNN was not found"},
        {"cuDNN 9.10.1",
         91001,
         {1, 8, 1, 1, 8, true, 1, DTYPE_BF16, 0, 0},
         false,
         1 << 20,
         "cuDNN 9.10.1 is older than 9.10.2"},
        {"heads of 12",
         91900,
         {1, 8, 1, 1, 12, true, 1, DTYPE_BF16, 0, 0},
         false,
         1 << 20,
         "heads are no multiple of 8"},
        {"a negative scale",
         91900,
         {1, 16, 2, 1, 8, true, -0.2f, DTYPE_BF16, 0, 0},
         false,
         1 << 20,
         "its scale is not positive"},
        {"a window on both sides",
         91900,
         {1, 8, 1, 1, 8, false, 1, DTYPE_BF16, 4, 0},
         false,
         1 << 20,
         "windows that are not causal are not asked of it"},
        {"one position, backward",
         91900,
         {1, 1, 1, 1, 8, true, 1, DTYPE_BF16, 0, 0},
         true,
         1 << 20,
         "one position"},
        {"half a tile of positions, not causal",
         91900,
         {1, 64, 2, 1, 64, false, 1, DTYPE_BF16, 0, 0},
         true,
         1 << 20,
         "its gradient wants a multiple of 128 positions"},
        {"half a tile of positions before 9.15.1",
         91500,
         {1, 64, 2, 1, 64, true, 1, DTYPE_BF16, 0, 0},
         true,
         1 << 20,
         "its gradient wants a multiple of 128 positions"},
        {"heads of 192 with values of 128, backward, before 9.11",
         91002,
         {1, 128, 1, 1, 192, true, 1, DTYPE_BF16, 0, 128},
         true,
         1 << 20,
         "before 9.11 its gradient has values like keys"},
        {"heads of 192 with values of 64, backward, before 9.13",
         91200,
         {1, 128, 1, 1, 192, true, 1, DTYPE_BF16, 0, 64},
         true,
         1 << 20,
         "before 9.13 its gradient has keys of 192 with values of 128 only"},
        /* for four heads, whose lse are 16 bytes, 1024^2 x 2 bytes each, and 1024 sums */
        {"too little workspace",
         91900,
         {1, 1024, 12, 1, 64, true, 1, DTYPE_BF16, 0, 0},
         true,
         2 << 20,
         "needs 8.02 MiB of workspace, the plan has 2.00"},
    };
    for (size_t i = 0; i < sizeof(REFUSALS) / sizeof(REFUSALS[0]); i++) check_refusal(&REFUSALS[i]);
}

/* One shape in two dtypes: two operation graphs. */
static void test_dtypes(void) {
    static const Shape SHAPE = {1, 8, 1, 1, 8, true, 1, DTYPE_BF16, 0, 0};
    Bench b;
    check_begin("cuDNN: bf16 and f16 of one shape are two");
    if (open_bench(&b, &SHAPE)) {
        AttentionCommand one = make_command(&b, false), other = one;
        const char *why;
        other.shape.dtype = DTYPE_F16;
        CHECK(attention_table_find(b.table, &one, &why) !=
                  attention_table_find(b.table, &other, &why),
              "one");
    }
    close_bench(&b);
    check_end();
}

int main(void) {
    test_shapes();
    test_parts();
    test_dtypes();
    if (!gpu_run_wanted()) test_refusals();
    return check_report();
}
#endif
