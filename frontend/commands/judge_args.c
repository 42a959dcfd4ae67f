#include "frontend/commands/judge_args.h"

#include "frontend/commands/engine_args.h"
#include "frontend/commands/plan_args.h"

#include <inttypes.h>

enum { DEFAULT_SECONDS = 300 };

bool judge_is_given(const CliArgs *args) {
    return cli_given(args, OPT_REWARD) || cli_given(args, OPT_REWARD_COMMAND) ||
           cli_given(args, OPT_REWARD_LOAD) || judge_compares(args);
}

bool judge_compares(const CliArgs *args) {
    return cli_given(args, OPT_PREFER) || cli_given(args, OPT_PREFER_COMMAND);
}

bool judge_check_args(const CliArgs *args, Diag *diag) {
    static const CliOption JUDGES[] = {OPT_REWARD, OPT_REWARD_COMMAND, OPT_REWARD_LOAD, OPT_PREFER,
                                       OPT_PREFER_COMMAND};
    CliOption first = N_OPTIONS;
    if (cli_given(args, OPT_REWARD_MODEL) && !cli_given(args, OPT_REWARD_LOAD)) {
        diag_error(diag, NO_LOC, "--reward-model: with which weights? give --reward-load FILE");
        return false;
    }
    for (size_t i = 0; i < sizeof(JUDGES) / sizeof(JUDGES[0]); i++) {
        if (!cli_given(args, JUDGES[i])) continue;
        if (first != N_OPTIONS) {
            diag_error(diag, NO_LOC, "--%s and --%s: one of them", CLI_OPTIONS[first].name,
                       CLI_OPTIONS[JUDGES[i]].name);
            return false;
        }
        first = JUDGES[i];
    }
    return true;
}

/* A plan of one rank of the model that judges, with the settings that its weights were made with,
 * or the plan that is given. */
static Plan *plan_judge(CliArgs *args, int n_rows, Diag *diag) {
    const char *model = cli_text(args, OPT_REWARD_MODEL, args->operand);
    CliArgs *own = ARENA_NEW(args->arena, CliArgs);
    *own = (CliArgs){.arena = args->arena, .command = args->command, .operand = model};
    if (!plan_is_model(model) && !cli_given(args, OPT_REWARD_MODEL)) {
        diag_error(
            diag, NO_LOC,
            "--reward-load: weights of which model? give --reward-model MODEL.lua or a plan");
        return NULL;
    }
    if (plan_is_model(model)) {
        own->values[OPT_SET_FROM] = args->values[OPT_REWARD_LOAD];
        own->values[OPT_PRECISION] = args->values[OPT_PRECISION];
        own->values[OPT_DEVICE] = args->values[OPT_DEVICE];
        own->values[OPT_MICRO_BATCH] = own->values[OPT_GLOBAL_BATCH] =
            (CliValue){.given = true, .integer = n_rows};
    }
    return plan_from_operand(own, diag);
}

static Judge *open_model(CliArgs *args, const JudgedModel *of, int64_t *out_bytes, Diag *diag) {
    Plan *plan = plan_judge(args, of->n_at_once, diag);
    if (!plan) return NULL;
    if (plan->vocab != of->vocab) {
        diag_error(diag, NO_LOC,
                   "--reward-model: has %" PRId64 " tokens, the model that answers %" PRId64
                   ": they must be the same",
                   plan->vocab, of->vocab);
        return NULL;
    }
    EngineOptions alone = *of->options;
    alone.control = NULL;
    alone.rank = 0;
    alone.several_hosts = false;
    Engine *engine = engine_create(plan, &alone, diag);
    if (!engine || !engine_load(engine, cli_text(args, OPT_REWARD_LOAD, ""), diag)) {
        engine_destroy(engine);
        return NULL;
    }
    *out_bytes = engine_arena_bytes(engine);
    return judge_open_model(plan, engine, of->pad, diag);
}

Judge *judge_from_args(CliArgs *args, const JudgedModel *of, int64_t *out_bytes, Diag *diag) {
    const char *script = cli_text(args, OPT_REWARD, cli_text(args, OPT_PREFER, NULL));
    const char *command =
        cli_text(args, OPT_REWARD_COMMAND, cli_text(args, OPT_PREFER_COMMAND, NULL));
    *out_bytes = 0;
    if (script) return judge_open_lua(script, args->arena, diag);
    if (!command) return open_model(args, of, out_bytes, diag);
    return judge_open_command(command, (double)cli_int(args, OPT_TIMEOUT, DEFAULT_SECONDS), diag);
}
