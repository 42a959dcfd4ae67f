/* Steps that are measured: what each rank's time goes into, and all ranks' on rank 0. */
#include "runtime/engine_internal.h"

#include "runtime/launch/control.h"

#include <string.h>

void engine_set_measuring(Engine *engine, bool on) {
    if (on && !engine->work) {
        engine->work = ARENA_ARRAY(engine->arena, RankWork, engine->n_ranks);
    }
    engine->measures = on;
}

bool engine_measures_for_free(const Engine *engine) {
    return engine->backend->measures_for_free;
}

/* What a step of it took, from sums over steps. */
static RankWork mean_of(const RankWork *sum, const HostWork *host) {
    const double share = sum->n_steps ? 1 / (double)sum->n_steps : 0;
    RankWork mean = {
        .n_steps = sum->n_steps, .device = host->device, .step_seconds = host->step_seconds};
    for (int i = 0; i < N_WORK_CLASSES; i++) mean.work_seconds[i] = share * sum->work_seconds[i];
    for (int i = 0; i < N_MESSAGE_CLASSES; i++) {
        mean.message_seconds[i] = share * sum->message_seconds[i];
        mean.waited_seconds[i] = share * sum->waited_seconds[i];
    }
    mean.work_seconds[WORK_DATA] += host->data_seconds;
    return mean;
}

bool engine_gather_work(Engine *engine, const HostWork *host, RankWork *out, Diag *diag) {
    bool good = true;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!engine_is_local(&engine->ranks[r])) continue;
        const RankWork own = engine->work ? mean_of(&engine->work[r], host) : (RankWork){0};
        if (engine->work) engine->work[r] = (RankWork){0};
        if (engine->control) {
            good = control_gather(engine->control, &own, sizeof(own), sizeof(own), out, NULL);
        } else {
            out[r] = own;
        }
    }
    if (!good) engine_job_failed(engine, diag);
    return good;
}
