/* perilune grow: a trained model's weights -> those of a larger one. */
#include "frontend/commands/plan_args.h"
#include "frontend/grow/grow.h"
#include "frontend/hf/hf_config.h"
#include "frontend/progress_line.h"
#include "ir/base/json.h"
#include "planner/show/show_facts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void show_bytes(void *user, int64_t n_done, int64_t n_all) {
    progress_line_show(user, (int)(n_done >> 20), (int)(n_all >> 20), "");
}

/* --- the two models --- */

typedef struct Small {
    const char *model; /* its name */
    SettingList settings;
} Small;

static bool read_small(CliArgs *args, Small *out, Diag *diag) {
    *out = (Small){.settings = {ARENA_ARRAY(args->arena, ModelSetting, 1), 0, 1}};
    if (!plan_add_file_settings(args, args->operand, false, &out->settings, &out->model, diag)) {
        return false;
    }
    if (out->model && out->settings.count > 0) return true;
    diag_error(diag, (SourceLoc){args->operand, 0},
               "does not say its model and settings, as files that training or import wrote do");
    return false;
}

/* The small model, with sequences as long as the larger one's: its weights are none of that, but
 * for learned positions. script: NULL, the one that is shipped. */
static Model *load_small(CliArgs *args, const Small *small, const char *script, int64_t seq,
                         Diag *diag) {
    SettingList list = {ARENA_ARRAY(args->arena, ModelSetting, 1), 0, 1};
    for (int i = 0; i < small->settings.count; i++) {
        ARENA_PUSH(args->arena, list.items, list.count, list.capacity, small->settings.items[i]);
    }
    if (seq > 0) {
        const ModelSetting length = {"seq", arena_printf(args->arena, "%" PRId64, seq)};
        ARENA_PUSH(args->arena, list.items, list.count, list.capacity, length);
    }
    if (!script && !hf_family_find(small->model)) {
        diag_error(diag, (SourceLoc){args->operand, 0},
                   "is of model '%s', whose script --from MODEL.lua has to say", small->model);
        return NULL;
    }
    Model *model =
        script ? model_load(args->arena, script, list.items, list.count, 1, diag)
               : model_load_shipped(args->arena, small->model, list.items, list.count, 1, diag);
    if (!model) diag_note(diag, (SourceLoc){args->operand, 0}, "is of model '%s'", small->model);
    if (!model || strcmp(model->name, small->model) == 0) return model;
    diag_error(diag, (SourceLoc){args->operand, 0}, "is of model '%s'; %s is model '%s'",
               small->model, script ? script : "the script", model->name);
    return NULL;
}

/* Of a model by another script what was set, as far as the larger one has it, too. */
static void add_common(CliArgs *args, const Model *small, const Model *plain, SettingList *list) {
    for (int i = 0; i < small->settings.count; i++) {
        const Setting *setting = &small->settings.items[i];
        const Setting *other = settings_find(&plain->settings, setting->name);
        if (!setting->has_value || !setting->is_settable || strcmp(setting->name, "size") == 0 ||
            !other || !other->is_settable || other->type != setting->type) {
            continue;
        }
        const char *value = setting_text(setting, args->arena);
        const bool is_size = setting->is_axis || setting->is_count;
        if (!is_size && setting->own && strcmp(setting->own, value) == 0) continue;
        const ModelSetting pair = {setting->name, value};
        ARENA_PUSH(args->arena, list->items, list->count, list->capacity, pair);
    }
}

static bool load_models(CliArgs *args, GrowOptions *options, Diag *diag) {
    const char *script = cli_text(args, OPT_GROW_INTO, NULL), *set_from;
    const char *from_script = cli_text(args, OPT_GROW_FROM, NULL);
    Small small;
    if (!read_small(args, &small, diag)) return false;
    Model *plain = model_load(args->arena, script, NULL, 0, 1, diag);
    if (!plain) return false;
    const bool same = strcmp(plain->name, small.model) == 0;
    if (same && !from_script) from_script = script;
    Model *from = load_small(args, &small, from_script, 0, diag);
    if (!from) return false;
    SettingList list = {ARENA_ARRAY(args->arena, ModelSetting, 1), 0, 1}, common = list;
    const CliValue *set = &args->values[OPT_SET];
    bool sized = cli_given(args, OPT_SET_FROM);
    for (int i = 0; i < set->n_list; i++) sized |= strncmp(set->list[i], "size=", 5) == 0;
    if (!same && !sized) add_common(args, from, plain, &common);
    if (!plan_add_settings(args, OPT_SET, OPT_SET_FROM, same ? args->operand : NULL, &common, &list,
                           &set_from, diag)) {
        return false;
    }
    if (set_from && strcmp(set_from, plain->name) != 0) {
        diag_error(diag, NO_LOC, "--set-from: its file is of model '%s'; %s is model '%s'",
                   set_from, script, plain->name);
        return false;
    }
    Model *into = model_load(args->arena, script, list.items, list.count, 1, diag);
    if (!into || !plan_check_settings(args, OPT_SET, into, diag)) return false;
    if (into->seq != from->seq) from = load_small(args, &small, from_script, into->seq, diag);
    options->from = from;
    options->into = into;
    return from != NULL;
}

/* --- what was done --- */

typedef enum Done {
    DONE_COPIED,
    DONE_SCALED,
    DONE_WIDENED,
    DONE_EXPERTS,
    DONE_TOKENS,
    DONE_ADDED,
    DONE_NEW,
    N_DONE
} Done;
static const struct {
    const char *key, *text;
} DONE[N_DONE] = {
    [DONE_COPIED] = {"copied", "as they were"},
    [DONE_SCALED] = {"scaled", "as they were, times a number"},
    [DONE_WIDENED] = {"widened", "repeated along axes that grow"},
    [DONE_EXPERTS] = {"experts", "of experts: copies, or slices"},
    [DONE_TOKENS] = {"tokens", "with rows of new tokens"},
    [DONE_ADDED] = {"added", "of layers that are added"},
    [DONE_NEW] = {"new", "as the model's script begins them"},
};

static Done done_of(const Grown *grown, const GrowParam *param) {
    const int block = param->node->block;
    if (!param->from) return DONE_NEW;
    if (block > 0 &&
        (grown->block_added[block] || grown->block_of[block] <= grown->block_of[block - 1])) {
        return DONE_ADDED;
    }
    Done done = param->scale == 1 ? DONE_COPIED : DONE_SCALED;
    for (int d = 0; d < param->node->types[0].rank; d++) {
        const GrowKind kind = param->dims[d].kind;
        if (kind == GROW_MIXTURE || kind == GROW_EXPERTS) return DONE_EXPERTS;
        if (kind == GROW_TOKENS) done = DONE_TOKENS;
        if (kind == GROW_CLONE && done != DONE_TOKENS) done = DONE_WIDENED;
    }
    return done;
}

typedef struct Counts {
    int n[N_DONE], n_zero;
    int64_t numbers[N_DONE];
} Counts;

static Counts count(const Grown *grown) {
    Counts counts = {0};
    for (int i = 0; i < grown->n_params; i++) {
        const Done done = done_of(grown, &grown->params[i]);
        counts.n[done]++;
        counts.numbers[done] += type_elements(&grown->params[i].node->types[0]);
        counts.n_zero += grown->params[i].zero;
    }
    return counts;
}

static void print_grown(const GrowOptions *options, const Grown *grown) {
    const Counts counts = count(grown);
    char before[UNIT_TEXT], after[UNIT_TEXT];
    printf("grown   %s out of %s: %s parameters out of %s\n", options->into->name,
           options->from->name, unit_count((double)grown->n_after, after),
           unit_count((double)grown->n_before, before));
    for (int d = 0; d < N_DONE; d++) {
        if (!counts.n[d]) continue;
        printf("%-8s%d tensors, %s numbers, %s\n", DONE[d].key, counts.n[d],
               unit_count((double)counts.numbers[d], after), DONE[d].text);
    }
    for (int i = 0; i < grown->n_params; i++) {
        const GrowParam *p = &grown->params[i];
        if (!p->from && p->node->block <= 0) {
            printf("new     %s: %s%s\n", p->name, node_string(p->node, ATTR_init),
                   p->node->block == 0 ? ", and so in all layers" : "");
        }
    }
    if (counts.n_zero) {
        printf("zero    %d tensors: layers that are added pass on what they read, until training "
               "changes that\n",
               counts.n_zero);
    }
    printf("same    %s\n", grown->n_reasons ? "no: the outputs are not quite those of the small one"
                                            : "yes, by the rules: its outputs are the small one's");
    for (int i = 0; i < grown->n_reasons; i++) printf("        - %s\n", grown->reasons[i]);
    if (grown->n_states) {
        printf("note    %d tensors of the optimizer's states are left out\n", grown->n_states);
    }
    printf("wrote   %s\n", options->to);
}

static void print_json(const GrowOptions *options, const Grown *grown) {
    const Counts counts = count(grown);
    json_t *json = json_pack("{s:s,s:s,s:I,s:I,s:b,s:i}", "model", options->into->name, "from",
                             options->from->name, "parameters_before", (json_int_t)grown->n_before,
                             "parameters", (json_int_t)grown->n_after, "preserved",
                             grown->n_reasons == 0, "states_left_out", grown->n_states);
    json_t *done = json_object(), *reasons = json_array(), *params = json_array();
    for (int d = 0; d < N_DONE; d++) {
        json_object_set_new(done, DONE[d].key,
                            json_pack("{s:i,s:I}", "tensors", counts.n[d], "numbers",
                                      (json_int_t)counts.numbers[d]));
    }
    for (int i = 0; i < grown->n_reasons; i++) {
        json_array_append_new(reasons, json_string(grown->reasons[i]));
    }
    for (int i = 0; i < grown->n_params; i++) {
        const GrowParam *p = &grown->params[i];
        json_array_append_new(params, json_pack("{s:s,s:s,s:s?,s:f,s:b}", "name", p->name, "done",
                                                DONE[done_of(grown, p)].key, "from", p->from_name,
                                                "scale", p->scale, "zero", p->zero));
    }
    json_object_set_new(json, "done", done);
    json_object_set_new(json, "reasons", reasons);
    json_object_set_new(json, "tensors", params);
    char *text = json_dumps(json, JSON_INDENT(1));
    printf("%s\n", text ? text : "{}");
    free(text);
    json_decref(json);
}

static bool read_depth(const CliArgs *args, GrowDepth *out, Diag *diag) {
    static const char *const NAMES[] = {
        [GROW_IDENTITY] = "identity", [GROW_STACK] = "stack", [GROW_INTERLEAVE] = "interleave"};
    const char *name = cli_text(args, OPT_GROW_DEPTH, "identity");
    for (int i = 0; i < 3; i++) {
        if (strcmp(NAMES[i], name) != 0) continue;
        *out = (GrowDepth)i;
        return true;
    }
    diag_error(diag, NO_LOC, "--depth: '%s' is not identity, stack or interleave", name);
    return false;
}

static int grow(CliArgs *args, Diag *diag) {
    const bool quiet = cli_given(args, OPT_QUIET), json = cli_given(args, OPT_JSON);
    ProgressLine line = progress_line_start("MiB written");
    GrowOptions options = {.path = args->operand,
                           .to = cli_text(args, OPT_OUTPUT_WEIGHTS, NULL),
                           .noise = cli_real(args, OPT_GROW_NOISE, 0),
                           .seed = (uint64_t)cli_int(args, OPT_SEED, 1),
                           .progress = quiet || json ? NULL : show_bytes,
                           .progress_user = &line};
    Grown grown;
    if (!options.to || strcmp(options.to, "-") == 0) {
        return cli_usage_error("grow: -o FILE says where to write the weights");
    }
    if (!cli_given(args, OPT_GROW_INTO)) {
        return cli_usage_error("grow: --into MODEL.lua says which model is to have them");
    }
    if (!read_depth(args, &options.depth, diag) || !load_models(args, &options, diag) ||
        !grow_find(args->arena, &options, &grown, diag)) {
        return EXIT_USAGE;
    }
    const bool good = grow_write(args->arena, &options, &grown, diag);
    progress_line_end(&line);
    if (!good) return EXIT_FAILED;
    if (json) print_json(&options, &grown);
    if (!json && !quiet) print_grown(&options, &grown);
    return EXIT_DONE;
}

int cmd_grow(CliArgs *args) {
    Diag *diag = diag_create();
    int status = grow(args, diag);
    if (diag_error_count(diag) > 0) status = cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
