/* An engine as an island (runtime/islands/islands.h): its weights that train, whole and in the
 * order of their names, from and to whatever layout; all at once or by parts, while training waits
 * or behind it (outer_parts.h).
 *
 * All processes of the island call all of this; the first one alone has the arrays (f32: weights of
 * the last meeting, its own; on island 0 momentum, and those of each other island while they meet)
 * and talks to other islands. Checkpoints then have "outer_weights/NAME" and, of island 0,
 * "outer_momentum/NAME", and the place of the last meeting.
 *
 * Behind training, a part is sent after its step and merged exactly `overlap` steps later, for
 * which training waits where it must: without losses of islands no bit depends on how long anything
 * took. outer_weights of a part are those that come of its meeting from then on; until it is merged
 * nothing reads them. A checkpoint waits for what is on its way, so that it has the results of all
 * that was sent, and the steps at which they are to be merged.
 */
#ifndef RUNTIME_ENGINE_ISLANDS_H
#define RUNTIME_ENGINE_ISLANDS_H

#include "runtime/engine.h"
#include "runtime/islands/islands.h"

typedef struct EngineIslands EngineIslands;

/* `options`: all but what is the engine's: model, n_values, n_state, parts, streams; its texts stay
 * the caller's. Outlived by the engine. NULL: reported: not enough memory, more parts than there
 * are blocks. */
EngineIslands *engine_islands_create(Engine *engine, const IslandsOptions *options,
                                     const OuterTurns *turns, Diag *diag);
/* `why`: what the others are told, or NULL. NULL islands are fine. */
void engine_islands_destroy(EngineIslands *islands, const char *why);

/* Before the first step, with the weights that training begins from. from: the checkpoint that they
 * are of, NULL: none. *place, where training is, gets the last meeting, and after ISLANDS_TAKEN the
 * place of island 0. */
IslandsResult engine_islands_start(EngineIslands *islands, const char *from, TrainingPlace *place,
                                   Diag *diag);
/* What met, or was merged, after a step. */
typedef struct MeetingReport {
    IslandsReport all; /* fewest islands, any that was missing; norm of all parts, sums of the rest;
                        * waiting: for others to come, or for what was to be merged */
    int n_parts, part; /* how many, and the last of them */
    int64_t sent_step; /* of that: earlier than now if it was merged */
    double hidden_seconds; /* of meetings behind training, while it did not wait */
} MeetingReport;

/* Is there anything to be done for others after place->step? */
bool engine_islands_are_due(const EngineIslands *islands, const TrainingPlace *place);
/* Does it: merges what is due, then sends parts, or meets and waits. Likewise; *out, the same in
 * all processes, unless FAILED or STOPPED. */
IslandsResult engine_islands_meet(EngineIslands *islands, TrainingPlace *place, MeetingReport *out,
                                  Diag *diag);
/* Before a checkpoint: waits for what is on its way, or with gives_up, as a run is stopped, gives
 * it up: that part's change stays in the weights, and goes with its next meeting. MET, TAKEN, or
 * FAILED. */
IslandsResult engine_islands_settle(EngineIslands *islands, TrainingPlace *place, bool gives_up,
                                    Diag *diag);

/* Numbers that are exchanged, and those of the largest part. */
int64_t engine_islands_values(const EngineIslands *islands);
int64_t engine_islands_largest(const EngineIslands *islands);
/* Of memory that the first process has for this once all have met; while it sends, or takes,
 * weights and state outside of a meeting, once more as much as these are. */
int64_t engine_islands_bytes(const EngineIslands *islands);

#endif
