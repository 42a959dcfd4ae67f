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

/* A search has no default for what it chooses; plan searches, or does not. */
static void format_meaning(char *out, size_t size, const CliOptionInfo *info, int groups) {
    const char *absent = strstr(info->help, " (default: ");
    bool searched =
        absent && (info->groups & IN_SEARCHED) && (groups & (IN_SEARCH | IN_RUN_SEARCH));
    if (!searched) {
        snprintf(out, size, "%s", info->help);
    } else if (groups & (IN_SCALE | IN_BUDGET | IN_RENT)) {
        snprintf(out, size, "%.*s (default: searched)", (int)(absent - info->help), info->help);
    } else {
        snprintf(out, size, "%.*s, or searched)", (int)strlen(info->help) - 1, info->help);
    }
}

/* `groups`: all that the command takes. */
static void print_option(const CliOptionInfo *info, int groups, FILE *stream) {
    char left[80], meaning[160];
    char letter[8] = "";
    if (info->letter) snprintf(letter, sizeof(letter), "-%c, ", info->letter);
    snprintf(left, sizeof(left), "  %s--%s%s%s", letter, info->name, info->value[0] ? " " : "",
             info->value);
    format_meaning(meaning, sizeof(meaning), info, groups);
    if (strlen(left) >= OPTION_COLUMN) {
        fprintf(stream, "%s\n%*s%s\n", left, OPTION_COLUMN, "", meaning);
    } else {
        fprintf(stream, "%-*s%s\n", OPTION_COLUMN, left, meaning);
    }
}

void cli_print_help(const CliCommand *command, FILE *stream) {
    bool printed[N_OPTIONS] = {0};
    int groups = 0;
    for (int s = 0; s < MAX_SECTIONS; s++) groups |= command->sections[s].groups;
    fprintf(stream, "perilune %s: %s\n\nusage: perilune %s%s%s [OPTIONS]\n", command->name,
            command->summary, command->name, command->operand[0] ? " " : "", command->operand);
    for (int s = 0; s < MAX_SECTIONS && command->sections[s].heading; s++) {
        fprintf(stream, "\n%s:\n", command->sections[s].heading);
        for (int i = 0; i < N_OPTIONS; i++) {
            const CliOptionInfo *info = &CLI_OPTIONS[i];
            if (printed[i] || !(info->groups & command->sections[s].groups)) continue;
            printed[i] = true;
            print_option(info, groups, stream);
        }
    }
    fprintf(stream, "\n%s", command->details);
}
