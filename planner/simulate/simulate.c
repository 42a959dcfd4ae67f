#include "planner/simulate/simulate.h"

#include "planner/clusters/cluster.h"

/* What the stages of a plan do, as the simulator takes it. */
typedef struct PlanLoad {
    PipelineLoad load;
    PipelinePart parts[N_UPDATE_PARTS];
} PlanLoad;

static void price_tasks(PipelineLoad *load, const Simulation *sim, Arena *arena) {
    const Plan *plan = sim->plan;
    int n_chunks = plan->n_chunks;
    PipelineChunk *chunks = ARENA_ARRAY(arena, PipelineChunk, plan->n_stages * n_chunks);
    PipelineList *lists = ARENA_ARRAY(arena, PipelineList, plan->n_stages);
    for (int stage = 0; stage < plan->n_stages; stage++) {
        const Stage *of = &plan->stages[stage];
        const ProgramCost *cost = &sim->costs[of->program];
        lists[stage] = (PipelineList){of->tasks, of->n_tasks};
        for (int c = 0; c < n_chunks; c++) {
            int n_blocks = of->n_blocks[c], n_data = cost->n_data[c];
            int pieces = n_data > 0 && n_data < n_blocks ? n_data : n_blocks;
            chunks[stage * n_chunks + c] = (PipelineChunk){
                .forward_us = cost->forward[c].us,
                .backward_us = cost->backward[c].us,
                .weights_us = cost->weights[c].us,
                .forward_tensor_us = cost->forward[c].collective_us,
                .backward_tensor_us = cost->backward[c].collective_us,
                .weights_tensor_us = cost->weights[c].collective_us,
                .forward_data_us = cost->forward[c].data_us,
                .backward_data_us = cost->backward[c].data_us,
                .weights_data_us = cost->weights[c].data_us,
                .once_us = cost->once[c].us - cost->once[c].data_us,
                .gather_us = cost->once[c].data_us,
                .gather_pieces = cost->n_gathers[c],
                .frame_bytes = (double)plan->programs[of->program].frame_bytes[c],
                .data_us = cost->data[c].us,
                .data_pieces = pieces > 0 ? pieces : 1,
            };
        }
    }
    load->chunks = chunks;
    load->lists = lists;
}

static void price_messages(PipelineLoad *load, const Plan *plan, const Device *device,
                           Arena *arena) {
    PipelineLink *links = ARENA_ARRAY(arena, PipelineLink, plan->n_channels);
    for (int i = 0; i < plan->n_channels; i++) {
        const Channel *channel = &plan->channels[i];
        double bytes = (double)plan_channel_message_bytes(plan, i), latency_us;
        double us = cost_message_us(device, plan, channel->from, channel->to, bytes, &latency_us);
        links[i] = (PipelineLink){
            .from = channel->from,
            .to = channel->to,
            .backward = channel->backward,
            .slots = channel->slots,
            .wire = -1,
            .message_us = us,
            .latency_us = latency_us,
        };
    }
    load->links = links;
    load->n_links = plan->n_channels;
    load->send = device->send_blocks ? SEND_LEAVES : SEND_OVERLAPPED;
    load->overlaps_data = true; /* what does not is part of the update */
    if (!device->cluster) return;
    load->overlaps_gathers = device->cluster->software.overlaps_parameters;
    load->gather_slowdown = device->cluster->software.overlap_slowdown;
}

/* Of `stages`, those whose updates have the reduction. */
static PipelineJoin join_of(const Simulation *sim, const int *stages, int n_stages, bool tied,
                            Arena *arena) {
    int *members = ARENA_ARRAY(arena, int, n_stages), n = 0;
    for (int i = 0; i < n_stages; i++) {
        int stage = stages ? stages[i] : i;
        const ProgramCost *cost = &sim->costs[sim->plan->stages[stage].program];
        if (tied ? cost->joins_tied : cost->joins_pipeline) members[n++] = stage;
    }
    return (PipelineJoin){n, members};
}

static void price_update(PlanLoad *to, const Simulation *sim, Arena *arena) {
    const Plan *plan = sim->plan;
    for (int part = 0; part < N_UPDATE_PARTS; part++) {
        double *us = ARENA_ARRAY(arena, double, plan->n_stages);
        for (int stage = 0; stage < plan->n_stages; stage++) {
            us[stage] = sim->costs[plan->stages[stage].program].update[part].us;
        }
        to->parts[part] = (PipelinePart){.us = us};
    }
    PipelineJoin *tied = ARENA_ARRAY(arena, PipelineJoin, plan->n_comms);
    PipelineJoin *all = ARENA_NEW(arena, PipelineJoin);
    for (int i = 0; i < plan->n_comms; i++) {
        tied[i] = join_of(sim, plan->comms[i].stages, plan->comms[i].n_stages, true, arena);
    }
    *all = join_of(sim, NULL, plan->n_stages, false, arena);
    to->parts[1].joins = tied, to->parts[1].n_joins = plan->n_comms;
    to->parts[2].joins = all, to->parts[2].n_joins = 1;
    to->load.parts = to->parts;
    to->load.n_parts = N_UPDATE_PARTS;
}

/* 0 where a device without a rate makes times endless. */
static double share(double part_us, double all_us) {
    return part_us > 0 && part_us < all_us ? part_us / all_us : 0;
}

static void take_results(Simulation *sim, const PipelineResult *result) {
    PipelineStage mean = pipeline_mean(result);
    sim->step_us = result->step_us;
    sim->n_spans = result->n_spans, sim->spans = result->spans;
    sim->n_messages = result->n_messages, sim->messages = result->messages;
    for (int stage = 0; stage < result->p; stage++) {
        const PipelineStage *from = &result->stages[stage];
        StageTimes *to = &sim->stages[stage];
        to->busy_us = from->compute_us + from->tensor_us + from->data_us + from->update_us;
        to->send_us = from->send_us;
        to->first_span = from->first_span;
        to->idle_us = sim->step_us - to->busy_us - to->send_us;
        if (to->idle_us < 0) to->idle_us = 0; /* rounding */
    }
    sim->bubble_fraction = share(mean.bubble_us + mean.idle_us, sim->step_us);
    sim->message_fraction = share(mean.pipeline_us, sim->step_us);
}

/* How much longer everything takes where ranks take turns on too few cores: while one waits for
 * another stage, others have its core, so that the step lasts as long as all work on all cores. */
static double crowding(const PipelineResult *result, const Device *device) {
    double busy_us = 0;
    for (int stage = 0; stage < result->p; stage++) {
        const PipelineStage *of = &result->stages[stage];
        busy_us += of->compute_us + of->tensor_us + of->data_us + of->update_us + of->send_us;
    }
    double work_us = device->ranks_per_core * busy_us / result->p;
    return work_us > result->step_us ? work_us / result->step_us : 1;
}

static void scale_cost(Cost *cost, double factor) {
    cost->us *= factor;
    cost->collective_us *= factor;
    cost->data_us *= factor;
}

static void scale_costs(Simulation *sim, double factor) {
    for (int i = 0; i < sim->plan->n_programs; i++) {
        ProgramCost *cost = &sim->costs[i];
        for (int c = 0; c < MAX_CHUNKS; c++) {
            scale_cost(&cost->forward[c], factor);
            scale_cost(&cost->backward[c], factor);
            scale_cost(&cost->weights[c], factor);
            scale_cost(&cost->data[c], factor);
            scale_cost(&cost->once[c], factor);
        }
        for (int part = 0; part < N_UPDATE_PARTS; part++) scale_cost(&cost->update[part], factor);
    }
}

static bool play(Simulation *sim, const Device *device, PipelineSim *with, Arena *arena,
                 PipelineResult *result, Diag *diag) {
    const Plan *plan = sim->plan;
    PlanLoad of = {.load = {.shape = {plan->n_stages, plan->n_chunks, plan->n_micro, plan->path}}};
    of.load.spans = true;
    price_tasks(&of.load, sim, arena);
    price_messages(&of.load, plan, device, arena);
    price_update(&of, sim, arena);
    return pipeline_sim_run(with, &of.load, result, diag);
}

Simulation *simulate_plan(Arena *arena, const Plan *plan, const Device *device, Diag *diag) {
    Simulation *sim = ARENA_NEW(arena, Simulation);
    PipelineSim *with = pipeline_sim_create(arena);
    PipelineResult result;
    sim->plan = plan;
    sim->costs = ARENA_ARRAY(arena, ProgramCost, plan->n_programs);
    for (int i = 0; i < plan->n_programs; i++) {
        sim->costs[i] = cost_program(plan, i, device, arena);
    }
    sim->stages = ARENA_ARRAY(arena, StageTimes, plan->n_stages);
    if (!play(sim, device, with, arena, &result, diag)) return NULL;
    double factor = crowding(&result, device);
    if (factor > 1) {
        Device slower = *device;
        slower.link_latency_us *= factor;
        slower.link_bytes_per_second /= factor;
        scale_costs(sim, factor);
        if (!play(sim, &slower, with, arena, &result, diag)) return NULL;
    }
    take_results(sim, &result);
    return sim;
}
