#include "runtime/cuda/driver/tune_attention.h"

#include "runtime/cuda/bind.h"
#include "runtime/cuda/driver/attention_choice.h"
#include "runtime/cuda/driver/tune_results.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Attention {
    PlanAttention kind;
    AttentionCommand command;      /* one of those that it stands for */
    const AttentionEntry *entry;   /* cuDNN's; NULL: it does not do it */
    bool own[N_ATTENTION_KERNELS]; /* which own kernels could */
    const Node *node;
    int64_t count;      /* see TunedAttention */
    int64_t count_here; /* in the stage that is looked at */
    int64_t set_bytes;  /* one set of operands */
} Attention;

typedef struct OperandBytes {
    int64_t queries, outs, keys, values, lse, starts;
} OperandBytes;

static OperandBytes measure_operands(const AttentionShape *s) {
    int64_t rows = s->batch * s->seq * s->kv_heads * s->group;
    int64_t values = attention_values(s), keys = s->batch * attention_keys(s) * s->kv_heads;
    int64_t starts = s->documents ? s->batch * s->seq : 0;
    return (OperandBytes){.queries = tuner_operand_bytes(rows * s->head, s->dtype),
                          .outs = tuner_operand_bytes(rows * values, s->dtype),
                          .keys = tuner_operand_bytes(keys * s->head, s->dtype),
                          .values = tuner_operand_bytes(keys * values, s->dtype),
                          .lse = tuner_operand_bytes(rows, DTYPE_F32),
                          .starts = tuner_operand_bytes(starts, DTYPE_I32)};
}

static int64_t set_bytes(const AttentionShape *s) {
    OperandBytes bytes = measure_operands(s);
    int64_t each = bytes.queries + bytes.outs + bytes.keys + bytes.values;
    return ALIGN_BYTES + bytes.starts + each + bytes.lse + (s->backward ? each : 0);
}

/* Gives the command operands and results from `at` on. */
static void lay_out(AttentionCommand *command, unsigned char *at) {
    OperandBytes bytes = measure_operands(&command->shape);
    command->starts = bytes.starts ? (const int32_t *)at : NULL;
    command->q = at += bytes.starts;
    command->k = at += bytes.queries;
    command->v = at += bytes.keys;
    command->o = at += bytes.values;
    command->lse = (float *)(at += bytes.outs);
    if (!command->shape.backward) return;
    command->d_o = at += bytes.lse;
    command->dq = at += bytes.outs;
    command->dk = at += bytes.queries;
    command->dv = at += bytes.keys;
}

static Attention *find_attention(const Tuner *tuner, const PlanAttention *kind) {
    for (int i = 0; i < tuner->n_attentions; i++) {
        if (plan_attention_same(&tuner->attentions[i].kind, kind)) return &tuner->attentions[i];
    }
    return NULL;
}

/* Without a choice there is nothing to do: own kernels on mma.sync could do all of them. */
void tuner_add_attention(Tuner *tuner, const AttentionCommand *command, const Node *node) {
    const char *why;
    PlanAttention kind = attention_kind(&command->shape);
    Attention *known = find_attention(tuner, &kind);
    if (!known) {
        Attention attention = {.kind = kind, .command = *command, .node = node};
        attention.command.shape.gradient_row = 0; /* results lie by themselves here */
        attention.entry = attention_table_find(tuner->attention_table, &attention.command, &why);
        if (!tuner->options->no_wgmma) {
            attention.own[ATTENTION_WGMMA] = attention_runs_wgmma(&tuner->device, &command->shape);
            attention.own[ATTENTION_JOINT] = attention_runs_joint(&tuner->device, command);
        }
        if (!attention.entry && !attention.own[ATTENTION_WGMMA]) return;
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

/* Where the documents of all sets' queries begin: of each row DOCUMENT positions long, but the
 * first; longer than tiles, as text is on average, and no multiple of them. c gives a rank, of
 * those that launches are for the first, a chunk of the beginning and one of the end. */
static bool fill_documents(const Tuner *tuner, const Attention *attention) {
    enum { DOCUMENT = 1000, SHIFT = 300 };
    const AttentionShape *s = &attention->command.shape;
    int64_t count = s->batch * s->seq, bytes = count * (int64_t)sizeof(int32_t);
    if (!s->documents) return true;
    int32_t *starts = ARENA_ARRAY(tuner->arena, int32_t, count);
    for (int64_t i = 0; i < count; i++) {
        int64_t row = i / s->seq, position = i % s->seq;
        if (attention_is_part(s) && position >= s->seq / 2) position += attention_keys(s) - s->seq;
        int64_t start = (position + row * SHIFT) / DOCUMENT * DOCUMENT - row * SHIFT;
        starts[i] = start > 0 ? (int32_t)start : 0;
    }
    bool fine = true;
    for (int64_t i = 0; fine && i < tuner->memory_bytes / attention->set_bytes; i++) {
        AttentionCommand command = place(tuner, attention, (int)i);
        fine = cuda_fill_repeated(&tuner->device, (void *)command.starts, bytes, starts, bytes,
                                  tuner->stream, tuner->diag);
    }
    return fine;
}

/* --- launches --- */

static AttentionKernels as_given(void *user, const AttentionCommand *command) {
    const AttentionKernels *kernels = user;
    (void)command;
    return *kernels;
}

/* The launches that training has for the node by own kernels; those of attention itself for a
 * gradient's node, which has the same attributes, where not `backward`. */
static bool bind_own(const Tuner *tuner, const Node *node, const AttentionCommand *command,
                     bool backward, AttentionKernels kernels, CommandList *out) {
    enum { MOST_INPUTS = 7 };
    const AttentionCheck check = {.choose = as_given, .user = &kernels};
    CudaEmitter emitter = {.list = out, .plan = tuner->plan, .attention = &check};
    void *in[MOST_INPUTS] = {(void *)command->q, (void *)command->k, (void *)command->v,
                             command->o,         command->lse,       (void *)command->d_o};
    Type in_local[MOST_INPUTS];
    Binding b = {.graph = tuner->plan->programs[0].graph, /* of the mesh, as all are */
                 .node = node,
                 .arena = tuner->arena,
                 .diag = tuner->diag,
                 .in = in,
                 .out = {backward ? command->dq : command->o,
                         backward ? command->dk : (void *)command->lse, command->dv},
                 .in_local = in_local,
                 .workspace = tuner->workspace,
                 .workspace_bytes = tuner->workspace_bytes,
                 .backend = &emitter};
    int documents = attention_documents(node);
    if (attention_document_ends(node) >= 0) BUG("documents that are not causal have one way");
    if (documents >= 0) in[documents] = (void *)command->starts;
    for (int i = 0; i < node->n_inputs && i < MOST_INPUTS; i++) {
        in_local[i] = type_local(value_type(node->inputs[i]), value_sharding(node->inputs[i]),
                                 &tuner->plan->mesh);
    }
    return backward ? cuda_bind_attention_grad(&b) : cuda_bind_attention(&b);
}

/* One way to do an attention. */
typedef struct Candidate {
    const Attention *attention;
    AttentionKernels kernels;
} Candidate;

static bool issue(const Tuner *tuner, const void *what, int repeat) {
    const Candidate *candidate = what;
    const Attention *attention = candidate->attention;
    AttentionCommand command = place(tuner, attention, repeat);
    CommandList list = {0};
    if (candidate->kernels == ATTENTION_CUDNN) {
        return attention_issue(tuner->attention_table, attention->entry, &command, tuner->stream) ==
               CUDNN_STATUS_SUCCESS;
    }
    bool fine = bind_own(tuner, attention->node, &command, attention->kind.backward,
                         candidate->kernels, &list);
    fine = fine && tuner_launch(tuner, &list);
    command_list_release(&list);
    return fine;
}

/* *out_fits: the device has the shared memory that own kernels need. False: reported. */
static bool prepare_own(const Tuner *tuner, const Attention *attention, bool backward,
                        AttentionKernels kernels, bool *out_fits) {
    AttentionCommand command = place(tuner, attention, 0);
    CommandList list = {0};
    bool fine = bind_own(tuner, attention->node, &command, backward, kernels, &list);
    *out_fits = fine;
    for (int i = 0; i < list.count; i++) {
        if (list.items[i].launch.shared_bytes > tuner->device.most_shared_bytes) *out_fits = false;
    }
    if (*out_fits) fine = tuner_prepare(tuner, &list);
    command_list_release(&list);
    return fine;
}

/* --- results --- */

enum { MOST_RESULTS = 3 };

/* dq, dk, dv or o, lse. Returns how many. */
static int list_results(const AttentionCommand *command, TuneTensor out[MOST_RESULTS]) {
    const AttentionShape *s = &command->shape;
    int64_t rows = s->batch * s->seq * s->kv_heads * s->group;
    int64_t values = attention_values(s), keys = s->batch * attention_keys(s) * s->kv_heads;
    if (s->backward) {
        out[0] = (TuneTensor){"dq", command->dq, s->dtype, rows * s->head, NULL};
        out[1] = (TuneTensor){"dk", command->dk, s->dtype, keys * s->head, NULL};
        out[2] = (TuneTensor){"dv", command->dv, s->dtype, keys * values, NULL};
        return 3;
    }
    out[0] = (TuneTensor){"o", command->o, s->dtype, rows * values, NULL};
    out[1] = (TuneTensor){"lse", command->lse, DTYPE_F32, rows, NULL};
    return 2;
}

/* One comparison of cuDNN's or of the kernels on wgmma. */
typedef struct Trial {
    Tuner *tuner;
    const Attention *attention;
    AttentionKernels kernels;
    AttentionCommand command; /* on the operands that all of them read */
    int n_results;
    TuneTensor results[MOST_RESULTS]; /* with what is kept of them */
    const char *refused;              /* NULL: nothing was found yet */
} Trial;

static bool run_cudnn(const Trial *trial) {
    const Tuner *tuner = trial->tuner;
    return attention_issue(tuner->attention_table, trial->attention->entry, &trial->command,
                           tuner->stream) == CUDNN_STATUS_SUCCESS;
}

/* Once, from results that are no numbers. False: it does not run, or reported. */
static bool run(const Trial *trial, bool backward, AttentionKernels kernels) {
    const Tuner *tuner = trial->tuner;
    CommandList list = {0};
    bool cudnn = kernels == ATTENTION_CUDNN, fits = cudnn, fine = true;
    if (!cudnn) {
        if (!prepare_own(tuner, trial->attention, backward, kernels, &fits) || !fits) return false;
        fine = bind_own(tuner, trial->attention->node, &trial->command, backward, kernels, &list);
    }
    for (int i = 0; fine && i < trial->n_results; i++) fine = tune_spoil(tuner, &trial->results[i]);
    fine = fine && (cudnn ? run_cudnn(trial) : tuner_launch(tuner, &list));
    command_list_release(&list);
    return fine;
}

static bool keep_results(Trial *trial) {
    bool fine = true;
    for (int i = 0; fine && i < trial->n_results; i++)
        fine = tune_keep(trial->tuner, &trial->results[i]);
    return fine;
}

/* For a gradient with what attention makes of them. */
static bool fill_operands(Trial *trial) {
    const Attention *attention = trial->attention;
    const AttentionCommand *command = &trial->command;
    int64_t bytes = attention->set_bytes - ALIGN_BYTES - measure_operands(&command->shape).starts;
    return tune_fill_normal(trial->tuner, (void *)command->q, bytes, attention->kind.dtype) &&
           (!attention->kind.backward || run(trial, false, ATTENTION_MMA));
}

/* Two sets of kernels round weights and gradients of scores at other places: by about 5e-3 of what
 * comes out in bf16. lse is f32 throughout. Where sums cancel a piece may be further off. */
static bool is_far(const TuneTensor *tensor, const TuneDistance *distance) {
    double limit = tensor->dtype == DTYPE_F32 ? 1e-3 : 2e-2;
    return distance->whole > limit || distance->worst > 3 * limit;
}

static bool compare_results(Trial *trial) {
    Arena *arena = trial->tuner->arena;
    for (int i = 0; i < trial->n_results && !trial->refused; i++) {
        const TuneTensor *tensor = &trial->results[i];
        TuneDistance distance;
        if (!tune_compare(trial->tuner, tensor, &distance)) return false;
        if (isinf(distance.whole)) {
            trial->refused = arena_printf(arena, "%s differs from mma's: not finite", tensor->name);
        } else if (is_far(tensor, &distance)) {
            trial->refused =
                arena_printf(arena, "%s differs from mma's by %.2g, %.2g where it is worst",
                             tensor->name, distance.whole, distance.worst);
        }
    }
    return true;
}

/* Results that depend on the order in which threads run are not used either. */
static bool compare_runs(Trial *trial) {
    for (int i = 0; i < trial->n_results && !trial->refused; i++) {
        bool same;
        if (!tune_compare_bits(trial->tuner, &trial->results[i], &same)) return false;
        if (!same)
            trial->refused = arena_printf(trial->tuner->arena, "%s differs from run to run",
                                          trial->results[i].name);
    }
    return true;
}

/* Against kernels on mma.sync, and then against itself. False: something does not run, or
 * reported. */
static bool try_kernels(Trial *trial) {
    bool backward = trial->attention->kind.backward;
    return fill_operands(trial) && run(trial, backward, ATTENTION_MMA) && keep_results(trial) &&
           run(trial, backward, trial->kernels) && compare_results(trial) &&
           (trial->refused ||
            (keep_results(trial) && run(trial, backward, trial->kernels) && compare_runs(trial)));
}

/* Once more, on a device that has been busy for a while. */
static bool try_again(Trial *trial) {
    return fill_operands(trial) && run(trial, trial->attention->kind.backward, trial->kernels) &&
           compare_runs(trial);
}

/* --- times --- */

static void tell(Tuner *tuner, const Attention *attention, AttentionKernels kernels) {
    const PlanAttention *k = &attention->kind;
    char what[96];
    snprintf(what, sizeof(what), "attention%s %" PRId64 " x %" PRId64 ", %" PRId64 " heads, %s",
             k->backward ? "'s gradient" : "", k->batch, k->seq, k->kv_heads * k->group,
             attention_kernels_word(kernels));
    if (tuner->options->progress) {
        tuner->options->progress(tuner->options->user, tuner->n_done, tuner->n_all, what);
    }
    tuner->n_done++;
}

static bool time_kernels(Tuner *tuner, const Attention *attention, AttentionKernels kernels,
                         TunedAttention *out) {
    const Candidate candidate = {attention, kernels};
    bool fits = true;
    if (kernels != ATTENTION_CUDNN &&
        !prepare_own(tuner, attention, attention->kind.backward, kernels, &fits)) {
        return false;
    }
    return !fits || tuner_time(tuner, issue, &candidate, -1, &out->us[kernels]);
}

static const char *first_line(Arena *arena, const char *text) {
    return arena_strndup(arena, text, strcspn(text, "\n"));
}

/* What timing reads, whatever was there before. */
static bool fill_numbers(Tuner *tuner, const Trial *trial) {
    const AttentionCommand *command = &trial->command;
    int64_t starts = measure_operands(&command->shape).starts;
    return cuda_fill_numbers(&tuner->device, (void *)command->q,
                             trial->attention->set_bytes - ALIGN_BYTES - starts, tuner->stream,
                             tuner->diag);
}

/* Kernels, if their results are right. What fails here, the device perhaps with it, is not
 * tuning's end: everything else has been measured. False: no others are to be tried. */
static bool time_tried(Tuner *tuner, const Attention *attention, AttentionKernels kernels,
                       TunedAttention *out) {
    Diag *outer = tuner->diag;
    Trial trial = {.tuner = tuner,
                   .attention = attention,
                   .kernels = kernels,
                   .command = place(tuner, attention, 0)};
    trial.n_results = list_results(&trial.command, trial.results);
    tuner->diag = diag_create();
    tell(tuner, attention, kernels);
    bool fine =
        fill_documents(tuner, attention) && try_kernels(&trial) && fill_numbers(tuner, &trial);
    if (fine && !trial.refused)
        fine = time_kernels(tuner, attention, kernels, out) && out->us[kernels] >= 0 &&
               try_again(&trial);
    bool reported = diag_error_count(tuner->diag) > 0;
    if (reported)
        trial.refused = first_line(tuner->arena, diag_text(tuner->diag));
    else if (!fine)
        trial.refused = "they do not run";
    tuner->device.api->cudaGetLastError(); /* forgets it */
    if (!reported) reported = !fill_numbers(tuner, &trial);
    for (int i = 0; i < trial.n_results; i++) free(trial.results[i].kept);
    if (trial.refused) out->us[kernels] = -1;
    out->refused[kernels] = trial.refused;
    diag_destroy(tuner->diag);
    tuner->diag = outer;
    return !reported;
}

/* Those on mma.sync, which the others are compared with. False: reported. */
static bool time_known(Tuner *tuner, const Attention *attention, TunedAttention *out) {
    *out = (TunedAttention){.kind = attention->kind, .count = attention->count};
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) out->us[k] = -1;
    if (attention->set_bytes > tuner->memory_bytes) return true;
    if (!fill_documents(tuner, attention)) return false;
    tell(tuner, attention, ATTENTION_MMA);
    if (!time_kernels(tuner, attention, ATTENTION_MMA, out)) return false;
    if (!attention->entry || out->us[ATTENTION_MMA] >= 0) return true;
    tell(tuner, attention, ATTENTION_CUDNN); /* nothing to compare it with */
    return time_kernels(tuner, attention, ATTENTION_CUDNN, out);
}

/* The first that runs, which training would have untuned, unless a later one is faster. */
static AttentionKernels choose(const TunedAttention *tuned) {
    int chosen = -1;
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        if (tuned->us[k] < 0) continue;
        if (chosen < 0 || tuned->us[k] < TUNER_FASTER * tuned->us[chosen]) chosen = k;
    }
    return (AttentionKernels)chosen;
}

int tuner_attention_candidates(const Tuner *tuner) {
    int n = 0;
    for (int i = 0; i < tuner->n_attentions; i++) {
        const Attention *attention = &tuner->attentions[i];
        n += 1 + (attention->entry != NULL);
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) n += attention->own[k];
    }
    return n;
}

static bool was_timed(const TunedAttention *tuned) {
    return tuned->us[ATTENTION_CUDNN] >= 0 || tuned->us[ATTENTION_MMA] >= 0;
}

/* Of those that were timed, for the plan. */
static void list_choices(Tuner *tuner, TuneResult *out) {
    PlanDevice *device = &out->device;
    int capacity = 0;
    device->attentions = NULL;
    device->n_attentions = 0;
    for (int i = 0; i < tuner->n_attentions; i++) {
        TunedAttention *tuned = &out->attentions[i];
        if (!was_timed(tuned)) continue;
        tuned->kind.kernels = choose(tuned);
        if (device->n_attentions == MAX_PLAN_ATTENTIONS) continue;
        ARENA_PUSH(tuner->arena, device->attentions, device->n_attentions, capacity, tuned->kind);
    }
}

static bool is_to_try(const Attention *attention, const TunedAttention *tuned,
                      AttentionKernels kernels) {
    if (kernels == ATTENTION_CUDNN) return attention->entry && tuned->us[ATTENTION_MMA] >= 0;
    return attention->own[kernels] && was_timed(tuned);
}

/* `broken`: the device perhaps is, by what was tried before. */
static void try_all(Tuner *tuner, AttentionKernels kernels, TuneResult *out, bool *broken) {
    const TuneOptions *options = tuner->options;
    bool told = kernels == ATTENTION_CUDNN;
    for (int i = 0; i < tuner->n_attentions; i++) {
        const Attention *attention = &tuner->attentions[i];
        TunedAttention *tuned = &out->attentions[i];
        if (!is_to_try(attention, tuned, kernels)) continue;
        if (!told && options->known) options->known(options->known_user, &out->device);
        told = true;
        if (*broken) {
            tuned->refused[kernels] = "not tried after that";
        } else {
            *broken = !time_tried(tuner, attention, kernels, tuned);
        }
    }
}

bool tuner_tune_attentions(Tuner *tuner, TuneResult *out) {
    out->attentions = ARENA_ARRAY(tuner->arena, TunedAttention, tuner->n_attentions + 1);
    out->device.attention_version = attention_table_version(tuner->attention_table);
    for (int i = 0; i < tuner->n_attentions; i++) {
        if (!time_known(tuner, &tuner->attentions[i], &out->attentions[i])) return false;
    }
    static const AttentionKernels TRIED[] = {ATTENTION_CUDNN, ATTENTION_WGMMA, ATTENTION_JOINT};
    bool broken = false;
    for (size_t i = 0; i < sizeof(TRIED) / sizeof(TRIED[0]); i++) {
        try_all(tuner, TRIED[i], out, &broken);
        list_choices(tuner, out);
    }
    for (int i = 0; i < tuner->n_attentions; i++) {
        if (was_timed(&out->attentions[i]))
            out->attentions[out->n_attentions++] = out->attentions[i];
    }
    return true;
}
