#include "runtime/cuda/tune.h"

#include "runtime/cuda/bind.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/driver/tune_attention.h"
#include "runtime/cuda/epilogue.h"
#include "runtime/cuda/summary.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Operands are a new set in each repetition, as far as memory goes: in a step, too, few of them
 * are still in the cache. */
#define ROTATED_BYTES (INT64_C(256) << 20)
enum { MOST_SETS = 64, GRANULE = 256 };

typedef struct Product {
    GemmEntry *entry;
    GemmCommand command; /* one of those that it stands for */
    int64_t count;       /* see TunedProduct */
    int64_t count_here;  /* in the stage that is looked at */
    int64_t set_bytes;   /* one set of operands */
    int apart;           /* of one that does more, the one that does not: a bias's gradient
                            besides, gelu, or several products at once */
} Product;

/* --- which products --- */

/* Bytes from the beginning of one operand to that of the next. */
typedef struct OperandBytes {
    int64_t a, b, d, bias, scales_a, scales_b;
} OperandBytes;

static OperandBytes measure_operands(const GemmCommand *command) {
    const MatmulLayout *l = &command->layout;
    const GemmStrides *apart = &command->apart;
    int64_t before = l->batch - 1; /* of a batch: those before the last */
    bool joined = apart->d != 0;
    int64_t b_rows = l->transpose_b ? l->n : l->k, b_width = l->transpose_b ? l->k : l->n;
    int64_t b = command->b_row ? (b_rows - 1) * command->b_row + b_width : b_rows * b_width;
    bool scaled = command->scales_a.at;
    int64_t n_a = scaled ? gemm_count_scales(command, &command->scales_a) : 0;
    int64_t n_b = scaled ? gemm_count_scales(command, &command->scales_b) : 0;
    return (OperandBytes){
        .scales_a = tuner_operand_bytes(n_a, DTYPE_F32),
        .scales_b = tuner_operand_bytes(n_b, DTYPE_F32),
        .a = tuner_operand_bytes((joined ? 1 : l->batch) * l->m * l->k, command->in_dtype),
        .b = tuner_operand_bytes(before * (joined ? apart->b : l->k * l->n) + b, command->in_dtype),
        .d = tuner_operand_bytes(before * (joined ? apart->d : l->m * l->n) + l->m * l->n,
                                 command->out_dtype),
        .bias =
            tuner_operand_bytes((joined ? before * apart->bias : 0) + l->n, command->out_dtype)};
}

/* Its place, new or not; -1: reported. */
static int find_product(Tuner *tuner, const GemmCommand *command) {
    GemmEntry *entry = gemm_table_find(tuner->table, command, tuner->diag);
    if (!entry) return -1;
    PlanAlgo algo = gemm_product(command);
    for (int i = 0; i < tuner->n_products; i++) {
        PlanAlgo known = gemm_product(&tuner->products[i].command);
        if (plan_algo_same_product(&known, &algo)) return i;
    }
    OperandBytes bytes = measure_operands(command);
    int n_results = 1 + (command->c != NULL) + (command->aux != NULL); /* of D's size */
    Product product = {.entry = entry, .command = *command, .apart = -1};
    product.set_bytes = GRANULE + bytes.a + bytes.b + n_results * bytes.d;
    product.set_bytes += bytes.scales_a + bytes.scales_b;
    if (command->bias) product.set_bytes += bytes.bias;
    if (command->bias_grad) product.set_bytes += tuner_operand_bytes(command->layout.n, DTYPE_F32);
    ARENA_PUSH(tuner->arena, tuner->products, tuner->n_products, tuner->product_capacity, product);
    return tuner->n_products - 1;
}

/* One that also makes a bias's gradient is measured against the same without, and a sum; one with
 * gelu against the same without, and a pass over its result; joined ones against one after the
 * other. */
static bool add_product(Tuner *tuner, const GemmCommand *command) {
    GemmCommand simple = *command;
    int i = find_product(tuner, command), apart;
    if (i < 0) return false;
    tuner->products[i].count_here++;
    if (!command->bias_grad && !command->apart.d && !gemm_has_gelu(command)) return true;
    if (gemm_has_gelu(command)) simple = gemm_without_gelu(command);
    if (command->bias_grad) simple.epilogue = EPILOGUE_SUM;
    if (command->apart.d) simple.layout.batch = 1;
    simple.apart = (GemmStrides){0};
    simple.bias_grad = NULL;
    simple.summed = NULL;
    apart = find_product(tuner, &simple);
    tuner->products[i].apart = apart;
    return apart >= 0;
}

static bool supports_epilogue(void *user, const GemmCommand *gemm) {
    return gemm_table_supports(user, gemm);
}

static bool supports_joined(void *user, const GemmCommand *one, const GemmCommand *joined) {
    (void)one;
    return gemm_table_supports(user, joined);
}

/* Every attention in 16 bits is one command in the list, whoever does it: nothing of it is run. */
static AttentionKernels as_command(void *user, const AttentionCommand *attention) {
    (void)user, (void)attention;
    return ATTENTION_CUDNN;
}

static bool emit_stage(Tuner *tuner, const Plan *plan, int stage, bool sums, Arena *arena,
                       CommandList *out) {
    EpilogueCheck check = {.supports = supports_epilogue,
                           .user = tuner->table,
                           .sums_bias = sums ? supports_epilogue : NULL,
                           .joins = supports_joined};
    const AttentionCheck attention = {.choose = as_command};
    return cuda_emit_stage(plan, stage, &check, &attention, arena, kernel_cache_create(arena), out,
                           tuner->diag);
}

/* The node's sum, and what it does with sums: it may be what adds one up over micro-batches. */
static void mark_sums(const Node *node, bool *alone) {
    if (!node) return;
    alone[node->id] = true;
    for (int i = 0; i < node->n_inputs; i++) alone[node->inputs[i].node->id] = true;
}

/* By node: has a sum launches of its own in the list? Else a norm's gradient makes it (norm_sum.h).
 */
static const bool *find_lone_sums(const CommandList *list, const Graph *graph, Arena *arena) {
    static const KernelsByDtype COLUMNS = KERNELS_BY_DTYPE(reduce_columns);
    bool *alone = ARENA_ARRAY(arena, bool, graph->n_nodes + 1);
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        if (command->kind != COMMAND_LAUNCH || command->launch.generated ||
            !kernel_is_of(&COLUMNS, command->launch.kernel))
            continue;
        mark_sums(command->info.node, alone);
        for (int k = 0; k < command->n_others; k++) mark_sums(command->others[k].node, alone);
    }
    return alone;
}

typedef struct Kinds {
    int count, capacity;
    PlanAlgo *items;
} Kinds;

static bool has_kind(const Kinds *kinds, const PlanAlgo *kind) {
    for (int i = 0; i < kinds->count; i++) {
        if (plan_algo_same_product(&kinds->items[i], kind)) return true;
    }
    return false;
}

static bool makes_bias_gradient(const Command *command) {
    return command->kind == COMMAND_GEMM && command->gemm.bias_grad;
}

/* Products of which one's bias's gradient is made besides where no product makes it: all of a kind
 * make them or none does. */
static Kinds find_needless(const CommandList *list, const bool *alone, Arena *arena) {
    Kinds needless = {0};
    for (int i = 0; i < list->count; i++) {
        const GemmCommand *gemm = &list->items[i].gemm;
        if (!makes_bias_gradient(&list->items[i]) || alone[gemm->summed->id]) continue;
        PlanAlgo kind = gemm_product(gemm);
        if (!has_kind(&needless, &kind))
            ARENA_PUSH(arena, needless.items, needless.count, needless.capacity, kind);
    }
    return needless;
}

/* All products and attentions of the stage as they run when no product makes a bias's gradient;
 * then those that could, where something would be saved. */
static bool add_products(Tuner *tuner, const Plan *plan, int stage) {
    Arena *arena = arena_create();
    const Graph *graph = plan->programs[plan->stages[stage].program].graph;
    CommandList without = {0}, with = {0};
    bool fine = emit_stage(tuner, plan, stage, false, arena, &without) &&
                emit_stage(tuner, plan, stage, true, arena, &with);
    for (int i = 0; fine && i < without.count; i++) {
        const Command *command = &without.items[i];
        if (command->kind == COMMAND_ATTENTION)
            tuner_add_attention(tuner, &command->attention, command->info.node);
        if (command->kind == COMMAND_GEMM) fine = add_product(tuner, &command->gemm);
    }
    Kinds needless = {0};
    if (fine) needless = find_needless(&with, find_lone_sums(&without, graph, arena), arena);
    for (int i = 0; fine && i < with.count; i++) {
        if (!makes_bias_gradient(&with.items[i])) continue;
        PlanAlgo kind = gemm_product(&with.items[i].gemm);
        if (!has_kind(&needless, &kind)) fine = add_product(tuner, &with.items[i].gemm);
    }
    command_list_release(&without);
    command_list_release(&with);
    arena_destroy(arena);
    return fine;
}

static bool add_stage(Tuner *tuner, const Plan *plan, int stage) {
    bool fine = add_products(tuner, plan, stage);
    for (int i = 0; i < tuner->n_products; i++) {
        Product *product = &tuner->products[i];
        if (product->count_here > product->count) product->count = product->count_here;
        product->count_here = 0;
    }
    tuner_count_attentions(tuner);
    return fine;
}

/* Stages that share a program have the same products. */
static bool collect(Tuner *tuner, const Plan *plan) {
    int64_t workspace = INT64_MAX; /* what every stage has */
    for (int p = 0; p < plan->n_programs; p++) {
        Workspace parts = program_workspace(plan->programs[p].graph, true);
        int64_t bytes = parts.bytes[WORKSPACE_COMPUTE];
        if (bytes < workspace) workspace = bytes;
        if (bytes > tuner->workspace_bytes) tuner->workspace_bytes = bytes;
    }
    tuner->table = gemm_table_create(&tuner->device, false, workspace, tuner->arena);
    tuner->attention_table = attention_table_create(&tuner->device, tuner->arena);
    for (int p = 0; p < plan->n_programs; p++) {
        int stage = 0;
        while (stage < plan->n_stages && plan->stages[stage].program != p) stage++;
        if (stage < plan->n_stages && !add_stage(tuner, plan, stage)) return false;
    }
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        tuner->n_all += gemm_entry_count_candidates(product->entry);
        tuner->n_all += product->command.bias_grad || gemm_has_gelu(&product->command);
    }
    tuner->n_all += tuner_attention_candidates(tuner);
    if (tuner->n_products) return true;
    diag_error(tuner->diag, NO_LOC, "the plan has no matrix product");
    return false;
}

/* --- memory --- */

static bool allocate(Tuner *tuner) {
    const CuApi *api = tuner->device.api;
    int64_t limit = tuner->device.free_bytes / 4 * 3 - tuner->workspace_bytes;
    int64_t largest = tuner_attention_bytes(tuner, limit);
    void *memory = NULL;
    for (int i = 0; i < tuner->n_products; i++) {
        int64_t bytes = tuner->products[i].set_bytes;
        if (bytes > largest && bytes <= limit) largest = bytes;
    }
    tuner->memory_bytes = largest;
    if (largest < ROTATED_BYTES) {
        tuner->memory_bytes =
            largest * MOST_SETS < ROTATED_BYTES ? largest * MOST_SETS : ROTATED_BYTES;
    }
    if (tuner->memory_bytes > limit) tuner->memory_bytes = largest;
    if (largest == 0) {
        diag_error(tuner->diag, NO_LOC, "%s has %.2f GiB free: no product of the plan fits",
                   tuner->device.name, (double)tuner->device.free_bytes / (1 << 30));
        return false;
    }
    size_t workspace = (size_t)tuner->workspace_bytes;
    if (!cuda_check(api, api->cudaMalloc(&tuner->workspace, workspace ? workspace : 1), tuner->diag,
                    "allocating the products' workspace") ||
        !cuda_check(api, api->cudaMalloc(&memory, (size_t)tuner->memory_bytes), tuner->diag,
                    "allocating operands")) {
        return false;
    }
    tuner->memory = memory;
    return cuda_check(api, api->cudaStreamCreateWithFlags(&tuner->stream, cudaStreamNonBlocking),
                      tuner->diag, "making a stream") &&
           cuda_check(api, api->cudaEventCreateWithFlags(&tuner->begin, cudaEventDefault),
                      tuner->diag, "making an event") &&
           cuda_check(api, api->cudaEventCreateWithFlags(&tuner->end, cudaEventDefault),
                      tuner->diag, "making an event") &&
           cuda_fill_numbers(&tuner->device, tuner->memory, tuner->memory_bytes, tuner->stream,
                             tuner->diag);
}

/* --- times --- */

/* The product on a set of operands: an algorithm that needs better aligned ones must fail here. */
static GemmCommand place(const Tuner *tuner, const Product *product, int repeat) {
    GemmCommand command = product->command;
    OperandBytes bytes = measure_operands(&command);
    unsigned char *at = tuner_operands(tuner, product->set_bytes, repeat);
    command.a = at;
    command.b = at += bytes.a;
    at += bytes.b;
    if (command.scales_a.at) {
        command.scales_a.at = (const float *)at;
        at += bytes.scales_a;
        command.scales_b.at = (const float *)at;
        at += bytes.scales_b;
    }
    command.d = at;
    if (command.c) command.c = at += bytes.d;
    if (command.aux) command.aux = at += bytes.d;
    if (command.bias) command.bias = at += bytes.d;
    if (command.bias_grad) command.bias_grad = (float *)(at += bytes.d);
    return command;
}

/* The sum that the product would make besides, by the launches that training has for it. */
static bool bind_sum(const Tuner *tuner, const GemmCommand *command, CommandList *out) {
    const Mesh *mesh = &tuner->plan->mesh;
    const Node *node = command->summed;
    CudaEmitter emitter = {.list = out, .plan = tuner->plan};
    void *in = (void *)command->b;
    Type in_local = type_local(value_type(node->inputs[0]), value_sharding(node->inputs[0]), mesh);
    Binding b = {.node = node,
                 .arena = tuner->arena,
                 .diag = tuner->diag,
                 .in = &in,
                 .out = {command->bias_grad},
                 .in_local = &in_local,
                 .out_local = {type_local(&node->types[0], &node->shardings[0], mesh)},
                 .workspace = tuner->workspace,
                 .workspace_bytes = tuner->workspace_bytes,
                 .backend = &emitter};
    return cuda_bind(&b);
}

static bool issue_sum(const Tuner *tuner, const void *what, int repeat) {
    GemmCommand command = place(tuner, what, repeat);
    CommandList list = {0};
    bool fine = bind_sum(tuner, &command, &list);
    fine = fine && tuner_launch(tuner, &list);
    command_list_release(&list);
    return fine;
}

static bool issue(const Tuner *tuner, const void *what, int repeat) {
    const Product *product = what;
    GemmCommand command = place(tuner, product, repeat);
    return gemm_issue(tuner->table, product->entry, &command, tuner->workspace, tuner->stream) ==
           CUBLAS_STATUS_SUCCESS;
}

/* Moves as many bytes as the result has: half of it onto the other half. */
static bool issue_pass(const Tuner *tuner, const void *what, int repeat) {
    GemmCommand command = place(tuner, what, repeat);
    size_t half = (size_t)measure_operands(&command).d / 2;
    return tuner->device.api->cudaMemcpyAsync((char *)command.d + half, command.d, half,
                                              cudaMemcpyDeviceToDevice,
                                              tuner->stream) == cudaSuccess;
}

static void tell(Tuner *tuner, const Product *product) {
    const MatmulLayout *l = &product->command.layout;
    char what[96];
    snprintf(what, sizeof(what), "%sproduct %" PRId64 " x %" PRId64 " x %" PRId64,
             product->command.scales_a.at ? "fp8 " : "", l->m, l->n, l->k);
    if (tuner->options->progress) {
        tuner->options->progress(tuner->options->user, tuner->n_done, tuner->n_all, what);
    }
}

static bool tune_product(Tuner *tuner, const Product *product, TunedProduct *out) {
    int n = gemm_entry_count_candidates(product->entry), chosen = 0;
    *out = (TunedProduct){.count = product->count, .first_us = -1, .chosen_us = -1};
    for (int c = 0; c < n && product->set_bytes <= tuner->memory_bytes; c++) {
        double us;
        tell(tuner, product);
        gemm_entry_choose(product->entry, c);
        if (!tuner_time(tuner, issue, product, out->chosen_us, &us)) return false;
        tuner->n_done++;
        out->n_candidates += us >= 0;
        if (c == 0) out->first_us = us;
        if (us < 0 || (out->chosen_us >= 0 && us >= out->chosen_us)) continue;
        if (out->first_us >= 0 && c > 0 && us >= TUNER_FASTER * out->first_us) continue;
        out->chosen_us = us;
        chosen = c;
    }
    out->changed = chosen != 0;
    gemm_entry_choose(product->entry, chosen);
    out->algo = gemm_entry_algo(product->entry);
    return true;
}

/* --- bias gradients --- */

static bool is_joining(const Product *product) {
    return product->command.apart.d != 0;
}

/* What the product at `apart` takes by itself, or as one of several at once, where that is less. */
static double least_apart_us(const Tuner *tuner, const TuneResult *out, int apart) {
    double least = out->products[apart].chosen_us;
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        double us = out->products[i].chosen_us / (double)product->command.layout.batch;
        if (product->apart == apart && is_joining(product) && us > 0 && us < least) least = us;
    }
    return least;
}

/* Products that make a bias's gradient took up to 1.14 times as long in steps on an H200 as by
 * themselves. */
#define SUM_FASTER 0.85

/* Is the product with the bias's gradient in it faster than a product and a sum? */
static bool is_faster_together(Tuner *tuner, const TuneResult *out, int i, bool *out_faster) {
    const Product *product = &tuner->products[i];
    double sum_us = -1, together_us = out->products[i].chosen_us;
    double apart_us = least_apart_us(tuner, out, product->apart);
    tell(tuner, product);
    tuner->n_done++;
    *out_faster = false;
    if (together_us < 0 || apart_us < 0) return true; /* does not fit */
    if (!tuner_time(tuner, issue_sum, product, -1, &sum_us)) return false;
    *out_faster = sum_us >= 0 && together_us < SUM_FASTER * (apart_us + sum_us);
    return true;
}

/* --- gelu --- */

/* Is the product with gelu in it no slower than without, and a kernel that reads the product and
 * writes the result, and besides reads another operand or writes the sum? */
static bool is_faster_with_gelu(Tuner *tuner, const Product *product, const TunedProduct *with,
                                const TunedProduct *without, bool *out_faster) {
    double pass_us = -1;
    tell(tuner, product);
    tuner->n_done++;
    *out_faster = with->chosen_us >= 0 || without->chosen_us < 0;
    if (with->chosen_us < 0 || without->chosen_us < 0) return true;
    if (!tuner_time(tuner, issue_pass, product, -1, &pass_us)) return false;
    double kernel_us = (product->command.aux ? 3 : 2) * pass_us;
    *out_faster = pass_us < 0 || TUNER_FASTER * with->chosen_us <= without->chosen_us + kernel_us;
    return true;
}

static bool choose_gelus(Tuner *tuner, TuneResult *out) {
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        TunedProduct *with = &out->products[i];
        bool faster;
        if (!gemm_has_gelu(&product->command)) continue;
        TunedProduct *without = &out->products[product->apart];
        if (!is_faster_with_gelu(tuner, product, with, without, &faster)) return false;
        out->n_gelus++;
        out->n_gelus_folded += faster;
        if (faster) continue;
        without->count += with->count;
        with->count = 0;
    }
    return true;
}

/* --- joined products --- */

/* Are several products at once no slower than one after the other? Those that do not run, or do not
 * fit, are not; where neither was timed, training does what it does untuned. */
static bool is_joined(const Product *product, const TunedProduct *together,
                      const TunedProduct *apart) {
    double one_by_one = (double)product->command.layout.batch * apart->chosen_us;
    if (together->chosen_us < 0 || apart->chosen_us < 0) return apart->chosen_us < 0;
    return TUNER_FASTER * together->chosen_us <= one_by_one;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* So many of the kind at `apart` are no longer run so: of those that run several at once first,
 * which what a bias was added to mostly does. */
static void take_away(const Tuner *tuner, TuneResult *out, int apart, int64_t count) {
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        int64_t *have = &out->products[i].count, batch = product->command.layout.batch;
        if (product->apart != apart || !is_joining(product)) continue;
        int64_t taken = smaller(count / batch, *have);
        *have -= taken;
        count -= taken * batch;
    }
    out->products[apart].count -= smaller(count, out->products[apart].count);
}

static bool choose_sums(Tuner *tuner, TuneResult *out) {
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        TunedProduct *together = &out->products[i];
        bool faster;
        if (!product->command.bias_grad) continue;
        if (!is_faster_together(tuner, out, i, &faster)) return false;
        out->n_sums++;
        out->n_sums_joined += faster;
        if (faster) {
            take_away(tuner, out, product->apart, together->count);
        } else {
            together->count = 0;
        }
    }
    return true;
}

static void choose_joined(const Tuner *tuner, TuneResult *out) {
    for (int i = 0; i < tuner->n_products; i++) {
        const Product *product = &tuner->products[i];
        TunedProduct *together = &out->products[i];
        if (!is_joining(product) || together->count == 0) continue;
        TunedProduct *apart = &out->products[product->apart];
        bool joined = is_joined(product, together, apart);
        out->n_joinable++;
        out->n_joined += joined;
        if (joined) continue;
        apart->count += together->count * product->command.layout.batch;
        together->count = 0;
    }
}

/* Leaves of each pair what training is to use. */
static bool choose_pairs(Tuner *tuner, TuneResult *out) {
    int n_kept = 0;
    if (!choose_sums(tuner, out) || !choose_gelus(tuner, out)) return false;
    choose_joined(tuner, out);
    for (int i = 0; i < tuner->n_products; i++) {
        if (out->products[i].count > 0) out->products[n_kept++] = out->products[i];
    }
    out->n_products = n_kept;
    return true;
}

/* --- all of it --- */

static int by_time(const void *a, const void *b) {
    const TunedProduct *x = a, *y = b;
    double in_x = (double)x->count * x->chosen_us, in_y = (double)y->count * y->chosen_us;
    return in_x < in_y ? 1 : in_x > in_y ? -1 : 0;
}

static bool tune_products(Tuner *tuner, TuneResult *out) {
    const CudaDevice *device = &tuner->device;
    int capacity = 0;
    out->n_products = tuner->n_products;
    out->products = ARENA_ARRAY(tuner->arena, TunedProduct, tuner->n_products);
    for (int i = 0; i < tuner->n_products; i++) {
        if (!tune_product(tuner, &tuner->products[i], &out->products[i])) return false;
    }
    if (!choose_pairs(tuner, out)) return false;
    qsort(out->products, (size_t)out->n_products, sizeof(*out->products), by_time);
    out->device = (PlanDevice){.name = arena_strdup(tuner->arena, device->name),
                               .arch = arena_strdup(tuner->arena, device->arch),
                               .library_version = (int64_t)device->api->cublasLtGetVersion()};
    for (int i = 0; i < out->n_products && out->device.n_algos < MAX_PLAN_ALGOS; i++) {
        if (out->products[i].chosen_us < 0) continue;
        ARENA_PUSH(tuner->arena, out->device.algos, out->device.n_algos, capacity,
                   out->products[i].algo);
    }
    if (out->device.n_algos) return tuner_tune_attentions(tuner, out);
    diag_error(tuner->diag, NO_LOC, "%s: no product of the plan could be timed", device->name);
    return false;
}

static void release(Tuner *tuner) {
    const CuApi *api = tuner->device.api;
    if (!api) return;
    gemm_table_destroy(tuner->table);
    attention_table_destroy(tuner->attention_table);
    if (tuner->begin) api->cudaEventDestroy(tuner->begin);
    if (tuner->end) api->cudaEventDestroy(tuner->end);
    if (tuner->stream) api->cudaStreamDestroy(tuner->stream);
    if (tuner->memory) api->cudaFree(tuner->memory);
    if (tuner->workspace) api->cudaFree(tuner->workspace);
    cuda_device_close(&tuner->device);
}

bool cuda_tune(const Plan *plan, const TuneOptions *options, Arena *arena, TuneResult *out,
               Diag *diag) {
    Tuner tuner = {.options = options, .plan = plan, .arena = arena, .diag = diag};
    *out = (TuneResult){0};
    bool fine = cuda_device_open(&tuner.device, cuda_api(), options->device_ordinal, diag) &&
                cuda_device_start_blas(&tuner.device, diag) && collect(&tuner, plan) &&
                allocate(&tuner) && tune_products(&tuner, out);
    release(&tuner);
    return fine;
}
