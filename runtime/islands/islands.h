/* Islands: runs that train apart and meet once in a while (DiLoCo, see outer_step.h).
 *
 * Each island is a run of its own, under its own plan. Island 0 listens, the others connect to it
 * (a star). At a meeting each brings its weights, or one part of them (in bf16 or nf4: how far they
 * have moved), island 0 takes the outer step and gives all the new ones, the same bits to each.
 *
 * Island 0 alone decides who takes part. An island whose connection is closed, or from which
 * nothing comes for timeout_s once island 0 is there, is left out, and training goes on without it:
 * what it has learned since the last meeting is lost, nothing else. One that comes (back) with
 * other weights than those of the last meeting waits for the next one, and takes the weights, the
 * place in the run and, if it has none, the optimizer's state of island 0 there. Where not all
 * weights meet at once, or training goes on meanwhile (`streams`), it takes both the weights of the
 * last meetings and those that island 0 trains, with which parts are still to be merged. Without
 * island 0
 * nobody goes on: the others try to come back to it for timeout_s, and fail.
 *
 * Who may join: an island that knows the token, has the same number of islands, model, options
 * (`recipe`) and version of the program, and a number that nobody else has. Others are told why
 * not. The token keeps runs apart; it does not protect against those who can read or change the
 * network: across networks that are not yours use a tunnel.
 *
 * Called from one thread at a time of one process of an island. Waits end by `stopped`,
 * islands_abort, a closed connection, or timeout_s without a byte.
 */
#ifndef RUNTIME_ISLANDS_ISLANDS_H
#define RUNTIME_ISLANDS_ISLANDS_H

#include "ir/base/diag.h"
#include "runtime/islands/outer_parts.h"
#include "runtime/islands/outer_step.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { ISLANDS_MOST = 256, ISLANDS_RECIPE_BYTES = 4096 };

typedef struct IslandsOptions {
    int n_islands, island; /* 0 <= island < n_islands */
    const char *host;      /* where island 0 is */
    int port;
    const char *token;   /* what keeps runs apart; "": none */
    const char *version; /* of the program */
    const char *recipe;  /* what has to be the same on all: lines of "name value" */
    uint64_t model;      /* a hash of what is exchanged: names and shapes */
    int64_t n_values;    /* weights that are exchanged */
    int64_t n_state;     /* numbers of the optimizer's state */
    int n_parts;         /* of the weights, that meet one by one; 0: as 1 */
    int64_t
        part_at[OUTER_MOST_PARTS + 1]; /* where each begins, and the last ends; n_parts 0: all */
    bool streams;                      /* is training elsewhere than at the last meeting? */
    DType dtype;                       /* f32: weights travel; bf16, nf4: how far they have moved */
    OuterRule rule;
    double timeout_s;
    FILE *stream;          /* where lines about the others go; NULL: nowhere */
    bool (*stopped)(void); /* has this run been asked to end? NULL: never */
} IslandsOptions;

/* The last meeting: after which step, how many samples and meetings there were. And, of what an
 * island takes: where training is, the same without `streams`, and parts' turns. */
typedef struct IslandsPlace {
    int64_t step, samples, n_meetings;
    int64_t at_step, at_samples;
    PartTurn turns[OUTER_MOST_PARTS];
} IslandsPlace;

typedef enum IslandsResult {
    ISLANDS_MET,     /* weights are the new ones; at the start: the island goes on as it is */
    ISLANDS_TAKEN,   /* weights and place are island 0's */
    ISLANDS_STOPPED, /* by `stopped`: nothing has changed */
    ISLANDS_FAILED   /* reported */
} IslandsResult;

typedef struct IslandsReport {
    int n_present;              /* islands whose weights were in the mean */
    bool missing[ISLANDS_MOST]; /* on island 0: which were not */
    double norm;                /* of the outer gradient */
    double wait_seconds;        /* for others to come */
    int64_t bytes;              /* sent and read by this island */
} IslandsReport;

typedef struct Islands Islands;

/* weights[n_values]: those of the last meeting, or of the beginning; momentum and, with nf4,
 * residual[n_values] (outer_step.h) of island 0, else NULL. All stay the caller's. */
Islands *islands_create(const IslandsOptions *options, float *weights, float *momentum,
                        float *residual);
/* The others are told `why`, unless NULL. NULL islands are fine. */
void islands_destroy(Islands *islands, const char *why);

/* Before the first step, `place` being that of the weights: until all have come, or island 0 has
 * answered. wants_state: there is no optimizer's state to go on with, should weights be taken. */
IslandsResult islands_start(Islands *islands, IslandsPlace *place, bool wants_state, Diag *diag);

/* After step `place->step` with a part's own weights; place->samples as of then. */
IslandsResult islands_meet(Islands *islands, int part, const float *own, IslandsPlace *place,
                           IslandsReport *out, Diag *diag);
/* From any thread: waits end as by `stopped`, from now on or, with false, no more. */
void islands_abort(Islands *islands, bool aborts);
/* Likewise: does nobody wait for what is going on? Then nothing is said of whom it waits for. */
void islands_behind(Islands *islands, bool is_behind);

/* On island 0 after both: how many wait for weights, and does one of them want state? */
int islands_count_waiting(const Islands *islands, bool *out_wants_state);
/* They get them; with `streams` also own[n_values] as they train, place->at_step, at_samples and
 * turns, else own NULL. state[n_state], or NULL where nobody wants it. */
void islands_admit(Islands *islands, const IslandsPlace *place, const float *own,
                   const float *state);
/* After ISLANDS_TAKEN: what came along, own [n_values] with `streams` and the optimizer's state
 * [n_state], or NULL. Until the next call. */
const float *islands_taken_own(const Islands *islands);
const float *islands_taken_state(const Islands *islands);

#endif
