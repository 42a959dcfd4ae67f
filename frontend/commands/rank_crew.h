/* Processes that do the same with parts of a model, and groups of them that share what is to be
 * done: texts that are written, choices that are scored.
 */
#ifndef FRONTEND_COMMANDS_RANK_CREW_H
#define FRONTEND_COMMANDS_RANK_CREW_H

#include "runtime/launch/control.h"

/* The processes, of which `together` in a row have a part of the weights each. */
typedef struct RankCrew {
    Control *control; /* NULL: there is one process */
    int rank, together;
} RankCrew;

/* Some of `count` answers: every step-th from the first on. */
typedef struct CrewShare {
    int64_t count, first, step;
} CrewShare;

/* Those that a process writes, with others or alone; and of these the ones that it judges, and that
 * the others have from it. */
CrewShare rank_crew_written(const RankCrew *crew, int64_t count);
CrewShare rank_crew_own(const RankCrew *crew, int64_t count);
/* And which another process has. */
CrewShare rank_crew_own_of(const RankCrew *crew, int rank, int64_t count);
static inline int64_t rank_crew_at(CrewShare own, int64_t i) {
    return own.first + i * own.step;
}

/* Bytes of each process, `most` of all together, one after the other in the order of ranks, on all;
 * *out is the caller's to free; lengths[world] may be NULL. However long others take to come here.
 * False: the job has failed, or they are more. */
bool rank_crew_gather(Control *control, const void *bytes, size_t n_bytes, size_t most,
                      uint64_t *out_lengths, unsigned char **out, size_t *out_n);

#endif
