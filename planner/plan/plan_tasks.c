/* Task lists as text: words, and runs of words that repeat with micro-batches moved on. A schedule
 * is regular, so a list of thousands of tasks takes a few lines whatever the number of
 * micro-batches, and two plans differ in the lines where their schedules do. */
#include "planner/plan/plan_text.h"

#include <string.h>

/* A pattern is at most a receive, a task and a send of a forward and of a backward, and a W. */
enum { MAX_PATTERN = 7, LINE_COLUMNS = 90, TASKS_PER_UNIT = 7 };

static const char *const WORDS[N_TASK_KINDS] = {"rf", "F", "sf", "rb", "B", "sb", "W", "U"};

const char *task_kind_word(TaskKind kind) {
    return kind < N_TASK_KINDS ? WORDS[kind] : "?";
}

static void put_task(StrBuf *out, const Task *task) {
    strbuf_put(out, task_kind_word(task->kind));
    if (task->kind != TASK_UPDATE) strbuf_printf(out, "%d.%d", task->chunk, (int)task->micro);
}

static bool follows(const Task *task, const Task *earlier, int step) {
    return task->kind != TASK_UPDATE && task->kind == earlier->kind &&
           task->chunk == earlier->chunk && task->micro == earlier->micro + step;
}

/* How often the next `length` tasks repeat, each time one micro-batch further. */
static int count_repeats(const Task *tasks, int n_tasks, int length) {
    int at = length;
    while (at < n_tasks && follows(&tasks[at], &tasks[at - length], 1)) at++;
    return at / length;
}

void plan_put_tasks(StrBuf *out, const Task *tasks, int n_tasks) {
    size_t line = 0;
    bool open = false; /* a line of single words that may go on */
    for (int at = 0; at < n_tasks;) {
        int length = 1, repeats = 1;
        for (int l = 1; l <= MAX_PATTERN && at + l <= n_tasks; l++) {
            int r = count_repeats(tasks + at, n_tasks - at, l);
            if (r > 1 && r * l > repeats * length) length = l, repeats = r;
        }
        if (open && (repeats > 1 || out->length - line > LINE_COLUMNS)) {
            strbuf_put(out, "\n");
            open = false;
        }
        if (!open) line = out->length;
        strbuf_put(out, open ? " " : "    ");
        if (repeats > 1) strbuf_printf(out, "%dx(", repeats);
        for (int i = 0; i < length; i++) {
            if (i) strbuf_put(out, " ");
            put_task(out, &tasks[at + i]);
        }
        if (repeats > 1) strbuf_put(out, ")+1\n");
        open = repeats == 1;
        at += repeats * length;
    }
    if (open) strbuf_put(out, "\n");
}

typedef struct TaskReader {
    PlanReader *reader;
    Task *items;
    int count, capacity;
    int n_micro, n_chunks, most;
} TaskReader;

static bool read_word(TaskReader *t, Task *out) {
    int kind = 0, chunk, micro;
    while (kind < N_TASK_KINDS && !plan_reader_accept(t->reader, WORDS[kind])) kind++;
    if (kind == N_TASK_KINDS) {
        return plan_reader_fail(t->reader, "expected a task (rf F sf rb B sb W U) or '}'");
    }
    *out = (Task){.kind = (uint8_t)kind};
    if (out->kind == TASK_UPDATE) return true;
    if (!plan_reader_int32(t->reader, 0, t->n_chunks - 1, &chunk)) return false;
    if (!plan_reader_expect(t->reader, ".")) return false;
    if (!plan_reader_int32(t->reader, 0, t->n_micro - 1, &micro)) return false;
    out->chunk = (uint8_t)chunk;
    out->micro = micro;
    return true;
}

static bool add(TaskReader *t, Task task) {
    if (t->count == t->most) {
        return plan_reader_fail(t->reader, "more tasks than %d micro-batches and %d chunks allow",
                                t->n_micro, t->n_chunks);
    }
    if (task.micro < 0 || task.micro >= t->n_micro) {
        return plan_reader_fail(t->reader, "a run goes past the last micro-batch");
    }
    if (t->reader->n_tasks++ == MAX_TASKS) {
        return plan_reader_fail(t->reader, "more than %d tasks", MAX_TASKS);
    }
    ARENA_PUSH(t->reader->arena, t->items, t->count, t->capacity, task);
    return true;
}

/* 449x(rf0.64 F0.64)+1 , after the digits */
static bool read_run(TaskReader *t, int repeats) {
    Task pattern[MAX_PATTERN];
    int length = 0, step;
    if (!plan_reader_expect(t->reader, "x(")) return false;
    while (!plan_reader_accept(t->reader, ")")) {
        if (length == MAX_PATTERN) return plan_reader_fail(t->reader, "the run is too long");
        if (!read_word(t, &pattern[length])) return false;
        if (pattern[length++].kind == TASK_UPDATE) {
            return plan_reader_fail(t->reader, "an update cannot repeat");
        }
    }
    if (!length) return plan_reader_fail(t->reader, "the run is empty");
    if (!plan_reader_expect(t->reader, "+")) return false;
    if (!plan_reader_int32(t->reader, 1, t->n_micro, &step)) return false;
    for (int r = 0; r < repeats; r++) {
        for (int i = 0; i < length; i++) {
            if (!add(t, pattern[i])) return false;
            pattern[i].micro += step;
        }
    }
    return true;
}

bool plan_reader_tasks(PlanReader *reader, int n_micro, int n_chunks, Task **out, int *out_n) {
    TaskReader t = {.reader = reader, .n_micro = n_micro, .n_chunks = n_chunks};
    t.most = TASKS_PER_UNIT * n_micro * n_chunks + 1;
    while (plan_reader_skip_space(reader) && *reader->at && *reader->at != '}') {
        Task task;
        int repeats;
        if (*reader->at >= '0' && *reader->at <= '9') {
            if (!plan_reader_int32(reader, 1, n_micro, &repeats)) return false;
            if (!read_run(&t, repeats)) return false;
        } else if (!read_word(&t, &task) || !add(&t, task)) {
            return false;
        }
    }
    *out = t.items;
    *out_n = t.count;
    return !reader->failed;
}
