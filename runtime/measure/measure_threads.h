/* Times of messages and collectives between ranks that are threads. Microseconds; -1: reported. */
#ifndef RUNTIME_MEASURE_MEASURE_THREADS_H
#define RUNTIME_MEASURE_MEASURE_THREADS_H

#include "runtime/measure/measure.h"

/* Sent until received. */
double measure_message_us(int64_t bytes, bool quick, Diag *diag);
/* Of `bytes` in all on each member. */
double measure_collective_us(ProfileCollectiveKind kind, int64_t members, int64_t bytes, bool quick,
                             Diag *diag);

#endif
