/* The loss, and so all gradients, are multiplied by a factor, so that small gradients are not lost
 * below what f16 can hold (Micikevicius et al. 2018, section 3.2); updates divide by it. The
 * defaults are those of PyTorch's GradScaler. */
#ifndef PLANNER_PLAN_LOSS_SCALING_H
#define PLANNER_PLAN_LOSS_SCALING_H

typedef struct LossScaling {
    double initial; /* 0: there is no factor */
    int interval;   /* steps of finite gradients after which it doubles; after one of others it is
                       halved. 0: it stays as it is */
} LossScaling;

/* The variables of a plan that scales the loss: the scale itself, steps of finite gradients since
 * it last changed, and updates so far. */
#define LOSS_SCALE_NAME   "loss_scale/scale"
#define FINITE_STEPS_NAME "loss_scale/finite_steps"
#define UPDATES_NAME      "loss_scale/updates"

enum { LOSS_SCALE_INTERVAL = 2000, LOSS_SCALE_MOST_INTERVAL = 1000000 };
#define LOSS_SCALE_INITIAL 65536.0
#define LOSS_SCALE_MOST    4294967296.0 /* doubling ends here, halving at 1 */

#endif
