/* Flow: plays the stages' task lists against bounded channels and the update's collectives.
 *
 * Time does not matter, only who waits for whom: a send waits for a free slot, a receive for a
 * message, a collective for all of its members. Waiting never depends on a choice, so one order of
 * play decides for all: if it ends, every execution does; if it does not, every execution hangs.
 */
#ifndef PLANNER_PLAN_FLOW_H
#define PLANNER_PLAN_FLOW_H

#include "planner/plan/plan.h"

/* The channels of a stage, -1 where there is none: of even chunks, and of odd ones, which on the
 * way of a V go the other way; elsewhere both are the same. */
typedef enum LinkKind {
    LINK_RECV_FORWARD,
    LINK_SEND_FORWARD,
    LINK_RECV_BACKWARD,
    LINK_SEND_BACKWARD,
    N_LINK_KINDS
} LinkKind;
typedef struct Links {
    int channel[N_LINK_KINDS][2];
} Links;

/* The link that a task uses, -1: none. */
int flow_link(TaskKind kind);
void links_clear(Links *links, int p);
/* Notes channel `number` with the stages at its ends, both below p. False: no chunk of `from` sends
 * in that direction to `to`. */
bool links_add(Links *links, Path path, int number, int from, int to, bool backward);
/* The channel that a task uses; -1: it needs none, or there is none. */
int links_find(const Links *links, const Task *task);
/* Per stage; channels between stages that are not neighbours are left out. */
Links *flow_find_links(Arena *arena, Path path, const Channel *channels, int n_channels);

/* Where a stage stands. The update's collectives are numbers of groups below n_groups. */
typedef struct FlowStage {
    const Task *tasks;
    int n_tasks;
    const int *groups; /* what the update takes part in, in its order */
    int n_groups;
    int at;       /* next task */
    int group_at; /* next collective of the update */
} FlowStage;

typedef struct Flow {
    int p;
    FlowStage *stages;
    const Links *links;
    int n_channels, n_groups;
    const int *slots;       /* of each channel */
    const int *group_sizes; /* stages in each group */
    int *unread;            /* of each channel: messages sent and not received */
} Flow;

/* Plays from the start. True: every list came to its end. Otherwise the stages stand where they
 * wait. Linear in the number of tasks. */
bool flow_run(Flow *flow, Arena *arena);

#endif
