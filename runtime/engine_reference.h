/* Weights that the engine had at some step, beside those that train: what losses compare with where
 * that follows the training. They lie in each process' memory as its ranks have them; and where
 * checkpoints are to have them, whole and in f32 in the first process' (engine_set_beside).
 */
#ifndef RUNTIME_ENGINE_REFERENCE_H
#define RUNTIME_ENGINE_REFERENCE_H

#include "runtime/engine.h"

typedef struct EngineReference EngineReference;

/* saved: checkpoints have them; then there may be nothing else beside, and no snapshot yet. Nothing
 * is kept before engine_reference_renew or load. */
EngineReference *engine_reference_create(Engine *engine, bool saved);
/* Before the engine. NULL is fine. */
void engine_reference_destroy(EngineReference *reference);

/* They become the weights that train, as they are. All processes call it. False: reported. */
bool engine_reference_renew(EngineReference *reference, Diag *diag);
/* They become those that the checkpoint has. Likewise. */
bool engine_reference_load(EngineReference *reference, const char *path, Diag *diag);
/* They take the place of those that train, which they then are; once more, and all is as it was, to
 * the bit. Likewise. */
bool engine_reference_swap(EngineReference *reference, Diag *diag);

/* Of this process' memory, once they are kept; a swap takes as much as the weights once more. */
int64_t engine_reference_bytes(const EngineReference *reference);

#endif
