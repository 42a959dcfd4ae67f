/* Are two short pieces of LaTeX the same answer? By their spelling, as
 * tasks/hendrycks_math/utils.py of lm-evaluation-harness 0.4.13 has it (is_equiv, after Hendrycks
 * et al. 2021): without spaces, units, \left and \right, with \frac{1}{2} for \frac12, 1/2 and 0.5,
 * with \sqrt{3} for \sqrt3. What that does not understand must be equal as it stands.
 */
#ifndef FRONTEND_JUDGE_MATH_EQUAL_H
#define FRONTEND_JUDGE_MATH_EQUAL_H

#include "frontend/judge/answer_match.h"

bool math_is_equal(AnswerText a, AnswerText b);

#endif
