/* verify_plan: what a plan promises, proved without hardware.
 *
 *   Whole      (verify_plan.c) the mesh has as many stages as the plan, batches multiply out, every
 *              block of the model is on exactly one stage and chunk, in pipeline order.
 *   Programs   (verify_program.c) graphs are well-formed and have kernels; every value lies in its
 *              region, aligned, with the size of its type; every read has a writer that ran before.
 *   Division   (verify_division.c) what ranks divide is divided alike in all that a node reads and
 *              makes, and whole where its op needs it whole: kernels take sizes from one operand.
 *   Lifetimes  (verify_lifetimes.c) values alive at the same time never overlap, but for updates in
 *              place at their operand's last read, and halves of parameters.
 *   Masters    (verify_masters.c) copies that are halves of parameters lie in them, and nothing
 *              else takes such a parameter for whole.
 *   Stages     (verify_stage.c) regions fit the arena and do not overlap; a frame is free when its
 *              next micro-batch comes; every micro-batch runs once forward, then backward, then
 *              its W if the chunk has work for one, on every chunk, before the update; a sum's
 *              first share comes first; messages stand beside the task they serve; chunks that
 *              share a frame, where a micro-batch's way turns, run in the order that keeps it.
 *   Messages   (verify_messages.c) both ends of a channel agree on order, values, types, shardings.
 *   No hang    (verify_flow.c) all members of a communicator make the same calls; all task lists,
 *              with their bounded channels and the update's collectives, come to their end.
 *   Names      (verify_names.c) a logical name is one tensor; a weight on several stages has its
 *              gradient summed over just those.
 *   Update     (verify_update.c) every parameter is updated once, as a whole, from its own gradient
 *              and states, and its copy in 16 bits with it; shards come back to where they are
 * read; the norm counts every element once; messages lead from sharding to sharding.
 *
 * Ranks of one stage run one program, so what holds for a stage holds for all of its ranks, and
 * collectives within a stage meet by construction.
 */
#include "planner/plan/schedule.h"
#include "planner/verify/verify.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void verify_defect(Verifier *v, SourceLoc loc, const char *format, ...) {
    va_list args;
    if (v->n_defects++ >= MAX_DEFECTS) return;
    va_start(args, format);
    diag_error(v->diag, loc, "%s", arena_vprintf(v->scratch, format, args));
    va_end(args);
}

const char *verify_stage_text(Verifier *v, int stage) {
    int width = mesh_stage_ranks(&v->plan->mesh);
    if (width == 1) return arena_printf(v->scratch, "stage %d (rank %d)", stage, stage);
    return arena_printf(v->scratch, "stage %d (ranks %d-%d)", stage, stage * width,
                        stage * width + width - 1);
}

const char *verify_value_text(Verifier *v, int stage, Value value) {
    const Node *node = value.node;
    const Stage *s = &v->plan->stages[stage];
    if (node_attr(node, ATTR_name) && node->chunk >= 0 && node->chunk < MAX_CHUNKS) {
        return arena_printf(v->scratch, "'%s'",
                            node_logical_name(node, s->first_block[node->chunk], v->scratch));
    }
    if (value.output == 0) return arena_printf(v->scratch, "%%%d %s", node->id, OPS[node->op].name);
    return arena_printf(v->scratch, "%%%d.%d %s", node->id, value.output, OPS[node->op].name);
}

const char *verify_segment_text(Verifier *v, const Node *node) {
    static const char *const NAMES[] = {"forward", "backward", "weights"};
    if (node->phase == PHASE_UPDATE) return "update";
    return arena_printf(v->scratch, "%s(%d)", NAMES[node->phase], node->chunk);
}

const char *verify_task_text(Verifier *v, const Task *task) {
    if (task->kind >= TASK_UPDATE) return task_kind_word(task->kind);
    return arena_printf(v->scratch, "%s%d.%d", task_kind_word(task->kind), task->chunk,
                        (int)task->micro);
}

/* Sizes that everything else relies on. */
static bool verify_sizes(Verifier *v) {
    const Plan *plan = v->plan;
    const int *size = plan->mesh.size;
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        if (size[axis] >= 1 && size[axis] <= 1 << 20) continue;
        verify_defect(v, NO_LOC, "mesh axis %s has size %d", mesh_axis_name(axis), size[axis]);
        return false;
    }
    double n_ranks = 1;
    for (int axis = 0; axis < N_MESH_AXES; axis++) n_ranks *= size[axis];
    if (n_ranks > 1 << 24) {
        verify_defect(v, NO_LOC, "the mesh has more than %d ranks", 1 << 24);
    }
    if (plan->n_stages != size[MESH_P] || size[MESH_P] > MAX_STAGES) {
        verify_defect(v, NO_LOC, "the plan has %d stages, its mesh %d", plan->n_stages,
                      size[MESH_P]);
    }
    if (plan->n_chunks < 1 || plan->n_chunks > MAX_CHUNKS || plan->n_micro < 1 ||
        plan->n_micro > MAX_MICRO || plan->micro_batch < 1 || plan->n_blocks < 0) {
        verify_defect(v, NO_LOC,
                      "%d chunks, %d micro-batches of %d sequences, %d blocks: out of range",
                      plan->n_chunks, plan->n_micro, plan->micro_batch, plan->n_blocks);
    }
    if (plan->seq < 1 || plan->seq > INT32_MAX || plan->vocab < 1 || plan->vocab > INT32_MAX) {
        verify_defect(v, NO_LOC,
                      "sequences of %lld tokens, a vocabulary of %lld: out of range, 1 to %d",
                      (long long)plan->seq, (long long)plan->vocab, INT32_MAX);
    }
    if (plan->context == 0 && !path_allows(plan->path, plan->n_chunks)) {
        verify_defect(v, NO_LOC, "path %s: a stage cannot have %d chunks", path_name(plan->path),
                      plan->n_chunks);
    }
    if (v->n_defects) return false;
    int parts = mesh_batch_parts(&plan->mesh);
    double product = (double)plan->micro_batch * parts * plan->n_micro;
    if (product != plan->global_batch) {
        verify_defect(v, NO_LOC, "global batch %d is not micro-batch %d x %s %d x %d micro-batches",
                      plan->global_batch, plan->micro_batch, mesh_batch_name(&plan->mesh), parts,
                      plan->n_micro);
    }
    for (int s = 0; s < plan->n_stages; s++) {
        int program = plan->stages[s].program;
        if (program >= 0 && program < plan->n_programs) continue;
        verify_defect(v, NO_LOC, "%s: there is no program %d", verify_stage_text(v, s), program);
    }
    int64_t n_nodes = 0;
    for (int i = 0; i < plan->n_programs; i++) n_nodes += plan->programs[i].graph->n_nodes;
    if (n_nodes > MAX_PLAN_NODES) {
        verify_defect(v, NO_LOC, "the programs have %lld nodes; at most %d: " PLAN_FEWER_NODES,
                      (long long)n_nodes, MAX_PLAN_NODES);
    }
    return v->n_defects == 0;
}

/* Blocks follow the path of micro-batches. */
static void verify_blocks(Verifier *v) {
    const Plan *plan = v->plan;
    Path path = plan_path(plan);
    int next = 0;
    for (int g = 0; g < path.p * plan->n_chunks; g++) {
        const Stage *stage = &plan->stages[path_stage(path, g)];
        int chunk = path_chunk(path, g), first = stage->first_block[chunk],
            count = stage->n_blocks[chunk];
        if (first != next || count < 0 || count > plan->n_blocks - next) {
            verify_defect(v, NO_LOC,
                          "%s: chunk %d holds blocks %d to %d; block %d of %d comes next in the "
                          "pipeline",
                          verify_stage_text(v, path_stage(path, g)), chunk, first,
                          first + count - 1, next, plan->n_blocks);
            return;
        }
        next += count;
    }
    if (next != plan->n_blocks) {
        verify_defect(v, NO_LOC, "blocks %d to %d of the model are on no stage", next,
                      plan->n_blocks - 1);
    }
}

/* Stages that run one program hold equally many blocks per chunk: as many as its nodes name. */
static void verify_block_nodes(Verifier *v, int stage, int first_stage) {
    const Stage *s = &v->plan->stages[stage];
    const Graph *graph = v->plan->programs[s->program].graph;
    for (int chunk = 0; chunk < v->plan->n_chunks; chunk++) {
        int n_blocks = s->n_blocks[chunk];
        if (stage != first_stage) {
            int expected = v->plan->stages[first_stage].n_blocks[chunk];
            if (n_blocks == expected) continue;
            verify_defect(v, NO_LOC, "%s: chunk %d holds %d blocks, its program %d computes %d",
                          verify_stage_text(v, stage), chunk, n_blocks, s->program, expected);
            return;
        }
        bool *seen = ARENA_ARRAY(v->scratch, bool, n_blocks + 1);
        for (int n = 0; n < graph->n_nodes; n++) {
            const Node *node = graph->nodes[n];
            if (node->block == NO_BLOCK || node->chunk != chunk) continue;
            if (node->block < 0 || node->block >= n_blocks) {
                verify_defect(v, node->loc, "%s: %s belongs to block %d of the %d of chunk %d",
                              verify_stage_text(v, stage),
                              verify_value_text(v, stage, (Value){(Node *)node, 0}), node->block,
                              n_blocks, chunk);
                return;
            }
            seen[node->block] |= node->phase == PHASE_FORWARD && !(OPS[node->op].flags & LEAF);
        }
        for (int b = 0; b < n_blocks; b++) {
            if (seen[b]) continue;
            verify_defect(v, NO_LOC, "%s: program %d has no forward nodes of block %d (chunk %d)",
                          verify_stage_text(v, stage), s->program, s->first_block[chunk] + b,
                          chunk);
            return;
        }
    }
}

/* A plan for decoding has no schedule and no update: its program, lifetimes, regions. Its ranks are
 * t and d, and all run the one program, so that their messages meet. */
static void verify_decoding(Verifier *v) {
    const Mesh *mesh = &v->plan->mesh;
    if (mesh_rank_count(mesh) != mesh->size[MESH_T] * mesh->size[MESH_D]) {
        verify_defect(v, NO_LOC, "a plan for decoding has t and d alone");
        return;
    }
    bool whole = verify_program(v, 0);
    if (whole) verify_lifetimes(v, 0);
    if (whole) verify_masters(v, 0);
    if (whole) verify_rounded(v, 0);
    verify_regions(v, 0);
}

static void verify_all(Verifier *v) {
    const Plan *plan = v->plan;
    bool sound = true;
    if (!verify_sizes(v)) return;
    if (plan->context) {
        verify_decoding(v);
        return;
    }
    verify_blocks(v);
    if (v->n_defects) return;
    int *runner = ARENA_ARRAY(v->scratch, int, plan->n_programs); /* 1 + its first stage */
    for (int s = 0; s < plan->n_stages; s++) {
        int program = plan->stages[s].program;
        if (!runner[program]) {
            bool whole = verify_program(v, s);
            if (whole) verify_lifetimes(v, s);
            if (whole) verify_masters(v, s);
            sound &= whole;
            runner[program] = s + 1;
        }
        verify_block_nodes(v, s, runner[program] - 1);
        sound &= verify_stage(v, s);
    }
    for (int i = 0; i < plan->n_programs; i++) {
        if (!runner[i]) verify_defect(v, NO_LOC, "no stage runs program %d", i);
    }
    if (!sound) return;
    int before = v->n_defects;
    verify_messages(v);
    if (v->n_defects == before) verify_flow(v);
    for (int s = 0; !before && s < plan->n_stages; s++) {
        if (runner[plan->stages[s].program] != s + 1) continue;
        verify_update(v, s);
        verify_average(v, s);
        verify_rounded(v, s);
        verify_largest(v, s);
    }
    if (!before) verify_names(v); /* names tell little when blocks are not where they belong */
}

bool verify_plan(const Plan *plan, Diag *diag) {
    Verifier v = {.plan = plan, .diag = diag, .scratch = arena_create()};
    verify_all(&v);
    if (v.n_defects > MAX_DEFECTS) {
        diag_note(diag, NO_LOC, "and %d more defects", v.n_defects - MAX_DEFECTS);
    }
    arena_destroy(v.scratch);
    return v.n_defects == 0;
}
