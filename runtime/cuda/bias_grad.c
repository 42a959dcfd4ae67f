#include "runtime/cuda/bias_grad.h"

#include <string.h>

enum { MOST_BETWEEN = 64 };

/* A reduce_sum's launches. */
typedef struct Sum {
    int first, count;
    const Node *node;
} Sum;

static int count_launches(const CommandList *list, int first) {
    const Command *sum = &list->items[first];
    int count = 1;
    while (first + count < list->count && list->items[first + count].info.node == sum->info.node &&
           command_same_task(&list->items[first + count].info, &sum->info)) {
        count++;
    }
    return count;
}

/* The range that the node's commands write for its result. */
static const Access *find_result(const Command *command, int64_t bytes) {
    const Access *found = NULL;
    for (int i = 0; i < command->n_accesses && !found; i++) {
        const Access *access = &command->accesses[i];
        if (access->write && access->bytes == bytes) found = access;
    }
    return found;
}

/* Is `node` the sum of the product's right operand over all axes that the product sums over? Then
 * its result's axes are D's last ones, which lie in the same order. */
static bool sums_operand(const Node *node, const GemmCommand *gemm) {
    const Node *product = gemm->product;
    const Attr *summed = node_attr(node, ATTR_over), *over = node_attr(product, ATTR_over);
    if (!value_equal(node->inputs[0], product->inputs[1])) return false;
    if (node->types[0].dtype != DTYPE_F32 || summed->axes.count != over->axes.count) return false;
    for (int i = 0; i < over->axes.count; i++) {
        if (!node_over(node, ATTR_over, over->axes.items[i])) return false;
    }
    return true;
}

/* cuBLASLt's BGRADA: A, our right operand, not transposed, no other epilogue, no batch. */
static bool can_sum(const GemmCommand *gemm) {
    return gemm->product && gemm->layout.batch == 1 && !gemm->layout.transpose_b &&
           gemm->out_dtype == DTYPE_F32 && gemm->epilogue == EPILOGUE_SUM && !gemm->bias &&
           !gemm->c;
}

static int find_product(const CommandList *list, const Sum *sum) {
    const CommandInfo *info = &list->items[sum->first].info;
    int end = sum->first + sum->count + MOST_BETWEEN;
    for (int i = sum->first + sum->count; i < list->count && i < end; i++) {
        const Command *command = &list->items[i];
        if (!command_same_task(&command->info, info)) return -1;
        if (command->kind == COMMAND_GEMM && can_sum(&command->gemm) &&
            command->stream == list->items[sum->first].stream &&
            sums_operand(sum->node, &command->gemm)) {
            return i;
        }
    }
    return -1;
}

static bool reads(const Command *command, const Access *memory) {
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        if (!access->write && access_overlaps(access, memory)) return true;
    }
    return false;
}

static bool writes(const Command *command, const Access *memory) {
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        if (access->write && access_overlaps(access, memory)) return true;
    }
    return false;
}

/* Does a message read this memory before anything is written to it, from command `first` on? */
static bool is_sent(const CommandList *list, int first, const Access *memory) {
    for (int i = first; i < list->count && i < first + MOST_BETWEEN; i++) {
        const Command *command = &list->items[i];
        if (command->kind == COMMAND_COLLECTIVE && reads(command, memory)) return true;
        if (writes(command, memory)) return false;
    }
    return false;
}

static bool makes_message(const CommandList *list, int i) {
    const Command *command = &list->items[i];
    for (int k = 0; k < command->n_accesses; k++) {
        if (command->accesses[k].write && is_sent(list, i + 1, &command->accesses[k])) return true;
    }
    return false;
}

/* May the product run where the sum stands? What adds the sum up comes after both anyway. */
static bool may_move_up(const CommandList *list, const Sum *sum, int product,
                        const Access *bias_grad) {
    const GemmCommand *g = &list->items[product].gemm;
    const MatmulLayout *l = &g->layout;
    const Access a = gemm_range(g->a, l->m, l->k, g->in_dtype, false);
    const Access b = gemm_range(g->b, l->k, l->n, g->in_dtype, false);
    const Access d = gemm_range(g->d, l->m, l->n, g->out_dtype, true);
    for (int i = sum->first + sum->count; i < product; i++) {
        const Command *between = &list->items[i];
        if (between->kind == COMMAND_GONE) continue;
        if (between->kind >= COMMAND_COLLECTIVE) return false;
        if (writes(between, &a) || writes(between, &b) || reads(between, &d) ||
            writes(between, &d)) {
            return false;
        }
        if (!reads(between, bias_grad) && makes_message(list, i)) return false;
    }
    return true;
}

/* The product's, and the sum's result. */
static void join_accesses(Command *product, const Access *bias_grad, Arena *arena) {
    Access *joined = ARENA_ARRAY(arena, Access, product->n_accesses + 1);
    memcpy(joined, product->accesses, (size_t)product->n_accesses * sizeof(*joined));
    joined[product->n_accesses++] = *bias_grad;
    product->accesses = joined;
}

static bool is_apart(const GemmCommand *g, const Access *bias_grad) {
    const MatmulLayout *l = &g->layout;
    const Access others[] = {gemm_range(g->a, l->m, l->k, g->in_dtype, false),
                             gemm_range(g->b, l->k, l->n, g->in_dtype, false),
                             gemm_range(g->d, l->m, l->n, g->out_dtype, true)};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (access_overlaps(&others[i], bias_grad)) return false;
    }
    return true;
}

static bool fold_sum(CommandList *list, const Sum *sum, const EpilogueCheck *check, Arena *arena) {
    int product = find_product(list, sum);
    if (product < 0) return false;
    Command folded = list->items[product];
    const Access *result =
        find_result(&list->items[sum->first], folded.gemm.layout.n * dtype_bytes(DTYPE_F32));
    if (!result || !is_apart(&folded.gemm, result) || !may_move_up(list, sum, product, result)) {
        return false;
    }
    folded.gemm.epilogue = EPILOGUE_BIAS_GRAD;
    folded.gemm.bias_grad = (float *)result->at;
    folded.gemm.summed = sum->node;
    if (!check->sums_bias(check->user, &folded.gemm)) return false;
    join_accesses(&folded, result, arena);
    list->items[product].kind = COMMAND_GONE;
    for (int i = 0; i < sum->count; i++) list->items[sum->first + i].kind = COMMAND_GONE;
    list->items[sum->first] = folded;
    return true;
}

int cuda_fold_bias_gradients(CommandList *list, const EpilogueCheck *check, Arena *arena) {
    int n_folded = 0;
    if (!check->sums_bias) return 0;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        const Node *node = command->info.node;
        if (command->kind != COMMAND_LAUNCH || !node || node->op != OP_REDUCE_SUM) continue;
        Sum sum = {i, count_launches(list, i), node};
        if (fold_sum(list, &sum, check, arena)) n_folded += sum.count;
        i += sum.count - 1;
    }
    command_list_compact(list);
    return n_folded;
}
