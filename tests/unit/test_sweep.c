/* What --vary's texts mean, drawing, the rungs of successive halving, and scripts of --trials.
 *
 * Catches: ranges that miss their end or round on the way, values outside of what is drawn from,
 * other runs from the same seed, a halving that keeps too many, none, or a run without a loss. */
#include "frontend/sweep/halving.h"
#include "frontend/sweep/sweep_script.h"
#include "frontend/sweep/vary.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static Arena *arena;

/* Values with spaces between them; of a mistake its text. */
static const char *parse(const char *text, bool draws, Vary *out) {
    Diag *diag = diag_create();
    const char *said = "";
    if (!vary_parse(arena, text, draws, out, diag)) {
        said = arena_strdup(arena, diag_text(diag));
    }
    for (int i = 0; !*said && i < out->n_values; i++) {
        said = arena_printf(arena, "%s", out->values[0]);
        for (int k = 1; k < out->n_values; k++) {
            said = arena_printf(arena, "%s %s", said, out->values[k]);
        }
    }
    diag_destroy(diag);
    return said;
}

static void test_texts(void) {
    static const char *const CASES[][2] = {
        {"lr=1e-4,3e-4,1e-3", "1e-4 3e-4 1e-3"},
        {"seed=1..4", "1 2 3 4"},
        {"seed=1..8+3", "1 4 7"},
        {"lr=1e-4..1e-1*10", "0.0001 0.001 0.01 0.1"},
        {"lr=log:1e-3..4e-3*2", "0.001 0.002 0.004"},
        {"x=0.1..0.5+0.1", "0.1 0.2 0.3 0.4 0.5"},
        {"steps=100..1600*2", "100 200 400 800 1600"},
        {"x=-2..0", "-2 -1 0"},
        {"mesh=t=2,p=2;d=4", "t=2,p=2 d=4"},
        {"data=../a..b", "../a..b"},
        {"x=1e+3..3e+3+1e+3", "1000 2000 3000"},
        {"x=1e-12..1e-10*10", "1e-12 1e-11 1e-10"},
        {"x=-0.3..0.1+0.1", "-0.3 -0.2 -0.1 0 0.1"},
        {"seed=2000000000..2000000002", "2000000000 2000000001 2000000002"},
        {"x=1..1162261466*3486784401", "1"},
    };
    static const char *const WRONG[][2] = {
        {"lr", "is not KEY=VALUES"},      {"=1", "is not KEY=VALUES"},
        {"lr=", "empty value"},           {"lr=1,,2", "empty value"},
        {"lr=1,2,", "empty value"},       {"lr=1,2,1", "has 1 twice"},
        {"lr=2..1", "ends below"},        {"lr=0..1*2", "must begin above 0"},
        {"lr=1..2*1", "multiplied by 1"}, {"lr=1..2+0", "a step of 0"},
        {"lr=0.1..1", "needs a step"},    {"lr=log:1..10", "needs a step"},
        {"lr=1,2..3", "stands alone"},    {"x=1..1e9", "needs a step"},
        {"x=1..99999", "more than 1024"}, {"lr=log:1..2+1", "its step multiplies"},
    };
    Vary vary;
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const char *said = parse(CASES[i][0], false, &vary);
        CHECK(strcmp(said, CASES[i][1]) == 0, "%s is '%s', not '%s'", CASES[i][0], said,
              CASES[i][1]);
    }
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        const char *said = parse(WRONG[i][0], false, &vary);
        CHECK(strstr(said, WRONG[i][1]), "%s: '%s', not '%s'", WRONG[i][0], said, WRONG[i][1]);
    }
}

static void test_combinations(void) {
    Vary varies[3];
    const char *out[3];
    parse("a=1,2", false, &varies[0]);
    parse("b=x,y,z", false, &varies[1]);
    CHECK(vary_count(varies, 2) == 6, "%lld combinations", (long long)vary_count(varies, 2));
    vary_combine(varies, 2, 4, out);
    CHECK(strcmp(out[0], "2") == 0 && strcmp(out[1], "y") == 0, "the fifth is %s %s", out[0],
          out[1]);
    parse("c=1..1000", false, &varies[2]);
    CHECK(vary_count(varies, 3) > SWEEP_MOST_RUNS, "too many are not");
}

/* Uniform in the logarithm: the mean of it is in the middle, and each whole number comes up. */
static void test_drawing(void) {
    enum { N = 4000 };
    Vary varies[3];
    const char *out[3], *again[3];
    uint64_t state = 3, other = 3;
    double sum = 0;
    int counts[4] = {0};
    parse("lr=log:1e-4..1e-2", true, &varies[0]);
    parse("layers=1..3", true, &varies[1]);
    parse("kind=a,b", true, &varies[2]);
    for (int i = 0; i < N; i++) {
        vary_draw(arena, varies, 3, &state, out);
        vary_draw(arena, varies, 3, &other, again);
        const double lr = strtod(out[0], NULL);
        const int layers = atoi(out[1]);
        for (int k = 0; k < 3; k++) CHECK(strcmp(out[k], again[k]) == 0, "drawn anew: %s", out[k]);
        CHECK(lr >= 1e-4 && lr <= 1e-2 && layers >= 1 && layers <= 3, "%s %s", out[0], out[1]);
        sum += log10(lr) / N;
        counts[layers >= 1 && layers <= 3 ? layers : 0]++;
    }
    /* a uniform over 2 decades has deviation 0.58: 6 of its errors */
    CHECK(fabs(sum + 3) < 6 * 0.58 / sqrt(N), "the mean logarithm is %g", sum);
    for (int i = 1; i <= 3; i++) CHECK(abs(counts[i] - N / 3) < 200, "%d of %d", counts[i], i);
}

static void test_halving(void) {
    const double losses[] = {3, NAN, 1, 2, 1, 5, INFINITY, 4, 0.5};
    const double none[] = {NAN, NAN, NAN};
    bool kept[9];
    CHECK(halving_rungs(27, 3) == 3 && halving_rungs(26, 3) == 2 && halving_rungs(2, 3) == 0,
          "rungs");
    CHECK(halving_step(900, 3, 2, 0, 0) == 100 && halving_step(900, 3, 2, 1, 0) == 300 &&
              halving_step(900, 3, 2, 2, 0) == 900,
          "steps of rungs");
    CHECK(halving_step(900, 3, 2, 0, 75) == 150, "a rung validates");
    CHECK(halving_step(900, 3, 2, 1, 1000) == 900 && halving_step(1, 3, 2, 0, 0) == 1,
          "a rung is within the run");
    halving_choose(losses, 9, 3, kept); /* 2 of 7: 0.5, and the first 1 */
    for (int i = 0; i < 9; i++) CHECK(kept[i] == (i == 2 || i == 8), "run %d", i);
    halving_choose(losses, 3, 4, kept);
    CHECK(!kept[0] && !kept[1] && kept[2], "one is kept at least");
    halving_choose(none, 3, 2, kept);
    CHECK(!kept[0] && !kept[1] && !kept[2], "none has a loss");
}

/* --- scripts --- */

static SweepScript *open_text(const char *text, Diag *diag) {
    char path[] = "/tmp/perilune-sweep-XXXXXX";
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "no file %s", path);
    if (fd >= 0) close(fd);
    SweepScript *script = sweep_script_open(arena, arena_strdup(arena, path), diag);
    unlink(path);
    return script;
}

static const char *show(const SweepOptions *options) {
    const char *text = "";
    for (int i = 0; i < options->count; i++) {
        text =
            arena_printf(arena, "%s%s=%s ", text, options->items[i].key, options->items[i].value);
    }
    return text;
}

static void test_scripts(void) {
    static const char *const WRONG[][2] = {
        {"return 3", "must end in"},
        {"return {}", "has no runs"},
        {"return {1}", "is a number, not a table"},
        {"return {{lr = print}}", "'lr' is function"},
        {"return {{lr = 0 / 0}}", "no finite number"},
        {"return {{1}}", "no name of an option"},
        {"return {{lr = {a = 1}}}", "'lr' is table"},
        {"return {{set = {a = {b = 1}}}}", "'set.a' is table"},
        {"local t = {} for i = 1, 1025 do t[i] = {} end return t", "at most 1024"},
        {"local t = {} for i = 1, 101 do t['a' .. i] = i end return {t}", "more than 100"},
    };
    Diag *diag = diag_create();
    int n = 0;
    SweepScript *script =
        open_text("return {{lr = 1e-3, steps = 5, set = {b = true, a = 'x'}}, {}}", diag);
    const SweepOptions *runs = script ? sweep_script_runs(script, &n) : NULL;
    CHECK(n == 2 && strcmp(show(&runs[0]), "lr=0.001 set.a=x set.b=true steps=5 ") == 0, "%s: %s",
          n ? show(&runs[0]) : "no run", diag_text(diag));
    sweep_script_close(script);

    script = open_text("return function(run) if run.a == 'no' or not run.a then return end\n"
                       "return {steps = 2 * run['set.layers']} end",
                       diag);
    CHECK(script && sweep_script_is_function(script), "%s", diag_text(diag));
    SweepOption varied[] = {{"set.layers", "3"}, {"a", "yes"}};
    SweepOptions options = {varied, 2, 2}, said = {0};
    bool left_out = true;
    bool good = script && sweep_script_call(script, &options, &said, &left_out);
    CHECK(good && !left_out && strcmp(show(&said), "steps=6 ") == 0, "%s", show(&said));
    varied[1].value = "no";
    CHECK(script && sweep_script_call(script, &options, &said, &left_out) && left_out,
          "is not left out");
    varied[1].value = "false"; /* which Lua has to take for false */
    CHECK(script && sweep_script_call(script, &options, &said, &left_out) && left_out,
          "false is true");
    varied[0].value = "many"; /* times 2: an error of Lua's */
    varied[1].value = "yes";
    CHECK(script && !sweep_script_call(script, &options, &said, &left_out) &&
              strstr(diag_text(diag), ":2:"),
          "%s", diag_text(diag));
    sweep_script_close(script);
    diag_destroy(diag);
    for (size_t i = 0; i < sizeof(WRONG) / sizeof(WRONG[0]); i++) {
        Diag *why = diag_create();
        script = open_text(WRONG[i][0], why);
        CHECK(!script && strstr(diag_text(why), WRONG[i][1]), "%s: '%s'", WRONG[i][0],
              diag_text(why));
        sweep_script_close(script);
        diag_destroy(why);
    }
}

int main(void) {
    static const struct {
        const char *name;
        void (*test)(void);
    } TESTS[] = {{"texts of --vary", test_texts},
                 {"combinations", test_combinations},
                 {"drawing", test_drawing},
                 {"halving", test_halving},
                 {"scripts", test_scripts}};
    arena = arena_create();
    for (size_t i = 0; i < sizeof(TESTS) / sizeof(TESTS[0]); i++) {
        check_begin(TESTS[i].name);
        TESTS[i].test();
    }
    arena_destroy(arena);
    return check_report();
}
