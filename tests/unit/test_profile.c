/* Device profiles: what is written is read again, what is damaged is refused with the key's name,
 * and predictions follow the numbers in the file. */
#include "tests/unit/check.h"
#include "tests/unit/train_fixture.h"

#include "planner/cost.h"
#include "planner/simulate.h"
#include "runtime/measure/measure.h"

#include <stdlib.h>

/* A machine that never was: two cores, 100 GFLOP/s and 10 GB/s each, at every size. */
static const char GOOD[] =
    "{\"perilune_device_profile\": 1, \"device\": \"cpu\", \"name\": \"test \\\"one\\\"\",\n"
    " \"cores\": 2, \"libraries\": [\"oneDNN 1.0\"],\n"
    " \"calls\": [{\"threads\":1, \"us\":2, \"graph_us\":0}],\n"
    " \"products\": [\n"
    "  {\"dtype\":\"f32\", \"threads\":1, \"ta\":false, \"tb\":true, \"m\":10, \"n\":10, \"k\":10,"
    " \"us\":0.02},\n"
    "  {\"dtype\":\"f32\", \"threads\":1, \"ta\":false, \"tb\":false, \"m\":1000, \"n\":1000,"
    " \"k\":1000, \"us\":20000},\n"
    "  {\"dtype\":\"f32\", \"threads\":2, \"ta\":true, \"tb\":false, \"m\":1000, \"n\":1000,"
    " \"k\":1000, \"us\":10000}],\n"
    " \"attention\": [{\"dtype\":\"f32\", \"threads\":1, \"batch\":1, \"heads\":2, \"seq\":100,"
    " \"head\":10, \"forward_us\":4, \"backward_us\":10}],\n"
    " \"memory\": [{\"threads\":1, \"bytes\":100000, \"copy_us\":10, \"triad_us\":10}],\n"
    " \"messages\": [{\"bytes\":100, \"us\":5}, {\"bytes\":1000100, \"us\":1005}],\n"
    " \"collectives\": [{\"kind\":\"all_reduce\", \"members\":2, \"bytes\":100, \"us\":8},\n"
    "  {\"kind\":\"all_reduce\", \"members\":2, \"bytes\":1000100, \"us\":2008}]}\n";

static DeviceProfile *parse(Arena *arena, const char *text, Diag *diag) {
    return device_profile_parse(arena, "p.json", text, strlen(text), diag);
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b);
}

static void check_round_trip(void) {
    check_begin("what is printed is read again, and prints the same");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile *first = parse(arena, GOOD, diag), *second = NULL;
    StrBuf a = strbuf_create(), b = strbuf_create();
    CHECK(first, "%s", diag_text(diag));
    if (first) {
        device_profile_print(&a, first);
        second = parse(arena, a.text, diag);
        CHECK(second, "%s", diag_text(diag));
    }
    if (second) {
        device_profile_print(&b, second);
        CHECK(strcmp(a.text, b.text) == 0, "it changed: %s", b.text);
        CHECK(strcmp(second->name, "test \"one\"") == 0, "name %s", second->name);
        CHECK(second->n_products == 3 && second->products[2].ta && second->products[0].tb &&
                  second->products[2].threads == 2 && second->products[1].us == 20000,
              "products");
        CHECK(second->n_collectives == 2 && second->collectives[1].bytes == 1000100, "collectives");
    }
    strbuf_destroy(&a);
    strbuf_destroy(&b);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* The text with its first `from` replaced. */
static char *edit(Arena *arena, const char *from, const char *to) {
    const char *at = strstr(GOOD, from);
    if (!at) return NULL;
    return arena_printf(arena, "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
}

static void check_damaged(void) {
    static const struct {
        const char *from, *to, *says;
    } CASES[] = {
        {"{\"perilune", "[\"perilune", "JSON"},
        {"\"perilune_device_profile\": 1", "\"perilune_device_profile\": 2", "another version"},
        {"\"perilune_device_profile\": 1", "\"version\": 1", "is no device profile"},
        {"\"cpu\"", "\"tpu\"", "device: is none of cpu, cuda"},
        {"\"cores\": 2", "\"cores\": 2.5", "cores: is not a whole number"},
        {"\"cores\": 2", "\"cores\": 0", "cores: 0 is not between"},
        {"\"cores\": 2", "\"core\": 2", "core: is no key"},
        {"\"cores\": 2, ", "", "cores: is missing"},
        {"\"cores\": 2, ", "\"cores\": 2, \"cores\": 2, ", "JSON"},
        {"test ", "te\\nst ", "name: has characters"},
        {"[\"oneDNN 1.0\"]", "\"oneDNN\"", "libraries: is not an array"},
        {"[\"oneDNN 1.0\"]", "[3]", "libraries: is not a text"},
        {"\"graph_us\":0", "\"graph_us\":-1", "calls[0].graph_us: -1 is not between"},
        {"\"us\":2,", "\"us\":\"2\",", "calls[0].us: is not a number"},
        {"\"us\":2,", "\"us\":1e300,", "calls[0].us: 1e+300 is not between"},
        {"\"us\":2,", "\"us\":0,", "calls[0].us: 0 is not between"},
        {"\"us\":2,", "\"us\":1e999,", "JSON"},
        {"\"us\":2,", "\"us\":2, \"x\\n\":1,", "calls[0].x?: is no key"},
        {"\"us\":2, ", "", "calls[0].us: is missing"},
        {"{\"threads\":1, \"us\":2, \"graph_us\":0}", "", "calls: has no rows"},
        {"{\"threads\":1, \"us\":2, \"graph_us\":0}", "7", "calls[0].: is not an object"},
        {"\"f32\"", "\"f16\"", "products[0].dtype: is none of f32, bf16"},
        {"\"ta\":false", "\"ta\":0", "products[0].ta: is not true or false"},
        {"\"m\":10,", "\"m\":-10,", "products[0].m: -10 is not between"},
        {"\"m\":10,", "\"m\":99999999999999999999,", "JSON"},
        {"\"us\":20000", "\"us\":0.001", "products[1].us: is too short"},
        {"\"seq\":100", "\"seq\":10000000", "attention[0].forward_us: is too short"},
        {"\"bytes\":100000,", "\"bytes\":1000000000000,", "memory[0].copy_us: is too short"},
        {"\"kind\":\"all_reduce\"", "\"kind\":\"broadcast\"", "collectives[0].kind: is none of"},
        {"\"messages\": [", "\"messages\": 3, \"more\": [", "more: is no key"},
    };
    check_begin("damaged profiles are refused with the key's name, in one line");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        char *text = edit(arena, CASES[i].from, CASES[i].to);
        CHECK(text, "case %zu edits nothing", i);
        DeviceProfile *profile = text ? parse(arena, text, diag) : NULL;
        const char *says = diag_text(diag), *newline = strchr(says, '\n');
        CHECK(!profile, "%s was taken", CASES[i].to);
        CHECK(strstr(says, CASES[i].says) && strstr(says, "p.json"), "%s: %s", CASES[i].to, says);
        CHECK(!newline || newline[1] == '\0', "more than a line: %s", says);
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static void check_cut(void) {
    check_begin("no prefix of a profile, and no changed byte, does harm");
    for (size_t length = 0; length < strlen(GOOD); length += 7) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        char *text = arena_strndup(arena, GOOD, length);
        CHECK(!parse(arena, text, diag), "%zu bytes were taken", length);
        char *changed = arena_strdup(arena, GOOD);
        changed[length] = (char)(changed[length] ^ 0x15);
        DeviceProfile *profile = parse(arena, changed, diag);
        if (profile) {
            Device device = device_of_profile(profile, 3, arena);
            CHECK(device.flops_per_second > 0 && isfinite(device.flops_per_second), "a bad rate");
        }
        diag_destroy(diag);
        arena_destroy(arena);
    }
}

static void check_device(void) {
    check_begin("rates, latencies and curves come out of the rows");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile *profile = parse(arena, GOOD, diag);
    CHECK(profile, "%s", diag_text(diag));
    if (profile) {
        Device one = device_of_profile(profile, 1, arena); /* both cores */
        Device half = device_of_profile(profile, 2, arena);
        Device crowd = device_of_profile(profile, 4, arena); /* half a core each */
        CHECK(near(one.flops_per_second, 200e9), "two cores: %g", one.flops_per_second);
        CHECK(near(half.flops_per_second, 100e9), "one core: %g", half.flops_per_second);
        CHECK(near(crowd.flops_per_second, 50e9), "half a core: %g", crowd.flops_per_second);
        CHECK(near(rate_curve_at(&half.product[0], 1), 100e9), "small products");
        CHECK(near(rate_curve_at(&half.product[0], 1e6), 100e9), "between");
        CHECK(near(rate_curve_at(&half.attention[0], 1e9), 100e9), "attention %g",
              rate_curve_at(&half.attention[0], 1e9));
        CHECK(near(half.link_latency_us, 5) && near(half.link_bytes_per_second, 1e9), "link %g %g",
              half.link_latency_us, half.link_bytes_per_second);
        CHECK(near(half.step_latency_us, 4) && near(half.step_bytes_per_second, 5e8),
              "collective %g %g", half.step_latency_us, half.step_bytes_per_second);
        CHECK(half.memory.count == 1 && near(half.memory.points[0].per_second, 5e9),
              "two ranks share a memory: %g", half.memory.points[0].per_second);
        CHECK(near(half.call_us, 2) && half.send_blocks, "calls");
        CHECK(strcmp(half.profile, "p.json") == 0, "%s", half.profile);
        profile->cuda = true;
        profile->calls[0].graph_us = 1.5;
        Device gpu = device_of_profile(profile, 64, arena); /* a GPU each */
        CHECK(near(gpu.flops_per_second, 100e9) && !gpu.send_blocks && near(gpu.call_us, 1.5),
              "GPU: %g, %g us", gpu.flops_per_second, gpu.call_us);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static double predicted_us(Run *run, const Device *device) {
    Simulation *sim = simulate_plan(run->arena, run->plan, device, run->diag);
    return sim ? sim->step_us : -1;
}

/* Every time ten times as long: the step too. Only products: between one and ten. */
static void check_prediction(void) {
    check_begin("predictions follow the profile");
    static const Layout layout = {2, 1, 2, 2, 1, "1f1b", false, NULL, 0};
    Run run;
    bool ready = run_plan(&run, "models/gpt.lua", NULL, 0, &layout, 8, false);
    CHECK(ready, "%s", diag_text(run.diag));
    DeviceProfile *profile = ready ? parse(run.arena, GOOD, run.diag) : NULL;
    if (profile) {
        Device device = device_of_profile(profile, 4, run.arena);
        double first = predicted_us(&run, &device);
        for (int i = 0; i < profile->n_products; i++) profile->products[i].us *= 10;
        device = device_of_profile(profile, 4, run.arena);
        double products = predicted_us(&run, &device);
        profile->calls[0].us *= 10;
        profile->attention[0].forward_us *= 10, profile->attention[0].backward_us *= 10;
        profile->memory[0].copy_us *= 10, profile->memory[0].triad_us *= 10;
        for (int i = 0; i < 2; i++) {
            profile->messages[i].us *= 10;
            profile->collectives[i].us *= 10;
        }
        device = device_of_profile(profile, 4, run.arena);
        double all = predicted_us(&run, &device);
        CHECK(first > 0 && products > 1.1 * first && products < 10 * first, "%g, then %g", first,
              products);
        CHECK(fabs(all / first - 10) < 1e-3, "all ten times as long: %g, then %g", first, all);
    }
    run_close(&run);
}

/* The CPU at hand, quickly: a whole profile that can be read again, and that says something about
 * training steps. Times depend on the machine and on what else it does: they are printed, and must
 * be possible. */
static void check_measured(void) {
    check_begin("what is measured here is a profile");
    static const Layout layout = {1, 1, 1, 4, 1, "1f1b", false, NULL, 0};
    Run run;
    bool ready = run_plan(&run, "models/gpt.lua", NULL, 0, &layout, 16, false) && run_start(&run);
    CHECK(ready, "%s", diag_text(run.diag));
    DeviceProfile made, *read = NULL;
    MeasureOptions options = {.quick = true};
    StrBuf text = strbuf_create();
    ready = ready && measure_cpu(&options, run.arena, &made, run.diag);
    CHECK(ready, "%s", diag_text(run.diag));
    if (ready) {
        device_profile_print(&text, &made);
        read = parse(run.arena, text.text, run.diag);
        CHECK(read, "%s", diag_text(run.diag));
    }
    if (read) {
        double best = 1e9;
        Device device = device_of_profile(read, 1, run.arena);
        ready = run_steps(&run, 8, 1e-3);
        CHECK(ready, "%s", diag_text(run.diag));
        for (int i = 0; ready && i < 5; i++) { /* the fastest: others use the machine, too */
            StepResult result;
            int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, 2 * 16 * run.plan->seq);
            int32_t *labels = tokens + 16 * run.plan->seq;
            fill_batch(run.plan, i, tokens, labels);
            ready = engine_step(run.engine, 9 + i, tokens, labels, 1e-3, &result, run.diag);
            if (ready && result.seconds < best) best = result.seconds;
        }
        double with = predicted_us(&run, &device) / 1e3;
        double without = predicted_us(&run, &DEVICE_CPU_CORE) / 1e3;
        printf("gpt tiny: %.2f ms a step at best; predicted %.2f with the profile made just now, "
               "%.2f without\n",
               1e3 * best, with, without);
        CHECK(with > 0 && isfinite(with), "predicted %g ms", with);
        CHECK(device.product[0].count > 3 && device.memory.count > 2, "too few points");
    }
    strbuf_destroy(&text);
    run_close(&run);
}

int main(void) {
    check_round_trip();
    check_damaged();
    check_cut();
    check_device();
    check_prediction();
    check_measured();
    return check_report();
}
