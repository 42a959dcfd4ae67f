/* One stage: its arena, its frames, and that its task list does every piece of work once, in an
 * order that its values allow. */
#include "planner/verify/verify.h"

#include <stdlib.h>
#include <string.h>

typedef struct Span {
    const char *name;
    int64_t base, bytes;
} Span;

static int by_base(const void *left, const void *right) {
    const Span *a = left, *b = right;
    if (a->base != b->base) return a->base < b->base ? -1 : 1;
    return a->bytes < b->bytes ? -1 : a->bytes > b->bytes;
}

static bool check_span(Verifier *v, int stage, const Span *span) {
    int64_t end, arena_bytes = v->plan->stages[stage].arena_bytes;
    if (span->base < 0 || span->base % ALIGN_BYTES || span->bytes < 0) {
        verify_defect(v, NO_LOC, "%s: region '%s' at %lld: no multiple of %d",
                      verify_stage_text(v, stage), span->name, (long long)span->base, ALIGN_BYTES);
        return false;
    }
    if (__builtin_add_overflow(span->base, span->bytes, &end) || end > arena_bytes) {
        verify_defect(v, NO_LOC,
                      "%s: region '%s' (%lld bytes at %lld) does not fit the arena of %lld bytes",
                      verify_stage_text(v, stage), span->name, (long long)span->bytes,
                      (long long)span->base, (long long)arena_bytes);
        return false;
    }
    return true;
}

static bool check_messages_fit(Verifier *v, int stage) {
    const Stage *s = &v->plan->stages[stage];
    int64_t need = 0;
    bool overflow = false;
    for (int c = 0; c < v->plan->n_channels; c++) {
        const Channel *channel = &v->plan->channels[c];
        int64_t bytes;
        if (channel->from != stage) continue;
        overflow |= __builtin_mul_overflow((int64_t)channel->slots, channel->slot_bytes, &bytes);
        overflow = overflow || __builtin_add_overflow(need, bytes, &need);
    }
    if (!overflow && need <= s->message_bytes) return true;
    verify_defect(v, NO_LOC, "%s: region 'messages' has %lld bytes, its channels' slots need %lld",
                  verify_stage_text(v, stage), (long long)s->message_bytes,
                  overflow ? -1 : (long long)need);
    return false;
}

/* As many slots as on the device, whose number is bounded by now. */
static bool check_host_frames(Verifier *v, int stage) {
    const Stage *s = &v->plan->stages[stage];
    int64_t sum = v->plan->programs[s->program].host_bytes, bytes;
    for (int pool = 0; pool < v->plan->n_chunks; pool++) {
        if (!__builtin_mul_overflow((int64_t)s->frame_slots[pool],
                                    plan_host_slot_bytes(v->plan, s, pool), &bytes) &&
            !__builtin_add_overflow(sum, bytes, &sum)) {
            continue;
        }
        verify_defect(v, NO_LOC, "%s: %d frames of pool %d in the host's memory: too many",
                      verify_stage_text(v, stage), s->frame_slots[pool], pool);
        return false;
    }
    return true;
}

/* Every chunk keeps its frames in a pool that is there. */
static bool check_frame_pools(Verifier *v, int stage) {
    const Stage *s = &v->plan->stages[stage];
    int n_pools = v->plan->n_chunks; /* at most: as many as chunks */
    for (int chunk = 0; chunk < v->plan->n_chunks; chunk++) {
        if (s->frame_pool[chunk] >= 0 && s->frame_pool[chunk] < n_pools) continue;
        verify_defect(v, NO_LOC, "%s: chunk %d's frames are in pool %d of %d",
                      verify_stage_text(v, stage), chunk, s->frame_pool[chunk], n_pools);
        return false;
    }
    return true;
}

bool verify_regions(Verifier *v, int stage) {
    const Stage *s = &v->plan->stages[stage];
    const Program *program = &v->plan->programs[s->program];
    Span spans[MAX_CHUNKS + 3];
    int n = 0;
    spans[n++] = (Span){"persistent", s->persistent_base, program->persistent_bytes};
    spans[n++] = (Span){"messages", s->message_base, s->message_bytes};
    spans[n++] = (Span){"scratch", s->scratch_base, program->scratch_bytes};
    if (!check_frame_pools(v, stage)) return false;
    for (int pool = 0; pool < v->plan->n_chunks; pool++) {
        const char *name = arena_printf(v->scratch, "frames of pool %d", pool);
        int64_t most = (int64_t)v->plan->n_chunks * v->plan->n_micro, bytes;
        if (s->frame_slots[pool] < 0 || s->frame_slots[pool] > most ||
            __builtin_mul_overflow((int64_t)s->frame_slots[pool], plan_slot_bytes(v->plan, s, pool),
                                   &bytes)) {
            verify_defect(v, NO_LOC, "%s: %d %s: too many", verify_stage_text(v, stage),
                          s->frame_slots[pool], name);
            return false;
        }
        spans[n++] = (Span){name, s->frame_base[pool], bytes};
    }
    bool sound = check_messages_fit(v, stage) && check_host_frames(v, stage);
    for (int i = 0; i < n; i++) sound &= check_span(v, stage, &spans[i]);
    if (!sound) return false;
    qsort(spans, (size_t)n, sizeof(*spans), by_base);
    for (int i = 1; i < n; i++) {
        if (spans[i - 1].base + spans[i - 1].bytes <= spans[i].base) continue;
        verify_defect(v, NO_LOC, "%s: regions '%s' and '%s' overlap", verify_stage_text(v, stage),
                      spans[i - 1].name, spans[i].name);
        sound = false;
    }
    return sound;
}

typedef struct TaskChecker {
    Verifier *v;
    int stage;
    const Stage *s;
    uint8_t *state; /* [n_chunks][n_micro]: 0, then FORWARD_DONE, BACKWARD_DONE, WEIGHTS_DONE */
    TaskKind ends[MAX_CHUNKS]; /* by chunk: what ends a micro-batch */
    /* By chunk: earlier and later chunks, a bit each, with which it shares values of a frame. */
    uint32_t earlier[MAX_CHUNKS], later[MAX_CHUNKS];
    bool sound;
} TaskChecker;

enum { FORWARD_DONE = 1, BACKWARD_DONE = 2, WEIGHTS_DONE = 3 };

static uint8_t done_by(TaskKind kind) {
    return kind == TASK_FORWARD    ? FORWARD_DONE
           : kind == TASK_BACKWARD ? BACKWARD_DONE
                                   : WEIGHTS_DONE;
}

#define TASK_DEFECT(tc, at, format, ...)                                                           \
    do {                                                                                           \
        (tc)->sound = false;                                                                       \
        verify_defect((tc)->v, NO_LOC, "%s: task %d, %s: " format,                                 \
                      verify_stage_text((tc)->v, (tc)->stage), (at),                               \
                      verify_task_text((tc)->v, &(tc)->s->tasks[at]), __VA_ARGS__);                \
    } while (0)

static bool is_task(const Stage *s, int at, TaskKind kind, const Task *like) {
    return at >= 0 && at < s->n_tasks && s->tasks[at].kind == kind &&
           s->tasks[at].chunk == like->chunk && s->tasks[at].micro == like->micro;
}

/* Does the chunk have another stage's before it, or after it, on a micro-batch's way? */
static bool has_border(const TaskChecker *tc, int chunk, bool before) {
    const Plan *plan = tc->v->plan;
    return path_has_border(plan_path(plan), plan->n_chunks, tc->stage, chunk, before);
}

/* Messages stand directly beside their task, and only where the pipeline has a border. */
static void check_neighbours(TaskChecker *tc, int at) {
    const Task *task = &tc->s->tasks[at];
    bool forward = task->kind == TASK_FORWARD;
    bool needs_recv = has_border(tc, task->chunk, forward);
    bool needs_send = has_border(tc, task->chunk, !forward);
    TaskKind recv = forward ? TASK_RECV_FORWARD : TASK_RECV_BACKWARD;
    TaskKind send = forward ? TASK_SEND_FORWARD : TASK_SEND_BACKWARD;
    if (needs_recv && !is_task(tc->s, at - 1, recv, task)) {
        TASK_DEFECT(tc, at, "no receive (%s) directly before it", task_kind_word(recv));
    }
    if (needs_send && !is_task(tc->s, at + 1, send, task)) {
        TASK_DEFECT(tc, at, "no send (%s) directly after it", task_kind_word(send));
    }
}

static void check_message_task(TaskChecker *tc, int at) {
    const Task *task = &tc->s->tasks[at];
    bool recv = task->kind == TASK_RECV_FORWARD || task->kind == TASK_RECV_BACKWARD;
    bool forward = task->kind == TASK_RECV_FORWARD || task->kind == TASK_SEND_FORWARD;
    TaskKind served = forward ? TASK_FORWARD : TASK_BACKWARD;
    bool border = has_border(tc, task->chunk, forward == recv);
    if (!is_task(tc->s, recv ? at + 1 : at - 1, served, task)) {
        TASK_DEFECT(tc, at, "is not beside its task %s%d.%d", task_kind_word(served), task->chunk,
                    (int)task->micro);
    } else if (!border) {
        TASK_DEFECT(tc, at, "global chunk %d has no neighbour on that side",
                    path_global(plan_path(tc->v->plan), tc->stage, task->chunk));
    }
}

static uint8_t *state_at(const TaskChecker *tc, int chunk, int micro) {
    return &tc->state[(size_t)chunk * (size_t)tc->v->plan->n_micro + (size_t)micro];
}

/* Chunks that share values of a frame, the earlier one's: that one goes first forward and last
 * backward, and its frame ends last. */
static void check_shared_frames(TaskChecker *tc, int at) {
    const Task *task = &tc->s->tasks[at];
    for (int c = 0; c < tc->v->plan->n_chunks; c++) {
        uint8_t theirs = *state_at(tc, c, task->micro);
        bool forward = task->kind == TASK_FORWARD && tc->earlier[task->chunk] >> c & 1;
        bool behind = task->kind != TASK_FORWARD && tc->later[task->chunk] >> c & 1;
        TaskKind needed = forward ? TASK_FORWARD : TASK_BACKWARD;
        if (behind && task->kind == tc->ends[task->chunk]) needed = tc->ends[c];
        if ((!forward && !behind) || theirs >= done_by(needed)) continue;
        TASK_DEFECT(tc, at, "runs before %s%d.%d, with which it shares a frame",
                    task_kind_word(needed), c, (int)task->micro);
        return;
    }
}

static void check_work(TaskChecker *tc, int at) {
    const Task *task = &tc->s->tasks[at];
    uint8_t *state = state_at(tc, task->chunk, task->micro), done = done_by(task->kind);
    if (done != WEIGHTS_DONE) check_neighbours(tc, at);
    if (*state >= done) {
        TASK_DEFECT(tc, at, "%s", "runs a second time");
        return;
    }
    if (*state != done - 1) {
        TASK_DEFECT(tc, at, "runs before its %s", *state ? "backward" : "forward");
        return;
    }
    *state = done;
    check_shared_frames(tc, at);
}

static void check_task(TaskChecker *tc, int at) {
    const Plan *plan = tc->v->plan;
    const Task *task = &tc->s->tasks[at];
    if (task->kind >= N_TASK_KINDS || task->chunk >= plan->n_chunks || task->micro < 0 ||
        task->micro >= plan->n_micro) {
        TASK_DEFECT(tc, at, "there are %d chunks and %d micro-batches", plan->n_chunks,
                    plan->n_micro);
    } else if (task->kind == TASK_UPDATE) {
        if (at != tc->s->n_tasks - 1) TASK_DEFECT(tc, at, "%s", "the update is not the last task");
    } else if (task_is_work(task)) {
        check_work(tc, at);
    } else {
        check_message_task(tc, at);
    }
}

static void check_complete(TaskChecker *tc) {
    const Plan *plan = tc->v->plan;
    const Stage *s = tc->s;
    for (int c = 0; c < plan->n_chunks; c++) {
        for (int m = 0; m < plan->n_micro; m++) {
            static const TaskKind NEXT[] = {TASK_FORWARD, TASK_BACKWARD, TASK_WEIGHTS};
            uint8_t state = tc->state[(size_t)c * (size_t)plan->n_micro + (size_t)m];
            if (state == (tc->ends[c] == TASK_WEIGHTS ? WEIGHTS_DONE : BACKWARD_DONE)) continue;
            verify_defect(tc->v, NO_LOC, "%s: %s%d.%d never runs",
                          verify_stage_text(tc->v, tc->stage), task_kind_word(NEXT[state]), c, m);
            tc->sound = false;
            return; /* one says it: usually all that follow are missing too */
        }
    }
    if (!s->n_tasks || s->tasks[s->n_tasks - 1].kind != TASK_UPDATE) {
        verify_defect(tc->v, NO_LOC, "%s: the last task is not the update (U)",
                      verify_stage_text(tc->v, tc->stage));
        tc->sound = false;
    }
}

/* The slots that the executor will use: each held by one micro-batch at a time. */
static void check_frames(TaskChecker *tc, Arena *arena) {
    const Plan *plan = tc->v->plan;
    const Stage *s = tc->s;
    int32_t *slots = ARENA_ARRAY(arena, int32_t, (size_t)plan->n_chunks * (size_t)plan->n_micro);
    const Task **holders[MAX_CHUNKS];
    int failed = plan_frame_slots(plan, s, slots);
    if (failed >= 0) {
        int pool = s->frame_pool[s->tasks[failed].chunk];
        TASK_DEFECT(tc, failed, "all %d frame slots of pool %d are taken", s->frame_slots[pool],
                    pool);
        return;
    }
    for (int pool = 0; pool < plan->n_chunks; pool++) {
        holders[pool] = ARENA_ARRAY(arena, const Task *, plan_pool_frames(plan, s, pool) + 1);
    }
    for (int i = 0; i < s->n_tasks; i++) {
        const Task *task = &s->tasks[i];
        if (task->kind != TASK_FORWARD && task->kind != tc->ends[task->chunk]) continue;
        int32_t slot = slots[(size_t)task->chunk * (size_t)plan->n_micro + task->micro];
        const Task **holder = &holders[s->frame_pool[task->chunk]][slot];
        if (task->kind == TASK_FORWARD && *holder) {
            TASK_DEFECT(tc, i, "frame slot %d still holds %s", slot,
                        verify_task_text(tc->v, *holder));
        }
        *holder = task->kind == TASK_FORWARD ? task : NULL;
    }
}

/* A micro-batch ends with its W in a chunk that has any, and where the program has work for one. */
static void find_ends(TaskChecker *tc) {
    const Graph *graph = tc->v->plan->programs[tc->s->program].graph;
    for (int c = 0; c < MAX_CHUNKS; c++) tc->ends[c] = TASK_BACKWARD;
    for (int i = 0; i < tc->s->n_tasks; i++) {
        const Task *task = &tc->s->tasks[i];
        if (task->kind == TASK_WEIGHTS && task->chunk < MAX_CHUNKS)
            tc->ends[task->chunk] = task->kind;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        bool known = node->chunk >= 0 && node->chunk < MAX_CHUNKS;
        if (known && node->phase == PHASE_WEIGHTS) tc->ends[node->chunk] = TASK_WEIGHTS;
    }
}

static bool is_chunk(const TaskChecker *tc, int chunk) {
    return chunk >= 0 && chunk < tc->v->plan->n_chunks;
}

/* The node reads or writes `value`: if that lies in another chunk's frame, the chunks share it.
 * They must follow each other on a micro-batch's way. Each pair is noted once. */
static void note_touched(TaskChecker *tc, const Node *node, Value value) {
    const Program *program = &tc->v->plan->programs[tc->s->program];
    const Buffer *buffer = &program->buffers[value.node->id * MAX_OUTPUTS + value.output];
    int chunk = node->chunk, other = buffer->chunk;
    if (buffer->region != REGION_FRAME || chunk == other) return;
    if (!is_chunk(tc, chunk) || !is_chunk(tc, other)) return;
    if ((tc->earlier[chunk] | tc->later[chunk]) >> other & 1) return;
    int earlier = chunk < other ? chunk : other, later = chunk < other ? other : chunk;
    tc->earlier[later] |= UINT32_C(1) << earlier;
    tc->later[earlier] |= UINT32_C(1) << later;
    Path path = plan_path(tc->v->plan);
    int before = path_global(path, tc->stage, earlier), after = path_global(path, tc->stage, later);
    if (before + 1 == after) return;
    tc->sound = false;
    verify_defect(tc->v, node->loc,
                  "%s: %s shares a frame of chunks %d and %d, between which are other stages",
                  verify_stage_text(tc->v, tc->stage), verify_value_text(tc->v, tc->stage, value),
                  earlier, later);
}

static void find_shared_frames(TaskChecker *tc) {
    const Graph *graph = tc->v->plan->programs[tc->s->program].graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->phase == PHASE_UPDATE) continue;
        for (int i = 0; i < node->n_inputs; i++) note_touched(tc, node, node->inputs[i]);
        for (int o = 0; o < node->n_outputs; o++) note_touched(tc, node, (Value){(Node *)node, o});
    }
}

static TaskKind kind_of_phase(Phase phase) {
    return phase == PHASE_FORWARD    ? TASK_FORWARD
           : phase == PHASE_BACKWARD ? TASK_BACKWARD
                                     : TASK_WEIGHTS;
}

/* The first task in the list of the kind and chunk in which the node runs. */
static int first_task(const TaskChecker *tc, const Node *node) {
    int at = 0;
    while (at < tc->s->n_tasks && (tc->s->tasks[at].kind != kind_of_phase(node->phase) ||
                                   tc->s->tasks[at].chunk != node->chunk)) {
        at++;
    }
    return at;
}

/* A step's first share of a sum overwrites the last step's: no other may come before it. */
static void check_first_shares(TaskChecker *tc, Arena *arena) {
    const Graph *graph = tc->v->plan->programs[tc->s->program].graph;
    const Node **first = ARENA_ARRAY(arena, const Node *, graph->n_nodes + 1);
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int alias = node->n_outputs > 0 && node->phase != PHASE_UPDATE ? op_alias(node, 0) : -1;
        if (alias < 0) continue;
        const Node *from = node->inputs[alias].node;
        first[n] = from->op == OP_ACCUMULATOR ? node : first[from->id];
        if (!first[n] || verify_segment(first[n]) == verify_segment(node)) continue;
        int at = first_task(tc, node), before = first_task(tc, first[n]);
        if (before < at) continue;
        TASK_DEFECT(tc, at, "%s adds to a sum that %s sets later in the step",
                    verify_value_text(tc->v, tc->stage, (Value){(Node *)node, 0}),
                    verify_segment_text(tc->v, first[n]));
        return;
    }
}

static bool check_tasks(Verifier *v, int stage) {
    const Plan *plan = v->plan;
    const Stage *s = &plan->stages[stage];
    int n_units = plan->n_chunks * plan->n_micro;
    if (s->n_tasks < n_units) {
        verify_defect(v, NO_LOC, "%s: %d tasks for %d micro-batches and %d chunks: most never run",
                      verify_stage_text(v, stage), s->n_tasks, plan->n_micro, plan->n_chunks);
        return false;
    }
    Arena *arena = arena_create();
    TaskChecker tc = {.v = v, .stage = stage, .s = s, .sound = true};
    tc.state = arena_alloc(arena, (size_t)n_units);
    find_ends(&tc);
    find_shared_frames(&tc);
    for (int i = 0; i < s->n_tasks && v->n_defects <= MAX_DEFECTS; i++) check_task(&tc, i);
    check_complete(&tc);
    if (tc.sound) check_frames(&tc, arena);
    if (tc.sound) check_first_shares(&tc, arena);
    arena_destroy(arena);
    return tc.sound;
}

bool verify_stage(Verifier *v, int stage) {
    return verify_regions(v, stage) && check_tasks(v, stage);
}
