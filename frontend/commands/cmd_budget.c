#include "frontend/commands/cli.h"
int cmd_budget(CliArgs *args) { (void)args; return 1; }
