/* A judge that is a model which has learned rewards (nn.reward, --set preference=reward), or a
 * number of each text (nn.classify of one number), read at an answer's last token, or an encoder's
 * first. Its tokens are those of the model that answers. Where a row is too short, the prompt loses
 * its beginning, and once one token is left of it the answer its end.
 */
#ifndef FRONTEND_JUDGE_JUDGE_MODEL_H
#define FRONTEND_JUDGE_JUDGE_MODEL_H

#include "frontend/judge/judge.h"

typedef struct ModelJudge ModelJudge;

/* As judge.h has them. */
ModelJudge *model_judge_open(const Plan *plan, Engine *engine, uint32_t pad, Diag *diag);
bool model_judge_answers(ModelJudge *judge, const JudgedAnswer *answers, int n, float *out_rewards,
                         Diag *diag);
void model_judge_close(ModelJudge *judge);

#endif
