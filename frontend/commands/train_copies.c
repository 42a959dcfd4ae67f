#include "frontend/commands/train_copies.h"

#include "ir/base/clock.h"

#include <inttypes.h>
#include <stdio.h>

TrainCopies train_copies_from_args(const CliArgs *args) {
    return (TrainCopies){.every = cli_int(args, OPT_CHECK_COPIES, 0)};
}

bool train_copies_check(TrainCopies *copies, Engine *engine, int64_t step, bool due, Diag *diag) {
    if (!copies->every || (!due && step % copies->every != 0)) return true;
    const double begun = clock_now();
    const bool alike = engine_check_copies(engine, step, diag);
    copies->seconds += clock_now() - begun;
    copies->n_checks++;
    return alike;
}

void train_copies_print(const TrainCopies *copies, const Plan *plan) {
    if (!copies->every) return;
    if (mesh_rank_count(&plan->mesh) == 1) {
        printf("copies  none to compare: there is one rank\n");
        return;
    }
    printf("copies  all alike, %" PRId64 " time%s; comparing took %.2f s\n", copies->n_checks,
           copies->n_checks == 1 ? "" : "s", copies->seconds);
}
