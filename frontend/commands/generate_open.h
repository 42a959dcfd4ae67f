/* The plan that a GenerateEngine runs, from the command line: for decoding, or why there are no
 * caches. */
#ifndef FRONTEND_COMMANDS_GENERATE_OPEN_H
#define FRONTEND_COMMANDS_GENERATE_OPEN_H

#include "frontend/commands/generate_engine.h"

/* Plans, from the command line; returns EXIT_DONE or the exit code, reported. Released either way.
 */
int generate_engine_open(CliArgs *args, int n_texts, GenerateEngine *out, Diag *diag);
/* Beside training. */
typedef struct GenerateBeside {
    const Plan *plan;             /* of training, of the command line's operand */
    const EngineOptions *options; /* how it runs */
    int together;                 /* processes of a group, each with a part of weights and caches */
    int n_texts;
    bool scores; /* texts are scored */
} GenerateBeside;
/* The same of the model that the plan is of, with its precision. Without caches out->plan is NULL
 * and out->obstacle says why. False: reported. */
bool generate_engine_open_beside(CliArgs *args, const GenerateBeside *beside, GenerateEngine *out,
                                 Diag *diag);

#endif
