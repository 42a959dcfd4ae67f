#include "frontend/commands/train_islands.h"

#include "frontend/commands/train_prompts.h"
#include "frontend/units.h"
#include "ir/base/clock.h"
#include "ir/base/version.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_TIMEOUT_S = 3600, MOST_TOKEN_BYTES = 191 };
static const double DEFAULT_MIX = 0.5; /* Douillard et al. 2025's, of meetings behind training */

/* --- options --- */

static bool fail(Diag *diag, const char *option, const char *text) {
    diag_error(diag, NO_LOC, "train: --%s: %s", option, text);
    return false;
}

/* As if it had been given as the option. False: reported. */
static bool number_from_environment(CliArgs *args, CliOption option, const char *name, Diag *diag) {
    const char *text = getenv(name);
    CliValue *value = &args->values[option];
    const CliOptionInfo *info = &CLI_OPTIONS[option];
    if (value->given || !text) return true;
    int64_t number;
    if (!cli_parse_int(text, &number) || (double)number < info->least ||
        (double)number > info->most) {
        diag_error(diag, NO_LOC, "%s is '%s'; use a number from %.10g to %.10g, as --%s", name,
                   text, info->least, info->most, info->name);
        return false;
    }
    *value = (CliValue){.given = true, .integer = number};
    return true;
}

static bool from_environment(CliArgs *args, Diag *diag) {
    const char *address = getenv("PERILUNE_ISLAND_ADDRESS");
    CliValue *value = &args->values[OPT_ISLAND_ADDRESS];
    if (address && !value->given) *value = (CliValue){.given = true, .text = address};
    return number_from_environment(args, OPT_ISLANDS, "PERILUNE_ISLANDS", diag) &&
           number_from_environment(args, OPT_ISLAND, "PERILUNE_ISLAND", diag);
}

/* HOST:PORT, an IPv6 address in brackets. */
static bool read_address(CliArgs *args, IslandsOptions *out, Diag *diag) {
    const char *text = cli_text(args, OPT_ISLAND_ADDRESS, NULL);
    if (!text) {
        return fail(diag, "island-address", "where is island 0? give HOST:PORT, the same to all");
    }
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    int64_t port = 0;
    const bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
    const bool is_plain = length > 0 && strcspn(text, ":[]") == length;
    if (!colon || !cli_parse_int(colon + 1, &port) || port < 1 || port > 65535 ||
        !(bracketed || is_plain)) {
        diag_error(diag, NO_LOC,
                   "train: --island-address: '%s' is not HOST:PORT, as in 10.0.0.5:29600 or "
                   "[fd00::5]:29600",
                   text);
        return false;
    }
    if (bracketed) {
        text++;
        length -= 2;
    }
    out->host = arena_strndup(args->arena, text, length);
    out->port = (int)port;
    return true;
}

bool train_islands_dtype(const CliArgs *args, DType *out, Diag *diag) {
    static const DType ALL[] = {DTYPE_F32, DTYPE_BF16, DTYPE_NF4};
    const char *name = cli_text(args, OPT_OUTER_DTYPE, "f32");
    for (size_t i = 0; i < sizeof(ALL) / sizeof(ALL[0]); i++) {
        *out = ALL[i];
        if (strcmp(name, dtype_name(*out)) == 0) return true;
    }
    diag_error(diag, NO_LOC, "--outer-dtype: '%s' is none of f32, bf16 and nf4", name);
    return false;
}

/* How parts meet: several, and behind training. False: reported. */
static bool read_turns(const CliArgs *args, OuterTurns *out, Diag *diag) {
    out->every = cli_int(args, OPT_OUTER_EVERY, 1);
    out->n_parts = (int)cli_int(args, OPT_OUTER_PARTS, 1);
    out->overlap = cli_int(args, OPT_OUTER_OVERLAP, 0);
    out->mix = cli_real(args, OPT_OUTER_MIX, out->overlap ? DEFAULT_MIX : 0);
    if (out->n_parts > out->every) {
        diag_error(diag, NO_LOC,
                   "train: --outer-parts: %d parts in %" PRId64
                   " steps (--outer-every): each needs a step of its own",
                   out->n_parts, out->every);
        return false;
    }
    if (out->overlap >= out->every) {
        diag_error(
            diag, NO_LOC,
            "train: --outer-overlap: what is sent must be back before it is sent again: give "
            "less than --outer-every %" PRId64,
            out->every);
        return false;
    }
    if (!cli_given(args, OPT_OUTER_MIX) || out->overlap) return true;
    return fail(diag, "outer-mix", "is for --outer-overlap: without, all have the new weights");
}

static bool read_token(IslandsOptions *out, Diag *diag) {
    const char *token = getenv("PERILUNE_JOB_TOKEN");
    out->token = token ? token : "";
    if (!token || (token[0] && strlen(token) <= MOST_TOKEN_BYTES)) return true;
    diag_error(diag, NO_LOC, "PERILUNE_JOB_TOKEN is %s; use 1 to %d characters",
               token[0] ? "too long" : "empty", MOST_TOKEN_BYTES);
    return false;
}

bool train_islands_options(CliArgs *args, bool (*stopped)(void), TrainIslands *out, Diag *diag) {
    static const CliOption OTHERS[] = {
        OPT_ISLAND,      OPT_ISLAND_ADDRESS, OPT_OUTER_EVERY, OPT_OUTER_LR,      OPT_OUTER_MOMENTUM,
        OPT_OUTER_DTYPE, OPT_OUTER_TIMEOUT,  OPT_OUTER_PARTS, OPT_OUTER_OVERLAP, OPT_OUTER_MIX};
    *out = (TrainIslands){0};
    if (!from_environment(args, diag)) return false;
    for (size_t i = 0; i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++) {
        if (cli_given(args, OPT_ISLANDS) || !cli_given(args, OTHERS[i])) continue;
        return fail(diag, CLI_OPTIONS[OTHERS[i]].name, "of how many islands? give --islands N");
    }
    if (!cli_given(args, OPT_ISLANDS)) return true;
    IslandsOptions *options = &out->options;
    options->n_islands = (int)cli_int(args, OPT_ISLANDS, 1);
    options->island = (int)cli_int(args, OPT_ISLAND, 0);
    if (!cli_given(args, OPT_ISLAND) && options->n_islands > 1) {
        return fail(diag, "island", "which one is this? give a number from 0, another to each");
    }
    if (options->island >= options->n_islands) {
        diag_error(diag, NO_LOC, "train: --island: %d is no number of %d islands: from 0 to %d",
                   options->island, options->n_islands, options->n_islands - 1);
        return false;
    }
    if (!cli_given(args, OPT_OUTER_EVERY)) {
        return fail(diag, "outer-every", "after how many steps do islands meet? give N");
    }
    options->rule = (OuterRule){.lr = cli_real(args, OPT_OUTER_LR, 0.7),
                                .momentum = cli_real(args, OPT_OUTER_MOMENTUM, 0.9)};
    options->timeout_s = (double)cli_int(args, OPT_OUTER_TIMEOUT, DEFAULT_TIMEOUT_S);
    options->version = PERILUNE_VERSION;
    options->stopped = stopped;
    return read_turns(args, &out->turns, diag) &&
           train_islands_dtype(args, &options->dtype, diag) && read_token(options, diag) &&
           (options->n_islands == 1 || read_address(args, options, diag));
}

bool train_islands_check(const CliArgs *args, const Plan *plan, const TrainIslands *islands,
                         Diag *diag) {
    if (!islands->turns.every) return true;
    if (cli_given(args, OPT_BATCH_RAMP)) {
        return fail(diag, "batch-ramp", "is not for --islands: they share samples by one batch");
    }
    if (train_prompts_asked(args, plan)) {
        return fail(diag, "islands", "are not for what learns from answers to prompts");
    }
    return true;
}

/* --- beginning and end --- */

/* What must be the same on all islands: lines, of which the first that is not is told. */
static const char *make_recipe(const CliArgs *args, const TrainData *data, const LrSchedule *rate,
                               const TrainIslands *islands) {
    const IslandsOptions *options = &islands->options;
    const Plan *plan = data->plan;
    const CliValue *skips = &args->values[OPT_SKIP_SAMPLES];
    StrBuf out = strbuf_create();
    char text[192];
    strbuf_printf(&out, "--outer-every %" PRId64 "\n--outer-lr %.9g\n--outer-momentum %.9g\n",
                  islands->turns.every, options->rule.lr, options->rule.momentum);
    strbuf_printf(&out, "--outer-parts %d\n--outer-overlap %" PRId64 "\n--outer-mix %.9g\n",
                  islands->turns.n_parts, islands->turns.overlap, islands->turns.mix);
    strbuf_printf(&out, "--outer-dtype %s\n--steps %" PRId64 "\n", dtype_name(options->dtype),
                  rate->n_steps);
    strbuf_printf(&out, "--global-batch %d\nseq %" PRId64 "\n--seed %" PRIu64 "\n",
                  plan->global_batch, plan->seq, plan->seed);
    lr_schedule_describe(rate, text, sizeof(text));
    strbuf_printf(&out, "learning rate %s\n", text);
    train_data_name(data, text, sizeof(text));
    strbuf_printf(&out, "data of %s\n", text);
    for (int i = 0; i < skips->n_list && out.length < ISLANDS_RECIPE_BYTES / 2; i++)
        strbuf_printf(&out, "--skip-samples %.64s\n", skips->list[i]);
    const char *recipe = arena_strdup(args->arena, out.text);
    strbuf_destroy(&out);
    return recipe;
}

bool train_islands_open(const CliArgs *args, const TrainData *data, const LrSchedule *rate,
                        Engine *engine, TrainIslands *islands, Diag *diag) {
    if (!islands->turns.every) return true;
    islands->turns.n_steps = rate->n_steps;
    islands->options.recipe = make_recipe(args, data, rate, islands);
    islands->options.stream = cli_given(args, OPT_QUIET) ? NULL : stderr;
    islands->engine = engine_islands_create(engine, &islands->options, &islands->turns, diag);
    return islands->engine;
}

bool train_islands_start(TrainIslands *islands, const char *from, TrainingPlace *place, bool quiet,
                         Diag *diag) {
    if (!islands->engine) {
        place->n_islands = 0; /* whatever the checkpoint was of */
        return true;
    }
    IslandsResult result = engine_islands_start(islands->engine, from, place, diag);
    if (result == ISLANDS_TAKEN && !quiet) {
        printf("island  takes the weights of island 0: goes on after step %" PRId64 "\n",
               place->step);
    }
    return result == ISLANDS_MET || result == ISLANDS_TAKEN;
}

void train_islands_close(TrainIslands *islands, const char *why) {
    engine_islands_destroy(islands->engine, why);
    islands->engine = NULL;
}

/* --- meetings --- */

int train_islands_count(const TrainIslands *islands) {
    return islands->turns.every ? islands->options.n_islands : 1;
}

int train_islands_own(const TrainIslands *islands) {
    return islands->turns.every ? islands->options.island : 0;
}

bool train_islands_lack_end(const TrainIslands *islands, const TrainingPlace *place,
                            int64_t n_steps) {
    bool lacks = place->met_step < place->step;
    for (int p = 0; p < place->n_parts; p++) lacks |= place->turns[p].met < place->step;
    return islands->engine && place->step == n_steps && lacks;
}

bool train_islands_due(const TrainIslands *islands, const TrainingPlace *place) {
    return islands->engine && engine_islands_are_due(islands->engine, place);
}

/* "part 2 of 3, "; "" where all are one. */
static void put_part(StrBuf *out, const TrainIslands *islands, const MeetingReport *report) {
    const int n_parts = islands->turns.n_parts;
    if (n_parts == 1) return;
    if (report->n_parts == 1) {
        strbuf_printf(out, "part %d of %d, ", report->part + 1, n_parts);
    } else {
        strbuf_printf(out, "%d meetings of parts, ", report->n_parts);
    }
}

/* "outer   step 3, after step 30: 2 of 2 islands, norm 0.123, 0.52 s (0.10 waiting), 6.3 MiB". */
static void tell(const TrainIslands *islands, const TrainingPlace *place,
                 const MeetingReport *report, double seconds) {
    const int n = islands->options.n_islands;
    const IslandsReport *all = &report->all;
    StrBuf out = strbuf_create();
    char bytes[32];
    units_format_bytes(bytes, sizeof(bytes), all->bytes);
    strbuf_put(&out, "outer   ");
    put_part(&out, islands, report);
    strbuf_printf(&out, "step %" PRId64 ", after step %" PRId64, place->n_meetings,
                  report->sent_step);
    if (report->sent_step < place->step)
        strbuf_printf(&out, ", merged after %" PRId64, place->step);
    strbuf_printf(&out, ": %d of %d island%s, norm %.4g, %.2f s (%.2f waiting), ", all->n_present,
                  n, n == 1 ? "" : "s", all->norm, seconds, all->wait_seconds);
    if (islands->turns.overlap)
        strbuf_printf(&out, "%.2f s behind training, ", report->hidden_seconds);
    strbuf_put(&out, bytes);
    const char *before = "; without island ";
    for (int i = 0; i < n; i++) {
        if (!all->missing[i]) continue;
        strbuf_printf(&out, "%s%d", before, i);
        before = ", ";
    }
    fprintf(stderr, "%s\n", out.text);
    strbuf_destroy(&out);
}

static void put_metrics(const TrainIslands *islands, const MeetingReport *report,
                        const TrainingPlace *place, double seconds, StepMetrics *out) {
    out->outer_step = place->n_meetings;
    out->outer_seconds = seconds;
    out->outer_norm = report->all.norm;
    out->outer_islands = report->all.n_present;
    out->outer_bytes = report->all.bytes;
    if (islands->turns.n_parts > 1 && report->n_parts == 1) out->outer_part = report->part + 1;
    out->has_outer_hidden = islands->turns.overlap > 0;
    out->outer_wait_seconds = report->all.wait_seconds;
    out->outer_hidden_seconds = report->hidden_seconds;
}

/* Island 0's weights and place are this one's now. */
static void tell_taken(const TrainingPlace *place, bool quiet) {
    if (quiet) return;
    fprintf(stderr, "outer   weights of island 0 taken: goes on after step %" PRId64 "\n",
            place->step);
}

bool train_islands_meet(TrainIslands *islands, TrainingPlace *place, StepMetrics *metrics,
                        Progress *progress, bool quiet, Diag *diag) {
    const double begun = clock_now();
    MeetingReport report;
    IslandsResult result = engine_islands_meet(islands->engine, place, &report, diag);
    const double seconds = clock_now() - begun + islands->unsaid_seconds;
    islands->is_stopped = result == ISLANDS_STOPPED;
    if (result == ISLANDS_STOPPED) return true;
    if (result == ISLANDS_FAILED) return false;
    islands->seconds += seconds - islands->unsaid_seconds;
    islands->bytes += report.all.bytes;
    islands->unsaid_seconds = seconds;
    if (result == ISLANDS_MET && report.n_parts == 0) return true; /* only sent */
    islands->unsaid_seconds = 0;
    if (!quiet) progress_finish(progress);
    if (result == ISLANDS_TAKEN) {
        tell_taken(place, quiet);
        return true;
    }
    islands->n_met += report.n_parts;
    islands->wait_seconds += report.all.wait_seconds;
    islands->hidden_seconds += report.hidden_seconds;
    islands->n_missed += islands->options.n_islands - report.all.n_present;
    if (metrics) put_metrics(islands, &report, place, seconds, metrics);
    if (!quiet) tell(islands, place, &report, seconds);
    return true;
}

bool train_islands_settle(TrainIslands *islands, TrainingPlace *place, bool gives_up,
                          Progress *progress, bool quiet, Diag *diag) {
    if (!islands->engine || !islands->turns.overlap) return true;
    const double begun = clock_now();
    IslandsResult result = engine_islands_settle(islands->engine, place, gives_up, diag);
    const double seconds = clock_now() - begun;
    islands->seconds += seconds;
    islands->unsaid_seconds += seconds;
    if (result == ISLANDS_TAKEN && !quiet) progress_finish(progress);
    if (result == ISLANDS_TAKEN) tell_taken(place, quiet);
    return result != ISLANDS_FAILED;
}

/* --- words --- */

int64_t train_islands_bytes(const TrainIslands *islands) {
    return islands->engine ? engine_islands_bytes(islands->engine) : 0;
}

void train_islands_print(const TrainIslands *islands) {
    const IslandsOptions *options = &islands->options;
    const OuterTurns *turns = &islands->turns;
    char bytes[32], memory[32];
    if (!islands->engine) return;
    const int64_t n = engine_islands_largest(islands->engine);
    units_format_bytes(bytes, sizeof(bytes), (int64_t)outer_bytes(options->dtype, n));
    units_format_bytes(memory, sizeof(memory), engine_islands_bytes(islands->engine));
    printf("island  %d of %d; every %" PRId64 " steps ", options->island, options->n_islands,
           turns->every);
    if (turns->n_parts > 1) {
        printf("each of %d parts meets: %s each way at most", turns->n_parts, bytes);
    } else {
        printf("all meet: %s each way", bytes);
    }
    if (turns->overlap)
        printf(", merged %" PRId64 " steps later (mix %g)", turns->overlap, turns->mix);
    printf(", outer rate %g, momentum %g; %s of memory more\n", options->rule.lr,
           options->rule.momentum, memory);
    if (options->island) printf("        island 0 validates and saves weights\n");
}

void train_islands_print_end(const TrainIslands *islands) {
    char bytes[32];
    if (islands->n_met == 0) return;
    units_format_bytes(bytes, sizeof(bytes), islands->bytes);
    printf("outer   %" PRId64 " meeting%s, %.1f s of them (%.1f waiting), %s", islands->n_met,
           islands->n_met == 1 ? "" : "s", islands->seconds, islands->wait_seconds, bytes);
    if (islands->turns.overlap) printf("; %.1f s behind training", islands->hidden_seconds);
    if (islands->n_missed > 0) {
        printf("; %" PRId64 " time%s an island's share was lacking", islands->n_missed,
               islands->n_missed == 1 ? "" : "s");
    }
    printf("\n");
}
