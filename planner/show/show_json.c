/* clang-format off */
/* The plan's facts as one JSON object. Bytes are of one rank unless the key says `all`; times are
 * predicted, in microseconds.
 *
 *   format            1; grows when a key changes its meaning
 *   model             name, parameters, active_parameters (that a token meets), seq, vocab,
 *                     vocab_share (words that each rank of t stores, padding included),
 *                     flops_per_step (nothing computed again),
 *                     hardware_flops_per_step (of all ranks' products and attention, as planned)
 *   fingerprint       16 hexadecimal digits
 *   mesh              t, d, p, ranks
 *   schedule          name, chunks, micro_batches, micro_batch (sequences), sequence_parallel
 *   batch             sequences, tokens (both per step)
 *   precision         of activations and products: f32, bf16, f16 or fp8 (bf16 activations)
 *   optimizer_state   what the optimizer keeps its states in: f32, bf16 or dyn8
 *   ema_decay         of the averages of weights that the update keeps; not there: it keeps none
 *   skips_spikes      true, or not there: steps may be left out for their gradients' norm
 *   gradients         of weights, as products make them: f32 or bf16
 *   masters           whole, or split: weights' copies in bf16 are halves of them
 *   qat               what weights that train will be quantized to, as products read them: q4_0 or
 *                     q8_0; not there: nothing
 *   offload           percent of states and masters that lie in the machines' memory
 *   offload_activations  percent of what blocks keep for their backward that lies there
 *   expert_parts      runs that the slots of a mixture's experts are cut into; 1 without experts
 *   lanes             that a micro-batch's sequences go through the model in
 *   loss_parts        of the positions, whose logits are computed in turn
 *   frozen_weights    {bits, parameters}: those of blocks that are kept in 4 or 8 bits; null: none
 *   fp8_products      {tensor_cores, bf16 {planned, batches, parts}}: how many products with fp8
 *                     operands a micro-batch runs on all stages, by what multiplies them; null:
 *                     none
 *   zero              stage: what is divided over d: 1 optimizer state, 2 gradients, 3 weights
 *   zero_messages     block: a block's weights, and gradients, are one message; else absent
 *   recompute         none, selective or full
 *   loss_scale        {initial, interval}: interval 0: it stays; null: none
 *   seed, learning_rate
 *   tuned             device, arch, cublaslt and cudnn (versions), products, attentions,
 *                     attention_kernels {cudnn, mma, wgmma: attentions done by them}; null: was not
 *   predicted         device, profile (where measured), step_us, tokens_per_second,
 *                     bubble_fraction, message_fraction (waiting for messages between stages)
 *   memory            largest_arena_bytes, all_arena_bytes (all ranks), largest_host_bytes,
 *                     all_host_bytes (in the machines' memory), library_bytes
 *   programs[]        nodes, persistent_bytes, scratch_bytes, host_bytes, frame_bytes[chunk],
 *                     host_frame_bytes[chunk],
 *                     forward_flops[chunk], backward_flops[chunk], forward_us[chunk],
 *                     backward_us[chunk], weights_flops[chunk], weights_us[chunk] (0 but where the
 *                     schedule has W tasks, no part of backward's), update_us
 *   stages[]          program, blocks[chunk] {first, count}, parameters (logical), flops,
 *                     arena_bytes, host_bytes, class_bytes {parameter ... input},
 *                     frame_pool[chunk], frame_slots[pool], tasks {rf F sf rb B sb W U: counts;
 *                     total}, busy_us, idle_us
 *   traffic[]         communicator, kind (mesh, tied, pipeline), what, groups, group_size,
 *                     messages and rank_bytes (of the busiest rank), all_bytes; per step, sent
 *   channels[]        from, to (stages), direction (forward, backward), slots, slot_bytes, messages
 *   communicators[]   name, stages[]
 */
/* clang-format on */
#include "planner/show/show_facts.h"
#include "planner/show/show_json_put.h"

#include <inttypes.h>
#include <stdio.h>

static void put_tuned(json_t *root, const PlanDevice *device) {
    if (!device->name) {
        json_object_set_new(root, "tuned", json_null());
        return;
    }
    json_t *tuned = json_put_new(root, "tuned", json_object());
    json_put_name(tuned, "device", device->name);
    json_put_name(tuned, "arch", device->arch);
    json_put_int(tuned, "cublaslt", device->library_version);
    json_put_int(tuned, "cudnn", device->attention_version);
    json_put_int(tuned, "products", device->n_algos);
    json_put_int(tuned, "attentions", device->n_attentions);
    json_t *kernels = json_put_new(tuned, "attention_kernels", json_object());
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        json_put_int(kernels, attention_kernels_word((AttentionKernels)k),
                     plan_count_attentions(device, (AttentionKernels)k));
    }
}

static void put_packed(json_t *root, const Plan *plan) {
    PackedFacts packed = facts_count_packed(plan);
    json_t *object =
        json_put_new(root, "frozen_weights", packed.bits ? json_object() : json_null());
    if (!packed.bits) return;
    json_put_int(object, "bits", packed.bits);
    json_put_int(object, "parameters", packed.n_parameters);
}

static void put_expert_parts(json_t *root, const Plan *plan) {
    json_put_int(root, "expert_parts", facts_count_expert_parts(plan));
}

static void put_fp8(json_t *root, const Plan *plan) {
    Fp8Facts fp8 = facts_count_fp8(plan);
    bool any = plan->precision == DTYPE_FP8;
    json_t *object = json_put_new(root, "fp8_products", any ? json_object() : json_null());
    if (!any) return;
    json_put_int(object, "tensor_cores", fp8.on_tensor_cores);
    json_t *widened = json_put_new(object, "bf16", json_object());
    json_put_int(widened, "planned", fp8.widened_planned);
    json_put_int(widened, "batches", fp8.widened_batches);
    json_put_int(widened, "parts", fp8.widened_parts);
}

static void put_loss_scaling(json_t *root, const Plan *plan) {
    LossScaling scaling = plan_loss_scaling(plan);
    json_t *object = scaling.initial != 0 ? json_object() : json_null();
    if (scaling.initial != 0) {
        json_put_real(object, "initial", scaling.initial);
        json_put_int(object, "interval", scaling.interval);
    }
    json_object_set_new(root, "loss_scale", object);
}

static void put_head(json_t *root, const Facts *facts) {
    const Plan *plan = facts->plan;
    char fingerprint[24];
    json_put_int(root, "format", 1);
    json_t *model = json_put_new(root, "model", json_object());
    json_put_name(model, "name", plan->model);
    json_put_int(model, "parameters", plan->n_parameters);
    json_put_int(model, "trained_parameters", plan->n_trained);
    if (plan_count_teacher(plan))
        json_put_int(model, "teacher_parameters", plan_count_teacher(plan));
    json_put_int(model, "active_parameters", (int64_t)facts->active_parameters);
    json_put_int(model, "undivided_parameters", (int64_t)facts->undivided_parameters);
    json_put_int(model, "seq", plan->seq);
    json_put_int(model, "vocab", plan->vocab);
    json_put_int(model, "vocab_share", plan_vocab_share(plan));
    json_put_real(model, "flops_per_step", plan->model_flops);
    json_put_real(model, "hardware_flops_per_step", facts->hardware_flops);
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, plan->fingerprint);
    json_put_name(root, "fingerprint", fingerprint);
    json_t *mesh = json_put_new(root, "mesh", json_object());
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        bool optional = axis == MESH_C || axis == MESH_E || axis == MESH_R;
        if (optional && plan->mesh.size[axis] == 1) continue;
        json_put_int(mesh, mesh_axis_name(axis), plan->mesh.size[axis]);
    }
    json_put_int(mesh, "ranks", facts->n_ranks);
    json_t *schedule = json_put_new(root, "schedule", json_object());
    json_put_name(schedule, "name", plan->schedule);
    json_put_int(schedule, "chunks", plan->n_chunks);
    json_put_int(schedule, "micro_batches", plan->n_micro);
    json_put_int(schedule, "micro_batch", plan->micro_batch);
    json_object_set_new(schedule, "sequence_parallel", json_boolean(plan->sequence_parallel));
    json_t *batch = json_put_new(root, "batch", json_object());
    json_put_int(batch, "sequences", plan->global_batch);
    json_put_int(batch, "tokens", (int64_t)facts->n_tokens);
    json_put_name(root, "precision", dtype_name(plan->precision));
    json_put_name(root, "optimizer_state", dtype_name(plan_state_dtype(plan)));
    if (plan_ema_decay(plan) > 0) {
        json_object_set_new(root, "ema_decay", json_real(plan_ema_decay(plan)));
    }
    if (plan_skips_spikes(plan)) json_object_set_new(root, "skips_spikes", json_true());
    json_put_name(root, "gradients", dtype_name(plan_gradient_dtype(plan)));
    json_put_name(root, "masters", plan_splits_masters(plan) ? "split" : "whole");
    if (facts_rounded_form(plan)) json_put_name(root, "qat", facts_rounded_form(plan));
    if (plan_qk_clip(plan) > 0) json_put_real(root, "qk_clip", plan_qk_clip(plan));
    json_put_int(root, "offload", plan->offload);
    json_put_int(root, "offload_activations", plan->offload_activations);
    put_fp8(root, plan);
    put_packed(root, plan);
    put_expert_parts(root, plan);
    json_put_int(root, "lanes", facts_count_lanes(plan));
    json_put_int(root, "loss_parts", facts_count_loss_parts(plan, NULL));
    put_loss_scaling(root, plan);
    json_put_int(root, "zero", plan->zero);
    if (facts_joins_messages(plan)) json_put_name(root, "zero_messages", "block");
    json_put_name(root, "recompute", recompute_mode_name(plan->recompute));
    json_put_int(root, "seed", (int64_t)plan->seed);
    json_put_real(root, "learning_rate", plan->learning_rate);
    put_tuned(root, &plan->device);
}

static void put_predictions(json_t *root, const Facts *facts) {
    double step_us = facts->sim->step_us;
    json_t *predicted = json_put_new(root, "predicted", json_object());
    json_put_name(predicted, "device", facts->device->name);
    if (facts->device->profile) json_put_name(predicted, "profile", facts->device->profile);
    json_put_real(predicted, "step_us", step_us);
    json_put_real(predicted, "tokens_per_second",
                  step_us > 0 ? facts->n_tokens / step_us * 1e6 : 0);
    json_put_real(predicted, "bubble_fraction", facts->sim->bubble_fraction);
    json_put_real(predicted, "message_fraction", facts->sim->message_fraction);
    json_t *memory = json_put_new(root, "memory", json_object());
    json_put_int(memory, "largest_arena_bytes", facts->largest_arena_bytes);
    json_put_int(memory, "all_arena_bytes", (int64_t)facts->all_arena_bytes);
    json_put_int(memory, "largest_host_bytes", facts->largest_host_bytes);
    json_put_int(memory, "all_host_bytes", (int64_t)facts->all_host_bytes);
    json_put_int(memory, "library_bytes", facts->plan->library_bytes);
}

static void put_program(json_t *programs, const Facts *facts, int index) {
    const Program *program = &facts->plan->programs[index];
    const ProgramCost *cost = &facts->sim->costs[index];
    json_t *json = json_object();
    json_array_append_new(programs, json);
    json_put_int(json, "nodes", program->graph->n_nodes);
    json_put_int(json, "persistent_bytes", program->persistent_bytes);
    json_put_int(json, "scratch_bytes", program->scratch_bytes);
    json_put_int(json, "host_bytes", program->host_bytes);
    json_t *frame_bytes = json_put_new(json, "frame_bytes", json_array());
    json_t *host_frame_bytes = json_put_new(json, "host_frame_bytes", json_array());
    json_t *forward_flops = json_put_new(json, "forward_flops", json_array());
    json_t *backward_flops = json_put_new(json, "backward_flops", json_array());
    json_t *forward_us = json_put_new(json, "forward_us", json_array());
    json_t *backward_us = json_put_new(json, "backward_us", json_array());
    json_t *weights_flops = json_put_new(json, "weights_flops", json_array());
    json_t *weights_us = json_put_new(json, "weights_us", json_array());
    for (int chunk = 0; chunk < facts->plan->n_chunks; chunk++) {
        json_array_append_new(frame_bytes, json_integer(program->frame_bytes[chunk]));
        json_array_append_new(host_frame_bytes, json_integer(program->host_frame_bytes[chunk]));
        json_array_append_new(forward_flops, json_real(cost->forward[chunk].flops));
        json_array_append_new(backward_flops, json_real(cost->backward[chunk].flops));
        json_array_append_new(forward_us, json_real(cost->forward[chunk].us));
        json_array_append_new(backward_us, json_real(cost->backward[chunk].us));
        json_array_append_new(weights_flops, json_real(cost->weights[chunk].flops));
        json_array_append_new(weights_us, json_real(cost->weights[chunk].us));
    }
    double update_us = 0;
    for (int part = 0; part < N_UPDATE_PARTS; part++) update_us += cost->update[part].us;
    json_put_real(json, "update_us", update_us);
}

static void put_stage(json_t *stages, const Facts *facts, int index) {
    const Plan *plan = facts->plan;
    const Stage *stage = &plan->stages[index];
    const StageFacts *of = &facts->stages[index];
    json_t *json = json_object();
    json_array_append_new(stages, json);
    json_put_int(json, "program", stage->program);
    json_t *blocks = json_put_new(json, "blocks", json_array());
    json_t *pools = json_put_new(json, "frame_pool", json_array());
    json_t *slots = json_put_new(json, "frame_slots", json_array());
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        json_t *block = json_object();
        json_put_int(block, "first", stage->first_block[chunk]);
        json_put_int(block, "count", stage->n_blocks[chunk]);
        json_array_append_new(blocks, block);
        json_array_append_new(pools, json_integer(stage->frame_pool[chunk]));
        json_array_append_new(slots, json_integer(stage->frame_slots[chunk]));
    }
    json_put_int(json, "parameters", of->n_parameters);
    json_put_real(json, "flops", of->flops);
    json_put_int(json, "arena_bytes", of->arena_bytes);
    json_put_int(json, "host_bytes", of->host_bytes);
    json_t *classes = json_put_new(json, "class_bytes", json_object());
    for (int class = 0; class < N_BUFFER_CLASSES; class ++) {
        json_put_int(classes, buffer_class_name((BufferClass) class), of->class_bytes[class]);
    }
    int counts[N_TASK_KINDS] = {0};
    for (int i = 0; i < stage->n_tasks; i++) counts[stage->tasks[i].kind]++;
    json_t *tasks = json_put_new(json, "tasks", json_object());
    for (int kind = 0; kind < N_TASK_KINDS; kind++) {
        json_put_int(tasks, task_kind_word((TaskKind)kind), counts[kind]);
    }
    json_put_int(tasks, "total", stage->n_tasks);
    json_put_real(json, "busy_us", of->busy_us);
    json_put_real(json, "idle_us", of->idle_us);
}

static void put_traffic(json_t *root, const Facts *facts) {
    static const char *const KINDS[] = {"mesh", "tied", "pipeline"};
    json_t *list = json_put_new(root, "traffic", json_array());
    for (int i = 0; i < facts->n_traffic; i++) {
        const Traffic *traffic = &facts->traffic[i];
        json_t *json = json_object();
        json_array_append_new(list, json);
        json_put_name(json, "communicator", traffic->name);
        json_put_name(json, "kind", KINDS[traffic->kind]);
        json_put_name(json, "what", traffic->what);
        json_put_int(json, "groups", traffic->n_groups);
        json_put_int(json, "group_size", traffic->group_size);
        json_put_int(json, "messages", traffic->n_calls);
        json_put_real(json, "rank_bytes", traffic->rank_bytes);
        json_put_real(json, "all_bytes", traffic->total_bytes);
    }
}

static void put_links(json_t *root, const Facts *facts) {
    const Plan *plan = facts->plan;
    int *n_messages = ARENA_ARRAY(facts->arena, int, plan->n_channels);
    for (int i = 0; i < facts->sim->n_messages; i++) n_messages[facts->sim->messages[i].channel]++;
    json_t *channels = json_put_new(root, "channels", json_array());
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        json_t *json = json_object();
        json_array_append_new(channels, json);
        json_put_int(json, "from", channel->from);
        json_put_int(json, "to", channel->to);
        json_put_name(json, "direction", channel->backward ? "backward" : "forward");
        json_put_int(json, "slots", channel->slots);
        json_put_int(json, "slot_bytes", channel->slot_bytes);
        json_put_int(json, "messages", n_messages[i]);
    }
    json_t *comms = json_put_new(root, "communicators", json_array());
    for (int i = 0; i < plan->n_comms; i++) {
        json_t *json = json_object();
        json_array_append_new(comms, json);
        json_put_name(json, "name", plan->comms[i].name);
        json_t *stages = json_put_new(json, "stages", json_array());
        for (int k = 0; k < plan->comms[i].n_stages; k++) {
            json_array_append_new(stages, json_integer(plan->comms[i].stages[k]));
        }
    }
}

bool show_json(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    Arena *arena = arena_create();
    const Facts *facts = facts_create(arena, plan, device, diag);
    if (facts) {
        json_t *root = json_object();
        put_head(root, facts);
        put_predictions(root, facts);
        json_t *programs = json_put_new(root, "programs", json_array());
        for (int i = 0; i < plan->n_programs; i++) put_program(programs, facts, i);
        json_t *stages = json_put_new(root, "stages", json_array());
        for (int i = 0; i < plan->n_stages; i++) put_stage(stages, facts, i);
        put_traffic(root, facts);
        put_links(root, facts);
        json_put_document(out, root);
    }
    arena_destroy(arena);
    return facts != NULL;
}
