/* Model: what a Lua script describes, lowered to a forward graph ending in output "loss".
 *
 * The graph has axes batch, seq, ...; inputs "tokens" and "labels" i32[batch, seq], with
 * an axis source "source" i32[batch, source], with axes patches and pixel "pixels"
 * i32[batch, patches, pixel]; outputs "loss"
 * (scalar, mean over the micro-batch's tokens) and "logits". Blocks are numbered 0..n_blocks-1;
 * names inside a block contain '#' for the block number ("blocks.#.attn.wq").
 */
#ifndef FRONTEND_LUA_MODEL_H
#define FRONTEND_LUA_MODEL_H

#include "frontend/lua/model_settings.h"
#include "ir/graph.h"
#include "planner/options.h"

typedef struct ModelSetting {
    const char *key, *value; /* --set key=value */
} ModelSetting;

typedef struct Model {
    const char *name;
    Graph *graph;
    int n_blocks;
    int64_t seq, vocab;
    TrainingRecipe recipe;
    SettingTable settings; /* all of them, with their final values */
    const char *note;      /* for the user; NULL: none */
} Model;

/* How a loss is mixed with what a teacher says (nn.distill), where the script's own does not read
 * m:teacher(). */
typedef struct Distillation {
    const char *kind; /* forward, reverse, jsd */
    double alpha, temperature, beta;
    bool is_given; /* some of it by the user: a loss that reads the teacher itself has its own */
    int64_t stored, stored_vocab; /* words of each label in a file, of so many; 0: it is at hand */
} Distillation;

/* Runs the script in the sandbox with `batch` sequences per (global) micro-batch.
 * Everything is owned by `arena`. NULL: reported, with Lua lines. */
Model *model_load(Arena *arena, const char *path, const ModelSetting *settings, int n_settings,
                  int64_t batch, Diag *diag);
/* The same of a model that learns from a teacher, which its graph reads as the input INPUT_TEACHER
 * (ir/teacher.h). */
Model *model_load_student(Arena *arena, const char *path, const ModelSetting *settings,
                          int n_settings, int64_t batch, const Distillation *how, Diag *diag);
/* The same with the script of that name that is part of the program: "gemma", "gpt" or "llama". */
Model *model_load_shipped(Arena *arena, const char *name, const ModelSetting *settings,
                          int n_settings, int64_t batch, Diag *diag);

/* The names of the sizes that the script has, sorted; ends with NULL. NULL: reported. */
const char **model_sizes(Arena *arena, const char *path, Diag *diag);

#endif
