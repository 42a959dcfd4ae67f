/* What step_memory says before a plan is made, against the arenas of the plan. */
#include "frontend/cluster_read.h"
#include "frontend/model.h"
#include "planner/search.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>

typedef struct Layout {
    const char *path, *settings; /* size */
    int t, d, p, v, b, n_micro;
    const char *schedule;
    bool sequence_parallel, f32;
    Recompute recompute;
    int zero;
} Layout;

static PlanRequest request_of(const Model *model, const Layout *l, const int *split) {
    return (PlanRequest){.model = model->name,
                         .forward = model->graph,
                         .n_blocks = model->n_blocks,
                         .seq = model->seq,
                         .vocab = model->vocab,
                         .recipe = model->recipe,
                         .options = {.mesh = {{[MESH_T] = l->t, [MESH_D] = l->d, [MESH_P] = l->p}},
                                     .micro_batch = l->b,
                                     .global_batch = l->b * l->d * l->n_micro,
                                     .n_chunks = l->v,
                                     .schedule = l->schedule,
                                     .precision = l->f32 ? DTYPE_F32 : DTYPE_BF16,
                                     .sequence_parallel = l->sequence_parallel,
                                     .recompute = l->recompute,
                                     .zero = l->zero,
                                     .cuda = true,
                                     .split = split,
                                     .n_split = split ? l->p * l->v : 0,
                                     .seed = 1}};
}

static const Stage *largest_stage(const Plan *plan) {
    const Stage *largest = &plan->stages[0];
    for (int s = 1; s < plan->n_stages; s++) {
        if (plan->stages[s].arena_bytes > largest->arena_bytes) largest = &plan->stages[s];
    }
    return largest;
}

static void compare(const Layout *l, Diag *diag) {
    Arena *arena = arena_create();
    ModelSetting size = {"size", l->settings};
    Cluster *cluster = cluster_read(arena, "selene", NULL, diag);
    Model *thin = model_load(arena, l->path, &size, 1, 1, diag);
    Model *whole = model_load(arena, l->path, &size, 1, l->b * l->d, diag);
    if (!cluster || !thin || !whole) BUG("%s", diag_text(diag));
    PlanRequest request = request_of(thin, l, NULL);
    ModelCosts *costs = model_costs_create(arena, &request, cluster, diag);
    const char *reason;
    const LayoutCost *layout =
        costs ? model_costs_at(costs, l->t, l->sequence_parallel, l->recompute, l->b, &reason)
              : NULL;
    if (!layout) BUG("%s %s", diag_text(diag), reason);
    int *split = ARENA_ARRAY(arena, int, l->p * l->v);
    Candidate candidate = {.t = l->t,
                           .p = l->p,
                           .d = l->d,
                           .n_chunks = l->v,
                           .micro_batch = l->b,
                           .n_micro = l->n_micro,
                           .schedule = schedule_find(l->schedule),
                           .recompute = l->recompute,
                           .zero = l->zero,
                           .sequence_parallel = l->sequence_parallel};
    StepCost cost = {0};
    if (!split_blocks(costs, layout, l->p, l->v, false, split)) BUG("no split");
    step_memory(costs, layout, &candidate, split, &cost);
    request = request_of(whole, l, split);
    Plan *plan = plan_make(arena, &request, diag);
    CHECK(plan, "%s", diag_text(diag));
    if (plan) {
        const Stage *stage = largest_stage(plan);
        const Program *program = &plan->programs[stage->program];
        double error = (double)cost.memory_bytes / (double)stage->arena_bytes - 1;
        if (getenv("VERBOSE")) {
            double frames = 0;
            for (int c = 0; c < l->v; c++) {
                frames += (double)program->frame_bytes[c] * stage->frame_slots[c];
            }
            printf(
                "# %s t%d d%d p%d v%d b%d %s: %+.2f %%; MB priced %.1f (stage %d), planned %.1f "
                "(stage %d); frames %.1f %.1f messages %.2f %.2f scratch %.1f %.1f persistent "
                "%.1f %.1f\n",
                l->settings, l->t, l->d, l->p, l->v, l->b, l->schedule, 100 * error,
                (double)cost.memory_bytes / 1e6, cost.worst_stage, (double)stage->arena_bytes / 1e6,
                (int)(stage - plan->stages), (double)cost.activation_bytes / 1e6, frames / 1e6,
                (double)cost.message_bytes / 1e6, (double)stage->message_bytes / 1e6,
                (double)cost.scratch_bytes / 1e6, (double)program->scratch_bytes / 1e6,
                (double)(cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes) / 1e6,
                (double)program->persistent_bytes / 1e6);
        }
        /* Shards may need a little more than is priced, and no stage's messages need more than
         * those of the stage with the largest tensor. */
        double least = l->zero ? -0.003 : -0.001, most = l->zero ? 0.01 : 0.001;
        CHECK(error > least && error < most,
              "%s t=%d d=%d p=%d v=%d b=%d %s: priced %lld, planned %lld: %+.3f", l->settings, l->t,
              l->d, l->p, l->v, l->b, l->schedule, (long long)cost.memory_bytes,
              (long long)stage->arena_bytes, error);
    }
    arena_destroy(arena);
}

int main(void) {
    static const Layout LAYOUTS[] = {
        {"models/gpt.lua", "124m", 1, 1, 1, 1, 4, 4, "1f1b", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 1, 4, 1, 2, 8, "gpipe", false, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 2, 2, 2, 3, 2, 4, "interleaved", false, true, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 4, 1, 4, 3, 2, 8, "interleaved", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "774m", 1, 1, 6, 3, 1, 12, "interleaved", false, false, RECOMPUTE_FULL,
         0},
        {"models/gpt.lua", "774m", 2, 1, 6, 1, 2, 12, "1f1b", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "175b", 8, 1, 16, 1, 1, 32, "1f1b", true, false, RECOMPUTE_SELECTIVE, 0},
        {"models/gpt.lua", "175b", 8, 1, 8, 6, 1, 16, "interleaved", true, false, RECOMPUTE_NONE,
         0},
        {"models/gpt.lua", "175b", 8, 1, 8, 1, 2, 16, "1f1b", false, false, RECOMPUTE_FULL, 0},
        {"models/llama.lua", "405b", 8, 1, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_NONE, 0},
        {"models/gpt.lua", "124m", 1, 4, 1, 1, 2, 4, "1f1b", false, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "124m", 2, 2, 2, 1, 4, 4, "1f1b", true, false, RECOMPUTE_NONE, 1},
        {"models/gpt.lua", "124m", 2, 8, 2, 3, 2, 4, "interleaved", false, false, RECOMPUTE_NONE,
         1},
        {"models/gpt.lua", "175b", 8, 8, 8, 6, 1, 16, "interleaved", true, false, RECOMPUTE_NONE,
         1},
        {"models/llama.lua", "405b", 8, 128, 16, 1, 1, 16, "1f1b", true, false, RECOMPUTE_NONE, 1},
    };
    Diag *diag = diag_create();
    check_begin("memory priced is memory planned, within 0.1 %; with ZeRO-1 within 1 %");
    for (size_t i = 0; i < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); i++) compare(&LAYOUTS[i], diag);
    diag_destroy(diag);
    return check_report();
}
