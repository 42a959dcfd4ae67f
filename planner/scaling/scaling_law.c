#include "planner/scaling/scaling_law.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* R* of repeated tokens: Muennighoff et al. 2023, appendix A. */
static const double REPEATS = 15.387756;

static const ScalingLaw SHIPPED[] = {
    /* The default. Hoffmann et al. trained models of 70 M to 16 G parameters on 5 to 500 G tokens;
     * this is what their figure's points give. */
    {.name = "besiroglu-2024",
     .source = "Besiroglu et al. 2024, \"Chinchilla Scaling: A replication attempt\": a fit on the "
               "runs of Hoffmann et al. 2022",
     .terms = {1.8172, 482.01, 0.3478, 2085.43, 0.3658},
     .n_runs = 240,
     .parameters = {70e6, 16e9},
     .tokens = {5e9, 500e9}},
    {.name = "hoffmann-2022",
     .source = "Hoffmann et al. 2022, \"Training Compute-Optimal Large Language Models\", not "
               "rounded: as published, though it is not the best fit on those runs",
     .terms = {1.6934, 406.4, 0.3392, 410.7, 0.2849},
     .parameters = {70e6, 16e9},
     .tokens = {5e9, 500e9}},
};
enum { N_SHIPPED = sizeof(SHIPPED) / sizeof(SHIPPED[0]) };

double law_loss(const LawTerms *law, double parameters, double tokens) {
    return law->e + law->a * pow(parameters, -law->alpha) + law->b * pow(tokens, -law->beta);
}

double law_tokens_for(const LawTerms *law, double loss, double parameters) {
    double left = loss - law->e - law->a * pow(parameters, -law->alpha);
    return left > 0 ? pow(law->b / left, 1 / law->beta) : INFINITY;
}

LawOptimum law_optimum(const LawTerms *law, double flops) {
    double sum = law->alpha + law->beta;
    double g = pow(law->alpha * law->a / (law->beta * law->b), 1 / sum);
    LawOptimum at = {.parameters = g * pow(flops / LAW_FLOPS, law->beta / sum),
                     .tokens = pow(flops / LAW_FLOPS, law->alpha / sum) / g};
    at.loss = law_loss(law, at.parameters, at.tokens);
    return at;
}

double law_unique_worth(double tokens, double unique) {
    if (unique <= 0 || tokens <= unique) return tokens;
    double repeats = tokens / unique - 1;
    return unique * (1 - REPEATS * expm1(-repeats / REPEATS));
}

double law_tokens_worth(double worth, double unique) {
    if (unique <= 0 || worth <= unique) return worth;
    double left = 1 - (worth / unique - 1) / REPEATS;
    return left > 0 ? unique * (1 - REPEATS * log(left)) : INFINITY;
}

const ScalingLaw *law_shipped(int index) {
    return index >= 0 && index < N_SHIPPED ? &SHIPPED[index] : NULL;
}

bool law_is_path(const char *text) {
    size_t length = strlen(text);
    return strchr(text, '/') || (length > 5 && strcmp(text + length - 5, ".json") == 0);
}

const ScalingLaw *law_find(const char *name) {
    for (int i = 0; i < N_SHIPPED; i++) {
        if (strcmp(SHIPPED[i].name, name) == 0) return &SHIPPED[i];
    }
    return NULL;
}

const char *law_text(const LawTerms *law, char *text) {
    snprintf(text, LAW_TEXT, "L(N, D) = %.5g + %.6g / N^%.4g + %.6g / D^%.4g", law->e, law->a,
             law->alpha, law->b, law->beta);
    return text;
}

static bool outside(const Range *range, double value) {
    return range->most > 0 && (value < range->least || value > range->most);
}

bool law_is_beyond(const ScalingLaw *law, double parameters, double tokens) {
    return outside(&law->parameters, parameters) || outside(&law->tokens, tokens);
}
