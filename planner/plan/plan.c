/* The plan as text. Laid out to be read and compared: one fact per line, task lists as runs
 * (plan_tasks.c), graphs as ir prints them. plan_parse.c is the inverse.
 *
 *   perilune plan 17
 *   fingerprint=91b0fb94eb4d7cd1
 *   model="gpt"
 *   p=4 ...                                  one field per line: PLAN_FIELDS
 *   device "NVIDIA H200" sm_90 cublasLt=130100 cudnn=91900   once tuned: plan_device.c
 *   channel forward 0->1 slots=2 slot_bytes=65536
 *   comm "wte" stages=0,3
 *   program 0 {
 *     persistent_bytes=4096 ...
 *     graph "gpt" mesh(t=1, d=1, p=4) { ... }
 *     buffers {
 *       %0 persistent parameter 0+1024       value, region, class, offset + bytes
 *       %7.1 frame1 activation 64+256        frame of chunk 1
 *     }
 *   }
 *   stage 0 {
 *     program=0 ...
 *     tasks {
 *       63x(F0.0 sf0.0)+1
 *     }
 *   }
 *   end
 */
#include "ir/base/file.h"
#include "ir/image_rule.h"
#include "ir/op.h"
#include "ir/teacher.h"
#include "planner/plan/flow.h"
#include "planner/plan/plan_text.h"

#include <inttypes.h>
#include <string.h>

const char *region_name(Region region) {
    static const char *const NAMES[N_REGIONS] = {"none",    "persistent", "frame",
                                                 "scratch", "host",       "host_frame"};
    return region < N_REGIONS ? NAMES[region] : "?";
}

const char *buffer_class_name(BufferClass class) {
    static const char *const NAMES[N_BUFFER_CLASSES] = {
        "parameter", "gradient", "optimizer", "activation", "scratch", "message", "input"};
    return class < N_BUFFER_CLASSES ? NAMES[class] : "?";
}

Path plan_path(const Plan *plan) {
    return (Path){plan->path, plan->mesh.size[MESH_P]};
}

int plan_find_channel(const Plan *plan, int stage, const Task *task) {
    int link = flow_link(task->kind);
    if (link < 0) return -1;
    bool backward = link == LINK_RECV_BACKWARD || link == LINK_SEND_BACKWARD;
    bool send = link == LINK_SEND_FORWARD || link == LINK_SEND_BACKWARD;
    int peer = send != backward ? path_next(plan_path(plan), stage, task->chunk)
                                : path_previous(plan_path(plan), stage, task->chunk);
    for (int c = 0; c < plan->n_channels; c++) {
        const Channel *channel = &plan->channels[c];
        if (channel->backward == backward && channel->from == (send ? stage : peer) &&
            channel->to == (send ? peer : stage)) {
            return c;
        }
    }
    return -1;
}

bool plan_channel_serves(const Plan *plan, int channel, int chunk) {
    const Channel *c = &plan->channels[channel];
    return path_sends(plan_path(plan), c->from, chunk, c->backward, c->to);
}

const Node *plan_next_send(const Plan *plan, int channel, int *at) {
    const Channel *c = &plan->channels[channel];
    const Graph *graph = plan->programs[plan->stages[c->from].program].graph;
    while (*at < graph->n_nodes) {
        const Node *node = graph->nodes[(*at)++];
        if (node->op != OP_SEND || (node->phase == PHASE_BACKWARD) != c->backward) continue;
        if (plan_channel_serves(plan, channel, node->chunk)) return node;
    }
    return NULL;
}

int plan_channel_values(const Plan *plan, int channel) {
    int counts[MAX_CHUNKS] = {0}, most = 1, at = 0;
    for (const Node *node; (node = plan_next_send(plan, channel, &at));) {
        if (++counts[node->chunk] > most) most = counts[node->chunk];
    }
    return most;
}

int64_t plan_channel_value_bytes(const Plan *plan, int channel) {
    int64_t part = plan->channels[channel].slot_bytes / plan_channel_values(plan, channel);
    return part / ALIGN_BYTES * ALIGN_BYTES;
}

int64_t plan_channel_message_bytes(const Plan *plan, int channel) {
    int64_t sums[MAX_CHUNKS] = {0}, most = 0;
    int at = 0;
    for (const Node *node; (node = plan_next_send(plan, channel, &at));) {
        Value value = node->inputs[0];
        int64_t *sum = &sums[node->chunk];
        *sum += type_local_bytes(value_type(value), value_sharding(value), &plan->mesh);
        if (*sum > most) most = *sum;
    }
    return most;
}

void plan_class_bytes(const Plan *plan, int stage, int64_t out_bytes[N_BUFFER_CLASSES]) {
    const Stage *s = &plan->stages[stage];
    const Program *program = &plan->programs[s->program];
    memcpy(out_bytes, program->class_bytes, sizeof(program->class_bytes));
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        out_bytes[CLASS_ACTIVATION] += s->frame_slots[pool] * plan_slot_bytes(plan, s, pool);
    }
    out_bytes[CLASS_MESSAGE] += s->message_bytes;
    out_bytes[CLASS_SCRATCH] += program->scratch_bytes;
}

int64_t plan_host_bytes(const Plan *plan, const Stage *stage) {
    return plan->programs[stage->program].host_bytes + plan_host_frames_bytes(plan, stage);
}

const char *plan_offload_phrase(const Plan *plan) {
    if (plan->offload_activations == 0) return "states and masters";
    return plan->offload == 0 ? "activations" : "states, masters and activations";
}

int64_t plan_largest_host_bytes(const Plan *plan) {
    int64_t most = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        int64_t bytes = plan_host_bytes(plan, &plan->stages[s]);
        if (bytes > most) most = bytes;
    }
    return most;
}

static void put_field(StrBuf *out, const Plan *plan, const PlanField *field) {
    const void *at = (const char *)plan + field->offset;
    strbuf_printf(out, "%s=", field->name);
    switch (field->kind) {
    case FIELD_INT: strbuf_printf(out, "%d", *(const int *)at); break;
    case FIELD_INT64: strbuf_printf(out, "%" PRId64, *(const int64_t *)at); break;
    case FIELD_UINT64: strbuf_printf(out, "%" PRIu64, *(const uint64_t *)at); break;
    case FIELD_DOUBLE: plan_put_double(out, *(const double *)at); break;
    case FIELD_BOOL: strbuf_put(out, *(const bool *)at ? "1" : "0"); break;
    case FIELD_PRECISION: strbuf_put(out, dtype_name(*(const DType *)at)); break;
    case FIELD_RECOMPUTE: strbuf_put(out, recompute_mode_name(*(const Recompute *)at)); break;
    case FIELD_PATH: strbuf_put(out, path_name(*(const PathKind *)at)); break;
    case FIELD_TEXT: {
        const char *text = *(const char *const *)at;
        plan_put_quoted(out, text ? text : "");
        break;
    }
    }
    strbuf_put(out, "\n");
}

static void put_ints(StrBuf *out, const char *name, const int *items, int count) {
    strbuf_printf(out, "%s=", name);
    for (int i = 0; i < count; i++) strbuf_printf(out, "%s%d", i ? "," : "", items[i]);
}

static void put_sizes(StrBuf *out, const char *name, const int64_t *items, int count) {
    strbuf_printf(out, "  %s=", name);
    for (int i = 0; i < count; i++) strbuf_printf(out, "%s%" PRId64, i ? "," : "", items[i]);
    strbuf_put(out, "\n");
}

static void put_doubles(StrBuf *out, const char *name, const double *items, int count) {
    strbuf_printf(out, "  %s=", name);
    for (int i = 0; i < count; i++) {
        if (i) strbuf_put(out, ",");
        plan_put_double(out, items[i]);
    }
    strbuf_put(out, "\n");
}

static void put_buffers(StrBuf *out, const Program *program) {
    strbuf_put(out, "  buffers {\n");
    for (int n = 0; n < program->graph->n_nodes; n++) {
        for (int k = 0; k < program->graph->nodes[n]->n_outputs; k++) {
            const Buffer *b = &program->buffers[n * MAX_OUTPUTS + k];
            strbuf_printf(out, "    %%%d", n);
            if (k) strbuf_printf(out, ".%d", k);
            strbuf_printf(out, " %s", region_name(b->region));
            if (region_is_frame(b->region)) strbuf_printf(out, "%d", b->chunk);
            strbuf_printf(out, " %s %" PRId64 "+%" PRId64 "\n", buffer_class_name(b->class),
                          b->offset_bytes, b->bytes);
        }
    }
    strbuf_put(out, "  }\n");
}

static void put_program(StrBuf *out, const Plan *plan, int index) {
    const Program *program = &plan->programs[index];
    strbuf_printf(out, "program %d {\n", index);
    put_sizes(out, "persistent_bytes", &program->persistent_bytes, 1);
    put_sizes(out, "scratch_bytes", &program->scratch_bytes, 1);
    put_sizes(out, "host_bytes", &program->host_bytes, 1);
    put_sizes(out, "frame_bytes", program->frame_bytes, plan->n_chunks);
    put_sizes(out, "host_frame_bytes", program->host_frame_bytes, plan->n_chunks);
    put_sizes(out, "class_bytes", program->class_bytes, N_BUFFER_CLASSES);
    put_doubles(out, "forward_flops", program->forward_flops, plan->n_chunks);
    put_doubles(out, "backward_flops", program->backward_flops, plan->n_chunks);
    put_doubles(out, "update_flops", &program->update_flops, 1);
    graph_print(out, program->graph);
    put_buffers(out, program);
    strbuf_put(out, "}\n");
}

static void put_stage(StrBuf *out, const Plan *plan, int index) {
    const Stage *stage = &plan->stages[index];
    strbuf_printf(out, "stage %d {\n", index);
    strbuf_printf(out, "  program=%d\n  ", stage->program);
    put_ints(out, "first_block", stage->first_block, plan->n_chunks);
    put_ints(out, "\n  blocks", stage->n_blocks, plan->n_chunks);
    put_ints(out, "\n  frame_pool", stage->frame_pool, plan->n_chunks);
    put_ints(out, "\n  frame_slots", stage->frame_slots, plan->n_chunks);
    strbuf_put(out, "\n");
    put_sizes(out, "persistent_base", &stage->persistent_base, 1);
    put_sizes(out, "frame_base", stage->frame_base, plan->n_chunks);
    put_sizes(out, "message_base", &stage->message_base, 1);
    put_sizes(out, "message_bytes", &stage->message_bytes, 1);
    put_sizes(out, "scratch_base", &stage->scratch_base, 1);
    put_sizes(out, "arena_bytes", &stage->arena_bytes, 1);
    strbuf_put(out, "  tasks {\n");
    plan_put_tasks(out, stage->tasks, stage->n_tasks);
    strbuf_put(out, "  }\n}\n");
}

static void put_head(StrBuf *out, const Plan *plan) {
    for (int i = 0; i < N_PLAN_FIELDS; i++) put_field(out, plan, &PLAN_FIELDS[i]);
    plan_put_device(out, &plan->device);
    for (int c = 0; c < plan->n_channels; c++) {
        const Channel *channel = &plan->channels[c];
        strbuf_printf(out, "channel %s %d->%d slots=%d slot_bytes=%" PRId64 "\n",
                      channel->backward ? "backward" : "forward", channel->from, channel->to,
                      channel->slots, channel->slot_bytes);
    }
    for (int c = 0; c < plan->n_comms; c++) {
        strbuf_put(out, "comm ");
        plan_put_quoted(out, plan->comms[c].name);
        put_ints(out, " stages", plan->comms[c].stages, plan->comms[c].n_stages);
        strbuf_put(out, "\n");
    }
}

/* All but the first two lines, in pieces: what comes before programs and stages, each of these, and
 * the end. False: there is none of this number. */
static bool put_piece(StrBuf *out, const Plan *plan, int piece) {
    int program = piece - 1, stage = program - plan->n_programs;
    if (piece == 0) {
        put_head(out, plan);
    } else if (program < plan->n_programs) {
        put_program(out, plan, program);
    } else if (stage < plan->n_stages) {
        put_stage(out, plan, stage);
    } else if (stage == plan->n_stages) {
        strbuf_put(out, "end\n");
    } else {
        return false;
    }
    return true;
}

/* FNV-1a: notices edits and mix-ups; it is no defence against forgery, verify_plan is. */
#define NO_HASH UINT64_C(14695981039346656037)
static uint64_t hash_on(uint64_t value, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        value = (value ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
    }
    return value;
}

/* Every stage has an update. */
static const Node *find_on_first(const Plan *plan, OpKind op) {
    const Graph *graph = plan->programs[plan->stages[0].program].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op == op) return graph->nodes[n];
    }
    return NULL;
}

LossScaling plan_loss_scaling(const Plan *plan) {
    const Node *node = find_on_first(plan, OP_LOSS_SCALE);
    if (!node) return (LossScaling){0};
    return (LossScaling){node_float(node->inputs[1].node, ATTR_value, 0),
                         (int)node_int(node, ATTR_interval, 0)};
}

double plan_ema_decay(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) { /* a stage may have frozen weights alone */
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (graph->nodes[n]->op == OP_EMA) return node_float(graph->nodes[n], ATTR_decay, 0);
        }
    }
    return 0;
}

bool plan_skips_spikes(const Plan *plan) {
    return find_on_first(plan, OP_SKIP_SPIKE) != NULL;
}

DType plan_state_dtype(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->phase != PHASE_UPDATE) continue;
            DType dtype = node_state_dtype(node); /* dyn8: but of small parameters */
            if (dtype != DTYPE_F32) return dtype;
        }
    }
    return DTYPE_F32;
}

/* The constant that factors are made of, beside largest scores; 0: not found within `depth`. */
static double find_threshold(const Node *node, int depth) {
    double found = 0;
    if (node->op == OP_CONST) return node_float(node, ATTR_value, 0);
    if (node->op == OP_LARGEST || depth == 0) return 0;
    for (int i = 0; i < node->n_inputs && i < 4 && found == 0; i++) {
        found = find_threshold(node->inputs[i].node, depth - 1);
    }
    return found;
}

double plan_qk_clip(const Plan *plan) {
    enum { DEEPEST = 8 }; /* messages, and elementwise nodes that may be one */
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            int at = op_is_optimizer(node->op) ? op_rescale_operand(node) : -1;
            if (at >= 0) return find_threshold(node->inputs[at].node, DEEPEST);
        }
    }
    return 0;
}

/* A gradient that is kept in bf16, or a share of one that a product made so. */
static bool has_low_gradient(const Node *node) {
    if (node->phase == PHASE_UPDATE) return node_gradient_dtype(node) == DTYPE_BF16;
    if (node->op != OP_ACCUMULATE || node->phase == PHASE_FORWARD) return false;
    const Node *share = node->inputs[1].node;
    return share->op == OP_REDUCE_SCATTER && share->types[0].dtype == DTYPE_BF16;
}

DType plan_gradient_dtype(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (has_low_gradient(graph->nodes[n])) return DTYPE_BF16;
        }
    }
    return DTYPE_F32;
}

bool plan_splits_masters(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            if (node_is_upper(graph->nodes[n])) return true;
        }
    }
    return false;
}

uint64_t plan_fingerprint(const Plan *plan) {
    StrBuf text = strbuf_create();
    uint64_t value = NO_HASH;
    for (int i = 0; put_piece(&text, plan, i); i++) { /* the whole may have tens of megabytes */
        value = hash_on(value, text.text, text.length);
        text.length = 0;
    }
    strbuf_destroy(&text);
    return value;
}

void plan_print(StrBuf *out, const Plan *plan) {
    enum { DIGITS = 16 };
    char fingerprint[DIGITS + 1];
    strbuf_printf(out, "perilune plan %d\nfingerprint=", PLAN_FORMAT_VERSION);
    size_t at = out->length, body = at + DIGITS + 1;
    strbuf_printf(out, "%*s\n", DIGITS, ""); /* known once the rest is there */
    for (int i = 0; put_piece(out, plan, i); i++) continue;
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64,
             hash_on(NO_HASH, out->text + body, out->length - body));
    memcpy(out->text + at, fingerprint, DIGITS);
}

int64_t plan_vocab_share(const Plan *plan) {
    const Type words = {.rank = 1, .axes = {AXIS_VOCAB}, .dims = {plan->vocab}};
    return type_share(&words, 0, MESH_T, &plan->mesh);
}

int64_t plan_source(const Plan *plan) {
    int64_t source = 0;
    for (int i = 0; i < plan->n_programs && !source; i++) {
        source = graph_source(plan->programs[i].graph);
    }
    return source;
}

/* Is it on an earlier stage, too? A block's is on one. */
static bool is_counted(const Plan *plan, int stage, const Node *param) {
    for (int s = 0; s < stage && param->block == NO_BLOCK; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op == OP_PARAM &&
                strcmp(node_string(node, ATTR_name), node_string(param, ATTR_name)) == 0) {
                return true;
            }
        }
    }
    return false;
}

int64_t plan_count_teacher(const Plan *plan) {
    int64_t count = 0;
    for (int s = 0; s < plan->n_stages; s++) {
        const Graph *graph = plan->programs[plan->stages[s].program].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            bool teaches = node->op == OP_PARAM && teacher_own_name(node_string(node, ATTR_name));
            if (teaches && !is_counted(plan, s, node)) count += type_elements(&node->types[0]);
        }
    }
    return count;
}

static const Node *find_numbers(const Plan *plan, TokenNumbers numbers) {
    for (int i = 0; i < plan->n_programs; i++) {
        const Graph *graph = plan->programs[i].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op == OP_INPUT &&
                token_numbers_find(node_string(node, ATTR_name)) == numbers) {
                return node;
            }
        }
    }
    return NULL;
}

bool plan_reads_numbers(const Plan *plan, TokenNumbers numbers) {
    return find_numbers(plan, numbers) != NULL;
}

static int64_t last_dim(const Node *node) {
    const Type *type = node ? &node->types[0] : NULL;
    return type && type->rank > 0 ? type->dims[type->rank - 1] : 0;
}

int64_t plan_stored_words(const Plan *plan) {
    const Node *node = find_numbers(plan, TOKEN_STORED_WORDS);
    if (!node) node = find_numbers(plan, TOKEN_STORED_LOGPROBS); /* of damaged plans */
    return last_dim(node);
}

int64_t plan_numbers_width(const Plan *plan, TokenNumbers numbers) {
    if (token_numbers_are_stored(numbers)) return plan_stored_words(plan);
    return token_numbers_axis(numbers) ? last_dim(find_numbers(plan, numbers)) : 1;
}

int64_t plan_numbers_row(const Plan *plan, TokenNumbers numbers) {
    return plan->seq * plan_numbers_width(plan, numbers);
}

int64_t plan_pixels(const Plan *plan) {
    int64_t patches, pixel;
    for (int i = 0; i < plan->n_programs; i++) {
        if (graph_image_pixels(plan->programs[i].graph, &patches, &pixel)) return patches * pixel;
    }
    return 0;
}

static bool are_tokens(const Plan *plan, const int32_t *tokens, int n) {
    for (int i = 0; i < n; i++) {
        if (tokens[i] < 0 || tokens[i] >= plan->vocab) return false;
    }
    return true;
}

static bool places_all(const Plan *plan, const Node *share, const ImageRule *rule, Diag *diag) {
    for (int i = 0; i < plan->n_programs; i++) {
        if (!image_rule_fits(plan->programs[i].graph, share, rule, diag)) return false;
    }
    return true;
}

bool plan_images(const Plan *plan, const Node *share, ImageRule *out, Diag *diag) {
    const int64_t numbers = plan_pixels(plan);
    *out = (ImageRule){.token = -1};
    if (!share || !image_rule_is_there(share)) {
        if (numbers == 0) return true;
        diag_error(diag, share ? share->loc : NO_LOC,
                   "the plan's model sees images, and its loss does not say how they are made");
        return false;
    }
    const char *why = image_rule_read(share, out);
    if (why) {
        diag_error(diag, share->loc, "label_share: %s", why);
    } else if (out->patches * out->pixel != numbers) {
        diag_error(diag, share->loc,
                   "label_share: %" PRId64 " images of %" PRId64 " x %" PRId64
                   " pixels are no %" PRId64 " numbers, which the model's input has",
                   out->images, out->side, out->side, numbers);
    } else if (!are_tokens(plan, &out->token, 1) ||
               !are_tokens(plan, out->before.tokens, out->before.n) ||
               !are_tokens(plan, out->after.tokens, out->after.n)) {
        diag_error(diag, share->loc,
                   "label_share: image_token, image_before and image_after must be of the %" PRId64
                   " tokens",
                   plan->vocab);
    } else {
        return places_all(plan, share, out, diag);
    }
    return false;
}

const Node *plan_label_share(const Plan *plan) {
    for (int p = 0; p < plan->n_programs; p++) {
        const Graph *graph = plan->programs[p].graph;
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->op == OP_LABEL_SHARE) return node;
        }
    }
    return NULL;
}

int64_t plan_row_tokens(const Plan *plan) {
    return plan_source(plan) + plan->seq;
}

int64_t plan_row(const Plan *plan) {
    return plan_row_tokens(plan) + plan_pixels(plan);
}

/* Of a plan that was parsed: is it sound, and as it was written? */
static bool check_read(const Plan *plan, const char *file, Diag *diag) {
    if (!verify_plan(plan, diag)) return false;
    uint64_t fingerprint = plan_fingerprint(plan);
    if (fingerprint == plan->fingerprint) return true;
    diag_error(diag, (SourceLoc){file, 0},
               "was edited: its fingerprint says %016" PRIx64 ", its text gives %016" PRIx64,
               plan->fingerprint, fingerprint);
    return false;
}

Plan *plan_read(Arena *arena, const char *path, Diag *diag) {
    size_t length;
    Arena *work = arena_create();
    const char *text = file_read(work, path, MAX_PLAN_BYTES, &length, diag);
    const char *file = arena_strdup(arena, path);
    Plan *plan = NULL;
    if (text && strlen(text) != length) {
        diag_error(diag, (SourceLoc){file, 0}, "is no plan: it has zero bytes");
    } else if (text) {
        plan = plan_parse(arena, file, text, diag);
    }
    arena_destroy(work);
    return plan && check_read(plan, file, diag) ? plan : NULL;
}

Plan *plan_from_text(Arena *arena, const char *file, const char *text, Diag *diag) {
    Plan *plan = plan_parse(arena, file, text, diag);
    return plan && check_read(plan, file, diag) ? plan : NULL;
}

bool plan_write(const Plan *plan, const char *path, Diag *diag) {
    StrBuf text = strbuf_create();
    plan_print(&text, plan);
    bool written = file_write(path, text.text, text.length, diag);
    strbuf_destroy(&text);
    return written;
}

bool plan_setting_is_of_training(const char *key, size_t length) {
    static const char *const KEYS[] = {"attention_dropout",
                                       "beta",
                                       "clip",
                                       "clip_high",
                                       "desirable_weight",
                                       "dropout",
                                       "embed_dims",
                                       "embed_group",
                                       "embed_length",
                                       "embed_negatives",
                                       "embed_symmetric",
                                       "embed_temperature",
                                       "embedding",
                                       "gamma",
                                       "kl",
                                       "label_smoothing",
                                       "online",
                                       "policy",
                                       "preference",
                                       "rpo_alpha",
                                       "undesirable_weight"};
    for (size_t i = 0; i < sizeof(KEYS) / sizeof(KEYS[0]); i++) {
        if (length == strlen(KEYS[i]) && strncmp(key, KEYS[i], length) == 0) return true;
    }
    return false;
}
