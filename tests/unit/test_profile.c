/* Device profiles: what is written is read again, what is damaged is refused with the key's name,
 * and predictions follow the numbers in the file. */
#include "tests/unit/check.h"
#include "tests/unit/plain_device.h"
#include "tests/unit/train_fixture.h"

#include "ir/op.h"
#include "planner/cost/cost.h"
#include "planner/cost/measured_time.h"
#include "planner/simulate/simulate.h"
#include "runtime/cpu/cpu_report.h"
#include "runtime/measure/measure.h"

#include <stdlib.h>

/* A machine that never was: two cores, 100 GFLOP/s and 10 GB/s each, at every size. */
static const char GOOD[] =
    "{\"perilune_device_profile\": 2, \"device\": \"cpu\", \"name\": \"test \\\"one\\\"\",\n"
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
    " \"host\": [{\"bytes\":4000000, \"us\":1000}],\n"
    " \"kernels\": [{\"op\":\"add\", \"dtype\":\"f32\", \"threads\":1, \"elements\":1000,"
    " \"us\":3},\n"
    "  {\"op\":\"gelu\", \"dtype\":\"f32\", \"threads\":1, \"elements\":1000, \"us\":6},\n"
    "  {\"op\":\"gelu\", \"dtype\":\"f32\", \"threads\":1, \"elements\":8000, \"us\":36},\n"
    "  {\"op\":\"sumsq\", \"dtype\":\"f32\", \"threads\":1, \"elements\":1000, \"us\":900},\n"
    "  {\"op\":\"sumsq\", \"dtype\":\"f32\", \"threads\":1, \"elements\":4000, \"us\":40}],\n"
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

/* Files from before there were rows of the host's memory. */
static void check_older(void) {
    check_begin("an older file has no rows of the host's memory");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile *old =
        parse(arena, edit(arena, " \"host\": [{\"bytes\":4000000, \"us\":1000}],\n", ""), diag);
    CHECK(old && old->n_host == 0, "%s", diag_text(diag));
    if (old) {
        old->cuda = true;
        CHECK(near(device_of_profile(old, 1, arena).host_bytes_per_second, 20e9), "no assumption");
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void check_damaged(void) {
    static const struct {
        const char *from, *to, *says;
    } CASES[] = {
        {"{\"perilune", "[\"perilune", "JSON"},
        {"\"perilune_device_profile\": 2", "\"perilune_device_profile\": 1", "another version"},
        {"\"perilune_device_profile\": 2", "\"version\": 2", "is no device profile"},
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
        {"\"bytes\":4000000,", "\"bytes\":17000000000000,", "host[0].us: is too short"},
        {"\"op\":\"add\"", "\"op\":\"input\"", "kernels[0].op: is no op that has a kernel"},
        {"\"op\":\"add\"", "\"op\":\"ad\"", "kernels[0].op: is no op that has a kernel"},
        {"\"op\":\"add\"", "\"op\":1", "kernels[0].op: is no op that has a kernel"},
        {"\"elements\":1000", "\"elements\":0", "kernels[0].elements: 0 is not between"},
        {"\"elements\":8000", "\"elements\":8000000000000", "kernels[2].us: is too short"},
        {"\"kernels\": [", "\"kernels\": 3, \"more\": [", "more: is no key"},
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
        Device crowd = device_of_profile(profile, 4, arena); /* two take turns on a core */
        CHECK(near(one.flops_per_second, 200e9), "two cores: %g", one.flops_per_second);
        CHECK(near(half.flops_per_second, 100e9), "one core: %g", half.flops_per_second);
        CHECK(near(crowd.flops_per_second, 100e9) && near(crowd.ranks_per_core, 2) &&
                  half.ranks_per_core == 0,
              "half a core each: %g", crowd.ranks_per_core);
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
        CHECK(near(gpu.host_bytes_per_second, 4e9), "host %g", gpu.host_bytes_per_second);
        CHECK(near(gpu.flops_per_second, 100e9) && !gpu.send_blocks && near(gpu.call_us, 1.5),
              "GPU: %g, %g us", gpu.flops_per_second, gpu.call_us);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* One node of a graph in text, its operands whole on the rank. */
static double node_us(Arena *arena, const Device *device, const char *leaves, const char *node) {
    Diag *diag = diag_create();
    const char *text = arena_printf(
        arena, "graph \"g\" mesh(t=1, d=1, p=1) {\nforward:\n%s  %s\n}\n", leaves, node);
    int line = 1;
    Graph *graph = graph_parse(arena, "g.ir", &text, &line, diag);
    CHECK(graph, "%s", diag_text(diag));
    diag_destroy(diag);
    if (!graph) return -1;
    Node *last = graph->nodes[graph->n_nodes - 1];
    Type inputs[4];
    for (int i = 0; i < last->n_inputs; i++) inputs[i] = *value_type(last->inputs[i]);
    double flops = OPS[last->op].flops(last, inputs, last->types);
    return measured_node_us(device, last, inputs, last->types, flops);
}

static void check_kernels(void) {
    check_begin("ops take what was measured, and fused programs what their parts take");
    static const char X[] = "  %0 = input() {name=\"x\"} : f32[a=8, b=500]\n"
                            "  %1 = input() {name=\"y\"} : f32[a=8, b=500]\n";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile *profile = parse(arena, GOOD, diag);
    Device device = device_of_profile(profile, 2, arena);
    double add = node_us(arena, &device, X, "%2 = add(%0, %1) : f32[a=8, b=500]");
    double mul = node_us(arena, &device, X, "%2 = mul(%0, %1) : f32[a=8, b=500]");
    double gelu = node_us(arena, &device, X, "%2 = gelu(%0) : f32[a=8, b=500]");
    double sum = node_us(arena, &device, X, "%2 = sumsq(%0) : f32[]");
    double both = node_us(arena, &device, X,
                          "%2 = fused(%0, %1) {program=\"t0=add(i0,i1) t1=gelu(t0) -> t1\"} : "
                          "f32[a=8, b=500]");
    CHECK(near(add, 12) && near(mul, 12), "4000 at 3 us a thousand: %g, %g", add, mul);
    CHECK(gelu > 18 && gelu < 24, "between 4.5 and 6 us a thousand: %g", gelu);
    CHECK(near(sum, 40), "%g", sum);
    CHECK(near(both, 12 + gelu - 8),
          "moving three arrays, and what gelu takes above moving two: %g", both);
    sum = node_us(arena, &device, "  %0 = input() {name=\"x\"} : f32[a=1000]\n",
                  "%1 = sumsq(%0) : f32[]");
    CHECK(near(sum, 40), "no longer than of four times as much: %g", sum);
    double rotary = node_us(arena, &device, X,
                            "%2 = rotary(%0) {seq=a, head=b, base=10000, direction=1} : "
                            "f32[a=8, b=500]");
    CHECK(rotary < 0, "nothing is known of it: %g", rotary);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Rates 100 and 25 GFLOP/s: which counts is a matter of which shape is near. */
static void check_shapes(void) {
    check_begin("products take the rate of measured shapes like theirs");
    ShapeRate shapes[] = {
        {.log_side = {log(16), log(1024), log(64)}, .log_rate = log(25e9)},
        {.log_side = {log(1024), log(16), log(64)}, .log_rate = log(100e9)},
        {.log_side = {log(16), log(1024), log(64)}, .log_rate = log(50e9), .tb = true}};
    ShapeRates rates = {3, shapes};
    for (int i = 0; i < 3; i++) {
        double rate = shape_rates_at(&rates, &shapes[i]), is = exp(shapes[i].log_rate);
        CHECK(fabs(rate / is - 1) < 1e-2, "shape %d at %g, not %g", i, rate, is);
    }
    ShapeRate near_first = {.log_side = {log(20), log(900), log(80)}};
    double rate = shape_rates_at(&rates, &near_first);
    CHECK(rate > 24e9 && rate < 28e9, "%g", rate);
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
        for (int i = 0; i < profile->n_kernels; i++) profile->kernels[i].us *= 10;
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

#ifndef __SANITIZE_ADDRESS__ /* a minute there; test_cli_sanitized.sh measures, too */
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
    MeasureOptions options = {.quick = true, .tiny = true, .n_threads = 1};
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
        ready = run_steps(&run, 2, 1e-3);
        CHECK(ready, "%s", diag_text(run.diag));
        for (int i = 0; ready && i < 3; i++) { /* the fastest: others use the machine, too */
            StepResult result;
            int32_t *tokens = ARENA_ARRAY(run.arena, int32_t, 2 * 16 * run.plan->seq);
            int32_t *labels = tokens + 16 * run.plan->seq;
            fill_batch(run.plan, i, tokens, labels);
            ready = engine_step(run.engine, 3 + i, tokens, labels, 1e-3, &result, run.diag);
            if (ready && result.seconds < best) best = result.seconds;
        }
        double with = predicted_us(&run, &device) / 1e3;
        double without = predicted_us(&run, &PLAIN_DEVICE) / 1e3;
        printf("gpt tiny: %.2f ms a step at best; predicted %.2f with the profile made just now, "
               "%.2f without\n",
               1e3 * best, with, without);
        CHECK(with > 0 && isfinite(with), "predicted %g ms", with);
        /* Small ones, of which curves leave out what took longer than a larger one. */
        CHECK(device.product[0].count > 0 && device.memory.count > 0, "no points");
        CHECK(device.kernels[0][OP_ADAMW].count == 3 && device.kernels[1][OP_GELU].count == 3,
              "kernels");
    }
    strbuf_destroy(&text);
    run_close(&run);
}

/* Rows of one thread and of several, of few and small operands: with those of above each thread
 * waits for the others most of the time where other tests run, too. */
static void check_measured_threads(void) {
    check_begin("what is measured here of two threads has their rows");
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    DeviceProfile made;
    MeasureOptions options = {.quick = true, .tiny = true, .n_threads = 2};
    bool ready = measure_cpu(&options, arena, &made, diag);
    CHECK(ready, "%s", diag_text(diag));
    if (ready) {
        int n_products = 0, n_kernels = 0;
        for (int i = 0; i < made.n_products; i++) n_products += made.products[i].threads == 2;
        for (int i = 0; i < made.n_kernels; i++) n_kernels += made.kernels[i].threads == 2;
        CHECK(made.cores == 2 && made.n_calls == 2 && made.calls[1].threads == 2, "calls");
        CHECK(n_products > 0 && 2 * n_products == made.n_products, "%d of %d products", n_products,
              made.n_products);
        CHECK(n_kernels > 0 && 2 * n_kernels == made.n_kernels, "%d of %d kernels", n_kernels,
              made.n_kernels);
        CHECK(made.n_messages > 3 && made.n_collectives > 3, "links");
    }
    diag_destroy(diag);
    arena_destroy(arena);
}
#endif

/* /proc/cpuinfo of x86-64 has a name, that of aarch64 numbers. */
static void check_names(void) {
    static const struct {
        const char *cpuinfo, *name;
    } CASES[] = {
        {"processor\t: 0\nmodel name\t: AMD EPYC 9654\nflags\t\t: fpu\n", "AMD EPYC 9654"},
        {"processor\t: 0\nFeatures\t: fp asimd sve2 bf16\nCPU implementer\t: 0x41\n"
         "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n",
         "Arm Neoverse V2"},
        {"CPU implementer\t: 0x61\nCPU part\t: 0x022\n",
         "Arm processor, implementer 0x61, part 0x022"},
        {"model name : A\tB\x7f\n", "A?B?"},
        {"no colon\nmodel name", "unknown processor"},
        {"", "unknown processor"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char name[64];
        cpu_report_name(CASES[i].cpuinfo, name, sizeof(name));
        CHECK(strcmp(name, CASES[i].name) == 0, "'%s', not '%s'", name, CASES[i].name);
    }
}

int main(void) {
    check_names();
    check_round_trip();
    check_older();
    check_damaged();
    check_cut();
    check_device();
    check_kernels();
    check_shapes();
    check_prediction();
#ifndef __SANITIZE_ADDRESS__
    check_measured();
    check_measured_threads();
#endif
    return check_report();
}
