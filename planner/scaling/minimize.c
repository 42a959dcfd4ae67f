#include "planner/scaling/minimize.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { MOST_STEPS = 1000, MOST_HALVINGS = 60, MOST_STALLS = 4 };

typedef struct Descent {
    SmoothFunction *function;
    void *context;
    int n;
    double at[MINIMIZE_MOST], gradient[MINIMIZE_MOST], value;
    double inverse[MINIMIZE_MOST][MINIMIZE_MOST]; /* of the Hessian, as it is known so far */
} Descent;

static double dot(int n, const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void reset_inverse(Descent *d) {
    memset(d->inverse, 0, sizeof(d->inverse));
    double norm = sqrt(dot(d->n, d->gradient, d->gradient));
    /* The first step is a tenth long: unknowns are logarithms and exponents. */
    for (int i = 0; i < d->n; i++) d->inverse[i][i] = 0.1 / fmax(norm, 1e-30);
}

/* Along `way`, downhill by `slope` < 0; false: nothing lower is there. */
static bool search_line(Descent *d, const double *way, double slope, Descent *out) {
    double low = 0, high = INFINITY, step = 1;
    for (int i = 0; i < MOST_HALVINGS; i++) {
        *out = *d;
        for (int k = 0; k < d->n; k++) out->at[k] += step * way[k];
        out->value = d->function(d->context, out->at, out->gradient);
        bool lower = out->value <= d->value + 1e-4 * step * slope; /* false for NaN */
        if (!lower) {
            high = step;
        } else if (dot(d->n, out->gradient, way) < 0.9 * slope) {
            low = step;
        } else {
            return out->value < d->value;
        }
        step = isinf(high) ? 2 * low : (low + high) / 2;
    }
    return isfinite(out->value) && out->value < d->value;
}

/* With the step from `d` to `next`. */
static void update_inverse(const Descent *d, Descent *next) {
    double s[MINIMIZE_MOST], y[MINIMIZE_MOST], hy[MINIMIZE_MOST];
    int n = d->n;
    for (int i = 0; i < n; i++) {
        s[i] = next->at[i] - d->at[i];
        y[i] = next->gradient[i] - d->gradient[i];
    }
    double sy = dot(n, s, y);
    if (!(sy > 1e-300)) return;
    for (int i = 0; i < n; i++) hy[i] = dot(n, next->inverse[i], y);
    double yhy = dot(n, y, hy);
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            next->inverse[i][j] +=
                (1 + yhy / sy) * s[i] * s[j] / sy - (hy[i] * s[j] + s[i] * hy[j]) / sy;
        }
    }
}

double minimize(SmoothFunction *function, void *context, int n, double *at) {
    Descent d = {.function = function, .context = context, .n = n}, next;
    int stalls = 0;
    memcpy(d.at, at, (size_t)n * sizeof(double));
    d.value = function(context, d.at, d.gradient);
    reset_inverse(&d);
    for (int i = 0; i < MOST_STEPS && stalls < MOST_STALLS && isfinite(d.value); i++) {
        double way[MINIMIZE_MOST];
        for (int k = 0; k < n; k++) way[k] = -dot(n, d.inverse[k], d.gradient);
        double slope = dot(n, way, d.gradient);
        if (!(slope < 0) || !search_line(&d, way, slope, &next)) {
            stalls += 2;
            reset_inverse(&d);
            continue;
        }
        stalls = d.value - next.value < 1e-12 * fmax(1, fabs(d.value)) ? stalls + 1 : 0;
        update_inverse(&d, &next);
        d = next;
    }
    memcpy(at, d.at, (size_t)n * sizeof(double));
    return d.value;
}
