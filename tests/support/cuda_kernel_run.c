#include "tests/support/cuda_kernel_run.h"
#include "runtime/cpu/vec_low.h"

#include "runtime/cpu/quantize.h"
#include "tests/emulate/emulate.h"
#include "tests/support/gpu_run.h"
#include "tests/support/reference_eval.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Commands */

/* What number k of row `own` of an operand, which is number `at` of it, stands for. */
static double get_factor(const GemmCommand *gemm, const GemmScales *scales, const void *x,
                         int64_t at, int64_t own, int64_t k) {
    const MatmulLayout *l = &gemm->layout;
    if (!scales->at) return (double)vec_get(x, gemm->in_dtype, at);
    int64_t n_own = scales == &gemm->scales_a ? l->m : l->n, block = k / SCALE_BLOCK;
    int64_t of = scales->form == SCALES_OF_TILES ? own / SCALE_BLOCK * (l->k / SCALE_BLOCK) + block
                                                 : block * n_own + own;
    return (double)fp8_widen(((const uint8_t *)x)[at]) * (double)scales->at[of];
}

/* Both operands of one product of the batch, each [own, k]. */
static void get_factors(const GemmCommand *gemm, int64_t batch, double *a, double *b) {
    const MatmulLayout *l = &gemm->layout;
    int64_t first_a = gemm->apart.d ? 0 : batch * l->m * l->k; /* joined ones share A */
    int64_t first_b = batch * (gemm->apart.d ? gemm->apart.b : l->k * l->n);
    for (int64_t m = 0; m < l->m; m++) {
        for (int64_t k = 0; k < l->k; k++) {
            int64_t at = first_a + (l->transpose_a ? k * l->m + m : m * l->k + k);
            a[m * l->k + k] = get_factor(gemm, &gemm->scales_a, gemm->a, at, m, k);
        }
    }
    for (int64_t n = 0; n < l->n; n++) {
        for (int64_t k = 0; k < l->k; k++) {
            int64_t row = gemm->b_row ? gemm->b_row : l->transpose_b ? l->k : l->n;
            int64_t at = first_b + (l->transpose_b ? n * row + k : k * row + n);
            b[n * l->k + k] = get_factor(gemm, &gemm->scales_b, gemm->b, at, n, k);
        }
    }
}

static void run_gemm(const GemmCommand *gemm) {
    const MatmulLayout *l = &gemm->layout;
    double *a = malloc(sizeof(double) * (size_t)(l->m * l->k + 1));
    double *b = malloc(sizeof(double) * (size_t)(l->n * l->k + 1));
    if (!a || !b) exit(2);
    for (int64_t i = 0; i < l->batch * l->m * l->n; i++) {
        int64_t batch = i / (l->m * l->n), m = i / l->n % l->m, n = i % l->n;
        int64_t d = i, bias = n;
        if (gemm->apart.d) {
            d = batch * gemm->apart.d + i % (l->m * l->n);
            bias += batch * gemm->apart.bias;
        }
        if (m == 0 && n == 0) get_factors(gemm, batch, a, b);
        double sum = 0;
        for (int64_t k = 0; k < l->k; k++) sum += a[m * l->k + k] * b[n * l->k + k];
        if (gemm->beta != 0) {
            const void *c = gemm->c ? gemm->c : gemm->d;
            sum += (double)gemm->beta * (double)vec_get(c, gemm->out_dtype, d);
        }
        if (gemm->bias) sum += (double)vec_get(gemm->bias, gemm->out_dtype, bias);
        if (gemm->epilogue == EPILOGUE_GELU && gemm->aux) {
            vec_put(gemm->aux, gemm->out_dtype, i, (float)sum);
        }
        if (gemm->epilogue == EPILOGUE_GELU) sum = reference_gelu_value(sum);
        if (gemm->epilogue == EPILOGUE_GELU_GRAD) {
            sum *= reference_gelu_slope((double)vec_get(gemm->aux, gemm->out_dtype, i));
        }
        vec_put(gemm->d, gemm->out_dtype, d, (float)sum);
    }
    free(a);
    free(b);
    for (int64_t n = 0; gemm->bias_grad && n < l->n; n++) {
        double sum = 0;
        for (int64_t k = 0; k < l->k; k++) {
            int64_t row = gemm->b_row ? gemm->b_row : l->n;
            sum += (double)vec_get(gemm->b, gemm->in_dtype, k * row + n);
        }
        gemm->bias_grad[n] = (float)sum;
    }
}

bool cuda_run_command(const Command *command, const CudaRunHooks *hooks, const char **out_why) {
    const LaunchCommand *launch = &command->launch;
    if (gpu_run_takes(command)) return gpu_run_command(command, out_why);
    switch (command->kind) {
    case COMMAND_LAUNCH:
        if (launch->generated) {
            *out_why = "a generated kernel, and nobody to run it";
            return hooks->launch_generated && hooks->launch_generated(hooks->user, launch, out_why);
        }
        *out_why = emulate_error();
        return emulate_launch(launch->kernel, launch->grid, launch->threads, launch->shared_bytes,
                              launch->args);
    case COMMAND_GEMM: run_gemm(&command->gemm); return true;
    case COMMAND_COPY:
        memmove(command->copy.to, command->copy.from, (size_t)command->copy.bytes);
        return true;
    case COMMAND_FILL:
        memset(command->fill.to, command->fill.byte, (size_t)command->fill.bytes);
        return true;
    default: *out_why = command_kind_name(command->kind); return false;
    }
}

/* Runs */

static void make_plan(CudaKernelRun *run) {
    const Mesh *mesh = &run->base.reference->graph->mesh;
    Arena *arena = run->base.reference->arena;
    int n_stages = mesh->size[MESH_P];
    run->plan = (Plan){.mesh = *mesh, .n_comms = 1, .comms = ARENA_NEW(arena, StageComm)};
    run->plan.comms[0] = (StageComm){"all", n_stages, ARENA_ARRAY(arena, int, n_stages)};
    for (int i = 0; i < n_stages; i++) run->plan.comms[0].stages[i] = i;
}

static bool bind_node(CudaKernelRun *run, int r, Node *node, Diag *diag) {
    Binding b = kernel_run_binding(&run->base, &run->base.ranks[r], node, diag);
    CudaEmitter emitter = {.list = &run->lists[r],
                           .state = run->state,
                           .generated = run->hooks.generated,
                           .attention = run->hooks.attention,
                           .own_products = run->hooks.own_products,
                           .plan = &run->plan};
    b.backend = &emitter;
    b.workspace_bytes = cuda_workspace_bytes(node, b.in_local, b.out_local);
    int64_t most = run->hooks.most_workspace_bytes;
    if (most && b.workspace_bytes > most) b.workspace_bytes = most;
    if (b.workspace_bytes) {
        b.workspace = gpu_run_alloc((size_t)b.workspace_bytes);
        if (!b.workspace) exit(2);
        memset(b.workspace, 0xff, (size_t)b.workspace_bytes);
        run->workspaces[run->n_workspaces++] = b.workspace;
    }
    return cuda_bind(&b);
}

bool cuda_kernel_run_create(CudaKernelRun *run, const Reference *reference, int in_place,
                            const CudaRunHooks *hooks, Diag *diag) {
    const Graph *graph = reference->graph;
    Arena *arena = reference->arena;
    *run = (CudaKernelRun){0};
    if (hooks) run->hooks = *hooks;
    kernel_run_prepare(&run->base, reference, in_place, run->hooks.together);
    run->state = gpu_run_alloc(sizeof(DeviceState));
    if (!run->state) exit(2);
    *run->state = (DeviceState){.seed = reference->seed,
                                .step = reference->step,
                                .label_share = (float)reference->label_share,
                                .step_f32 = (float)reference->step,
                                .train = reference->train};
    make_plan(run);
    run->workspaces = ARENA_ARRAY(arena, void *, graph->n_nodes * run->base.n_ranks + 1);
    for (int r = 0; r < run->base.n_ranks; r++) {
        run->first_command[r] = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
        for (int n = 0; n < graph->n_nodes; n++) {
            run->first_command[r][n] = run->lists[r].count;
            if (OPS[graph->nodes[n]->op].flags & (LEAF | EFFECT)) continue;
            if (!bind_node(run, r, graph->nodes[n], diag)) return false;
        }
        run->first_command[r][graph->n_nodes] = run->lists[r].count;
    }
    return true;
}

/* The ranks that a collective of rank r is among, itself included. */
static bool same_group(const CudaKernelRun *run, const CollectiveCommand *collective, int r,
                       int other) {
    const Mesh *mesh = &run->base.reference->graph->mesh;
    if (collective->group >= N_MESH_GROUPS) return true;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (!(mesh_axes(mesh, collective->group) >> axis & 1) &&
            run->base.ranks[r].coord.at[axis] != run->base.ranks[other].coord.at[axis]) {
            return false;
        }
    }
    return true;
}

/* The first member's turn: `at` is the place of the command among its node's, for all ranks. */
static bool run_collective(CudaKernelRun *run, int n, int at, int r) {
    const CollectiveCommand *members[KERNEL_MAX_RANKS] = {NULL};
    const CollectiveCommand *mine = &run->lists[r].items[run->first_command[r][n] + at].collective;
    if (mine->member != 0) return true;
    for (int other = 0; other < run->base.n_ranks; other++) {
        const Command *theirs = &run->lists[other].items[run->first_command[other][n] + at];
        if (!same_group(run, mine, r, other)) continue;
        members[theirs->collective.member] = &theirs->collective;
    }
    run->why = "a collective, and nobody to run it";
    return run->hooks.collective &&
           run->hooks.collective(run->hooks.user, members, mine->n_members, &run->why);
}

static bool run_node(CudaKernelRun *run, int n) {
    int count = run->first_command[0][n + 1] - run->first_command[0][n];
    for (int r = 0; r < run->base.n_ranks; r++) {
        int here = run->first_command[r][n + 1] - run->first_command[r][n];
        if (here > count) count = here;
    }
    for (int at = 0; at < count; at++) {
        for (int r = 0; r < run->base.n_ranks; r++) {
            int i = run->first_command[r][n] + at;
            if (i >= run->first_command[r][n + 1]) continue;
            const Command *command = &run->lists[r].items[i];
            bool good = command->kind == COMMAND_COLLECTIVE
                            ? run_collective(run, n, at, r)
                            : cuda_run_command(command, &run->hooks, &run->why);
            if (!good) return false;
        }
    }
    return true;
}

bool cuda_kernel_run_step(CudaKernelRun *run) {
    bool good = true;
    emulate_set_order(run->order);
    for (int n = 0; n < run->base.reference->graph->n_nodes && good; n++) good = run_node(run, n);
    emulate_set_order(0);
    return good;
}

const char *cuda_kernel_run_reason(const CudaKernelRun *run) {
    return run->why ? run->why : "";
}

void cuda_kernel_run_destroy(CudaKernelRun *run) {
    for (int i = 0; i < run->n_workspaces; i++) gpu_run_free(run->workspaces[i]);
    gpu_run_free(run->state);
    for (int r = 0; r < run->base.n_ranks; r++) command_list_release(&run->lists[r]);
    kernel_run_destroy(&run->base);
}

/* Comparison of partial values */

typedef struct Combine {
    const void *from;
    DType dtype;
    ReduceKind reduce;
    double *to; /* [whole elements] */
} Combine;

static void combine_element(void *user, int64_t local, int64_t whole) {
    const Combine *c = user;
    if (whole < 0) return;
    double x = (double)vec_get(c->from, c->dtype, local), *to = &c->to[whole];
    switch (c->reduce) {
    case REDUCE_SUM: *to += x; break;
    case REDUCE_MAX: *to = isnan(x) || x > *to ? x : *to; break;
    case REDUCE_LSE: {
        double most = fmax(*to, x);
        *to = isinf(most) ? most : most + log(exp(*to - most) + exp(x - most));
        break;
    }
    }
}

/* One rank of each line along the axes of which the value is whole: not counted twice. */
static bool counts(const Mesh *mesh, const KernelRank *rank, Value value) {
    const Sharding *sharding = value_sharding(value);
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool divided = sharding->partial >> axis & 1;
        for (int i = 0; i < value_type(value)->rank; i++) {
            divided |= mesh_axes(mesh, sharding->mesh[i]) >> axis & 1;
        }
        if (!divided && mesh->size[axis] > 1 && rank->coord.at[axis] != 0) return false;
    }
    return true;
}

double cuda_kernel_run_error(const CudaKernelRun *run, Value value, double floor_abs,
                             bool pads_are_zero) {
    const Reference *reference = run->base.reference;
    const Sharding *sharding = value_sharding(value);
    if (!sharding->partial) return kernel_run_error(&run->base, value, floor_abs, pads_are_zero);
    int64_t n = type_elements(value_type(value));
    const double *expected = reference_value(reference, value);
    double *sum = ARENA_ARRAY(reference->arena, double, n), squares = 0, worst = 0;
    for (int64_t i = 0; i < n; i++) {
        sum[i] = sharding->reduce == REDUCE_SUM ? 0 : -INFINITY;
        squares += expected[i] * expected[i];
    }
    for (int r = 0; r < run->base.n_ranks; r++) {
        const KernelRank *rank = &run->base.ranks[r];
        Combine combine = {.from = rank->buffers[value.node->id * MAX_OUTPUTS + value.output],
                           .dtype = value_type(value)->dtype,
                           .reduce = (ReduceKind)sharding->reduce,
                           .to = sum};
        if (counts(&reference->graph->mesh, rank, value)) {
            kernel_run_visit(rank, value, combine_element, &combine);
        }
    }
    double floor = sqrt(squares / (double)n) + floor_abs;
    for (int64_t i = 0; i < n; i++) {
        bool same = sum[i] == expected[i] || (isnan(sum[i]) && isnan(expected[i]));
        double error = same ? 0 : fabs(sum[i] - expected[i]) / (fabs(expected[i]) + floor);
        if (!(error <= worst)) worst = isnan(error) ? INFINITY : error;
    }
    return worst;
}
