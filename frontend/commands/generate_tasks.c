#include "frontend/commands/generate_tasks.h"

#include "frontend/commands/rank_crew.h"

#include <stdlib.h>
#include <string.h>

enum { NO_TASK = -1 };

static void begin_task(GenerateWriter *w, const WriterTasks *tasks, int slot, int64_t task) {
    generate_text_release(&w->texts[slot]);
    w->texts[slot] = tasks->begin(tasks->user, task, &w->states[slot]);
    generate_engine_begin(&w->engine, slot);
    w->live[slot] = true;
}

/* Tokens that were added. */
static int64_t count_added(const GenerateText *text) {
    return (int64_t)(text->tokens.count - text->n_prompt_tokens);
}

static bool run_tasks(GenerateWriter *w, const WriterTasks *tasks, int64_t *task_of, Diag *diag) {
    int64_t n_begun = 0, n_ended = 0;
    for (int i = 0; i < w->n_texts; i++) {
        task_of[i] = NO_TASK;
        w->live[i] = false;
    }
    while (n_ended < tasks->count) {
        for (int i = 0; i < w->n_texts; i++) {
            if (task_of[i] != NO_TASK || n_begun == tasks->count) continue;
            task_of[i] = n_begun++;
            begin_task(w, tasks, i, task_of[i]);
        }
        if (!generate_writer_add(w, diag)) return false;
        for (int i = 0; i < w->n_texts; i++) {
            const int64_t task = task_of[i];
            if (task == NO_TASK) continue;
            const bool ended = !w->live[i];
            if (!ended && count_added(&w->texts[i]) < tasks->most(tasks->user, task)) continue;
            if (!tasks->end(tasks->user, task, &w->texts[i], ended)) return false;
            w->live[i] = false;
            task_of[i] = NO_TASK;
            n_ended++;
            if (tasks->tell) tasks->tell(tasks->user, n_ended, tasks->count);
        }
    }
    return true;
}

bool generate_tasks(GenerateWriter *w, const WriterTasks *tasks, Diag *diag) {
    int64_t *task_of = calloc((size_t)w->n_texts, sizeof(*task_of));
    if (!task_of) BUG("out of memory");
    bool good = run_tasks(w, tasks, task_of, diag);
    free(task_of);
    return good;
}

/* --- by several processes --- */

/* Of the tasks those that this process' group has, and what it has written: of each how many
 * tokens, whether it ended, and the tokens. */
typedef struct GroupTasks {
    const WriterTasks *all;
    CrewShare own;
    StrBuf written;
} GroupTasks;

static GenerateText begin_own(void *user, int64_t task, uint64_t *state) {
    const GroupTasks *g = user;
    return g->all->begin(g->all->user, rank_crew_at(g->own, task), state);
}

static int64_t most_own(void *user, int64_t task) {
    const GroupTasks *g = user;
    return g->all->most(g->all->user, rank_crew_at(g->own, task));
}

/* What travels of a text: its tokens follow. */
typedef struct TextHead {
    int64_t task;
    uint32_t n_tokens, ended;
} TextHead;

static bool end_own(void *user, int64_t task, const GenerateText *text, bool ended) {
    GroupTasks *g = user;
    const size_t n = text->tokens.count - text->n_prompt_tokens;
    const TextHead head = {rank_crew_at(g->own, task), (uint32_t)n, ended};
    strbuf_put_bytes(&g->written, (const char *)&head, sizeof(head));
    strbuf_put_bytes(&g->written, (const char *)(text->tokens.items + text->n_prompt_tokens),
                     n * sizeof(*text->tokens.items));
    return true;
}

static void tell_own(void *user, int64_t n_written, int64_t n) {
    const GroupTasks *g = user;
    if (g->all->tell) g->all->tell(g->all->user, n_written, n);
}

/* Where each task's text lies in the bytes. False: they are no texts, or not all of these. */
static bool find_texts(const unsigned char *bytes, size_t n_bytes, int64_t count,
                       const unsigned char **out) {
    TextHead head;
    int64_t n_found = 0;
    for (size_t at = 0; at < n_bytes; n_found++) {
        if (n_bytes - at < sizeof(head)) return false;
        memcpy(&head, bytes + at, sizeof(head));
        if (head.task < 0 || head.task >= count || out[head.task]) return false;
        out[head.task] = bytes + at;
        at += sizeof(head);
        if ((n_bytes - at) / sizeof(uint32_t) < head.n_tokens) return false;
        at += head.n_tokens * sizeof(uint32_t);
    }
    return n_found == count;
}

/* As whoever wrote it had it, token by token. */
static bool end_task(const WriterTasks *tasks, int64_t task, const unsigned char *from) {
    uint64_t state;
    TextHead head;
    memcpy(&head, from, sizeof(head));
    GenerateText text = tasks->begin(tasks->user, task, &state);
    for (uint32_t i = 0; i < head.n_tokens; i++) {
        uint32_t token;
        memcpy(&token, from + sizeof(head) + i * sizeof(token), sizeof(token));
        generate_text_add(&text, (int)token);
    }
    const bool good = tasks->end(tasks->user, task, &text, head.ended != 0);
    generate_text_release(&text);
    return good;
}

/* False: reported, or the job has failed, which is said below. */
static bool end_all(const WriterTasks *tasks, const unsigned char *bytes, size_t n_bytes,
                    Diag *diag) {
    const unsigned char **texts = calloc((size_t)tasks->count + 1, sizeof(*texts));
    if (!texts) BUG("out of memory");
    bool good = find_texts(bytes, n_bytes, tasks->count, texts);
    if (!good) diag_error(diag, NO_LOC, "a rank's texts are not what they should be");
    for (int64_t i = 0; i < tasks->count && good; i++) good = end_task(tasks, i, texts[i]);
    free(texts);
    return good;
}

/* Always false. */
static bool report_lost(Control *control, Diag *diag) {
    const char *why = "a rank's texts did not come";
    control_failed(control, &why);
    diag_error(diag, NO_LOC, "%s", why);
    return false;
}

bool generate_tasks_together(GenerateWriter *w, const WriterTasks *tasks, Diag *diag) {
    const EngineOptions *options = &w->engine.options;
    if (!options->control) return generate_tasks(w, tasks, diag);
    const RankCrew crew = {options->control, options->rank, w->engine.plan->mesh.size[MESH_T]};
    GroupTasks g = {tasks, rank_crew_written(&crew, tasks->count), strbuf_create()};
    const WriterTasks own = {g.own.count, &g, begin_own, most_own, end_own, tell_own};
    const bool leads = options->rank % crew.together == 0; /* one of a group says it */
    unsigned char *all;
    size_t n_all;
    bool good = generate_tasks(w, &own, diag);
    if (good && !rank_crew_gather(options->control, g.written.text, leads ? g.written.length : 0,
                                  SIZE_MAX / 2, NULL, &all, &n_all)) {
        good = report_lost(options->control, diag);
    } else if (good) {
        good = end_all(tasks, all, n_all, diag);
        free(all);
        /* The first may have judged them for longer than others wait. */
        if (good && !control_await(options->control)) good = report_lost(options->control, diag);
    }
    strbuf_destroy(&g.written);
    return good;
}
