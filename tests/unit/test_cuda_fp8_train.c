/* Training with fp8 products, beside frozen weights in 4 bits, and as q4_0, for CUDA, on the fake
 * against the CPU backend: what is quantised there is quantised here, block by block, so that
 * losses agree as in bf16.
 *
 * Would catch: blocks bound for another shape than the kernels take, scales of other blocks, fp8
 * that a message or a captured graph takes for other bytes, accesses that are not said.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip training in fp8 on CUDA: built without CUDA's headers");
    return 0;
}
#elif defined(__SANITIZE_ADDRESS__)
int main(void) { /* over a minute; test_cuda_layers has the kernels */
    puts("skip training in fp8 on CUDA: slow with sanitizers");
    return 0;
}
#else

#include "tests/unit/cuda_graph.h"

/* clang-format off */
static const Variant LLAMA = {"llama", "models/llama.lua", 2, DTYPE_FP8,
    {{"optimizer.eps", "1e-6"}, {"model", "128"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"},
     {"ffn", "128"}, {"seq", "128"}, {"layers", "1"}, {"vocab", "31"}, {"init_std", "0.02"}}};
static const Variant LLAMA_TENSOR = {"llama on tensor cores", "models/llama.lua", 2, DTYPE_FP8,
    {{"optimizer.eps", "1e-6"}, {"model", "128"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"},
     {"ffn", "128"}, {"seq", "128"}, {"layers", "1"}, {"vocab", "31"}, {"init_std", "0.02"}}};
static const Variant LLAMA_NF4 = {"llama beside nf4", "models/llama.lua", 2, DTYPE_BF16,
    {{"optimizer.eps", "1e-6"}, {"model", "64"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"},
     {"ffn", "128"}, {"seq", "16"}, {"layers", "2"}, {"vocab", "31"}, {"lora", "3"}}};
static const Variant LLAMA_Q4 = {"llama trained as q4_0", "models/llama.lua", 2, DTYPE_BF16,
    {{"optimizer.eps", "1e-6"}, {"model", "64"}, {"heads", "4"}, {"kv_heads", "4"}, {"head", "32"},
     {"ffn", "128"}, {"seq", "16"}, {"layers", "2"}, {"vocab", "31"}}};
/* clang-format on */
static const Layout LAYOUTS_NF4[] = {
    {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 2, 1, "1f1b", false, NULL, 0},
};
static const Layout LAYOUTS_FP8[] = {
    {1, 1, 1, 8, 1, "1f1b", false, NULL, 0},
};

/* A device whose library has no such products ends with what to do instead. */
static void check_missing(void) {
    Run run;
    check_begin("no products of fp8: one line says so");
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true, .seed = 1, .no_fp8 = true}));
    EngineOptions options = {.device = DEVICE_CUDA};
    bool started = plan(&run, &LLAMA, &LAYOUTS_FP8[0]) && run_start_on(&run, &options);
    const char *text = diag_text(run.diag);
    CHECK(!started, "it starts");
    CHECK(strstr(text, "has no product of fp8") && strstr(text, "--fp8-products widened"),
          "it says: %s", text);
    check_end();
    close_on_fake(&run);
}

int main(void) {
    const char *why = fake_missing();
    if (why) {
        printf("skip training in fp8 on CUDA: %s\n", why);
        return 0;
    }
    forget_cache();
    graph_alone = true;
    for (size_t i = 0; i < sizeof(LAYOUTS_FP8) / sizeof(LAYOUTS_FP8[0]); i++) {
        check_layout(&LLAMA, &LAYOUTS_FP8[i]);
        run_fp8_tensor_cores = true;
        check_layout(&LLAMA_TENSOR, &LAYOUTS_FP8[i]);
    }
    check_missing();
    run_fp8_tensor_cores = false;
    run_frozen_bits = 4;
    for (int i = 0; i < 2; i++) {
        run_zero = i ? 3 : 0;
        check_layout(&LLAMA_NF4, &LAYOUTS_NF4[i]);
    }
    run_frozen_bits = 0;
    run_qat = gguf_type_named("q4_0");
    run_zero = 1; /* shards are rounded, and gathered once a step */
    check_layout(&LLAMA_Q4, &LAYOUTS_NF4[1]);
    return check_report();
}
#endif
