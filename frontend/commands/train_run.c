#include "frontend/commands/train_run.h"

#include "frontend/units.h"
#include "ir/base/utf8.h"
#include "planner/plan/plan_library.h"
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>

void train_run_say_pinning(const TrainRun *run) {
    const int64_t long_bytes = (int64_t)4 << 30, bytes = plan_largest_host_bytes(run->plan);
    char text[32];
    if (run->quiet || !run->is_first || run->options.device != DEVICE_CUDA || bytes < long_bytes)
        return;
    units_format_bytes(text, sizeof(text), bytes);
    printf("host    %s of this machine's memory a rank are pinned first, for %s\n", text,
           plan_offload_phrase(run->plan));
    fflush(stdout);
}

int64_t train_run_planned_bytes(const Plan *plan) {
    int64_t ranks_per_stage = mesh_rank_count(&plan->mesh) / plan->n_stages;
    int64_t bytes = 0;
    for (int s = 0; s < plan->n_stages; s++) bytes += plan->stages[s].arena_bytes;
    return bytes * ranks_per_stage;
}

/* What is not plain f32. */
static void print_precision(const Plan *plan) {
    LossScaling scaling = plan_loss_scaling(plan);
    const DType states = plan_state_dtype(plan);
    bool low_gradients = plan_gradient_dtype(plan) == DTYPE_BF16;
    const char *form = facts_rounded_form(plan);
    if (plan->precision == DTYPE_F32 && scaling.initial == 0 && states == DTYPE_F32 && !form)
        return;
    printf("numbers %s%s%s%s%s%s%s", dtype_name(plan->precision),
           form ? ", weights as a GGUF file has them in " : "", form ? form : "",
           plan_splits_masters(plan) ? ", copies of weights halves of them" : "",
           low_gradients ? ", weights' gradients bf16" : "",
           states == DTYPE_F32 ? "" : ", optimizer's state ",
           states == DTYPE_F32 ? "" : dtype_name(states));
    if (scaling.initial != 0) {
        printf(", loss x %.10g, %s", scaling.initial, scaling.interval ? "dynamic" : "fixed");
    }
    printf("\n");
}

void train_run_print_start(const TrainRun *run) {
    const Plan *plan = run->plan;
    char planned[32], allocated[32], rate[192], model[64];
    if (run->quiet) return;
    snprintf(model, sizeof(model), "%s", plan->model);
    utf8_keep_printable(model);
    units_format_bytes(planned, sizeof(planned), train_run_planned_bytes(plan));
    units_format_bytes(allocated, sizeof(allocated), engine_arena_bytes(run->engine));
    printf("model   %s: %" PRId64 " parameters, ", model, plan->n_parameters);
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
    if (plan_qk_clip(plan) > 0) {
        printf("qk-clip queries and keys of heads whose largest score is above %.6g are scaled\n",
               plan_qk_clip(plan));
    }
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
    if (run->is_resumed) {
        printf("resumed %s, after step %" PRId64 "\n", run->checkpoint.from, run->steps_done);
    }
    train_data_print(&run->data);
    train_islands_print(&run->islands);
    rollout_print(run->rollout);
    train_choices_print_memory(&run->choices);
    fflush(stdout);
}

/* What the system says was used, beside what the plan said would be. */
static void print_resident(const TrainRun *run) {
    struct rusage usage;
    char seen[32], planned[32], text[32];
    if (run->plan->cuda || run->ramp.count || getrusage(RUSAGE_SELF, &usage) != 0) return;
    units_format_bytes(seen, sizeof(seen), (int64_t)usage.ru_maxrss * 1024);
    int64_t all = train_run_planned_bytes(run->plan) + run->plan->library_bytes;
    if (run->options.control) { /* of rank 0, whose stage is the first */
        all = engine_arena_bytes(run->engine) + plan_process_library_bytes(run->plan, 0) +
              engine_message_bytes(run->engine);
    }
    all += rollout_bytes(run->rollout) + train_islands_bytes(&run->islands) +
           train_choices_bytes(&run->choices, run->engine, run->plan) +
           train_stored_bytes(&run->data.stored, run->plan);
    units_format_bytes(planned, sizeof(planned), all);
    units_format_bytes(text, sizeof(text), train_data_mapped_bytes(&run->data));
    printf("memory  %s resident at most, with %s of mapped text; the plan says %s without it, "
           "program and libraries included\n",
           seen, text, planned);
}

void train_run_print_end(const TrainRun *run) {
    const char *save = cli_text(run->args, OPT_SAVE, NULL);
    const char *trained = cli_text(run->args, OPT_SAVE_TRAINED, NULL);
    const char *average = cli_text(run->args, OPT_SAVE_EMA, NULL);
    if (!train_islands_leads(&run->islands)) save = trained = average = NULL;
    int64_t n_taken = run->steps_done - (run->first_step - 1);
    const double tokens = run->n_tokens;
    if (run->quiet) return;
    if (n_taken == 0) {
        printf("done     nothing to do: %s is at step %" PRId64 " of %" PRId64 "\n",
               run->is_resumed ? run->checkpoint.from : "island 0", run->steps_done, run->n_steps);
        if (save) printf("wrote   %s\n", save);
        if (trained) printf("wrote   %s\n", trained);
        if (average) printf("wrote   %s\n", average);
        return;
    }
    printf("%s  %" PRId64 " steps, %.0f tokens, %.1f s, %.0f tokens/s\n",
           run->stopped ? "stopped" : "done   ", n_taken, tokens, run->training_seconds,
           run->training_seconds > 0 ? tokens / run->training_seconds : 0);
    printf("loss    %.4f in the last step", run->loss);
    if (run->is_validated) train_validate_print(&run->validation);
    if (run->is_validated && plan_ema_decay(run->plan) > 0) {
        printf(", %.4f with averaged weights", run->of_average.loss);
    }
    rollout_print_validation(&run->of_answers);
    train_data_print_entropy(&run->data);
    rollout_print_end(run->rollout);
    if (run->is_validated) train_validate_print_sources(&run->data, &run->validation);
    train_choices_print(&run->choices);
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
    train_spikes_print(&run->spikes, n_taken);
    train_copies_print(&run->copies, run->plan);
    train_stragglers_print(&run->stragglers);
    train_norms_print(&run->norms);
    train_noise_print(&run->noise, &run->checkpoint.place.noise, &run->data);
    train_islands_print_end(&run->islands);
    print_resident(run);
    train_log_print(&run->log);
    train_metrics_print(&run->metrics);
    if (run->checkpoint.to && !run->checkpoint.last_failed) {
        printf("wrote   %s\n", run->checkpoint.to);
    }
    if (save) printf("wrote   %s\n", save);
    if (trained) printf("wrote   %s\n", trained);
    if (average) printf("wrote   %s\n", average);
}
