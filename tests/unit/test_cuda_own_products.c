/* Training without a call of cuBLASLt, on a fake that has none of its functions: graphs are proved,
 * losses and weights are the CPU's, as with it (cuda_graph.h).
 *
 * Would catch: a product that is still the library's, a handle or an algorithm asked of it, another
 * product's operands or accumulator, an access that is not said; small operations that no longer go
 * with the launches beside them, which sanitizers are to see as they train; products of fp8.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip training with own products: built without CUDA's headers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

/* clang-format off */
static const Variant GPT = {"gpt, own products", "models/gpt.lua", 4, DTYPE_F32,
    {SIZES, {"layers", "2"}, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant OTHERS[] = {
    {"gpt bf16, own products", "models/gpt.lua", 4, DTYPE_BF16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"ffn", "64"}}},
    {"llama, own products", "models/llama.lua", 2, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"llama bf16, own products", "models/llama.lua", 2, DTYPE_BF16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"llama f16, own products", "models/llama.lua", 2, DTYPE_F16,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"experts, own products", "models/moe.lua", 2, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"kv_heads", "2"}}},
    {"muon, own products", "models/gpt.lua", 4, DTYPE_F32,
     {SIZES, {"layers", "2"}, {"vocab", "61"}, {"optimizer", "muon"}}},
};
static const Variant FP8 = {"fp8", "models/llama.lua", 2, DTYPE_FP8,
    {{"model", "128"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"}, {"ffn", "128"},
     {"seq", "128"}, {"layers", "1"}, {"vocab", "31"}}};
/* clang-format on */
enum { N_OTHERS = sizeof(OTHERS) / sizeof(OTHERS[0]) };

static const Layout ALONE = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
static const Layout DIVIDED = {2, 1, 2, 2, 1, "1f1b", true, NULL, 0};

static int count(const FakeGraph *graph, FakeNodeKind kind, KernelId first, KernelId last) {
    int n = 0;
    for (int i = 0; i < graph->n_nodes; i++) {
        const FakeNode *node = &graph->nodes[i];
        if (node->kind != kind) continue;
        const FakeFunction *function = node->launch.function;
        n += kind != FAKE_KERNEL ||
             (!function->generated && function->kernel >= first && function->kernel <= last);
    }
    return n;
}

/* A step's graph has products by the kernel alone; and beside them what goes with other launches,
 * unless that is not wanted. */
static void check_kernels(bool apart) {
    Run run;
    EngineOptions options = {.device = DEVICE_CUDA, .own_products = true, .no_epilogues = apart};
    check_begin(apart ? "small operations apart, too" : "small operations go with other launches");
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1, .no_blas = true}));
    bool started = plan(&run, &GPT, &ALONE) && run_start_on(&run, &options);
    CHECK(started, "%s", diag_text(run.diag));
    if (started) {
        const FakeGraph *graph = fake_cuda_graph(0);
        int n_products = count(graph, FAKE_KERNEL, KERNEL_product_f32, KERNEL_product_f16);
        int n_losses =
            count(graph, FAKE_KERNEL, KERNEL_cross_entropy_f32, KERNEL_cross_entropy_f16);
        int n_sums = count(graph, FAKE_KERNEL, KERNEL_layernorm_grad_sum_narrow_f32,
                           KERNEL_layernorm_grad_sum_rows_f16);
        /* Two micro-batches; forward 6 products a block and the head's, backward twice as many. */
        CHECK(n_products == 2 * 3 * (2 * 6 + 1), "%d products", n_products);
        CHECK(count(graph, FAKE_GEMM, 0, 0) == 0, "products of cuBLASLt");
        CHECK(n_losses == (apart ? 0 : 2), "%d joined losses", n_losses);
        CHECK(apart ? n_sums == 0 : n_sums > 0, "%d norms with a third sum", n_sums);
    }
    close_on_fake(&run);
    check_end();
}

static void check_fp8(void) {
    Run run;
    EngineOptions options = {.device = DEVICE_CUDA, .own_products = true};
    check_begin("products of fp8 are refused");
    run_fp8_tensor_cores = true;
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.seed = 1, .no_blas = true}));
    CHECK(!(plan(&run, &FP8, &ALONE) && run_start_on(&run, &options)), "it starts");
    CHECK(strstr(diag_text(run.diag), "has operands of fp8"), "it says: %s", diag_text(run.diag));
    close_on_fake(&run);
    run_fp8_tensor_cores = false;
    check_end();
}

int main(void) {
    if (fake_missing()) {
        printf("skip training with own products: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    fake_own_products = true;
    check_layout(&GPT, &ALONE); /* with pieces and single commands */
    check_layout(&GPT, &DIVIDED);
    for (int i = 0; i < N_OTHERS; i++) {
        if (EACH == 1 || i < 2) check_layout(&OTHERS[i], i % 2 ? &ALONE : &DIVIDED);
    }
    check_kernels(false);
    check_kernels(true);
    check_fp8();
    return check_report();
}
#endif
