#include "planner/plan/flow.h"

#include <string.h>

int flow_link(TaskKind kind) {
    switch (kind) {
    case TASK_RECV_FORWARD: return LINK_RECV_FORWARD;
    case TASK_SEND_FORWARD: return LINK_SEND_FORWARD;
    case TASK_RECV_BACKWARD: return LINK_RECV_BACKWARD;
    case TASK_SEND_BACKWARD: return LINK_SEND_BACKWARD;
    default: return -1;
    }
}

void links_clear(Links *links, int p) {
    memset(links, -1, sizeof(Links) * (size_t)p);
}

bool links_add(Links *links, Path path, int number, int from, int to, bool backward) {
    bool used = false;
    for (int parity = 0; parity < 2; parity++) {
        /* What `to` receives, it receives for a chunk that would send the other way to `from`. */
        if (path_sends(path, from, parity, backward, to)) {
            links[from].channel[backward ? LINK_SEND_BACKWARD : LINK_SEND_FORWARD][parity] = number;
            used = true;
        }
        if (path_sends(path, to, parity, !backward, from)) {
            links[to].channel[backward ? LINK_RECV_BACKWARD : LINK_RECV_FORWARD][parity] = number;
        }
    }
    return used;
}

int links_find(const Links *links, const Task *task) {
    int link = flow_link(task->kind);
    return link < 0 ? -1 : links->channel[link][task->chunk % 2];
}

Links *flow_find_links(Arena *arena, Path path, const Channel *channels, int n_channels) {
    Links *links = ARENA_ARRAY(arena, Links, path.p);
    links_clear(links, path.p);
    for (int c = 0; c < n_channels; c++) {
        int from = channels[c].from, to = channels[c].to;
        if (from < 0 || from >= path.p || to < 0 || to >= path.p) continue;
        links_add(links, path, c, from, to, channels[c].backward);
    }
    return links;
}

typedef struct Play {
    Flow *flow;
    int *queue, n_queued;   /* stages that may be able to go on, each at most once */
    bool *queued, *waiting; /* waiting: at a collective */
    int *arrived;           /* of each group: stages that wait at it */
    int *first, *next;      /* who waits at a group: a list of stages, -1 ends it */
    int *sender, *receiver;
} Play;

static void wake(Play *play, int stage) {
    if (play->queued[stage] || play->waiting[stage]) return;
    play->queued[stage] = true;
    play->queue[play->n_queued++] = stage;
}

/* The stage has come to a collective: the last one to come lets all go on. */
static void arrive(Play *play, int stage, int group) {
    play->waiting[stage] = true;
    play->next[stage] = play->first[group];
    play->first[group] = stage;
    if (++play->arrived[group] < play->flow->group_sizes[group]) return;
    for (int member = play->first[group]; member >= 0; member = play->next[member]) {
        play->flow->stages[member].group_at++;
        play->waiting[member] = false;
        wake(play, member);
    }
    play->first[group] = -1;
    play->arrived[group] = 0;
}

static void advance(Play *play, int stage) {
    Flow *flow = play->flow;
    FlowStage *s = &flow->stages[stage];
    for (; s->at < s->n_tasks; s->at++) {
        int link = flow_link(s->tasks[s->at].kind);
        if (s->tasks[s->at].kind == TASK_UPDATE && s->group_at < s->n_groups) {
            arrive(play, stage, s->groups[s->group_at]);
            return;
        }
        if (link < 0) continue;
        int channel = links_find(&flow->links[stage], &s->tasks[s->at]);
        if (channel < 0) return;
        if (link == LINK_SEND_FORWARD || link == LINK_SEND_BACKWARD) {
            if (flow->unread[channel] >= flow->slots[channel]) return;
            flow->unread[channel]++;
            wake(play, play->receiver[channel]);
        } else {
            if (!flow->unread[channel]) return;
            flow->unread[channel]--;
            wake(play, play->sender[channel]);
        }
    }
}

bool flow_run(Flow *flow, Arena *arena) {
    int p = flow->p, n_channels = flow->n_channels, n_groups = flow->n_groups;
    Play play = {.flow = flow};
    play.queue = ARENA_ARRAY(arena, int, p);
    play.queued = ARENA_ARRAY(arena, bool, p);
    play.waiting = ARENA_ARRAY(arena, bool, p);
    play.next = ARENA_ARRAY(arena, int, p);
    play.arrived = ARENA_ARRAY(arena, int, n_groups + 1);
    play.first = ARENA_ARRAY(arena, int, n_groups + 1);
    play.sender = ARENA_ARRAY(arena, int, n_channels + 1);
    play.receiver = ARENA_ARRAY(arena, int, n_channels + 1);
    flow->unread = ARENA_ARRAY(arena, int, n_channels + 1);
    memset(play.first, -1, sizeof(int) * (size_t)(n_groups + 1));
    for (int stage = 0; stage < p; stage++) {
        for (int link = 0; link < N_LINK_KINDS; link++) {
            bool sends = link == LINK_SEND_FORWARD || link == LINK_SEND_BACKWARD;
            for (int parity = 0; parity < 2; parity++) {
                int channel = flow->links[stage].channel[link][parity];
                if (channel >= 0) (sends ? play.sender : play.receiver)[channel] = stage;
            }
        }
        flow->stages[stage].at = flow->stages[stage].group_at = 0;
        wake(&play, stage);
    }
    while (play.n_queued) {
        int stage = play.queue[--play.n_queued];
        play.queued[stage] = false;
        advance(&play, stage);
    }
    for (int stage = 0; stage < p; stage++) {
        if (flow->stages[stage].at < flow->stages[stage].n_tasks) return false;
    }
    return true;
}
