#include "runtime/cuda/norm_addend.h"

#include "ir/expr.h"
#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/kernels/fused_args.h"

/* An add of a norm's gradient and something else, and the norm's launches. */
typedef struct Meeting {
    int add;                  /* in the list */
    int first, end;           /* the norm's launches, one after the other */
    int gradient;             /* that of them which makes the gradient by the norm's input */
    Access addend, sum, gone; /* gone: the gradient as it was stored for the add */
} Meeting;

static bool makes_gradient(const Command *command) {
    static const KernelsByDtype GRADIENTS[] = {
        KERNELS_BY_DTYPE(layernorm_grad_narrow), KERNELS_BY_DTYPE(layernorm_grad_rows),
        KERNELS_BY_DTYPE(layernorm_grad_any),    KERNELS_BY_DTYPE(rmsnorm_grad_narrow),
        KERNELS_BY_DTYPE(rmsnorm_grad_rows),     KERNELS_BY_DTYPE(rmsnorm_grad_any)};
    if (command->kind != COMMAND_LAUNCH || command->launch.generated) return false;
    for (size_t i = 0; i < sizeof(GRADIENTS) / sizeof(GRADIENTS[0]); i++) {
        if (kernel_is_of(&GRADIENTS[i], command->launch.kernel)) return true;
    }
    return false;
}

/* Does the node add its two operands, and nothing else? */
static bool is_add(const Node *node) {
    Expr expr;
    const char *error;
    if (node->n_inputs != 2 || node->n_outputs != 1) return false;
    if (node->op == OP_ADD) return true;
    if (node->op != OP_FUSED ||
        !expr_parse(node_string(node, ATTR_program), node->n_inputs, &expr, &error)) {
        return false;
    }
    const ExprInstruction *ins = &expr.instructions[0];
    return expr.n_instructions == 1 && ins->op == OP_ADD &&
           ins->operands[0] + ins->operands[1] == ~0 + ~1 && ins->operands[0] != ins->operands[1];
}

static bool is_candidate(const Command *command) {
    const Node *node = command->info.node;
    return command->kind == COMMAND_LAUNCH && command->launch.generated && node &&
           node->phase != PHASE_UPDATE && is_add(node);
}

static Type local_type(const Graph *graph, Value value) {
    return type_local(value_type(value), value_sharding(value), &graph->mesh);
}

/* Finds the launches of `norm` before m->add. */
static bool find_launches(const CommandList *list, const Node *norm, Meeting *m) {
    m->gradient = -1;
    if (!command_list_find_node(list, norm, m->add, &m->first, &m->end)) return false;
    for (int i = m->first; i < m->end; i++) {
        const Command *command = &list->items[i];
        if (makes_gradient(command) && command->stream == list->items[m->add].stream) {
            m->gradient = i;
        }
    }
    return m->gradient >= 0;
}

/* May the norm store the sum? A thread reads its elements of x, dy and the addend before it writes
 * the same elements; all else must be apart. */
static bool may_store(const CommandList *list, const Meeting *m) {
    const Command *gradient = &list->items[m->gradient];
    const NormGradArgs *args = gradient->launch.args;
    if (!access_same(&m->sum, &m->addend) && access_overlaps(&m->sum, &m->addend)) return false;
    for (int k = 0; k < gradient->n_accesses; k++) {
        const Access *access = &gradient->accesses[k];
        bool own = access_same(access, &m->gone) && access->write;
        bool by_element = access->at == (uintptr_t)args->x || access->at == (uintptr_t)args->dy;
        if (own) continue;
        if (access->write && access_overlaps(access, &m->addend)) return false;
        if (by_element && access_same(access, &m->sum)) continue;
        if (access_overlaps(access, &m->sum)) return false;
    }
    return true;
}

/* The norm's, with the addend read and the sum written instead of the gradient. */
static void set_accesses(CommandList *list, const Meeting *m, Arena *arena) {
    const Command *gradient = &list->items[m->gradient];
    Access *accesses = ARENA_ARRAY(arena, Access, gradient->n_accesses + 2);
    int count = 0;
    for (int k = 0; k < gradient->n_accesses; k++) {
        const Access *access = &gradient->accesses[k];
        if (!access->write || !access_same(access, &m->gone)) accesses[count++] = *access;
    }
    accesses[count++] = m->addend;
    accesses[count++] = m->sum;
    for (int i = m->first; i < m->end; i++) {
        list->items[i].accesses = accesses;
        list->items[i].n_accesses = count;
    }
}

static void fold(CommandList *list, const Meeting *m, Arena *arena) {
    LaunchCommand *launch = &list->items[m->gradient].launch;
    NormGradArgs *args = ARENA_NEW(arena, NormGradArgs);
    set_accesses(list, m, arena);
    *args = *(const NormGradArgs *)launch->args;
    args->addend = (const void *)m->addend.at;
    args->dx = (void *)m->sum.at;
    launch->args = args;
    list->items[m->add].kind = COMMAND_GONE;
}

/* Is operand k of the launch at `add` a norm's gradient that may take the other one in? */
static bool try_operand(CommandList *list, const Graph *graph, const int *uses, int add, int k,
                        Arena *arena) {
    const Node *node = list->items[add].info.node;
    const FusedArgs *args = list->items[add].launch.args;
    Value value = node->inputs[k];
    Type own = local_type(graph, value), other = local_type(graph, node->inputs[1 - k]);
    Type sum = local_type(graph, node_value((Node *)node, 0));
    Meeting m = {.add = add};
    if (value.output != 0 || uses[value.node->id * MAX_OUTPUTS] != 1) return false;
    if (value.node->op != OP_LAYERNORM_GRAD && value.node->op != OP_RMSNORM_GRAD) return false;
    if (own.dtype != other.dtype || own.dtype != sum.dtype || !type_same_shape(&own, &other) ||
        !type_same_shape(&own, &sum)) {
        return false;
    }
    if (!find_launches(list, value.node, &m)) return false;
    int64_t bytes = type_elements(&own) * dtype_bytes(own.dtype);
    const NormGradArgs *norm = list->items[m.gradient].launch.args;
    m.addend = access_to(args->in[1 - k], bytes, false);
    m.sum = access_to(args->out[0], bytes, true);
    m.gone = access_to(norm->dx, bytes, true);
    if (norm->addend || norm->dx != args->in[k]) return false;
    if (!command_list_leaves_alone(list, m.end, add, &m.sum, false) ||
        !command_list_leaves_alone(list, m.end, add, &m.addend, true) || !may_store(list, &m)) {
        return false;
    }
    fold(list, &m, arena);
    return true;
}

int cuda_fold_norm_addends(CommandList *list, const Graph *graph, Arena *arena) {
    const int *uses = graph_count_uses(graph, arena);
    int n_folded = 0;
    for (int i = 0; i < list->count; i++) {
        if (!is_candidate(&list->items[i])) continue;
        n_folded += try_operand(list, graph, uses, i, 0, arena) ||
                    try_operand(list, graph, uses, i, 1, arena);
    }
    command_list_compact(list);
    return n_folded;
}
