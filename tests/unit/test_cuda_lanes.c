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

/* --- copies to the host and back --- */

static bool is_of(const Command *command, Phase phase) {
    return command->info.node && command->info.node->phase == phase;
}

/* What goes out of a block is beside the next one, what comes back into one beside that behind it:
 * so work waits for the former two blocks later, and for the latter to read it; what goes out waits
 * for its own block at most, what comes back for the blocks whose place it takes. Returns false
 * where `command` waits for `other` too early or late. */
static bool may_wait(const Command *command, const Command *other) {
    int block = command->info.block, of = other->info.block;
    if (!command_same_task(&command->info, &other->info)) return true;
    if (other->stream == STREAM_OFFLOAD) {
        return command->stream == STREAM_OFFLOAD || of == NO_BLOCK || block == NO_BLOCK ||
               block >= of + 2;
    }
    if (other->stream == STREAM_FETCH) return reads(command, other);
    if (command->stream == STREAM_OFFLOAD) return of == NO_BLOCK || of <= block;
    if (command->stream == STREAM_FETCH) return of == NO_BLOCK || of >= block + 2;
    return true;
}

static void check_copies(Recompute recompute, int percent) {
    static const Layout alone = {1, 1, 1, 1, 1, "1f1b", false, NULL, 0};
    static const ModelSetting settings[] = {{"size", "8b"}, {"layers", "6"}, {"seq", "4096"}};
    enum { MICRO_BATCHES = 2 };
    Run run;
    CommandList list = {0};
    CommandOrder order = {0};
    char name[128];
    snprintf(name, sizeof(name), "copies of %d %% to the host are beside work, recomputing %s",
             percent, recompute_mode_name(recompute));
    check_begin(name);
    run_recompute = recompute, run_offload_activations = percent;
    bool fine = run_plan_for(&run, "models/llama.lua", settings, N_SETTINGS, &alone, MICRO_BATCHES,
                             false, true, DTYPE_BF16);
    run_recompute = RECOMPUTE_NONE, run_offload_activations = 0;
    fine = fine && cuda_emit_stage(run.plan, 0, NULL, NULL, run.arena,
                                   kernel_cache_create(run.arena), &list, run.diag);
    CHECK(fine, "%s", diag_text(run.diag));
    int n_copies[2] = {0, 0}, n_waits = 0, n_bad = 0;
    if (fine) order_commands(&list, run.arena, &order);
    for (int i = 0; fine && i < list.count; i++) {
        const Command *command = &list.items[i];
        bool out = command->stream == STREAM_OFFLOAD, back = command->stream == STREAM_FETCH;
        n_copies[0] += out && is_of(command, PHASE_FORWARD) && command->copy.to_host;
        n_copies[1] += back && is_of(command, PHASE_BACKWARD) && command->copy.from_host;
        for (int k = 0; k < command->n_waits; k++) {
            const Command *other = &list.items[command->waits[k]];
            bool bad = !may_wait(command, other);
            n_waits++;
            n_bad += bad;
            if (getenv("VERBOSE") && bad)
                printf("# %s of block %d waits for %s of block %d\n",
                       OPS[command->info.node->op].name, command->info.block,
                       OPS[other->info.node->op].name, other->info.block);
        }
    }
    CHECK(n_copies[0] > 0 && n_copies[0] == n_copies[1], "%d copies there, %d back", n_copies[0],
          n_copies[1]);
    CHECK(n_waits > 0 && n_bad == 0, "%d of %d waits are too strict", n_bad, n_waits);
    command_list_release(&list);
    run_close(&run);
    check_end();
}

int main(void) {
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) check_case(&CASES[i]);
    check_copies(RECOMPUTE_FULL, 100);
    check_copies(RECOMPUTE_SELECTIVE, 100);
    check_copies(RECOMPUTE_NONE, 50);
    return check_report();
}
