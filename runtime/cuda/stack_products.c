#include "runtime/cuda/stack_products.h"

#include "runtime/cuda/kernels/args.h"
#include "runtime/cuda/move.h"
#include "runtime/cuda/stack_rotary.h"

#include <limits.h>
#include <string.h>

/* q, k and v; how far the products of a chain, and readers, may be from each other. */
enum { N_STACKED = 3, MOST_BETWEEN = 64 };

/* One product of the sum, and which of the three it reads. */
typedef struct Part {
    int at; /* in the list */
    const GemmCommand *gemm;
    int64_t column; /* where its numbers begin in a row of all three */
} Part;

/* Three products, and what their left operands are made by: commands [first, end). */
typedef struct Stack {
    Part parts[N_STACKED]; /* in memory's order */
    int last;              /* of them: where the sum is stored */
    const void *addend;    /* to the first of the sum; NULL: none */
    int first, end;
    int64_t row;   /* numbers in one of all three */
    Access memory; /* theirs */
    const Node *maker;
    const char *made[N_STACKED]; /* where it puts dq, dk, dv */
} Stack;

/* Is the command at that place one of the three? */
static bool is_part(const Stack *stack, int at) {
    bool found = false;
    for (int i = 0; i < N_STACKED; i++) found |= stack->parts[i].at == at;
    return found;
}

/* Where the first of the three stands. */
static int find_begin(const Stack *stack) {
    int begin = stack->last;
    for (int i = 0; i < N_STACKED; i++)
        if (stack->parts[i].at < begin) begin = stack->parts[i].at;
    return begin;
}

/* --- the chain of products --- */

static bool is_link(const Command *command) {
    const GemmCommand *g = &command->gemm;
    return command->kind == COMMAND_GEMM && g->layout.batch == 1 && !g->layout.transpose_a &&
           g->layout.transpose_b && g->epilogue == EPILOGUE_SUM && !g->scales_a.at && !g->aux &&
           !g->bias && dtype_is_float(g->in_dtype) && command->info.node;
}

static const void *added_to(const GemmCommand *g) {
    return g->beta == 0 ? NULL : g->c ? g->c : g->d;
}

static bool continues(const Command *before, const Command *command) {
    const GemmCommand *a = &before->gemm, *b = &command->gemm;
    return is_link(command) && b->beta == 1 && added_to(b) == a->d && a->layout.m == b->layout.m &&
           a->layout.n == b->layout.n && a->in_dtype == b->in_dtype &&
           a->out_dtype == b->out_dtype && before->stream == command->stream &&
           command_same_task(&before->info, &command->info);
}

/* Does nothing but the next product see what this one stores? */
static bool is_passed_on(const CommandList *list, const int *uses, int at, int next) {
    const Command *command = &list->items[at];
    const GemmCommand *g = &command->gemm;
    Access d = gemm_range(g->d, g->layout.m, g->layout.n, g->out_dtype, true);
    return uses[command->info.node->id * MAX_OUTPUTS] == 1 &&
           command_list_leaves_alone(list, at + 1, next, &d, false);
}

static int find_next(const CommandList *list, int at) {
    for (int i = at + 1; i < list->count && i - at <= MOST_BETWEEN; i++) {
        if (continues(&list->items[at], &list->items[i])) return i;
    }
    return -1;
}

static bool find_chain(const CommandList *list, const int *uses, int first, Stack *out) {
    const Command *command = &list->items[first];
    if (!is_link(command) || (command->gemm.beta != 0 && command->gemm.beta != 1)) return false;
    int at[N_STACKED] = {first};
    for (int i = 1; i < N_STACKED; i++) {
        at[i] = find_next(list, at[i - 1]);
        if (at[i] < 0 || !is_passed_on(list, uses, at[i - 1], at[i])) return false;
    }
    for (int i = 0; i < N_STACKED; i++)
        out->parts[i] = (Part){.at = at[i], .gemm = &list->items[at[i]].gemm};
    out->addend = added_to(&command->gemm);
    out->last = at[N_STACKED - 1];
    return true;
}

/* Puts the parts in memory's order; false: their operands do not lie one behind the other, rows of
 * all three could not be read 16 bytes at a time, or weights are more than what is saved. */
static bool find_rows(Stack *stack) {
    Part *parts = stack->parts;
    for (int i = 1; i < N_STACKED; i++) {
        for (int k = i; k > 0 && (uintptr_t)parts[k].gemm->a < (uintptr_t)parts[k - 1].gemm->a;
             k--) {
            Part swapped = parts[k];
            parts[k] = parts[k - 1];
            parts[k - 1] = swapped;
        }
    }
    const GemmCommand *first = parts[0].gemm;
    int64_t m = first->layout.m, size = dtype_bytes(first->in_dtype);
    for (int i = 0; i < N_STACKED; i++) {
        const char *expected = (const char *)first->a + m * stack->row * size;
        if (parts[i].gemm->a != expected || parts[i].gemm->layout.k * size % 16) return false;
        parts[i].column = stack->row;
        stack->row += parts[i].gemm->layout.k;
    }
    stack->memory = gemm_range(first->a, m, stack->row, first->in_dtype, true);
    MatmulLayout all = first->layout;
    all.k = stack->row;
    return matmul_sum_is_one(&all, first->in_dtype);
}

/* --- what makes the operands --- */

static bool is_own_gradient(const Command *command) {
    return command->kind == COMMAND_LAUNCH && !command->launch.generated &&
           command->launch.args_bytes == sizeof(AttentionBackwardArgs) &&
           strncmp(KERNELS[command->launch.kernel].name, "attention_", 10) == 0;
}

static bool find_made(const Command *command, const char *made[N_STACKED]) {
    if (command->kind == COMMAND_ATTENTION) {
        const AttentionCommand *attention = &command->attention;
        made[0] = attention->dq, made[1] = attention->dk, made[2] = attention->dv;
        return true;
    }
    if (!is_own_gradient(command)) return false;
    const AttentionBackwardArgs *args = command->launch.args;
    made[0] = args->dq, made[1] = args->dk, made[2] = args->dv;
    return true;
}

/* Kernels count the numbers of a sequence, and the rows past its end, in 32 bits. */
static bool is_countable(const Command *command, int64_t row) {
    enum { BEYOND = 2 * ATTENTION_TILE };
    if (command->kind == COMMAND_ATTENTION) return true;
    const AttentionBackwardArgs *args = command->launch.args;
    return ((int64_t)args->sizes.seq + BEYOND) * row <= INT32_MAX;
}

static bool may_lay_out(const Stack *stack, const Command *command, const AttentionCheck *check) {
    if (command->kind != COMMAND_ATTENTION || !check || !check->lays_out) return true;
    AttentionCommand attention = command->attention;
    attention.shape.gradient_row = stack->row;
    return check->lays_out(check->user, &attention);
}

static bool find_maker(const CommandList *list, const AttentionCheck *check, Stack *stack) {
    int begin = find_begin(stack), at;
    for (at = begin - 1; at >= 0 && begin - at <= MOST_BETWEEN; at--) {
        const CommandInfo *info = &list->items[at].info;
        if (info->node && info->node->op == OP_ATTENTION_GRAD &&
            command_same_task(info, &list->items[begin].info))
            break;
    }
    if (at < 0 || begin - at > MOST_BETWEEN) return false;
    stack->maker = list->items[at].info.node;
    if (!command_list_find_node(list, stack->maker, begin, &stack->first, &stack->end) ||
        !find_made(&list->items[stack->first], stack->made)) {
        return false;
    }
    for (int i = stack->first; i < stack->end; i++) {
        const char *made[N_STACKED];
        const Command *command = &list->items[i];
        if (!find_made(command, made) || !is_countable(command, stack->row) ||
            !may_lay_out(stack, command, check) ||
            command->stream != list->items[stack->last].stream) {
            return false;
        }
    }
    for (int i = 0; i < N_STACKED; i++) { /* each is one of the three */
        int found = 0;
        for (int k = 0; k < N_STACKED; k++)
            found += stack->parts[i].gemm->a == (const void *)stack->made[k];
        if (found != 1) return false;
    }
    return true;
}

/* --- what reads them besides --- */

/* The part whose numbers begin there, -1: none. */
static int find_part(const Stack *stack, const void *at) {
    for (int i = 0; i < N_STACKED; i++) {
        if (stack->parts[i].gemm->a == at) return i;
    }
    return -1;
}

/* `count` of `width` numbers, `apart` bytes from one to the next, from `at` on: parts, and side by
 * side equally far apart, too? Then *out_apart is how far, in numbers. */
static bool are_parts(const Stack *stack, const void *at, int64_t count, int64_t width,
                      int64_t apart, int64_t *out_apart) {
    int64_t before = 0;
    *out_apart = 0;
    for (int64_t i = 0; i < count; i++) {
        int part = find_part(stack, (const char *)at + i * apart);
        if (part < 0 || stack->parts[part].gemm->layout.k != width) return false;
        int64_t column = stack->parts[part].column;
        if (i > 1 && column - before != *out_apart) return false;
        if (i > 0) *out_apart = column - before;
        before = column;
    }
    return true;
}

/* Turns one of the three, in its place, before the sum's product reads it. */
static bool is_turning(const CommandList *list, const Stack *stack, int at) {
    const GemmCommand *one = stack->parts[0].gemm;
    const RotaryArgs *args = cuda_find_rotary(&list->items[at], one->in_dtype);
    int part = args ? find_part(stack, args->x) : -1;
    return part >= 0 && at < stack->parts[part].at && args->batch * args->seq == one->layout.m &&
           args->row == stack->parts[part].gemm->layout.k;
}

/* Gradients of weights, of one or several at once: x^T dy; perhaps with a bias's. */
static bool is_weight_gradient(const Stack *stack, const GemmCommand *g, int64_t *out_apart) {
    const MatmulLayout *l = &g->layout;
    const GemmCommand *one = stack->parts[0].gemm;
    int64_t apart = g->apart.b * dtype_bytes(g->in_dtype);
    return l->transpose_a && !l->transpose_b && l->k == one->layout.m &&
           g->in_dtype == one->in_dtype && !gemm_has_gelu(g) && !g->scales_a.at &&
           (l->batch == 1 || g->apart.d) &&
           are_parts(stack, g->b, l->batch, l->n, apart, out_apart);
}

static bool is_column_sum(const Stack *stack, const Command *command, int64_t *out_apart) {
    static const KernelsByDtype COLUMNS = KERNELS_BY_DTYPE(reduce_columns);
    const GemmCommand *one = stack->parts[0].gemm;
    if (command->kind != COMMAND_LAUNCH || command->launch.generated ||
        command->launch.kernel != kernel_for_dtype(&COLUMNS, one->in_dtype)) {
        return false;
    }
    const ReduceArgs *args = command->launch.args;
    return args->row_at.n_dims == 0 && args->run_at.n_dims == 1 && args->n_runs == one->layout.m &&
           args->run_at.stride[0] == args->width &&
           are_parts(stack, args->x, command->launch.grid.z, args->width, args->x_apart, out_apart);
}

/* Adds up what a sum before it has left in the workspace. */
static bool is_finish(const Command *command) {
    return command->kind == COMMAND_LAUNCH && !command->launch.generated &&
           command->launch.kernel == KERNEL_reduce_finish;
}

/* How many of the graph's uses a command is; -1: it reads or writes what it must not. */
static int count_uses(const CommandList *list, const Stack *stack, int at) {
    const Command *command = &list->items[at];
    bool reads = false, part = is_part(stack, at), turns = is_turning(list, stack, at);
    int64_t apart;
    if (command->kind == COMMAND_SEND || command->kind == COMMAND_RECV) return -1;
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        if (!access_overlaps(access, &stack->memory)) continue;
        /* Sums on the way are stored no more. */
        if (access->write && !turns && !(part && at != stack->last)) return -1;
        reads |= !access->write;
    }
    if (!reads) return 0;
    if (part) return 1;
    if (!command_same_task(&command->info, &list->items[stack->last].info) ||
        command->stream != list->items[stack->last].stream) {
        return -1;
    }
    if (turns) return 1;
    if (command->kind == COMMAND_GEMM && is_weight_gradient(stack, &command->gemm, &apart))
        return (int)command->gemm.layout.batch + (command->gemm.bias_grad != NULL);
    if (is_column_sum(stack, command, &apart)) return (int)command->launch.grid.z;
    bool finishes = is_finish(command) && list->items[at - 1].info.node == command->info.node;
    return finishes && is_column_sum(stack, &list->items[at - 1], &apart) ? 0 : -1;
}

/* Where the last of the readers stands, behind which the operands are gone; -1: one of them has no
 * way to follow, or something else is done to their memory before. */
static int find_last_reader(const CommandList *list, const int *uses, const Stack *stack) {
    int left = 0;
    for (int o = 0; o < N_STACKED; o++) left += uses[stack->maker->id * MAX_OUTPUTS + o];
    for (int i = stack->end; i < list->count && i - stack->end <= 2 * MOST_BETWEEN; i++) {
        int n = count_uses(list, stack, i);
        if (n < 0) return -1;
        left -= n;
        /* What reads what it makes reads the same memory. */
        if (is_turning(list, stack, i)) left += uses[list->items[i].info.node->id * MAX_OUTPUTS];
        /* A sum ends with its second launch. */
        if (left == 0 && i >= stack->last &&
            !(i + 1 < list->count && is_finish(&list->items[i + 1]) &&
              list->items[i + 1].info.node == list->items[i].info.node)) {
            return i;
        }
    }
    return -1;
}

/* Is what the product at `from` reads still there for the last? Sums on the way are stored no more.
 */
static bool stays(const CommandList *list, const Stack *stack, int from, const Access *read) {
    for (int k = from; k < stack->last; k++) {
        if (!is_part(stack, k) && !command_list_leaves_alone(list, k, k + 1, read, true))
            return false;
    }
    return true;
}

/* Are weights and the addend there until the last product, and is the sum apart from all that it is
 * made of, but for the addend, in whose place it may be? */
static bool is_sound(const CommandList *list, const Stack *stack, StackRoom room) {
    const GemmCommand *last = &list->items[stack->last].gemm;
    const MatmulLayout *l = &last->layout;
    Access d = gemm_range(last->d, l->m, l->n, last->out_dtype, true);
    Access packed = gemm_range(room.at, l->n, stack->row, last->in_dtype, true);
    if (packed.bytes > room.bytes || access_overlaps(&d, &packed)) return false;
    for (int i = 0; i < N_STACKED; i++) {
        const GemmCommand *g = stack->parts[i].gemm;
        Access b = gemm_range(g->b, g->layout.k, g->layout.n, g->in_dtype, false);
        if (access_overlaps(&d, &b) || access_overlaps(&packed, &b) ||
            !stays(list, stack, stack->parts[i].at, &b)) {
            return false;
        }
    }
    if (!stack->addend) return true;
    Access c = gemm_range(stack->addend, l->m, l->n, last->out_dtype, false);
    return (stack->addend == last->d || !access_overlaps(&d, &c)) &&
           !access_overlaps(&c, &packed) && stays(list, stack, find_begin(stack), &c);
}

/* --- rewriting --- */

/* What commands of a node touch, which share it: all three where it was some of them. */
typedef struct Widened {
    const Access *from, *to;
    int count;
} Widened;

static void widen_accesses(const Stack *stack, Command *command, Widened *last, Arena *arena) {
    if (command->accesses == last->from) {
        command->accesses = last->to;
        command->n_accesses = last->count;
        return;
    }
    Access *accesses = ARENA_ARRAY(arena, Access, command->n_accesses);
    bool done[2] = {false, false};
    int count = 0;
    for (int k = 0; k < command->n_accesses; k++) {
        Access access = command->accesses[k];
        if (!access.workspace && access_overlaps(&access, &stack->memory)) {
            if (done[access.write]) continue;
            done[access.write] = true;
            access.at = stack->memory.at;
            access.bytes = stack->memory.bytes;
        }
        accesses[count++] = access;
    }
    *last = (Widened){command->accesses, accesses, count};
    command->accesses = accesses;
    command->n_accesses = count;
}

/* Where the first position of output o goes, and the position that `at`, in what lies by itself,
 * is the beginning of. */
static void *placed(const Stack *stack, int o, const void *at, int64_t row) {
    int64_t size = dtype_bytes(stack->parts[0].gemm->in_dtype);
    int64_t position = ((const char *)at - stack->made[o]) / (row * size);
    const Part *part = &stack->parts[find_part(stack, stack->made[o])];
    return (char *)stack->parts[0].gemm->a + (position * stack->row + part->column) * size;
}

static void lay_out_maker(const Stack *stack, Command *command, Arena *arena) {
    if (command->kind == COMMAND_ATTENTION) {
        AttentionCommand *attention = &command->attention;
        attention->shape.gradient_row = stack->row;
        attention->dq = placed(stack, 0, attention->dq, 1);
        attention->dk = placed(stack, 1, attention->dk, 1);
        attention->dv = placed(stack, 2, attention->dv, 1);
        return;
    }
    AttentionBackwardArgs *args = ARENA_NEW(arena, AttentionBackwardArgs);
    *args = *(const AttentionBackwardArgs *)command->launch.args;
    args->dq = placed(stack, 0, args->dq, args->dq_row);
    args->dk = placed(stack, 1, args->dk, args->dk_row);
    args->dv = placed(stack, 2, args->dv, args->dv_row);
    args->dq_row = args->dk_row = args->dv_row = (int32_t)stack->row;
    command->launch.args = args;
}

static void *part_place(const Stack *stack, const void *at) {
    const Part *part = &stack->parts[find_part(stack, at)];
    const GemmCommand *first = stack->parts[0].gemm;
    return (char *)first->a + part->column * dtype_bytes(first->in_dtype);
}

static void lay_out_reader(const Stack *stack, Command *command, Arena *arena) {
    int64_t apart;
    if (command->kind == COMMAND_GEMM) {
        GemmCommand *g = &command->gemm;
        is_weight_gradient(stack, g, &apart);
        if (g->layout.batch > 1) g->apart.b = apart;
        g->b = part_place(stack, g->b);
        g->b_row = stack->row;
    } else if (is_column_sum(stack, command, &apart)) {
        ReduceArgs *args = ARENA_NEW(arena, ReduceArgs);
        *args = *(const ReduceArgs *)command->launch.args;
        args->x = part_place(stack, args->x);
        args->x_apart = apart * dtype_bytes(stack->parts[0].gemm->in_dtype);
        args->run_at.stride[0] = stack->row;
        command->launch.args = args;
    }
}

static int64_t weights_apart(const Part *part) {
    return (const char *)part[1].gemm->b - (const char *)part[0].gemm->b;
}

/* How many parts from `first` on have weights that are alike and equally far apart. */
static int count_regular(const Stack *stack, int first) {
    const Part *parts = stack->parts;
    int end = first + 1;
    while (end < N_STACKED && parts[end].gemm->layout.k == parts[first].gemm->layout.k &&
           weights_apart(&parts[end - 1]) == weights_apart(&parts[first])) {
        end++;
    }
    return end - first;
}

/* The weights of parts [first, first + n), which are regular, into rows of all three. */
static bool copy_regular(const Stack *stack, int first, int n, StackRoom room, Arena *arena,
                         Command *out) {
    const Part *part = &stack->parts[first];
    const GemmCommand *g = part->gemm;
    int64_t size = dtype_bytes(g->in_dtype), width = g->layout.k * size;
    MoveRows rows = {.in = g->b,
                     .out = (char *)room.at + part->column * size,
                     .n_parts = n,
                     .n_rows = g->layout.n,
                     .width = width,
                     .limit = n * width,
                     .in_part = n > 1 ? weights_apart(part) : 0,
                     .in_row = width,
                     .out_part = width,
                     .out_row = stack->row * size};
    Access *accesses = ARENA_ARRAY(arena, Access, n + 1);
    for (int k = 0; k < n; k++) {
        const GemmCommand *of = part[k].gemm;
        accesses[k] = gemm_range(of->b, of->layout.k, of->layout.n, of->in_dtype, false);
    }
    accesses[n] = gemm_range(room.at, g->layout.n, stack->row, g->in_dtype, true);
    out->accesses = accesses;
    out->n_accesses = n + 1;
    return move_rows_launch(&rows, arena, &out->launch);
}

/* Returns how many launches it takes; 0: they cannot be copied. */
static int copy_weights(const Stack *stack, StackRoom room, const Command *product, Arena *arena,
                        Command out[N_STACKED]) {
    CommandInfo info = product->info;
    int count = 0;
    info.node = NULL; /* it takes no part of the product's time */
    for (int i = 0, n; i < N_STACKED; i += n) {
        n = count_regular(stack, i);
        out[count] = (Command){.kind = COMMAND_LAUNCH, .stream = product->stream, .info = info};
        if (!copy_regular(stack, i, n, room, arena, &out[count++])) return 0;
    }
    return count;
}

/* The three in the place of the last. */
static Command stack_parts(const CommandList *list, const Stack *stack, StackRoom room,
                           Arena *arena) {
    Command product = list->items[stack->last];
    GemmCommand *g = &product.gemm;
    CommandInfo *others = ARENA_ARRAY(arena, CommandInfo, N_STACKED);
    Access *accesses = ARENA_ARRAY(arena, Access, product.n_accesses + 4);
    int count = 0;
    product.others = others;
    product.n_others = 0;
    for (int i = 0; i < N_STACKED; i++) {
        if (stack->parts[i].at != stack->last)
            others[product.n_others++] = list->items[stack->parts[i].at].info;
    }
    for (int k = 0; k < product.n_accesses; k++) {
        if (product.accesses[k].workspace) accesses[count++] = product.accesses[k];
    }
    g->layout.k = stack->row;
    g->a = stack->parts[0].gemm->a;
    g->b = room.at;
    g->c = stack->addend == g->d ? NULL : stack->addend;
    g->beta = stack->addend ? 1 : 0;
    accesses[count++] = gemm_range(g->a, g->layout.m, g->layout.k, g->in_dtype, false);
    accesses[count++] = gemm_range(g->b, g->layout.n, g->layout.k, g->in_dtype, false);
    if (stack->addend)
        accesses[count++] =
            gemm_range(stack->addend, g->layout.m, g->layout.n, g->out_dtype, false);
    accesses[count++] = gemm_range(g->d, g->layout.m, g->layout.n, g->out_dtype, true);
    product.accesses = accesses;
    product.n_accesses = count;
    return product;
}

static bool touches(const Stack *stack, const Command *command) {
    for (int k = 0; k < command->n_accesses; k++) {
        if (access_overlaps(&command->accesses[k], &stack->memory)) return true;
    }
    return false;
}

/* Makers, what turns them, and readers, up to the last of these. */
static void lay_out_all(CommandList *list, const Stack *stack, int last_reader, Arena *arena) {
    const DType dtype = stack->parts[0].gemm->in_dtype;
    Widened last = {0};
    Command *turned = NULL; /* right before the command */
    for (int i = stack->first; i <= last_reader; i++) {
        Command *command = &list->items[i];
        bool turns = i >= stack->end && is_turning(list, stack, i);
        if (!turns) turned = NULL;
        if (is_part(stack, i) || !touches(stack, command)) continue;
        if (i < stack->end) {
            lay_out_maker(stack, command, arena);
        } else if (turns) {
            const RotaryArgs *args = command->launch.args;
            cuda_lay_out_rotary(command, part_place(stack, args->x), stack->row, arena);
        } else {
            lay_out_reader(stack, command, arena);
        }
        widen_accesses(stack, command, &last, arena);
        if (turned && cuda_join_rotaries(turned, command, dtype, arena)) {
            command->kind = COMMAND_GONE;
        } else if (turns) {
            turned = command;
        }
    }
}

/* What copies the weights of a sum, before its product. */
typedef struct Copies {
    int n;
    Command launches[N_STACKED];
} Copies;

/* copies [list's count]: where a product goes, NULL elsewhere. In one pass over what is left: a
 * step has a sum for each block and micro-batch. */
static void insert_copies(CommandList *list, Copies *const *copies) {
    CommandList whole = {0};
    for (int i = 0; i < list->count; i++) {
        for (int k = 0; copies[i] && k < copies[i]->n; k++) {
            command_list_push(&whole, &copies[i]->launches[k]);
        }
        if (list->items[i].kind != COMMAND_GONE) command_list_push(&whole, &list->items[i]);
    }
    command_list_release(list);
    *list = whole;
}

static bool stack_at(CommandList *list, const int *uses, int first, StackRoom room,
                     const AttentionCheck *check, Copies **out_copies, Arena *arena) {
    Stack stack = {0};
    if (!find_chain(list, uses, first, &stack) || !find_rows(&stack) ||
        !find_maker(list, check, &stack)) {
        return false;
    }
    int last_reader = find_last_reader(list, uses, &stack);
    if (last_reader < 0 || !is_sound(list, &stack, room)) return false;
    Copies *copies = ARENA_NEW(arena, Copies);
    copies->n = copy_weights(&stack, room, &list->items[stack.last], arena, copies->launches);
    if (copies->n == 0) return false;
    Command product = stack_parts(list, &stack, room, arena);
    lay_out_all(list, &stack, last_reader, arena);
    for (int i = 0; i < N_STACKED; i++) list->items[stack.parts[i].at].kind = COMMAND_GONE;
    list->items[stack.last] = product;
    out_copies[stack.last] = copies;
    return true;
}

int cuda_stack_products(CommandList *list, const Graph *graph, StackRoom room,
                        const AttentionCheck *check, Arena *arena) {
    const int *uses = graph_count_uses(graph, arena);
    Copies **copies = ARENA_ARRAY(arena, Copies *, list->count);
    int n_gone = 0;
    for (int i = 0; i < list->count; i++) {
        if (stack_at(list, uses, i, room, check, copies, arena)) n_gone += N_STACKED - 1;
    }
    if (n_gone > 0) insert_copies(list, copies);
    return n_gone;
}
