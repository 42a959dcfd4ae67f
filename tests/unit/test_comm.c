/* Collectives and channels between threads, and every way to be aborted. */
#include "tests/unit/comm_cases.h"

static Team *team_open(int n) {
    Team *team = calloc(1, sizeof(*team));
    CommWorld *world = comm_world_create(n);
    CommGroup *all = comm_group_create(world, n, "all"), *halves[2] = {NULL, NULL};
    for (int i = 0; i < 2 && n % 2 == 0; i++) {
        halves[i] = comm_group_create(world, n / 2, "half");
    }
    team->n = n;
    for (int i = 0; i < n; i++) {
        team->worlds[i] = world;
        team->all[i] = all;
        team->halves[i] = halves[i * 2 / n];
        if (i + 1 == n) break;
        team->from[i] = team->to[i] = comm_channel_create(world, N_SLOTS, "stage");
    }
    return team;
}

static void team_close(Team *team) {
    comm_world_destroy(team->worlds[0]);
    free(team);
}

/* --- channels --- */

static void test_channels(void) {
    check_begin("channel: sends beyond n_slots wait, and the time-out says so");
    CommWorld *world = comm_world_create(1);
    CommChannel *channel = comm_channel_create(world, 2, "0->1");
    float slots[2] = {0}, value = 1;
    comm_world_set_timeout(world, 0.05);
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "first");
    value = 2;
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "second");
    CHECK(slots[0] == 1 && slots[1] == 2, "the slots hold the messages");
    CHECK(comm_channel_recv(channel, &value, 4) && value == 1, "received %g", (double)value);
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "third, into the freed slot");
    CHECK(!comm_channel_send(channel, slots, 4, &value, 4), "fourth was taken");
    const char *reason = comm_world_reason(world);
    CHECK(strstr(reason, "channel '0->1': send of 4 bytes waited 0.05 s"), "%s", reason);
    comm_world_destroy(world);

    check_begin("channel: messages of another size or too large are errors");
    world = comm_world_create(1);
    channel = comm_channel_create(world, 2, "0->1");
    CHECK(comm_channel_send(channel, slots, 4, &value, 4), "send");
    CHECK(!comm_channel_recv(channel, slots, 8), "other size was taken");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "receive of 8 bytes meets a message of 4"), "%s", reason);
    comm_world_destroy(world);
    world = comm_world_create(1);
    channel = comm_channel_create(world, 2, "0->1");
    CHECK(!comm_channel_send(channel, slots, 4, slots, 8), "too large was taken");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "send of 8 bytes into slots of 4 bytes"), "%s", reason);
    comm_world_destroy(world);
}

/* --- aborts --- */

typedef struct Stuck {
    CommWorld *world;
    CommGroup *group;
    CommChannel *channel;
    bool mismatch;
    bool result[MAX_RANKS];
} Stuck;

static void stuck_rank(int rank, void *shared) {
    Stuck *stuck = shared;
    float x[4] = {0};
    if (rank == 0 && !stuck->mismatch) {
        struct timespec delay = {0, 20 * 1000 * 1000};
        nanosleep(&delay, NULL);
        comm_world_abort(stuck->world, "rank 0 gave up");
        comm_world_abort(stuck->world, "a later reason");
    } else if (rank == 1 && !stuck->mismatch) {
        stuck->result[rank] = comm_channel_recv(stuck->channel, x, sizeof x);
    } else {
        size_t count = rank == 2 && stuck->mismatch ? 3 : 4;
        stuck->result[rank] =
            comm_all_reduce(stuck->group, rank, REDUCE_SUM, DTYPE_F32, x, x, count);
    }
    if (comm_barrier(stuck->group, rank)) stuck->result[rank] = true;
}

static void test_aborts(void) {
    Stuck stuck = {.world = comm_world_create(4)};
    stuck.group = comm_group_create(stuck.world, 4, "tp");
    stuck.channel = comm_channel_create(stuck.world, 1, "0->1");
    check_begin("abort: wakes members and receivers; the first reason stays");
    run_ranks(4, stuck_rank, &stuck);
    for (int i = 0; i < 4; i++) CHECK(!stuck.result[i], "rank %d returned true", i);
    CHECK(strcmp(comm_world_reason(stuck.world), "rank 0 gave up") == 0, "%s",
          comm_world_reason(stuck.world));
    comm_world_destroy(stuck.world);

    check_begin("abort: members whose calls differ are told so");
    stuck = (Stuck){.world = comm_world_create(4), .mismatch = true};
    stuck.group = comm_group_create(stuck.world, 4, "tp");
    run_ranks(4, stuck_rank, &stuck);
    for (int i = 0; i < 4; i++) CHECK(!stuck.result[i], "rank %d returned true", i);
    const char *reason = comm_world_reason(stuck.world);
    CHECK(strstr(reason, "group 'tp': member") && strstr(reason, "inner 3") &&
              strstr(reason, "inner 4"),
          "%s", reason);
    comm_world_destroy(stuck.world);

    check_begin("time-out: names group, member and operation");
    CommWorld *world = comm_world_create(2);
    CommGroup *group = comm_group_create(world, 2, "data");
    float x = 0;
    comm_world_set_timeout(world, 0.05);
    CHECK(!comm_all_reduce(group, 1, REDUCE_SUM, DTYPE_F32, &x, &x, 1), "returned true");
    reason = comm_world_reason(world);
    CHECK(strstr(reason, "group 'data': member 1: all_reduce waited 0.05 s for the others (1 of 2"),
          "%s", reason);
    comm_world_destroy(world);
}

int main(void) {
    test_cases();
    test_channels();
    test_aborts();
    return check_report();
}
