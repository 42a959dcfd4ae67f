/* Device time: products fall off a cliff when one more tile needs another wave, cost arithmetic
 * when large and memory when thin, and grow with every size; memory, attention and a slow host
 * likewise. What it would catch: a lost factor, a wrong unit, a term that shrinks as sizes grow. */
#include "planner/cost/device_time.h"
#include "tests/unit/check.h"

#include <math.h>

static Cluster a100(void) {
    Cluster cluster = {.name = "test", .software = {.attention_backward_products = 5}};
    cluster.device = (ClusterDevice){.name = "A100",
                                     .peak_flops = {19.5e12, 312e12, 0},
                                     .product_fraction = {0.9, 0.8, 0},
                                     .attention_fraction = 0.6,
                                     .attention_backward_fraction = 0.5,
                                     .memory_bytes_per_second = 2.039e12,
                                     .memory_fraction = 0.78,
                                     .n_units = 108,
                                     .tile_m = 128,
                                     .tile_n = 256,
                                     .product_ramp_k = 250,
                                     .memory_ramp_bytes = 5e6,
                                     .kernel_us = 3.3};
    return cluster;
}

static double product(const Cluster *cluster, int64_t batch, int64_t m, int64_t n, int64_t k) {
    ProductShape shape = {batch, m, n, k, 2};
    return device_product_us(&cluster->device, MATH_BF16, &shape);
}

static void test_products(void) {
    Cluster cluster = a100();
    check_begin("product: a large one runs at the achievable rate");
    double flops = 2.0 * 16384 * 16384 * 16384, us = product(&cluster, 1, 16384, 16384, 16384);
    double reached = flops / us / (312e12 * 0.8 * 1e-6);
    CHECK(reached > 0.95 && reached <= 1, "%.3f of the achievable rate", reached);

    check_begin("product: one tile too many costs a wave");
    ClusterDevice whole_tiles = cluster.device;
    whole_tiles.tile_m = whole_tiles.tile_n = 256;
    ProductShape fits = {1, 256 * 9, 256 * 12, 256, 2}, over = {1, 256 * 9 + 8, 256 * 12, 256, 2};
    double one = device_product_us(&whole_tiles, MATH_BF16, &fits) - 3.3;
    double more = device_product_us(&whole_tiles, MATH_BF16, &over) - 3.3;
    /* Smaller tiles soften it: a wave of quarters, not of whole tiles. */
    CHECK(more > 1.2 * one && more < 2.01 * one, "%.2f us, then %.2f us", one, more);

    check_begin("product: without tiles, no cliff");
    whole_tiles.tile_m = 0;
    one = device_product_us(&whole_tiles, MATH_BF16, &fits) - 3.3;
    more = device_product_us(&whole_tiles, MATH_BF16, &over) - 3.3;
    CHECK(fabs(more / one - 2312.0 / 2304) < 1e-9, "%.4f us, then %.4f us", one, more);

    check_begin("product: a thin one is bound by memory");
    us = product(&cluster, 1, 8, 16384, 16384);
    double bytes = 2.0 * (8 * 16384 + 16384.0 * 16384 + 8 * 16384);
    CHECK(fabs(us - 3.3 - bytes / (2.039e6 * 0.78)) < 1e-6 * us, "%.2f us", us);

    check_begin("product: a long inner axis is split");
    double deep = product(&cluster, 1, 512, 512, 65536), tile = 2.0 * 128 * 128 * (65536 + 250);
    CHECK(deep < tile / (312e6 * 0.8 / 108) / 2, "%.1f us: as slow as four units", deep);

    check_begin("product: odd rows are slow, padded ones are not");
    double odd = product(&cluster, 1, 4096, 50257, 1024);
    double padded = product(&cluster, 1, 4096, 50304, 1024);
    CHECK(odd > 2 * padded, "%.0f us odd, %.0f us padded", odd, padded);

    check_begin("product: what the device has no units for runs on wider ones");
    ProductShape shape = {1, 4096, 4096, 4096, 2};
    CHECK(device_product_us(&cluster.device, MATH_FP8, &shape) ==
              product(&cluster, 1, 4096, 4096, 4096),
          "fp8 on an A100 is not bf16");
    check_begin("product: fp8 is less than twice as fast where tiles are short");
    cluster.device.peak_flops[MATH_FP8] = 2 * cluster.device.peak_flops[MATH_BF16];
    cluster.device.product_fraction[MATH_FP8] = cluster.device.product_fraction[MATH_BF16];
    cluster.device.kernel_us = 0;
    for (int64_t k = 512; k <= 32768; k *= 8) {
        ProductShape sized = {1, 8192, 8192, k, 2};
        double slow = device_product_us(&cluster.device, MATH_BF16, &sized);
        double gain = slow / device_product_us(&cluster.device, MATH_FP8, &sized);
        double ramp = cluster.device.product_ramp_k, size = (double)k;
        double expected = 2 * (size + ramp) / (size + 2 * ramp);
        CHECK(fabs(gain / expected - 1) < 0.01, "k %g: %.3f times as fast, not %.3f", size, gain,
              expected);
    }
}

static void test_growth(void) {
    Cluster cluster = a100();
    check_begin("product: grows with every size");
    static const int64_t sizes[] = {8, 64, 128, 136, 512, 1024, 1032, 4096, 6144, 16384};
    enum { N = sizeof(sizes) / sizeof(sizes[0]) };
    for (int m = 0; m < N; m++)
        for (int n = 0; n < N; n++)
            for (int k = 0; k < N; k++) {
                double us = product(&cluster, 1, sizes[m], sizes[n], sizes[k]);
                int64_t m2 = sizes[m] + 8, n2 = sizes[n] + 8, k2 = sizes[k] + 8;
                CHECK(product(&cluster, 1, m2, sizes[n], sizes[k]) >= us &&
                          product(&cluster, 1, sizes[m], n2, sizes[k]) >= us &&
                          product(&cluster, 1, sizes[m], sizes[n], k2) >= us &&
                          product(&cluster, 2, sizes[m], sizes[n], sizes[k]) >= us,
                      "shrinks from %dx%dx%d", (int)sizes[m], (int)sizes[n], (int)sizes[k]);
            }
}

static void test_memory(void) {
    Cluster cluster = a100();
    check_begin("memory: the floor, the ramp, the rate");
    double tiny = device_memory_us(&cluster.device, 1),
           ramp = device_memory_us(&cluster.device, 5e6);
    double large = device_memory_us(&cluster.device, 1e10);
    CHECK(tiny == 3.3, "one byte takes %.3f us", tiny);
    CHECK(fabs(5e6 / ramp / (2.039e6 * 0.78) - 0.5) < 1e-9, "half the rate is not at the ramp");
    CHECK(fabs(large - 1e10 / (2.039e6 * 0.78)) < 0.001 * large, "10 GB take %.1f us", large);
}

/* Kernels of our own count where they are asked for, the device has them, and they do the shape. */
static void test_own_attention(void) {
    static const struct {
        const char *name;
        AttentionShape shape;
        bool once;
    } CASES[] = {
        {"causal, heads of 128",
         {4, 16, 16, 2048, 128, 0, true, false, 2, 0, 0, false, false, false},
         true},
        {"heads of 64 in groups",
         {4, 16, 4, 2048, 64, 0, true, false, 2, 0, 0, false, false, false},
         true},
        {"a window", {4, 16, 16, 2048, 128, 512, true, false, 2, 0, 0, false, false, false}, false},
        {"both ways", {4, 16, 16, 2048, 128, 0, false, false, 2, 0, 0, false, false, false}, false},
        {"a part of the queries",
         {4, 16, 16, 1024, 128, 0, true, false, 2, 2048, 0, false, false, false},
         false},
        {"short heads", {4, 16, 16, 2048, 32, 0, true, false, 2, 0, 0, false, false, false}, false},
        {"long heads", {4, 16, 16, 2048, 192, 0, true, false, 2, 0, 0, false, false, false}, false},
        {"other values",
         {4, 16, 16, 2048, 128, 0, true, false, 2, 0, 64, false, false, false},
         false},
        {"documents", {4, 16, 16, 2048, 128, 0, true, false, 2, 0, 0, true, false, false}, false},
        {"a soft cap", {4, 16, 16, 2048, 128, 0, true, false, 2, 0, 0, false, true, false}, false},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const AttentionShape *shape = &CASES[i].shape;
        AttentionShape wide = *shape;
        Cluster others = a100(), own = others;
        int n;
        check_begin(CASES[i].name);
        others.software.attention_backward_products = 7;
        own.software = others.software;
        own.software.own_attention = true;
        for (int backward = 0; backward < 2; backward++) {
            double us = device_attention_us(&own, MATH_BF16, shape, backward, &n);
            CHECK(us == device_attention_us(&others, MATH_BF16, shape, backward, &n),
                  "a device that has none: %.2f us", us);
        }
        own.device.own_attention_fraction = 0.75;
        own.device.own_attention_backward_fraction = 0.25;
        wide.bytes_per_element = 4;
        CHECK(device_attention_us(&own, MATH_F32, &wide, true, &n) ==
                  device_attention_us(&others, MATH_F32, &wide, true, &n),
              "in f32, too");
        double theirs = device_attention_us(&others, MATH_BF16, shape, false, &n) - 3.3;
        double ours = device_attention_us(&own, MATH_BF16, shape, false, &n) - 3.3;
        CHECK(fabs(ours * 0.75 - theirs * 0.6) < 1e-6 * ours, "forward %.2f, others' %.2f", ours,
              theirs);
        theirs = device_attention_us(&others, MATH_BF16, shape, true, &n) - 6.6;
        ours = device_attention_us(&own, MATH_BF16, shape, true, &n) - 6.6;
        double expected = CASES[i].once ? theirs * 5 / 7 * 0.5 / 0.25 : theirs;
        CHECK(fabs(ours - expected) < 1e-6 * ours, "backward %.2f, not %.2f", ours, expected);
        others.device = own.device;
        CHECK(fabs(device_attention_us(&others, MATH_BF16, shape, true, &n) - 6.6 - theirs) <
                  1e-6 * theirs,
              "other software has them, too");
    }
}

static void test_attention(void) {
    Cluster cluster = a100();
    AttentionShape shape = {4, 16, 16, 2048, 128, 0, true, false, 2, 0, 0, false, false, false};
    int n_forward = 0, n_backward = 0, n_ops = 0;
    check_begin("attention: blockwise is arithmetic, half of it if causal");
    double us = device_attention_us(&cluster, MATH_BF16, &shape, false, &n_forward);
    double flops = 2.0 * 4 * 16 * 2048.0 * 2048 * 128;
    CHECK(n_forward == 1, "%d kernels", n_forward);
    CHECK(fabs(us - 3.3 - flops / (312e6 * 0.6)) < 1e-6 * us, "%.2f us", us);
    double backward = device_attention_us(&cluster, MATH_BF16, &shape, true, &n_backward);
    CHECK(fabs(backward - 6.6 - 2.5 * flops / (312e6 * 0.5)) < 1e-6 * backward, "%.2f", backward);
    cluster.software.attention_backward_products = 7;
    double more = device_attention_us(&cluster, MATH_BF16, &shape, true, &n_ops);
    CHECK(fabs(more - 6.6 - 1.4 * (backward - 6.6)) < 1e-6 * more, "7 products: %.2f", more);
    shape.causal = false;
    double full = device_attention_us(&cluster, MATH_BF16, &shape, false, &n_ops);
    CHECK(fabs((full - 3.3) - 2 * (us - 3.3)) < 1e-6 * full, "not twice: %.2f, %.2f", us, full);
    AttentionShape windowed = shape;
    windowed.causal = true;
    windowed.window = 512; /* 7/16 of all pairs that a causal one sees */
    double part = device_attention_us(&cluster, MATH_BF16, &windowed, false, &n_ops);
    CHECK(fabs((part - 3.3) - 0.4375 * (us - 3.3)) < 1e-6 * us, "a window: %.2f of %.2f", part, us);
    shape.causal = true;

    check_begin("attention: heads that matrix units are not used for");
    static const struct {
        int64_t head, values; /* 0: like head */
        bool slow;
    } HEADS[] = {{128, 0, false}, {256, 0, false},  {192, 128, false}, {24, 16, false},
                 {264, 0, true},  {128, 264, true}, {132, 0, true},    {192, 132, true}};
    cluster.software.attention_most_head = 256;
    for (size_t i = 0; i < sizeof(HEADS) / sizeof(HEADS[0]); i++) {
        AttentionShape other = shape;
        other.head = HEADS[i].head;
        other.values = HEADS[i].values;
        double some = device_attention_us(&cluster, MATH_BF16, &other, false, &n_ops);
        double on_vectors = device_attention_us(&cluster, MATH_F32, &other, false, &n_ops);
        CHECK((some == on_vectors) == HEADS[i].slow && some <= on_vectors, "%lld and %lld: %.2f",
              (long long)other.head, (long long)other.values, some);
    }
    cluster.software.attention_most_head = 0;

    check_begin("attention: values' heads of another size count as what is done along them");
    AttentionShape latent = shape;
    latent.head = 192; /* 7 products: 4 along head, 3 along values */
    latent.values = 128;
    double wide = device_attention_us(&cluster, MATH_BF16, &latent, false, &n_ops);
    CHECK(fabs((wide - 3.3) - 320.0 / 256 * (us - 3.3)) < 1e-6 * wide, "%.2f of %.2f", wide, us);
    wide = device_attention_us(&cluster, MATH_BF16, &latent, true, &n_ops);
    CHECK(fabs((wide - 6.6) - (4 * 192 + 3 * 128) / (7.0 * 128) * (more - 6.6)) < 1e-6 * wide,
          "backward %.2f of %.2f", wide, more);

    check_begin("attention: dropped probabilities take instructions, more of them backward");
    AttentionShape drops = shape;
    drops.drops = true;
    double pairs = 4.0 * 16 * 2048 * 1024, rate = cluster.device.peak_flops[MATH_F32] * 1e-6 / 2;
    double drawn = device_attention_us(&cluster, MATH_BF16, &drops, false, &n_ops) - us;
    CHECK(fabs(drawn - 12 * pairs / rate) < 1e-6 * drawn, "%.2f us", drawn);
    drawn = device_attention_us(&cluster, MATH_BF16, &drops, true, &n_ops) - more;
    CHECK(fabs(drawn - 34 * pairs / rate) < 1e-6 * drawn, "backward %.2f us", drawn);
    Cluster own = cluster; /* kernels of its own that are faster do not do it */
    own.software.own_attention = true;
    own.device.own_attention_fraction = own.device.own_attention_backward_fraction = 0.9;
    for (int back = 0; back < 2; back++) {
        double other = device_attention_us(&cluster, MATH_BF16, &drops, back, &n_ops);
        double same = device_attention_us(&own, MATH_BF16, &drops, back, &n_ops);
        CHECK(same == other, "own kernels: %.2f us, others' %.2f", same, other);
    }

    check_begin("attention: materialised scores cost memory, and dropout more of it");
    cluster.software.attention = ATTENTION_MATERIALISED;
    double scores = 4.0 * 16 * 2048 * 2048;
    double plain = device_attention_us(&cluster, MATH_BF16, &shape, false, &n_forward);
    shape.dropout = true;
    double dropped = device_attention_us(&cluster, MATH_BF16, &shape, false, &n_ops);
    CHECK(plain > 2 * us && n_forward == 4 && n_ops == 5, "%.1f us, %d ops", plain, n_forward);
    double want = (scores * 5 + 5e6) / (2.039e6 * 0.78);
    CHECK(fabs(dropped - plain - want) < 1e-6 * want, "dropout: %.2f us", dropped - plain);
    device_attention_us(&cluster, MATH_BF16, &shape, true, &n_backward);
    CHECK(n_backward == 8, "%d backward", n_backward);

    check_begin("attention: few queries leave units idle");
    cluster.software.attention = ATTENTION_BLOCKWISE;
    AttentionShape few = {1, 2, 2, 1024, 128, 0, true, false, 2, 0, 0, false, false, false},
                   many = few;
    many.batch = 6;
    double alone = device_attention_us(&cluster, MATH_BF16, &few, false, &n_ops);
    double together = device_attention_us(&cluster, MATH_BF16, &many, false, &n_ops);
    CHECK(together < 1.01 * alone, "%.2f us alone, %.2f us for six", alone, together);
}

static void test_host(void) {
    ClusterSoftware software = {.forward_op_us = 90,
                                .backward_op_us = 60,
                                .collective_op_us = 5,
                                .collective_skew_us = 20,
                                .collective_stall_us = 100};
    check_begin("host: the slower of it and the device");
    double us = software_phase_us(&software, 500, 80, 15, 2, 4, false);
    double issue = 15 * 90 + 2 * 5, waits = 2 * 3 * 20 * (1 - 500 / issue);
    CHECK(fabs(us - issue - waits) < 1e-9, "host-bound: %.1f", us);
    us = software_phase_us(&software, issue, 0, 15, 2, 4, false);
    CHECK(us == issue + 2 * 100, "hosts wait for each other, but no device is idle: %.1f", us);
    us = software_phase_us(&software, 500, 80, 15, 2, 1, false);
    CHECK(us == issue, "one member waits for itself: %.1f", us);
    us = software_phase_us(&software, 5000, 80, 15, 2, 4, true);
    CHECK(us == 5000 + 80 + 2 * 100, "device-bound: %.1f", us);
    const double SHARES[] = {0.5, 0.85, 0.9, 0.95, 1, 2}, STALLED[] = {0, 0, 0.5, 1, 1, 1};
    software.collective_skew_us = 0;
    check_begin(
        "host: a collective stalls a busy device, and one that waits for its host does not");
    for (int i = 0; i < 6; i++) {
        us = software_phase_us(&software, SHARES[i] * issue - 80, 80, 15, 2, 4, false);
        double want = (SHARES[i] > 1 ? SHARES[i] : 1) * issue + 2 * 100 * STALLED[i];
        CHECK(fabs(us - want) < 1e-6, "%g of the host's time: %.1f, not %.1f", SHARES[i], us, want);
    }
    ClusterSoftware graphs = {.name = "captured"};
    us = software_phase_us(&graphs, 500, 80, 15, 2, 4, false);
    CHECK(us == 580, "a captured graph waits for its host: %.1f", us);
}

int main(void) {
    test_products();
    test_growth();
    test_memory();
    test_attention();
    test_own_attention();
    test_host();
    return check_report();
}
