/* perilune train: a plan, a text and a number of steps -> weights, a log, a verdict. */
#include "frontend/commands/engine_args.h"
#include "frontend/commands/plan_args.h"
#include "frontend/commands/profile_args.h"
#include "frontend/commands/teacher_args.h"
#include "frontend/commands/train_alike.h"
#include "frontend/commands/train_checkpoint.h"
#include "frontend/commands/train_copies.h"
#include "frontend/commands/train_layout.h"
#include "frontend/commands/train_log.h"
#include "frontend/commands/train_ramp.h"
#include "frontend/commands/train_reference.h"
#include "frontend/commands/train_rollout.h"
#include "frontend/commands/train_skips.h"
#include "frontend/commands/train_stragglers.h"
#include "frontend/commands/train_trace.h"
#include "frontend/commands/train_validate.h"
#include "frontend/units.h"
#include "ir/base/clock.h"
#include "planner/plan/plan_library.h"
#include "planner/show/show_facts.h"
#include "runtime/engine.h"
#include "runtime/metrics/lr_schedule.h"
#include "runtime/metrics/progress.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { DEFAULT_STEPS = 1000 };

/* Everything of one run; released by run_end, whatever was reached. */
typedef struct Run {
    CliArgs *args;
    Diag *diag;
    Plan *plan;      /* of the steps that are next */
    Plan *full_plan; /* what the options ask for; the same but for a ramp's steps */
    TrainRamp ramp;
    const DeviceProfile *profile; /* NULL: none given */
    TrainLayout layout;
    TrainData data;
    Rollout *rollout; /* NULL: the data are learned from as they are */
    EngineOptions options;
    Engine *engine;
    TrainLog log;
    LrSchedule rate;
    Progress progress;
    TrainSkips skips;
    TrainCheckpoint checkpoint;
    TrainCopies copies;
    TrainStragglers stragglers;
    int64_t first_step;   /* after those that a checkpoint had done */
    int64_t first_sample; /* of this process, as they are counted */
    int64_t n_steps, eval_every, steps_done;
    int32_t *tokens, *labels; /* [global_batch, seq] */
    int64_t n_active;         /* parameters that a token meets */
    double loss, training_seconds, n_tokens;
    ValidationResult validation;  /* the last one */
    RolloutValidation of_answers; /* likewise */
    double loss_scale;            /* of the next step's gradients; 0: the plan has none */
    int64_t n_skipped;            /* steps whose gradients were not finite */
    int64_t n_empty;              /* steps of which no label counted */
    bool stopped;                 /* by a signal */
    bool is_first;                /* of several processes: the one that talks and writes */
    bool quiet, is_validated;
    bool is_resumed;
    WeightsBegun begun; /* what --load did not have */
    int failure;        /* exit code when preparing fails */
} Run;

static volatile sig_atomic_t interrupted;

/* The second Ctrl-C ends the program at once (SA_RESETHAND). */
static void on_interrupt(int number) {
    (void)number;
    static const char text[] = "\ninterrupted: ending after this step (again: at once)\n";
    interrupted = 1;
    if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) return;
}

static void catch_interrupts(void) {
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = (int)SA_RESETHAND | SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct sigaction before; /* nohup has the end of a terminal ignored */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) {
        sigaction(SIGHUP, &action, NULL);
    }
}

/* What can be said without looking at a file. */
static bool check_options(Run *run) {
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
        cli_real(run->args, OPT_VAL_FRACTION, 1) == 0) {
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
           train_checkpoint_options(run->args, &run->checkpoint, run->diag);
}

/* A number of steps, or a share of all; what the command line leaves open the model says. */
static bool set_decay(Run *run) {
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
static bool set_rate(Run *run) {
    run->n_steps = cli_int(run->args, OPT_STEPS, DEFAULT_STEPS);
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
static bool join_job(Run *run) {
    run->failure = engine_options_from_args(run->args, run->plan, &run->options, run->diag);
    if (run->failure != EXIT_DONE) return false;
    run->failure = EXIT_USAGE;
    return true;
}

/* Pinning takes a second for some GiB, before anything else is said. */
static void say_pinning(const Run *run) {
    const int64_t long_bytes = (int64_t)4 << 30, bytes = plan_largest_host_bytes(run->plan);
    char text[32];
    if (run->quiet || !run->is_first || run->options.device != DEVICE_CUDA || bytes < long_bytes)
        return;
    units_format_bytes(text, sizeof(text), bytes);
    printf("host    %s of this machine's memory a rank are pinned first, for %s\n", text,
           plan_offload_phrase(run->plan));
    fflush(stdout);
}

/* Of a run that begins with smaller batches the plan with the largest arenas, if it is not the
 * first to be used, is made ready once: what it lacks is said now. */
static bool try_largest(Run *run) {
    const Plan *largest = train_ramp_largest(&run->ramp, run->full_plan);
    if (largest == run->plan) return true;
    Engine *engine = engine_create(largest, &run->options, run->diag);
    engine_destroy(engine);
    return engine;
}

/* The plan of the first step, which a checkpoint may say. */
static void choose_plan(Run *run) {
    int64_t step = run->checkpoint.from ? engine_checkpoint_step(run->checkpoint.from) : 0;
    run->plan = train_ramp_at(&run->ramp, run->full_plan, step > 0 ? step + 1 : 1);
    run->data.plan = run->plan;
}

/* A step whose batch is another goes on in an engine of its plan. */
static bool follow_ramp(Run *run, int64_t step) {
    Plan *plan = train_ramp_at(&run->ramp, run->full_plan, step);
    if (plan == run->plan) return true;
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
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

static bool start_engine(Run *run) {
    int64_t batch = run->full_plan->global_batch;
    run->tokens = ARENA_ARRAY(run->args->arena, int32_t, batch * plan_row(run->plan));
    run->labels = ARENA_ARRAY(run->args->arena, int32_t, batch * run->plan->seq);
    if (!train_alike_check(run->args, &run->data, &run->options, run->diag) ||
        !train_reference_check(&run->data, run->diag)) {
        return false;
    }
    say_pinning(run);
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
    if (!teacher_args_load(run->args, run->engine, run->plan, true, NULL, run->diag)) return false;
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

static int64_t planned_bytes(const Plan *plan) {
    int64_t ranks_per_stage = mesh_rank_count(&plan->mesh) / plan->n_stages;
    int64_t bytes = 0;
    for (int s = 0; s < plan->n_stages; s++) bytes += plan->stages[s].arena_bytes;
    return bytes * ranks_per_stage;
}

/* What is not plain f32. */
static void print_precision(const Plan *plan) {
    LossScaling scaling = plan_loss_scaling(plan);
    bool low_states = plan_state_dtype(plan) == DTYPE_BF16;
    bool low_gradients = plan_gradient_dtype(plan) == DTYPE_BF16;
    if (plan->precision == DTYPE_F32 && scaling.initial == 0 && !low_states) return;
    printf("numbers %s%s%s%s", dtype_name(plan->precision),
           plan_splits_masters(plan) ? ", copies of weights halves of them" : "",
           low_gradients ? ", weights' gradients bf16" : "",
           low_states ? ", optimizer's state bf16" : "");
    if (scaling.initial != 0) {
        printf(", loss x %.10g, %s", scaling.initial, scaling.interval ? "dynamic" : "fixed");
    }
    printf("\n");
}

static void print_start(const Run *run) {
    const Plan *plan = run->plan;
    char planned[32], allocated[32], rate[192];
    if (run->quiet) return;
    units_format_bytes(planned, sizeof(planned), planned_bytes(plan));
    units_format_bytes(allocated, sizeof(allocated), engine_arena_bytes(run->engine));
    printf("model   %s: %" PRId64 " parameters, ", plan->model, plan->n_parameters);
    if (plan->n_trained < plan->n_parameters)
        printf("%" PRId64 " of them trained, ", plan->n_trained);
    if (plan_count_teacher(plan))
        printf("%" PRId64 " of them a teacher's, ", plan_count_teacher(plan));
    if (plan_source(plan)) printf("source %" PRId64 ", ", plan_source(plan));
    printf("sequence %" PRId64 ", vocabulary %" PRId64, plan->seq, plan->vocab);
    if (plan->mesh.vocab_multiple) printf(" (%" PRId64 " a rank)", plan_vocab_share(plan));
    printf("\n");
    int n_ranks = mesh_rank_count(&plan->mesh);
    printf("mesh    t=%d ", plan->mesh.size[MESH_T]);
    if (plan->mesh.size[MESH_C] > 1) printf("c=%d ", plan->mesh.size[MESH_C]);
    if (plan->mesh.size[MESH_E] > 1) printf("e=%d ", plan->mesh.size[MESH_E]);
    printf("d=%d ", plan->mesh.size[MESH_D]);
    if (plan->mesh.size[MESH_R] > 1) printf("r=%d ", plan->mesh.size[MESH_R]);
    printf("p=%d: %d rank%s; %s, %d micro-batch%s of %d make a batch of %d\n",
           plan->mesh.size[MESH_P], n_ranks, n_ranks == 1 ? "" : "s", plan->schedule, plan->n_micro,
           plan->n_micro == 1 ? "" : "es", plan->micro_batch, plan->global_batch);
    if (run->layout.text) printf("%s", run->layout.text);
    const char *lacking = engine_args_missing_gpu(run->args, plan, &run->options);
    if (lacking) {
        printf("device  the processor, though the plan is for CUDA: no GPU can be used: %s\n",
               lacking);
    }
    print_precision(plan);
    if (run->options.control) {
        printf("memory  %s planned for all ranks, %s allocated for this one\n", planned, allocated);
    } else {
        printf("memory  %s planned, %s allocated, for all ranks\n", planned, allocated);
    }
    if (engine_host_bytes(run->engine) > 0) {
        units_format_bytes(allocated, sizeof(allocated), engine_host_bytes(run->engine));
        printf("        %s more, of this machine's, for ", allocated);
        if (plan->offload > 0) printf("%d %% of the optimizer's states and masters", plan->offload);
        if (plan->offload_activations > 0) {
            printf("%s%d %% of what blocks keep", plan->offload > 0 ? " and " : "",
                   plan->offload_activations);
        }
        printf("\n");
    }
    if (run->checkpoint.snapshot) {
        units_format_bytes(allocated, sizeof(allocated),
                           engine_snapshot_bytes(run->checkpoint.snapshot));
        printf("        %s more, to write checkpoints from\n", allocated);
    }
    if (engine_tuning(run->engine)) printf("tuned   %s\n", engine_tuning(run->engine));
    if (engine_attention(run->engine)) printf("with    %s\n", engine_attention(run->engine));
    if (run->options.own_products) printf("with    products by a plain kernel, which is slow\n");
    if (engine_graphs(run->engine)) printf("graphs  %s\n", engine_graphs(run->engine));
    if (run->begun.head > 0) {
        printf("head    begins anew: %s has none that tells %s\n",
               cli_text(run->args, OPT_LOAD, ""), run->data.classes.reads ? "classes" : "rewards");
    }
    if (run->begun.adapters > 0) {
        printf("adapters begin anew: %s has none of the plan's %d (A at random, B zero)\n",
               cli_text(run->args, OPT_LOAD, ""), run->begun.adapters);
    }
    lr_schedule_describe(&run->rate, rate, sizeof(rate));
    train_ramp_print(&run->ramp, run->full_plan);
    printf("rate    %s\n", rate);
    if (run->steps_done > 0) {
        printf("resumed %s, after step %" PRId64 "\n", run->checkpoint.from, run->steps_done);
    }
    train_data_print(&run->data);
    rollout_print(run->rollout);
    fflush(stdout);
}

static bool is_to_validate(const Run *run, int64_t step, bool is_last) {
    return is_last || (run->eval_every && step % run->eval_every == 0);
}

/* Of a step that learned from answers. */
static bool tell_answers(Run *run, bool is_last, StepMetrics *metrics) {
    RolloutValidation *val = NULL;
    if (run->data.prompts.n_val && is_to_validate(run, metrics->step, is_last)) {
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

static bool take_step(Run *run, int64_t step) {
    int64_t row = plan_row(run->plan), batch = run->plan->global_batch;
    int64_t n_samples = train_data_batch(&run->data);
    double rate = lr_schedule_at(&run->rate, step - 1);
    StepResult result;
    int64_t sample = run->checkpoint.place.samples;
    if (run->rollout) {
        if (!rollout_batch(run->rollout, sample, run->tokens, run->labels, run->diag)) return false;
        sample += batch;
    }
    const double begun = clock_now();
    for (int64_t i = 0; i < n_samples && !run->rollout; i++, sample++) {
        sample = train_skips_next(&run->skips, sample);
        if (!train_data_sample(&run->data, sample, i, run->tokens, run->labels, run->diag)) {
            return false;
        }
    }
    const double data_seconds = clock_now() - begun;
    if (!train_answers_give(&run->data.answers, run->engine, run->diag)) return false;
    train_stragglers_begin(&run->stragglers, run->engine, run->plan, step, step == run->first_step);
    if (!engine_step(run->engine, step, run->tokens, run->labels, rate, &result, run->diag)) {
        return false;
    }
    result.seconds += run->data.answers.seconds;
    run->loss = result.loss;
    run->loss_scale = result.loss_scale;
    run->n_skipped += result.skipped;
    run->training_seconds += result.seconds;
    run->n_tokens += (double)(batch * row);
    run->steps_done = run->checkpoint.place.step = step;
    run->checkpoint.place.samples = sample;
    StepMetrics metrics = {.step = step,
                           .n_samples = sample,
                           .loss = result.loss,
                           .grad_norm = result.grad_norm,
                           .has_loss_scale = plan_loss_scaling(run->plan).initial != 0,
                           .loss_scale = result.loss_scale,
                           .skipped = result.skipped,
                           .n_skipped = run->n_skipped,
                           .lr = rate,
                           .tokens_per_s = (double)(batch * row) / result.seconds,
                           .seconds = result.seconds,
                           .n_values = result.n_values,
                           .values = result.values,
                           .n_parameters = run->plan->n_parameters,
                           .n_active = run->n_active,
                           .row_tokens = row};
    if (run->data.masked && !run->data.pairs.reads) {
        metrics.has_n_labels = true;
        metrics.n_labels = engine_count_labels(run->engine, run->labels);
        run->n_empty += metrics.n_labels == 0;
    }
    run->stopped = engine_args_any(&run->options, interrupted);
    bool is_last = step == run->n_steps || run->stopped;
    const char *names[BLEND_MOST_SOURCES];
    if (run->data.n_val && is_to_validate(run, step, is_last)) {
        if (!train_validate(&run->data, run->engine, run->tokens, run->labels, &run->validation,
                            run->diag)) {
            return false;
        }
        run->is_validated = true;
        train_validate_tell(&run->data, &run->validation, names, &metrics);
    }
    if (run->rollout && !tell_answers(run, is_last, &metrics)) return false;
    if (!train_stragglers_end(&run->stragglers, run->engine, &metrics, data_seconds, &run->progress,
                              run->quiet, run->diag)) {
        return false;
    }
    progress_update(&run->progress, &metrics);
    train_log_write(&run->log, &metrics, &run->progress);
    const TrainCheckpoint *checkpoint = &run->checkpoint;
    const bool saves =
        checkpoint->to && (is_last || (checkpoint->every && step % checkpoint->every == 0));
    if (!train_copies_check(&run->copies, run->engine, step, is_last || saves, run->diag)) {
        return false;
    }
    if (saves) {
        train_checkpoint_save(&run->checkpoint, run->engine, &run->options, &run->progress,
                              is_last);
    } else {
        train_checkpoint_poll(&run->checkpoint, &run->options, &run->progress);
    }
    return true;
}

static bool run_steps(Run *run) {
    bool good = true;
    catch_interrupts();
    run->progress =
        progress_start(stderr, run->n_steps, run->quiet ? PROGRESS_QUIET : PROGRESS_AUTO);
    for (int64_t step = run->first_step; good && step <= run->n_steps && !run->stopped; step++) {
        good = follow_ramp(run, step) && take_step(run, step);
    }
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
    progress_finish(&run->progress);
    return good;
}

/* What the system says was used, beside what the plan said would be. */
static void print_resident(const Run *run) {
    struct rusage usage;
    char seen[32], planned[32], text[32];
    if (run->plan->cuda || run->ramp.count || getrusage(RUSAGE_SELF, &usage) != 0) return;
    units_format_bytes(seen, sizeof(seen), (int64_t)usage.ru_maxrss * 1024);
    int64_t all = planned_bytes(run->plan) + run->plan->library_bytes;
    if (run->options.control) { /* of rank 0, whose stage is the first */
        all = engine_arena_bytes(run->engine) + plan_process_library_bytes(run->plan, 0) +
              engine_message_bytes(run->engine);
    }
    units_format_bytes(planned, sizeof(planned), all + rollout_bytes(run->rollout));
    units_format_bytes(text, sizeof(text), train_data_mapped_bytes(&run->data));
    printf("memory  %s resident at most, with %s of mapped text; the plan says %s without it, "
           "program and libraries included\n",
           seen, text, planned);
}

static void print_end(const Run *run) {
    const char *save = cli_text(run->args, OPT_SAVE, NULL);
    const char *trained = cli_text(run->args, OPT_SAVE_TRAINED, NULL);
    int64_t n_taken = run->steps_done - (run->first_step - 1);
    const double tokens = run->n_tokens;
    if (run->quiet) return;
    if (n_taken == 0) {
        printf("done     nothing to do: %s is at step %" PRId64 " of %" PRId64 "\n",
               run->checkpoint.from, run->steps_done, run->n_steps);
        if (save) printf("wrote   %s\n", save);
        if (trained) printf("wrote   %s\n", trained);
        return;
    }
    printf("%s  %" PRId64 " steps, %.0f tokens, %.1f s, %.0f tokens/s\n",
           run->stopped ? "stopped" : "done   ", n_taken, tokens, run->training_seconds,
           run->training_seconds > 0 ? tokens / run->training_seconds : 0);
    printf("loss    %.4f in the last step", run->loss);
    if (run->is_validated) train_validate_print(&run->validation);
    rollout_print_validation(&run->of_answers);
    train_data_print_entropy(&run->data);
    rollout_print_end(run->rollout);
    if (run->is_validated) train_validate_print_sources(&run->data, &run->validation);
    train_data_print_samples(&run->data, &run->skips, run->first_sample,
                             run->checkpoint.place.samples);
    if (run->n_empty > 0) {
        printf("labels  none counted in %" PRId64 " of %" PRId64
               " steps: nothing was learned from labels in them\n",
               run->n_empty, n_taken);
    }
    if (plan_loss_scaling(run->plan).initial != 0) {
        printf("scale   loss scale %.10g at the end; %" PRId64 " of %" PRId64
               " steps had gradients that were not finite and changed nothing\n",
               run->loss_scale, run->n_skipped, n_taken);
    }
    train_copies_print(&run->copies, run->plan);
    train_stragglers_print(&run->stragglers);
    print_resident(run);
    train_log_print(&run->log);
    if (run->checkpoint.to && !run->checkpoint.last_failed) {
        printf("wrote   %s\n", run->checkpoint.to);
    }
    if (save) printf("wrote   %s\n", save);
    if (trained) printf("wrote   %s\n", trained);
}

/* What --stragglers measures, where a profile says on what. */
static bool predict(Run *run) {
    Device device;
    run->stragglers.options = &run->options;
    if (!run->stragglers.every || !run->profile) return true;
    if (!device_of_plan(run->args, run->profile, run->plan, &device, run->diag)) return false;
    return device.ranks_per_core > 1 || /* its times are with waiting for a core */
           train_stragglers_predict(&run->stragglers, run->plan, &device, run->diag);
}

/* Up to the first step all that fails is wrong input. */
static bool prepare(Run *run) {
    run->quiet = cli_given(run->args, OPT_QUIET);
    run->copies = train_copies_from_args(run->args);
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
    if (!train_ramp_from_args(run->args, run->plan, &run->ramp, run->diag)) return false;
    if (!set_rate(run) || !train_checkpoint_check(run->args, run->plan, run->diag) ||
        !rollout_check_options(run->args, run->plan, run->diag)) {
        return false;
    }
    if (!join_job(run)) return false;
    if (!train_data_open(run->args, run->plan, &run->data, run->diag)) return false;
    if (!start_engine(run)) return false;
    run->is_first = run->options.rank == 0;
    run->quiet |= !run->is_first;
    run->checkpoint.quiet = run->quiet;
    if (run->is_first && !cli_try_outputs(run->args, run->diag)) return false;
    if (!train_checkpoint_prepare(&run->checkpoint, run->engine, run->diag)) return false;
    if (run->steps_done >= run->n_steps && !run->checkpoint.if_there) {
        diag_error(run->diag, (SourceLoc){run->checkpoint.from, 0},
                   "is at step %" PRId64 " already; --steps counts from the run's beginning",
                   run->steps_done);
        return false;
    }
    if (!run->options.control && engine_arena_bytes(run->engine) != planned_bytes(run->plan)) {
        BUG("allocated %" PRId64 " bytes, planned %" PRId64, engine_arena_bytes(run->engine),
            planned_bytes(run->plan));
    }
    if (!train_reference_make(&run->data, run->engine, &run->options, run->is_resumed, run->quiet,
                              &run->checkpoint.place, run->diag)) {
        return false;
    }
    if (!rollout_open(run->args, run->plan, &run->data.prompts, &run->options, run->engine,
                      &run->rollout, run->diag)) {
        return false;
    }
    if (!predict(run)) return false;
    return !run->is_first || train_log_open(run->args, run->steps_done, &run->log, run->diag);
}

/* False: it had gone well so far, and other ranks have come to no good end. */
static bool run_end(Run *run, bool good) {
    train_log_close(&run->log);
    train_checkpoint_end(&run->checkpoint, &run->options, &run->progress);
    train_stragglers_close(&run->stragglers);
    rollout_close(run->rollout);
    engine_destroy(run->engine);
    good = engine_args_release(&run->options, good);
    train_data_close(&run->data);
    diag_destroy(run->diag);
    return good;
}

/* False: steps were taken and not one of them was an update. */
static bool has_learned(const Run *run) {
    int64_t n_taken = run->steps_done - (run->first_step - 1);
    if (n_taken == 0 || run->n_skipped < n_taken) return true;
    diag_error(run->diag, NO_LOC,
               "none of %" PRId64 " steps changed the weights: gradients were not finite; the loss "
               "scale is %.10g",
               n_taken, run->loss_scale);
    return false;
}

/* After all else: the traced step moves the weights on. */
static bool trace(Run *run) {
    const char *path = cli_text(run->args, OPT_TRACE_FILE, NULL);
    if (!path || run->steps_done < run->first_step) return true;
    if (run->options.control) {
        path = arena_printf(run->args->arena, "%s.rank%d", path, run->options.rank);
    }
    Device device;
    if (!device_of_plan(run->args, run->profile, run->plan, &device, run->diag)) return false;
    return train_trace(run->engine, run->plan, &device, path, run->quiet, run->diag);
}

static bool save_weights(Run *run) {
    const char *save = cli_text(run->args, OPT_SAVE, NULL);
    const char *trained = cli_text(run->args, OPT_SAVE_TRAINED, NULL);
    if (save && !engine_save(run->engine, save, run->diag)) return false;
    return !trained || engine_save_trained(run->engine, trained, run->diag);
}

int cmd_train(CliArgs *args) {
    Run run = {.args = args,
               .diag = diag_create(),
               .failure = EXIT_USAGE,
               .of_answers = ROLLOUT_NOT_VALIDATED};
    int status = EXIT_DONE;
    bool good = prepare(&run);
    if (!good) {
        status = run.failure;
    } else {
        print_start(&run);
        good = run_steps(&run) && save_weights(&run);
        if (good) print_end(&run);
        good = good && has_learned(&run) && trace(&run) && !run.checkpoint.last_failed &&
               !run.checkpoint.keep.failed;
        /* A log is the first process' alone: no end of the others'. */
        bool whole = good && !run.log.failed;
        status = !whole ? EXIT_FAILED : run.stopped ? EXIT_INTERRUPTED : EXIT_DONE;
    }
    if (!good && (status == EXIT_FAILED || status == EXIT_USAGE)) {
        engine_args_explain(&run.options, run.diag);
    }
    cli_fail(run.diag, status);
    return run_end(&run, good) ? status : EXIT_FAILED;
}
