/* Training with own attention on wgmma, as a plan tuned on sm_90 asks for it, on the fake against
 * the CPU backend.
 *
 * Would catch: launches that do not fit the kernels, a gradient that does not understand the lse of
 * the forward or the rows' sums, a workspace too small, accesses that are not said.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip training with attention on wgmma: built without CUDA's headers");
    return 0;
}
#else

#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/summary.h"
#include "tests/unit/cuda_graph.h"

/* Each with the layout that it runs on. */
typedef struct Training {
    Variant variant;
    Layout layout;
    int c;
} Training;

/* clang-format off */
#define SMALL \
    {"optimizer.eps", "1e-6"}, {"seq", "8"}, {"layers", "1"}, {"vocab", "31"}, {"ffn", "32"}
static const Training TRAININGS[] = {
    {{"gpt, heads of 40, c=2, documents", "models/gpt.lua", 2, DTYPE_BF16,
      {SMALL, {"model", "40"}, {"heads", "1"}, {"documents", "5"}}},
     {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 2},
    {{"gpt, heads of 40, gradients in one pass and side by side", "models/gpt.lua", 2, DTYPE_BF16,
      {SMALL, {"model", "40"}, {"heads", "1"}}},
     {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 1},
    {{"bert, heads of 40: sums of four", "models/bert.lua", 2, DTYPE_BF16,
      {SMALL, {"model", "40"}, {"heads", "1"}, {"mask_token", "30"}}},
     {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 1},
    {{"llama, heads of 72 in groups", "models/llama.lua", 1, DTYPE_F16,
      {SMALL, {"model", "144"}, {"heads", "2"}, {"kv_heads", "1"}}},
     {1, 1, 1, 16, 1, "1f1b", false, NULL, 0}, 1},
};
/* clang-format on */
/* With AddressSanitizer, ten times slower, the first will do. */
enum { N_TRAININGS = VARIANT_STEP > 1 ? 1 : sizeof(TRAININGS) / sizeof(TRAININGS[0]) };

/* An AttentionCheck's, that writes down what it is asked. */
static AttentionKernels note_kind(void *user, const AttentionCommand *attention) {
    PlanDevice *device = user;
    PlanAttention kind = attention_kind(&attention->shape);
    kind.kernels = cuda_attention_has_joint(&attention->shape, attention->workspace_bytes)
                       ? ATTENTION_JOINT
                       : ATTENTION_WGMMA;
    if (!plan_find_attention(device, &kind)) device->attentions[device->n_attentions++] = kind;
    return ATTENTION_MMA;
}

/* As `tune` would leave the plan if wgmma were fastest, in one pass where it can be. */
static bool choose_wgmma(Run *run) {
    PlanDevice *device = &run->plan->device;
    *device = (PlanDevice){
        .name = "Fake H200",
        .arch = "sm_90",
        .library_version = (int64_t)cuda_api()->cublasLtGetVersion(),
        .attentions = ARENA_ARRAY(run->arena, PlanAttention, MAX_PLAN_ATTENTIONS),
    };
    const AttentionCheck check = {.choose = note_kind, .user = device};
    bool fine = true;
    for (int s = 0; fine && s < run->plan->n_stages; s++) {
        CommandList list = {0};
        fine = cuda_emit_stage(run->plan, s, NULL, &check, run->arena,
                               kernel_cache_create(run->arena), &list, run->diag);
        command_list_release(&list);
    }
    return fine;
}

/* Every attention of a step is by kernels on wgmma: one forward, two backward and delta, or, where
 * a rank has whole sequences and `causal` attention, one backward. */
static void check_counts(const Run *run, bool causal) {
    const FakeGraph *graph = fake_cuda_graph(0);
    const char *said = engine_attention(run->engine);
    bool joint = run->plan->mesh.size[MESH_C] == 1 && causal;
    int each = joint ? 2 : 3;
    int n = 0, expected = each * run->plan->n_blocks * run->plan->n_micro *
                          run->plan->mesh.size[MESH_T] * run->plan->mesh.size[MESH_C];
    for (int i = 0; i < graph->n_nodes; i++) {
        const FakeFunction *function = graph->nodes[i].launch.function;
        n += graph->nodes[i].kind == FAKE_KERNEL && !function->generated &&
             strstr(KERNELS[function->kernel].name, "_wgmma_");
    }
    CHECK(n == expected, "%d launches of %d", n, expected);
    const char *expected_said = each == 3 ? "attention by own kernels on wgmma"
                                          : "attention by own kernels on wgmma forward, by own "
                                            "kernels on wgmma in one pass backward";
    CHECK(said && strcmp(said, expected_said) == 0, "it says: %s", said ? said : "nothing");
}

static void check_training(const Training *t) {
    char name[160], why[512] = "";
    const EngineOptions options = {.device = DEVICE_CUDA, .virtual_ranks = true};
    Run run = {0}, cpu;
    run_context = t->c;
    check_begin(layout_name(t->variant.name, &t->layout, name, sizeof(name)));
    bool done =
        start_on_cpu(&cpu, &t->variant, &t->layout) && run_steps(&cpu, STEPS, LEARNING_RATE);
    CHECK(done, "on the CPU: %s", diag_text(cpu.diag));
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true, .seed = 1}));
    done = done && plan(&run, &t->variant, &t->layout) && choose_wgmma(&run) &&
           run_start_on(&run, &options);
    if (done) {
        prove(&run);
        check_counts(&run, strcmp(t->variant.path, "models/bert.lua") != 0);
        done = run_steps(&run, STEPS, LEARNING_RATE);
    }
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        compare_with_cpu(&run, &cpu);
        CHECK(dag_check_accesses(fake_cuda_graph(0), why, sizeof(why)), "%s", why);
    }
    close_on_fake(&run);
    run_close(&cpu);
    check_end();
}

int main(void) {
    const char *why = fake_missing();
    if (why) {
        printf("skip training with attention on wgmma: %s\n", why);
        return 0;
    }
    forget_cache();
    for (int i = 0; i < N_TRAININGS; i++) check_training(&TRAININGS[i]);
    return check_report();
}
#endif
