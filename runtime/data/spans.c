#include "runtime/data/spans.h"

#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"

#include <math.h>

static int64_t clamp(double x, int64_t least, int64_t most) {
    return x < (double)least ? least : x > (double)most ? most : (int64_t)x;
}

/* Of a window; halves are rounded to even, as there. */
static SpanSizes sizes_of(const Spans *spans, int64_t window) {
    SpanSizes sizes = {.window = window};
    sizes.hidden = clamp(rint((double)window * spans->rate), 1, window - 1);
    int64_t seen = window - sizes.hidden;
    int64_t most = sizes.hidden < seen ? sizes.hidden : seen;
    sizes.spans = clamp(rint((double)sizes.hidden / spans->mean), 1, most);
    sizes.source = seen + sizes.spans + 1;
    sizes.target = sizes.hidden + sizes.spans + 1;
    return sizes;
}

bool span_sizes(const Spans *spans, SpanSizes *out) {
    enum { MOST_WINDOW = 1 << 24 }; /* where nearly all is hidden */
    int64_t window = 2;
    *out = sizes_of(spans, window);
    if (out->source > spans->source) return false;
    for (;;) {
        SpanSizes next = sizes_of(spans, ++window);
        if (next.source > spans->source || window > MOST_WINDOW) return true;
        *out = next;
    }
}

/* Is the next of `left` items one of the `wanted` that are chosen? All choices are equally likely
 * (Knuth, The Art of Computer Programming, volume 2, 3.4.2, algorithm S). */
static bool is_chosen(uint64_t *state, int64_t wanted, int64_t left) {
    *state = mix_bits(*state);
    return (double)(*state >> 11) * 0x1p-53 * (double)left < (double)wanted;
}

/* Walks over items in runs, none empty: does the next item begin a new one? */
typedef struct Runs {
    uint64_t state;
    int64_t breaks, left; /* to come: new runs, and items */
} Runs;

static bool begins_run(Runs *runs) {
    bool begins = is_chosen(&runs->state, runs->breaks, runs->left);
    runs->left--;
    runs->breaks -= begins;
    return begins;
}

void span_shift(const Spans *spans, const int32_t *target, int64_t n, int32_t *tokens,
                int32_t *labels) {
    for (int64_t i = 0; i < spans->seq; i++) {
        tokens[i] = i == 0 ? spans->start : i < n ? target[i - 1] : spans->pad;
        labels[i] = i < n ? target[i] : DATASET_NO_LABEL;
    }
}

/* Seen and hidden runs take turns, a seen one first: as many of one as of the other. */
void span_corrupt(const Spans *spans, const SpanSizes *sizes, uint64_t key, const int32_t *window,
                  int32_t *source, int32_t *tokens, int32_t *labels) {
    Runs seen = {mix_bits(key), sizes->spans - 1, sizes->window - sizes->hidden - 1};
    Runs hidden = {mix_bits(~key), sizes->spans - 1, sizes->hidden - 1};
    int32_t *target = labels; /* made there, then shifted in place */
    int64_t at = 0, n_source = 0, n_target = 0;
    for (int64_t span = 0; span < sizes->spans; span++) {
        const int32_t sentinel = spans->sentinel - (int32_t)span;
        do source[n_source++] = window[at++];
        while (seen.left > 0 && !begins_run(&seen));
        source[n_source++] = sentinel;
        target[n_target++] = sentinel;
        do target[n_target++] = window[at++];
        while (hidden.left > 0 && !begins_run(&hidden));
    }
    source[n_source++] = spans->eos;
    target[n_target++] = spans->eos;
    while (n_source < spans->source) source[n_source++] = spans->pad;
    span_shift(spans, target, n_target, tokens, labels);
}
