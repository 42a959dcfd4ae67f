/* Files of problems that are answered in writing -> what is asked, as texts, and the right answers.
 *
 * A file has rows of a published benchmark (benchmarks.h: gsm8k, math), or a line of it is
 * {"prompt": TEXT, "answer": TEXT or number}; with --chat "prompt" or "messages" may be a list of
 * messages whose last one is the user's. In place of "answer" there may be {"reward_model":
 * {"ground_truth": TEXT}}, as verl has it.
 */
#ifndef FRONTEND_COMMANDS_PROBLEM_FILE_H
#define FRONTEND_COMMANDS_PROBLEM_FILE_H

#include "frontend/commands/benchmark_shots.h"
#include "frontend/commands/evaluate_choices.h"
#include "frontend/commands/generate_prompts.h"

enum { PROBLEM_MOST_FILTERS = 4 };

typedef struct Problem {
    AnswerText right;
    int64_t most;                      /* tokens of an answer at most */
    int n_right[PROBLEM_MOST_FILTERS]; /* of its answers, by each filter */
} Problem;

typedef struct ProblemFile {
    const char *path;
    const char *task;
    const AnswerFilter *filters; /* [n_filters] */
    int n_filters;
    const char *const *stops; /* as benchmark_stops has them */
    GeneratePrompts prompts;  /* a line for each problem, whose object is what is asked */
    Problem *problems;        /* [prompts.n_lines] */
    /* What became of them. */
    int64_t n_cut;     /* prompts that have lost their beginning */
    int64_t n_unended; /* answers that did not end by themselves */
    int64_t n_tokens;  /* of all answers */
    double seconds;
    StrBuf predictions; /* a line of JSON for each answer, where they are asked for */
} ProblemFile;

/* way: task, shots, limit and predicts are used. In `arena`, but for the prompts and predictions,
 * which problem_file_release releases either way. False: reported. */
bool problem_file_read(ProblemFile *out, const char *path, const ChoicesWay *way, bool chat,
                       int n_samples, Arena *arena, Diag *diag);
void problem_file_release(ProblemFile *file);

#endif
