/* What a rank's commands wait for in plans whose messages lie beside work (hide_messages), with
 * lanes and without, or whose weights come beside the first forward (gather_once), by their order
 * alone. Would catch: memory that work writes while a message
 * still has it, so that the work waits for what it does not need. */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "runtime/cuda/order.h"
#include "runtime/cuda/summary.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

static bool touches(const Access *a, const Access *b) {
    return a->at < b->at + (uintptr_t)b->bytes && b->at < a->at + (uintptr_t)a->bytes;
}

/* Does the command read what the message wrote? */
static bool reads(const Command *command, const Command *message) {
    for (int i = 0; i < command->n_accesses; i++) {
        for (int k = 0; k < message->n_accesses; k++) {
            const Access *a = &command->accesses[i], *b = &message->accesses[k];
            if (!a->write && b->write && touches(a, b)) return true;
        }
    }
    return false;
}

static bool is_within_blocks(const Command *command) {
    return command->info.node && command->info.node->phase < PHASE_UPDATE;
}

static bool is_beside_work(const Command *message) {
    return message->stream == STREAM_TENSOR || message->stream == STREAM_EXPERT ||
           (message->stream == STREAM_DATA && node_is_once(message->info.node));
}

/* Waits of work for messages within blocks: all, and for messages of which it reads nothing. */
static void count_waits(const CommandList *list, int *out_all, int *out_needless) {
    *out_all = *out_needless = 0;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        if (command->stream != STREAM_COMPUTE || !is_within_blocks(command)) continue;
        for (int k = 0; k < command->n_waits; k++) {
            const Command *message = &list->items[command->waits[k]];
            if (!is_beside_work(message)) continue;
            bool needs = reads(command, message);
            (*out_all)++;
            *out_needless += !needs;
            if (getenv("VERBOSE") && !needs)
                printf("# %s waits for %s\n", OPS[command->info.node->op].name,
                       OPS[message->info.node->op].name);
        }
    }
}

enum { N_SETTINGS = 3 };
static const ModelSetting LLAMA[] = {{"size", "8b"}, {"layers", "4"}, {"seq", "4096"}};
static const ModelSetting GPT[] = {{"size", "1.5b"}, {"layers", "4"}, {"seq", "1280"}};
static const ModelSetting MIXTRAL[] = {{"size", "mixtral-8x7b"}, {"layers", "2"}, {"seq", "4096"}};

/* Sizes of mesh axes, and lanes: 0 is 1. */
typedef struct Case {
    const char *model;
    const ModelSetting *settings;
    int micro_batch, t, e, d, lanes, zero;
    bool sequence_parallel;
    Recompute recompute;
} Case;

static const Case CASES[] = {
    {"models/llama.lua", LLAMA, 2, .t = 2},
    {"models/llama.lua", LLAMA, 2, .t = 2, .lanes = 2},
    {"models/llama.lua", LLAMA, 2, .t = 2, .sequence_parallel = true},
    {"models/llama.lua", LLAMA, 2, .t = 2, .sequence_parallel = true, .lanes = 2},
    {"models/llama.lua", LLAMA, 4, .t = 4, .sequence_parallel = true, .lanes = 2,
     .recompute = RECOMPUTE_SELECTIVE},
    {"models/gpt.lua", GPT, 4, .t = 5, .sequence_parallel = true, .lanes = 2,
     .recompute = RECOMPUTE_FULL},
    {"models/moe.lua", MIXTRAL, 2, .e = 8, .lanes = 2},
    {"models/llama.lua", LLAMA, 2, .d = 4, .zero = 1, .recompute = RECOMPUTE_FULL},
    {"models/gpt.lua", GPT, 4, .t = 5, .sequence_parallel = true, .d = 3, .zero = 1}, /* padded */
};

static int or_one(int size) {
    return size ? size : 1;
}

static void check_case(const Case *c) {
    const int t = or_one(c->t), e = or_one(c->e), d = or_one(c->d), lanes = or_one(c->lanes);
    const Layout layout = {t, d, 1, c->micro_batch, 1, "1f1b", c->sequence_parallel, NULL, 0};
    Run run;
    CommandList list = {0};
    CommandOrder order = {0};
    char name[128];
    snprintf(name, sizeof(name), "%s %s, t=%d e=%d d=%d%s, %d lanes: work waits for what it reads",
             c->model, c->settings[0].value, t, e, d, c->sequence_parallel ? " seq" : "", lanes);
    check_begin(name);
    run_lanes = lanes, run_experts = e, run_recompute = c->recompute;
    run_zero = c->zero;
    bool fine = run_plan_for(&run, c->model, c->settings, N_SETTINGS, &layout,
                             c->micro_batch * e * d, false, true, DTYPE_BF16);
    run_lanes = run_experts = 1, run_recompute = RECOMPUTE_NONE, run_zero = 0;
    fine = fine && cuda_emit_stage(run.plan, 0, NULL, NULL, run.arena,
                                   kernel_cache_create(run.arena), &list, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    if (fine) {
        int all, needless;
        order_commands(&list, run.arena, &order);
        count_waits(&list, &all, &needless);
        printf("# %d waits, %d needless, of %d commands\n", all, needless, list.count);
        CHECK(all > 0 && needless == 0, "%d of %d waits are for nothing", needless, all);
    }
    command_list_release(&list);
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_case(&CASES[i]);
    return check_report();
}
