/* Answers that the weights which train write to prompts, as they are now: drawn from the model's
 * own probabilities, in the memory of a plan for decoding beside training's. Of several processes
 * each writes its share, or each group of --write-over of them, and all have all answers then.
 */
#ifndef FRONTEND_COMMANDS_ROLLOUT_WRITE_H
#define FRONTEND_COMMANDS_ROLLOUT_WRITE_H

#include "frontend/commands/generate_writer.h"
#include "frontend/commands/rollout_share.h"
#include "frontend/commands/train_prompts.h"

typedef struct RolloutWriter {
    const CliArgs *args;
    const Plan *plan; /* of training */
    const TrainPrompts *prompts;
    const EngineOptions *options;
    Engine *engine; /* which trains */
    RankCrew crew;
    GenerateWriter texts;
    bool has_weights; /* the writer has those that never change */
    double seconds;
    int64_t n_written, n_tokens; /* answers and their tokens, of this process' group */
} RolloutWriter;

/* The first fields are the caller's, and stay where they are. n_answers: how many are ever asked
 * for at once. False: reported. */
bool rollout_writer_open(RolloutWriter *writer, CliArgs *args, int64_t n_answers, Diag *diag);
void rollout_writer_close(RolloutWriter *writer);

/* The writer's weights become those that train. All processes call it. */
bool rollout_writer_renew(RolloutWriter *writer, Diag *diag);

typedef struct RolloutRequest {
    RolloutAnswer *answers; /* [count] */
    int64_t count;
    const int *prompts;     /* [count] */
    const uint64_t *states; /* [count]: of random numbers */
    bool greedy;            /* the likeliest, whatever the numbers */
    const char *doing;      /* of the progress line */
    /* What this process says of its own answers, before all have them; NULL: nothing. */
    bool (*judge)(void *user, const struct RolloutRequest *request, CrewShare own, Diag *diag);
    void *user;
} RolloutRequest;

/* By all processes together. False: reported. */
bool rollout_writer_write(RolloutWriter *writer, const RolloutRequest *request, Diag *diag);

#endif
