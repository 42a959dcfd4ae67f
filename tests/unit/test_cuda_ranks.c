/* Several processes with a GPU each, in one process and without any: every rank's step is captured
 * with NCCL's messages on the fake. Proved for all ranks: their graphs (dag_check.h), that each
 * communicator is given the same messages in the same order, and that sends meet receives. All
 * graphs are then run together, each in random orders, from the memory of a run of virtual ranks:
 * the step must give the bits that the virtual ranks get.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip captured ranks: built without CUDA's headers");
    return 0;
}
#else

#include "ir/message_group.h"
#include "planner/decode/decode.h"
#include "runtime/cuda/driver/modules.h"
#include "runtime/cuda/driver/nccl.h"
#include "runtime/cuda/emit.h"
#include "runtime/decoder.h"
#include "tests/unit/cuda_graph.h"

enum { MOST_RANKS = 8, MOST_COMMS = 512 };

static const Variant GPT = {
    "gpt", "models/gpt.lua", 4, DTYPE_F32, {COMMON, {"vocab", "61"}, {"ffn", "64"}}};
static const Variant EXPERTS = {
    "experts bf16", "tests/models/experts.lua", 4, DTYPE_BF16, {{"experts", "8"}, {"layers", "1"}}};
static const Variant LLAMA = {"llama, a shared key head, bf16",
                              "models/llama.lua",
                              2,
                              DTYPE_BF16,
                              {COMMON, {"vocab", "61"}, {"kv_heads", "1"}, {"ffn", "88"}}};

static const Variant LLAMA_F16 = {"llama gqa f16",
                                  "models/llama.lua",
                                  2,
                                  DTYPE_F16,
                                  {COMMON, {"vocab", "61"}, {"kv_heads", "2"}, {"ffn", "88"}}};

/* Two values cross a border. */
static const Variant T5 = {"t5",
                           "models/t5.lua",
                           2,
                           DTYPE_F32,
                           {SIZES, {"layers", "2"}, {"source", "8"}, {"vocab", "64"}}};

/* All-to-alls among ranks of c, which divides sequences or heads. */
static const Variant STATES = {"states",
                               "models/hybrid.lua",
                               2,
                               DTYPE_F32,
                               {SIZES,
                                {"layers", "2"},
                                {"vocab", "61"},
                                {"pattern", "MD"},
                                {"feed", "none"},
                                {"state_groups", "1"},
                                {"state_heads", "8"},
                                {"state_keys", "6"},
                                {"state_values", "4"}}};

/* And among those that ZeRO divides matrices among. */
static const Variant MUON = {
    "muon",
    "models/gpt.lua",
    4,
    DTYPE_F32,
    {{"optimizer", "muon"}, SIZES, {"layers", "4"}, {"vocab", "61"}, {"ffn", "64"}}};

/* One rank's process. */
typedef struct Process {
    CudaDevice device;
    RankContext rank;
    NcclWorld *world;
    Arena *of_world;
    KernelCache *generated;
    GeneratedModules *modules;
    ReplayContext context;
    Replay replay;
    EmitMemory memory;
    EpilogueCheck epilogues;
    void *state, *staging, *progress, *logits;
    const FakeGraph *graph;
    EmitJob job;
    const Decoder *decoder; /* of a job of decoding: whose inputs its chunk has */
} Process;

/* Ids by who takes part, and how often they have made one: no rank waits for another here. */
typedef struct Exchange {
    int rank, n_made;
    struct {
        int n_ranks, ranks[MOST_RANKS], count;
    } made[MOST_COMMS];
} Exchange;

static bool broadcast(void *user, const int *ranks, int n_ranks, void *bytes, size_t n_bytes,
                      Diag *diag) {
    Exchange *exchange = user;
    size_t size = (size_t)n_ranks * sizeof(int);
    (void)diag;
    int i = 0;
    while (i < exchange->n_made && (exchange->made[i].n_ranks != n_ranks ||
                                    memcmp(exchange->made[i].ranks, ranks, size) != 0)) {
        i++;
    }
    if (i == exchange->n_made) {
        exchange->n_made++;
        exchange->made[i].n_ranks = n_ranks;
        memcpy(exchange->made[i].ranks, ranks, size);
    }
    memset(bytes, 0, n_bytes);
    int length = snprintf(bytes, n_bytes, "%d:", exchange->made[i].count++);
    for (int k = 0; k < n_ranks; k++) {
        length += snprintf((char *)bytes + length, n_bytes - (size_t)length, " %d", ranks[k]);
    }
    return true;
}

static void *workspace_of(void *user, int rank, StreamKind stream) {
    (void)rank, (void)stream;
    return ((Process *)user)->rank.workspace;
}

static cudaKernel_t generated_of(void *user, const GeneratedKernel *kernel) {
    return generated_modules_find(((Process *)user)->modules, kernel);
}

static bool supports_epilogue(void *user, const GemmCommand *gemm) {
    return gemm_table_supports(((Process *)user)->context.gemms, gemm);
}

/* Both slots hold the input of step 2. */
static void stage(Process *p, const Plan *plan) {
    int64_t batch = (int64_t)plan->global_batch * plan_row(plan);
    int64_t slot_bytes = emit_staging_bytes(plan);
    DeviceState state = {.seed = plan->seed,
                         .step = 2,
                         .learning_rate = (float)LEARNING_RATE,
                         .step_f32 = 2,
                         .label_share = 1, /* all count */
                         .train = 1};
    for (int slot = 0; slot < STAGING_SLOTS; slot++) {
        unsigned char *at = (unsigned char *)p->staging + slot * slot_bytes;
        memcpy(at, &state, sizeof(state));
        int32_t *tokens = (int32_t *)(void *)(at + STAGING_HEADER);
        const int64_t n = plan->context ? emit_decode_positions(plan) : 0;
        for (int i = 0; i < N_DECODE_INPUTS && n; i++) {
            memcpy(tokens + i * n, p->decoder->inputs[i], (size_t)n * sizeof(int32_t));
        }
        if (n) continue;
        fill_batch(plan, 1, tokens, tokens + batch);
    }
}

static bool allocate(Process *p, const Plan *plan, const void *start, Diag *diag) {
    const CuApi *api = p->device.api;
    size_t bytes = (size_t)p->rank.stage->arena_bytes;
    void *memory = NULL;
    if (!nccl_world_allocate(p->world, bytes, &memory, diag)) return false;
    memcpy(memory, start, bytes);
    rank_set_memory(&p->rank, memory);
    api->cudaMalloc(&p->state, sizeof(DeviceState));
    memset(p->state, 0, sizeof(DeviceState));
    api->cudaHostAlloc(&p->staging, (size_t)(STAGING_SLOTS * emit_staging_bytes(plan)), 0);
    api->cudaHostAlloc(&p->progress, N_STREAM_KINDS * sizeof(uint32_t), 0);
    if (plan->context) {
        api->cudaHostAlloc(&p->logits, (size_t)emit_logits_bytes(plan, DECODE_WRITE), 0);
    }
    p->memory = (EmitMemory){
        .state = p->state, .staging = p->staging, .progress = p->progress, .logits = p->logits};
    stage(p, plan);
    return true;
}

/* What the engine does on the GPU of one rank, for the process' job. */
static bool capture(Process *p, const Plan *plan, int rank, const void *start, Arena *arena,
                    Diag *diag) {
    enum { PLACE = 16 };
    Exchange *exchange = ARENA_NEW(arena, Exchange);
    const NcclExchange how = {.user = exchange, .broadcast = broadcast};
    CommandList list = {0};
    exchange->rank = rank;
    p->rank = rank_context(plan, rank, arena);
    p->generated = kernel_cache_create(arena);
    if (!cuda_device_open(&p->device, cuda_api(), 0, diag) ||
        !cuda_device_start_blas(&p->device, diag)) {
        return false;
    }
    p->of_world = arena_create();
    p->world = nccl_world_create(&p->device, plan, rank, &how, &(NcclOptions){.timeout_seconds = 5},
                                 p->of_world, diag);
    if (!p->world || !allocate(p, plan, start, diag)) return false;
    p->context =
        (ReplayContext){.device = &p->device,
                        .gemms = gemm_table_create(&p->device, false,
                                                   p->rank.parts.bytes[WORKSPACE_COMPUTE], arena),
                        .messenger = nccl_world_messenger(p->world),
                        .workspace = workspace_of,
                        .workspace_user = p,
                        .generated = generated_of,
                        .generated_user = p,
                        .arena = arena};
    p->epilogues = (EpilogueCheck){.supports = supports_epilogue, .user = p, .sums_bias = NULL};
    p->memory.epilogues = &p->epilogues;
    if (!emit_rank(&p->rank, &p->memory, p->job, p->generated, &list, diag)) return false;
    p->modules = generated_modules_load(&p->device, p->generated, arena, diag);
    if (!p->modules) return false;
    if (!replay_prepare(&p->replay, &p->context, &list, diag)) return false;
    CHECK(command_count_nodes(&p->replay.list) > 0, "no nodes");
    if (!replay_issue_new_entries(&p->replay, &(Replay){0}, diag)) return false;
    memcpy(p->rank.memory, start, (size_t)p->rank.stage->arena_bytes); /* as it was */
    const char *before = arena_alloc(p->of_world, PLACE);
    if (!replay_capture(&p->replay, REPLAY_GRAPH, diag)) return false;
    const char *after = arena_alloc(p->of_world, PLACE);
#if defined(__SANITIZE_ADDRESS__) /* puts each allocation elsewhere */
    const bool stays = before == after;
#else
    const bool stays = after != before + PLACE;
#endif
    CHECK(!stays, "messages leave memory behind, as they would each step");
    p->graph = fake_cuda_graph(fake_cuda_n_graphs() - 1);
    CHECK(p->graph->n_nodes == command_count_nodes(&p->replay.list), "%d nodes, counted %lld",
          p->graph->n_nodes, (long long)command_count_nodes(&p->replay.list));
    return true;
}

static void release(Process *p) {
    const CuApi *api = p->device.api;
    if (!api) return;
    replay_destroy(&p->replay);
    gemm_table_destroy(p->context.gemms);
    replay_context_destroy(&p->context);
    if (p->modules) generated_modules_unload(p->modules);
    nccl_world_destroy(p->world, false);
    nccl_world_free(p->world, p->rank.memory);
    api->cudaFree(p->state);
    api->cudaFreeHost(p->staging);
    api->cudaFreeHost(p->progress);
    if (p->logits) api->cudaFreeHost(p->logits);
    cuda_device_close(&p->device);
    arena_destroy(p->of_world);
}

static void compare_parameters(const Process *p, const RankContext *virtual) {
    const Graph *graph = p->rank.program->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        Value value = node_value((Node *)node, 0);
        size_t bytes =
            (size_t)type_local_bytes(value_type(value), value_sharding(value), &p->rank.plan->mesh);
        CHECK(memcmp(executor_address(&p->rank, value, 0), executor_address(virtual, value, 0),
                     bytes) == 0,
              "rank %d: '%s' differs", p->rank.rank, node_string(node, ATTR_name));
    }
}

/* Messages of a group are one node: of several messages, or, where sums lie one behind the other,
 * of a single one. */
static void check_groups(const FakeGraph *graph, const RankContext *rank) {
    const Graph *program = rank->program->graph;
    int n_groups = 0, n_nodes = 0, n_planned = 0;
    bool scatters = false;
    for (int i = 0; i < graph->n_nodes; i++) {
        const FakeNode *node = &graph->nodes[i];
        n_groups += node->kind == FAKE_NCCL && node->message.n_more > 0;
        bool sums = node->kind == FAKE_NCCL && node->message.kind == FAKE_ALL_REDUCE;
        const int *size = rank->plan->mesh.size;
        bool whole = run_zero == 0 && size[MESH_T] == 1 && size[MESH_C] == 1 && size[MESH_E] == 1;
        n_nodes += sums;
        CHECK(!sums || !whole || node->message.n_more <= 1,
              "gradients lie one behind the other, and are sent as %d", node->message.n_more + 1);
    }
    for (int n = 0; n < program->n_nodes; n++) {
        const Node *node = program->nodes[n];
        scatters |= node_is_joined(node) && node->op != OP_ALL_REDUCE;
        n_planned +=
            node->phase == PHASE_UPDATE && node->op == OP_ALL_REDUCE && !node_is_joined(node);
    }
    CHECK(n_groups > 0 || !scatters, "no groups of messages");
    CHECK(n_nodes >= n_planned, "%d nodes for %d sums", n_nodes, n_planned);
    CHECK(scatters == (run_zero > 0), "groups of shards with ZeRO-%d", run_zero);
}

static void check_ranks(Process *processes, int n_ranks, const Run *run) {
    char why[512] = "";
    const FakeGraph *graphs[MOST_RANKS];
    for (int r = 0; r < n_ranks; r++) {
        graphs[r] = processes[r].graph;
        CHECK(dag_check(graphs[r], why, sizeof(why)), "rank %d: %s", r, why);
        check_groups(graphs[r], &processes[r].rank);
    }
    CHECK(dag_check_messages(graphs, n_ranks, why, sizeof(why)), "%s", why);
    CHECK(fake_cuda_launch_together(graphs, n_ranks, 5), "launch: %s", fake_cuda_defect(0));
    for (int r = 0; r < n_ranks; r++) compare_parameters(&processes[r], &run->engine->ranks[r]);
}

/* Reads three tokens of one sequence and writes one behind them; the arenas before and after that
 * are `start` and the engine's. */
static bool write_one(Run *run, Decoder *decoder, void *start[2], float *logits, Arena *arena) {
    const int32_t prompt[] = {3, 1, 4}, next[] = {1, -1};
    if (!decoder_read(decoder, 0, prompt, 3, logits, run->diag)) return false;
    for (int r = 0; r < 2; r++) {
        const RankContext *rank = &run->engine->ranks[r];
        start[r] = arena_alloc(arena, (size_t)rank->stage->arena_bytes);
        memcpy(start[r], rank->memory, (size_t)rank->stage->arena_bytes);
    }
    return decoder_write(decoder, next, logits, run->diag);
}

static void check_decoded(Process processes[2], const Run *run, const float *logits) {
    const FakeGraph *graphs[2] = {processes[0].graph, processes[1].graph};
    const size_t bytes = (size_t)run->plan->vocab * sizeof(float);
    char why[512] = "";
    for (int r = 0; r < 2; r++)
        CHECK(dag_check(graphs[r], why, sizeof(why)), "rank %d: %s", r, why);
    CHECK(dag_check_messages(graphs, 2, why, sizeof(why)), "%s", why);
    CHECK(fake_cuda_launch_together(graphs, 2, 5), "launch: %s", fake_cuda_defect(0));
    for (int r = 0; r < 2; r++) {
        CHECK(memcmp(processes[r].logits, logits, bytes) == 0, "rank %d: other logits", r);
    }
}

/* A chunk of a plan for decoding over t: all ranks have the logits of virtual ranks, to the bit. */
static void check_decoding(const Variant *variant) {
    static const Layout ONE = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    const EngineOptions options = {.device = DEVICE_CUDA, .virtual_ranks = true};
    char name[160];
    Run run;
    Process processes[2] = {0};
    Arena *arena = arena_create();
    void *start[2];
    DecodeObstacle obstacle;
    snprintf(name, sizeof(name), "ranks with NCCL: %s, written over t", variant->name);
    check_begin(name);
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.poison = true, .seed = 3}));
    bool done = plan(&run, variant, &ONE);
    const DecodeRequest request = {.model = "m",
                                   .forward = done ? run.plan->programs[0].graph : NULL,
                                   .n_blocks = done ? run.plan->n_blocks : 0,
                                   .context = 8,
                                   .vocab = done ? run.plan->vocab : 0,
                                   .precision = variant->precision,
                                   .sequences = 2,
                                   .chunk = 4,
                                   .t = 2,
                                   .cuda = true};
    if (done) run.plan = decode_plan(run.arena, &request, &obstacle, run.diag);
    if (done && run.plan) run.engine = engine_create(run.plan, &options, run.diag);
    done = done && run.engine;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        float *logits = ARENA_ARRAY(arena, float, 2 * run.plan->vocab);
        engine_init_parameters(run.engine);
        Decoder *decoder = decoder_create(run.engine, run.plan, arena);
        done = write_one(&run, decoder, start, logits, arena);
        for (int r = 0; done && r < 2; r++) {
            processes[r].job = EMIT_DECODE + DECODE_WRITE;
            processes[r].decoder = decoder;
            done = capture(&processes[r], run.plan, r, start[r], arena, run.diag);
        }
        CHECK(done, "%s", diag_text(run.diag));
        if (done) check_decoded(processes, &run, logits);
    }
    for (int r = 0; r < 2; r++) release(&processes[r]);
    close_on_fake(&run);
    arena_destroy(arena);
    check_end();
}

static void check_plan(const Variant *variant, const Layout *layout) {
    char name[160], full[200];
    Run run;
    Process processes[MOST_RANKS] = {0};
    Arena *arena = arena_create();
    void *start[MOST_RANKS] = {NULL};
    int n_ranks = layout->t * layout->d * layout->p * run_context * run_experts * run_replicas;
    snprintf(full, sizeof(full), "ranks with NCCL: %s",
             layout_name(variant->name, layout, name, sizeof(name)));
    check_begin(full);
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    unsetenv("NCCL_GRAPH_MIXING_SUPPORT");
    bool done = start_on_fake(&run, variant, layout, GRAPH) && run_steps(&run, 1, LEARNING_RATE);
    for (int r = 0; done && r < n_ranks; r++) {
        const RankContext *rank = &run.engine->ranks[r];
        start[r] = arena_alloc(arena, (size_t)rank->stage->arena_bytes);
        memcpy(start[r], rank->memory, (size_t)rank->stage->arena_bytes);
    }
    done = done && run_steps_from(&run, 1, 1, LEARNING_RATE);
    for (int r = 0; done && r < n_ranks; r++) {
        done = capture(&processes[r], run.plan, r, start[r], arena, run.diag);
    }
    CHECK(done, "%s", diag_text(run.diag));
    if (done) check_ranks(processes, n_ranks, &run);
    bool several = variant == &T5 && layout->n_chunks > 1;
    CHECK(!done || !getenv("NCCL_LAUNCH_ORDER_IMPLICIT") == several, "messages' order is %s",
          several ? "NCCL's" : "free");
    const char *mixing = getenv("NCCL_GRAPH_MIXING_SUPPORT");
    CHECK(!done || (mixing && strcmp(mixing, "0") == 0), "graphs record events for NCCL");
    for (int r = 0; r < n_ranks; r++) release(&processes[r]);
    close_on_fake(&run);
    arena_destroy(arena);
    check_end();
}

/* Nothing is given back while the device waits for a rank that never comes. */
static void check_start(void) {
    static const Layout LAYOUT = {1, 1, 2, 4, 1, "1f1b", false, NULL, 0};
    CudaDevice device;
    Run run;
    check_begin("a rank that is missing while pairs are connected");
    Exchange *exchange = calloc(1, sizeof(*exchange));
    const NcclExchange how = {.user = exchange, .broadcast = broadcast};
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.hung = true}));
    bool ready =
        exchange && plan(&run, &GPT, &LAYOUT) && cuda_device_open(&device, cuda_api(), 0, run.diag);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        const NcclWorld *world =
            nccl_world_create(&device, run.plan, 0, &how, &(NcclOptions){.timeout_seconds = 0.3},
                              run.arena, run.diag);
        CHECK(!world && strstr(diag_text(run.diag), "the first message of communicator"), "%s",
              diag_text(run.diag));
        cuda_device_close(&device);
    }
    run_close(&run);
    free(exchange);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%d defects: %s", fake_cuda_n_defects(), fake_cuda_defect(0));
    cuda_api_replace(NULL);
    fake_cuda_destroy();
    check_end();
}

/* Neither by us nor, as messages are captured, by NCCL: where it is not to be, and between machines
 * where NCCL could wait for ever. */
static void check_unregistered(const FakeOptions *fake, bool several_hosts, bool registers) {
    static const Layout LAYOUT = {1, 1, 2, 4, 1, "1f1b", false, NULL, 0};
    enum { BYTES = 1 << 20 };
    CudaDevice device;
    Run run;
    void *memory = NULL;
    check_begin(registers ? "memory that NCCL is to register, or not" : "nor between machines");
    Exchange *exchange = calloc(1, sizeof(*exchange));
    const NcclExchange how = {.user = exchange, .broadcast = broadcast};
    unsetenv("NCCL_GRAPH_REGISTER");
    cuda_api_replace(fake_cuda_create(fake));
    bool ready =
        exchange && plan(&run, &GPT, &LAYOUT) && cuda_device_open(&device, cuda_api(), 0, run.diag);
    for (int none = !registers; ready && none < 2; none++) {
        const NcclOptions options = {.timeout_seconds = 5,
                                     .no_registration = registers && none,
                                     .several_hosts = several_hosts};
        NcclWorld *world =
            nccl_world_create(&device, run.plan, 0, &how, &options, run.arena, run.diag);
        ready = world && nccl_world_allocate(world, BYTES, &memory, run.diag);
        const char *said = getenv("NCCL_GRAPH_REGISTER");
        CHECK(none ? said && strcmp(said, "0") == 0 : !said, "NCCL_GRAPH_REGISTER is %s",
              said ? said : "not set");
        if (ready) nccl_world_free(world, memory);
        nccl_world_destroy(world, false);
    }
    CHECK(ready, "%s", diag_text(run.diag));
    unsetenv("NCCL_GRAPH_REGISTER");
    if (ready) cuda_device_close(&device);
    free(exchange);
    close_on_fake(&run);
    check_end();
}

/* One communicator has one order in any NCCL; several have one since 2.26. */
static void check_version(int version, const Layout *layout, bool fine) {
    CudaDevice device;
    Run run;
    char name[80];
    snprintf(name, sizeof(name), "NCCL %d, %d stages", version, layout->p);
    check_begin(name);
    Exchange *exchange = calloc(1, sizeof(*exchange));
    const NcclExchange how = {.user = exchange, .broadcast = broadcast};
    cuda_api_replace(fake_cuda_create(&(FakeOptions){.nccl_version = version}));
    bool ready =
        exchange && plan(&run, &GPT, layout) && cuda_device_open(&device, cuda_api(), 0, run.diag);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        NcclWorld *world = nccl_world_create(
            &device, run.plan, 0, &how, &(NcclOptions){.timeout_seconds = 5}, run.arena, run.diag);
        CHECK(fine ? world != NULL : !world && strstr(diag_text(run.diag), "2.26 or newer"), "%s",
              diag_text(run.diag));
        nccl_world_destroy(world, false);
        cuda_device_close(&device);
    }
    free(exchange);
    close_on_fake(&run);
    check_end();
}

int main(void) {
    static const Layout of_stages = {1, 1, 2, 4, 1, "1f1b", false, NULL, 0},
                        of_batches = {1, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    static const Layout of_experts = {2, 2, 1, 1, 1, "1f1b", true, NULL, 0},
                        replicated = {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},
                        sequences = {1, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    static const Layout of_two[] = {{1, 1, 2, 2, 1, "1f1b", false, NULL, 0},
                                    {1, 1, 2, 2, 2, "zb-v", false, NULL, 0}};
    static const Layout layouts[] = {
        {2, 2, 2, 4, 1, "1f1b", true, NULL, 0},        {1, 2, 4, 2, 1, "1f1b", false, NULL, 0},
        {2, 1, 2, 2, 2, "interleaved", true, NULL, 0}, {1, 4, 1, 2, 1, "1f1b", false, NULL, 0},
        {1, 1, 4, 4, 1, "gpipe", false, UNEVEN_4, 4},  {1, 1, 3, 2, 2, "zb-v", false, ENDS_6, 6},
    };
    if (fake_missing()) {
        printf("skip captured ranks: %s\n", fake_missing());
        return 0;
    }
    forget_cache();
    check_start();
    check_unregistered(&(FakeOptions){0}, false, true);
    check_unregistered(&(FakeOptions){.nccl_version = 22809}, true, false);
    check_unregistered(&(FakeOptions){.nccl_version = 23201}, true, true);
    check_version(22506, &of_stages, false);
    check_version(22602, &of_stages, true);
    check_version(22506, &of_batches, true);
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        if (l % EACH == 0) check_plan(&GPT, &layouts[l]);
    }
    check_decoding(&LLAMA);
    check_decoding(&GPT);
    check_plan(&T5, &of_two[0]);
    check_plan(&T5, &of_two[1]);
    check_plan(&LLAMA, &layouts[0]);
    if (EACH == 1) check_plan(&LLAMA_F16, &layouts[2]);
    run_zero = 1;
    for (size_t l = 0; EACH == 1 && l < 2; l++) check_plan(&GPT, &layouts[l]);
    check_plan(&GPT, &layouts[3]);
    run_zero = 3;
    check_plan(&GPT, &layouts[3]);
    check_plan(&LLAMA, &layouts[3]);
    if (EACH == 1) check_plan(&GPT, &layouts[0]);
    run_replicas = 2;
    check_plan(&GPT, &replicated);
    run_replicas = 1;
    run_zero = 1;
    run_experts = 2;
    check_plan(&EXPERTS, &of_experts);
    run_experts = 1;
    check_plan(&MUON, &layouts[3]);
    run_zero = 0;
    run_context = 2;
    check_plan(&STATES, &sequences);
    run_context = 1;
    return check_report();
}
#endif
