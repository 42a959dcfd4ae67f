#include "frontend/commands/choices_args.h"

#include "frontend/commands/generate_causal.h"
#include "frontend/commands/train_images.h"

#include <stdio.h>
#include <string.h>

bool choices_args_way(const CliArgs *args, ChoicesWay *out, Diag *diag) {
    static const CliOption OF_CHOICES[] = {OPT_TASK, OPT_SHOTS, OPT_SHOTS_FROM, OPT_CHOICES_LIMIT};
    const char *task = cli_text(args, OPT_TASK, NULL);
    out->who = args->command->name;
    out->task = task;
    out->n_shots = (int)cli_int(args, OPT_SHOTS, 0);
    out->shots_path = cli_text(args, OPT_SHOTS_FROM, NULL);
    out->seed = (uint64_t)cli_int(args, OPT_SEED, 1);
    out->limit = cli_int(args, OPT_CHOICES_LIMIT, 0);
    out->predicts = cli_given(args, OPT_PREDICTIONS);
    for (size_t i = 0; i < sizeof(OF_CHOICES) / sizeof(OF_CHOICES[0]); i++) {
        if (!cli_given(args, OF_CHOICES[i]) || cli_given(args, OPT_CHOICES)) continue;
        if (cli_given(args, OPT_PROBLEMS)) continue;
        diag_error(diag, NO_LOC, "%s: --%s: is for --choices%s", args->command->name,
                   CLI_OPTIONS[OF_CHOICES[i]].name,
                   args->command->run == cmd_evaluate ? " and --problems" : "");
        return false;
    }
    if (out->shots_path && out->n_shots == 0) {
        diag_error(diag, NO_LOC, "%s: --shots-from: how many of them? give --shots K",
                   args->command->name);
        return false;
    }
    if (!task || strcmp(task, BENCHMARK_OWN) == 0 || benchmark_by_name(task)) return true;
    diag_error(diag, NO_LOC, "%s: --task: '%.60s' is none of %s", args->command->name, task,
               benchmark_names(args->arena, false));
    return false;
}

bool choices_args_check_plan(const CliArgs *args, const Plan *plan, Diag *diag) {
    const char *who = args->command->name;
    if (train_images_refuse(plan, "--choices", diag)) return false;
    if (!generate_check_plan(who, args->arena, plan, diag)) return false;
    if (plan_source(plan) == 0) return true;
    diag_error(diag, NO_LOC,
               "%s: --choices are behind their prompt, and this model has an encoder for it: give "
               "--data of prompts with completions",
               who);
    return false;
}

bool choices_args_check_job(const CliArgs *args, const EngineOptions *options, Diag *diag) {
    if (!options->control) return true;
    diag_error(diag, NO_LOC, "%s: --choices as whole sequences are for one process",
               args->command->name);
    diag_note(diag, NO_LOC, "several divide them by caches: %s",
              args->command->run == cmd_evaluate ? "without --data and --no-cache, by t and d alone"
                                                 : "of a MODEL.lua, without --no-cache");
    return false;
}

bool choices_args_texts(const CliArgs *args, const Tokenizer *tokenizer, ChoiceTexts *out,
                        Diag *diag) {
    const CliValue *bos = &args->values[OPT_BOS];
    *out = (ChoiceTexts){.tokenizer = tokenizer, .first = NO_TOKEN};
    if (!bos->given) return true;
    out->first = tokenizer_find_added(tokenizer, bos->text, "bos", diag);
    return out->first != NO_TOKEN;
}

bool choices_args_check_rows(const CliArgs *args, Diag *diag) {
    static const CliOption OF_CACHES[] = {OPT_SIDE_BY_SIDE, OPT_WRITE_OVER};
    for (size_t i = 0; i < sizeof(OF_CACHES) / sizeof(OF_CACHES[0]); i++) {
        if (!cli_given(args, OF_CACHES[i])) continue;
        diag_error(diag, NO_LOC, "%s: --%s: is for caches, and choices have none here",
                   args->command->name, CLI_OPTIONS[OF_CACHES[i]].name);
        return false;
    }
    return true;
}

void choices_args_note_rows(const CliArgs *args, const EngineOptions *options,
                            const DecodeObstacle *obstacle) {
    const SourceLoc loc = obstacle->loc;
    if (options->rank > 0 || cli_given(args, OPT_QUIET)) return;
    fprintf(stderr, "note: choices are scored by whole sequences: ");
    if (loc.file) fprintf(stderr, "%s:%d: ", loc.file, loc.line);
    fprintf(stderr, "%s\n", obstacle->what);
}
