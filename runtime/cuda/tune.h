/* Choosing the algorithm of each of a plan's matrix products, and whose attention, on the device at
 * hand, once.
 *
 * The products are those of a training step, of one rank of each distinct stage; they are found
 * without memory for the plan. Each of the heuristic's candidates is timed as training runs it,
 * replayed from a graph. What comes out goes into the plan's device section; a product that also
 * makes a bias's gradient (bias_grad.h) only where that is faster than a product and a sum, one
 * with gelu in it (epilogue.h) unless a product and a pass over its result are faster, several at
 * once (join_products.h) unless they are faster one by one. Attention that several sets of kernels
 * could do, cuDNN's and own ones, is timed with each; those on wgmma must also give the results of
 * those on mma.sync, and the same bits twice. */
#ifndef RUNTIME_CUDA_TUNE_H
#define RUNTIME_CUDA_TUNE_H

#include "ir/base/diag.h"
#include "planner/plan/plan.h"

typedef struct TuneOptions {
    int device_ordinal;
    bool no_wgmma; /* own attention on wgmma is not tried */
    bool brief;    /* for tests: a graph of what is timed is launched once, not for 0.1 s */
    /* Told before each candidate; `what` lives until the next call. May be NULL. */
    void (*progress)(void *user, int n_done, int n_all, const char *what);
    void *user;
    /* Given what is chosen without kernels on wgmma, before those are tried, and before those in
     * one pass are: if they never end, it is there. May be NULL. */
    void (*known)(void *user, const PlanDevice *device);
    void *known_user;
} TuneOptions;

typedef struct TunedProduct {
    PlanAlgo algo;    /* the one chosen */
    int64_t count;    /* in a step of one rank of the stage that has the most */
    bool changed;     /* it is not the heuristic's first choice */
    int n_candidates; /* that ran */
    double first_us;  /* of one product by the heuristic's first choice; -1: does not run */
    double chosen_us; /* -1: not timed, its operands do not fit the device's memory */
} TunedProduct;

/* What several sets of kernels could do. */
typedef struct TunedAttention {
    PlanAttention kind;             /* with the choice */
    int64_t count;                  /* as TunedProduct's */
    double us[N_ATTENTION_KERNELS]; /* -1: does not run, or is not to */
    /* Why those, none of them on mma.sync, are not used however fast: "dq differs from mma's by
     * 0.3"; NULL: they may be, or there are none. */
    const char *refused[N_ATTENTION_KERNELS];
} TunedAttention;

typedef struct TuneResult {
    PlanDevice device;  /* the section: every product that was timed */
    int n_sums;         /* kinds of products that could make a bias's gradient besides, */
    int n_sums_joined;  /* and those that then take less time than a product and a sum */
    int n_gelus;        /* kinds of products with gelu or its gradient in them, */
    int n_gelus_folded; /* and those that then take no more time than a product and a kernel */
    int n_joinable;     /* kinds of products that could run several at once, */
    int n_joined;       /* and those that then take no more time */
    int n_products;
    TunedProduct *products; /* those that take the most of a step first */
    int n_attentions;
    TunedAttention *attentions;
} TuneResult;

/* The plan was made for CUDA. Everything of *out is owned by `arena`. False: reported. In driver/
 * or absent.c. */
bool cuda_tune(const Plan *plan, const TuneOptions *options, Arena *arena, TuneResult *out,
               Diag *diag);

#endif
