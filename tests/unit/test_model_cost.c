/* Model costs from a thin model against plans of the whole model: what is kept, parameters, state
 * and FLOPs must be the plan's, for every tensor degree, precision and batch. A model with several
 * kinds of blocks, too. */
#include "frontend/lua/model.h"
#include "planner/cost/model_cost.h"
#include "planner/cost/offload_cost.h"
#include "planner/cost/step_bound.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

static const Cluster CLUSTER = {
    .name = "test",
    .device = {.name = "test",
               .peak_flops = {19e12, 312e12, 0},
               .product_fraction = {0.8, 0.8, 0},
               .attention_fraction = 0.5,
               .attention_backward_fraction = 0.4,
               .memory_bytes = 80e9,
               .memory_usable = 0.95,
               .memory_bytes_per_second = 2e12,
               .memory_fraction = 0.85,
               .n_units = 108,
               .kernel_us = 3},
    .node = {.n_devices = 8,
             .link_bytes_per_second = 300e9,
             .link_fraction = 0.8,
             .switched = true},
    .network = {.n_nics = 8,
                .nic_bytes_per_second = 25e9,
                .nic_fraction = 0.8,
                .oversubscription = 1},
    .software = {.name = "test", .fills_vocab = true, .overlaps_block = true},
};

static PlanRequest request_of(const Model *model, int t, int micro_batch, bool sequence_parallel,
                              DType precision) {
    return (PlanRequest){.model = model->name,
                         .forward = model->graph,
                         .n_blocks = model->n_blocks,
                         .seq = model->seq,
                         .vocab = model->vocab,
                         .recipe = model->recipe,
                         .options = {.mesh = {.size = {[MESH_T] = t, [MESH_D] = 1, [MESH_P] = 1}},
                                     .micro_batch = micro_batch,
                                     .global_batch = micro_batch,
                                     .n_chunks = 1,
                                     .schedule = "1f1b",
                                     .precision = precision,
                                     .sequence_parallel = sequence_parallel,
                                     .cuda = true,
                                     .seed = 1}};
}

typedef struct Total {
    double kept, persistent, model_flops;
    int64_t n_parameters;
} Total;

static void add_segment(Total *total, const SegmentCost *segment, int sign) {
    total->kept += sign * (double)segment->kept_bytes;
    total->persistent += sign * (double)(segment->parameter_bytes + segment->gradient_bytes +
                                         segment->optimizer_bytes);
    total->model_flops += sign * segment->model_flops;
    total->n_parameters += sign * segment->n_parameters;
}

static Total total_of(const ModelCosts *costs, const LayoutCost *layout) {
    Total total = {0};
    add_segment(&total, &layout->before, 1);
    add_segment(&total, &layout->after, 1);
    for (int b = 0; b < costs->n_blocks; b++) {
        add_segment(&total, &layout->kinds[costs->kind_of_block[b]], 1);
    }
    add_segment(&total, &layout->tied, -1);
    return total;
}

static bool near(double a, double b, double tolerance) {
    return fabs(a - b) <=
           tolerance * fabs(b) + 16384; /* rounding of each buffer up to ALIGN_BYTES */
}

static void compare(const char *path, const ModelSetting *settings, int n_settings, int t, int b,
                    bool sp, DType precision, int n_kinds) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *one = model_load(arena, path, settings, n_settings, 1, diag);
    Model *many = model_load(arena, path, settings, n_settings, b, diag);
    CHECK(one && many, "%s", diag_text(diag));
    if (one && many) {
        PlanRequest thin = request_of(one, 1, 1, false, precision);
        PlanRequest whole = request_of(many, t, b, sp, precision);
        ModelCosts *costs = model_costs_create(arena, &thin, &CLUSTER, diag);
        Plan *plan = plan_make(arena, &whole, diag);
        const char *why = NULL;
        const LayoutCost *layout =
            costs ? model_costs_at(costs, t, sp, RECOMPUTE_NONE, b, &why) : NULL;
        CHECK(layout && plan, "%s %s", diag_text(diag), why ? why : "");
        if (layout && plan) {
            int64_t bytes[N_BUFFER_CLASSES];
            plan_class_bytes(plan, 0, bytes);
            double persistent =
                (double)(bytes[CLASS_PARAMETER] + bytes[CLASS_GRADIENT] + bytes[CLASS_OPTIMIZER]);
            Total total = total_of(costs, layout);
            CHECK(costs->n_kinds == n_kinds, "%d kinds", costs->n_kinds);
            CHECK(near(total.kept, (double)bytes[CLASS_ACTIVATION], 0.001),
                  "kept %.0f, the plan's frames %.0f", total.kept, (double)bytes[CLASS_ACTIVATION]);
            CHECK(near(total.persistent, persistent, 0.001), "persistent %.0f, the plan's %.0f",
                  total.persistent, persistent);
            CHECK(near(total.model_flops * t, plan->model_flops, 0.001), "FLOPs %g, the plan's %g",
                  total.model_flops * t, plan->model_flops);
            CHECK(near(costs->model_flops * b, plan->model_flops, 1e-9), "FLOPs %g, the plan's %g",
                  costs->model_flops * b, plan->model_flops);
            CHECK(costs->n_parameters == plan->n_parameters, "parameters");
            /* Scratch is packed per stage; the parts' peak can be less, and hardly more:
             * where messages, experts' most of all, leave other gaps. */
            double scratch = 0, most = (double)plan->programs[0].scratch_bytes;
            const SegmentCost *parts[3] = {&layout->before, &layout->after, &layout->kinds[0]};
            for (int i = 0; i < 3; i++) {
                if ((double)parts[i]->scratch_bytes > scratch) {
                    scratch = (double)parts[i]->scratch_bytes;
                }
            }
            scratch += (double)layout->workspace_bytes;
            CHECK(scratch <= (costs->n_experts ? 1.04 : 1.015) * most + 4096 &&
                      scratch >= 0.97 * most,
                  "scratch %.0f, the plan's %.0f", scratch, most);
        }
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_models(void) {
    static const struct {
        const char *path, *size, *dropout;
    } models[] = {{"models/gpt.lua", "tiny", "0.1"},
                  {"models/gpt.lua", "124m", "0"},
                  {"models/llama.lua", "tiny", NULL},
                  {"models/moe.lua", "tiny", NULL}};
    for (int m = 0; m < 4; m++) {
        for (int t = 1; t <= 4; t *= 2) {
            for (int b = 1; b <= 6; b += 5) {
                for (int sp = 0; sp < (t > 1 ? 2 : 1); sp++) {
                    char name[128];
                    DType precision = (m + t + b) % 2 ? DTYPE_BF16 : DTYPE_F32;
                    ModelSetting settings[] = {{"size", models[m].size},
                                               {"dropout", models[m].dropout}};
                    snprintf(name, sizeof(name), "%s %s t=%d b=%d sp=%d %s", models[m].path,
                             models[m].size, t, b, sp, dtype_name(precision));
                    if (m >= 2 && t > 2) continue; /* two key/value heads */
                    check_begin(name);
                    compare(models[m].path, settings, models[m].dropout ? 2 : 1, t, b, sp != 0,
                            precision, 1);
                }
            }
        }
    }
}

static const char MIXED[] =
    "local nn = require 'nn'\n"
    "return model { name = 'mixed', axes = { seq = 32, model = 64, heads = 4, vocab = 96 },\n"
    "  layers = 7,\n"
    "  loss = function(m, tokens, labels)\n"
    "    local x = nn.embedding(m, 'wte', tokens, 'vocab', 'model')\n"
    "    for i = 1, m.layers do\n"
    "      x = m:block(i, function()\n"
    "        if i % 3 == 0 then\n"
    "          x = nn.residual(x, nn.attention(m, nn.norm(m, x, 'model', { name = 'ln' })))\n"
    "        end\n"
    "        return nn.residual(x, nn.mlp(m, nn.norm(m, x, 'model', { name = 'ln2' })))\n"
    "      end)\n"
    "    end\n"
    "    return nn.cross_entropy(m, nn.logits(m, 'wte', x, 'vocab', 'model'), labels, 'vocab')\n"
    "  end }\n";

static void test_mixed(void) {
    check_begin("a model of two kinds of blocks");
    char path[] = "/tmp/perilune_mixed_XXXXXX.lua";
    int fd = mkstemps(path, 4);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    CHECK(file, "no temporary file");
    if (!file) return;
    fputs(MIXED, file);
    fclose(file);
    compare(path, NULL, 0, 2, 3, true, DTYPE_BF16, 2);
    unlink(path);
}

static void test_impossible(void) {
    check_begin("a tensor degree that the model does not have is refused with its reason");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Model *model = model_load(arena, "models/gpt.lua", NULL, 0, 1, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        PlanRequest request = request_of(model, 1, 1, false, DTYPE_BF16);
        ModelCosts *costs = model_costs_create(arena, &request, &CLUSTER, diag);
        const char *why = NULL;
        const LayoutCost *layout =
            costs ? model_costs_at(costs, 3, false, RECOMPUTE_NONE, 1, &why) : NULL;
        CHECK(costs && !layout && why && why[0], "t=3 of four heads was taken");
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Memory as Korthikanti et al. 2022 (arXiv 2205.05198) account for it. Their figures count 12 L h^2
 * parameters of 18 bytes, no embeddings, no biases; and what blocks keep, times L (1 + (p - 1) / (p
 * v)) where stages interleave. Blocks alone are compared therefore. GiB of one device, t = 8. */
typedef struct PublishedMemory {
    const char *name;
    const char *layers, *model, *heads;
    int p, v, micro_batch;
    double state, none, selective_sequence; /* GiB */
    double sequence, selective, full;       /* per cent of `none` */
} PublishedMemory;
static const PublishedMemory PUBLISHED[] = {
    {"22B", "48", "6144", "64", 1, 1, 4, 45.5625, 59.25, 9.5625, 66.84, 49.42, 7.64},
    {"175B", "96", "12288", "96", 8, 3, 1, 45.5625, 66.84375, 12.3515625, 62.04, 56.53, 8.71},
    {"530B", "105", "20480", "128", 35, 3, 1, 31.640625, 114.0234375, 23.076171875, 58.31, 62.04,
     9.42},
    {"1T", "128", "25600", "160", 64, 1, 1, 32.958984375, 131.25, 26.5625, 58.31, 62.04, 9.42},
};

static double kept_gib(ModelCosts *costs, const PublishedMemory *row, bool sp,
                       Recompute recompute) {
    const LayoutCost *layout = model_costs_at(costs, 8, sp, recompute, row->micro_batch, NULL);
    double in_flight = row->v > 1 ? 1 + (row->p - 1.0) / (row->p * row->v) : 1;
    return layout ? (double)layout->kinds[0].kept_bytes * costs->n_blocks * in_flight / (1 << 30)
                  : -1;
}

static void test_published_memory(void) {
    Cluster cluster = CLUSTER;
    cluster.software.attention = ATTENTION_MATERIALISED;
    cluster.software.attention_dropout = true;
    cluster.software.keeps_masks = true;
    cluster.software.recomputes_all = true;
    for (size_t i = 0; i < sizeof(PUBLISHED) / sizeof(PUBLISHED[0]); i++) {
        const PublishedMemory *row = &PUBLISHED[i];
        char name[64];
        snprintf(name, sizeof(name), "memory of Korthikanti et al., %s, within 3 %%", row->name);
        check_begin(name);
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        ModelSetting settings[] = {{"layers", row->layers}, {"model", row->model},
                                   {"heads", row->heads},   {"seq", "2048"},
                                   {"vocab", "51200"},      {"dropout", "0.1"}};
        Model *model = model_load(arena, "models/gpt.lua", settings, 6, 1, diag);
        PlanRequest request;
        if (model) request = request_of(model, 1, 1, false, DTYPE_BF16);
        ModelCosts *costs = model ? model_costs_create(arena, &request, &cluster, diag) : NULL;
        CHECK(costs, "%s", diag_text(diag));
        if (costs) {
            const LayoutCost *layout =
                model_costs_at(costs, 8, false, RECOMPUTE_NONE, row->micro_batch, NULL);
            const SegmentCost *block = &layout->kinds[0];
            double state =
                (double)(block->parameter_bytes + block->gradient_bytes + block->optimizer_bytes) *
                costs->n_blocks / row->p / (1 << 30);
            double none = kept_gib(costs, row, false, RECOMPUTE_NONE);
            double best = kept_gib(costs, row, true, RECOMPUTE_SELECTIVE);
            double sequence = 100 * kept_gib(costs, row, true, RECOMPUTE_NONE) / none;
            double full = 100 * kept_gib(costs, row, false, RECOMPUTE_FULL) / none;
            double selective = 100 * kept_gib(costs, row, false, RECOMPUTE_SELECTIVE) / none;
            CHECK(fabs(state / row->state - 1) < 0.03, "state %.2f GiB, published %.2f", state,
                  row->state);
            CHECK(fabs(none / row->none - 1) < 0.03, "kept %.2f GiB, published %.2f", none,
                  row->none);
            CHECK(fabs(best / row->selective_sequence - 1) < 0.03,
                  "selective with sequence parallelism %.2f GiB, published %.2f", best,
                  row->selective_sequence);
            CHECK(fabs(sequence / row->sequence - 1) < 0.03, "sequence %.2f %%, published %.2f",
                  sequence, row->sequence);
            CHECK(fabs(full / row->full - 1) < 0.03, "full %.2f %%, published %.2f", full,
                  row->full);
            CHECK(fabs(selective / row->selective - 1) < 0.03, "selective %.2f %%, published %.2f",
                  selective, row->selective);
        }
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

/* Of the head's products, forward and backward. */
static double head_us(int t, int share_multiple, bool fills) {
    Cluster cluster = CLUSTER;
    cluster.software.share_multiple = share_multiple;
    cluster.software.fills_vocab = fills;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    ModelSetting settings[] = {{"layers", "1"}, {"model", "512"},   {"heads", "8"},
                               {"seq", "256"},  {"vocab", "50257"}, {"tied", "false"}};
    Model *model = model_load(arena, "models/gpt.lua", settings, 6, 1, diag);
    PlanRequest request;
    if (model) request = request_of(model, 1, 1, false, DTYPE_BF16);
    ModelCosts *costs = model ? model_costs_create(arena, &request, &cluster, diag) : NULL;
    const LayoutCost *layout =
        costs ? model_costs_at(costs, t, false, RECOMPUTE_NONE, 4, NULL) : NULL;
    CHECK(layout, "%s", diag_text(diag));
    double us = layout ? layout->after.forward.product_us + layout->after.backward.product_us : 0;
    diag_destroy(diag);
    arena_destroy(arena);
    return us;
}

static void test_padded_shares(void) {
    check_begin("a vocabulary that is divided may be padded, a whole one is as odd as it is");
    double odd = head_us(2, 0, false), padded = head_us(2, 64, false);
    CHECK(padded < 0.5 * odd, "%.1f us of 25129 words, %.1f of 25152", odd, padded);
    odd = head_us(1, 0, false), padded = head_us(1, 64, false);
    CHECK(padded == odd, "%.1f us with t = 1, %.1f padded", odd, padded);
    check_begin("where a vocabulary is filled up, it is on every rank");
    padded = head_us(1, 0, true);
    CHECK(padded < 0.5 * odd, "%.1f us of 50257 words, %.1f of 50304", odd, padded);
}

/* A block's phases with t, where software batches products and where it does not. */
static bool block_costs(const char *path, int t, bool batches, bool folds, const char *model_size,
                        SegmentCost *out) {
    Cluster cluster = CLUSTER;
    cluster.software.batches_products = batches;
    cluster.software.folds_epilogues = folds;
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    ModelSetting settings[] = {
        {"layers", "1"}, {"model", model_size}, {"heads", "64"}, {"seq", "1024"}, {"vocab", "512"}};
    Model *model = model_load(arena, path, settings, 5, 1, diag);
    PlanRequest request;
    if (model) request = request_of(model, 1, 1, false, DTYPE_BF16);
    ModelCosts *costs = model ? model_costs_create(arena, &request, &cluster, diag) : NULL;
    const LayoutCost *layout =
        costs ? model_costs_at(costs, t, false, RECOMPUTE_NONE, 8, NULL) : NULL;
    CHECK(layout, "%s", diag_text(diag));
    if (layout) *out = layout->kinds[0];
    diag_destroy(diag);
    arena_destroy(arena);
    return layout != NULL;
}

/* q, k and v, and the gradients of their weights, are one operation each: shorter by two launches,
 * and by what the last round of tiles leaves idle. Large ones stay apart. */
static void test_batched_products(void) {
    static const struct {
        int t;
        const char *model;
        int forward, backward; /* operations less */
    } CASES[] = {{1, "1536", 2, 2}, {2, "1536", 2, 2}, {1, "8192", 0, 0}};
    check_begin("alike products of one operand run at once");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        SegmentCost apart, together;
        if (!block_costs("models/gpt.lua", CASES[i].t, false, false, CASES[i].model, &apart))
            continue;
        if (!block_costs("models/gpt.lua", CASES[i].t, true, false, CASES[i].model, &together))
            continue;
        const PhaseCost *from[2] = {&apart.forward, &apart.backward};
        const PhaseCost *to[2] = {&together.forward, &together.backward};
        for (int phase = 0; phase < 2; phase++) {
            int less = phase ? CASES[i].backward : CASES[i].forward;
            CHECK(from[phase]->n_ops - to[phase]->n_ops == less &&
                      from[phase]->flops == to[phase]->flops,
                  "case %zu: %d operations, apart %d", i, to[phase]->n_ops, from[phase]->n_ops);
            double saved = from[phase]->product_us - to[phase]->product_us;
            CHECK(less ? saved >= 3 * less : saved == 0, "case %zu: %.1f us are saved", i, saved);
        }
    }
}

/* Where sums are part of products, the gradient through q, k and v is one product and a copy of
 * weights, unless these are more than what is saved; behind rotary, too. */
static void test_stacked_products(void) {
    static const struct {
        const char *path;
        int t;
        const char *model;
        int less; /* operations backward, with those of gradients of weights */
    } CASES[] = {{"models/gpt.lua", 1, "1536", 3},
                 {"models/gpt.lua", 2, "1536", 3},
                 {"models/gpt.lua", 1, "4096", 3},
                 {"models/gpt.lua", 1, "8192", 0},
                 {"models/llama.lua", 1, "1536", 3}};
    check_begin("products that are added up run as one");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        SegmentCost apart, together;
        if (!block_costs(CASES[i].path, CASES[i].t, false, true, CASES[i].model, &apart)) continue;
        if (!block_costs(CASES[i].path, CASES[i].t, true, true, CASES[i].model, &together))
            continue;
        const PhaseCost *from = &apart.backward, *to = &together.backward;
        CHECK(from->n_ops - to->n_ops == CASES[i].less && from->flops == to->flops,
              "case %zu: %d operations, apart %d", i, to->n_ops, from->n_ops);
        bool same = to->product_us == from->product_us && to->memory_us == from->memory_us;
        CHECK(CASES[i].less ? to->product_us < from->product_us && to->memory_us > from->memory_us
                            : same,
              "case %zu: products of %.1f us, apart %.1f, memory of %.1f, apart %.1f", i,
              to->product_us, from->product_us, to->memory_us, from->memory_us);
    }
}

static bool same_segment(const SegmentCost *a, const SegmentCost *b) {
    return a->forward.us == b->forward.us && a->backward.us == b->backward.us &&
           a->weights.us == b->weights.us && a->update_us == b->update_us &&
           a->model_flops == b->model_flops && a->kept_bytes == b->kept_bytes &&
           a->peak_bytes == b->peak_bytes && a->scratch_bytes == b->scratch_bytes &&
           a->gradient_bytes == b->gradient_bytes && a->micro_calls == b->micro_calls &&
           a->n_tensor == b->n_tensor &&
           memcmp(a->update_calls, b->update_calls, sizeof(a->update_calls)) == 0;
}

static bool same_block(const OffloadBlock *a, const OffloadBlock *b) {
    return a->host_bytes == b->host_bytes && a->own_us == b->own_us && a->in_us == b->in_us &&
           a->back_us == b->back_us && a->n_calls == b->n_calls;
}

static bool same_offload(const OffloadCost *a, const OffloadCost *b, int n_kinds) {
    bool same = (a != NULL) == (b != NULL) && (!a || same_block(&a->first, &b->first));
    for (int k = 0; a && same && k < n_kinds; k++) {
        same = same_block(&a->kinds[k], &b->kinds[k]) && a->kinds[k].host_bytes > 0 &&
               a->pair_scratch[k] == b->pair_scratch[k] &&
               a->chain_scratch[k] == b->chain_scratch[k];
    }
    return same;
}

static bool same_layout(const ModelCosts *costs, const LayoutCost *a, const LayoutCost *b) {
    bool same = same_segment(&a->before, &b->before) && same_segment(&a->after, &b->after) &&
                same_segment(&a->tied, &b->tied) && a->workspace_bytes == b->workspace_bytes &&
                a->zero_bytes == b->zero_bytes && a->border_bytes == b->border_bytes &&
                memcmp(a->update_calls, b->update_calls, sizeof(a->update_calls)) == 0 &&
                a->recompute == b->recompute && a->micro_batch == b->micro_batch &&
                (a->split != NULL) == (b->split != NULL) &&
                same_offload(a->offload, b->offload, costs->n_kinds);
    for (int k = 0; same && k < costs->n_kinds; k++) {
        same = same_segment(&a->kinds[k], &b->kinds[k]);
    }
    return same && (!a->split || same_layout(costs, a->split, b->split));
}

/* What is known before a layout is priced is what it then takes. */
static void check_times(const ModelCosts *costs, const LayoutCost *timed, const LayoutCost *priced,
                        bool splits) {
    CHECK(timed->work_us == layout_work_us(costs, priced), "%g us", timed->work_us);
    if (splits && priced->split)
        CHECK(timed->split_work_us == layout_work_us(costs, priced->split), "%g us",
              timed->split_work_us);
}

/* By a crew, all at once; and one by one as they are asked for, in another order. */
static void test_prepared(int activations) {
    static const LayoutKey KEYS[] = {
        {1, 1, 1, 1, 1, false, RECOMPUTE_SELECTIVE, true},
        {2, 1, 1, 2, 1, true, RECOMPUTE_FULL, true},
        {2, 1, 1, 2, 1, false, RECOMPUTE_NONE, false},
        {4, 1, 1, 4, 2, true, RECOMPUTE_SELECTIVE, true},
        {1, 2, 1, 2, 1, false, RECOMPUTE_NONE, true},
        {3, 1, 1, 1, 1, false, RECOMPUTE_FULL, true}, /* t divides no heads */
        {2, 1, 1, 4, 1, true, RECOMPUTE_FULL, true},
        {2, 1, 1, 2, 1, true, RECOMPUTE_FULL, true}, /* again */
    };
    enum { N_KEYS = sizeof(KEYS) / sizeof(KEYS[0]) };
    const Crew crew = {.n_threads = 3};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(activations ? "with activations on the host, too"
                            : "layouts priced together are those priced one by one");
    Model *model = model_load(arena, "models/gpt.lua", NULL, 0, 1, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        PlanRequest request = request_of(model, 1, 1, false, DTYPE_BF16);
        request.options.cuda = activations > 0;
        request.options.offload_activations = activations;
        ModelCosts *together = model_costs_create(arena, &request, &CLUSTER, diag);
        ModelCosts *single = model_costs_create(arena, &request, &CLUSTER, diag);
        model_costs_plan(together, KEYS, N_KEYS, &crew);
        model_costs_time(together, KEYS, N_KEYS, &crew);
        model_costs_prepare(together, KEYS, N_KEYS, &crew);
        for (int i = N_KEYS - 1; i >= 0; i--) {
            const LayoutKey *k = &KEYS[i];
            const LayoutCost *costs[2];
            for (int j = 0; j < 2; j++) {
                ModelCosts *of = j ? single : together;
                costs[j] = model_costs_divided(of, k->t, k->c, k->e, k->sequence_parallel,
                                               k->recompute, k->micro_batch, k->lanes, NULL);
                if (costs[j] && k->splits) model_costs_split(of, costs[j]);
            }
            bool same = costs[0] && costs[1] ? same_layout(single, costs[0], costs[1])
                                             : costs[0] == costs[1];
            CHECK(same, "layout %d differs", i);
            if (costs[0] && costs[1]) check_times(single, costs[0], costs[1], k->splits);
            CHECK((costs[0] != NULL) == (k->t != 3), "layout %d", i);
            CHECK(!costs[0] || (costs[0]->offload != NULL) == (activations > 0), "layout %d", i);
        }
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

static const LayoutCost *price_key(ModelCosts *costs, const LayoutKey *k) {
    const LayoutCost *priced = model_costs_divided(costs, k->t, k->c, k->e, k->sequence_parallel,
                                                   k->recompute, k->micro_batch, k->lanes, NULL);
    if (priced && k->splits) model_costs_split(costs, priced);
    return priced;
}

/* Experts in two runs, where e divides them; else the model is the one that has them in one. */
static void test_shared(void) {
    static const LayoutKey KEYS[] = {
        {1, 1, 1, 2, 1, false, RECOMPUTE_NONE, true},      /* priced there before */
        {2, 1, 1, 2, 1, true, RECOMPUTE_SELECTIVE, true},  /* planned there, and priced later */
        {1, 1, 1, 4, 1, false, RECOMPUTE_FULL, false},     /* asked for here alone */
        {1, 1, 2, 2, 1, false, RECOMPUTE_SELECTIVE, true}, /* not shared */
    };
    enum { N_KEYS = sizeof(KEYS) / sizeof(KEYS[0]) };
    const Crew crew = {.n_threads = 2};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin("layouts without e are those of experts in one run");
    Model *model = model_load(arena, "models/moe.lua", NULL, 0, 1, diag);
    CHECK(model, "%s", diag_text(diag));
    if (model) {
        PlanRequest request = request_of(model, 1, 1, false, DTYPE_BF16);
        ModelCosts *whole = model_costs_create(arena, &request, &CLUSTER, diag);
        request.options.expert_parts = 2;
        request.options.parts_if_divided = true;
        ModelCosts *shares = model_costs_create(arena, &request, &CLUSTER, diag);
        ModelCosts *alone = model_costs_create(arena, &request, &CLUSTER, diag);
        model_costs_plan(whole, KEYS, 2, &crew);
        model_costs_prepare(whole, KEYS, 1, &crew);
        model_costs_share(shares, whole);
        model_costs_plan(shares, KEYS, N_KEYS, &crew);
        model_costs_prepare(shares, KEYS, N_KEYS, &crew);
        for (int i = 0; i < N_KEYS; i++) {
            const LayoutCost *costs = price_key(shares, &KEYS[i]);
            const LayoutCost *own = price_key(alone, &KEYS[i]), *one = price_key(whole, &KEYS[i]);
            CHECK(costs && own && same_layout(alone, costs, own), "layout %d differs", i);
            CHECK(costs && one && same_layout(alone, costs, one) == (KEYS[i].e == 1),
                  "layout %d: of e=%d", i, KEYS[i].e);
            CHECK((costs->kinds == one->kinds) == (i == 0), "layout %d is made again", i);
        }
    }
    check_end();
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    test_models();
    test_stacked_products();
    test_padded_shares();
    test_batched_products();
    test_published_memory();
    test_mixed();
    test_impossible();
    test_prepared(0);
    test_prepared(100);
    test_shared();
    return check_report();
}
