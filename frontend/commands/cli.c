#include "frontend/commands/cli.h"

#include "ir/base/file.h"
#include "planner/plan/plan.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const CliOptionInfo CLI_OPTIONS[N_OPTIONS] = {
#define OPTION(upper, name, letter, kind, value, least, most, groups, help)                        \
    {name, letter, KIND_##kind, value, least, most, groups, help},
#include "frontend/commands/cli_options.def"
#undef OPTION
};

static char first_error[256];

const char *cli_first_error(void) {
    return first_error;
}

int cli_usage_error(const char *format, ...) {
    va_list args, again;
    fputs("perilune: ", stderr);
    va_start(args, format);
    va_copy(again, args);
    vfprintf(stderr, format, args);
    if (!first_error[0]) vsnprintf(first_error, sizeof(first_error), format, again);
    va_end(again);
    va_end(args);
    fputc('\n', stderr);
    return EXIT_USAGE;
}

/* Does the line begin with a place, `models/gpt.lua:42: `? Then editors can jump to it. */
static bool has_place(const char *line, size_t length) {
    for (size_t i = 1; i + 2 < length && line[i] != ' '; i++) {
        if (line[i] != ':' || !isdigit((unsigned char)line[i + 1])) continue;
        size_t k = i + 1;
        while (k < length && isdigit((unsigned char)line[k])) k++;
        if (k < length && line[k] == ':') return true;
    }
    return false;
}

int cli_fail(const Diag *diag, int exit_code) {
    const char *line = diag_text(diag);
    while (*line) {
        size_t length = strcspn(line, "\n");
        bool is_note = strncmp(line, "  note: ", 8) == 0;
        if (!first_error[0]) {
            snprintf(first_error, sizeof(first_error), "%.*s", (int)length, line);
        }
        if (!is_note && !has_place(line, length)) fputs("perilune: ", stderr);
        fprintf(stderr, "%.*s\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    return exit_code;
}

const CliCommand *cli_find_command(const char *name) {
    for (const CliCommand *command = CLI_COMMANDS; command->name; command++) {
        if (strcmp(command->name, name) == 0) return command;
    }
    return NULL;
}

const char *cli_nearest_option(const char *name, int groups) {
    const char *known[N_OPTIONS + 1];
    int n_known = 0;
    for (int i = 0; i < N_OPTIONS; i++) {
        if (CLI_OPTIONS[i].groups & groups) known[n_known++] = CLI_OPTIONS[i].name;
    }
    known[n_known] = NULL;
    return nearest_name(name, known);
}

static int groups_of(const CliCommand *command) {
    int groups = 0;
    for (int s = 0; s < MAX_SECTIONS; s++) groups |= command->sections[s].groups;
    return groups;
}

static bool takes(const CliCommand *command, int option) {
    return CLI_OPTIONS[option].groups & groups_of(command);
}

/* Says what is wrong with an option that the command does not take, and what might be meant. */
static int unknown_option(const CliCommand *command, const char *given, const char *name) {
    const char *nearest = cli_nearest_option(name, groups_of(command));
    if (nearest) {
        return cli_usage_error("%s: unknown option '%s'; did you mean --%s?", command->name, given,
                               nearest);
    }
    for (int i = 0; i < N_OPTIONS; i++) {
        if (strcmp(CLI_OPTIONS[i].name, name) != 0) continue;
        for (const CliCommand *other = CLI_COMMANDS; other->name; other++) {
            if (takes(other, i)) {
                return cli_usage_error("%s: '%s' is an option of %s; see perilune help %s",
                                       command->name, given, other->name, command->name);
            }
        }
    }
    return cli_usage_error("%s: unknown option '%s'; see perilune help %s", command->name, given,
                           command->name);
}

const char *cli_next_cluster(const CliArgs *args, const char **text) {
    const char *name = *text, *comma = args->command->run == cmd_rent ? strchr(name, ',') : NULL;
    *text = comma ? comma + 1 : NULL;
    return comma ? arena_strndup(args->arena, name, (size_t)(comma - name)) : name;
}

bool cli_parse_int(const char *text, int64_t *out) {
    char *end;
    if (!isdigit((unsigned char)text[text[0] == '-'])) return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static int set_int(CliValue *value, const CliOptionInfo *info, const char *text) {
    if (!cli_parse_int(text, &value->integer)) {
        return cli_usage_error("--%s: '%s' is not a whole number", info->name, text);
    }
    double number = (double)value->integer;
    if (number < info->least) {
        return cli_usage_error("--%s: %s is less than %.0f", info->name, text, info->least);
    }
    if (number > info->most) {
        return cli_usage_error("--%s: %s is more than %.0f", info->name, text, info->most);
    }
    return -1;
}

bool cli_parse_real(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end > text && !*end && isfinite(*out);
}

static int set_real(CliValue *value, const CliOptionInfo *info, const char *text) {
    if (!cli_parse_real(text, &value->real)) {
        return cli_usage_error("--%s: '%s' is not a number", info->name, text);
    }
    if (value->real < info->least || value->real > info->most) {
        return cli_usage_error("--%s: %s is not from %g to %g", info->name, text, info->least,
                               info->most);
    }
    return -1;
}

static int set_value(CliArgs *args, int option, const char *text) {
    const CliOptionInfo *info = &CLI_OPTIONS[option];
    CliValue *value = &args->values[option];
    value->given = true;
    value->text = text;
    switch (info->kind) {
    case KIND_INT: return set_int(value, info, text);
    case KIND_REAL: return set_real(value, info, text);
    case KIND_READS:
        if (value->n_list == CLI_MOST_READS) {
            return cli_usage_error("--%s: given more than %d times", info->name, CLI_MOST_READS);
        }
        ARENA_PUSH(args->arena, value->list, value->n_list, value->list_capacity, text);
        return -1;
    case KIND_LIST:
        ARENA_PUSH(args->arena, value->list, value->n_list, value->list_capacity, text);
        return -1;
    case KIND_FLAG:
    case KIND_READ:
    case KIND_WRITE:
    case KIND_TEXT: return -1;
    }
    return -1;
}

/* `--name`, `--name=value` or `-o`: the option, or -1. *out_value: what follows '=', or NULL. */
static int find_option(const CliCommand *command, const char *given, char *out_name,
                       size_t name_size, const char **out_value) {
    const char *name = given + (given[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    *out_value = equals ? equals + 1 : NULL;
    snprintf(out_name, name_size, "%.*s", (int)(length < name_size ? length : name_size - 1), name);
    for (int i = 0; i < N_OPTIONS; i++) {
        const CliOptionInfo *info = &CLI_OPTIONS[i];
        bool same = given[1] == '-'
                        ? strlen(info->name) == length && strncmp(info->name, name, length) == 0
                        : length == 1 && info->letter == name[0];
        if (same && takes(command, i)) return i;
    }
    return -1;
}

static int parse_option(CliArgs *args, int argc, char **argv, int *at) {
    const char *given = argv[*at], *text;
    char name[64];
    int option = find_option(args->command, given, name, sizeof(name), &text);
    if (option < 0) return unknown_option(args->command, given, name);
    const CliOptionInfo *info = &CLI_OPTIONS[option];
    if (info->kind == KIND_FLAG) {
        if (text) return cli_usage_error("--%s takes no value", info->name);
    } else if (!text) {
        if (*at + 1 >= argc) {
            return cli_usage_error("--%s needs a value: --%s %s", info->name, info->name,
                                   info->value);
        }
        text = argv[++*at];
    }
    int status = set_value(args, option, text);
    if (status < 0 && option == OPT_HELP) {
        cli_print_help(args->command, stdout);
        return EXIT_DONE;
    }
    return status;
}

/* Word `index` of the command's operands; "" behind the last, unless that is for several. */
static const char *operand_word(const CliCommand *command, int index, int *out_length) {
    const char *word = command->operand;
    for (; index > 0 && *word; index--) {
        const char *end = word + strcspn(word, " ");
        if (!*end && end - word > 3 && strcmp(end - 3, "...") == 0) break;
        word = end + strspn(end, " ");
    }
    *out_length = (int)strcspn(word, " ");
    return word;
}

static int add_operand(CliArgs *args, const char *text) {
    const CliCommand *command = args->command;
    int length;
    if (*operand_word(command, args->n_operands, &length) && args->n_operands < MAX_OPERANDS) {
        args->operands[args->n_operands++] = text;
        args->operand = args->operands[0];
        return -1;
    }
    if (args->n_operands == MAX_OPERANDS) {
        return cli_usage_error("%s: takes at most %d operands; a folder stands for its files",
                               command->name, MAX_OPERANDS);
    }
    if (!command->operand[0]) {
        return cli_usage_error("%s: takes options only; what is '%s'?", command->name, text);
    }
    return cli_usage_error("%s: takes %s%s; what is '%s'?", command->name,
                           args->n_operands == 1 ? "one " : "", command->operand, text);
}

int cli_parse(CliArgs *args, int argc, char **argv) {
    const CliCommand *command = args->command;
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        int status = -1;
        if (!options_end && strcmp(argv[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && argv[i][0] == '-' && argv[i][1]) {
            status = parse_option(args, argc, argv, &i);
        } else {
            status = add_operand(args, argv[i]);
        }
        if (status >= 0) return status;
    }
    int length;
    const char *missing = operand_word(command, args->n_operands, &length);
    if (!*missing || *missing == '[') return -1;
    return cli_usage_error("%s: which %.*s? see perilune help %s", command->name, length, missing,
                           command->name);
}

int64_t cli_int(const CliArgs *args, CliOption option, int64_t absent) {
    return args->values[option].given ? args->values[option].integer : absent;
}

double cli_real(const CliArgs *args, CliOption option, double absent) {
    return args->values[option].given ? args->values[option].real : absent;
}

const char *cli_text(const CliArgs *args, CliOption option, const char *absent) {
    return args->values[option].given ? args->values[option].text : absent;
}

bool cli_write(const char *path, const StrBuf *text, Diag *diag) {
    if (path && strcmp(path, "-") != 0) return file_write(path, text->text, text->length, diag);
    if (fwrite(text->text, 1, text->length, stdout) == text->length && fflush(stdout) == 0) {
        return true;
    }
    diag_error(diag, NO_LOC, "standard output: %s", strerror(errno));
    return false;
}
