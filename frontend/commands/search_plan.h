/* The best layout that a search found, as a plan. */
#ifndef FRONTEND_COMMANDS_SEARCH_PLAN_H
#define FRONTEND_COMMANDS_SEARCH_PLAN_H

#include "frontend/commands/search_args.h"

/* Of report->result, which has found some: the first that can be planned and then fits to the byte.
 * report->chosen says which, ->refused those before it. NULL: reported. */
Plan *search_plan_best(CliArgs *args, const SearchJob *job, SearchReport *report, Diag *diag);

#endif
