#include "runtime/cuda/driver/tune_attention.h"

#include "runtime/cuda/bind.h"

#include <inttypes.h>
#include <stdio.h>

typedef struct Attention {
    PlanAttention kind;
    AttentionCommand command; /* one of those that it stands for */
    const AttentionEntry *entry;
    const Node *node;
    int64_t count;      /* see TunedAttention */
    int64_t count_here; /* in the stage that is looked at */
    int64_t set_bytes;  /* one set of operands */
} Attention;

typedef struct OperandBytes {
    int64_t queries, keys, lse; /* q, o and their gradients; k, v and theirs */
} OperandBytes;

static OperandBytes measure_operands(const AttentionShape *s) {
    int64_t rows = s->batch * s->seq * s->kv_heads * s->group;
    return (OperandBytes){.queries = tuner_operand_bytes(rows * s->head, s->dtype),
                          .keys = tuner_operand_bytes(rows / s->group * s->head, s->dtype),
                          .lse = tuner_operand_bytes(rows, DTYPE_F32)};
}

static int64_t set_bytes(const AttentionShape *s) {
    OperandBytes bytes = measure_operands(s);
    int64_t forward = 2 * bytes.queries + 2 * bytes.keys + bytes.lse;
    return ALIGN_BYTES + forward + (s->backward ? 2 * bytes.queries + 2 * bytes.keys : 0);
}

/* Gives the command operands and results from `at` on. */
static void lay_out(AttentionCommand *command, unsigned char *at) {
    OperandBytes bytes = measure_operands(&command->shape);
    command->q = at;
    command->k = at += bytes.queries;
    command->v = at += bytes.keys;
    command->o = at += bytes.keys;
    command->lse = (float *)(at += bytes.queries);
    if (!command->shape.backward) return;
    command->d_o = at += bytes.lse;
    command->dq = at += bytes.queries;
    command->dk = at += bytes.queries;
    command->dv = at += bytes.keys;
}

static Attention *find_attention(const Tuner *tuner, const PlanAttention *kind) {
    for (int i = 0; i < tuner->n_attentions; i++) {
        if (plan_attention_same(&tuner->attentions[i].kind, kind)) return &tuner->attentions[i];
    }
    return NULL;
}

void tuner_add_attention(Tuner *tuner, const AttentionCommand *command, const Node *node) {
    const char *why;
    PlanAttention kind = attention_kind(&command->shape);
    Attention *known = find_attention(tuner, &kind);
    if (!known) {
        Attention attention = {.kind = kind, .command = *command, .node = node};
        attention.entry = attention_table_find(tuner->attention_table, command, &why);
        if (!attention.entry) BUG("attention that cuDNN does not do: %s", why);
        attention.set_bytes = set_bytes(&command->shape);
        ARENA_PUSH(tuner->arena, tuner->attentions, tuner->n_attentions, tuner->attention_capacity,
                   attention);
        known = &tuner->attentions[tuner->n_attentions - 1];
    }
    known->count_here++;
}

void tuner_count_attentions(Tuner *tuner) {
    for (int i = 0; i < tuner->n_attentions; i++) {
        Attention *attention = &tuner->attentions[i];
        if (attention->count_here > attention->count) attention->count = attention->count_here;
        attention->count_here = 0;
    }
}

int64_t tuner_attention_bytes(const Tuner *tuner, int64_t limit) {
    int64_t largest = 0;
    for (int i = 0; i < tuner->n_attentions; i++) {
        int64_t bytes = tuner->attentions[i].set_bytes;
        if (bytes > largest && bytes <= limit) largest = bytes;
    }
    return largest;
}

static AttentionCommand place(const Tuner *tuner, const Attention *attention, int repeat) {
    AttentionCommand command = attention->command;
    lay_out(&command, tuner_operands(tuner, attention->set_bytes, repeat));
    command.workspace = tuner->workspace;
    return command;
}

static bool issue_library(const Tuner *tuner, const void *what, int repeat) {
    const Attention *attention = what;
    AttentionCommand command = place(tuner, attention, repeat);
    return attention_issue(tuner->attention_table, attention->entry, &command, tuner->stream) ==
           CUDNN_STATUS_SUCCESS;
}

/* The launches that training has for the node without cuDNN. */
static bool bind_own(const Tuner *tuner, const Node *node, const AttentionCommand *command,
                     CommandList *out) {
    enum { MOST_INPUTS = 6 };
    const Mesh *mesh = &tuner->plan->mesh;
    CudaEmitter emitter = {.list = out, .plan = tuner->plan};
    void *in[MOST_INPUTS] = {(void *)command->q, (void *)command->k, (void *)command->v,
                             command->o,         command->lse,       (void *)command->d_o};
    Type in_local[MOST_INPUTS];
    bool backward = command->shape.backward;
    Binding b = {.node = node,
                 .arena = tuner->arena,
                 .diag = tuner->diag,
                 .in = in,
                 .out = {backward ? command->dq : command->o,
                         backward ? command->dk : (void *)command->lse, command->dv},
                 .in_local = in_local,
                 .workspace = tuner->workspace,
                 .workspace_bytes = tuner->workspace_bytes,
                 .backend = &emitter};
    for (int i = 0; i < node->n_inputs && i < MOST_INPUTS; i++) {
        in_local[i] =
            type_local(value_type(node->inputs[i]), value_sharding(node->inputs[i]), mesh);
    }
    for (int o = 0; o < node->n_outputs; o++) {
        b.out_local[o] = type_local(&node->types[o], &node->shardings[o], mesh);
    }
    return cuda_bind(&b);
}

static bool issue_own(const Tuner *tuner, const void *what, int repeat) {
    const Attention *attention = what;
    AttentionCommand command = place(tuner, attention, repeat);
    CommandList list = {0};
    bool fine = bind_own(tuner, attention->node, &command, &list);
    fine = fine && tuner_launch(tuner, &list);
    command_list_release(&list);
    return fine;
}

/* *out_fits: the device has the shared memory that own kernels need. False: reported. */
static bool prepare_own(const Tuner *tuner, const Attention *attention, bool *out_fits) {
    AttentionCommand command = place(tuner, attention, 0);
    CommandList list = {0};
    bool fine = bind_own(tuner, attention->node, &command, &list);
    *out_fits = fine;
    for (int i = 0; i < list.count; i++) {
        if (list.items[i].launch.shared_bytes > tuner->device.most_shared_bytes) *out_fits = false;
    }
    if (*out_fits) fine = tuner_prepare(tuner, &list);
    command_list_release(&list);
    return fine;
}

static void tell(Tuner *tuner, const Attention *attention) {
    const PlanAttention *k = &attention->kind;
    char what[96];
    snprintf(what, sizeof(what), "attention%s %" PRId64 " x %" PRId64 ", %" PRId64 " heads",
             k->backward ? "'s gradient" : "", k->batch, k->seq, k->kv_heads * k->group);
    if (tuner->options->progress) {
        tuner->options->progress(tuner->options->user, tuner->n_done, tuner->n_all, what);
    }
}

static bool tune_attention(Tuner *tuner, const Attention *attention, TunedAttention *out) {
    bool fits;
    *out = (TunedAttention){attention->kind, attention->count, -1, -1};
    if (attention->set_bytes > tuner->memory_bytes) return true;
    tell(tuner, attention);
    if (!tuner_time(tuner, issue_library, attention, -1, &out->library_us)) return false;
    tuner->n_done++;
    tell(tuner, attention);
    if (!prepare_own(tuner, attention, &fits)) return false;
    if (fits && !tuner_time(tuner, issue_own, attention, -1, &out->own_us)) return false;
    tuner->n_done++;
    out->kind.own =
        out->own_us >= 0 && (out->library_us < 0 || out->own_us < TUNER_FASTER * out->library_us);
    return true;
}

int tuner_attention_candidates(const Tuner *tuner) {
    return 2 * tuner->n_attentions;
}

bool tuner_tune_attentions(Tuner *tuner, TuneResult *out) {
    PlanDevice *device = &out->device;
    int capacity = 0;
    out->attentions = ARENA_ARRAY(tuner->arena, TunedAttention, tuner->n_attentions + 1);
    if (tuner->attention_table->handle)
        device->attention_version = (int64_t)tuner->device.api->cudnnGetVersion();
    for (int i = 0; i < tuner->n_attentions; i++) {
        TunedAttention *tuned = &out->attentions[out->n_attentions];
        if (!tune_attention(tuner, &tuner->attentions[i], tuned)) return false;
        if (tuned->own_us < 0 && tuned->library_us < 0) continue;
        out->n_attentions++;
        if (device->n_attentions == MAX_PLAN_ATTENTIONS) continue;
        ARENA_PUSH(tuner->arena, device->attentions, device->n_attentions, capacity, tuned->kind);
    }
    return true;
}
