#include "runtime/cuda/driver/replay.h"

#include "ir/base/clock.h"
#include "runtime/cuda/collective.h"

#include <stdlib.h>
#include <string.h>

/* A captured run of commands [first, first + count) of the origin stream, or, with no graph, one
 * command to issue. */
typedef struct Segment {
    int first, count;
    cudaGraphExec_t graph;
    bool is_shared; /* an earlier segment's graph */
} Segment;

void replay_context_destroy(ReplayContext *context) {
    if (!context->device || !context->device->api) return;
    const CuApi *api = context->device->api;
    for (int i = 0; i < context->n_streams; i++) api->cudaStreamDestroy(context->streams[i]);
    for (int i = 0; i < context->n_urgent; i++) api->cudaStreamDestroy(context->urgent[i]);
    for (int i = 0; i < context->n_events; i++) api->cudaEventDestroy(context->events[i]);
    context->n_streams = context->n_urgent = context->n_events = 0;
}

/* *streams has *n_streams, and `count` then. */
static bool grow_streams(ReplayContext *context, cudaStream_t **streams, int *n_streams, int count,
                         int priority, Diag *diag) {
    const CuApi *api = context->device->api;
    if (count <= *n_streams) return true;
    cudaStream_t *grown = ARENA_ARRAY(context->arena, cudaStream_t, count);
    if (*n_streams) memcpy(grown, *streams, (size_t)*n_streams * sizeof(*grown));
    *streams = grown;
    while (*n_streams < count) {
        if (!cuda_check(api,
                        api->cudaStreamCreateWithPriority(&grown[*n_streams], cudaStreamNonBlocking,
                                                          priority),
                        diag, "making a stream")) {
            return false;
        }
        ++*n_streams;
    }
    return true;
}

/* Which of the context's streams are the list's. Those of messages are urgent: behind a product's
 * blocks, which fill the device, a message would wait for all of them. */
static bool find_streams(Replay *replay, Diag *diag) {
    ReplayContext *context = replay->context;
    const CommandOrder *order = &replay->order;
    int least = 0, greatest = 0, n_plain = 0, n_urgent = 0;
    int *places = ARENA_ARRAY(context->arena, int, order->n_streams + 1);
    bool *urgent = ARENA_ARRAY(context->arena, bool, order->n_streams + 1);
    bool *seen = ARENA_ARRAY(context->arena, bool, order->n_streams + 1);
    for (int i = 0; i < replay->list.count; i++) {
        int s = order->streams[i];
        if (seen[s]) continue;
        seen[s] = true;
        urgent[s] = s > 0 && replay->list.items[i].stream != STREAM_COMPUTE;
        places[s] = urgent[s] ? n_urgent++ : n_plain++;
    }
    replay->streams = ARENA_ARRAY(context->arena, cudaStream_t, order->n_streams + 1);
    if (!cuda_check(context->device->api,
                    context->device->api->cudaDeviceGetStreamPriorityRange(&least, &greatest), diag,
                    "reading the priorities of streams") ||
        !grow_streams(context, &context->streams, &context->n_streams, n_plain, least, diag) ||
        !grow_streams(context, &context->urgent, &context->n_urgent, n_urgent, greatest, diag)) {
        return false;
    }
    for (int s = 0; s < order->n_streams; s++) {
        replay->streams[s] = urgent[s] ? context->urgent[places[s]] : context->streams[places[s]];
    }
    return true;
}

static bool grow_events(ReplayContext *context, int count, Diag *diag) {
    const CuApi *api = context->device->api;
    if (count <= context->n_events) return true;
    cudaEvent_t *events = ARENA_ARRAY(context->arena, cudaEvent_t, count);
    if (context->n_events) {
        memcpy(events, context->events, (size_t)context->n_events * sizeof(*events));
    }
    context->events = events;
    while (context->n_events < count) {
        if (!cuda_check(
                api,
                api->cudaEventCreateWithFlags(&events[context->n_events], cudaEventDisableTiming),
                diag, "making an event")) {
            return false;
        }
        context->n_events++;
    }
    return true;
}

static cudaKernel_t kernel_of(const Replay *replay, const LaunchCommand *launch) {
    const ReplayContext *context = replay->context;
    return launch->generated ? context->generated(context->generated_user, launch->generated)
                             : context->device->kernels[launch->kernel];
}

/* Kernels load lazily, which must not happen during a capture. */
static bool prepare_kernel(Replay *replay, const LaunchCommand *launch, Diag *diag) {
    int *prepared = launch->generated ? NULL : &replay->context->prepared_bytes[launch->kernel];
    if (prepared && *prepared > launch->shared_bytes) return true;
    if (prepared) *prepared = launch->shared_bytes + 1;
    return cuda_prepare_kernel(replay->context->device, kernel_of(replay, launch), launch, diag);
}

/* What packs and unpacks a message. */
static bool prepare_collective(Replay *replay, const CollectiveCommand *command, Diag *diag) {
    CollectiveStep *steps;
    Arena *arena = arena_create();
    int n_steps = cuda_group_steps(command, arena, &steps);
    bool fine = true;
    for (int i = 0; fine && i < n_steps; i++) {
        fine = !steps[i].is_launch || prepare_kernel(replay, &steps[i].launch, diag);
    }
    arena_destroy(arena);
    return fine;
}

static bool prepare_attention(Replay *replay, int i, Diag *diag) {
    const char *why;
    replay->attentions[i] =
        attention_table_find(replay->context->attentions, &replay->list.items[i].attention, &why);
    if (!replay->attentions[i]) diag_error(diag, NO_LOC, "cuDNN: no attention: %s", why);
    return replay->attentions[i] != NULL;
}

bool replay_prepare(Replay *replay, ReplayContext *context, CommandList *list, Diag *diag) {
    *replay = (Replay){.context = context, .list = *list};
    *list = (CommandList){0};
    order_commands(&replay->list, context->arena, &replay->order);
    replay->gemms = ARENA_ARRAY(context->arena, const GemmEntry *, replay->list.count + 1);
    replay->attentions =
        ARENA_ARRAY(context->arena, const AttentionEntry *, replay->list.count + 1);
    for (int i = 0; i < replay->list.count; i++) {
        const Command *command = &replay->list.items[i];
        if (command->kind == COMMAND_GEMM) {
            replay->gemms[i] = gemm_table_find(context->gemms, &command->gemm, diag);
            if (!replay->gemms[i]) return false;
        } else if (command->kind == COMMAND_ATTENTION) {
            if (!prepare_attention(replay, i, diag)) return false;
        } else if (command->kind == COMMAND_COLLECTIVE) {
            if (!prepare_collective(replay, &command->collective, diag)) return false;
        } else if (command->kind == COMMAND_LAUNCH) {
            if (!kernel_of(replay, &command->launch)) {
                diag_error(diag, NO_LOC, "a generated kernel is missing: %s",
                           command->launch.generated->name);
                return false;
            }
            if (!prepare_kernel(replay, &command->launch, diag)) return false;
        }
    }
    return find_streams(replay, diag) && grow_events(context, replay->order.n_events, diag);
}

static bool issue_launch(const Replay *replay, const LaunchCommand *launch, cudaStream_t stream,
                         Diag *diag) {
    const CudaDevice *device = replay->context->device;
    return cuda_check(device->api, cuda_launch(device, kernel_of(replay, launch), launch, stream),
                      diag,
                      launch->generated ? launch->generated->name : KERNELS[launch->kernel].name);
}

/* The command itself, without its waits. */
static bool issue_one(const Replay *replay, int i, cudaStream_t stream, Diag *diag) {
    const ReplayContext *context = replay->context;
    const CuApi *api = context->device->api;
    const Command *command = &replay->list.items[i];
    if (api->announce) api->announce(api->announce_user, command);
    switch (command->kind) {
    case COMMAND_LAUNCH: return issue_launch(replay, &command->launch, stream, diag);
    case COMMAND_GEMM:
        return cuda_check_blas(api,
                               gemm_issue(context->gemms, replay->gemms[i], &command->gemm,
                                          context->workspace(context->workspace_user,
                                                             command->info.rank, command->stream),
                                          stream),
                               diag,
                               command->gemm.bias || command->gemm.aux || command->gemm.c ||
                                       command->gemm.bias_grad
                                   ? "a matrix product with an epilogue (see --no-epilogues)"
                                   : "a matrix product");
    case COMMAND_ATTENTION:
        return attention_check(context->attentions,
                               attention_issue(context->attentions, replay->attentions[i],
                                               &command->attention, stream),
                               diag);
    case COMMAND_COPY:
        return cuda_check(api,
                          api->cudaMemcpyAsync(command->copy.to, command->copy.from,
                                               (size_t)command->copy.bytes,
                                               command->copy.to_host     ? cudaMemcpyDeviceToHost
                                               : command->copy.from_host ? cudaMemcpyHostToDevice
                                                                         : cudaMemcpyDeviceToDevice,
                                               stream),
                          diag, "a copy");
    case COMMAND_FILL:
        return cuda_check(api,
                          api->cudaMemsetAsync(command->fill.to, command->fill.byte,
                                               (size_t)command->fill.bytes, stream),
                          diag, "a fill");
    case COMMAND_COLLECTIVE:
        return context->messenger.collective(context->messenger.user, &command->collective,
                                             command->info.rank, stream, diag);
    case COMMAND_SEND:
    case COMMAND_RECV:
        return context->messenger.message(context->messenger.user, command, stream, diag);
    case N_COMMAND_KINDS: break;
    }
    return false;
}

static cudaStream_t stream_of(const Replay *replay, int i) {
    return replay->streams[replay->order.streams[i]];
}

static bool issue_waits(const Replay *replay, int i, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    const Command *command = &replay->list.items[i];
    for (int k = 0; k < command->n_waits; k++) {
        int event = replay->order.events[command->waits[k]];
        if (!cuda_check(
                api,
                api->cudaStreamWaitEvent(stream_of(replay, i), replay->context->events[event], 0),
                diag, "waiting for another stream")) {
            return false;
        }
    }
    return true;
}

static bool issue_record(const Replay *replay, int i, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    int event = replay->order.events[i];
    return event < 0 ||
           cuda_check(api,
                      api->cudaEventRecord(replay->context->events[event], stream_of(replay, i)),
                      diag, "recording an event");
}

static bool issue_joins(const Replay *replay, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    for (int k = 0; k < replay->order.n_joins; k++) {
        int event = replay->order.events[replay->order.joins[k]];
        if (!cuda_check(api,
                        api->cudaStreamWaitEvent(replay->context->streams[0],
                                                 replay->context->events[event], 0),
                        diag, "joining the streams")) {
            return false;
        }
    }
    return true;
}

/* Adds where and for what, once. */
static bool fail(const Replay *replay, int i, Diag *diag) {
    const CommandInfo *info = &replay->list.items[i].info;
    if (!info->node) return false;
    diag_note(diag, info->node->loc, "in %s of rank %d, %s%d, micro-batch %d",
              OPS[info->node->op].name, info->rank, task_kind_word(info->task), info->node->chunk,
              info->micro);
    return false;
}

static bool wait_for(const Replay *replay, cudaStream_t stream, const char *what, Diag *diag) {
    const ReplayContext *context = replay->context;
    const CuApi *api = context->device->api;
    if (context->wait) return context->wait(context->wait_user, stream, diag);
    return cuda_check(api, api->cudaStreamSynchronize(stream), diag, what);
}

bool replay_wait(const Replay *replay, Diag *diag) {
    return wait_for(replay, replay->context->streams[0], "running a step", diag);
}

/* A send can last until its receiver comes to it, which may first need what this rank sends or
 * does later: the host must not wait for one. */
static bool is_waited_for(const Command *command) {
    return !stream_sends(command->stream);
}

bool replay_issue(Replay *replay, ReplayVisitor before, ReplayVisitor after, void *user,
                  Diag *diag) {
    for (int i = 0; i < replay->list.count; i++) {
        const Command *command = &replay->list.items[i];
        bool wanted = !before || before(user, command);
        if (!issue_waits(replay, i, diag) ||
            (wanted && !issue_one(replay, i, stream_of(replay, i), diag)) ||
            !issue_record(replay, i, diag)) {
            return fail(replay, i, diag);
        }
        if (!after) continue;
        if (is_waited_for(command) && !wait_for(replay, stream_of(replay, i), "a command", diag)) {
            return fail(replay, i, diag);
        }
        if (!after(user, command)) break;
    }
    return issue_joins(replay, diag);
}

/* The library's entry for a command: all that have the same run the same kernels. NULL: none. */
static const void *library_entry(const Replay *replay, int i) {
    return replay->gemms[i] ? (const void *)replay->gemms[i] : replay->attentions[i];
}

/* Adds what is not among them; was it not? */
static bool add_entry(const void **entries, int *count, const void *entry) {
    for (int i = 0; i < *count; i++) {
        if (entries[i] == entry) return false;
    }
    entries[(*count)++] = entry;
    return true;
}

bool replay_issue_new_entries(const Replay *replay, const Replay *issued, Diag *diag) {
    int count = 0, most = issued->list.count + replay->list.count + 1;
    const void **entries = malloc((size_t)most * sizeof(*entries));
    if (!entries) BUG("out of memory for %d commands", most);
    bool fine = true;
    for (int i = 0; i < issued->list.count; i++) {
        const void *entry = library_entry(issued, i);
        if (entry) add_entry(entries, &count, entry);
    }
    for (int i = 0; fine && i < replay->list.count; i++) {
        const void *entry = library_entry(replay, i);
        if (!entry || !add_entry(entries, &count, entry)) continue;
        fine = issue_one(replay, i, replay->context->streams[0], diag) || fail(replay, i, diag);
    }
    free(entries);
    return fine;
}

bool replay_issue_timed(Replay *replay, const cudaEvent_t *begins, const cudaEvent_t *ends,
                        Diag *diag) {
    const CuApi *api = replay->context->device->api;
    for (int i = 0; i < replay->list.count; i++) {
        cudaStream_t stream = stream_of(replay, i);
        if (!issue_waits(replay, i, diag) ||
            !cuda_check(api, api->cudaEventRecord(begins[i], stream), diag, "timing a command") ||
            !issue_one(replay, i, stream, diag) ||
            !cuda_check(api, api->cudaEventRecord(ends[i], stream), diag, "timing a command") ||
            !issue_record(replay, i, diag)) {
            return fail(replay, i, diag);
        }
    }
    return issue_joins(replay, diag);
}

/* With all of it on the device, as a graph is that kernels could launch, the host tells the device
 * to begin and nothing else: on an H200 25 us for a step of GPT-2 124M instead of 240 to 400, in
 * which it wrote most of cuBLASLt's and cuDNN's nodes anew. Graphs that have more than kernels,
 * copies and fills (NCCL has host functions in them between machines) cannot be that. */
static bool make_executable(Replay *replay, cudaGraph_t graph, cudaGraphExec_t *out, Diag *diag) {
    static const unsigned long long FLAGS[] = {cudaGraphInstantiateFlagDeviceLaunch |
                                                   cudaGraphInstantiateFlagUseNodePriority,
                                               cudaGraphInstantiateFlagUseNodePriority};
    enum { N_FLAGS = sizeof(FLAGS) / sizeof(FLAGS[0]) };
    const CuApi *api = replay->context->device->api;
    cudaError_t status = cudaSuccess;
    const char *doing = NULL;
    for (int i = 0; i < N_FLAGS; i++) {
        doing = "making a graph executable";
        status = api->cudaGraphInstantiate(out, graph, FLAGS[i]);
        if (status == cudaSuccess) {
            doing = "uploading a graph";
            status = api->cudaGraphUpload(*out, replay->context->streams[0]);
            if (status == cudaSuccess) {
                replay->n_graphs++;
                replay->n_on_host += i > 0;
                return true;
            }
            if (i + 1 < N_FLAGS) api->cudaGraphExecDestroy(*out);
        }
        if (i + 1 == N_FLAGS) break;
        replay->why_on_host = status;
        api->cudaGetLastError(); /* forgets it */
    }
    return cuda_check(api, status, diag, doing);
}

static bool instantiate(Replay *replay, cudaGraph_t graph, cudaGraphExec_t *out, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    size_t n_nodes = 0;
    bool fine = cuda_check(api, api->cudaGraphGetNodes(graph, NULL, &n_nodes), diag,
                           "counting a graph's nodes") &&
                make_executable(replay, graph, out, diag);
    replay->n_nodes += n_nodes;
    api->cudaGraphDestroy(graph);
    return fine;
}

static bool capture_all(Replay *replay, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    cudaStream_t origin = replay->context->streams[0];
    cudaGraph_t graph = NULL;
    if (!cuda_check(api, api->cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal),
                    diag, "beginning a capture")) {
        return false;
    }
    bool fine = replay_issue(replay, NULL, NULL, NULL, diag);
    cudaError_t status = api->cudaStreamEndCapture(origin, &graph);
    if (!fine) {
        if (graph) api->cudaGraphDestroy(graph);
        return false;
    }
    return cuda_check(api, status, diag, "ending a capture") &&
           instantiate(replay, graph, &replay->graph, diag);
}

/* May command i stand in the middle of a captured piece? Inputs lie elsewhere for each micro-batch,
 * and what follows them is alike. */
static bool is_plain(const Replay *replay, int i) {
    const Command *command = &replay->list.items[i];
    bool is_input = command->kind == COMMAND_LAUNCH && !command->launch.generated &&
                    command->launch.kernel == KERNEL_copy_input;
    return replay->order.streams[i] == 0 && command->kind <= COMMAND_FILL && !is_input;
}

/* A piece ends with its task, before a command that waits and after one that others wait for. */
static int piece_end(const Replay *replay, int first) {
    const Command *items = replay->list.items;
    int i = first;
    while (i < replay->list.count && is_plain(replay, i) &&
           command_same_task(&items[i].info, &items[first].info) &&
           (i == first || items[i].n_waits == 0)) {
        if (replay->order.events[i++] >= 0) break;
    }
    return i;
}

static bool same_launch(const LaunchCommand *a, const LaunchCommand *b) {
    return a->kernel == b->kernel && a->generated == b->generated && a->grid.x == b->grid.x &&
           a->grid.y == b->grid.y && a->grid.z == b->grid.z && a->threads == b->threads &&
           a->shared_bytes == b->shared_bytes && a->args_bytes == b->args_bytes &&
           memcmp(a->args, b->args, a->args_bytes) == 0;
}

/* Of one entry of the library's table: operands are left to compare. */
static bool same_gemm(const GemmCommand *a, const GemmCommand *b) {
    return a->a == b->a && a->b == b->b && a->c == b->c && a->d == b->d && a->bias == b->bias &&
           a->aux == b->aux && a->bias_grad == b->bias_grad && a->scales_a.at == b->scales_a.at &&
           a->scales_b.at == b->scales_b.at && a->beta == b->beta && a->b_row == b->b_row &&
           gemm_strides_equal(&a->apart, &b->apart);
}

static bool same_attention(const AttentionCommand *a, const AttentionCommand *b) {
    return a->q == b->q && a->k == b->k && a->v == b->v && a->starts == b->starts && a->o == b->o &&
           a->lse == b->lse && a->d_o == b->d_o && a->dq == b->dq && a->dk == b->dk &&
           a->dv == b->dv && a->workspace == b->workspace;
}

/* Would a graph of one do for the other? */
static bool same_command(const Replay *replay, int i, int k) {
    const Command *a = &replay->list.items[i], *b = &replay->list.items[k];
    if (a->kind != b->kind || a->info.rank != b->info.rank || a->stream != b->stream ||
        library_entry(replay, i) != library_entry(replay, k)) {
        return false;
    }
    switch (a->kind) {
    case COMMAND_LAUNCH: return same_launch(&a->launch, &b->launch);
    case COMMAND_GEMM: return same_gemm(&a->gemm, &b->gemm);
    case COMMAND_ATTENTION: return same_attention(&a->attention, &b->attention);
    case COMMAND_COPY:
        return a->copy.to == b->copy.to && a->copy.from == b->copy.from &&
               a->copy.bytes == b->copy.bytes && a->copy.to_host == b->copy.to_host &&
               a->copy.from_host == b->copy.from_host;
    case COMMAND_FILL:
        return a->fill.to == b->fill.to && a->fill.byte == b->fill.byte &&
               a->fill.bytes == b->fill.bytes;
    default: return false;
    }
}

static bool same_piece(const Replay *replay, const Segment *a, const Segment *b) {
    bool same = a->count == b->count;
    for (int i = 0; same && i < a->count; i++)
        same = same_command(replay, a->first + i, b->first + i);
    return same;
}

/* FNV-1a over what tells most pieces apart: kernels' arguments and where products write. */
static uint64_t hash_piece(const Replay *replay, const Segment *piece) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = piece->first; i < piece->first + piece->count; i++) {
        const Command *command = &replay->list.items[i];
        const void *bytes = &command->kind;
        size_t n_bytes = sizeof(command->kind);
        if (command->kind == COMMAND_LAUNCH)
            bytes = command->launch.args, n_bytes = command->launch.args_bytes;
        if (command->kind == COMMAND_GEMM)
            bytes = &command->gemm.d, n_bytes = sizeof(command->gemm.d);
        for (size_t b = 0; b < n_bytes; b++)
            hash = (hash ^ ((const unsigned char *)bytes)[b]) * 0x100000001b3u;
    }
    return hash;
}

/* Pieces that have a graph of their own, by what is in them: open addressing. */
typedef struct PieceTable {
    Segment **slots;
    size_t n_slots; /* a power of two, more than there are pieces */
} PieceTable;

static PieceTable piece_table_create(int n_pieces, Arena *arena) {
    PieceTable table = {.n_slots = 64};
    while (table.n_slots < 2 * (size_t)n_pieces) table.n_slots *= 2;
    table.slots = ARENA_ARRAY(arena, Segment *, table.n_slots);
    return table;
}

/* One that is alike, or `piece` itself, which is in the table then. */
static Segment *piece_table_find(PieceTable *table, const Replay *replay, Segment *piece) {
    size_t at = hash_piece(replay, piece) & (table->n_slots - 1);
    while (table->slots[at] && !same_piece(replay, table->slots[at], piece))
        at = (at + 1) & (table->n_slots - 1);
    if (!table->slots[at]) table->slots[at] = piece;
    return table->slots[at];
}

static bool capture_piece(Replay *replay, Segment *segment, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    cudaStream_t origin = replay->context->streams[0];
    cudaGraph_t graph = NULL;
    bool fine = true;
    if (!cuda_check(api, api->cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal),
                    diag, "beginning a capture")) {
        return false;
    }
    for (int i = segment->first; fine && i < segment->first + segment->count; i++) {
        fine = issue_one(replay, i, origin, diag) || fail(replay, i, diag);
    }
    cudaError_t status = api->cudaStreamEndCapture(origin, &graph);
    if (!fine) {
        if (graph) api->cudaGraphDestroy(graph);
        return false;
    }
    return cuda_check(api, status, diag, "ending a capture") &&
           instantiate(replay, graph, &segment->graph, diag);
}

static bool capture_pieces(Replay *replay, Diag *diag) {
    enum { WORTH_A_GRAPH = 4 };
    Arena *arena = arena_create();
    PieceTable table = piece_table_create(replay->list.count / WORTH_A_GRAPH + 1, arena);
    bool fine = true;
    replay->segments = ARENA_ARRAY(replay->context->arena, Segment, replay->list.count + 1);
    for (int i = 0; fine && i < replay->list.count;) {
        Segment *segment = &replay->segments[replay->n_segments++];
        int end = piece_end(replay, i);
        *segment = (Segment){.first = i, .count = end > i ? end - i : 1};
        if (segment->count < WORTH_A_GRAPH) {
            segment->count = 1;
        } else {
            const Segment *alike = piece_table_find(&table, replay, segment);
            segment->is_shared = alike != segment;
            segment->graph = alike->graph;
            fine = segment->is_shared || capture_piece(replay, segment, diag);
        }
        i += segment->count;
    }
    arena_destroy(arena);
    return fine;
}

bool replay_capture(Replay *replay, ReplayMode mode, Diag *diag) {
    double start = clock_now();
    bool fine = true;
    if (replay->list.count && mode == REPLAY_GRAPH) fine = capture_all(replay, diag);
    if (replay->list.count && mode == REPLAY_SEGMENTED) fine = capture_pieces(replay, diag);
    replay->capture_seconds = clock_now() - start;
    return fine;
}

static bool launch_pieces(Replay *replay, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    for (int s = 0; s < replay->n_segments; s++) {
        const Segment *segment = &replay->segments[s];
        int last = segment->first + segment->count - 1;
        bool fine = issue_waits(replay, segment->first, diag);
        if (fine && segment->graph) {
            fine =
                cuda_check(api, api->cudaGraphLaunch(segment->graph, replay->context->streams[0]),
                           diag, "launching a graph");
        } else if (fine) {
            fine = issue_one(replay, last, stream_of(replay, last), diag);
        }
        if (!fine || !issue_record(replay, last, diag)) return fail(replay, last, diag);
    }
    return issue_joins(replay, diag);
}

bool replay_launch(Replay *replay, Diag *diag) {
    const CuApi *api = replay->context->device->api;
    if (replay->graph) {
        return cuda_check(api, api->cudaGraphLaunch(replay->graph, replay->context->streams[0]),
                          diag, "launching the step's graph");
    }
    if (replay->n_segments) return launch_pieces(replay, diag);
    return replay_issue(replay, NULL, NULL, NULL, diag);
}

static void drop_graph(const CuApi *api, cudaGraphExec_t *graph) {
    if (*graph) api->cudaGraphExecDestroy(*graph);
    *graph = NULL;
}

void replay_drop_graphs(Replay *replay) {
    if (!replay->context) return;
    const CuApi *api = replay->context->device->api;
    drop_graph(api, &replay->graph);
    for (int s = 0; s < replay->n_segments; s++) {
        Segment *segment = &replay->segments[s];
        if (segment->is_shared) segment->graph = NULL;
        drop_graph(api, &segment->graph);
    }
}

void replay_destroy(Replay *replay) {
    if (!replay->context) return;
    replay_drop_graphs(replay);
    command_list_release(&replay->list);
    *replay = (Replay){0};
}
