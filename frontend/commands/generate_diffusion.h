/* Texts that a model writes by diffusion: all of an answer's tokens begin hidden, the model says
 * all at once, and those that it is surest of stay (Nie et al. 2025, LLaDA, arXiv 2502.09992,
 * algorithm 5), a few in each pass over the model's window, until none is hidden; and, if asked
 * for, all that are likely enough (Wu et al. 2025, Fast-dLLM, arXiv 2505.22618, section 3.3).
 *
 * The window has the prompt, the answer, and hidden tokens up to its end, which stay so. Answers
 * may be written in blocks, one after the other. */
#ifndef FRONTEND_COMMANDS_GENERATE_DIFFUSION_H
#define FRONTEND_COMMANDS_GENERATE_DIFFUSION_H

#include "frontend/commands/generate_tasks.h"

typedef struct GenerateDiffusion {
    GenerateWriter *writer;
    int64_t block, steps;    /* tokens of a block; passes of an answer, 0: one for each token */
    double enough;           /* log of a probability: likelier tokens stay (0: none is) */
    bool by_chance;          /* which tokens stay: not the surest, but any */
    int64_t *begun, *length; /* [n_texts]: tokens of a text's prompt, and of its answer */
    int64_t written;         /* tokens of the answers' blocks that are done */
    int32_t *rows;           /* [n_texts, seq] */
    int32_t *chosen;         /* [seq]: what the model says of hidden tokens */
    double *sureness;        /* [seq]: and how sure it is */
} GenerateDiffusion;

/* Answers to what the texts have now, of a writer that was started; of --length and its like.
 * False, reported: there is no room. */
bool generate_diffusion_begin(GenerateDiffusion *diffusion, GenerateWriter *writer,
                              const CliArgs *args, Diag *diag);
/* The next block of each text that is live. False: reported. */
bool generate_diffusion_write(GenerateDiffusion *diffusion, Diag *diag);
/* All blocks are written, or all texts have ended. */
bool generate_diffusion_is_done(const GenerateDiffusion *diffusion);

/* generate_tasks, of such a writer: as many texts as it has at a time. */
bool generate_diffusion_tasks(GenerateWriter *writer, const CliArgs *args, const WriterTasks *tasks,
                              Diag *diag);

/* What options cannot be, where the plan does not write so (`diffuses` false), or does. */
bool generate_diffusion_check(const CliArgs *args, bool diffuses, Diag *diag);

#endif
