/* Model: what a Lua script describes, lowered to a forward graph ending in output "loss".
 *
 * The graph has axes batch, seq, ...; inputs "tokens" and "labels" i32[batch, seq], with
 * an axis source "source" i32[batch, source]; outputs "loss"
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

/* Runs the script in the sandbox with `batch` sequences per (global) micro-batch.
 * Everything is owned by `arena`. NULL: reported, with Lua lines. */
Model *model_load(Arena *arena, const char *path, const ModelSetting *settings, int n_settings,
                  int64_t batch, Diag *diag);
/* The same with the script of that name that is part of the program: "gemma", "gpt" or "llama". */
Model *model_load_shipped(Arena *arena, const char *name, const ModelSetting *settings,
                          int n_settings, int64_t batch, Diag *diag);

#endif
