#include "runtime/cuda/summary.h"

#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "runtime/cuda/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NODE_BYTES = 10 * 1024 };

typedef struct Cost {
    double flops, bytes, us;
} Cost;

/* Kernels that join what the node's others left in workspace: next to no work. */
static bool only_joins(const Command *command) {
    if (command->kind != COMMAND_LAUNCH || command->launch.generated) return false;
    switch (command->launch.kernel) {
    case KERNEL_reduce_finish:
    case KERNEL_norm_join:
    case KERNEL_embedding_join:
    case KERNEL_sumsq_finish:
    case KERNEL_sumsq_finish_many: return true;
    default: return false;
    }
}

/* What each of a node's commands costs beside its launch: evenly shared. */
static Cost share_node(const Plan *plan, const Command *commands, int n_commands,
                       const CudaRates *rates) {
    const Node *node = command_main_node(commands);
    Cost cost = {0};
    bool low = false;
    int n_shares = 0;
    for (int i = 0; i < n_commands; i++) n_shares += !only_joins(&commands[i]);
    for (int i = 0; i < commands->n_accesses; i++) {
        const Access *access = &commands->accesses[i];
        if (!access->workspace) cost.bytes += (double)access->bytes;
    }
    if (node) {
        Arena *arena = arena_create();
        Type *inputs = ARENA_ARRAY(arena, Type, node->n_inputs + 1), outputs[MAX_OUTPUTS];
        for (int i = 0; i < node->n_inputs; i++) {
            Value value = node->inputs[i];
            inputs[i] = type_local(value_type(value), value_sharding(value), &plan->mesh);
            low |= dtype_is_low(inputs[i].dtype);
        }
        for (int o = 0; o < node->n_outputs; o++) {
            outputs[o] = type_local(&node->types[o], &node->shardings[o], &plan->mesh);
        }
        cost.flops = OPS[node->op].flops(node, inputs, outputs);
        if (commands->kind == COMMAND_GEMM && commands->gemm.apart.d) { /* joined ones */
            cost.flops *= (double)commands->gemm.layout.batch;
        }
        arena_destroy(arena);
    }
    /* Only products and attention run on tensor cores. */
    bool matrix = node && (node->op == OP_MATMUL || node->op == OP_ATTENTION ||
                           node->op == OP_ATTENTION_GRAD);
    double rate = matrix && low ? rates->bf16_flops_per_second : rates->f32_flops_per_second;
    double compute = cost.flops / rate, memory = cost.bytes / rates->memory_bytes_per_second;
    cost.us = (compute > memory ? compute : memory) * 1e6 / n_shares;
    cost.flops /= n_shares;
    cost.bytes /= n_shares;
    return cost;
}

static const char *command_name(const Plan *plan, const Command *command, Arena *arena) {
    const MatmulLayout *l = &command->gemm.layout;
    switch (command->kind) {
    case COMMAND_LAUNCH:
        return command->launch.generated ? command->launch.generated->name
                                         : KERNELS[command->launch.kernel].name;
    case COMMAND_GEMM:
        return arena_printf(arena, "product %s%" PRId64 " x %" PRId64 " x %" PRId64 "%s",
                            l->batch > 1 ? arena_printf(arena, "%" PRId64 " of ", l->batch) : "",
                            l->m, l->n, l->k, epilogue_name(&command->gemm, arena));
    case COMMAND_COLLECTIVE:
        return arena_printf(arena, "%s %s", OPS[command->info.node->op].name,
                            emit_group_name(plan, command->collective.group));
    default: return command_kind_name(command->kind);
    }
}

static CudaKernelRow *find_row(CudaSummary *s, int *capacity, const char *name, Arena *arena) {
    for (int i = 0; i < s->n_rows; i++) {
        if (strcmp(s->rows[i].name, name) == 0) return &s->rows[i];
    }
    CudaKernelRow row = {.name = name};
    ARENA_PUSH(arena, s->rows, s->n_rows, *capacity, row);
    return &s->rows[s->n_rows - 1];
}

static int compare_rows(const void *a, const void *b) {
    const CudaKernelRow *x = a, *y = b;
    if (x->us != y->us) return x->us < y->us ? 1 : -1;
    return strcmp(x->name, y->name);
}

static bool same_node(const Command *a, const Command *b) {
    return a->info.node && a->info.node == b->info.node && a->info.micro == b->info.micro &&
           a->info.rank == b->info.rank;
}

static void add_rows(CudaSummary *s, const Plan *plan, const CommandList *list,
                     const CudaRates *rates, Arena *arena) {
    int capacity = 0;
    for (int i = 0; i < list->count;) {
        int n = 1;
        while (i + n < list->count && same_node(&list->items[i], &list->items[i + n])) n++;
        const Cost share = share_node(plan, &list->items[i], n, rates), none = {0};
        for (int k = i; k < i + n; k++) {
            const Command *command = &list->items[k];
            const Cost cost = only_joins(command) ? none : share;
            CudaKernelRow *row = find_row(s, &capacity, command_name(plan, command, arena), arena);
            row->count++;
            row->flops += cost.flops;
            row->bytes += cost.bytes;
            row->us += cost.us + rates->launch_us;
            s->us += cost.us + rates->launch_us;
            s->n_messages += command->kind >= COMMAND_COLLECTIVE;
        }
        i += n;
    }
    qsort(s->rows, (size_t)s->n_rows, sizeof(*s->rows), compare_rows);
}

/* As training would on the device that the plan was tuned for. */
static bool sums_bias(void *user, const GemmCommand *gemm) {
    PlanAlgo product = gemm_product(gemm);
    return plan_find_algo(user, &product) != NULL;
}

static bool joins(void *user, const GemmCommand *one, const GemmCommand *joined) {
    return gemm_device_joins(user, one, joined);
}

bool cuda_emit_stage(const Plan *plan, int stage, const EpilogueCheck *check, Arena *arena,
                     KernelCache *generated, CommandList *out, Diag *diag) {
    static const uintptr_t BASE = (uintptr_t)1 << 32;
    const EpilogueCheck all = {NULL, (void *)&plan->device, sums_bias, joins}; /* assumed */
    EmitMemory memory = {.state = (DeviceState *)(BASE / 2),
                         .staging = (const unsigned char *)(BASE / 4),
                         .epilogues = check ? check : &all};
    MeshCoord coord = {{0}};
    coord.at[MESH_P] = stage;
    RankContext rank = rank_context(plan, mesh_rank(&plan->mesh, coord), arena);
    rank_set_memory(&rank, (void *)BASE); /* never followed */
    return emit_rank(&rank, &memory, EMIT_TRAIN, generated, out, diag);
}

bool cuda_summarize(const Plan *plan, const CudaRates *rates, Arena *arena, CudaSummary *out,
                    Diag *diag) {
    int best = 0;
    int64_t most = -1;
    /* Stages that share a program and tasks have as many nodes: the first of each is enough. */
    for (int s = 0; s < plan->n_stages; s++) {
        const Stage *stage = &plan->stages[s];
        int64_t count = (int64_t)stage->n_tasks * plan->programs[stage->program].graph->n_nodes;
        if (count <= most) continue;
        most = count;
        best = s;
    }
    CommandList list = {0};
    KernelCache *generated = kernel_cache_create(arena);
    *out = (CudaSummary){.stage = best};
    bool fine = cuda_emit_stage(plan, best, NULL, arena, generated, &list, diag);
    if (fine) {
        CommandOrder order;
        out->rank = list.count ? list.items[0].info.rank : 0;
        add_rows(out, plan, &list, rates, arena);
        order_commands(&list, arena, &order);
        out->n_nodes = command_count_nodes(&list);
        out->n_streams = order.n_streams;
        out->n_events = order.n_events;
        out->n_waits = order.n_waits;
        out->graph_bytes = out->n_nodes * NODE_BYTES;
        out->n_generated = kernel_cache_count(generated);
    }
    command_list_release(&list);
    return fine;
}

void cuda_summary_print(StrBuf *out, const CudaSummary *s, const CudaRates *rates) {
    enum { MOST_ROWS = 16 };
    strbuf_printf(out,
                  "CUDA, a step of one rank of stage %d: one launch of a graph of %" PRId64
                  " nodes (%.1f MiB), %" PRId64 " launches saved\n",
                  s->stage, s->n_nodes, (double)s->graph_bytes / (1 << 20), s->n_nodes - 1);
    strbuf_printf(out,
                  "%d stream%s, %d event%s, %d wait%s between streams, %" PRId64
                  " messages, %d kernels compiled by NVRTC\n",
                  s->n_streams, s->n_streams == 1 ? "" : "s", s->n_events,
                  s->n_events == 1 ? "" : "s", s->n_waits, s->n_waits == 1 ? "" : "s",
                  s->n_messages, s->n_generated);
    strbuf_printf(out, "%-40s %8s %10s %10s %10s %6s\n", "kernel", "count", "GFLOP", "GB", "ms",
                  "share");
    for (int i = 0; i < s->n_rows && i < MOST_ROWS; i++) {
        const CudaKernelRow *row = &s->rows[i];
        strbuf_printf(out, "%-40s %8" PRId64 " %10.3f %10.3f %10.3f %5.1f%%\n", row->name,
                      row->count, row->flops * 1e-9, row->bytes * 1e-9, row->us * 1e-3,
                      s->us > 0 ? 100 * row->us / s->us : 0);
    }
    if (s->n_rows > MOST_ROWS) strbuf_printf(out, "and %d more\n", s->n_rows - MOST_ROWS);
    strbuf_printf(out, "Predicted for %s, each kernel by itself, messages between devices apart.\n",
                  rates->name);
}
