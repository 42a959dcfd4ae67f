/* Masked diffusion (Nie et al. 2025, LLaDA, arXiv 2502.09992, equation 3; Sahoo et al. 2024, MDLM,
 * arXiv 2406.07524, with a linear schedule): of each row a share t of the tokens is hidden, drawn
 * for the row, and a hidden token's loss counts 1 / t times. The mean over all tokens is then, in
 * expectation, a bound from above of -log p of a token.
 *
 * What is hidden follows from the seed, the row's number and the place in it: it depends on no
 * layout. */
#ifndef RUNTIME_DATA_DIFFUSION_H
#define RUNTIME_DATA_DIFFUSION_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Diffusion {
    int32_t mask;              /* the token that hides one */
    bool shifted;              /* a label lies one position before its token, as in Dream */
    const unsigned char *kept; /* [vocab] 1: never hidden; NULL: the mask only */
} Diffusion;

/* The share of a row, between DIFFUSION_LEAST and 1. Shares of rows that follow one another lie
 * evenly (a golden ratio apart), each one being uniform over seeds, so that a batch of any size has
 * small and large ones. Row `number` is looked at `n_draws` times, this being `draw`, from 0 on:
 * these lie evenly, too. */
#define DIFFUSION_LEAST 1e-3 /* as in LLaDA's and MDLM's code: 1 / t is bounded */
double diffusion_share(uint64_t seed, int64_t number, int draw, int n_draws);

/* tokens [n] as they are, labels [n] the tokens that follow, below 0 where these do not count ->
 * tokens with some hidden, labels the tokens that could have been hidden, else below 0, and
 * weights [n]: 1 / t where one is hidden, else 0. The first token counts where `first_counts` and
 * it has a position. Returns how many labels there are. */
int64_t diffusion_apply(const Diffusion *how, uint64_t key, double share, bool first_counts,
                        int32_t *tokens, int32_t *labels, float *weights, int64_t n);

#endif
