/* An engine as an island (runtime/islands/islands.h): its weights that train, whole and in the
 * order of their names, from and to whatever layout.
 *
 * All processes of the island call all of this; the first one alone has the arrays (f32: weights of
 * the last meeting, its own; on island 0 momentum, and those of each other island while they meet)
 * and talks to other islands. Checkpoints then have "outer_weights/NAME" and, of island 0,
 * "outer_momentum/NAME", and the place of the last meeting.
 */
#ifndef RUNTIME_ENGINE_ISLANDS_H
#define RUNTIME_ENGINE_ISLANDS_H

#include "runtime/engine.h"
#include "runtime/islands/islands.h"

typedef struct EngineIslands EngineIslands;

/* `options`: all but model, n_values and n_state, which are the engine's; its texts stay the
 * caller's. Outlived by the engine. NULL: reported, not enough memory. */
EngineIslands *engine_islands_create(Engine *engine, const IslandsOptions *options, Diag *diag);
/* `why`: what the others are told, or NULL. NULL islands are fine. */
void engine_islands_destroy(EngineIslands *islands, const char *why);

/* Before the first step, with the weights that training begins from. from: the checkpoint that they
 * are of, NULL: none. *place, where training is, gets the last meeting, and after ISLANDS_TAKEN the
 * place of island 0. */
IslandsResult engine_islands_start(EngineIslands *islands, const char *from, TrainingPlace *place,
                                   Diag *diag);
/* After a step: all meet. Likewise; *out, the same in all processes, unless FAILED or STOPPED. */
IslandsResult engine_islands_meet(EngineIslands *islands, TrainingPlace *place, IslandsReport *out,
                                  Diag *diag);

/* Numbers that are exchanged. */
int64_t engine_islands_values(const EngineIslands *islands);
/* Of memory that the first process has for this once all have met; while it sends, or takes,
 * weights and state outside of a meeting, once more as much as these are. */
int64_t engine_islands_bytes(const EngineIslands *islands);

#endif
