/* Several sources of samples in fixed shares: which source each sample of an endless sequence comes
 * from, and which of that source's samples it is.
 *
 * After n samples a source of share w has had floor(n w) or ceil(n w) of them, whatever n is: of
 * the sources that are behind their share, the one whose next sample is due first (the quota
 * method, Balinski & Young 1975; as a schedule, earliest deadline first, Baruah et al. 1996). The
 * sequence has a period, so any place in it is reached without going through what lies before.
 */
#ifndef RUNTIME_DATA_BLEND_H
#define RUNTIME_DATA_BLEND_H

#include <stdbool.h>
#include <stdint.h>

enum { BLEND_MOST_SOURCES = 32, BLEND_MOST_PERIOD = 1 << 20 };

typedef struct Blend {
    int n_sources;
    int64_t parts[BLEND_MOST_SOURCES]; /* a source's samples in each period */
    int64_t period;                    /* samples: their sum */
    int64_t next;                      /* the sample that comes now */
    int64_t had[BLEND_MOST_SOURCES];   /* samples of each source before it */
} Blend;

/* Shares in proportion to weights [n], finite and above 0, n from 1 to BLEND_MOST_SOURCES. Exact
 * where the weights are decimals (0.7 and 0.3) whose shares have a period of at most
 * BLEND_MOST_PERIOD, else to one part in that many; a source has at least one. */
Blend blend_create(const double *weights, int n);

static inline double blend_share(const Blend *blend, int source) {
    return (double)blend->parts[source] / (double)blend->period;
}

/* Goes to sample `index` >= 0: blend->had is then what each source has had before. */
void blend_seek(Blend *blend, int64_t index);

/* The source of sample `index`, and which of its samples it is. */
int blend_pick(Blend *blend, int64_t index, int64_t *out_sample);

#endif
