/* Texts that `generate` writes side by side, a token of each at a time. */
#ifndef FRONTEND_COMMANDS_GENERATE_WRITER_H
#define FRONTEND_COMMANDS_GENERATE_WRITER_H

#include "frontend/commands/generate_engine.h"
#include "frontend/commands/sampler.h"

/* Texts side by side unless otherwise asked: rows that a product takes with the same bits as alone
 * (runtime/cpu/row_product.h). */
enum { WRITER_SIDE_BY_SIDE = 8 };

typedef struct GenerateWriter {
    GenerateEngine engine;
    Sampler sampler;
    int n_texts;
    GenerateText *texts; /* [n_texts] */
    uint64_t *states;    /* [n_texts]: of the texts' random numbers */
    bool *live;          /* [n_texts]: has not ended */
    float *logits;       /* [n_texts, vocab] */
    int64_t n_written;   /* tokens, of all texts */
} GenerateWriter;

/* Of an engine that was started: all texts begin as `from`, which is released after them. */
void generate_writer_start(GenerateWriter *writer, const CliArgs *args, const GenerateText *from);
void generate_writer_release(GenerateWriter *writer);

/* One more token of each text that is live; those that end with it are no longer. False: reported.
 */
bool generate_writer_add(GenerateWriter *writer, Diag *diag);
bool generate_writer_is_live(const GenerateWriter *writer);
/* A text's state of random numbers is that of --seed + `sample`, from 0 on. */
uint64_t generate_writer_seed(const CliArgs *args, int64_t sample);

#endif
