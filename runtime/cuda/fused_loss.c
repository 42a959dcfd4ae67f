#include "runtime/cuda/fused_loss.h"

#include "ir/ops/loss.h"
#include "runtime/cuda/kernels/args.h"

enum { MOST_BETWEEN = 64 }; /* commands, from logsumexp to the gradient */

/* The launches that become one, in the list. */
typedef struct Loss {
    int logsumexp, pick, gradient;
} Loss;

/* The launch of an op on these logits, before `gradient` and for the same micro-batch; -1: none. */
static int find_reader(const CommandList *list, int gradient, OpKind op, Value logits) {
    const CommandInfo *own = &list->items[gradient].info;
    for (int i = gradient - 1; i >= 0 && gradient - i <= MOST_BETWEEN; i--) {
        const CommandInfo *info = &list->items[i].info;
        if (list->items[i].kind != COMMAND_LAUNCH || !info->node || info->node->op != op) continue;
        if (info->rank == own->rank && info->micro == own->micro && info->chunk == own->chunk &&
            value_equal(info->node->inputs[0], logits)) {
            return i;
        }
    }
    return -1;
}

static const SoftmaxArgs *args_of(const CommandList *list, int at) {
    return list->items[at].launch.args;
}

/* Is it the gradient of a loss of whole rows, in place, that has the same factor in each row? */
static bool suits(const Command *command, float *out_dloss) {
    static const KernelsByDtype GRADIENTS = KERNELS_BY_DTYPE(cross_entropy_grad);
    const Node *node = command->info.node;
    if (command->kind != COMMAND_LAUNCH || command->launch.generated ||
        !kernel_is_of(&GRADIENTS, command->launch.kernel)) {
        return false;
    }
    const SoftmaxArgs *args = command->launch.args;
    int64_t row = (int64_t)args->n_valid * dtype_bytes(node->types[0].dtype);
    return args->out == args->x && !args->offset && row <= LOSS_ROW_BYTES &&
           loss_is_joint(node, out_dloss);
}

/* May all be done where pick stands? */
static bool may_join(const CommandList *list, const Loss *loss) {
    const SoftmaxArgs *args = args_of(list, loss->gradient), *pick = args_of(list, loss->pick);
    int64_t size = dtype_bytes(list->items[loss->gradient].info.node->types[0].dtype);
    Access logits = access_to(args->x, args->rows * args->n_local * size, false);
    Access labels = access_to(args->index, args->rows * (int64_t)sizeof(int32_t), false);
    Access lse = access_to(args->lse, args->rows * (int64_t)sizeof(float), false);
    return args_of(list, loss->logsumexp)->out == args->lse && pick->index == args->index &&
           pick->x == args->x &&
           command_list_leaves_alone(list, loss->logsumexp + 1, loss->pick, &logits, false) &&
           command_list_leaves_alone(list, loss->pick + 1, loss->gradient, &logits, false) &&
           command_list_leaves_alone(list, loss->pick + 1, loss->gradient, &labels, true) &&
           command_list_leaves_alone(list, loss->logsumexp + 1, loss->pick, &lse, false);
}

/* What pick touches, and what the others write. */
static void set_accesses(Command *joined, const CommandList *list, const Loss *loss, Arena *arena) {
    const Command *pick = &list->items[loss->pick];
    const Command *others[] = {&list->items[loss->logsumexp], &list->items[loss->gradient]};
    int most = pick->n_accesses + others[0]->n_accesses + others[1]->n_accesses, count = 0;
    Access *accesses = ARENA_ARRAY(arena, Access, most);
    for (int k = 0; k < pick->n_accesses; k++) accesses[count++] = pick->accesses[k];
    for (int o = 0; o < 2; o++) {
        for (int k = 0; k < others[o]->n_accesses; k++) {
            if (others[o]->accesses[k].write) accesses[count++] = others[o]->accesses[k];
        }
    }
    joined->accesses = accesses;
    joined->n_accesses = count;
}

static void join(CommandList *list, const Loss *loss, float dloss, Arena *arena) {
    static const KernelsByDtype KERNELS_OF = KERNELS_BY_DTYPE(cross_entropy);
    Command joined = list->items[loss->gradient];
    const SoftmaxArgs *args = joined.launch.args;
    DType dtype = joined.info.node->types[0].dtype;
    CrossEntropyArgs *all = ARENA_NEW(arena, CrossEntropyArgs);
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, 2);
    *all = (CrossEntropyArgs){.rows = args->rows,
                              .n_local = args->n_local,
                              .n_valid = args->n_valid,
                              .dloss = dloss,
                              .x = args->out,
                              .labels = args->index,
                              .lse = (float *)args->lse,
                              .picked = args_of(list, loss->pick)->out};
    joined.launch.kernel = kernel_for_dtype(&KERNELS_OF, dtype);
    joined.launch.args = all;
    joined.launch.args_bytes = sizeof(*all);
    joined.launch.shared_bytes = (int)((int64_t)args->n_valid * dtype_bytes(dtype) / 16 * 16);
    others[0] = list->items[loss->logsumexp].info;
    others[1] = list->items[loss->pick].info;
    joined.info = others[1];
    joined.info.node = list->items[loss->gradient].info.node;
    joined.n_others = 2;
    joined.others = others;
    set_accesses(&joined, list, loss, arena);
    list->items[loss->pick] = joined;
    list->items[loss->logsumexp].kind = list->items[loss->gradient].kind = COMMAND_GONE;
}

int cuda_fuse_losses(CommandList *list, Arena *arena) {
    int n_gone = 0;
    for (int i = 0; i < list->count; i++) {
        float dloss;
        if (!suits(&list->items[i], &dloss)) continue;
        Value logits = list->items[i].info.node->inputs[0];
        Loss loss = {.logsumexp = find_reader(list, i, OP_LOGSUMEXP, logits),
                     .pick = find_reader(list, i, OP_PICK, logits),
                     .gradient = i};
        if (loss.logsumexp < 0 || loss.pick < loss.logsumexp || !may_join(list, &loss)) continue;
        join(list, &loss, dloss, arena);
        n_gone += 2;
    }
    command_list_compact(list);
    return n_gone;
}
