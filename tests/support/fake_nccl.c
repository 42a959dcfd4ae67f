#ifdef HAVE_CUDA

/* NCCL: communicators, and messages as operations that all members run together. Ranks may live in
 * one process here; nothing waits for another rank when it is called. What is called of a
 * communicator that does not block has come to its end when it has been asked after twice. */
#include "tests/support/fake_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static ncclResult_t version(int *out) {
    *out = fake->options.nccl_version ? fake->options.nccl_version : NCCL_VERSION_CODE;
    return ncclSuccess;
}

static const char *error_string(ncclResult_t status) {
    return status == ncclSuccess ? "success" : "the fake's error";
}

static const char *last_error(ncclComm_t comm) {
    (void)comm;
    return fake->n_defects ? fake_cuda_defect(fake->n_defects - 1) : "";
}

static ncclResult_t unique_id(ncclUniqueId *out) {
    static uint64_t count;
    memset(out, 0, sizeof(*out));
    snprintf(out->internal, sizeof(out->internal), "fake %llu", (unsigned long long)++count);
    return ncclSuccess;
}

static int number_of(const ncclUniqueId *id) {
    for (int i = 0; i < fake->n_ids; i++) {
        if (memcmp(&fake->ids[i], id, sizeof(*id)) == 0) return i;
    }
    if (fake->n_ids == FAKE_MOST_IDS) BUG("more than %d communicators", FAKE_MOST_IDS);
    fake->ids[fake->n_ids] = *id;
    return fake->n_ids++;
}

/* A call has begun. */
static ncclResult_t in_progress(FakeComm *comm) {
    enum { LOOKS = 2 };
    if (comm->blocking) return ncclSuccess;
    comm->n_looks = LOOKS;
    return ncclInProgress;
}

/* One that can be used: no other call is under way, and it has not been finalized. */
static FakeComm *get_ready(ncclComm_t comm, const char *function) {
    FakeComm *c = fake_get(comm, FAKE_IS_COMM, function);
    if (c && c->n_looks) {
        fake_defect("%s, before the communicator's last call was seen to end", function);
        return NULL;
    }
    if (c && c->finalized) {
        fake_defect("%s of a communicator that was finalized", function);
        return NULL;
    }
    return c;
}

static ncclResult_t comm_init(ncclComm_t *out, int n_ranks, ncclUniqueId id, int rank,
                              ncclConfig_t *config) {
    static const ncclConfig_t unset = NCCL_CONFIG_INITIALIZER;
    if (config && (config->magic != unset.magic || config->size != unset.size)) {
        fake_defect("ncclCommInitRankConfig: a config without NCCL_CONFIG_INITIALIZER");
        return ncclInvalidArgument;
    }
    if (n_ranks < 1 || rank < 0 || rank >= n_ranks) {
        fake_defect("ncclCommInitRankConfig: rank %d of %d", rank, n_ranks);
        return ncclInvalidArgument;
    }
    int group = number_of(&id);
    for (const FakeObject *object = fake->objects; object; object = object->next) {
        const FakeComm *other = (const FakeComm *)object;
        if (object->kind != FAKE_IS_COMM || !object->live || other->group != group) continue;
        if (other->rank == rank || other->n_members != n_ranks) {
            fake_defect("ncclCommInitRankConfig: rank %d of %d joins rank %d of %d", rank, n_ranks,
                        other->rank, other->n_members);
            return ncclInvalidUsage;
        }
    }
    FakeComm *comm = fake_new(FAKE_IS_COMM, sizeof(*comm));
    comm->group = group;
    comm->rank = rank;
    comm->n_members = n_ranks;
    comm->blocking = !config || config->blocking != 0; /* unless it is set, it blocks */
    *out = (ncclComm_t)comm;
    return in_progress(comm);
}

static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *out) {
    FakeComm *c = fake_get(comm, FAKE_IS_COMM, "ncclCommGetAsyncError");
    if (!c) return ncclInvalidArgument;
    *out = c->n_looks ? ncclInProgress : ncclSuccess;
    c->n_looks -= c->n_looks > 0;
    return ncclSuccess;
}

static ncclResult_t comm_finalize(ncclComm_t comm) {
    FakeComm *c = get_ready(comm, "ncclCommFinalize");
    if (!c) return ncclInvalidArgument;
    c->finalized = true;
    return in_progress(c);
}

/* Graphs refer to their communicators: these must go first. */
static void check_graphs(const FakeComm *comm, const char *function) {
    for (const FakeObject *object = fake->objects; object; object = object->next) {
        const FakeExec *exec = (const FakeExec *)object;
        if (object->kind != FAKE_IS_EXEC || !object->live) continue;
        for (int i = 0; i < exec->graph->n_nodes; i++) {
            const FakeNode *node = &exec->graph->nodes[i];
            if (node->kind != FAKE_NCCL || node->message.comm != comm) continue;
            fake_defect("%s: a graph that uses the communicator is still there", function);
            return;
        }
    }
}

static ncclResult_t comm_destroy(ncclComm_t comm) {
    const FakeComm *c = (const FakeComm *)comm;
    if (!fake_end(comm, FAKE_IS_COMM, "ncclCommDestroy")) return ncclInvalidArgument;
    check_graphs(c, "ncclCommDestroy");
    if (c->n_looks) fake_defect("ncclCommDestroy: its finalization was not seen to end");
    if (!c->finalized) fake_defect("ncclCommDestroy: the communicator was not finalized");
    if (c->n_registered) fake_defect("ncclCommDestroy: memory is still registered");
    return ncclSuccess;
}

/* NCCL waits there for graphs, too. */
static ncclResult_t comm_abort(ncclComm_t comm) {
    if (!fake_end(comm, FAKE_IS_COMM, "ncclCommAbort")) return ncclInvalidArgument;
    check_graphs((const FakeComm *)comm, "ncclCommAbort");
    while (fake->options.never_aborts) pause();
    fake->hung = false;
    return ncclSuccess;
}

static ncclResult_t comm_register(ncclComm_t comm, void *at, size_t bytes, void **out) {
    FakeComm *c = fake_get(comm, FAKE_IS_COMM, "ncclCommRegister");
    if (!c) return ncclInvalidArgument;
    if (!fake_memory_has(at, (int64_t)bytes, true)) {
        fake_defect("ncclCommRegister: %zu bytes that are not all in one allocation", bytes);
        return ncclInvalidArgument;
    }
    c->n_registered++;
    c->registered = at;
    *out = at;
    return ncclSuccess;
}

static ncclResult_t comm_deregister(ncclComm_t comm, void *handle) {
    FakeComm *c = fake_get(comm, FAKE_IS_COMM, "ncclCommDeregister");
    if (!c || !handle || c->n_registered == 0) return ncclInvalidArgument;
    c->n_registered--;
    return ncclSuccess;
}

static ncclResult_t memory_allocate(void **out, size_t bytes) {
    if (fake_check_no_capture("ncclMemAlloc")) return ncclInvalidUsage;
    return fake_allocate(out, bytes, true) ? ncclSystemError : ncclSuccess;
}

static bool is_within(const FakeBlock *block, const void *at) {
    const unsigned char *byte = at;
    return byte && byte >= block->at && byte < block->at + block->bytes;
}

/* What NCCL registers for graphs it lets go of as late as when their communicator ends. */
static void check_registered(const void *memory, const char *function) {
    const FakeBlock *block = fake->blocks;
    const FakeBlock *end = block + fake->n_blocks;
    while (block < end && block->at != memory) block++;
    for (const FakeObject *object = fake->objects; object && block < end; object = object->next) {
        const FakeComm *comm = (const FakeComm *)object;
        if (object->kind != FAKE_IS_COMM || !object->live) continue;
        bool registered = comm->n_registered && is_within(block, comm->registered);
        if (!registered && !is_within(block, comm->captured)) continue;
        fake_defect("%s: a communicator is still there that may have the memory registered",
                    function);
        return;
    }
}

static ncclResult_t memory_free(void *at) {
    if (fake_check_no_capture("ncclMemFree")) return ncclInvalidUsage;
    check_registered(at, "ncclMemFree");
    return fake_release(at, true, "ncclMemFree") ? ncclInvalidArgument : ncclSuccess;
}

static ncclResult_t group_start(void) {
    fake->group_depth++;
    return ncclSuccess;
}

/* A send to and a receive from each member, member by member, of parts that lie one behind the
 * other: an all-to-all, which a capture makes one node of. */
static bool is_all_to_all(const FakeMessage *of, int count) {
    const FakeMessage *send = &of[0], *recv = &of[1];
    if (count != 2 * send->n_members) return false;
    for (int k = 0; k < count; k++) {
        const FakeMessage *m = &of[k], *first = k % 2 ? recv : send;
        size_t bytes = (size_t)(k / 2) * m->count * (size_t)fake_nccl_bytes(m->dtype);
        bool here =
            k % 2 ? m->out == (char *)first->out + bytes : m->in == (const char *)first->in + bytes;
        if (m->kind != (k % 2 ? FAKE_RECV : FAKE_SEND) || m->peer != k / 2 || !here ||
            m->comm != send->comm || m->count != send->count || m->dtype != send->dtype) {
            return false;
        }
    }
    return true;
}

static ncclResult_t issue_apart(int count) {
    for (int i = 0; i < count; i++) {
        FakeNode node = {.kind = FAKE_NCCL, .message = fake->grouped[i]};
        if (node.message.peer == node.message.rank) {
            fake_defect("ncclGroupEnd: a rank's message to itself in no all-to-all");
            return ncclInvalidUsage;
        }
        if (fake_issue(&node, fake->grouped_streams[i], "ncclGroupEnd")) {
            return ncclUnhandledCudaError;
        }
    }
    return ncclSuccess;
}

/* Collectives of one communicator and stream: one kernel. */
static bool is_fused(int count) {
    for (int i = 0; i < count; i++) {
        if (fake->grouped[i].peer >= 0 || fake->grouped[i].comm != fake->grouped[0].comm ||
            fake->grouped_streams[i] != fake->grouped_streams[0]) {
            return false;
        }
    }
    return true;
}

static ncclResult_t issue_fused(int count) {
    FakeNode node = {.kind = FAKE_NCCL, .message = fake->grouped[0]};
    FakeMessage *more = malloc((size_t)count * sizeof(*more));
    if (!more) BUG("out of memory for a group of messages");
    for (int i = 1; i < count; i++) more[i - 1] = fake->grouped[i];
    node.message.more = more;
    node.message.n_more = count - 1;
    return fake_issue(&node, fake->grouped_streams[0], "ncclGroupEnd") ? ncclUnhandledCudaError
                                                                       : ncclSuccess;
}

static ncclResult_t issue_group(void) {
    int count = fake->n_grouped;
    FakeMessage m = fake->grouped[0];
    fake->n_grouped = 0;
    if (is_fused(count)) return issue_fused(count);
    if (!is_all_to_all(fake->grouped, count)) return issue_apart(count);
    m.kind = FAKE_ALL_TO_ALL;
    m.out = fake->grouped[1].out;
    m.peer = -1;
    FakeNode node = {.kind = FAKE_NCCL, .message = m};
    cudaStream_t stream = fake->grouped_streams[0];
    return fake_issue(&node, stream, "ncclGroupEnd") ? ncclUnhandledCudaError : ncclSuccess;
}

/* The group's communicators block, or none of them does. */
static ncclResult_t issue_settled(void) {
    FakeComm *comms[2 * FAKE_MOST_PEERS];
    int count = fake->n_grouped;
    for (int i = 0; i < count; i++) {
        comms[i] = (FakeComm *)fake->grouped[i].comm;
        if (comms[i]->blocking == comms[0]->blocking) continue;
        fake_defect("ncclGroupEnd: communicators that block and others that do not");
        return ncclInvalidArgument;
    }
    ncclResult_t status = issue_group();
    for (int i = 0; i < count && status == ncclSuccess; i++) in_progress(comms[i]);
    return status == ncclSuccess && !comms[0]->blocking ? ncclInProgress : status;
}

static ncclResult_t group_end(void) {
    if (fake->group_depth == 0) {
        fake_defect("ncclGroupEnd: no group was begun");
        return ncclInvalidUsage;
    }
    fake->group_depth--;
    return fake->group_depth == 0 && fake->n_grouped ? issue_settled() : ncclSuccess;
}

/* Messages */

int64_t fake_nccl_bytes(ncclDataType_t dtype) {
    switch (dtype) {
    case ncclInt32: /* gathered, never summed */
    case ncclFloat32: return 4;
    case ncclBfloat16:
    case ncclFloat16: return 2;
    case ncclUint8: return 1;
    default: return 0;
    }
}

/* In place is one place only: a part where it lies in the whole. */
static bool is_in_place(const FakeMessage *m, int rank, int64_t bytes, int64_t in, int64_t out) {
    const char *from = m->in, *to = m->out;
    if (!in || !out) return true;
    if (from + in * bytes <= to || to + out * bytes <= from) return true;
    return m->kind == FAKE_ALL_GATHER       ? from == to + rank * bytes
           : m->kind == FAKE_REDUCE_SCATTER ? to == from + rank * bytes
                                            : from == to;
}

/* NCCL registers what a captured message reads and writes, and uploads what its kernel does. */
static void note_graph(FakeComm *comm, const FakeMessage *message, cudaStream_t stream) {
    const FakeStream *s = (const FakeStream *)stream;
    const char *registers = getenv("NCCL_GRAPH_REGISTER");
    const char *mixing = getenv("NCCL_GRAPH_MIXING_SUPPORT");
    if (!s || !s->capturing) return;
    if (mixing && strcmp(mixing, "0") == 0) fake->uploads = true;
    if (registers && strcmp(registers, "0") == 0) return;
    comm->captured = message->in ? message->in : message->out;
}

/* The first message of a pair connects it, which takes memory that has to be there. */
static void check_connected(FakeComm *comm, cudaStream_t stream, const char *function) {
    const FakeStream *s = (const FakeStream *)stream;
    if (s && s->capturing && !comm->connected) {
        fake_defect("%s is captured before its ranks are connected", function);
    }
    comm->connected = true;
}

static ncclResult_t issue(FakeMessage message, ncclComm_t comm, int64_t in_parts, int64_t out_parts,
                          cudaStream_t stream, const char *function) {
    FakeComm *c = get_ready(comm, function);
    if (!c) return ncclInvalidArgument;
    int64_t bytes = (int64_t)message.count * fake_nccl_bytes(message.dtype);
    int64_t in = in_parts < 0 ? c->n_members : in_parts;
    int64_t out = out_parts < 0 ? c->n_members : out_parts;
    if (bytes <= 0 || (in && !fake_memory_has(message.in, in * bytes, true)) ||
        (out && !fake_memory_has(message.out, out * bytes, true))) {
        fake_defect("%s: a message that is empty, of a type not imitated, or not all in one "
                    "allocation",
                    function);
        return ncclInvalidArgument;
    }
    if (!is_in_place(&message, c->rank, bytes, in, out)) {
        fake_defect("%s: operands that overlap otherwise than in place", function);
        return ncclInvalidArgument;
    }
    bool grouped = fake->group_depth > 0;
    if (message.peer >= c->n_members || (message.peer == c->rank && !grouped)) {
        fake_defect("%s: rank %d of %d has no peer %d", function, c->rank, c->n_members,
                    message.peer);
        return ncclInvalidArgument;
    }
    if (message.peer >= 0) check_connected(c, stream, function);
    note_graph(c, &message, stream);
    message.comm = c;
    message.group = c->group;
    message.rank = c->rank;
    message.n_members = c->n_members;
    if (grouped) {
        if (fake->n_grouped == 2 * FAKE_MOST_PEERS) BUG("a group of too many messages");
        fake->grouped_streams[fake->n_grouped] = stream;
        fake->grouped[fake->n_grouped++] = message;
        return ncclSuccess;
    }
    FakeNode node = {.kind = FAKE_NCCL, .message = message};
    return fake_issue(&node, stream, function) ? ncclUnhandledCudaError : in_progress(c);
}

enum { ALL = -1, NO_PEER = -1 };

static ncclResult_t all_reduce(const void *in, void *out, size_t count, ncclDataType_t dtype,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    FakeMessage m = {.kind = FAKE_ALL_REDUCE,
                     .in = in,
                     .out = out,
                     .count = count,
                     .dtype = dtype,
                     .op = op,
                     .peer = NO_PEER};
    return issue(m, comm, 1, 1, stream, "ncclAllReduce");
}

static ncclResult_t all_gather(const void *in, void *out, size_t count, ncclDataType_t dtype,
                               ncclComm_t comm, cudaStream_t stream) {
    FakeMessage m = {.kind = FAKE_ALL_GATHER,
                     .in = in,
                     .out = out,
                     .count = count,
                     .dtype = dtype,
                     .peer = NO_PEER};
    return issue(m, comm, 1, ALL, stream, "ncclAllGather");
}

static ncclResult_t reduce_scatter(const void *in, void *out, size_t count, ncclDataType_t dtype,
                                   ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    FakeMessage m = {.kind = FAKE_REDUCE_SCATTER,
                     .in = in,
                     .out = out,
                     .count = count,
                     .dtype = dtype,
                     .op = op,
                     .peer = NO_PEER};
    return issue(m, comm, ALL, 1, stream, "ncclReduceScatter");
}

static ncclResult_t send_to(const void *from, size_t count, ncclDataType_t dtype, int peer,
                            ncclComm_t comm, cudaStream_t stream) {
    FakeMessage m = {.kind = FAKE_SEND, .in = from, .count = count, .dtype = dtype, .peer = peer};
    return issue(m, comm, 1, 0, stream, "ncclSend");
}

static ncclResult_t receive(void *to, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
                            cudaStream_t stream) {
    FakeMessage m = {.kind = FAKE_RECV, .out = to, .count = count, .dtype = dtype, .peer = peer};
    return issue(m, comm, 0, 1, stream, "ncclRecv");
}

void fake_fill_nccl(CuApi *api) {
    api->ncclGetVersion = version;
    api->ncclGetErrorString = error_string;
    api->ncclGetLastError = last_error;
    api->ncclGetUniqueId = unique_id;
    api->ncclCommInitRankConfig = comm_init;
    api->ncclCommGetAsyncError = async_error;
    api->ncclCommFinalize = comm_finalize;
    api->ncclCommDestroy = comm_destroy;
    api->ncclCommAbort = comm_abort;
    api->ncclCommRegister = comm_register;
    api->ncclCommDeregister = comm_deregister;
    api->ncclMemAlloc = memory_allocate;
    api->ncclMemFree = memory_free;
    api->ncclGroupStart = group_start;
    api->ncclGroupEnd = group_end;
    api->ncclAllReduce = all_reduce;
    api->ncclAllGather = all_gather;
    api->ncclReduceScatter = reduce_scatter;
    api->ncclSend = send_to;
    api->ncclRecv = receive;
}

#endif
