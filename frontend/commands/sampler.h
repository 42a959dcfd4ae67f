/* Choosing the next token of a text from logits. */
#ifndef FRONTEND_COMMANDS_SAMPLER_H
#define FRONTEND_COMMANDS_SAMPLER_H

#include "frontend/commands/generate_text.h"

typedef struct SamplerCandidate {
    double logit;
    int token;
} SamplerCandidate;

typedef struct SamplerOptions {
    double temperature; /* 0: the likeliest */
    int top_k;
    double top_p, min_p; /* shares of the probability; 1 and 0: no limit */
    double repetition;   /* penalty of tokens that the text has; 1: none   (Keskar 2019) */
} SamplerOptions;

typedef struct Sampler {
    SamplerOptions options;
    double *logits; /* of all tokens there are room for, as in the next three */
    SamplerCandidate *candidates, *taken;
    bool *seen;
    bool *has; /* may it be chosen? Of the tokenizer whose tokens were looked at */
    const Tokenizer *of;
    int n_has; /* 0: none were */
} Sampler;

/* From the command line, for texts of that many choices. */
Sampler sampler_create(const CliArgs *args, int n_choices);

/* A token drawn from softmax(logits / temperature), over what top_k, then top_p, then min_p leave
 * of those that there are; *state is the text's own. -1: a logit is not finite. */
int sampler_choose(Sampler *sampler, uint64_t *state, const GenerateText *text,
                   const float *logits);

/* A number in [0, 1). */
double sampler_draw(uint64_t *state);

#endif
