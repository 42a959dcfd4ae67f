/* Writing with caches on a real GPU against training's forward pass on the CPU; skipped, with the
 * reason, where there is none. What test_cuda_decode shows on a fake, and heads that fill tiles.
 *
 * f32: sums in another order, and 2^x to 2 ulp. 16 bits: as on the CPU (decode_fixture.h).
 */
#include "tests/support/gpu_run.h"
#include "tests/unit/decode_fixture.h"

static const Variant WIDE[] = {
    {"llama, heads of 128",
     "models/llama.lua",
     {{"model", "512"}, {"heads", "4"}, {"layers", "2"}, {"kv_heads", "2"}, {"ffn", "88"}}},
    {"gemma, heads of 256",
     "models/gemma.lua",
     {{"model", "64"},
      {"heads", "2"},
      {"layers", "2"},
      {"kv_heads", "1"},
      {"head", "256"},
      {"ffn", "88"},
      {"window", "6"}}},
};

/* t: virtual ranks. */
static void test_variant(const Variant *variant, DType precision, int t) {
    static const int CUTS[][BATCH] = {{3, 12}, {21, 5}};
    static const int CHUNKS[] = {5, 32};
    char name[160];
    Expected e;
    snprintf(name, sizeof(name), "%s in %s%s: decoded as trained", variant->name,
             dtype_name(precision), t > 1 ? " on two ranks" : "");
    check_begin(name);
    bool done = expect(&e, variant, precision);
    CHECK(done, "%s", diag_text(e.run.diag));
    decode_options = (EngineOptions){.device = DEVICE_CUDA, .virtual_ranks = t > 1};
    decode_t = t;
    decode_scores = true;
    for (int i = 0; done && i < 2; i++) {
        Decoding d;
        bool fine = decoding_from_model(&d, variant, precision, BATCH, CHUNKS[i]);
        CHECK(fine, "%s %s", d.obstacle.what ? d.obstacle.what : "", diag_text(d.diag));
        if (fine) check_scoring(&e, &d, precision, CUTS[i]);
        if (fine) check_decoding(&e, &d, precision, CUTS[i]);
        decoding_close(&d);
    }
    decode_options = (EngineOptions){.n_threads = 1};
    decode_t = 1;
    decode_scores = false;
    run_close(&e.run);
    check_end();
}

int main(void) {
    const char *why;
    if (!gpu_run_wanted() || !engine_cuda_available(&why)) {
        printf("skip writing on a GPU: %s\n", gpu_run_wanted() ? why : "not asked for");
        return 0;
    }
    int file = mkstemp(weights_path);
    if (file >= 0) close(file);
    for (int i = 0; i < N_VARIANTS; i++) {
        test_variant(&VARIANTS[i], DTYPE_F32, 1);
        test_variant(&VARIANTS[i], DTYPE_BF16, 1 + i % 2);
    }
    for (size_t i = 0; i < sizeof(WIDE) / sizeof(WIDE[0]); i++) {
        test_variant(&WIDE[i], DTYPE_BF16, 1);
        test_variant(&WIDE[i], DTYPE_F16, 2);
    }
    unlink(weights_path);
    return check_report();
}
