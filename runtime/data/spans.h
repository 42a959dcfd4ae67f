/* Span corruption (Raffel et al. 2020, T5, section 3.1.4): runs of a text's tokens are hidden, each
 * behind a token of its own, and are to be said, in their order, each after that token.
 *
 *     The plan fixes every byte and message  ->  The <X> every byte <Y>   <X> plan fixes <Y> and
 * message
 *
 * Lengths follow from the settings alone, and are what T5's published code (seqio, T5's
 * preprocessors) makes of them: so many tokens are taken of a text that what the encoder reads has
 * the length asked for, with a token that ends it. Which spans are hidden follows from the key, so
 * it depends on no layout.
 */
#ifndef RUNTIME_DATA_SPANS_H
#define RUNTIME_DATA_SPANS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct Spans {
    double rate, mean; /* share of the tokens that is hidden; mean length of a span, at least 1 */
    int32_t sentinel;  /* stands for the first span; the next one's is one less */
    int32_t start, eos, pad;
    int64_t source, seq; /* what the encoder and the decoder have room for */
} Spans;

typedef struct SpanSizes {
    int64_t window;        /* tokens of a text */
    int64_t hidden, spans; /* of them */
    int64_t source,
        target; /* tokens with sentinels and an end: at most spans' source; the target */
} SpanSizes;

/* The longest window that fits the encoder; false: no window of two tokens does. Whether the target
 * fits the decoder is the caller's to look at. */
bool span_sizes(const Spans *spans, SpanSizes *out);

/* window [sizes->window] -> source [spans->source], filled up with pad; labels [spans->seq], the
 * target and then DATASET_NO_LABEL; tokens [spans->seq]: start, and then the target but for its
 * end, filled up with pad. The target must fit. Any thread. */
void span_corrupt(const Spans *spans, const SpanSizes *sizes, uint64_t key, const int32_t *window,
                  int32_t *source, int32_t *tokens, int32_t *labels);

/* What the decoder has seen before each label, and the labels. target [n], n at most seq. */
void span_shift(const Spans *spans, const int32_t *target, int64_t n, int32_t *tokens,
                int32_t *labels);

#endif
