/* How well numbers are told: arrays of n, each `stride` numbers from the next. NAN: it is not
 * defined there, as where all are equal. */
#ifndef FRONTEND_COMMANDS_SCORE_METRICS_H
#define FRONTEND_COMMANDS_SCORE_METRICS_H

#include <stdint.h>

/* The mean precision at each text that has the class (given 1, else 0), from the greatest score on;
 * equal scores are told together. */
double score_average_precision(const float *scores, const float *given, int64_t n, int64_t stride);
/* Correlations: of the numbers, and of their ranks, equal ones having the mean of theirs. */
double score_pearson(const float *told, const float *given, int64_t n, int64_t stride);
double score_spearman(const float *told, const float *given, int64_t n, int64_t stride);
/* 1 - (mean of squared errors) / (variance of what was given). */
double score_r2(const float *told, const float *given, int64_t n, int64_t stride);
double score_mean_error(const float *told, const float *given, int64_t n, int64_t stride,
                        int power); /* 1: of absolute ones, 2: of squared */

#endif
