/* Plans as commands ask for them: made from a Lua model and planning options, or read. */
#ifndef FRONTEND_COMMANDS_PLAN_ARGS_H
#define FRONTEND_COMMANDS_PLAN_ARGS_H

#include "frontend/commands/cli.h"
#include "frontend/lua/model.h"
#include "planner/clusters/cluster.h"
#include "planner/planner.h"

/* Runs the model's script and plans it by the options of group IN_PLANNING. What --dump-after asks
 * for is added to `dump`, also where what follows fails. NULL: reported. */
Plan *plan_from_model(CliArgs *args, StrBuf *dump, Diag *diag);

/* The parts of it. --mesh and its short forms: sizes and which of them were given. */
bool plan_mesh_from_args(CliArgs *args, Mesh *mesh, bool seen[N_MESH_AXES], Diag *diag);
/* --loss-scale, by default dynamic for f16, else none. After --precision. */
bool plan_loss_scaling_from_args(const CliArgs *args, PlanOptions *options, Diag *diag);
/* --precision, by default bf16 for CUDA, else f32, --optimizer-state, --gradients, --masters,
 * --offload and --frozen-bits: sets options->precision, state_dtype, gradient_dtype, split_masters,
 * offload and frozen_bits. */
bool plan_precision_from_args(const CliArgs *args, PlanOptions *options, Diag *diag);
/* --offload auto: the share is found by a search. */
bool plan_offload_is_searched(const CliArgs *args);
/* --fp8-products, by default on tensor cores where the cluster's devices have such products; no
 * cluster: where the plan is for CUDA. After --precision. */
bool plan_fp8_products_from_args(const CliArgs *args, const Cluster *cluster, PlanOptions *options,
                                 Diag *diag);
/* --recompute; by default none. */
bool plan_recompute_from_args(const CliArgs *args, PlanOptions *options, Diag *diag);
/* --zero; by default 0. */
bool plan_zero_from_args(const CliArgs *args, PlanOptions *options, Diag *diag);
/* A list of settings, and options that give some. */
typedef struct SettingList {
    ModelSetting *items;
    int count, capacity;
} SettingList;
/* Adds what a file of weights says of its model, as settings_text has it; `must`: it has to.
 * *out_model: the model's name, or NULL. False: reported. */
bool plan_add_file_settings(CliArgs *args, const char *path, bool must, SettingList *list,
                            const char **out_model, Diag *diag);
/* Adds what the file of the option `from` says, or `absent`'s if it is not given and no size is
 * set, then `between`, then what the option `set` says. *out_model: the name of the model that the
 * file is of, or NULL. False: reported. */
bool plan_add_settings(CliArgs *args, CliOption set, CliOption from, const char *absent,
                       const SettingList *between, SettingList *out, const char **out_model,
                       Diag *diag);
/* The same of --set-from and --set. NULL: reported. */
ModelSetting *plan_settings_from_args(CliArgs *args, const char *absent, int *out_count,
                                      const char **out_model, Diag *diag);
/* Does the model read each setting that the option gave another value than its own? False: reported
 * of each that has no effect. Sizes of axes are always read; tokens of a tokenizer (but those of
 * images, and of what a decoder hides) and what a base's output is may be set beside what leaves
 * them aside. */
bool plan_check_settings(const CliArgs *args, CliOption set, const Model *model, Diag *diag);
/* Runs the script with `batch` sequences and sets everything of the request but its options; the
 * model is made in `arena`. */
bool plan_load_model(CliArgs *args, Arena *arena, int64_t batch, PlanRequest *request, Diag *diag);
/* plan_make in `arena` of a model of so many sequences, of which nothing stays. */
Plan *plan_model(CliArgs *args, Arena *arena, int64_t batch, PlanRequest *request, Diag *diag);

/* Is that a model's script? */
bool plan_is_model(const char *path);
/* The operand's plan: made if it is a .lua file, else read and verified. NULL: reported. */
Plan *plan_from_operand(CliArgs *args, Diag *diag);

#endif
