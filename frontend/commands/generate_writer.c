#include "frontend/commands/generate_writer.h"

#include <stdlib.h>

void generate_writer_start(GenerateWriter *w, const CliArgs *args, const GenerateText *from) {
    Arena *arena = args->arena;
    w->sampler = sampler_create(args, from->n_choices);
    w->texts = ARENA_ARRAY(arena, GenerateText, w->n_texts);
    w->states = ARENA_ARRAY(arena, uint64_t, w->n_texts);
    w->live = ARENA_ARRAY(arena, bool, w->n_texts);
    w->logits = ARENA_ARRAY(arena, float, w->n_texts * w->engine.plan->vocab);
    for (int i = 0; i < w->n_texts; i++) {
        w->texts[i] = generate_text_fork(from);
        w->states[i] = generate_writer_seed(args, i);
    }
}

void generate_writer_release(GenerateWriter *w) {
    for (int i = 0; w->texts && i < w->n_texts; i++) generate_text_release(&w->texts[i]);
}

bool generate_writer_add(GenerateWriter *w, Diag *diag) {
    const int64_t vocab = w->engine.plan->vocab;
    if (!generate_engine_logits(&w->engine, w->texts, w->live, w->logits, diag)) return false;
    for (int i = 0; i < w->n_texts; i++) {
        if (!w->live[i]) continue;
        int token = sampler_choose(&w->sampler, &w->states[i], &w->texts[i], w->logits + i * vocab);
        if (token < 0) {
            diag_error(diag, NO_LOC, "the model's output is not finite; wrong weights?");
            return false;
        }
        w->live[i] = generate_text_add(&w->texts[i], token);
        w->n_written++;
    }
    return true;
}

bool generate_writer_is_live(const GenerateWriter *w) {
    for (int i = 0; i < w->n_texts; i++) {
        if (w->live[i]) return true;
    }
    return false;
}

uint64_t generate_writer_seed(const CliArgs *args, int64_t sample) {
    return (uint64_t)cli_int(args, OPT_SEED, 1) + (uint64_t)sample;
}

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
        }
    }
    return true;
}

bool generate_writer_tasks(GenerateWriter *w, const WriterTasks *tasks, Diag *diag) {
    int64_t *task_of = calloc((size_t)w->n_texts, sizeof(*task_of));
    if (!task_of) BUG("out of memory");
    bool good = run_tasks(w, tasks, task_of, diag);
    free(task_of);
    return good;
}
