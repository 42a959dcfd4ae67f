#include "runtime/cuda/driver/attention_choice.h"

#include <stdio.h>
#include <string.h>

bool attention_runs_wgmma(const CudaDevice *device, const AttentionShape *shape) {
    return strcmp(device->arch, "sm_90") == 0 && cuda_attention_has_wgmma(shape);
}

bool attention_runs_joint(const CudaDevice *device, const AttentionCommand *attention) {
    return attention_runs_wgmma(device, &attention->shape) &&
           cuda_attention_has_joint(&attention->shape, attention->workspace_bytes);
}

int64_t attention_table_version(const AttentionTable *table) {
    return table && table->handle ? (int64_t)table->device->api->cudnnGetVersion() : 0;
}

/* Another cuDNN may be faster than what was fastest. Without one, what own kernels were chosen
 * before was faster than the other own ones, too. */
static bool is_other_library(const AttentionChoice *choice) {
    int64_t version = attention_table_version(choice->table);
    return version && choice->tuned->attention_version != version;
}

static bool can_run(const AttentionChoice *choice, const AttentionCommand *attention,
                    AttentionKernels kernels) {
    switch (kernels) {
    case ATTENTION_WGMMA: return attention_runs_wgmma(choice->device, &attention->shape);
    case ATTENTION_JOINT: return attention_runs_joint(choice->device, attention);
    case ATTENTION_CUDNN:
        return choice->table && attention_table_choose(choice->table, attention) == ATTENTION_CUDNN;
    default: return true;
    }
}

/* What the plan says, if it is for what is here and can be done: plans are untrusted. */
static bool find_tuned(const AttentionChoice *choice, const AttentionCommand *attention,
                       const PlanAttention *kind, AttentionKernels *out) {
    if (!choice->tuned || is_other_library(choice)) return false;
    const PlanAttention *tuned = plan_find_attention(choice->tuned, kind);
    if (!tuned) return false;
    *out = tuned->kernels;
    return can_run(choice, attention, tuned->kernels);
}

/* On an H200 those on wgmma took 0.83 (forward) and 0.59 (backward) of the time of the others. */
static AttentionKernels choose_own(const AttentionChoice *choice, const AttentionShape *shape) {
    return attention_runs_wgmma(choice->device, shape) ? ATTENTION_WGMMA : ATTENTION_MMA;
}

/* On an H200 it took 0.87 to 0.93 of the time of cuDNN's gradient, alone and in steps. */
static bool goes_in_one_pass(const AttentionChoice *choice, const AttentionCommand *attention) {
    return attention->shape.backward && attention_runs_joint(choice->device, attention);
}

/* One line for each direction, and none where there is no cuDNN at all. */
static AttentionKernels choose_untuned(AttentionChoice *choice, const AttentionCommand *attention) {
    const AttentionShape *s = &attention->shape;
    const char *why;
    if (goes_in_one_pass(choice, attention)) return ATTENTION_JOINT;
    if (!choice->table) return choose_own(choice, s);
    if (attention_table_find(choice->table, attention, &why)) return ATTENTION_CUDNN;
    bool known = !choice->device->api->path[LIBRARY_cudnn] || choice->silent;
    if (!known && !choice->told[s->backward]) {
        char head[48];
        int n = snprintf(head, sizeof(head), "%lld", (long long)s->head);
        if (attention_is_uneven(s))
            snprintf(head + n, sizeof(head) - (size_t)n, " and %lld",
                     (long long)attention_values(s));
        fprintf(stderr,
                "perilune: cuDNN leaves attention%s of %lld x %lld positions, %lld heads of %s to "
                "own kernels: %s\n",
                s->backward ? "'s gradient" : "", (long long)s->batch, (long long)s->seq,
                (long long)(s->kv_heads * s->group), head, why);
    }
    choice->told[s->backward] = true;
    return choose_own(choice, s);
}

static bool is_known(const AttentionChoice *choice, const PlanAttention *kind) {
    for (int i = 0; i < choice->n_kinds; i++) {
        if (plan_attention_same(&choice->kinds[i], kind)) return true;
    }
    return false;
}

AttentionKernels attention_choose(void *user, const AttentionCommand *attention) {
    AttentionChoice *choice = user;
    PlanAttention kind = attention_kind(&attention->shape);
    bool as_tuned = find_tuned(choice, attention, &kind, &kind.kernels);
    if (choice->asked && can_run(choice, attention, *choice->asked)) {
        kind.kernels = *choice->asked;
        as_tuned = false;
    } else if (!as_tuned) {
        kind.kernels = choose_untuned(choice, attention);
    }
    choice->used[kind.backward][kind.kernels] = true;
    if (!is_known(choice, &kind)) {
        ARENA_PUSH(choice->arena, choice->kinds, choice->n_kinds, choice->capacity, kind);
        choice->n_as_tuned += as_tuned;
    }
    return kind.kernels;
}

bool attention_choice_lays_out(void *user, const AttentionCommand *attention) {
    const AttentionChoice *choice = user;
    return choice->table && attention_table_choose(choice->table, attention) == ATTENTION_CUDNN;
}

static const char *name_cudnn(Arena *arena, int64_t version) {
    int v = (int)version;
    return arena_printf(arena, "cuDNN %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
}

const char *attention_choice_tuning(const AttentionChoice *choice) {
    const PlanDevice *tuned = choice->tuned;
    Arena *arena = choice->arena;
    if (!tuned || !tuned->n_attentions || !choice->n_kinds) return "";
    if (!is_other_library(choice))
        return arena_printf(arena, ", %d of %d attentions", choice->n_as_tuned, choice->n_kinds);
    int64_t then = tuned->attention_version, now = attention_table_version(choice->table);
    return arena_printf(arena, ", not attention: that was %s%s, and this is %s",
                        then ? "with " : "without cuDNN", then ? name_cudnn(arena, then) : "",
                        name_cudnn(arena, now));
}

/* "cuDNN 9.19.0 and own kernels" */
static const char *list_used(const AttentionChoice *choice, const bool used[N_ATTENTION_KERNELS]) {
    const char *names[N_ATTENTION_KERNELS] = {[ATTENTION_MMA] = "own kernels",
                                              [ATTENTION_WGMMA] = "own kernels on wgmma",
                                              [ATTENTION_JOINT] =
                                                  "own kernels on wgmma in one pass"};
    const char *all = "";
    if (used[ATTENTION_CUDNN])
        names[ATTENTION_CUDNN] = name_cudnn(choice->arena, attention_table_version(choice->table));
    for (int k = 0; k < N_ATTENTION_KERNELS; k++) {
        if (!used[k]) continue;
        all = arena_printf(choice->arena, "%s%s%s", all, *all ? " and " : "", names[k]);
    }
    return all;
}

const char *attention_choice_describe(const AttentionChoice *choice) {
    const bool(*used)[N_ATTENTION_KERNELS] = choice->used;
    bool usual = true;
    for (int b = 0; b < 2; b++) {
        for (int k = 0; k < N_ATTENTION_KERNELS; k++) usual &= k == ATTENTION_MMA || !used[b][k];
    }
    if (usual && !choice->n_as_tuned && !choice->asked) return NULL;
    const char *forward = list_used(choice, used[0]), *backward = list_used(choice, used[1]);
    if (!*backward || strcmp(forward, backward) == 0)
        return arena_printf(choice->arena, "attention by %s", forward);
    return arena_printf(choice->arena, "attention by %s forward, by %s backward", forward,
                        backward);
}
