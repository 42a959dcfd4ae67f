/* Masked language modelling (Devlin et al. 2018, BERT, section 3.1): some tokens of a sequence are
 * to be said, and most of these cannot be seen. Chosen anew for each sample, as RoBERTa does (Liu
 * et al. 2019, section 4.1). What is chosen follows from the key and the place in the sequence, so
 * it depends on no layout. */
#ifndef RUNTIME_DATA_MASKED_LM_H
#define RUNTIME_DATA_MASKED_LM_H

#include <stdint.h>

typedef struct MaskedLm {
    double rate;               /* of tokens that are to be said; 0: none, nothing is done */
    int32_t mask;              /* the token that hides one */
    int32_t vocab;             /* tokens are below it */
    const unsigned char *kept; /* [vocab] 1: never to be said, and never put; NULL: the mask only */
} MaskedLm;

/* Each token is chosen with probability `rate`: its label is then itself, and the model sees the
 * mask (8 of 10), any other token (1 of 10) or itself. All other labels become
 * DATASET_NO_LABEL. tokens, labels [n]. */
void masked_lm_apply(const MaskedLm *masked, uint64_t key, int32_t *tokens, int32_t *labels,
                     int64_t n);

#endif
