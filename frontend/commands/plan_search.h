/* perilune plan --cluster: searches the layouts of a model, and plans the best of them. */
#ifndef FRONTEND_COMMANDS_PLAN_SEARCH_H
#define FRONTEND_COMMANDS_PLAN_SEARCH_H

#include "frontend/commands/cli.h"

/* Returns the exit code; everything has been printed. */
int plan_by_search(CliArgs *args);

/* Options of a search that a plan without one does not take. False: reported. */
bool plan_without_search(const CliArgs *args, Diag *diag);

#endif
