/* Measuring and tracing on CUDA, on a device that is not there: what is issued follows CUDA's rules
 * and gives a whole profile and a whole trace. The times are those of an emulation. */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#ifndef HAVE_CUDA
int main(void) {
    puts("skip measuring CUDA: built without CUDA's headers");
    return 0;
}
#else

#include "frontend/commands/train_trace.h"
#include "planner/cost/cost.h"
#include "runtime/cuda/devices.h"
#include "runtime/cuda/driver/device.h"
#include "runtime/measure/measure.h"
#include "tests/support/fake_cuda.h"

#include <jansson.h>

static const ModelSetting TINY[] = {
    {"layers", "2"}, {"model", "32"}, {"heads", "2"}, {"seq", "16"}, {"vocab", "61"}};
enum { N_TINY = sizeof(TINY) / sizeof(TINY[0]) };

static void check_defects(void) {
    CHECK(fake_cuda_n_defects() == 0, "%d defects, the first: %s", fake_cuda_n_defects(),
          fake_cuda_defect(0));
}

static void check_report_of_device(void) {
    static CudaReport report;
    check_begin("what is found of CUDA is told");
    bool usable = cuda_report(&report);
    CHECK(usable && report.built && !report.why[0], "not usable: %s", report.why);
    CHECK(report.n_devices >= 1 && report.devices[0].enough && report.devices[0].memory_bytes > 0,
          "%d devices", report.n_devices);
    CHECK(strncmp(report.devices[0].arch, "sm_", 3) == 0, "%s", report.devices[0].arch);
    check_defects();
}

/* Products, attention, copies, calls: of the sizes asked for, all of them measured. */
static void check_profile(void) {
    check_begin("a device is measured by CUDA's rules, and nothing is left behind");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile profile;
    MeasureOptions options = {.quick = true, .tiny = true};
    bool good = measure_cuda(&options, arena, &profile, diag);
    CHECK(good, "%s", diag_text(diag));
    check_defects();
    if (good) {
        StrBuf text = strbuf_create();
        int n_low = 0;
        device_profile_print(&text, &profile);
        CHECK(device_profile_parse(arena, "p", text.text, text.length, diag), "%s",
              diag_text(diag));
        for (int i = 0; i < profile.n_products; i++) n_low += profile.products[i].bf16;
        CHECK(profile.n_products == 6 && n_low == 3, "%d products, %d of bf16", profile.n_products,
              n_low);
        CHECK(profile.n_attention == 2, "%d rows of attention", profile.n_attention);
        CHECK(profile.n_memory == 2 && profile.n_calls == 1 && profile.calls[0].graph_us > 0,
              "memory or calls");
        Device device = device_of_profile(&profile, 8, arena);
        CHECK(profile.n_host == 1 && profile.host[0].us > 0 &&
                  device.host_bytes_per_second ==
                      (double)profile.host[0].bytes / profile.host[0].us * 1e6,
              "%d rows of the host's memory", profile.n_host);
        CHECK(device.product[1].count > 0 && device.attention_grad[1].count > 0, "no curves");
        strbuf_destroy(&text);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static bool start(Run *run, const Layout *layout) {
    return run_plan_for(run, "models/gpt.lua", TINY, N_TINY, layout, 4, false, true, DTYPE_BF16) &&
           run_start_on(run, &(EngineOptions){.device = DEVICE_CUDA, .virtual_ranks = true});
}

/* Within a stream one after the other, all after the beginning, of every rank. */
static void check_spans(const Plan *plan, const EngineSpan *spans, int count) {
    int n_ranks = mesh_rank_count(&plan->mesh), n_named = 0, n_seen = 0, last_rank = -1;
    for (int i = 0; i < count; i++) {
        const EngineSpan *span = &spans[i];
        CHECK(span->begin_us >= 0 && span->end_us >= span->begin_us, "%g to %g", span->begin_us,
              span->end_us);
        n_named += span->node != NULL;
        n_seen += span->rank != last_rank;
        CHECK(span->rank >= last_rank, "rank %d after %d", span->rank, last_rank);
        if (i && spans[i - 1].rank == span->rank) {
            CHECK(span->begin_us >= spans[i - 1].begin_us, "%g after %g", span->begin_us,
                  spans[i - 1].begin_us);
        }
        last_rank = span->rank;
    }
    CHECK(n_seen == n_ranks, "%d ranks of %d", n_seen, n_ranks);
    CHECK(n_named > count / 2, "%d of %d have a node", n_named, count);
}

/* A measured step has the losses of one that is not, and times of every rank. */
static void check_measured(const Layout *layout) {
    check_begin("a step is measured rank by rank, and is a step like any other");
    enum { MOST_RANKS = 8 };
    Run measured, plain;
    RankWork work[MOST_RANKS];
    const HostWork host = {.step_seconds = 1, .device = 3};
    bool ready = start(&measured, layout) && run_steps(&measured, 1, 1e-3);
    if (ready) engine_set_measuring(measured.engine, true);
    ready = ready && !engine_measures_for_free(measured.engine) &&
            run_steps_from(&measured, 1, 1, 1e-3);
    if (ready) engine_set_measuring(measured.engine, false);
    ready = ready && run_steps_from(&measured, 2, 1, 1e-3) &&
            engine_gather_work(measured.engine, &host, work, measured.diag);
    CHECK(ready, "%s", diag_text(measured.diag));
    for (int r = 0; ready && r < mesh_rank_count(&measured.plan->mesh); r++) {
        CHECK(work[r].n_steps == 1 && work[r].device == 3 && work[r].step_seconds == 1,
              "rank %d: %lld steps, device %lld", r, (long long)work[r].n_steps,
              (long long)work[r].device);
        for (int kind = 0; kind < WORK_DATA; kind++) {
            CHECK(work[r].work_seconds[kind] > 0, "rank %d: no time in %s", r,
                  work_class_name((WorkClass)kind));
        }
    }
    double losses[3];
    if (ready) memcpy(losses, measured.losses, sizeof(losses));
    run_close(&measured);
    const bool also = start(&plain, layout) && run_steps(&plain, 3, 1e-3);
    CHECK(also, "%s", diag_text(plain.diag));
    for (int s = 0; ready && also && s < 3; s++) {
        CHECK(losses[s] == plain.losses[s], "step %d: %.9g, plain %.9g", s, losses[s],
              plain.losses[s]);
    }
    run_close(&plain);
    check_defects();
}

/* The same bits after a traced step as after another step on the same batch. */
static void check_trace(const Layout *layout) {
    check_begin("a step is traced command by command, and is a step like any other");
    Run traced, plain;
    EngineSpan *spans = NULL;
    int count = 0;
    bool ready = start(&traced, layout) && run_steps(&traced, 2, 1e-3) &&
                 engine_trace_step(traced.engine, traced.arena, &spans, &count, traced.diag) &&
                 run_steps_from(&traced, 3, 1, 1e-3);
    CHECK(ready, "%s", diag_text(traced.diag));
    if (ready) {
        StrBuf text = strbuf_create();
        json_error_t error;
        CHECK(count >= engine_call_count(traced.engine), "%d calls", count);
        check_spans(traced.plan, spans, count);
        train_trace_print(&text, traced.plan, spans, count);
        json_t *root = json_loads(text.text, 0, &error);
        CHECK(root, "no JSON: %s", error.text);
        CHECK(strstr(text.text, "\"F0.0\"") && strstr(text.text, "\"matmul\""), "no names");
        json_decref(root);
        strbuf_destroy(&text);
    }
    double after_trace = ready ? traced.losses[3] : 0;
    run_close(&traced);
    bool also = start(&plain, layout) && run_steps(&plain, 2, 1e-3);
    CHECK(also, "%s", diag_text(plain.diag));
    if (ready && also) {
        size_t n = (size_t)(plain.plan->global_batch * plain.plan->seq);
        int32_t *tokens = ARENA_ARRAY(plain.arena, int32_t, n);
        int32_t *labels = ARENA_ARRAY(plain.arena, int32_t, n);
        StepResult result;
        fill_batch(plain.plan, 1, tokens, labels);
        CHECK(engine_step(plain.engine, 3, tokens, labels, 1e-3, &result, plain.diag) &&
                  run_steps_from(&plain, 3, 1, 1e-3),
              "%s", diag_text(plain.diag));
        CHECK(plain.losses[3] == after_trace, "%.9g, traced %.9g", plain.losses[3], after_trace);
    }
    run_close(&plain);
    check_defects();
}

int main(void) {
    static const Layout one = {1, 1, 1, 2, 1, "1f1b", false, NULL, 0};
    static const Layout four = {2, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    unsetenv("HOME"); /* no cache of compiled kernels */
    unsetenv("XDG_CACHE_HOME");
    const CuApi *api = fake_cuda_create(&(FakeOptions){.seed = 1, .cudnn_version = 91900});
    cuda_api_replace(api);
    check_report_of_device();
    check_profile();
    check_trace(&one);
    check_measured(&one);
#ifndef __SANITIZE_ADDRESS__ /* slow there, and another layout shows no other memory mistakes */
    check_trace(&four);
    check_measured(&four);
#else
    (void)four;
#endif
    check_begin("no handle and no memory is left");
    fake_cuda_check_leaks();
    check_defects();
    cuda_api_replace(NULL);
    fake_cuda_destroy();
    return check_report();
}
#endif
