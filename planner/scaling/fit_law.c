#include "planner/scaling/fit_law.h"

#include "planner/scaling/minimize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Unknowns: logarithms of the three terms at the runs' mean log N and log D, and the exponents.
 * There, unlike in log A and log B, what one of them does is nearly independent of the others. */
enum { P_E, P_A, P_ALPHA, P_B, P_BETA, N_PARAMS };

/* Huber's delta, on logarithms: a thousandth of the loss. */
static const double DELTA = 1e-3;

static const double EXPONENTS[] = {0.1, 0.2, 0.35, 0.5, 0.8, 1.2};
enum { N_EXPONENTS = sizeof(EXPONENTS) / sizeof(EXPONENTS[0]), N_TERMS = 3 };

/* What no runs of language models give: where the search leaves it, nothing is determined. */
static const double LEAST_EXPONENT = 5e-3, MOST_EXPONENT = 5;

typedef struct Points {
    int n;
    double *x, *y, *log_loss; /* [n]: log N, log D, less their means */
    double mean_x, mean_y;
} Points;

static Points points_create(Arena *arena, int n) {
    double *x = ARENA_ARRAY(arena, double, n), *y = ARENA_ARRAY(arena, double, n);
    return (Points){.n = n, .x = x, .y = y, .log_loss = ARENA_ARRAY(arena, double, n)};
}

static void points_set(Points *points, int i, const FitRun *run) {
    points->x[i] = log(run->parameters);
    points->y[i] = log(run->tokens);
    points->log_loss[i] = log(run->loss);
}

static void points_center(Points *points) {
    points->mean_x = points->mean_y = 0;
    for (int i = 0; i < points->n; i++) {
        points->mean_x += points->x[i] / points->n;
        points->mean_y += points->y[i] / points->n;
    }
    for (int i = 0; i < points->n; i++) {
        points->x[i] -= points->mean_x;
        points->y[i] -= points->mean_y;
    }
}

/* The sum of Huber's losses in units of DELTA^2, and its gradient. */
static double objective(void *context, const double *at, double *out_gradient) {
    const Points *points = context;
    double sum = 0;
    memset(out_gradient, 0, N_PARAMS * sizeof(double));
    for (int i = 0; i < points->n; i++) {
        double e = exp(at[P_E]), a = exp(at[P_A] - at[P_ALPHA] * points->x[i]);
        double b = exp(at[P_B] - at[P_BETA] * points->y[i]);
        double loss = e + a + b, u = (log(loss) - points->log_loss[i]) / DELTA;
        double slope = fmax(-1, fmin(1, u)) / (DELTA * loss);
        sum += fabs(u) <= 1 ? u * u / 2 : fabs(u) - 0.5;
        out_gradient[P_E] += slope * e;
        out_gradient[P_A] += slope * a;
        out_gradient[P_ALPHA] -= slope * a * points->x[i];
        out_gradient[P_B] += slope * b;
        out_gradient[P_BETA] -= slope * b * points->y[i];
    }
    return sum;
}

/* Solves a symmetric system of `n` unknowns; false: it has no single solution. */
static bool solve(int n, double m[N_TERMS][N_TERMS], double *v) {
    for (int k = 0; k < n; k++) {
        int pivot = k;
        for (int i = k + 1; i < n; i++) {
            if (fabs(m[i][k]) > fabs(m[pivot][k])) pivot = i;
        }
        if (fabs(m[pivot][k]) < 1e-12) return false;
        for (int j = 0; j < n; j++) {
            double swap = m[k][j];
            m[k][j] = m[pivot][j], m[pivot][j] = swap;
        }
        double swap = v[k];
        v[k] = v[pivot], v[pivot] = swap;
        for (int i = 0; i < n; i++) {
            if (i == k) continue;
            double factor = m[i][k] / m[k][k];
            for (int j = k; j < n; j++) m[i][j] -= factor * m[k][j];
            v[i] -= factor * v[k];
        }
    }
    for (int k = 0; k < n; k++) v[k] /= m[k][k];
    return true;
}

/* With the exponents given the law is linear in its three terms: the least squares of relative
 * errors, among terms that are none below zero. m: of all three; `use`: bits of those to have. */
static bool solve_terms(double m[N_TERMS][N_TERMS], const double *v, int use, double *out) {
    double part[N_TERMS][N_TERMS], right[N_TERMS];
    int index[N_TERMS], n = 0;
    for (int i = 0; i < N_TERMS; i++) {
        if (use >> i & 1) index[n++] = i;
    }
    for (int i = 0; i < n; i++) {
        right[i] = v[index[i]];
        for (int j = 0; j < n; j++) part[i][j] = m[index[i]][index[j]];
    }
    if (!solve(n, part, right)) return false;
    memset(out, 0, N_TERMS * sizeof(double));
    for (int i = 0; i < n; i++) {
        out[index[i]] = right[i];
        if (right[i] < 0) return false;
    }
    return true;
}

static void start_at(const Points *points, double alpha, double beta, double out[N_PARAMS]) {
    double m[N_TERMS][N_TERMS] = {0}, v[N_TERMS] = {0}, best[N_TERMS] = {0}, most = -INFINITY;
    for (int p = 0; p < points->n; p++) {
        double weight = exp(-points->log_loss[p]);
        double row[N_TERMS] = {weight, weight * exp(-alpha * points->x[p]),
                               weight * exp(-beta * points->y[p])};
        for (int i = 0; i < N_TERMS; i++) {
            v[i] += row[i];
            for (int j = 0; j < N_TERMS; j++) m[i][j] += row[i] * row[j];
        }
    }
    for (int use = 1; use < 1 << N_TERMS; use++) {
        double terms[N_TERMS], explained = 0;
        if (!solve_terms(m, v, use, terms)) continue;
        for (int i = 0; i < N_TERMS; i++) explained += terms[i] * v[i];
        if (explained <= most) continue;
        most = explained;
        memcpy(best, terms, sizeof(best));
    }
    double least = 1e-2 * exp(points->log_loss[0]); /* none is zero: its logarithm moves then */
    out[P_E] = log(fmax(best[0], least));
    out[P_A] = log(fmax(best[1], least));
    out[P_B] = log(fmax(best[2], least));
    out[P_ALPHA] = alpha;
    out[P_BETA] = beta;
}

/* From the whole grid of exponents, or from those about `from` alone. */
static double fit_points(Points *points, const double *from, double out[N_PARAMS]) {
    double best = INFINITY, at[N_PARAMS];
    int n = from ? 2 : N_EXPONENTS * N_EXPONENTS;
    for (int s = 0; s < n; s++) {
        if (from && s == 0) {
            memcpy(at, from, sizeof(at));
        } else if (from) {
            start_at(points, from[P_ALPHA], from[P_BETA], at);
        } else {
            start_at(points, EXPONENTS[s / N_EXPONENTS], EXPONENTS[s % N_EXPONENTS], at);
        }
        double value = minimize(objective, points, N_PARAMS, at);
        if (!(value < best)) continue;
        best = value;
        memcpy(out, at, sizeof(at));
    }
    return best;
}

/* An E that has gone to nothing on its way down is none. */
static LawTerms terms_of(const Points *points, const double *at) {
    const double least_e = 1e-6;
    double e = exp(at[P_E]);
    return (LawTerms){.e = e > least_e ? e : 0,
                      .a = exp(at[P_A] + at[P_ALPHA] * points->mean_x),
                      .alpha = at[P_ALPHA],
                      .b = exp(at[P_B] + at[P_BETA] * points->mean_y),
                      .beta = at[P_BETA]};
}

/* Does one of the power terms fall by something over the runs? `log_a` at the mean, x centered. */
static bool is_determined(const Points *points, const double *x, double log_a, double exponent) {
    double least = INFINITY, most = -INFINITY, least_loss = INFINITY;
    if (!(exponent >= LEAST_EXPONENT && exponent <= MOST_EXPONENT)) return false;
    for (int i = 0; i < points->n; i++) {
        double term = exp(log_a - exponent * x[i]);
        least = fmin(least, term), most = fmax(most, term);
        least_loss = fmin(least_loss, exp(points->log_loss[i]));
    }
    return most - least > 1e-4 * least_loss;
}

/* What losses do not fall with: "parameters", "tokens"; NULL: they do with both. */
static const char *undetermined(const Points *points, const double *at) {
    if (!is_determined(points, points->x, at[P_A], at[P_ALPHA])) return "parameters";
    if (!is_determined(points, points->y, at[P_B], at[P_BETA])) return "tokens";
    return NULL;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* How many different numbers; those within a hundredth of each other are the same. */
static int count_different(const double *logs, int n, double *scratch) {
    int count = 0;
    double last = -INFINITY;
    memcpy(scratch, logs, (size_t)n * sizeof(*logs));
    qsort(scratch, (size_t)n, sizeof(*scratch), compare_doubles);
    for (int i = 0; i < n; i++) {
        if (scratch[i] - last < 0.01) continue;
        last = scratch[i];
        count++;
    }
    return count;
}

/* Of x and y, centered; 1 or -1: one tells the other. */
static double correlation(const Points *points) {
    double xx = 0, yy = 0, xy = 0;
    for (int i = 0; i < points->n; i++) {
        xx += points->x[i] * points->x[i];
        yy += points->y[i] * points->y[i];
        xy += points->x[i] * points->y[i];
    }
    return xy / sqrt(xx * yy);
}

/* NULL: what the runs are can determine a law. */
static const char *find_lack(const Points *points, double *scratch) {
    if (points->n < FIT_LEAST_RUNS) return "a law has five numbers: it takes 6 runs at least";
    if (count_different(points->x, points->n, scratch) < 3) {
        return "they have fewer than 3 different numbers of parameters";
    }
    if (count_different(points->y, points->n, scratch) < 3) {
        return "they have fewer than 3 different numbers of tokens";
    }
    if (fabs(correlation(points)) > 0.999) {
        return "the same goes for tokens and parameters in all of them, so that what either brings "
               "cannot be told: train some sizes on fewer or more tokens";
    }
    return NULL;
}

static Points points_of(Arena *arena, const FitRun *runs, int n, int without) {
    Points points = points_create(arena, without >= 0 ? n - 1 : n);
    for (int i = 0, at = 0; i < n; i++) {
        if (i != without) points_set(&points, at++, &runs[i]);
    }
    points_center(&points);
    return points;
}

static void set_residuals(Arena *arena, const FitRun *runs, int n, LawFit *fit) {
    double *sorted = ARENA_ARRAY(arena, double, n);
    fit->residuals = ARENA_ARRAY(arena, double, n);
    for (int i = 0; i < n; i++) {
        double loss = law_loss(&fit->law.terms, runs[i].parameters, runs[i].tokens);
        fit->residuals[i] = loss / runs[i].loss - 1;
        sorted[i] = fabs(fit->residuals[i]);
    }
    qsort(sorted, (size_t)n, sizeof(*sorted), compare_doubles);
    fit->median_residual = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    fit->worst_residual = sorted[n - 1];
}

static void hold_out(Arena *arena, const FitRun *runs, int n, LawFit *fit) {
    int largest = 0;
    double at[N_PARAMS];
    for (int i = 1; i < n; i++) {
        double flops = runs[i].parameters * runs[i].tokens;
        if (flops > runs[largest].parameters * runs[largest].tokens) largest = i;
    }
    Points points = points_of(arena, runs, n, largest);
    fit->held_out = -1;
    if (find_lack(&points, ARENA_ARRAY(arena, double, n))) return;
    fit_points(&points, NULL, at);
    if (undetermined(&points, at)) return;
    LawTerms terms = terms_of(&points, at);
    fit->held_out = largest;
    fit->held_out_loss = law_loss(&terms, runs[largest].parameters, runs[largest].tokens);
}

/* Knuth's generator (MMIX), whose upper bits are taken: the same draws on every machine. */
static int draw_below(uint64_t *state, int n) {
    *state = *state * 6364136223846793005U + 1442695040888963407U;
    return (int)((*state >> 33) % (uint64_t)n);
}

/* Fits on runs drawn with replacement, each from the best of all runs. */
static void draw_laws(Arena *arena, const FitRun *runs, int n, const Points *all,
                      const double *best, ScalingLaw *law) {
    LawTerms *draws = ARENA_ARRAY(arena, LawTerms, FIT_DRAWS);
    double *scratch = ARENA_ARRAY(arena, double, n);
    Points points = points_create(arena, n);
    uint64_t state = 1;
    for (int tries = 0; tries < FIT_DRAWS; tries++) {
        double at[N_PARAMS], from[N_PARAMS];
        for (int i = 0; i < n; i++) points_set(&points, i, &runs[draw_below(&state, n)]);
        points_center(&points);
        if (find_lack(&points, scratch)) continue;
        memcpy(from, best, sizeof(from)); /* the same law about these runs' means */
        from[P_A] -= best[P_ALPHA] * (points.mean_x - all->mean_x);
        from[P_B] -= best[P_BETA] * (points.mean_y - all->mean_y);
        fit_points(&points, from, at);
        if (undetermined(&points, at)) continue;
        draws[law->n_draws++] = terms_of(&points, at);
    }
    law->draws = draws;
}

static Range range_of(const FitRun *runs, int n, bool tokens) {
    Range range = {INFINITY, -INFINITY};
    for (int i = 0; i < n; i++) {
        double value = tokens ? runs[i].tokens : runs[i].parameters;
        range.least = fmin(range.least, value), range.most = fmax(range.most, value);
    }
    return range;
}

LawFit *fit_law(Arena *arena, const FitRun *runs, int n_runs, Diag *diag) {
    LawFit *fit = ARENA_NEW(arena, LawFit);
    double at[N_PARAMS];
    Points points = points_of(arena, runs, n_runs, -1);
    const char *lack = find_lack(&points, ARENA_ARRAY(arena, double, n_runs));
    if (lack) {
        diag_error(diag, NO_LOC, "%d run%s: %s", n_runs, n_runs == 1 ? "" : "s", lack);
        return NULL;
    }
    fit_points(&points, NULL, at);
    const char *flat = undetermined(&points, at);
    if (flat) {
        diag_error(
            diag, NO_LOC,
            "%d runs: no law of this form fits, as their losses do not fall with %s; are they "
            "finished runs of one kind, on one kind of data?",
            n_runs, flat);
        return NULL;
    }
    fit->law.terms = terms_of(&points, at);
    fit->law.n_runs = n_runs;
    fit->law.parameters = range_of(runs, n_runs, false);
    fit->law.tokens = range_of(runs, n_runs, true);
    set_residuals(arena, runs, n_runs, fit);
    hold_out(arena, runs, n_runs, fit);
    draw_laws(arena, runs, n_runs, &points, at, &fit->law);
    return fit;
}

Interval interval_of(double *values, int n) {
    if (n == 0) return (Interval){NAN, NAN};
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return (Interval){values[(n - 1) / 10], values[n - 1 - (n - 1) / 10]};
}
