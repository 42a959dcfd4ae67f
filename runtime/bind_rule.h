/* Binding of optimizers that are formulas (ir/rule.h), for every backend. */
#ifndef RUNTIME_BIND_RULE_H
#define RUNTIME_BIND_RULE_H

#include "ir/rule.h"
#include "runtime/binding.h"

typedef struct RuleCall {
    const float *factor, *rate, *updates;
    double rate_scale, decay;
    int copy_output; /* number of the result that would be the copy in 16 bits */
    bool has_copy;
    bool above[MAX_OUTPUTS]; /* results that are rounded as second moments are */
} RuleCall;

/* Adds to the rule's program what makes the copy, if the node has one. */
void bind_rule(const Binding *binding, Rule *rule, RuleCall *out);

#endif
