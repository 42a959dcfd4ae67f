/* Collectives across stages meet, and nothing waits for ever. */
#include "ir/gradient.h"
#include "planner/verify/verify.h"

#include <string.h>

enum { MAX_CALLS = 4096 }; /* keeps the comparison of all members of all communicators short */

/* The cross-stage collectives of one program's update, in its order. */
typedef struct Calls {
    int count, capacity, group_capacity;
    const Node **nodes;
    int n_groups, *groups; /* communicator of each call; n_comms: all stages */
} Calls;

typedef struct FlowVerifier {
    Verifier *v;
    const Plan *plan;
    Calls *calls; /* [n_programs] */
    Flow flow;
} FlowVerifier;

static const char *group_name(const FlowVerifier *fv, int group) {
    return group == fv->plan->n_comms ? "all stages" : fv->plan->comms[group].name;
}

static bool is_member(const FlowVerifier *fv, int group, int stage) {
    if (group == fv->plan->n_comms) return true;
    const StageComm *comm = &fv->plan->comms[group];
    for (int i = 0; i < comm->n_stages; i++) {
        if (comm->stages[i] == stage) return true;
    }
    return false;
}

static bool check_comms(FlowVerifier *fv) {
    const Plan *plan = fv->plan;
    int before = fv->v->n_defects;
    for (int c = 0; c < plan->n_comms; c++) {
        const StageComm *comm = &plan->comms[c];
        bool sound = comm->n_stages >= 1;
        for (int i = 0; i < comm->n_stages; i++) {
            int least = i ? comm->stages[i - 1] + 1 : 0;
            sound &= comm->stages[i] >= least && comm->stages[i] < plan->n_stages;
        }
        for (int other = 0; other < c; other++) {
            sound &= strcmp(plan->comms[other].name, comm->name) != 0;
        }
        if (sound) continue;
        verify_defect(fv->v, NO_LOC,
                      "communicator '%s': its stages must be ascending and its name its own",
                      comm->name);
    }
    return fv->v->n_defects == before;
}

static int find_comm(const Plan *plan, const char *name) {
    for (int c = 0; c < plan->n_comms; c++) {
        if (strcmp(plan->comms[c].name, name) == 0) return c;
    }
    return -1;
}

static bool collect_calls(FlowVerifier *fv, int program) {
    const Graph *graph = fv->plan->programs[program].graph;
    Calls *calls = &fv->calls[program];
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        int group = -1;
        if (node->op == OP_STAGE_REDUCE) {
            group = find_comm(fv->plan, node_string(node, ATTR_comm));
            if (group < 0) {
                verify_defect(fv->v, node->loc, "%%%d stage_reduce: there is no communicator '%s'",
                              node->id, node_string(node, ATTR_comm));
                return false;
            }
        } else if (node->op == OP_ALL_REDUCE &&
                   strcmp(node_string(node, ATTR_mesh), mesh_axis_name(MESH_P)) == 0) {
            group = fv->plan->n_comms;
        }
        if (group < 0) continue;
        if (calls->count == MAX_CALLS) {
            verify_defect(fv->v, node->loc,
                          "program %d: more than %d messages across stages in "
                          "the update",
                          program, MAX_CALLS);
            return false;
        }
        ARENA_PUSH(fv->v->scratch, calls->nodes, calls->count, calls->capacity, node);
        ARENA_PUSH(fv->v->scratch, calls->groups, calls->n_groups, calls->group_capacity, group);
    }
    return true;
}

static const Calls *calls_of(const FlowVerifier *fv, int stage) {
    return &fv->calls[fv->plan->stages[stage].program];
}

/* The next call on `group` from *at on, or NULL. */
static const Node *next_call(const Calls *calls, int group, int *at) {
    while (*at < calls->count && calls->groups[*at] != group) ++*at;
    return *at < calls->count ? calls->nodes[(*at)++] : NULL;
}

/* The logical name of what is reduced, as far as it is one accumulator's; "" if not. */
static const char *reduced_name(FlowVerifier *fv, int stage, const Node *node) {
    const Node *leaf = gradient_accumulator(node->inputs[0]);
    if (!leaf) return "";
    return node_logical_name(leaf, fv->plan->stages[stage].first_block[leaf->chunk],
                             fv->v->scratch);
}

static bool same_call(FlowVerifier *fv, int stage_a, const Node *a, int stage_b, const Node *b) {
    const Graph *graph_a = fv->plan->programs[fv->plan->stages[stage_a].program].graph;
    const Graph *graph_b = fv->plan->programs[fv->plan->stages[stage_b].program].graph;
    const Type *x = &a->types[0], *y = &b->types[0];
    if (a->op != b->op || x->dtype != y->dtype || x->rank != y->rank) return false;
    for (int i = 0; i < x->rank; i++) {
        const char *name_a = graph_a->axes.names[x->axes[i]];
        const char *name_b = graph_b->axes.names[y->axes[i]];
        if (x->dims[i] != y->dims[i] || strcmp(name_a, name_b) != 0) return false;
    }
    if (!sharding_equal(&a->shardings[0], &b->shardings[0], x->rank)) return false;
    return a->op != OP_STAGE_REDUCE ||
           strcmp(reduced_name(fv, stage_a, a), reduced_name(fv, stage_b, b)) == 0;
}

static const char *call_text(FlowVerifier *fv, const Node *node) {
    if (!node) return "no call";
    return arena_printf(fv->v->scratch, "%s %%%d", OPS[node->op].name, node->id);
}

/* The calls of `stage` on the group are those of the group's first stage, one for one. */
static void check_calls(FlowVerifier *fv, int group, int first, int stage) {
    int at = 0, peer_at = 0;
    for (int number = 0;; number++) {
        const Node *a = next_call(calls_of(fv, first), group, &at);
        const Node *b = next_call(calls_of(fv, stage), group, &peer_at);
        if (!a && !b) return;
        if (a && b && same_call(fv, first, a, stage, b)) continue;
        verify_defect(fv->v, (b ? b : a)->loc,
                      "communicator '%s': call %d is %s of %s, but %s of %s", group_name(fv, group),
                      number, call_text(fv, a), verify_stage_text(fv->v, first), call_text(fv, b),
                      verify_stage_text(fv->v, stage));
        return;
    }
}

static void check_members(FlowVerifier *fv) {
    const Plan *plan = fv->plan;
    for (int s = 0; s < plan->n_stages; s++) {
        const Calls *calls = calls_of(fv, s);
        for (int i = 0; i < calls->count; i++) {
            if (is_member(fv, calls->groups[i], s)) continue;
            verify_defect(fv->v, calls->nodes[i]->loc,
                          "%s: %%%d stage_reduce: is no member of communicator '%s'",
                          verify_stage_text(fv->v, s), calls->nodes[i]->id,
                          group_name(fv, calls->groups[i]));
        }
    }
    for (int s = 1; s < plan->n_stages; s++) check_calls(fv, plan->n_comms, 0, s);
    for (int c = 0; c < plan->n_comms; c++) {
        const StageComm *comm = &plan->comms[c];
        for (int i = 1; i < comm->n_stages; i++) {
            check_calls(fv, c, comm->stages[0], comm->stages[i]);
        }
    }
}

static void set_up_flow(FlowVerifier *fv) {
    const Plan *plan = fv->plan;
    Arena *arena = fv->v->scratch;
    int p = plan->n_stages;
    int *slots = ARENA_ARRAY(arena, int, plan->n_channels + 1);
    int *sizes = ARENA_ARRAY(arena, int, plan->n_comms + 1);
    fv->flow =
        (Flow){.p = p,
               .stages = ARENA_ARRAY(arena, FlowStage, p),
               .links = flow_find_links(arena, plan_path(plan), plan->channels, plan->n_channels),
               .n_channels = plan->n_channels,
               .n_groups = plan->n_comms + 1,
               .slots = slots,
               .group_sizes = sizes};
    for (int c = 0; c < plan->n_channels; c++) slots[c] = plan->channels[c].slots;
    for (int c = 0; c < plan->n_comms; c++) sizes[c] = plan->comms[c].n_stages;
    sizes[plan->n_comms] = p;
    for (int s = 0; s < p; s++) {
        const Calls *calls = calls_of(fv, s);
        fv->flow.stages[s] = (FlowStage){.tasks = plan->stages[s].tasks,
                                         .n_tasks = plan->stages[s].n_tasks,
                                         .groups = calls->groups,
                                         .n_groups = calls->n_groups};
    }
}

static bool has_ended(const FlowStage *s) {
    return s->at == s->n_tasks;
}

/* The collective that the stage stands at, or -1. */
static int waits_at_group(const FlowStage *s) {
    if (has_ended(s) || s->tasks[s->at].kind != TASK_UPDATE) return -1;
    return s->group_at < s->n_groups ? s->groups[s->group_at] : -1;
}

/* Whom a stage that has not ended waits for: for a collective, a member that is elsewhere. */
static int waits_for(const FlowVerifier *fv, int stage) {
    const FlowStage *s = &fv->flow.stages[stage];
    int group = waits_at_group(s);
    int number = links_find(&fv->flow.links[stage], &s->tasks[s->at]);
    if (group >= 0) {
        for (int other = 0; other < fv->flow.p; other++) {
            if (!is_member(fv, group, other)) continue;
            if (waits_at_group(&fv->flow.stages[other]) != group) return other;
        }
        return stage;
    }
    if (number < 0) return stage;
    const Channel *channel = &fv->plan->channels[number];
    return channel->from == stage ? channel->to : channel->from;
}

static void describe_wait(FlowVerifier *fv, int stage) {
    const FlowStage *s = &fv->flow.stages[stage];
    Verifier *v = fv->v;
    if (has_ended(s)) {
        diag_note(v->diag, NO_LOC, "%s has come to its end", verify_stage_text(v, stage));
        return;
    }
    int group = waits_at_group(s);
    const char *peer = verify_stage_text(v, waits_for(fv, stage));
    if (group >= 0) {
        const Node *node = calls_of(fv, stage)->nodes[s->group_at];
        diag_note(v->diag, node->loc, "%s, U, %%%d %s over '%s', waits for %s",
                  verify_stage_text(v, stage), node->id, OPS[node->op].name, group_name(fv, group),
                  peer);
        return;
    }
    int number = links_find(&fv->flow.links[stage], &s->tasks[s->at]);
    const Channel *channel = &fv->plan->channels[number];
    diag_note(v->diag, NO_LOC,
              "%s, task %d, %s, channel %s %d->%d with %d of %d slots in use, "
              "waits for %s",
              verify_stage_text(v, stage), s->at, verify_task_text(v, &s->tasks[s->at]),
              channel->backward ? "backward" : "forward", channel->from, channel->to,
              fv->flow.unread[number], channel->slots, peer);
}

/* Follows who waits for whom until a stage comes up again: from there on it is the cycle. */
static void report_hang(FlowVerifier *fv) {
    const Flow *flow = &fv->flow;
    bool *seen = ARENA_ARRAY(fv->v->scratch, bool, flow->p);
    int stage = 0;
    while (has_ended(&flow->stages[stage])) stage++;
    while (!seen[stage] && !has_ended(&flow->stages[stage])) {
        seen[stage] = true;
        stage = waits_for(fv, stage);
    }
    verify_defect(fv->v, NO_LOC, "deadlock: %s waits for ever; who waits for whom:",
                  verify_stage_text(fv->v, stage));
    int first = stage;
    do {
        describe_wait(fv, stage);
        if (has_ended(&flow->stages[stage])) return;
        stage = waits_for(fv, stage);
    } while (stage != first);
}

void verify_flow(Verifier *v) {
    FlowVerifier fv = {.v = v, .plan = v->plan};
    int before = v->n_defects;
    fv.calls = ARENA_ARRAY(v->scratch, Calls, v->plan->n_programs);
    if (!check_comms(&fv)) return;
    for (int i = 0; i < v->plan->n_programs; i++) {
        if (!collect_calls(&fv, i)) return;
    }
    check_members(&fv);
    if (v->n_defects != before) return;
    set_up_flow(&fv);
    if (!flow_run(&fv.flow, v->scratch)) report_hang(&fv);
}
