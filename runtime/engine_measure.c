/* Steps that are measured: what each rank's time goes into, and all ranks' on rank 0. */
#include "runtime/engine_internal.h"

#include "runtime/launch/control.h"

void engine_set_measuring(Engine *engine, bool on) {
    if (on && !engine->work) {
        engine->work = ARENA_ARRAY(engine->arena, WorkSums, engine->n_ranks);
    }
    engine->measures = on;
}

bool engine_measures_for_free(const Engine *engine) {
    return engine->backend->measures_for_free;
}

bool engine_gather_work(Engine *engine, const HostWork *host, RankWork *out, Diag *diag) {
    bool good = true;
    for (int r = 0; r < engine->n_ranks; r++) {
        if (!engine_is_local(&engine->ranks[r])) continue;
        RankWork own = engine->work ? work_sums_take(&engine->work[r]) : (RankWork){0};
        own.device = host->device;
        own.step_seconds = host->step_seconds;
        own.work_seconds[WORK_DATA] += host->data_seconds;
        if (engine->control) {
            good = control_gather(engine->control, &own, sizeof(own), sizeof(own), out, NULL);
        } else {
            out[r] = own;
        }
    }
    if (!good) engine_job_failed(engine, diag);
    return good;
}
