#include "frontend/commands/generate_writer.h"

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
