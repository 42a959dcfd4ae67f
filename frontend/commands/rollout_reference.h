/* What a rollout's answers are compared with: the weights that training began with, or those of
 * --reference-load, or with --renew-reference N those that training had when its last rollout began
 * that was N steps after the one before. */
#ifndef FRONTEND_COMMANDS_ROLLOUT_REFERENCE_H
#define FRONTEND_COMMANDS_ROLLOUT_REFERENCE_H

#include "frontend/commands/rollout_state.h"

/* What can be said of the options alone. False: reported. */
bool rollout_reference_check(const CliArgs *args, const Plan *plan, Diag *diag);

/* Sets rollout->reference where it is renewed. A run that goes on has its checkpoint's. False:
 * reported. Closed by rollout_reference_close, either way. */
bool rollout_reference_open(Rollout *rollout, const RolloutPlace *place, Diag *diag);
void rollout_reference_close(Rollout *rollout);

/* What weights say of all rows of the rollout: of each label, numbers [n_rows, seq], or of each
 * row's answer [n_rows]. By those that are there, or those of the reference, which take their place
 * for a while. All processes call it. False: reported. */
typedef enum ScoredBy { BY_TOKEN, BY_ROW } ScoredBy;
bool rollout_score(Rollout *rollout, ScoredBy by, float *out, Diag *diag);
bool rollout_score_reference(Rollout *rollout, ScoredBy by, float *out, Diag *diag);

/* The step whose weights it has; -1: it is not renewed. */
int64_t rollout_reference_step(const Rollout *rollout);
/* Of this process' memory, at most, where answers are compared with one; else 0. */
int64_t rollout_reference_bytes(const Rollout *rollout);

#endif
