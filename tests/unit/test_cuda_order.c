/* order_commands alone, on random command lists: no device, no CUDA headers.
 *
 * Catches a conflicting pair that no path of streams and waits orders, a pair whose order the
 * hoisting turned round, a wait that another path implies, an event object recorded again while
 * somebody still has to wait for it, a stream that is not joined. Paths are found by bit sets here,
 * not by the vector clocks under test.
 */
#include "runtime/cuda/codegen.h"
#include "runtime/cuda/order.h"
#include "runtime/cuda/summary.h"
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 192, MOST_ACCESSES = 5, WORDS = MOST / 64, N_LISTS = 3000 };

static uint64_t random_state;

static int random_below(int n) {
    random_state ^= random_state << 13, random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (int)((random_state >> 11) % (uint64_t)n);
}

/* info.micro is a command's number before ordering. */
static void make_list(CommandList *list, Arena *arena, int count, int n_ranks, int n_streams,
                      int memory) {
    for (int i = 0; i < count; i++) {
        Command command = {.kind = COMMAND_FILL, .info = {.micro = i}};
        Access *accesses = ARENA_ARRAY(arena, Access, MOST_ACCESSES);
        command.accesses = accesses;
        if (i > 0) {
            command.info.rank = random_below(n_ranks);
            command.stream = (StreamKind)random_below(n_streams);
            accesses[command.n_accesses++] = access_to((void *)64, 8, false); /* the step's state */
        } else {
            accesses[command.n_accesses++] = access_to((void *)64, 8, true);
        }
        for (int k = random_below(MOST_ACCESSES); k > 0; k--) {
            accesses[command.n_accesses++] =
                (Access){.at = 1024 + (uintptr_t)random_below(memory),
                         .bytes = random_below(4) ? 1 + random_below(3) : random_below(24),
                         .write = random_below(3) == 0};
        }
        command_list_push(list, &command);
    }
}

static bool conflict(const Command *a, const Command *b) {
    for (int i = 0; i < a->n_accesses; i++) {
        for (int j = 0; j < b->n_accesses; j++) {
            const Access *x = &a->accesses[i], *y = &b->accesses[j];
            if (x->bytes > 0 && y->bytes > 0 && (x->write || y->write) &&
                x->at < y->at + (uintptr_t)y->bytes && y->at < x->at + (uintptr_t)x->bytes) {
                return true;
            }
        }
    }
    return false;
}

typedef struct Reach {
    uint64_t before[MOST][WORDS]; /* [i]: the commands that i certainly comes after */
} Reach;

static bool is_before(const Reach *reach, int a, int b) {
    return reach->before[b][a / 64] >> (a % 64) & 1;
}

static void add_edge(Reach *reach, int from, int to) {
    for (int w = 0; w < WORDS; w++) reach->before[to][w] |= reach->before[from][w];
    reach->before[to][from / 64] |= UINT64_C(1) << (from % 64);
}

/* Without the wait number `without` of all, counted from 0; -1: with all. */
static void find_paths(const CommandList *list, const CommandOrder *order, int without,
                       Reach *out) {
    int last[MOST], n = 0;
    memset(out, 0, sizeof(*out));
    for (int s = 0; s < order->n_streams; s++) last[s] = -1;
    for (int i = 0; i < list->count; i++) {
        int *previous = &last[order->streams[i]];
        if (*previous >= 0) add_edge(out, *previous, i);
        for (int k = 0; k < list->items[i].n_waits; k++) {
            if (n++ != without) add_edge(out, list->items[i].waits[k], i);
        }
        *previous = i;
    }
}

/* Every pair that conflicts, and the first command with all others. */
static bool all_ordered(const CommandList *list, const Reach *reach, int *out_a, int *out_b) {
    for (int b = 1; b < list->count; b++) {
        for (int a = 0; a < b; a++) {
            if (is_before(reach, a, b)) continue;
            if (a > 0 && !conflict(&list->items[a], &list->items[b])) continue;
            *out_a = list->items[a].info.micro;
            *out_b = list->items[b].info.micro;
            return false;
        }
    }
    return true;
}

/* A permutation that turns no conflicting pair round, nor two commands of one stream. */
static void check_sequence(const CommandList *list, const CommandOrder *order) {
    bool seen[MOST] = {false};
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        CHECK(!seen[command->info.micro], "command %d is there twice", command->info.micro);
        seen[command->info.micro] = true;
        for (int k = 0; k < i; k++) {
            const Command *earlier = &list->items[k];
            if (earlier->info.micro < command->info.micro) continue;
            CHECK(command->stream == STREAM_DATA || earlier->stream == STREAM_DATA,
                  "%d and %d changed places", command->info.micro, earlier->info.micro);
            CHECK(order->streams[i] != order->streams[k], "%d and %d of one stream changed places",
                  command->info.micro, earlier->info.micro);
            CHECK(!conflict(earlier, command), "%d and %d, which conflict, changed places",
                  command->info.micro, earlier->info.micro);
        }
    }
}

static void check_streams(const CommandList *list, const CommandOrder *order) {
    int last[MOST] = {0}, n_joined = 0;
    for (int i = 0; i < list->count; i++) {
        const Command *a = &list->items[i];
        last[order->streams[i]] = i;
        for (int k = 0; k < i; k++) {
            const Command *b = &list->items[k];
            bool same = a->info.rank == b->info.rank && a->stream == b->stream;
            CHECK(same == (order->streams[i] == order->streams[k]), "stream of command %d", i);
        }
    }
    CHECK(order->streams[0] == 0, "the first command is not on the origin");
    for (int k = 0; k < order->n_joins; k++) {
        int joined = order->joins[k];
        CHECK(order->streams[joined] != 0 && last[order->streams[joined]] == joined,
              "%d is joined, not its stream's last", joined);
        n_joined++;
    }
    CHECK(n_joined == order->n_streams - 1, "%d of %d streams are joined", n_joined,
          order->n_streams - 1);
}

/* What a device would see: an object stands for the command recorded last. */
static void check_events(const CommandList *list, const CommandOrder *order) {
    int holds[MOST], n_waits = 0;
    for (int e = 0; e < MOST; e++) holds[e] = -1;
    for (int i = 0; i < list->count; i++) {
        const Command *command = &list->items[i];
        for (int k = 0; k < command->n_waits; k++) {
            int waited = command->waits[k], event = order->events[waited];
            CHECK(waited < i, "%d waits for a later one", i);
            CHECK(event >= 0 && holds[event] == waited,
                  "%d waits for %d, whose event is of %d by then", i, waited,
                  event < 0 ? -1 : holds[event]);
            n_waits++;
        }
        int event = order->events[i];
        CHECK(event == command->event && event < order->n_events, "event of command %d", i);
        if (event >= 0) holds[event] = i;
    }
    for (int k = 0; k < order->n_joins; k++) {
        int joined = order->joins[k], event = order->events[joined];
        CHECK(event >= 0 && holds[event] == joined, "the joined command %d has no event", joined);
    }
    CHECK(n_waits == order->n_waits, "%d waits, counted %d", n_waits, order->n_waits);
}

static void check_paths(const CommandList *list, const CommandOrder *order, bool minimal) {
    static Reach reach;
    int a = 0, b = 0;
    find_paths(list, order, -1, &reach);
    CHECK(all_ordered(list, &reach, &a, &b), "no path from %d to %d, which conflict", a, b);
    for (int wait = 0; minimal && wait < order->n_waits; wait++) {
        find_paths(list, order, wait, &reach);
        CHECK(!all_ordered(list, &reach, &a, &b), "wait %d of %d is not needed", wait,
              order->n_waits);
    }
}

static void check_one(int number, int most, bool minimal) {
    static bool reported;
    Arena *arena = arena_create();
    CommandList list = {0};
    CommandOrder order;
    random_state = UINT64_C(88172645463325252) + (uint64_t)number * 1000003u;
    for (int i = 0; i < 8; i++) random_below(2);
    int n_streams = 1 + random_below(N_STREAM_KINDS), memory = 8 << random_below(6);
    make_list(&list, arena, 1 + random_below(most), 1 + random_below(3), n_streams, memory);
    order_commands(&list, arena, &order);
    check_sequence(&list, &order);
    check_streams(&list, &order);
    check_events(&list, &order);
    check_paths(&list, &order, minimal);
    if (check_case_failed && !reported) printf("     in random list %d\n", number);
    reported |= check_case_failed;
    command_list_release(&list);
    arena_destroy(arena);
}

static Command touch(Arena *arena, StreamKind stream, int number, uintptr_t read, uintptr_t write,
                     uintptr_t also) {
    Access *accesses = ARENA_ARRAY(arena, Access, 3);
    accesses[0] = access_to((void *)read, 8, false);
    accesses[1] = access_to((void *)write, 8, true);
    accesses[2] = access_to((void *)also, 8, true);
    return (Command){.kind = COMMAND_FILL,
                     .stream = stream,
                     .info = {.micro = number},
                     .accesses = accesses,
                     .n_accesses = 3};
}

/* Gradients a and b are made, then reduced, the second sharing the first's workspace: the first
 * moves up to behind a; the second must stay behind b though the command it comes after moved. */
static void check_shared_workspace(void) {
    enum { A = 64, B = 128, SPACE = 192, OTHER = 256 };
    Arena *arena = arena_create();
    CommandList list = {0};
    CommandOrder order;
    const Command commands[] = {
        touch(arena, STREAM_COMPUTE, 0, OTHER, A, A),
        touch(arena, STREAM_COMPUTE, 1, OTHER, B, B),
        touch(arena, STREAM_DATA, 2, A, A, SPACE),
        touch(arena, STREAM_DATA, 3, B, B, SPACE),
    };
    check_begin("a reduction whose workspace another used stays behind what it reduces");
    for (int i = 0; i < 4; i++) command_list_push(&list, &commands[i]);
    order_commands(&list, arena, &order);
    check_sequence(&list, &order);
    CHECK(list.items[1].info.micro == 2, "the first reduction did not move up");
    command_list_release(&list);
    arena_destroy(arena);
}

/* A list may begin with a command of the data stream. */
static void check_first_of_data(void) {
    Arena *arena = arena_create();
    CommandList list = {0};
    CommandOrder order;
    check_begin("a list that begins on the data stream");
    for (int i = 0; i < 3; i++) {
        Command command = touch(arena, STREAM_DATA, i, 64, 128, 192);
        command_list_push(&list, &command);
    }
    order_commands(&list, arena, &order);
    CHECK(order.n_streams == 1 && order.n_waits == 0 && order.n_joins == 0, "needs more");
    check_sequence(&list, &order);
    command_list_release(&list);
    order_commands(&list, arena, &order);
    CHECK(order.n_streams == 0 && order.n_joins == 0, "an empty list needs something");
    arena_destroy(arena);
}

/* How many of the messages that reduce gradients over d stand before the backward's end. */
static int count_early(const Plan *plan, Arena *arena, Diag *diag, int *out_all) {
    CommandList list = {0};
    CommandOrder order;
    int early = 0, last = -1;
    *out_all = 0;
    if (!cuda_emit_stage(plan, 0, NULL, NULL, arena, kernel_cache_create(arena), &list, diag))
        return -1;
    order_commands(&list, arena, &order);
    for (int i = 0; i < list.count; i++) {
        if (list.items[i].info.task == TASK_BACKWARD) last = i;
    }
    for (int i = 0; i < list.count; i++) {
        const Command *command = &list.items[i];
        if (command->kind != COMMAND_COLLECTIVE || command->stream != STREAM_DATA) continue;
        if (command->collective.kind == ALL_GATHER || !command->info.node->types[0].rank) continue;
        ++*out_all;
        early += i < last;
    }
    command_list_release(&list);
    return early;
}

/* Gradients, or shards of them, lie where their messages need not wait for the backward to end, and
 * stand in the order in which it completes them. */
static void check_early_gradients(DType precision, int zero) {
    const Layout layout = {1, 2, 1, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    int all;
    char name[80];
    snprintf(name, sizeof(name), "gradients travel during the backward, %s, zero %d",
             dtype_name(precision), zero);
    check_begin(name);
    run_zero = zero;
    bool done = run_plan_for(&run, "models/gpt.lua", NULL, 0, &layout, 8, false, true, precision);
    run_zero = 0;
    CHECK(done, "%s", diag_text(run.diag));
    if (done) {
        int early = count_early(run.plan, run.arena, run.diag, &all);
        CHECK(early >= all * 9 / 10, "%d of %d stand before its end", early, all);
    }
    run_close(&run);
}

int main(void) {
    check_shared_workspace();
    for (int zero = 0; zero < 2; zero++) {
        check_early_gradients(DTYPE_F32, zero);
        check_early_gradients(DTYPE_BF16, zero);
    }
    check_first_of_data();
    check_begin("short random lists: pairs ordered, no wait too many, events and joins right");
    for (int i = 0; i < N_LISTS; i++) check_one(i, 40, true);
    check_begin("longer random lists: the same, but for waits too many");
    for (int i = 0; i < N_LISTS / 10; i++) check_one(N_LISTS + i, MOST, false);
    return check_report();
}
