/* Help, made of the tables of commands and options. */
#include "frontend/commands/cli.h"
#include "planner/plan/plan.h"

#include <string.h>

enum { OPTION_COLUMN = 28 };

void cli_print_overview(FILE *stream) {
    fputs("perilune plans and trains language models: what will run, where each byte will lie\n"
          "and which messages will flow is fixed in a plan before anything starts.\n\n"
          "usage: perilune COMMAND ...\n\n",
          stream);
    for (const CliCommand *command = CLI_COMMANDS; command->name; command++) {
        fprintf(stream, "  %-10s %s\n", command->name, command->summary);
    }
    fputs("  help       about perilune, or help COMMAND: about a command\n\n"
          "A first round:\n"
          "  perilune plan models/gpt.lua --mesh t=2,p=2 -o gpt.plan\n"
          "  perilune train gpt.plan --data FILE --steps 500 --save gpt.safetensors\n"
          "  perilune generate gpt.plan --load gpt.safetensors --prompt \"The \"\n",
          stream);
}

static void print_option(const CliOptionInfo *info, FILE *stream) {
    char left[80];
    char letter[8] = "";
    if (info->letter) snprintf(letter, sizeof(letter), "-%c, ", info->letter);
    snprintf(left, sizeof(left), "  %s--%s%s%s", letter, info->name, info->value[0] ? " " : "",
             info->value);
    if (strlen(left) >= OPTION_COLUMN) {
        fprintf(stream, "%s\n%*s%s\n", left, OPTION_COLUMN, "", info->help);
    } else {
        fprintf(stream, "%-*s%s\n", OPTION_COLUMN, left, info->help);
    }
}

void cli_print_help(const CliCommand *command, FILE *stream) {
    bool printed[N_OPTIONS] = {0};
    fprintf(stream, "perilune %s: %s\n\nusage: perilune %s%s%s [OPTIONS]\n", command->name,
            command->summary, command->name, command->operand[0] ? " " : "", command->operand);
    for (int s = 0; s < MAX_SECTIONS && command->sections[s].heading; s++) {
        fprintf(stream, "\n%s:\n", command->sections[s].heading);
        for (int i = 0; i < N_OPTIONS; i++) {
            const CliOptionInfo *info = &CLI_OPTIONS[i];
            if (printed[i] || !(info->groups & command->sections[s].groups)) continue;
            printed[i] = true;
            print_option(info, stream);
        }
    }
    fprintf(stream, "\n%s", command->details);
}
