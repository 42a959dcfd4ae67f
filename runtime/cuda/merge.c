#include "runtime/cuda/merge.h"

#include "runtime/cuda/kernels/args.h"

#include <string.h>

/* Neighbours that are to become one: the launches that stand for tensors, without the second ones
 * that finish their sums. */
typedef struct Run {
    int n_tensors, n_commands; /* n_commands: of the list, finishing ones included */
    int64_t n_blocks;
    const Command *tensors[SUMSQ_TENSORS];
} Run;

/* What can be joined: a table because each has its own arguments. */
typedef struct Family {
    KernelId one;
    int most;
    /* May the two stand in one table? */
    bool (*alike)(const void *one, const void *args);
    /* Memory that every tensor's own launch writes for itself; NULL: none. */
    const void *(*scratch)(const void *args);
    KernelId finish; /* the second launch of what has scratch */
    int64_t most_blocks;
    /* Makes the joined launches; returns how many. */
    int (*join)(const Run *run, Arena *arena, LaunchCommand *out);
} Family;

static LaunchCommand new_launch(KernelId kernel, int64_t n_blocks, const void *args) {
    return (LaunchCommand){.kernel = kernel,
                           .grid = {(uint32_t)n_blocks, 1, 1},
                           .threads = UPDATE_THREADS,
                           .args = args,
                           .args_bytes = KERNELS[kernel].args_bytes};
}

/* Fills first_block[n_tensors + 1]. */
static void number_blocks(const Run *run, uint32_t *first_block) {
    first_block[0] = 0;
    for (int t = 0; t < run->n_tensors; t++) {
        first_block[t + 1] = first_block[t] + run->tensors[t]->launch.grid.x;
    }
}

static const void *no_scratch(const void *args) {
    (void)args;
    return NULL;
}

/* One dtype of copies in a table; a tensor without a copy goes with any. */
static bool same_copies(const void *copy, int32_t dtype, const void *other, int32_t other_dtype) {
    return !copy || !other || dtype == other_dtype;
}

static bool adamw_alike(const void *one, const void *args) {
    const AdamwArgs *x = one, *y = args;
    const AdamwScalars *a = &x->scalars, *b = &y->scalars;
    return same_copies(x->tensor.copy, a->copy_dtype, y->tensor.copy, b->copy_dtype) &&
           a->state_dtype == b->state_dtype && a->clip == b->clip && a->lr == b->lr &&
           a->lr_scale == b->lr_scale && a->step == b->step && a->beta1 == b->beta1 &&
           a->beta2 == b->beta2 && a->eps == b->eps;
}

static int join_adamw(const Run *run, KernelId kernel, Arena *arena, LaunchCommand *out) {
    AdamwManyArgs *many = ARENA_NEW(arena, AdamwManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const AdamwArgs *args = run->tensors[t]->launch.args;
        int32_t copy_dtype =
            args->tensor.copy ? args->scalars.copy_dtype : many->scalars.copy_dtype;
        uint64_t low = many->scalars.low_gradients | args->scalars.low_gradients << t;
        many->scalars = args->scalars;
        many->scalars.copy_dtype = copy_dtype;
        many->scalars.low_gradients = low;
        many->tensor[t] = args->tensor;
    }
    out[0] = new_launch(kernel, run->n_blocks, many);
    return 1;
}

static int adamw_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_adamw(run, KERNEL_adamw_many, arena, out);
}

static int adamw_halves_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_adamw(run, KERNEL_adamw_halves_many, arena, out);
}

static bool sgd_alike(const void *one, const void *args) {
    const SgdArgs *x = one, *y = args;
    const SgdScalars *a = &x->scalars, *b = &y->scalars;
    return same_copies(x->tensor.copy, a->copy_dtype, y->tensor.copy, b->copy_dtype) &&
           a->state_dtype == b->state_dtype && a->clip == b->clip && a->lr == b->lr &&
           a->lr_scale == b->lr_scale && a->momentum == b->momentum;
}

static int adamw_moments_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_adamw(run, KERNEL_adamw_moments_many, arena, out);
}

static int join_sgd(const Run *run, KernelId kernel, Arena *arena, LaunchCommand *out) {
    SgdManyArgs *many = ARENA_NEW(arena, SgdManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const SgdArgs *args = run->tensors[t]->launch.args;
        int32_t copy_dtype =
            args->tensor.copy ? args->scalars.copy_dtype : many->scalars.copy_dtype;
        uint64_t low = many->scalars.low_gradients | args->scalars.low_gradients << t;
        many->scalars = args->scalars;
        many->scalars.copy_dtype = copy_dtype;
        many->scalars.low_gradients = low;
        many->tensor[t] = args->tensor;
    }
    out[0] = new_launch(kernel, run->n_blocks, many);
    return 1;
}

static int sgd_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_sgd(run, KERNEL_sgd_many, arena, out);
}

static int sgd_moments_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_sgd(run, KERNEL_sgd_moments_many, arena, out);
}

static bool lion_alike(const void *one, const void *args) {
    const LionArgs *x = one, *y = args;
    const LionScalars *a = &x->scalars, *b = &y->scalars;
    return same_copies(x->tensor.copy, a->copy_dtype, y->tensor.copy, b->copy_dtype) &&
           a->state_dtype == b->state_dtype && a->clip == b->clip && a->lr == b->lr &&
           a->lr_scale == b->lr_scale && a->beta1 == b->beta1 && a->beta2 == b->beta2;
}

static int join_lion(const Run *run, KernelId kernel, Arena *arena, LaunchCommand *out) {
    LionManyArgs *many = ARENA_NEW(arena, LionManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const LionArgs *args = run->tensors[t]->launch.args;
        int32_t copy_dtype =
            args->tensor.copy ? args->scalars.copy_dtype : many->scalars.copy_dtype;
        uint64_t low = many->scalars.low_gradients | args->scalars.low_gradients << t;
        many->scalars = args->scalars;
        many->scalars.copy_dtype = copy_dtype;
        many->scalars.low_gradients = low;
        many->tensor[t] = args->tensor;
    }
    out[0] = new_launch(kernel, run->n_blocks, many);
    return 1;
}

static int lion_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_lion(run, KERNEL_lion_many, arena, out);
}

static int lion_moments_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_lion(run, KERNEL_lion_moments_many, arena, out);
}

static bool ema_alike(const void *one, const void *args) {
    const EmaScalars *a = &((const EmaArgs *)one)->scalars, *b = &((const EmaArgs *)args)->scalars;
    return a->clip == b->clip && a->step == b->step && a->decay == b->decay;
}

static int ema_join(const Run *run, Arena *arena, LaunchCommand *out) {
    EmaManyArgs *many = ARENA_NEW(arena, EmaManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const EmaArgs *args = run->tensors[t]->launch.args;
        many->scalars = args->scalars;
        many->tensor[t] = args->tensor;
    }
    out[0] = new_launch(KERNEL_ema_many, run->n_blocks, many);
    return 1;
}

static bool lamb_alike(const void *one, const void *args) {
    const LambArgs *x = one, *y = args;
    const LambScalars *a = &x->scalars, *b = &y->scalars;
    return same_copies(x->tensor.copy, a->copy_dtype, y->tensor.copy, b->copy_dtype) &&
           a->state_dtype == b->state_dtype && a->clip == b->clip && a->lr == b->lr &&
           a->lr_scale == b->lr_scale && a->step == b->step && a->beta1 == b->beta1 &&
           a->beta2 == b->beta2 && a->eps == b->eps && a->trust_max == b->trust_max &&
           x->chunk == y->chunk;
}

static const void *lamb_scratch(const void *args) {
    return ((const LambArgs *)args)->partial;
}

static LambManyArgs *lamb_table(const Run *run, Arena *arena) {
    LambManyArgs *many = ARENA_NEW(arena, LambManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const LambArgs *args = run->tensors[t]->launch.args;
        int32_t copy_dtype =
            args->tensor.copy ? args->scalars.copy_dtype : many->scalars.copy_dtype;
        uint64_t low = many->scalars.low_gradients | args->scalars.low_gradients << t;
        many->scalars = args->scalars;
        many->scalars.copy_dtype = copy_dtype;
        many->scalars.low_gradients = low;
        many->chunk = args->chunk;
        many->tensor[t] = args->tensor;
        if (!many->partial) many->partial = args->partial;
    }
    return many;
}

static int lamb_moments_join(const Run *run, Arena *arena, LaunchCommand *out) {
    const LambManyArgs *many = lamb_table(run, arena);
    out[0] = new_launch(KERNEL_lamb_moments_many, run->n_blocks, many);
    out[1] = new_launch(KERNEL_lamb_norms_finish_many, run->n_tensors, many);
    return many->partial ? 2 : 1;
}

static int lamb_join(const Run *run, Arena *arena, LaunchCommand *out) {
    out[0] = new_launch(KERNEL_lamb_many, run->n_blocks, lamb_table(run, arena));
    return 1;
}

static bool sumsq_alike(const void *one, const void *args) {
    return ((const SumsqArgs *)one)->chunk == ((const SumsqArgs *)args)->chunk;
}

static const void *sumsq_scratch(const void *args) {
    return ((const SumsqArgs *)args)->partial;
}

static int join_sumsq(const Run *run, KernelId kernel, Arena *arena, LaunchCommand *out) {
    SumsqManyArgs *many = ARENA_NEW(arena, SumsqManyArgs);
    many->n_tensors = run->n_tensors;
    number_blocks(run, many->first_block);
    for (int t = 0; t < run->n_tensors; t++) {
        const SumsqArgs *args = run->tensors[t]->launch.args;
        many->chunk = args->chunk;
        many->x[t] = args->x;
        many->n[t] = args->n;
        many->out[t] = args->out;
        if (!many->partial) many->partial = args->partial;
    }
    out[0] = new_launch(kernel, run->n_blocks, many);
    out[1] = new_launch(KERNEL_sumsq_finish_many, run->n_tensors, many);
    return many->partial ? 2 : 1;
}

static int sumsq_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_sumsq(run, KERNEL_sumsq_many, arena, out);
}

static int sumsq_low_join(const Run *run, Arena *arena, LaunchCommand *out) {
    return join_sumsq(run, KERNEL_sumsq_low_many, arena, out);
}

static const Family FAMILIES[] = {
    {KERNEL_adamw, UPDATE_TENSORS, adamw_alike, no_scratch, N_KERNELS, INT32_MAX, adamw_join},
    {KERNEL_adamw_halves, UPDATE_TENSORS, adamw_alike, no_scratch, N_KERNELS, INT32_MAX,
     adamw_halves_join},
    {KERNEL_sgd, UPDATE_TENSORS, sgd_alike, no_scratch, N_KERNELS, INT32_MAX, sgd_join},
    {KERNEL_lion, UPDATE_TENSORS, lion_alike, no_scratch, N_KERNELS, INT32_MAX, lion_join},
    {KERNEL_adamw_moments, UPDATE_TENSORS, adamw_alike, no_scratch, N_KERNELS, INT32_MAX,
     adamw_moments_join},
    {KERNEL_sgd_moments, UPDATE_TENSORS, sgd_alike, no_scratch, N_KERNELS, INT32_MAX,
     sgd_moments_join},
    {KERNEL_lion_moments, UPDATE_TENSORS, lion_alike, no_scratch, N_KERNELS, INT32_MAX,
     lion_moments_join},
    {KERNEL_ema, UPDATE_TENSORS, ema_alike, no_scratch, N_KERNELS, INT32_MAX, ema_join},
    {KERNEL_lamb_moments, LAMB_TENSORS, lamb_alike, lamb_scratch, KERNEL_lamb_norms_finish,
     LAMB_PARTIALS, lamb_moments_join},
    {KERNEL_lamb, LAMB_TENSORS, lamb_alike, no_scratch, N_KERNELS, INT32_MAX, lamb_join},
    {KERNEL_sumsq, SUMSQ_TENSORS, sumsq_alike, sumsq_scratch, KERNEL_sumsq_finish, SUMSQ_PARTIALS,
     sumsq_join},
    {KERNEL_sumsq_low, SUMSQ_TENSORS, sumsq_alike, sumsq_scratch, KERNEL_sumsq_finish,
     SUMSQ_PARTIALS, sumsq_low_join},
};

static bool is_launch(const Command *command, KernelId kernel) {
    return command->kind == COMMAND_LAUNCH && !command->launch.generated &&
           command->launch.kernel == kernel;
}

static const Family *find_family(const Command *command) {
    for (size_t i = 0; i < sizeof(FAMILIES) / sizeof(FAMILIES[0]); i++) {
        if (is_launch(command, FAMILIES[i].one)) return &FAMILIES[i];
    }
    return NULL;
}

static bool contains(const Access *access, const void *address) {
    uintptr_t at = (uintptr_t)address;
    return address && at >= access->at && at - access->at < (uintptr_t)access->bytes;
}

static bool overlap(const Access *a, const Access *b) {
    return a->at < b->at + (uintptr_t)b->bytes && b->at < a->at + (uintptr_t)a->bytes;
}

/* Must one of the two come before the other, for more than their scratch? */
static bool depend(const Family *family, const Command *a, const Command *b) {
    const void *scratch_a = family->scratch(a->launch.args);
    const void *scratch_b = family->scratch(b->launch.args);
    for (int i = 0; i < a->n_accesses; i++) {
        const Access *x = &a->accesses[i];
        bool own = contains(x, scratch_a);
        for (int j = 0; j < b->n_accesses; j++) {
            const Access *y = &b->accesses[j];
            if (!(x->write || y->write) || !overlap(x, y)) continue;
            if (!own || !contains(y, scratch_b)) return true;
        }
    }
    return false;
}

static bool may_join(const Family *family, const Run *run, const Command *command) {
    const Command *first = run->tensors[0];
    if (!is_launch(command, family->one) || run->n_tensors == family->most) return false;
    if (command->stream != first->stream || command->info.rank != first->info.rank) return false;
    if (run->n_blocks + command->launch.grid.x > family->most_blocks) return false;
    for (int t = 0; t < run->n_tensors; t++) {
        const Command *other = run->tensors[t];
        if (!family->alike(other->launch.args, command->launch.args)) return false;
        if (depend(family, other, command)) return false;
    }
    return true;
}

static Run find_run(const Family *family, const CommandList *list, int first) {
    Run run = {0};
    int i = first;
    while (i < list->count) {
        const Command *command = &list->items[i];
        if (run.n_tensors && !may_join(family, &run, command)) break;
        run.tensors[run.n_tensors++] = command;
        run.n_blocks += command->launch.grid.x;
        i++;
        if (!family->scratch(command->launch.args)) continue;
        if (i == list->count || !is_launch(&list->items[i], family->finish)) {
            BUG("%s without its second launch", KERNELS[family->one].name);
        }
        i++;
    }
    run.n_commands = i - first;
    return run;
}

/* All accesses of the run's commands, each once. */
static void join_accesses(const Run *run, Arena *arena, Command *out) {
    int most = 0, count = 0;
    for (int t = 0; t < run->n_tensors; t++) most += run->tensors[t]->n_accesses;
    Access *accesses = ARENA_ARRAY(arena, Access, most + 1);
    for (int t = 0; t < run->n_tensors; t++) {
        for (int i = 0; i < run->tensors[t]->n_accesses; i++) {
            const Access *access = &run->tensors[t]->accesses[i];
            int k = 0;
            while (k < count &&
                   (accesses[k].at != access->at || accesses[k].bytes != access->bytes ||
                    accesses[k].write != access->write)) {
                k++;
            }
            if (k == count) accesses[count++] = *access;
        }
    }
    out->accesses = accesses;
    out->n_accesses = count;
}

void cuda_merge_updates(CommandList *list, Arena *arena) {
    int n_kept = 0;
    for (int i = 0; i < list->count;) {
        const Family *family = find_family(&list->items[i]);
        Run run = {.n_commands = 1};
        LaunchCommand launches[2];
        if (family) run = find_run(family, list, i);
        if (run.n_tensors < 2) {
            memmove(&list->items[n_kept], &list->items[i],
                    (size_t)run.n_commands * sizeof(*list->items));
            n_kept += run.n_commands;
            i += run.n_commands;
            continue;
        }
        Command joined = *run.tensors[0];
        join_accesses(&run, arena, &joined);
        int n_launches = family->join(&run, arena, launches);
        i += run.n_commands;
        for (int k = 0; k < n_launches; k++) { /* never more than were there */
            joined.launch = launches[k];
            list->items[n_kept++] = joined;
        }
    }
    list->count = n_kept;
}
