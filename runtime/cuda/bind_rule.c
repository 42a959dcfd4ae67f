/* Optimizers that are formulas: one generated kernel for each parameter. */
#include "runtime/bind_rule.h"
#include "runtime/cuda/bind.h"
#include "runtime/cuda/bind_rescale.h"
#include "runtime/cuda/codegen.h"

bool cuda_bind_rule(Binding *b) {
    Rule rule = rule_of_node(b->node);
    RuleCall call;
    bind_rule(b, &rule, &call);
    FusedSpec spec = {.expr = &rule.expr,
                      .n_dims = 1,
                      .dims = {type_elements(&b->in_local[0])},
                      .rule = &rule,
                      .factor = call.factor,
                      .rate = call.rate,
                      .updates = call.updates,
                      .rate_scale = call.rate_scale,
                      .decay = call.decay};
    for (int i = 0; i < rule.expr.n_inputs; i++) {
        spec.in[i] = b->in[i];
        spec.in_dtype[i] = b->in_local[i].dtype;
        spec.in_stride[i][0] = 1;
    }
    for (int o = 0; o < rule.expr.n_outputs; o++) {
        spec.out[o] = b->out[o];
        spec.out_dtype[o] = b->out_local[o].dtype;
        spec.out_above[o] = call.above[o];
    }
    FusedLaunch launch = codegen_fused(cuda_emitter(b)->generated, &spec);
    return cuda_push_generated(b, launch.kernel, launch.grid, launch.threads, &launch.args,
                               sizeof(launch.args)) &&
           cuda_push_rescale(b, call.copy_output, call.factor);
}
