#include "planner/plan/zero.h"

const char *zero_stage_text(int stage) {
    static const char *const TEXTS[N_ZERO_STAGES] = {
        "nothing",
        "optimizer state and update",
        "optimizer state, update and gradients",
        "optimizer state, update, gradients and weights",
    };
    return stage >= 0 && stage < N_ZERO_STAGES ? TEXTS[stage] : "?";
}

const char *zero_replicas_text(bool over_c, bool over_e) {
    if (over_e) return over_c ? ", c and e; of experts over d" : " and e; of experts over d";
    return over_c ? " and c" : "";
}
