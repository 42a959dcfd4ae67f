/* The plan's facts as one JSON object. Bytes are of one rank unless the key says `all`; times are
 * predicted, in microseconds.
 *
 *   format            1; grows when a key changes its meaning
 *   model             name, parameters, seq, vocab, flops_per_step (nothing computed again),
 *                     hardware_flops_per_step (of all ranks' products and attention, as planned)
 *   fingerprint       16 hexadecimal digits
 *   mesh              t, d, p, ranks
 *   schedule          name, chunks, micro_batches, micro_batch (sequences), sequence_parallel
 *   batch             sequences, tokens (both per step)
 *   precision         of activations: f32 or bf16
 *   zero              1: optimizer state and update are divided over d; else 0
 *   recompute         none, selective or full
 *   seed, learning_rate
 *   tuned             device, arch, cublaslt (version), products; null: was not
 *   predicted         device, profile (where measured), step_us, tokens_per_second, bubble_fraction
 *   memory            largest_arena_bytes, all_arena_bytes (all ranks), library_bytes
 *   programs[]        nodes, persistent_bytes, scratch_bytes, frame_bytes[chunk],
 *                     forward_flops[chunk], backward_flops[chunk], forward_us[chunk],
 *                     backward_us[chunk], update_us
 *   stages[]          program, blocks[chunk] {first, count}, parameters (logical), flops,
 *                     arena_bytes, class_bytes {parameter ... input}, frame_slots[chunk],
 *                     tasks {rf F sf rb B sb U: counts; total}, busy_us, idle_us
 *   traffic[]         communicator, kind (mesh, tied, pipeline), what, groups, group_size,
 *                     messages and rank_bytes (of the busiest rank), all_bytes; per step, sent
 *   channels[]        from, to (stages), direction (forward, backward), slots, slot_bytes, messages
 *   communicators[]   name, stages[]
 */
#include "planner/show_facts.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* A name from the plan; what is not UTF-8 becomes '?'. */
static json_t *name_json(const char *name) {
    json_t *json = json_string(name ? name : "");
    if (json) return json;
    StrBuf text = strbuf_create();
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        strbuf_printf(&text, "%c", *c < 128 ? *c : '?');
    }
    json = json_string(text.text);
    strbuf_destroy(&text);
    return json;
}

static void put_int(json_t *object, const char *key, int64_t value) {
    json_object_set_new(object, key, json_integer(value));
}

static void put_real(json_t *object, const char *key, double value) {
    json_t *json = json_real(value);
    json_object_set_new(object, key, json ? json : json_null()); /* no infinities in JSON */
}

static void put_name(json_t *object, const char *key, const char *name) {
    json_object_set_new(object, key, name_json(name));
}

static json_t *put_new(json_t *object, const char *key, json_t *child) {
    json_object_set_new(object, key, child);
    return child;
}

static void put_tuned(json_t *root, const PlanDevice *device) {
    if (!device->name) {
        json_object_set_new(root, "tuned", json_null());
        return;
    }
    json_t *tuned = put_new(root, "tuned", json_object());
    put_name(tuned, "device", device->name);
    put_name(tuned, "arch", device->arch);
    put_int(tuned, "cublaslt", device->library_version);
    put_int(tuned, "products", device->n_algos);
}

static void put_head(json_t *root, const Facts *facts) {
    const Plan *plan = facts->plan;
    char fingerprint[24];
    put_int(root, "format", 1);
    json_t *model = put_new(root, "model", json_object());
    put_name(model, "name", plan->model);
    put_int(model, "parameters", plan->n_parameters);
    put_int(model, "seq", plan->seq);
    put_int(model, "vocab", plan->vocab);
    put_real(model, "flops_per_step", plan->model_flops);
    put_real(model, "hardware_flops_per_step", facts->hardware_flops);
    snprintf(fingerprint, sizeof(fingerprint), "%016" PRIx64, plan->fingerprint);
    put_name(root, "fingerprint", fingerprint);
    json_t *mesh = put_new(root, "mesh", json_object());
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        put_int(mesh, mesh_axis_name(axis), plan->mesh.size[axis]);
    }
    put_int(mesh, "ranks", facts->n_ranks);
    json_t *schedule = put_new(root, "schedule", json_object());
    put_name(schedule, "name", plan->schedule);
    put_int(schedule, "chunks", plan->n_chunks);
    put_int(schedule, "micro_batches", plan->n_micro);
    put_int(schedule, "micro_batch", plan->micro_batch);
    json_object_set_new(schedule, "sequence_parallel", json_boolean(plan->sequence_parallel));
    json_t *batch = put_new(root, "batch", json_object());
    put_int(batch, "sequences", plan->global_batch);
    put_int(batch, "tokens", (int64_t)facts->n_tokens);
    put_name(root, "precision", dtype_name(plan->precision));
    put_int(root, "zero", plan->zero);
    put_name(root, "recompute", recompute_mode_name(plan->recompute));
    put_int(root, "seed", (int64_t)plan->seed);
    put_real(root, "learning_rate", plan->learning_rate);
    put_tuned(root, &plan->device);
}

static void put_predictions(json_t *root, const Facts *facts) {
    double step_us = facts->sim->step_us;
    json_t *predicted = put_new(root, "predicted", json_object());
    put_name(predicted, "device", facts->device->name);
    if (facts->device->profile) put_name(predicted, "profile", facts->device->profile);
    put_real(predicted, "step_us", step_us);
    put_real(predicted, "tokens_per_second", step_us > 0 ? facts->n_tokens / step_us * 1e6 : 0);
    put_real(predicted, "bubble_fraction", facts->sim->bubble_fraction);
    json_t *memory = put_new(root, "memory", json_object());
    put_int(memory, "largest_arena_bytes", facts->largest_arena_bytes);
    put_int(memory, "all_arena_bytes", (int64_t)facts->all_arena_bytes);
    put_int(memory, "library_bytes", facts->plan->library_bytes);
}

static void put_program(json_t *programs, const Facts *facts, int index) {
    const Program *program = &facts->plan->programs[index];
    const ProgramCost *cost = &facts->sim->costs[index];
    json_t *json = json_object();
    json_array_append_new(programs, json);
    put_int(json, "nodes", program->graph->n_nodes);
    put_int(json, "persistent_bytes", program->persistent_bytes);
    put_int(json, "scratch_bytes", program->scratch_bytes);
    json_t *frame_bytes = put_new(json, "frame_bytes", json_array());
    json_t *forward_flops = put_new(json, "forward_flops", json_array());
    json_t *backward_flops = put_new(json, "backward_flops", json_array());
    json_t *forward_us = put_new(json, "forward_us", json_array());
    json_t *backward_us = put_new(json, "backward_us", json_array());
    for (int chunk = 0; chunk < facts->plan->n_chunks; chunk++) {
        json_array_append_new(frame_bytes, json_integer(program->frame_bytes[chunk]));
        json_array_append_new(forward_flops, json_real(cost->forward[chunk].flops));
        json_array_append_new(backward_flops, json_real(cost->backward[chunk].flops));
        json_array_append_new(forward_us, json_real(cost->forward[chunk].us));
        json_array_append_new(backward_us, json_real(cost->backward[chunk].us));
    }
    double update_us = 0;
    for (int part = 0; part < N_UPDATE_PARTS; part++) update_us += cost->update[part].us;
    put_real(json, "update_us", update_us);
}

static void put_stage(json_t *stages, const Facts *facts, int index) {
    const Plan *plan = facts->plan;
    const Stage *stage = &plan->stages[index];
    const StageFacts *of = &facts->stages[index];
    json_t *json = json_object();
    json_array_append_new(stages, json);
    put_int(json, "program", stage->program);
    json_t *blocks = put_new(json, "blocks", json_array());
    json_t *slots = put_new(json, "frame_slots", json_array());
    for (int chunk = 0; chunk < plan->n_chunks; chunk++) {
        json_t *block = json_object();
        put_int(block, "first", stage->first_block[chunk]);
        put_int(block, "count", stage->n_blocks[chunk]);
        json_array_append_new(blocks, block);
        json_array_append_new(slots, json_integer(stage->frame_slots[chunk]));
    }
    put_int(json, "parameters", of->n_parameters);
    put_real(json, "flops", of->flops);
    put_int(json, "arena_bytes", of->arena_bytes);
    json_t *classes = put_new(json, "class_bytes", json_object());
    for (int class = 0; class < N_BUFFER_CLASSES; class ++) {
        put_int(classes, buffer_class_name((BufferClass) class), of->class_bytes[class]);
    }
    int counts[N_TASK_KINDS] = {0};
    for (int i = 0; i < stage->n_tasks; i++) counts[stage->tasks[i].kind]++;
    json_t *tasks = put_new(json, "tasks", json_object());
    for (int kind = 0; kind < N_TASK_KINDS; kind++) {
        put_int(tasks, task_kind_word((TaskKind)kind), counts[kind]);
    }
    put_int(tasks, "total", stage->n_tasks);
    put_real(json, "busy_us", of->busy_us);
    put_real(json, "idle_us", of->idle_us);
}

static void put_traffic(json_t *root, const Facts *facts) {
    static const char *const KINDS[] = {"mesh", "tied", "pipeline"};
    json_t *list = put_new(root, "traffic", json_array());
    for (int i = 0; i < facts->n_traffic; i++) {
        const Traffic *traffic = &facts->traffic[i];
        json_t *json = json_object();
        json_array_append_new(list, json);
        put_name(json, "communicator", traffic->name);
        put_name(json, "kind", KINDS[traffic->kind]);
        put_name(json, "what", traffic->what);
        put_int(json, "groups", traffic->n_groups);
        put_int(json, "group_size", traffic->group_size);
        put_int(json, "messages", traffic->n_calls);
        put_real(json, "rank_bytes", traffic->rank_bytes);
        put_real(json, "all_bytes", traffic->total_bytes);
    }
}

static void put_links(json_t *root, const Facts *facts) {
    const Plan *plan = facts->plan;
    int *n_messages = ARENA_ARRAY(facts->arena, int, plan->n_channels);
    for (int i = 0; i < facts->sim->n_messages; i++) n_messages[facts->sim->messages[i].channel]++;
    json_t *channels = put_new(root, "channels", json_array());
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        json_t *json = json_object();
        json_array_append_new(channels, json);
        put_int(json, "from", channel->from);
        put_int(json, "to", channel->to);
        put_name(json, "direction", channel->backward ? "backward" : "forward");
        put_int(json, "slots", channel->slots);
        put_int(json, "slot_bytes", channel->slot_bytes);
        put_int(json, "messages", n_messages[i]);
    }
    json_t *comms = put_new(root, "communicators", json_array());
    for (int i = 0; i < plan->n_comms; i++) {
        json_t *json = json_object();
        json_array_append_new(comms, json);
        put_name(json, "name", plan->comms[i].name);
        json_t *stages = put_new(json, "stages", json_array());
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
        json_t *programs = put_new(root, "programs", json_array());
        for (int i = 0; i < plan->n_programs; i++) put_program(programs, facts, i);
        json_t *stages = put_new(root, "stages", json_array());
        for (int i = 0; i < plan->n_stages; i++) put_stage(stages, facts, i);
        put_traffic(root, facts);
        put_links(root, facts);
        char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        if (!text) BUG("a plan that does not become JSON");
        strbuf_put(out, text);
        strbuf_put(out, "\n");
        free(text);
        json_decref(root);
    }
    arena_destroy(arena);
    return facts != NULL;
}
