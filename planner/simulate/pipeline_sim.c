#include "planner/simulate/pipeline_run.h"

/* ---- Stages that may go on: a stack, or a heap by (clock, number). ---- */

static bool before(const PipelineSim *sim, int a, int b) {
    double a_us = sim->buffers.of.runners[a].us, b_us = sim->buffers.of.runners[b].us;
    return a_us != b_us ? a_us < b_us : a < b;
}

static void wake(PipelineSim *sim, int stage) {
    int *ready = sim->buffers.of.ready, at = sim->n_ready;
    Runner *runner = &sim->buffers.of.runners[stage];
    if (runner->ready) return;
    runner->ready = true;
    sim->n_ready++;
    for (; sim->timed && at > 0 && before(sim, stage, ready[(at - 1) / 2]); at = (at - 1) / 2) {
        ready[at] = ready[(at - 1) / 2];
    }
    ready[at] = stage;
}

static int next_ready(PipelineSim *sim) {
    int *ready = sim->buffers.of.ready, n = --sim->n_ready;
    int last = ready[n], first = sim->timed ? ready[0] : last;
    sim->buffers.of.runners[first].ready = false;
    if (!sim->timed) return first;
    int at = 0;
    for (int child = 1; child < n; child = 2 * at + 1) {
        if (child + 1 < n && before(sim, ready[child + 1], ready[child])) child++;
        if (before(sim, last, ready[child])) break;
        ready[at] = ready[child];
        at = child;
    }
    ready[at] = last;
    return first;
}

/* ---- Tasks. Each returns false when the stage has to wait. ---- */

static double later(double a, double b) {
    return a > b ? a : b;
}

static bool send(PipelineSim *sim, int stage, int link_index) {
    Runner *runner = &sim->buffers.of.runners[stage];
    if (link_index < 0) return false;
    Link *link = &sim->buffers.of.links[link_index];
    double start_us = runner->us;
    if (link->slots > 0 && link->n_sent >= link->slots) { /* the slot's last must be taken */
        if (link->n_sent - link->n_taken >= link->slots) return false;
        const Parcel *taken = &sim->buffers.of.taken[link->first + link->n_sent - link->slots];
        start_us = later(start_us, taken->us);
        runner->free_us = later(runner->free_us, taken->free_us);
    }
    if (link->n_sent >= link->n_messages) return false;
    runner->us = start_us;
    if (sim->timed && sim->n_ready && before(sim, sim->buffers.of.ready[0], stage)) {
        wake(sim, stage); /* others may ask for the wire earlier */
        return false;
    }
    double *wire_free_us = &sim->buffers.of.wires[link->wire];
    double wire_us = later(start_us, *wire_free_us), arrive_us = wire_us + link->message_us;
    int message = link->first + link->n_sent++;
    *wire_free_us = arrive_us - link->latency_us;
    sim->buffers.of.arrived[message] = (Parcel){arrive_us, runner->free_us};
    if (sim->load->send == SEND_LEAVES) runner->us = *wire_free_us;
    if (sim->load->send == SEND_ARRIVES) runner->us = arrive_us;
    if (sim->load->send != SEND_OVERLAPPED) {
        sim->buffers.of.stages[stage].send_us += runner->us - wire_us;
    }
    if (runner->spans) {
        sim->buffers.of.messages[message] = (MessageSpan){.channel = link_index,
                                                          .from_task = runner->next,
                                                          .start_us = wire_us,
                                                          .arrive_us = arrive_us};
        if (sim->given) runner->spans[runner->next] = (TaskSpan){start_us, runner->us};
    }
    wake(sim, link->to);
    return true;
}

static bool receive(PipelineSim *sim, int stage, int link_index) {
    Runner *runner = &sim->buffers.of.runners[stage];
    if (link_index < 0) return false;
    Link *link = &sim->buffers.of.links[link_index];
    if (link->n_taken >= link->n_sent) return false;
    int message = link->first + link->n_taken++;
    const Parcel *parcel = &sim->buffers.of.arrived[message];
    double start_us = runner->us;
    runner->us = later(start_us, parcel->us);
    runner->free_us = later(runner->free_us, parcel->free_us);
    if (runner->spans) {
        MessageSpan *span = &sim->buffers.of.messages[message];
        span->to_task = runner->next;
        span->taken_us = runner->us;
        if (sim->given) runner->spans[runner->next] = (TaskSpan){start_us, runner->us};
    }
    if (link->slots > 0) {
        sim->buffers.of.taken[message] = (Parcel){runner->us, runner->free_us};
        wake(sim, link->from);
    }
    return true;
}

/* The chunk's last backward or W, which took `us` from `start` on, is done: its gradients leave one
 * piece after the other, each when it is complete and the one before has left. With equal pieces
 * either the first or the last decides. */
static double send_gradients(const PipelineChunk *chunk, double us, double start_us,
                             double queue_us) {
    int pieces = chunk->data_pieces > 1 ? chunk->data_pieces : 1;
    double first_us = start_us + us / pieces;
    return later(later(first_us, queue_us) + chunk->data_us,
                 start_us + us + chunk->data_us / pieces);
}

/* By how much longer the chunk's first forward takes, if it begins at `start_us`: for its first
 * piece of weights, or for its last and what is left to do then. */
static double wait_for_weights(const PipelineLoad *load, int stage, int c, double start_us) {
    const PipelineChunk *chunks = &load->chunks[stage * load->shape.n_chunks], *chunk = &chunks[c];
    int pieces = chunk->gather_pieces > 1 ? chunk->gather_pieces : 1;
    double us = chunk->gather_us, begun_us = 0;
    if (us <= 0 || !load->overlaps_gathers) return us;
    for (int k = 0; k < c; k++) begun_us += chunks[k].gather_us;
    double first_us = begun_us + us / pieces - start_us;
    double last_us = begun_us + us + chunk->forward_us / pieces - start_us - chunk->forward_us;
    double wait_us = later(later(first_us, last_us), 0);
    double before_us = later(start_us - begun_us, 0); /* came while the stage waited for others */
    return wait_us + load->gather_slowdown * later(us - before_us - wait_us, 0);
}

static void compute(PipelineSim *sim, int stage, const Task *task) {
    const PipelineLoad *load = sim->load;
    Runner *runner = &sim->buffers.of.runners[stage];
    PipelineStage *times = &sim->buffers.of.stages[stage];
    int index = stage * load->shape.n_chunks + task->chunk;
    const PipelineChunk *chunk = &load->chunks[index];
    bool forward = task->kind == TASK_FORWARD, weights = task->kind == TASK_WEIGHTS;
    double us = chunk->backward_us, tensor_us = chunk->backward_tensor_us;
    double data_us = chunk->backward_data_us;
    if (forward) {
        us = chunk->forward_us, tensor_us = chunk->forward_tensor_us;
        data_us = chunk->forward_data_us;
    } else if (weights) {
        us = chunk->weights_us, tensor_us = chunk->weights_tensor_us;
        data_us = chunk->weights_data_us;
    }
    double free_us = us;
    if (forward && task->micro == 0) {
        double wait_us = wait_for_weights(load, stage, task->chunk, runner->us);
        free_us += chunk->once_us + wait_for_weights(load, stage, task->chunk, runner->free_us);
        us += chunk->once_us + wait_us;
        data_us += wait_us;
    }
    if (runner->spans) runner->spans[runner->next] = (TaskSpan){runner->us, runner->us + us};
    times->compute_us += us - tensor_us - data_us;
    times->tensor_us += tensor_us;
    times->data_us += data_us;
    if (forward) {
        runner->held_bytes += chunk->frame_bytes;
        times->peak_bytes = later(times->peak_bytes, runner->held_bytes);
    } else if (task->kind == sim->ends) {
        runner->held_bytes -= chunk->frame_bytes;
        if (--runner->n_left[task->chunk] == 0 && load->overlaps_data && chunk->data_us > 0) {
            runner->data.free_us = send_gradients(chunk, us, runner->free_us, runner->data.free_us);
            runner->data.us = send_gradients(chunk, us, runner->us, runner->data.us);
            if (runner->spans) {
                sim->buffers.of.data_spans[index] =
                    (TaskSpan){runner->data.us - chunk->data_us, runner->data.us};
            }
        }
    }
    runner->us += us;
    runner->free_us += free_us;
}

/* The link of the message that belongs to the task. */
static int link_at(const Runner *runner, const Task *task, TaskKind kind) {
    Task message = {.kind = (uint8_t)kind, .chunk = task->chunk};
    return links_find(&runner->links, &message);
}

/* A task of a schedule: receives what it needs, and sends its result. */
static bool run_whole(PipelineSim *sim, int stage, const Task *task) {
    Runner *runner = &sim->buffers.of.runners[stage];
    if (task->kind == TASK_WEIGHTS) {
        compute(sim, stage, task);
        return true;
    }
    bool forward = task->kind == TASK_FORWARD;
    int v = sim->load->shape.n_chunks;
    bool begins = !path_has_border(sim->path, v, stage, task->chunk, forward);
    bool ends = !path_has_border(sim->path, v, stage, task->chunk, !forward);
    if (runner->move == MOVE_RECEIVE) {
        int link = link_at(runner, task, forward ? TASK_RECV_FORWARD : TASK_RECV_BACKWARD);
        if (!begins && !receive(sim, stage, link)) return false;
        runner->move = MOVE_COMPUTE;
    }
    if (runner->move == MOVE_COMPUTE) {
        compute(sim, stage, task);
        runner->move = MOVE_SEND;
    }
    int link = link_at(runner, task, forward ? TASK_SEND_FORWARD : TASK_SEND_BACKWARD);
    if (!ends && !send(sim, stage, link)) return false;
    runner->move = MOVE_RECEIVE;
    return true;
}

/* Up to the update, or until the stage must wait. */
static void run_stage(PipelineSim *sim, int stage) {
    Runner *runner = &sim->buffers.of.runners[stage];
    for (; runner->next < runner->n_tasks; runner->next++) {
        const Task *task = &runner->tasks[runner->next];
        if (!sim->given) {
            if (!run_whole(sim, stage, task)) return;
        } else if (task_is_work(task)) {
            compute(sim, stage, task);
        } else if (task->kind == TASK_UPDATE) {
            return;
        } else {
            int link = links_find(&runner->links, task);
            bool done = task_is_send(task) ? send(sim, stage, link) : receive(sim, stage, link);
            if (!done) return;
        }
    }
}

/* ---- The end of the step. ---- */

/* Reports the first stage that is not at its update, where the lists end. */
static bool check_finished(const PipelineSim *sim, Diag *diag) {
    for (int stage = 0; stage < sim->load->shape.p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        if (runner->next >= runner->n_tasks) continue;
        const Task *task = &runner->tasks[runner->next];
        if (task->kind == TASK_UPDATE && runner->next == runner->n_tasks - 1) continue;
        diag_error(diag, NO_LOC, "stage %d waits forever at its task %d (%s%d.%d)", stage,
                   runner->next, task_kind_word((TaskKind)task->kind), task->chunk, task->micro);
        return false;
    }
    return true;
}

/* The data axis' messages: what is left of them, or all. */
static void finish_data(PipelineSim *sim, int stage) {
    const PipelineLoad *load = sim->load;
    Runner *runner = &sim->buffers.of.runners[stage];
    PipelineStage *times = &sim->buffers.of.stages[stage];
    double before_us = runner->free_us;
    for (int c = 0; c < load->shape.n_chunks && !load->overlaps_data; c++) {
        int index = stage * load->shape.n_chunks + c;
        double us = load->chunks[index].data_us;
        if (runner->spans) {
            sim->buffers.of.data_spans[index] = (TaskSpan){runner->us, runner->us + us};
        }
        runner->us += us;
        runner->free_us += us;
    }
    runner->us = later(runner->us, runner->data.us);
    runner->free_us = later(runner->free_us, runner->data.free_us);
    times->data_us += runner->free_us - before_us;
}

static void run_part(PipelineSim *sim, const PipelinePart *part) {
    Runner *runners = sim->buffers.of.runners;
    Parcel *joint = sim->buffers.of.joint;
    int p = sim->load->shape.p;
    for (int stage = 0; stage < p; stage++) {
        joint[stage] = (Parcel){runners[stage].us, runners[stage].free_us};
    }
    for (int j = 0; j < part->n_joins; j++) {
        const PipelineJoin *join = &part->joins[j];
        Parcel last = {0, 0};
        for (int i = 0; i < join->n_stages; i++) {
            last.us = later(last.us, runners[join->stages[i]].us);
            last.free_us = later(last.free_us, runners[join->stages[i]].free_us);
        }
        for (int i = 0; i < join->n_stages; i++) {
            Parcel *of = &joint[join->stages[i]];
            *of = (Parcel){later(of->us, last.us), later(of->free_us, last.free_us)};
        }
    }
    for (int stage = 0; stage < p; stage++) {
        PipelineStage *times = &sim->buffers.of.stages[stage];
        runners[stage].us = joint[stage].us + part->us[stage];
        runners[stage].free_us = joint[stage].free_us + part->us[stage];
        *(part->is_data ? &times->data_us : &times->update_us) += part->us[stage];
    }
}

static double used_us(const PipelineStage *times) {
    return times->compute_us + times->tensor_us + times->data_us + times->update_us;
}

static void finish(PipelineSim *sim, PipelineResult *out) {
    const PipelineLoad *load = sim->load;
    PipelineStage *stages = sim->buffers.of.stages;
    for (int stage = 0; stage < out->p; stage++) {
        Runner *runner = &sim->buffers.of.runners[stage];
        if (runner->spans && runner->next < runner->n_tasks) {
            runner->spans[runner->next].start_us = runner->us;
        }
        finish_data(sim, stage);
    }
    for (int i = 0; i < load->n_parts; i++) run_part(sim, &load->parts[i]);
    for (int stage = 0; stage < out->p; stage++) {
        out->step_us = later(out->step_us, sim->buffers.of.runners[stage].us);
    }
    for (int stage = 0; stage < out->p; stage++) {
        const Runner *runner = &sim->buffers.of.runners[stage];
        PipelineStage *times = &stages[stage];
        times->idle_us = out->step_us - runner->us;
        times->pipeline_us = runner->us - runner->free_us;
        times->bubble_us = later(runner->free_us - used_us(times), 0); /* rounding */
        if (load->constant_bytes) times->peak_bytes += load->constant_bytes[stage];
        if (used_us(times) > used_us(&stages[out->busiest])) out->busiest = stage;
        if (runner->spans && runner->next < runner->n_tasks) {
            runner->spans[runner->next].end_us = runner->us;
        }
    }
}

bool pipeline_sim_run(PipelineSim *sim, const PipelineLoad *load, PipelineResult *out, Diag *diag) {
    sim->load = load;
    sim->n_ready = 0;
    if (!pipeline_prepare(sim, out, diag)) return false;
    for (int stage = out->p - 1; stage >= 0; stage--) wake(sim, stage);
    while (sim->n_ready > 0) run_stage(sim, next_ready(sim));
    if (!check_finished(sim, diag)) return false;
    finish(sim, out);
    return true;
}

PipelineStage pipeline_mean(const PipelineResult *result) {
    PipelineStage mean = {0};
    for (int stage = 0; stage < result->p; stage++) {
        const PipelineStage *of = &result->stages[stage];
        mean.compute_us += of->compute_us / result->p;
        mean.tensor_us += of->tensor_us / result->p;
        mean.pipeline_us += of->pipeline_us / result->p;
        mean.bubble_us += of->bubble_us / result->p;
        mean.data_us += of->data_us / result->p;
        mean.update_us += of->update_us / result->p;
        mean.idle_us += of->idle_us / result->p;
        mean.send_us += of->send_us / result->p;
    }
    return mean;
}

int pipeline_memory_curve(const PipelineResult *result, const PipelineLoad *load, int stage,
                          MemoryPoint *out) {
    const PipelineList *list = &result->lists[stage];
    const TaskSpan *spans = &result->spans[result->stages[stage].first_span];
    double bytes = load->constant_bytes ? load->constant_bytes[stage] : 0;
    TaskKind ends = TASK_BACKWARD;
    int n = 0;
    for (int i = 0; i < list->n_tasks; i++) {
        if (list->tasks[i].kind == TASK_WEIGHTS) ends = TASK_WEIGHTS;
    }
    out[n++] = (MemoryPoint){0, bytes};
    for (int i = 0; i < list->n_tasks; i++) {
        const Task *task = &list->tasks[i];
        if (task->kind != TASK_FORWARD && task->kind != ends) continue;
        bool forward = task->kind == TASK_FORWARD;
        double frame = load->chunks[stage * load->shape.n_chunks + task->chunk].frame_bytes;
        bytes += forward ? frame : -frame;
        out[n++] = (MemoryPoint){forward ? spans[i].start_us : spans[i].end_us, bytes};
    }
    return n;
}
