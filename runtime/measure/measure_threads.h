/* Times of messages and collectives between ranks that are threads, or processes. Microseconds; -1:
 * reported. */
#ifndef RUNTIME_MEASURE_MEASURE_THREADS_H
#define RUNTIME_MEASURE_MEASURE_THREADS_H

#include "runtime/measure/measure.h"

/* Processes that measure together, each a rank of as many. */
typedef struct MeasureTeam MeasureTeam;
/* All of one host, on the same cores; NULL: reported. Destroying NULL is fine. */
MeasureTeam *measure_team_create(const CommJob *job, Diag *diag);
void measure_team_destroy(MeasureTeam *team);

/* Of a team, all processes call with the same arguments; ranks but 0 get 0. `team` NULL: threads.
 */

/* Sent until received; of a team, between ranks 0 and 1. */
double measure_message_us(MeasureTeam *team, int64_t bytes, bool quick, Diag *diag);
/* Of `bytes` in all on each member; of a team, its first ranks. */
double measure_collective_us(MeasureTeam *team, ProfileCollectiveKind kind, int64_t members,
                             int64_t bytes, bool quick, Diag *diag);

#endif
