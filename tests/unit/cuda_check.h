/* What the tests of CUDA kernels share: a graph as text through the binders and the emulator,
 * compared with float64, in several orders of threads, whose results must have the same bits.
 *
 * A leaf's name says what its numbers are like (op_cases.h).
 */
#ifndef TESTS_UNIT_CUDA_CHECK_H
#define TESTS_UNIT_CUDA_CHECK_H

#include "runtime/cpu/vec_low.h"
#include "tests/emulate/emulate.h"
#include "tests/support/cuda_kernel_run.h"
#include "tests/support/op_cases.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct CudaCase {
    const char *mesh; /* "t=2, d=1, p=1", NULL: one rank */
    const char *nodes;
    double tolerance;
    bool nonzero_pads;
    const CudaRunHooks *hooks;
    bool overwrite; /* accumulators are set, not added to */
    bool in_place;  /* results lie in operand 0 where they may */
    bool *launched; /* [N_KERNELS], set for those that ran; may be NULL */
} CudaCase;

typedef struct CudaFixture {
    Arena *arena;
    Diag *diag;
    const Graph *graph;
    Reference *reference;
} CudaFixture;

static inline void cuda_fill(Reference *ref) {
    uint64_t state = 7;
    for (int n = 0; n < ref->graph->n_nodes; n++) {
        Node *node = ref->graph->nodes[n];
        double *values = reference_value(ref, node_value(node, 0));
        if (!(OPS[node->op].flags & LEAF)) continue;
        for (int64_t i = 0; i < type_elements(&node->types[0]); i++) {
            values[i] = op_case_draw(node_string(node, ATTR_name), &state);
            values[i] = reference_rounded(node->types[0].dtype, values[i]);
        }
    }
}

/* False: a CHECK has said why. */
static inline bool cuda_fixture_create(CudaFixture *f, const char *mesh, const char *nodes) {
    f->arena = arena_create();
    f->diag = diag_create();
    const char *text = arena_printf(f->arena, "graph \"\" mesh(%s) {\nforward:\n%s}\n",
                                    mesh ? mesh : "t=1, d=1, p=1", nodes);
    int line = 1;
    f->graph = graph_parse(f->arena, "case", &text, &line, f->diag);
    bool good = f->graph && graph_verify(f->graph, f->diag);
    CHECK(good, "%s", diag_text(f->diag));
    if (!good) return false;
    f->reference = reference_create(f->arena, f->graph);
    cuda_fill(f->reference);
    return true;
}

static inline void cuda_fixture_destroy(CudaFixture *f) {
    diag_destroy(f->diag);
    arena_destroy(f->arena);
}

static inline int64_t cuda_value_bytes(const Graph *graph, Value value) {
    return type_local_bytes(value_type(value), value_sharding(value), &graph->mesh);
}

/* Whether all values of two runs of one graph have the same bits. */
static inline bool cuda_same_bits(const CudaKernelRun *a, const CudaKernelRun *b) {
    const Graph *graph = a->base.reference->graph;
    for (int r = 0; r < a->base.n_ranks; r++) {
        for (int n = 0; n < graph->n_nodes; n++) {
            for (int o = 0; o < graph->nodes[n]->n_outputs; o++) {
                int at = n * MAX_OUTPUTS + o;
                int64_t bytes = cuda_value_bytes(graph, node_value(graph->nodes[n], o));
                if (memcmp(a->base.ranks[r].buffers[at], b->base.ranks[r].buffers[at],
                           (size_t)bytes) != 0) {
                    return false;
                }
            }
        }
    }
    return true;
}

/* All but generated kernels, which nobody can run here. */
static inline bool cuda_run_launches(CudaKernelRun *run) {
    const char *why = "";
    bool good = true;
    for (int i = 0; good && i < run->lists[0].count; i++) {
        const Command *command = &run->lists[0].items[i];
        if (command->kind == COMMAND_LAUNCH && command->launch.generated) continue;
        good = cuda_run_command(command, &run->hooks, &why);
        CHECK(good, "%s", why);
    }
    return good;
}

/* As emit.c says whose commands are and what they touch. */
static inline void cuda_describe_commands(CudaKernelRun *run, Arena *arena) {
    const Graph *graph = run->base.reference->graph;
    void **buffers = run->base.ranks[0].buffers;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        Access *accesses = ARENA_ARRAY(arena, Access, node->n_inputs + node->n_outputs + 1);
        int count = 0;
        for (int i = 0; i < node->n_inputs + node->n_outputs; i++) {
            bool write = i >= node->n_inputs;
            Value value = write ? node_value(node, i - node->n_inputs) : node->inputs[i];
            void *at = buffers[value.node->id * MAX_OUTPUTS + value.output];
            accesses[count++] = access_to(at, cuda_value_bytes(graph, value), write);
        }
        for (int i = run->first_command[0][n]; i < run->first_command[0][n + 1]; i++) {
            Command *command = &run->lists[0].items[i];
            command->info = (CommandInfo){.node = node, .block = NO_BLOCK};
            command->accesses = accesses;
            command->n_accesses = count;
        }
    }
}

static inline void cuda_compare(const CudaKernelRun *run, double tolerance, bool pads_are_zero) {
    const Graph *graph = run->base.reference->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (OPS[node->op].flags & LEAF) continue;
        for (int o = 0; o < node->n_outputs; o++) {
            if (run->base.overwritten[n * MAX_OUTPUTS + o]) continue;
            double error = cuda_kernel_run_error(run, node_value(node, o), 0, pads_are_zero);
            CHECK(error <= tolerance, "%%%d %s, result %d: error %.3g", n, OPS[node->op].name, o,
                  error);
        }
    }
}

/* Of a result on rank 0: the root of the mean squared error, and the worst one, both to the root of
 * the mean square. */
typedef struct CudaError {
    double mean, most;
} CudaError;

/* floor: added to that, of results that may be nothing but rounding. */
static inline CudaError cuda_result_error(const CudaKernelRun *run, Value value, double floor) {
    const Type *type = value_type(value);
    const double *expected = reference_exact(run->base.reference, value);
    const void *got = run->base.ranks[0].buffers[value.node->id * MAX_OUTPUTS + value.output];
    double squares = 0, errors = 0, most = 0, count = (double)type_elements(type);
    for (int64_t i = 0; i < type_elements(type); i++) {
        double error = (double)vec_get(got, type->dtype, i) - expected[i];
        squares += expected[i] * expected[i];
        errors += error * error;
        if (!(fabs(error) <= most)) most = isnan(error) ? INFINITY : fabs(error);
    }
    double size = sqrt(squares / count) + floor;
    return (CudaError){sqrt(errors / count) / size, most / size};
}

static inline void cuda_note_launches(const CudaKernelRun *run, bool *launched) {
    for (int r = 0; r < run->base.n_ranks; r++) {
        for (int i = 0; i < run->lists[r].count; i++) {
            const Command *command = &run->lists[r].items[i];
            if (command->kind != COMMAND_LAUNCH || command->launch.generated) continue;
            launched[command->launch.kernel] = true;
        }
    }
}

/* Orders of threads that a case runs in: all three as C++, the first and last as PTX, and one where
 * mistakes in memory are looked for, which takes ten times as long. */
static inline int cuda_orders(void) {
    return VARIANT_STEP > 1 ? 1 : getenv("PERILUNE_TEST_PTX") ? 2 : 3;
}

/* What nvcc made of kernels need not see all that their sources do. */
static inline bool cuda_few_shapes(void) {
    return getenv("PERILUNE_TEST_PTX") && !getenv("TEST_LONG");
}

/* Within a case that has begun. */
static inline void cuda_check(const CudaCase *c) {
    enum { ORDERS = 3 };
    const int n_orders = cuda_orders();
    CudaFixture f;
    CudaKernelRun runs[ORDERS];
    bool bound = cuda_fixture_create(&f, c->mesh, c->nodes);
    int n = 0;
    if (bound) {
        f.reference->overwrite = c->overwrite;
        reference_run(f.reference);
    }
    for (; bound && n < n_orders; n++) {
        bound =
            cuda_kernel_run_create(&runs[n], f.reference, c->in_place ? 0 : -1, c->hooks, f.diag);
        CHECK(bound, "%s", diag_text(f.diag));
        if (!bound) continue;
        runs[n].order = (unsigned)(n_orders == 2 ? 2 * n : n);
        bool good = cuda_kernel_run_step(&runs[n]);
        CHECK(good, "%s", cuda_kernel_run_reason(&runs[n]));
        if (c->launched) cuda_note_launches(&runs[n], c->launched);
        if (good && n == 0) cuda_compare(&runs[0], c->tolerance, !c->nonzero_pads);
        if (good && n > 0) CHECK(cuda_same_bits(&runs[0], &runs[n]), "depends on threads' order");
    }
    for (int i = 0; i < n; i++) cuda_kernel_run_destroy(&runs[i]);
    cuda_fixture_destroy(&f);
}

/* Nothing can be run here: says so, once. */
static inline bool cuda_check_missing(void) {
    const char *why = emulate_missing();
    if (why) printf("skip: %s\n", why);
    return why != NULL;
}

/* Has each of the kernels run in some case? */
static inline void cuda_check_coverage(const bool *launched, KernelId first, KernelId last) {
    for (int k = (int)first; k <= (int)last; k++) {
        char name[100];
        snprintf(name, sizeof(name), "kernel %s has cases", KERNELS[k].name);
        check_begin(name);
        CHECK(launched[k], "none");
        check_end();
    }
}

#endif
