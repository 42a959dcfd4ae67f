/* Who says what answers are worth, from the command line: --reward, --reward-command or
 * --reward-model with --reward-load; or which of two is the better, --prefer or --prefer-command.
 */
#ifndef FRONTEND_COMMANDS_JUDGE_ARGS_H
#define FRONTEND_COMMANDS_JUDGE_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/judge/judge.h"
#include "runtime/engine.h"

/* Is there one? Does it compare pairs (judge_pairs)? */
bool judge_is_given(const CliArgs *args);
bool judge_compares(const CliArgs *args);
/* Options that make no sense together are refused. False: reported. */
bool judge_check_args(const CliArgs *args, Diag *diag);

/* Who answers: a model of `vocab` tokens, of which `pad` fills up rows, run as `options` says; and
 * how many answers come at a time, an even number: models that learn rewards read pairs of rows. */
typedef struct JudgedModel {
    int64_t vocab;
    uint32_t pad;
    int n_at_once;
    const EngineOptions *options;
} JudgedModel;
/* *out_bytes: the memory of a model that judges; else 0. NULL: reported. */
Judge *judge_from_args(CliArgs *args, const JudgedModel *of, int64_t *out_bytes, Diag *diag);

#endif
