/* What `show` says of a step on CUDA devices: traffic and time of each kernel.
 *
 * Would catch: room for workspace counted as traffic; kernels that only join partial sums given
 * their node's whole work; a node's time lost or paid twice where its work is part of another's
 * command; rows that do not add up to the step; of many micro-batches more or fewer; other prices
 * than the step's prediction has, or a start of its own for each parameter that one kernel updates.
 */
#include "frontend/lua/cluster_read.h"
#include "planner/cost/cost.h"
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/summary.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

enum { ROWS = 2 * 64, MODEL = 128, LAYERS = 2, LAUNCH_US = 3 }; /* 2 sequences of 64 tokens */

/* Every node that runs takes a time of its own; returns their sum. */
static double price_nodes(const Plan *plan, Arena *arena, CudaPrices *out) {
    const Graph *graph = plan->programs[plan->stages[cuda_largest_stage(plan)].program].graph;
    double *us = ARENA_ARRAY(arena, double, graph->n_nodes), sum = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (!(OPS[graph->nodes[n]->op].flags & KERNEL)) continue;
        us[n] = 100 + n * n % 101;
        sum += us[n];
    }
    *out = (CudaPrices){"a device", LAUNCH_US, us};
    return sum;
}

/* What is no node's work: the step's beginning, inputs and results; or next to none of it. */
static int64_t count_small(const CudaSummary *s) {
    static const char *const NAMES[] = {
        "begin_step",           "copy_input",     "copy_scalar",       "reduce_finish", "norm_join",
        "attention_delta_bf16", "embedding_join", "sumsq_finish_many", "copy_rows_16"};
    int64_t count = 0;
    for (int i = 0; i < s->n_rows; i++)
        for (size_t k = 0; k < sizeof(NAMES) / sizeof(NAMES[0]); k++)
            if (strcmp(s->rows[i].name, NAMES[k]) == 0) count += s->rows[i].count;
    return count;
}

static const CudaKernelRow *find_row(const CudaSummary *s, const char *name) {
    for (int i = 0; i < s->n_rows; i++)
        if (strcmp(s->rows[i].name, name) == 0) return &s->rows[i];
    CHECK(false, "no row for %s", name);
    static const CudaKernelRow NONE = {.name = ""};
    return &NONE;
}

static bool is_near(double a, double b) {
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* As the search's rules have it: the rows are the step, but for launches that do next to nothing.
 */
static void test_prices(Run *run) {
    Cluster *cluster = cluster_read(run->arena, "h200-dgx", NULL, run->diag);
    CudaSummary s;
    check_begin("rows add up to the step's prediction");
    CHECK(cluster, "%s", diag_text(run->diag));
    if (!cluster) return;
    Device device = device_of_cluster(cluster, DTYPE_BF16);
    ProgramCost cost = cost_program(run->plan, 0, &device, run->arena);
    const double *node_us = cost_nodes(run->plan, 0, &device, run->arena);
    CudaPrices prices = {"h200-dgx", device.call_us, node_us};
    CHECK(cuda_summarize(run->plan, &prices, run->arena, &s, run->diag), "%s",
          diag_text(run->diag));
    double step_us = cost.forward[0].us + cost.backward[0].us, small = (double)count_small(&s);
    for (int part = 0; part < N_UPDATE_PARTS; part++) step_us += cost.update[part].us;
    CHECK(s.us >= step_us * (1 - 1e-9) && s.us <= step_us + device.call_us * (small + 4),
          "rows take %g us, the step %g", s.us, step_us);

    double update_us = 0, bytes = 0;
    for (int i = 0; i < s.n_rows; i++) {
        if (strcmp(s.rows[i].name, "adamw_many") != 0) continue;
        update_us += s.rows[i].us;
        bytes += s.rows[i].bytes;
    }
    double rate = cluster->device.memory_bytes_per_second * cluster->device.memory_fraction;
    CHECK(update_us > 0 && update_us < 2 * device.call_us + 1e6 * bytes / rate,
          "updates of %g bytes take %g us", bytes, update_us);
}

/* Of a step in pieces only few micro-batches are looked at. */
static void test_pieces(void) {
    static const ModelSetting SETTINGS[] = {
        {"model", "32"}, {"heads", "4"}, {"seq", "8"}, {"layers", "2"}, {"vocab", "61"}};
    static const Layout LAYOUTS[] = {{1, 1, 1, 1, 1, "1f1b", .n_split = 0},
                                     {2, 1, 2, 1, 1, "1f1b", .n_split = 0}};
    for (size_t i = 0; i < sizeof(LAYOUTS) / sizeof(LAYOUTS[0]); i++) {
        enum { N_MICRO = 1500 };
        Run run;
        CudaSummary s;
        CudaPrices prices;
        CommandList list = {0};
        check_begin("a step in pieces has the commands that it has");
        bool good = run_plan_for(&run, "models/gpt.lua", SETTINGS, 5, &LAYOUTS[i], N_MICRO, false,
                                 true, DTYPE_F32) &&
                    price_nodes(run.plan, run.arena, &prices) > 0 &&
                    cuda_summarize(run.plan, &prices, run.arena, &s, run.diag) &&
                    cuda_emit_stage(run.plan, s.stage, NULL, NULL, run.arena,
                                    kernel_cache_create(run.arena), &list, run.diag);
        CHECK(good, "%s", diag_text(run.diag));
        if (good) {
            int64_t n_messages = 0, count = 0;
            for (int c = 0; c < list.count; c++)
                n_messages += list.items[c].kind >= COMMAND_COLLECTIVE;
            for (int r = 0; r < s.n_rows; r++) count += s.rows[r].count;
            CHECK(s.in_pieces && s.n_nodes == command_count_nodes(&list), "%lld nodes, not %lld",
                  (long long)s.n_nodes, (long long)command_count_nodes(&list));
            CHECK(count == list.count && s.n_messages == n_messages,
                  "%lld commands, not %d; %lld messages, not %lld", (long long)count, list.count,
                  (long long)s.n_messages, (long long)n_messages);
            const CudaKernelRow *inputs = find_row(&s, "copy_input");
            CHECK(inputs->count >= N_MICRO, "%lld inputs", (long long)inputs->count);
        }
        command_list_release(&list);
        run_close(&run);
    }
}

int main(void) {
    static const Layout LAYOUT = {1, 1, 1, 2, 1, "1f1b", .n_split = 0};
    static const ModelSetting SETTINGS[] = {
        {"model", "128"}, {"heads", "2"}, {"seq", "64"}, {"ffn", "512"}, {"layers", "2"}};
    Run run;
    CudaSummary s;
    CudaPrices prices;
    double nodes_us = 0;
    check_begin("a plan's kernels: traffic and time of each");
    bool good =
        run_plan_for(&run, "models/gpt.lua", SETTINGS, 5, &LAYOUT, 2, false, true, DTYPE_BF16) &&
        (nodes_us = price_nodes(run.plan, run.arena, &prices)) > 0 &&
        cuda_summarize(run.plan, &prices, run.arena, &s, run.diag);
    CHECK(good, "%s", diag_text(run.diag));
    if (good) {
        const CudaKernelRow *product = find_row(&s, "product 128 x 128 x 512"); /* a gradient */
        double elements = ROWS * MODEL + 4 * MODEL * MODEL + 4 * ROWS * MODEL;
        CHECK(product->count == LAYERS, "%lld products", (long long)product->count);
        double bytes = LAYERS * 2 * elements; /* and the step's state */
        CHECK(product->bytes >= bytes && product->bytes < bytes + 200, "%g bytes, not %g",
              product->bytes, bytes);

        /* Of each normalisation: the input, its gradient twice, statistics, scale and offset; of
         * those in blocks the gradient that came past; and of all but the first the sum that is the
         * gradient of the bias before it. */
        const CudaKernelRow *first = find_row(&s, "layernorm_grad_narrow_bf16");
        const CudaKernelRow *norm = find_row(&s, "layernorm_grad_sum_narrow_bf16");
        const CudaKernelRow *join = find_row(&s, "norm_join");
        double large = ((double)(norm->count + first->count) * 3 + 2 * LAYERS) * 2 * ROWS * MODEL;
        CHECK(norm->count == 2 * LAYERS && first->count == 1 && join->count == norm->count + 1,
              "%lld, %lld and %lld", (long long)norm->count, (long long)first->count,
              (long long)join->count);
        double bytes_seen = norm->bytes + first->bytes;
        CHECK(bytes_seen > large && bytes_seen < 1.1 * large, "%g bytes, of tensors %g", bytes_seen,
              large);
        CHECK(join->bytes == 0 && is_near(join->us, (double)join->count * LAUNCH_US),
              "%g bytes, %g us to join", join->bytes, join->us);

        /* Read once and written once, for the log-sum-exp, too: its price is the gradient's. */
        const CudaKernelRow *loss = find_row(&s, "cross_entropy_bf16");
        double logits = 2.0 * ROWS * (double)run.plan->vocab;
        CHECK(loss->count == 1 && loss->bytes > 2 * logits && loss->bytes < 2.1 * logits,
              "%lld, %g bytes, of logits %g", (long long)loss->count, loss->bytes, logits);

        const CudaKernelRow *keys = find_row(&s, "attention_keys_64_bf16");
        const CudaKernelRow *queries = find_row(&s, "attention_queries_64_bf16");
        CHECK(is_near(keys->us / 4, queries->us / 3) &&
                  is_near(keys->flops / 4, queries->flops / 3),
              "by keys %g us, by queries %g", keys->us, queries->us);

        double us = 0;
        for (int i = 0; i < s.n_rows; i++) us += s.rows[i].us;
        CHECK(is_near(us, s.us), "rows take %g us, the step %g", us, s.us);
        nodes_us += (double)count_small(&s) * LAUNCH_US;
        CHECK(is_near(us, nodes_us), "rows take %g us, their nodes %g", us, nodes_us);
    }
    if (good) test_prices(&run);
    run_close(&run);
    test_pieces();
    return check_report();
}
