/* Scaling laws: the closed form of the optimum against trying every split, published optima, worth
 * of repeated tokens, fits of made-up runs whose law is known and of noisy ones whose best fit
 * SciPy has found, runs that determine nothing, files of laws. Catches: exponents swapped,
 * optimizers that stop early (Besiroglu et al. 2024 on Hoffmann et al. 2022), a fit that one bad
 * run pulls away. */
#include "planner/scaling/fit_law.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const LawTerms TRUTH = {1.7, 300, 0.33, 900, 0.36};
/* Of --runs below, by SciPy 1's BFGS and Nelder-Mead from 162 starts on the same sum. */
static const LawTerms SCIPY = {1.6898479, 265.89844, 0.32203241, 932.79943, 0.36276924};

static double relative(double a, double b) {
    return fabs(a / b - 1);
}

static void check_optimum(void) {
    check_begin("the closed form of the optimum is the best of all splits");
    for (int l = 0; law_shipped(l); l++) {
        const LawTerms *law = &law_shipped(l)->terms;
        for (double flops = 1e18; flops < 1e27; flops *= 31) {
            LawOptimum at = law_optimum(law, flops);
            double best = INFINITY, best_n = 0;
            for (double n = at.parameters / 20; n < at.parameters * 20; n *= 1.002) {
                double loss = law_loss(law, n, flops / 6 / n);
                if (loss < best) best = loss, best_n = n;
            }
            CHECK(relative(6 * at.parameters * at.tokens, flops) < 1e-9, "%g FLOPs",
                  6 * at.parameters * at.tokens);
            CHECK(at.loss <= best && best - at.loss < 1e-6, "%.9g, not %.9g", at.loss, best);
            CHECK(relative(at.parameters, best_n) < 0.02, "%g, not %g", at.parameters, best_n);
        }
    }
    /* Besiroglu et al. 2024: a = beta / (alpha + beta) = 0.5126, and about 20 tokens a parameter at
     * Chinchilla's 5.76e23 FLOPs; Hoffmann et al.'s own fit says many more. */
    const LawTerms *refit = &law_find("besiroglu-2024")->terms;
    LawOptimum a = law_optimum(refit, 5.76e23), b = law_optimum(refit, 5.76e24);
    double power = log10(b.parameters / a.parameters), ratio = a.tokens / a.parameters;
    check_begin("the default law splits FLOPs as its paper says");
    CHECK(fabs(power - 0.5126) < 1e-4, "N grows as C^%.5f", power);
    CHECK(ratio > 15 && ratio < 25, "%.1f tokens a parameter", ratio);
}

static void check_tokens(void) {
    check_begin("tokens for a loss reach it, or there are none");
    for (double n = 1e7; n < 1e12; n *= 9) {
        for (double loss = 1.8; loss < 4; loss += 0.13) {
            double tokens = law_tokens_for(&TRUTH, loss, n);
            bool can = loss > TRUTH.e + TRUTH.a / pow(n, TRUTH.alpha);
            CHECK(can == isfinite(tokens), "%g for %g parameters: %g", loss, n, tokens);
            if (can) CHECK(fabs(law_loss(&TRUTH, n, tokens) - loss) < 1e-9, "%g", tokens);
        }
    }
    check_begin("repeated tokens are worth what the paper says");
    CHECK(law_unique_worth(5e9, 0) == 5e9 && law_unique_worth(5e9, 6e9) == 5e9, "unique ones");
    /* Muennighoff et al. 2023: four passes are nearly worth new data, and none of them is worth
     * more than U (1 + R*) in all. */
    double four = law_unique_worth(4e9, 1e9), much = law_unique_worth(1e12, 1e9);
    CHECK(four > 3.7e9 && four < 4e9, "four passes: %g", four);
    CHECK(relative(much, 16.387756e9) < 1e-6, "a thousand: %g", much);
    double at = 1e9, sum = 1e9; /* by integration: the r-th pass is worth exp(-r / R*) of a first */
    for (double r = 0.0005; r < 29; r += 0.001) sum += 1e9 * 0.001 * exp(-r / 15.387756);
    CHECK(relative(law_unique_worth(30 * at, at), sum) < 1e-5, "%g, not %g",
          law_unique_worth(30 * at, at), sum);
    CHECK(relative(law_tokens_worth(law_unique_worth(7.5e9, 1e9), 1e9), 7.5e9) < 1e-9, "inverse");
    CHECK(isinf(law_tokens_worth(17e9, 1e9)), "more than repetition brings");
}

static uint64_t state = 7;
static double random_unit(void) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return (double)(state >> 11) / 9007199254740992.0;
}
/* The sum of twelve: nearly normal, of variance 1. */
static double random_normal(void) {
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += random_unit();
    return sum;
}

/* 6 sizes x 5 token counts each, losses of TRUTH times exp(noise x normal). */
enum { N_RUNS = 30 };
static void make_runs(FitRun *runs, double noise) {
    state = 7;
    for (int i = 0; i < N_RUNS; i++) {
        double n = 2e7 * pow(2.3, i / 5), d = n * pow(3, i % 5);
        double loss = law_loss(&TRUTH, n, d) * exp(noise * random_normal());
        runs[i] = (FitRun){"made", n, d, loss};
    }
}

static double furthest(const LawTerms *a, const LawTerms *b) {
    double most = fmax(relative(a->e, b->e), relative(a->a, b->a));
    most = fmax(most, fmax(relative(a->alpha, b->alpha), relative(a->b, b->b)));
    return fmax(most, relative(a->beta, b->beta));
}

static void check_fits(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    FitRun runs[N_RUNS];
    check_begin("a fit finds the law that the runs were made by");
    make_runs(runs, 0);
    LawFit *fit = fit_law(arena, runs, N_RUNS, diag);
    CHECK(fit, "%s", diag_text(diag));
    if (fit) {
        char text[LAW_TEXT];
        CHECK(furthest(&fit->law.terms, &TRUTH) < 1e-4, "%s", law_text(&fit->law.terms, text));
        CHECK(fit->worst_residual < 1e-7, "%g", fit->worst_residual);
        CHECK(fit->held_out == N_RUNS - 1, "%d", fit->held_out);
        CHECK(relative(fit->held_out_loss, runs[N_RUNS - 1].loss) < 1e-6, "held out");
    }
    check_begin("one run that went wrong does not move it");
    runs[12].loss *= 1.3;
    fit = fit_law(arena, runs, N_RUNS, diag);
    CHECK(fit && furthest(&fit->law.terms, &TRUTH) < 0.05, "%g", furthest(&fit->law.terms, &TRUTH));
    CHECK(fit && relative(fit->residuals[12] + 1, 1 / 1.3) < 1e-3, "its residual");

    check_begin("a fit of noisy runs is as good as SciPy's, and its interval has the truth");
    make_runs(runs, 0.005);
    fit = fit_law(arena, runs, N_RUNS, diag);
    CHECK(fit, "%s", diag_text(diag));
    if (fit) {
        char text[LAW_TEXT];
        double alpha[FIT_DRAWS];
        CHECK(furthest(&fit->law.terms, &SCIPY) < 1e-5, "%s", law_text(&fit->law.terms, text));
        CHECK(fit->law.n_draws > FIT_DRAWS / 2, "%d draws", fit->law.n_draws);
        for (int i = 0; i < fit->law.n_draws; i++) alpha[i] = fit->law.draws[i].alpha;
        Interval of = interval_of(alpha, fit->law.n_draws);
        CHECK(of.low < TRUTH.alpha && TRUTH.alpha < of.high, "alpha %g to %g", of.low, of.high);
        CHECK(of.high - of.low < 0.2, "alpha %g to %g", of.low, of.high);
    }
    check_begin("the same runs give the same law");
    LawFit *again = fit_law(arena, runs, N_RUNS, diag);
    CHECK(fit && again && memcmp(&fit->law.terms, &again->law.terms, sizeof(LawTerms)) == 0, "no");
    diag_destroy(diag);
    arena_destroy(arena);
}

static void refuses(const char *name, const FitRun *runs, int n, const char *text) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(name);
    CHECK(!fit_law(arena, runs, n, diag), "a law was found");
    CHECK(strcmp(diag_text(diag), text) == 0, "said '%s'", diag_text(diag));
    diag_destroy(diag);
    arena_destroy(arena);
}

static void check_refusals(void) {
    FitRun runs[N_RUNS], some[N_RUNS];
    make_runs(runs, 0);
    refuses("five runs are too few", runs, 5,
            "5 runs: a law has five numbers: it takes 6 runs at least\n");
    refuses("two sizes are too few", runs, 10,
            "10 runs: they have fewer than 3 different numbers of parameters\n");
    for (int i = 0; i < N_RUNS; i++) some[i] = (FitRun){"", runs[i].parameters, 1e9, runs[i].loss};
    refuses("one number of tokens is too few", some, N_RUNS,
            "30 runs: they have fewer than 3 different numbers of tokens\n");
    for (int i = 0; i < N_RUNS; i++) some[i].tokens = 20 * some[i].parameters;
    refuses("one number of tokens a parameter is too few", some, N_RUNS,
            "30 runs: the same goes for tokens and parameters in all of them, so that what either "
            "brings cannot be told: train some sizes on fewer or more tokens\n");
    for (int i = 0; i < N_RUNS; i++) {
        some[i] = runs[i];
        some[i].loss = 2 + TRUTH.b / pow(runs[i].tokens, TRUTH.beta);
    }
    refuses("losses that parameters do nothing for", some, N_RUNS,
            "30 runs: no law of this form fits, as their losses do not fall with parameters; are "
            "they finished runs of one kind, on one kind of data?\n");
}

static const char *said_of(const char *path, const char *text) {
    static char said[400];
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    FILE *file = fopen(path, "w");
    if (file) fputs(text, file), fclose(file);
    bool good = law_read(arena, path, diag);
    snprintf(said, sizeof(said), "%s", good ? "good" : diag_text(diag) + strlen(path));
    diag_destroy(diag);
    arena_destroy(arena);
    return said;
}

static void check_files(void) {
    static const char *const BAD[][2] = {
        {"[]", ": is no scaling law: perilune fit -o writes one, with E, A, alpha, B, beta\n"},
        {"{\"alpha\": 1}", ": the law's format must be 1\n"},
        {"{\"alpha\": 1, \"format\": 1}", ": the law's name must be one line of 1 to 300 bytes\n"},
        {"{\"format\": 1, \"name\": \"a\", \"source\": \"b\", \"E\": -1, \"alpha\": 1}",
         ": the law's E must be a number from 0 to 1e30\n"},
        {"{\"format\": 1, \"name\": \"a\", \"source\": \"b\", \"E\": 1, \"A\": 0, \"alpha\": 1}",
         ": the law's A must be a number above 0 and up to 1e30\n"},
        {"{\"format\": 1, \"name\": \"a\", \"source\": \"b\", \"E\": 1, \"A\": 1, \"alpha\": 0}",
         ": the law's alpha must be a number from 0.001 to 10\n"},
        {"{\"format\": 1, \"name\": \"a\", \"source\": \"b\", \"E\": 1, \"A\": 1, \"alpha\": 1, "
         "\"B\": 1, \"beta\": 1, \"draws\": [[1, 2]]}",
         ": the law's draws[0] must be five numbers: E, A, alpha, B, beta\n"},
        {"{\"format\": 1, \"name\": \"a\", \"source\": \"b\", \"E\": 1, \"A\": 1, \"alpha\": 1, "
         "\"B\": 1, \"beta\": 1, \"runs\": {\"count\": 3, \"parameters\": [2, 1]}}",
         ": the law's runs.parameters must be two numbers, the least and the most: [70e6, 16e9]\n"},
    };
    char path[64];
    snprintf(path, sizeof(path), "/tmp/test_scaling_law.%d.json", (int)getpid());
    check_begin("damaged files of laws are refused, each with what is wrong");
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        CHECK(strcmp(said_of(path, BAD[i][0]), BAD[i][1]) == 0, "%s: %s", BAD[i][0],
              said_of(path, BAD[i][0]));
    }
    check_begin("a law that was written reads back the same");
    LawTerms draws[2] = {{1, 2, 0.25, 4, 0.5}, {1.5, 3, 0.5, 8, 0.75}};
    ScalingLaw law = {.name = "my \"runs\"",
                      .source = "here",
                      .terms = TRUTH,
                      .n_runs = 9,
                      .parameters = {1e6, 1e9},
                      .tokens = {1e7, 1e10},
                      .n_draws = 2,
                      .draws = draws};
    StrBuf text = strbuf_create();
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    law_print(&text, &law);
    said_of(path, text.text);
    const ScalingLaw *read = law_read(arena, path, diag);
    CHECK(read, "%s", diag_text(diag));
    if (read) {
        CHECK(memcmp(&read->terms, &law.terms, sizeof(LawTerms)) == 0, "the terms");
        CHECK(read->n_runs == 9 && read->parameters.most == 1e9 && read->tokens.least == 1e7,
              "runs");
        CHECK(read->n_draws == 2 && memcmp(read->draws, draws, sizeof(draws)) == 0, "the draws");
        CHECK(strcmp(read->name, law.name) == 0 && strcmp(read->source, "here") == 0, "the texts");
        CHECK(law_is_beyond(read, 2e9, 1e8) && !law_is_beyond(read, 1e8, 1e8), "its runs");
    }
    unlink(path);
    strbuf_destroy(&text);
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--runs") == 0) { /* what SciPy was given */
        FitRun runs[N_RUNS];
        make_runs(runs, 0.005);
        puts("parameters,tokens,loss");
        for (int i = 0; i < N_RUNS; i++) {
            printf("%.17g,%.17g,%.17g\n", runs[i].parameters, runs[i].tokens, runs[i].loss);
        }
        return 0;
    }
    check_optimum();
    check_tokens();
    check_fits();
    check_refusals();
    check_files();
    return check_report();
}
