#include "runtime/cuda/summary.h"

#include "runtime/cuda/codegen.h"
#include "runtime/cuda/emit.h"
#include "runtime/cuda/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *with) {
    return strncmp(name, with, strlen(with)) == 0;
}

/* Of a node's time, in parts. Kernels that join what its others left in workspace, or prepare
 * what those need, have next to no work; attention's backward computes 4 products by keys, 3 by
 * queries. */
static int parts_of(const Command *command) {
    if (command->kind != COMMAND_LAUNCH || command->launch.generated) return 1;
    const char *name = KERNELS[command->launch.kernel].name;
    switch (command->launch.kernel) {
    case KERNEL_reduce_finish:
    case KERNEL_norm_join:
    case KERNEL_embedding_join:
    case KERNEL_lamb_norms_finish:
    case KERNEL_linear_attention_join:
    case KERNEL_linear_attention_decays:
    case KERNEL_linear_attention_key_decays:
    case KERNEL_linear_chunk_decays:
    case KERNEL_lamb_norms_finish_many:
    case KERNEL_sumsq_finish:
    case KERNEL_sumsq_finish_many:
    case KERNEL_rescale: return 0;
    default: break;
    }
    if (begins(name, "attention_delta_")) return 0;
    if (begins(name, "attention_joint_")) return 5;
    if (begins(name, "attention_keys_") || begins(name, "attention_any_keys_")) return 4;
    if (begins(name, "attention_queries_") || begins(name, "attention_any_queries_")) return 3;
    return 1;
}

/* By node id: the node whose command does it; -1: none does. */
static int *find_doers(const Graph *graph, const CommandList *list, Arena *arena) {
    int *doer = ARENA_ARRAY(arena, int, graph->n_nodes + 1);
    for (int i = 0; i < graph->n_nodes; i++) doer[i] = -1;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        const Node *main = command_main_node(command);
        if (!main) continue;
        doer[main->id] = main->id;
        doer[command->info.node->id] = main->id;
        if (command->kind == COMMAND_GEMM && command->gemm.summed)
            doer[command->gemm.summed->id] = main->id;
        for (int k = 0; k < command->n_others; k++) doer[command->others[k].node->id] = main->id;
    }
    return doer;
}

/* What has no command is part of the one before it that its operands come from, such as an
 * epilogue's program; or else of the last of its own op, such as one update of many. */
static int find_payer(const Graph *graph, const int *doer, const Node *node) {
    bool elementwise =
        OPS[node->op].flags & ELEMENTWISE_BIT || node->op == OP_FUSED || node->op == OP_ACCUMULATE;
    for (int i = 0; i < node->n_inputs && elementwise; i++) {
        int from = doer[node->inputs[i].node->id];
        if (from >= 0 && graph->nodes[from]->phase == node->phase) return from;
    }
    for (int n = node->id - 1; n >= 0; n--) {
        if (doer[n] >= 0 && graph->nodes[n]->op == node->op) return doer[n];
    }
    return -1;
}

/* By node id, of the nodes that have commands: what is part of another's command is paid there. */
static double *share_prices(const Plan *plan, int stage, const CommandList *list,
                            const double *node_us, Arena *arena) {
    const Graph *graph = plan->programs[plan->stages[stage].program].graph;
    double *us = ARENA_ARRAY(arena, double, graph->n_nodes + 1);
    int *doer = find_doers(graph, list, arena);
    for (int n = 0; n < graph->n_nodes; n++) {
        if (doer[n] < 0 && node_us[n] > 0) doer[n] = find_payer(graph, doer, graph->nodes[n]);
        if (doer[n] >= 0) us[doer[n]] += node_us[n];
    }
    return us;
}

/* What one part of a node does and takes. */
typedef struct Share {
    double flops, bytes, us;
} Share;

static double local_flops(const Plan *plan, const Node *node) {
    Arena *arena = arena_create();
    Type *inputs = ARENA_ARRAY(arena, Type, node->n_inputs + 1), outputs[MAX_OUTPUTS];
    for (int i = 0; i < node->n_inputs; i++) {
        Value value = node->inputs[i];
        inputs[i] = type_local(value_type(value), value_sharding(value), &plan->mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        outputs[o] = type_local(&node->types[o], &node->shardings[o], &plan->mesh);
    }
    double flops = OPS[node->op].flops(node, inputs, outputs);
    arena_destroy(arena);
    return flops;
}

static Share share_node(const Plan *plan, const Command *commands, int n_commands,
                        const double *node_us) {
    const Node *node = command_main_node(commands);
    Share share = {0};
    int n_parts = 0;
    for (int i = 0; i < n_commands; i++) n_parts += parts_of(&commands[i]);
    if (n_parts == 0) return share;
    for (int i = 0; i < commands->n_accesses; i++) {
        const Access *access = &commands->accesses[i];
        if (!access->workspace) share.bytes += (double)access->bytes;
    }
    if (node) {
        share.us = node_us[node->id] / n_parts;
        share.flops = local_flops(plan, node);
        if (commands->kind == COMMAND_GEMM) { /* perhaps several nodes' */
            const MatmulLayout *l = &commands->gemm.layout;
            share.flops = 2.0 * (double)l->batch * (double)l->m * (double)l->n * (double)l->k;
        }
    }
    share.flops /= n_parts;
    share.bytes /= n_parts;
    return share;
}

static const char *command_name(const Plan *plan, const Command *command, Arena *arena) {
    const MatmulLayout *l = &command->gemm.layout;
    switch (command->kind) {
    case COMMAND_LAUNCH:
        return command->launch.generated ? command->launch.generated->name
                                         : KERNELS[command->launch.kernel].name;
    case COMMAND_GEMM:
        return arena_printf(arena, "%sproduct %s%" PRId64 " x %" PRId64 " x %" PRId64 "%s",
                            command->gemm.scales_a.at ? "fp8 " : "",
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
                     const CudaPrices *prices, Arena *arena) {
    const double *shared = share_prices(plan, s->stage, list, prices->node_us, arena);
    int capacity = 0;
    for (int i = 0; i < list->count;) {
        int n = 1;
        while (i + n < list->count && same_node(&list->items[i], &list->items[i + n])) n++;
        const Share share = share_node(plan, &list->items[i], n, shared);
        for (int k = i; k < i + n; k++) {
            const Command *command = &list->items[k];
            int parts = parts_of(command);
            double us = parts * share.us > prices->launch_us ? parts * share.us : prices->launch_us;
            CudaKernelRow *row = find_row(s, &capacity, command_name(plan, command, arena), arena);
            row->count++;
            row->flops += parts * share.flops;
            row->bytes += parts * share.bytes;
            row->us += us;
            s->us += us;
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

static bool folds(void *user, const GemmCommand *gemm) {
    return gemm_device_folds(user, gemm);
}

static bool joins(void *user, const GemmCommand *one, const GemmCommand *joined) {
    return gemm_device_joins(user, one, joined);
}

bool cuda_emit_stage(const Plan *plan, int stage, const EpilogueCheck *check,
                     const AttentionCheck *attention, Arena *arena, KernelCache *generated,
                     CommandList *out, Diag *diag) {
    static const uintptr_t BASE = (uintptr_t)1 << 32;
    const EpilogueCheck all = {folds, (void *)&plan->device, sums_bias, joins}; /* assumed */
    EmitMemory memory = {.state = (DeviceState *)(BASE / 2),
                         .staging = (const unsigned char *)(BASE / 4),
                         .epilogues = check ? check : &all,
                         .attention = attention};
    MeshCoord coord = {{0}};
    coord.at[MESH_P] = stage;
    RankContext rank = rank_context(plan, mesh_rank(&plan->mesh, coord), arena);
    rank_set_memory(&rank, (void *)BASE); /* never followed */
    rank.host = (unsigned char *)(BASE << 14);
    return emit_rank(&rank, &memory, EMIT_TRAIN, generated, out, diag);
}

int cuda_largest_stage(const Plan *plan) {
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
    return best;
}

/* The stage's commands as they are in the plan. */
static bool summarize_all(const Plan *plan, int stage, const CudaPrices *prices, Arena *arena,
                          KernelCache *generated, CudaSummary *out, Diag *diag) {
    CommandList list = {0};
    *out = (CudaSummary){.stage = stage};
    bool fine = cuda_emit_stage(plan, stage, NULL, NULL, arena, generated, &list, diag);
    if (fine) {
        CommandOrder order;
        out->rank = list.count ? list.items[0].info.rank : 0;
        add_rows(out, plan, &list, prices, arena);
        order_commands(&list, arena, &order);
        out->n_nodes = command_count_nodes(&list);
        out->n_streams = order.n_streams;
        out->n_events = order.n_events;
        out->n_waits = order.n_waits;
        out->n_generated = kernel_cache_count(generated);
    }
    command_list_release(&list);
    return fine;
}

/* The plan with so many of its micro-batches, the last one among them, to be summarized alone. */
static Plan *with_few(const Plan *plan, int n_micro, Arena *arena) {
    Plan *few = ARENA_NEW(arena, Plan);
    *few = *plan;
    few->n_micro = n_micro;
    few->stages = ARENA_ARRAY(arena, Stage, plan->n_stages);
    for (int s = 0; s < plan->n_stages; s++) {
        Stage *stage = &few->stages[s];
        *stage = plan->stages[s];
        stage->tasks = ARENA_ARRAY(arena, Task, stage->n_tasks);
        stage->n_tasks = 0;
        for (int t = 0; t < plan->stages[s].n_tasks; t++) {
            Task task = plan->stages[s].tasks[t];
            const bool last = task.micro + 1 == plan->n_micro;
            if (!last && task.micro + 1 >= n_micro) continue;
            if (last) task.micro = n_micro - 1;
            stage->tasks[stage->n_tasks++] = task;
        }
    }
    return few;
}

/* a + n (a - b), where there are as many kinds of kernels in both. */
static void extrapolate(CudaSummary *a, const CudaSummary *b, int64_t n) {
    a->n_nodes += n * (a->n_nodes - b->n_nodes);
    a->n_waits += (int)n * (a->n_waits - b->n_waits);
    a->n_messages += n * (a->n_messages - b->n_messages);
    a->us += (double)n * (a->us - b->us);
    for (int i = 0; i < a->n_rows; i++) {
        CudaKernelRow *row = &a->rows[i], none = {0};
        const CudaKernelRow *other = &none;
        for (int k = 0; k < b->n_rows; k++) {
            if (strcmp(b->rows[k].name, row->name) == 0) other = &b->rows[k];
        }
        row->count += n * (row->count - other->count);
        row->flops += (double)n * (row->flops - other->flops);
        row->bytes += (double)n * (row->bytes - other->bytes);
        row->us += (double)n * (row->us - other->us);
    }
    qsort(a->rows, (size_t)a->n_rows, sizeof(*a->rows), compare_rows);
}

/* Of a step in pieces micro-batches but the first and the last are counted by one of them: they
 * have the same commands. */
bool cuda_summarize(const Plan *plan, const CudaPrices *prices, Arena *arena, CudaSummary *out,
                    Diag *diag) {
    enum { FEW = 3 }; /* the first, one between, the last */
    KernelCache *generated = kernel_cache_create(arena);
    const int largest = cuda_largest_stage(plan);
    const Stage *stage = &plan->stages[largest];
    const bool in_pieces = plan_graph_in_pieces(plan, stage);
    bool fine;
    if (in_pieces && plan->n_micro > FEW) {
        CudaSummary fewer;
        fine = summarize_all(with_few(plan, FEW, arena), largest, prices, arena, generated, out,
                             diag) &&
               summarize_all(with_few(plan, FEW - 1, arena), largest, prices, arena, generated,
                             &fewer, diag);
        if (fine) extrapolate(out, &fewer, plan->n_micro - FEW);
    } else {
        fine = summarize_all(plan, largest, prices, arena, generated, out, diag);
    }
    out->in_pieces = in_pieces;
    out->graph_bytes =
        in_pieces ? plan_graph_bytes(plan, stage) : out->n_nodes * (int64_t)GRAPH_NODE_BYTES;
    return fine;
}

void cuda_summary_print(StrBuf *out, const CudaSummary *s, const CudaPrices *prices) {
    enum { MOST_ROWS = 16 };
    strbuf_printf(out, "CUDA, a step of one rank of stage %d: ", s->stage);
    if (s->in_pieces) {
        strbuf_printf(out,
                      "%" PRId64 " nodes, too many for one graph: replayed in pieces (%.1f MiB), "
                      "one graph for those that are alike\n",
                      s->n_nodes, (double)s->graph_bytes / (1 << 20));
    } else {
        strbuf_printf(out,
                      "one launch of a graph of %" PRId64 " nodes (%.1f MiB), %" PRId64
                      " launches saved\n",
                      s->n_nodes, (double)s->graph_bytes / (1 << 20), s->n_nodes - 1);
    }
    strbuf_printf(out,
                  "%d stream%s, %d event%s, %s%d wait%s between streams, %" PRId64
                  " messages, %d kernels compiled by NVRTC\n",
                  s->n_streams, s->n_streams == 1 ? "" : "s", s->n_events,
                  s->n_events == 1 ? "" : "s", s->in_pieces ? "about " : "", s->n_waits,
                  s->n_waits == 1 ? "" : "s", s->n_messages, s->n_generated);
    strbuf_printf(out, "%-40s %8s %10s %10s %10s %6s\n", "kernel", "count", "GFLOP", "GB", "ms",
                  "share");
    for (int i = 0; i < s->n_rows && i < MOST_ROWS; i++) {
        const CudaKernelRow *row = &s->rows[i];
        strbuf_printf(out, "%-40s %8" PRId64 " %10.3f %10.3f %10.3f %5.1f%%\n", row->name,
                      row->count, row->flops * 1e-9, row->bytes * 1e-9, row->us * 1e-3,
                      s->us > 0 ? 100 * row->us / s->us : 0);
    }
    if (s->n_rows > MOST_ROWS) strbuf_printf(out, "and %d more\n", s->n_rows - MOST_ROWS);
    strbuf_printf(
        out, "Predicted for %s, each kernel by itself, messages between stages apart: %.4g ms.\n",
        prices->name, s->us * 1e-3);
}
