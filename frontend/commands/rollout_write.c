#include "frontend/commands/rollout_write.h"

#include "frontend/commands/generate_open.h"
#include "frontend/commands/generate_tasks.h"
#include "frontend/progress_line.h"
#include "ir/base/clock.h"

bool rollout_writer_open(RolloutWriter *writer, CliArgs *args, int64_t n_answers, Diag *diag) {
    GenerateWriter *texts = &writer->texts;
    const int64_t slots = cli_int(args, OPT_SIDE_BY_SIDE, WRITER_SIDE_BY_SIDE);
    texts->n_texts = (int)(slots < n_answers ? slots : n_answers);
    if (!engine_args_crew(args, writer->options, &writer->crew, diag)) return false;
    const GenerateBeside beside = {writer->plan, writer->options, writer->crew.together,
                                   texts->n_texts, false};
    if (!generate_engine_open_beside(args, &beside, &texts->engine, diag)) return false;
    if (!texts->engine.plan) {
        diag_error(diag, texts->engine.obstacle.loc,
                   "train: no answers can be written with caches: %s", texts->engine.obstacle.what);
        return false;
    }
    if (!generate_engine_create(&texts->engine, args->arena, diag)) {
        return false;
    }
    generate_writer_start(texts, args, &writer->prompts->text);
    return true;
}

void rollout_writer_close(RolloutWriter *writer) {
    generate_writer_release(&writer->texts);
    engine_destroy(writer->texts.engine.engine);
    writer->texts.engine.engine = NULL;
}

bool rollout_writer_renew(RolloutWriter *writer, Diag *diag) {
    const double start = clock_now();
    bool good = engine_copy_weights(writer->engine, writer->texts.engine.engine,
                                    !writer->has_weights, diag);
    writer->has_weights = writer->has_weights || good;
    generate_engine_forget(&writer->texts.engine);
    writer->seconds += clock_now() - start;
    return good;
}

/* The answers that this process writes. */
typedef struct Writing {
    RolloutWriter *writer;
    const RolloutRequest *request;
    CrewShare own;
    ProgressLine line;
    bool quiet;
} Writing;

static GenerateText begin_text(void *user, int64_t task, uint64_t *state) {
    const Writing *w = user;
    const int64_t i = rank_crew_at(w->own, task);
    *state = w->request->states[i];
    return generate_text_fork(&w->writer->prompts->items[w->request->prompts[i]].begin);
}

static int64_t most_tokens(void *user, int64_t task) {
    const Writing *w = user;
    return train_prompts_room(w->writer->prompts, w->writer->plan,
                              w->request->prompts[rank_crew_at(w->own, task)]);
}

static bool end_text(void *user, int64_t task, const GenerateText *text, bool ended) {
    Writing *w = user;
    RolloutWriter *writer = w->writer;
    RolloutAnswer *answer = &w->request->answers[rank_crew_at(w->own, task)];
    answer->ended = ended;
    answer->n_tokens = (int32_t)(text->tokens.count - text->n_prompt_tokens);
    for (int32_t i = 0; i < answer->n_tokens; i++) {
        answer->tokens[i] = text->tokens.items[text->n_prompt_tokens + (size_t)i];
    }
    strbuf_put_bytes(&answer->text, text->text.text + text->n_prompt,
                     text->text.length - text->n_prompt);
    writer->n_written++;
    writer->n_tokens += answer->n_tokens;
    return true;
}

static void tell_text(void *user, int64_t n_written, int64_t n) {
    Writing *w = user;
    if (!w->quiet) progress_line_show(&w->line, (int)n_written, (int)n, w->request->doing);
}

bool rollout_writer_write(RolloutWriter *writer, const RolloutRequest *request, Diag *diag) {
    const RankCrew *crew = &writer->crew;
    Writing w = {.writer = writer,
                 .request = request,
                 .own = rank_crew_written(crew, request->count),
                 .line = progress_line_start("answers"),
                 .quiet = cli_given(writer->args, OPT_QUIET) || writer->options->rank > 0};
    const double start = clock_now();
    for (int64_t i = 0; i < request->count; i++) request->answers[i].text.length = 0;
    writer->texts.sampler.options = (SamplerOptions){.temperature = !request->greedy,
                                                     .top_k = writer->prompts->text.n_choices,
                                                     .top_p = 1,
                                                     .repetition = 1};
    const WriterTasks tasks = {w.own.count, &w, begin_text, most_tokens, end_text, tell_text};
    bool good = generate_tasks(&writer->texts, &tasks, diag);
    writer->seconds += clock_now() - start;
    if (request->judge && good) {
        good = request->judge(request->user, request, rank_crew_own(crew, request->count), diag);
    }
    progress_line_end(&w.line);
    return good && rollout_share(crew, request->answers, request->count, writer->plan->seq, diag);
}
