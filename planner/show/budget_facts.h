/* The figures of a budget's report, computed once. Internal to show_budget*.c. */
#ifndef PLANNER_SHOW_BUDGET_FACTS_H
#define PLANNER_SHOW_BUDGET_FACTS_H

#include "planner/show/search_facts.h"
#include "planner/show/show_budget.h"

typedef struct BudgetPoint {
    const BudgetRow *row;
    const Found *found;          /* NULL: nothing fits, or could not be searched */
    const char *trouble;         /* why there is no loss for it; NULL: there is */
    LayoutFacts facts;           /* its days are of the tokens */
    double parameters;           /* that a token meets: the law's N */
    double steps, tokens, worth; /* worth: of tokens that come again, as law_unique_worth */
    double per_parameter;        /* tokens */
    double epochs;               /* 0: no limit was given */
    double loss;
    double days, device_hours, price; /* with failures; price 0: none is stated */
    bool beyond;                      /* the law's runs */
    int n_best;                       /* of the law's draws, those by which this is the best */
} BudgetPoint;

typedef struct BudgetFacts {
    Arena *arena;
    const BudgetReport *report;
    double limit_bytes;
    int n_points;
    bool counts_failures; /* of any point */
    BudgetPoint *points;
    int best, second; /* -1: none */
    double best_flops;
    LawOptimum optimum; /* of best_flops */
} BudgetFacts;

BudgetFacts *budget_facts_create(Arena *arena, const BudgetReport *report);

/* Tokens a parameter: "0.33", "19.6", "2.11 k". text: UNIT_TEXT. */
const char *per_parameter_text(double per_parameter, char *text);

/* How much worse than the best: more loss, or with a target_loss the share of device-hours more. */
double budget_worse(const BudgetFacts *facts, const BudgetPoint *point);

/* "14.0 days of 64 ranks: 21.5 k device-hours, 64.5 k USD at 3.00 an hour" */
const char *budget_text(const BudgetFacts *facts);
/* "1.5b: loss 2.2115 on 812 G tokens (521 a parameter, 4.1 epochs) in 14.0 days, ..." */
const char *budget_best_text(const BudgetFacts *facts);
/* What the law's own best use of as many FLOPs would be. */
const char *budget_optimum_text(const BudgetFacts *facts);
/* What failures make of the best one's time, or why they are not counted; NULL: as was asked. */
const char *budget_goodput_text(const BudgetFacts *facts);
/* By how many of the law's draws the best is; NULL: the law has none. */
const char *budget_sure_text(const BudgetFacts *facts);

#endif
