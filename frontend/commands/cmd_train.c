/* perilune train: a plan, a text and a number of steps -> weights, a log, a verdict. */
#include "frontend/commands/plan_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/teacher_args.h"
#include "frontend/commands/train_alike.h"
#include "frontend/commands/train_reference.h"
#include "frontend/commands/train_run.h"
#include "frontend/commands/train_trace.h"
#include "frontend/units.h"
#include "ir/base/clock.h"
#include "ir/base/temporary.h"
#include "planner/plan/plan_library.h"
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_STEPS = 1000 };

static _Atomic double interrupted_at; /* 0: not yet */
static const double AGAIN_S = 1;

/* The first one: this step is the last. Another ends the program at once, unless it comes within a
 * second: timeout(1) sends its own to the program and to its group, a terminal and a launcher may
 * both pass on one Ctrl-C, and the last checkpoint would be lost. */
static void on_interrupt(int number) {
    static const char text[] = "\ninterrupted: ending after this step (again: at once)\n";
    double first = 0, now = clock_now();
    if (atomic_compare_exchange_strong(&interrupted_at, &first, now)) {
        if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) return;
    } else if (now - first >= AGAIN_S) {
        temporary_remove_all();
        signal(number, SIG_DFL);
        raise(number); /* once the handler has returned */
    }
}

static bool is_interrupted(void) {
    return atomic_load(&interrupted_at) > 0;
}

/* But for those that are ignored: nohup does so, and a shell for jobs in its background. */
static void catch_interrupts(void) {
    static const int ENDING[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 3; i++) {
        bool ignored = sigaction(ENDING[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN;
        if (!ignored) sigaction(ENDING[i], &action, NULL);
    }
}

/* What can be said without looking at a file. */
static bool check_options(TrainRun *run) {
    if (!train_data_options(run->args, run->diag)) return false;
    if (cli_given(run->args, OPT_LOAD_TRAINED) && !cli_given(run->args, OPT_LOAD)) {
        diag_error(run->diag, NO_LOC,
                   "train: --load-trained: over which weights? give --load FILE");
        return false;
    }
    if (cli_given(run->args, OPT_PROFILE) && !cli_given(run->args, OPT_TRACE_FILE) &&
        !cli_given(run->args, OPT_STRAGGLERS)) {
        diag_error(run->diag, NO_LOC,
                   "train: --profile: predicts what --trace FILE or --stragglers N measures");
        return false;
    }
    if (cli_int(run->args, OPT_EVAL_EVERY, 0) > 0 && !cli_given(run->args, OPT_VAL) &&
        !cli_given(run->args, OPT_CHOICES) && cli_real(run->args, OPT_VAL_FRACTION, 1) == 0) {
        diag_error(run->diag, NO_LOC,
                   "train: --eval-every: --val-fraction 0 leaves nothing to validate on");
        return false;
    }
    LrDecay decay;
    const char *name = cli_text(run->args, OPT_LR_SCHEDULE, "cosine");
    if (!lr_decay_parse(name, &decay)) {
        diag_error(run->diag, NO_LOC, "--lr-schedule: '%s' is none of " LR_DECAY_NAMES, name);
        return false;
    }
    if (cli_given(run->args, OPT_MIN_LR) && decay == LR_CONSTANT) {
        diag_error(run->diag, NO_LOC,
                   "train: --min-lr: --lr-schedule constant never goes down to it");
        return false;
    }
    return train_stragglers_from_args(run->args, &run->stragglers, run->diag) &&
           train_skips_from_args(run->args, &run->skips, run->diag) &&
           train_spikes_from_args(run->args, &run->spikes, run->diag) &&
           train_islands_options(run->args, is_interrupted, &run->islands, run->diag) &&
           train_checkpoint_options(run->args, &run->checkpoint, run->diag);
}

/* A number of steps, or a share of all; what the command line leaves open the model says. */
static bool set_decay(TrainRun *run) {
    LrSchedule *rate = &run->rate;
    const char *said = run->plan->lr_schedule[0] ? run->plan->lr_schedule : "cosine";
    const char *name = cli_text(run->args, OPT_LR_SCHEDULE, said);
    if (!lr_decay_parse(name, &rate->decay)) {
        diag_error(run->diag, NO_LOC,
                   "train: the plan's learning-rate schedule '%s' is none of " LR_DECAY_NAMES,
                   name);
        return false;
    }
    bool has_end = lr_decay_has_end(rate->decay);
    if (cli_given(run->args, OPT_DECAY_STEPS) && !has_end) {
        diag_error(run->diag, NO_LOC,
                   "train: --decay-steps: goes with wsd, wsd-linear and inverse-sqrt; %s decays %s",
                   name, rate->decay == LR_CONSTANT ? "never" : "all along");
        return false;
    }
    double preset = rate->decay == LR_INVERSE_SQRT ? 0 : 0.2;
    if (has_end && run->plan->decay_steps > 0) preset = run->plan->decay_steps;
    double steps = cli_real(run->args, OPT_DECAY_STEPS, preset);
    const char *who = cli_given(run->args, OPT_DECAY_STEPS) ? "--decay-steps"
                                                            : "decay_steps of the plan's recipe";
    if (steps >= 1 && steps != floor(steps)) {
        diag_error(run->diag, NO_LOC,
                   "train: %s: %g is neither a whole number of steps nor a share below 1", who,
                   steps);
        return false;
    }
    rate->n_decay_steps = (int64_t)(steps < 1 ? round(steps * (double)run->n_steps) : steps);
    if (rate->n_decay_steps > run->n_steps) {
        diag_error(run->diag, NO_LOC,
                   "train: %s: %" PRId64 " are more than the run's %" PRId64
                   " steps; --decay-steps takes a share, too",
                   who, rate->n_decay_steps, run->n_steps);
        return false;
    }
    bool falls = has_end ? rate->n_decay_steps > 0 : rate->decay != LR_CONSTANT;
    if (!cli_given(run->args, OPT_MIN_LR) || falls) return true;
    diag_error(run->diag, NO_LOC, "train: --min-lr: --lr-schedule %s never goes down to it%s", name,
               has_end ? " without --decay-steps" : "");
    return false;
}

/* False: reported. */
static bool set_rate(TrainRun *run) {
    run->n_steps = cli_int(run->args, OPT_STEPS, DEFAULT_STEPS);
    run->last_step = cli_int(run->args, OPT_STOP_AT, run->n_steps);
    if (run->last_step > run->n_steps) {
        diag_error(run->diag, NO_LOC, "train: --stop-at: the run has %" PRId64 " steps",
                   run->n_steps);
        return false;
    }
    run->eval_every = cli_int(run->args, OPT_EVAL_EVERY, 0);
    int64_t warmup = run->n_steps / 10 < 100 ? run->n_steps / 10 : 100;
    run->rate.n_steps = run->n_steps;
    run->rate.n_warmup_steps = cli_int(run->args, OPT_WARMUP, warmup);
    run->rate.peak = cli_real(run->args, OPT_LR, run->plan->learning_rate);
    run->rate.min = cli_real(run->args, OPT_MIN_LR, run->rate.peak / 10);
    if (!set_decay(run)) return false;
    if (run->rate.min <= run->rate.peak) return true;
    diag_error(run->diag, NO_LOC, "train: --min-lr: %g is more than the peak learning rate, %g",
               run->rate.min, run->rate.peak);
    return false;
}

/* Of several processes: finds the others, before anything that one alone may lack. */
static bool join_job(TrainRun *run) {
    run->failure = engine_options_from_args(run->args, run->plan, &run->options, run->diag);
    if (run->failure != EXIT_DONE) return false;
    run->failure = EXIT_USAGE;
    return true;
}

/* Of a run that begins with smaller batches the plan with the largest arenas, if it is not the
 * first to be used, is made ready once: what it lacks is said now. */
static bool try_largest(TrainRun *run) {
    const Plan *largest = train_ramp_largest(&run->ramp, run->full_plan);
    if (largest == run->plan) return true;
    Engine *engine = engine_create(largest, &run->options, run->diag);
    engine_destroy(engine);
    return engine;
}

/* The plan of the first step, which a checkpoint may say. */
static void choose_plan(TrainRun *run) {
    int64_t step = run->checkpoint.from ? engine_checkpoint_step(run->checkpoint.from) : 0;
    run->plan = train_ramp_at(&run->ramp, run->full_plan, step > 0 ? step + 1 : 1);
    run->data.plan = run->plan;
}

/* A step whose batch is another goes on in an engine of its plan. */
static bool follow_ramp(TrainRun *run, int64_t step) {
    Plan *plan = train_ramp_at(&run->ramp, run->full_plan, step);
    if (plan == run->plan) return true;
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
    train_norms_close(&run->norms);
    train_noise_close(&run->noise);
    run->engine = engine_replace(run->engine, plan, &run->options, run->diag);
    if (!run->engine) return false;
    run->plan = plan;
    run->data.plan = plan;
    if (!run->quiet) {
        progress_finish(&run->progress);
        fprintf(stderr, "batch   %d from step %" PRId64 " on\n", plan->global_batch, step);
    }
    return train_checkpoint_prepare(&run->checkpoint, run->engine, run->diag);
}

static bool start_engine(TrainRun *run) {
    int64_t batch = run->full_plan->global_batch;
    run->tokens = ARENA_ARRAY(run->args->arena, int32_t, batch * plan_row(run->plan));
    run->labels = ARENA_ARRAY(run->args->arena, int32_t, batch * run->plan->seq);
    if (!train_reference_check(&run->data, run->diag)) return false;
    train_run_say_pinning(run);
    choose_plan(run);
    run->n_active = llround(facts_count_active(run->plan));
    if (!try_largest(run)) {
        if (run->options.control) run->failure = EXIT_FAILED;
        return false;
    }
    run->engine = engine_create(run->plan, &run->options, run->diag);
    if (!run->engine) {
        if (run->options.control) run->failure = EXIT_FAILED; /* a plan that is good: others fail */
        return false;
    }
    if (!teacher_args_load(run->args, run->engine, run->plan, true, NULL, run->diag) ||
        !train_islands_open(run->args, &run->data, &run->rate, run->engine, &run->islands,
                            run->diag)) {
        return false;
    }
    bool resumed = false;
    train_data_name(&run->data, run->checkpoint.place.data, sizeof(run->checkpoint.place.data));
    if (!train_checkpoint_load(&run->checkpoint, run->engine, &run->options,
                               run->quiet || run->options.rank > 0, &resumed, run->diag)) {
        return false;
    }
    run->steps_done = run->checkpoint.place.step;
    run->first_step = run->steps_done + 1;
    run->first_sample = run->checkpoint.place.samples;
    run->is_resumed = resumed;
    if (resumed) return true;
    if (cli_given(run->args, OPT_LOAD)) {
        return engine_args_load(run->args, run->engine, &run->begun, run->diag);
    }
    engine_init_parameters(run->engine);
    return true;
}

static bool is_to_validate(const TrainRun *run, int64_t step, bool ends) {
    return ends || (run->eval_every && step % run->eval_every == 0);
}

/* Of a step that learned from answers. */
static bool tell_answers(TrainRun *run, bool ends, StepMetrics *metrics) {
    RolloutValidation *val = NULL;
    if (run->data.prompts.n_val && is_to_validate(run, metrics->step, ends)) {
        val = &run->of_answers;
        if (!rollout_validate(run->rollout, val, run->diag)) return false;
        metrics->stays = true;
        metrics->has_val_loss = !isnan(val->loss);
        metrics->val_loss = val->loss;
    }
    if (run->log.answers) {
        StrBuf lines = strbuf_create();
        rollout_put_answers(run->rollout, metrics->step, &lines);
        train_log_write_answers(&run->log, metrics->step, &lines, &run->progress);
        strbuf_destroy(&lines);
    }
    metrics->values =
        rollout_values(run->rollout, metrics->values, metrics->n_values, val, &metrics->n_values);
    return true;
}

/* With the average of the weights, too, which stands in their place meanwhile. */
static bool validate(TrainRun *run, const char **names, StepMetrics *metrics) {
    if (!train_validate(&run->data, run->engine, run->tokens, run->labels, &run->validation,
                        run->diag)) {
        return false;
    }
    run->is_validated = true;
    train_validate_tell(&run->data, &run->validation, names, metrics);
    if (plan_ema_decay(run->plan) == 0) return true;
    if (!engine_swap_averages(run->engine, run->diag) ||
        !train_validate(&run->data, run->engine, run->tokens, run->labels, &run->of_average,
                        run->diag) ||
        !engine_swap_averages(run->engine, run->diag)) {
        return false;
    }
    metrics->has_val_loss_ema = true;
    metrics->val_loss_ema = run->of_average.loss;
    return true;
}

/* Where they are asked for, of the step's weights. */
static bool score_choices(TrainRun *run, bool ends, StepMetrics *metrics) {
    run->choices.is_scored = false;
    if (run->choices.n == 0 || !train_islands_leads(&run->islands)) return true;
    return !is_to_validate(run, metrics->step, ends) ||
           train_choices_score(&run->choices, run->engine, run->plan, metrics, run->diag);
}

/* The batch of a step, from sample *at on, which moves behind it; or ahead: that batch's images are
 * read while this one is trained on. Islands take turns, so that all of them see what one run of so
 * large a batch would. */
static bool take_samples(TrainRun *run, int64_t *at, bool ahead) {
    const int64_t n_samples = train_data_batch(&run->data);
    const int n_islands = train_islands_count(&run->islands);
    for (int64_t i = 0; i < n_samples * n_islands; i++, (*at)++) {
        *at = train_skips_next(&run->skips, *at);
        if (i % n_islands != train_islands_own(&run->islands)) continue;
        const bool good = ahead ? train_data_look_ahead(&run->data, *at, i / n_islands, run->diag)
                                : train_data_sample(&run->data, *at, i / n_islands, run->tokens,
                                                    run->labels, run->diag);
        if (!good) return false;
    }
    if (ahead) train_images_look_ahead(&run->data.images);
    return true;
}

/* Where training is has changed with the weights, which are island 0's: the steps that this run has
 * taken stay as many. */
static void follow_place(TrainRun *run) {
    run->first_step += run->checkpoint.place.step - run->steps_done;
    run->steps_done = run->checkpoint.place.step;
}

/* With a step done, or where a run was stopped before its islands met. */
static bool meet(TrainRun *run, StepMetrics *metrics) {
    if (!train_islands_due(&run->islands, &run->checkpoint.place)) return true;
    bool good = train_islands_meet(&run->islands, &run->checkpoint.place, metrics, &run->progress,
                                   run->quiet, run->diag);
    run->stopped |= run->islands.is_stopped;
    follow_place(run);
    return good;
}

/* A checkpoint has all that other islands have made of what this one sent. */
static bool settle(TrainRun *run) {
    bool good = train_islands_settle(&run->islands, &run->checkpoint.place, run->stopped,
                                     &run->progress, run->quiet, run->diag);
    follow_place(run);
    return good;
}

/* What all processes have found in the same numbers is the first one's to say. False. */
static bool ends_alike(TrainRun *run) {
    run->told_by_first = !run->is_first;
    return false;
}

/* Of the step that was done last. */
static StepMetrics metrics_of(const TrainRun *run, const StepResult *result, double rate) {
    const int64_t row = plan_row_tokens(run->plan);
    return (StepMetrics){.step = run->steps_done,
                         .n_samples = run->checkpoint.place.samples,
                         .loss = result->loss,
                         .grad_norm = result->grad_norm,
                         .has_loss_scale = plan_loss_scaling(run->plan).initial != 0,
                         .loss_scale = result->loss_scale,
                         .skipped = result->skipped,
                         .n_skipped = run->n_skipped,
                         .spike = result->spike,
                         .n_spikes = run->checkpoint.place.n_spikes,
                         .lr = rate,
                         .tokens_per_s = (double)(run->plan->global_batch * row) / result->seconds,
                         .seconds = result->seconds,
                         .n_values = result->n_values,
                         .values = result->values,
                         .n_parameters = run->plan->n_parameters,
                         .n_active = run->n_active,
                         .row_tokens = row * train_pairs_batch_rows(&run->data.pairs)};
}

static bool take_step(TrainRun *run, int64_t step) {
    int64_t row = plan_row_tokens(run->plan), batch = run->plan->global_batch;
    double rate = lr_schedule_at(&run->rate, step - 1);
    StepResult result;
    int64_t sample = run->checkpoint.place.samples;
    if (run->rollout) {
        if (!rollout_batch(run->rollout, sample, run->tokens, run->labels, run->diag)) return false;
        sample += batch;
    }
    const double begun = clock_now();
    if (!run->rollout && !take_samples(run, &sample, false)) return false;
    const double taken = clock_now() - begun;
    if (!train_data_give(&run->data, run->engine, true, run->diag)) return false;
    int64_t next = sample;
    if (run->data.images.ahead && step < run->last_step && !take_samples(run, &next, true)) {
        return false;
    }
    const double data_seconds = taken + run->data.images.of_batch;
    if (!train_noise_begin(&run->noise, run->engine, &run->data, step, run->tokens, run->labels,
                           run->diag)) {
        return false;
    }
    train_stragglers_begin(&run->stragglers, run->engine, run->plan, step, step == run->first_step);
    train_spikes_begin(&run->spikes, &run->checkpoint.place, run->engine);
    train_norms_begin(&run->norms, run->engine, step);
    if (!engine_step(run->engine, step, run->tokens, run->labels, rate, &result, run->diag)) {
        return false;
    }
    const bool goes_on = train_spikes_end(&run->spikes, &run->checkpoint.place, &result, run->diag);
    result.seconds += run->data.answers.seconds;
    run->loss = result.loss;
    run->loss_scale = result.loss_scale;
    run->n_skipped += result.skipped;
    run->training_seconds += result.seconds;
    run->n_tokens += (double)(batch * row);
    run->steps_done = run->checkpoint.place.step = step;
    run->checkpoint.place.samples = sample;
    StepMetrics metrics = metrics_of(run, &result, rate);
    train_noise_end(&run->noise, &run->checkpoint.place.noise, &metrics);
    if (run->data.masked && !run->data.pairs.reads) {
        metrics.has_n_labels = true;
        metrics.n_labels = engine_count_labels(run->engine, run->labels);
        run->n_empty += metrics.n_labels == 0;
    }
    if (!train_norms_end(&run->norms, &metrics, &run->progress, run->quiet, run->diag) ||
        !meet(run, &metrics)) {
        return false;
    }
    run->stopped |= engine_args_any(&run->options, is_interrupted());
    bool is_last = run->steps_done == run->last_step || run->stopped;
    /* One that goes on later validates where it would have without a stop: so its log is the same.
     */
    const bool ends = run->steps_done == run->n_steps || (is_last && !run->checkpoint.to);
    const char *names[BLEND_MOST_SOURCES];
    run->log.ends = is_last;
    run->is_validated = false;
    run->of_answers = ROLLOUT_NOT_VALIDATED;
    if (run->data.n_val && train_islands_leads(&run->islands) && is_to_validate(run, step, ends) &&
        !validate(run, names, &metrics)) {
        return false;
    }
    if (run->rollout && !tell_answers(run, ends, &metrics)) return false;
    if (!score_choices(run, ends, &metrics)) return false;
    if (!train_stragglers_end(&run->stragglers, run->engine, &metrics, data_seconds, &run->progress,
                              run->quiet, run->diag)) {
        return false;
    }
    progress_update(&run->progress, &metrics);
    train_log_write(&run->log, &metrics, &run->progress);
    train_metrics_checkpoint(&run->metrics, run->checkpoint.written_step);
    train_metrics_step(&run->metrics, &metrics, run->n_tokens, &run->progress);
    if (!goes_on) return ends_alike(run);
    const TrainCheckpoint *checkpoint = &run->checkpoint;
    const bool saves =
        checkpoint->to && (is_last || (checkpoint->every && step % checkpoint->every == 0));
    if (!train_copies_check(&run->copies, run->engine, step, is_last || saves, run->diag)) {
        return false;
    }
    if (saves && !settle(run)) return false;
    if (saves) {
        train_checkpoint_save(&run->checkpoint, run->engine, &run->options, &run->progress,
                              is_last);
    } else {
        train_checkpoint_poll(&run->checkpoint, &run->options, &run->progress);
    }
    return true;
}

static bool run_steps(TrainRun *run) {
    bool good = true;
    catch_interrupts();
    run->progress =
        progress_start(stderr, run->n_steps, run->quiet ? PROGRESS_QUIET : PROGRESS_AUTO);
    good = meet(run, NULL);
    while (good && run->steps_done < run->last_step && !run->stopped) {
        const int64_t step = run->steps_done + 1;
        good = follow_ramp(run, step) && take_step(run, step);
    }
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
    progress_finish(&run->progress);
    return good;
}

/* What --stragglers measures, where a profile says on what. */
static bool predict(TrainRun *run) {
    Device device;
    run->stragglers.options = &run->options;
    if (!run->stragglers.every || !run->profile) return true;
    if (!device_of_plan(run->args, run->profile, run->plan, &device, run->diag)) return false;
    return device.ranks_per_core > 1 || /* its times are with waiting for a core */
           train_stragglers_predict(&run->stragglers, run->plan, &device, run->diag);
}

/* Others that do not come are no mistake of this one. */
static bool join_islands(TrainRun *run) {
    if (train_islands_start(&run->islands, run->is_resumed ? run->checkpoint.from : NULL,
                            &run->checkpoint.place, run->quiet, run->diag)) {
        follow_place(run);
        run->first_sample = run->checkpoint.place.samples;
        return true;
    }
    run->failure = EXIT_FAILED;
    return false;
}

/* Options against the plan. */
static bool check_plan(TrainRun *run) {
    if (!train_ramp_from_args(run->args, run->plan, &run->ramp, run->diag)) return false;
    if (cli_given(run->args, OPT_SAVE_EMA) && plan_ema_decay(run->plan) == 0) {
        diag_error(run->diag, NO_LOC,
                   "train: --save-ema: the plan keeps no average of the weights; plan with --ema "
                   "DECAY");
        return false;
    }
    return set_rate(run) && train_checkpoint_check(run->args, run->plan, run->diag) &&
           rollout_check_options(run->args, run->plan, run->diag) &&
           train_choices_options(run->args, run->plan, &run->choices, run->diag) &&
           train_islands_check(run->args, run->plan, &run->islands, run->diag);
}

bool train_check(CliArgs *args, Plan *plan, Diag *diag) {
    TrainRun run = {.args = args, .diag = diag, .plan = plan, .full_plan = plan};
    return check_options(&run) && check_plan(&run);
}

/* Up to the first step all that fails is wrong input. */
static bool prepare(TrainRun *run) {
    run->quiet = cli_given(run->args, OPT_QUIET);
    run->copies = train_copies_from_args(run->args);
    run->norms = train_norms_from_args(run->args);
    run->noise = train_noise_from_args(run->args);
    if (!check_options(run)) return false;
    if (!profile_from_args(run->args, &run->profile, run->diag)) return false;
    if (train_layout_is_wanted(run->args)) {
        run->plan = train_layout(run->args, &run->layout, &run->failure, run->diag);
    } else {
        run->plan = plan_from_operand(run->args, run->diag);
    }
    if (!run->plan) return false;
    run->full_plan = run->plan;
    run->failure = EXIT_USAGE;
    if (!check_plan(run) || !join_job(run)) return false;
    if (!train_data_open(run->args, run->plan, &run->data, run->diag) ||
        !train_alike_check(run->args, &run->data, &run->options, run->diag) ||
        !train_choices_open(run->args, &run->data, &run->options, &run->choices, run->diag) ||
        !start_engine(run)) {
        return false;
    }
    run->is_first = run->options.rank == 0;
    run->quiet |= !run->is_first;
    run->checkpoint.quiet = run->quiet;
    if (run->is_first && !cli_try_outputs(run->args, run->diag)) return false;
    if (run->steps_done >= run->n_steps && !run->checkpoint.if_there &&
        !train_islands_lack_end(&run->islands, &run->checkpoint.place, run->n_steps)) {
        diag_error(run->diag, (SourceLoc){run->checkpoint.from, 0},
                   "is at step %" PRId64 " already; --steps counts from the run's beginning",
                   run->steps_done);
        return false;
    }
    if (!run->options.control &&
        engine_arena_bytes(run->engine) != train_run_planned_bytes(run->plan)) {
        BUG("allocated %" PRId64 " bytes, planned %" PRId64, engine_arena_bytes(run->engine),
            train_run_planned_bytes(run->plan));
    }
    if (!train_choices_start(&run->choices, run->args, run->diag)) return false;
    const RolloutPlace place = {&run->checkpoint.place,
                                run->is_resumed ? run->checkpoint.from : NULL};
    if (!rollout_open(run->args, run->plan, &run->data.prompts, &run->options, run->engine, &place,
                      &run->rollout, run->diag)) {
        return false;
    }
    if (!train_checkpoint_prepare(&run->checkpoint, run->engine, run->diag)) return false;
    train_images_start(&run->data.images, &run->options);
    if (!train_reference_make(&run->data, run->engine, &run->options, run->is_resumed, run->quiet,
                              &run->checkpoint.place, run->diag)) {
        return false;
    }
    if (!train_spikes_check(&run->spikes, run->plan, run->rollout, run->diag) ||
        !train_noise_check(&run->noise, run->plan, &run->data, run->rollout, run->diag)) {
        return false;
    }
    if (!predict(run) || !join_islands(run)) return false;
    if (!run->is_first) return true;
    if (!train_log_open(run->args, run->steps_done, &run->log, run->diag)) return false;
    train_metrics_open(run->args, run->plan, run->n_steps, &run->checkpoint.place, &run->metrics);
    return true;
}

/* What other islands are told of this one's end; NULL: it is the end for all. */
static const char *why_islands_end(const TrainRun *run, bool good) {
    if (!good) return "its run has failed";
    if (run->steps_done >= run->n_steps) return NULL;
    return arena_printf(run->args->arena, "it was stopped after step %" PRId64, run->steps_done);
}

/* False: it had gone well so far, and other ranks have come to no good end. */
static bool run_end(TrainRun *run, bool good) {
    train_log_close(&run->log);
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
    train_stragglers_close(&run->stragglers);
    train_norms_close(&run->norms);
    train_noise_close(&run->noise);
    rollout_close(run->rollout);
    train_islands_close(&run->islands, why_islands_end(run, good));
    engine_destroy(run->engine);
    good = engine_args_release(&run->options, good);
    train_choices_close(&run->choices);
    train_data_close(&run->data);
    diag_destroy(run->diag);
    return good;
}

/* False: steps were taken and not one of them was an update. */
static bool has_learned(TrainRun *run) {
    int64_t n_taken = run->steps_done - (run->first_step - 1);
    if (n_taken == 0 || run->n_skipped < n_taken) return true;
    if (!run->is_first) return ends_alike(run);
    diag_error(run->diag, NO_LOC,
               "none of %" PRId64 " steps changed the weights: gradients were not finite; the loss "
               "scale is %.10g",
               n_taken, run->loss_scale);
    return false;
}

/* After all else: the traced step moves the weights on. */
static bool trace(TrainRun *run) {
    const char *path = cli_text(run->args, OPT_TRACE_FILE, NULL);
    if (!path || run->steps_done < run->first_step) return true;
    if (run->options.control) {
        path = arena_printf(run->args->arena, "%s.rank%d", path, run->options.rank);
    }
    Device device;
    if (!device_of_plan(run->args, run->profile, run->plan, &device, run->diag)) return false;
    return train_trace(run->engine, run->plan, &device, path, run->quiet, run->diag);
}

static bool save_averages(TrainRun *run, const char *path) {
    if (!engine_swap_averages(run->engine, run->diag)) return false;
    bool good = engine_save(run->engine, path, run->diag);
    return engine_swap_averages(run->engine, run->diag) && good;
}

/* A file that cannot be written costs none of the others. */
static bool save_weights(TrainRun *run) {
    const char *save = cli_text(run->args, OPT_SAVE, NULL);
    const char *trained = cli_text(run->args, OPT_SAVE_TRAINED, NULL);
    const char *average = cli_text(run->args, OPT_SAVE_EMA, NULL);
    bool good = true;
    if (!train_islands_leads(&run->islands)) return true;
    if (save) good &= engine_save(run->engine, save, run->diag);
    if (trained) good &= engine_save_trained(run->engine, trained, run->diag);
    if (average) good &= save_averages(run, average);
    return good;
}

int cmd_train(CliArgs *args) {
    TrainRun run = {.args = args,
                    .diag = diag_create(),
                    .failure = EXIT_USAGE,
                    .of_answers = ROLLOUT_NOT_VALIDATED};
    int status = EXIT_DONE;
    bool good = prepare(&run);
    if (!good) {
        status = run.failure;
    } else {
        train_run_print_start(&run);
        good = run_steps(&run) && save_weights(&run);
        if (good) train_run_print_end(&run);
        good = good && has_learned(&run) && trace(&run) && !run.checkpoint.last_failed &&
               !run.checkpoint.keep.failed;
        /* A log is the first process' alone: no end of the others'. */
        bool whole = good && !run.log.failed && !run.metrics.failed;
        status = !whole ? EXIT_FAILED : run.stopped ? EXIT_INTERRUPTED : EXIT_DONE;
        train_metrics_checkpoint(&run.metrics, run.checkpoint.written_step);
        train_metrics_end(&run.metrics,
                          !whole                         ? RUN_FAILED
                          : run.steps_done < run.n_steps ? RUN_STOPPED
                                                         : RUN_FINISHED,
                          &run.progress);
        if (run.metrics.failed) status = EXIT_FAILED;
    }
    if (!good && !run.told_by_first && (status == EXIT_FAILED || status == EXIT_USAGE)) {
        engine_args_explain(&run.options, run.diag);
    }
    if (!run.told_by_first) cli_fail(run.diag, status);
    return run_end(&run, good) ? status : EXIT_FAILED;
}
