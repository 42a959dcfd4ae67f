#include "frontend/commands/plan_args.h"

#include "frontend/commands/engine_args.h"
#include "frontend/commands/teacher_args.h"
#include "frontend/gguf/gguf_marks.h"
#include "planner/plan/schedule.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/engine.h"

#include <malloc.h>
#include <string.h>

enum { DEFAULT_MICRO_BATCH = 4, DEFAULT_GLOBAL_BATCH = 16, MAX_RANKS = 1 << 20 };

/* One item of a comma-separated list, copied; *cursor moves past it. NULL at the end. */
static char *next_item(Arena *arena, const char **cursor) {
    if (!**cursor) return NULL;
    size_t length = strcspn(*cursor, ",");
    char *item = arena_strndup(arena, *cursor, length);
    *cursor += length;
    if (**cursor == ',') (*cursor)++;
    return item;
}

static bool set_mesh_axis(Mesh *mesh, int axis, int64_t size, bool *seen, const char *option,
                          Diag *diag) {
    if (size < 1 || size > MAX_RANKS) {
        diag_error(diag, NO_LOC, "--%s: %s cannot be %lld", option, mesh_axis_name(axis),
                   (long long)size);
        return false;
    }
    if (seen[axis]) {
        diag_error(diag, NO_LOC, "--%s: the size of mesh axis %s is given twice", option,
                   mesh_axis_name(axis));
        return false;
    }
    seen[axis] = true;
    mesh->size[axis] = (int)size;
    return true;
}

/* "d=2,p=2,t=2" */
static bool parse_mesh(Arena *arena, const char *text, Mesh *mesh, bool *seen, Diag *diag) {
    char *item;
    while ((item = next_item(arena, &text))) {
        char *equals = strchr(item, '=');
        int64_t size;
        if (!equals) {
            diag_error(diag, NO_LOC, "--mesh: '%s' is not AXIS=SIZE, as in t=2,d=1,p=2", item);
            return false;
        }
        *equals = '\0';
        int axis = mesh_axis_find(item, (int)strlen(item));
        if (axis < 0 || axis >= N_MESH_AXES) {
            diag_error(diag, NO_LOC, "--mesh: '%s' is not a mesh axis (t, c, e, d, r, p)", item);
            return false;
        }
        if (!cli_parse_int(equals + 1, &size)) {
            diag_error(diag, NO_LOC, "--mesh: '%s' is not a whole number", equals + 1);
            return false;
        }
        if (!set_mesh_axis(mesh, axis, size, seen, "mesh", diag)) return false;
    }
    return true;
}

bool plan_mesh_from_args(CliArgs *args, Mesh *mesh, bool seen[N_MESH_AXES], Diag *diag) {
    static const struct {
        CliOption option;
        int axis;
    } single[] = {{OPT_TENSOR, MESH_T},        {OPT_CONTEXT, MESH_C},     {OPT_EXPERT, MESH_E},
                  {OPT_DATA_PARALLEL, MESH_D}, {OPT_DATA_DEGREE, MESH_D}, {OPT_REPLICAS, MESH_R},
                  {OPT_PIPELINE, MESH_P}};
    for (int axis = 0; axis < N_MESH_AXES; axis++) {
        mesh->size[axis] = 1;
        seen[axis] = false;
    }
    if (!parse_mesh(args->arena, cli_text(args, OPT_MESH, ""), mesh, seen, diag)) return false;
    for (size_t i = 0; i < sizeof(single) / sizeof(single[0]); i++) {
        if (!cli_given(args, single[i].option)) continue;
        if (!set_mesh_axis(mesh, single[i].axis, cli_int(args, single[i].option, 1), seen,
                           CLI_OPTIONS[single[i].option].name, diag)) {
            return false;
        }
    }
    double n_ranks = 1; /* as a product it could overflow */
    for (int axis = 0; axis < N_MESH_AXES; axis++) n_ranks *= mesh->size[axis];
    if (n_ranks <= MAX_RANKS) return true;
    diag_error(diag, NO_LOC, "--mesh: %.0f ranks are more than %d", n_ranks, MAX_RANKS);
    return false;
}

static bool batch_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    int parts = mesh_batch_parts(&options->mesh), p = options->mesh.size[MESH_P];
    options->micro_batch = (int)cli_int(args, OPT_MICRO_BATCH, DEFAULT_MICRO_BATCH);
    int64_t unit = (int64_t)options->micro_batch * parts;
    /* As many micro-batches as stages at least, a multiple of them: every schedule can do that. */
    int64_t full = unit * p;
    int64_t global = full * ((DEFAULT_GLOBAL_BATCH + full - 1) / full);
    global = cli_int(args, OPT_GLOBAL_BATCH, global);
    if (global > INT32_MAX) {
        diag_error(diag, NO_LOC, "a global batch of %lld sequences is too large",
                   (long long)global);
        return false;
    }
    if (global % unit != 0) {
        diag_error(diag, NO_LOC, "global batch %lld is not a multiple of micro-batch %d x %s %d",
                   (long long)global, options->micro_batch, mesh_batch_name(&options->mesh), parts);
        return false;
    }
    options->global_batch = (int)global;
    return true;
}

/* "3,2": blocks per chunk. */
static bool split_from_args(CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *text = cli_text(args, OPT_SPLIT, "");
    int *split = NULL, capacity = 0;
    char *item;
    while ((item = next_item(args->arena, &text))) {
        int64_t n_blocks;
        if (!cli_parse_int(item, &n_blocks) || n_blocks < 0 || n_blocks > INT32_MAX) {
            diag_error(diag, NO_LOC, "--split: '%s' is not a number of blocks", item);
            return false;
        }
        ARENA_PUSH(args->arena, split, options->n_split, capacity, (int)n_blocks);
    }
    int n_chunks = options->mesh.size[MESH_P] * options->n_chunks;
    if (cli_given(args, OPT_SPLIT) && options->n_split != n_chunks) {
        diag_error(diag, NO_LOC, "--split: %d numbers for %d chunks (p %d x chunks %d)",
                   options->n_split, n_chunks, options->mesh.size[MESH_P], options->n_chunks);
        return false;
    }
    options->split = split;
    return true;
}

static bool is_pass(const char *name) {
    for (int i = 0; planner_pass_name(i); i++) {
        if (strcmp(planner_pass_name(i), name) == 0) return true;
    }
    return false;
}

/* An option that is f32, unless it says bf16. */
static bool dtype_from_args(const CliArgs *args, CliOption option, const char *name, bool moments,
                            DType *out, Diag *diag) {
    const char *text = cli_text(args, option, "f32");
    const int dtype = dtype_find(text, (int)strlen(text));
    const bool known =
        dtype == DTYPE_F32 || dtype == DTYPE_BF16 || (moments && dtype == DTYPE_DYN8);
    *out = known ? (DType)dtype : DTYPE_F32;
    if (known) return true;
    diag_error(diag, NO_LOC, "%s: '%s' is not f32%s", name, text,
               moments ? ", bf16 or dyn8" : " or bf16");
    return false;
}

/* Is it for products in bf16 only, and these are not? Reported. */
static bool lacks_bf16(const PlanOptions *options, const char *option, Diag *diag) {
    if (dtype_of_activations(options->precision) == DTYPE_BF16) return false;
    diag_error(diag, NO_LOC, "%s: is for products in bf16, and --precision is %s", option,
               dtype_name(options->precision));
    return true;
}

static bool masters_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *how = cli_text(args, OPT_MASTERS, "whole");
    options->split_masters = strcmp(how, "split") == 0;
    if (options->split_masters) return !lacks_bf16(options, "--masters split", diag);
    if (strcmp(how, "whole") == 0) return true;
    diag_error(diag, NO_LOC, "--masters: '%s' is not whole or split", how);
    return false;
}

bool plan_offload_is_searched(const CliArgs *args) {
    return strcmp(cli_text(args, OPT_OFFLOAD, "0"), "auto") == 0;
}

/* "60", "states" or "activations:60", which `name` begins. */
static bool read_share(const char *text, const char *name, int *out_percent) {
    const size_t length = strlen(name);
    int64_t percent = 100;
    bool named = strncmp(text, name, length) == 0;
    if (named && !text[length]) {
        *out_percent = 100;
        return true;
    }
    const char *number = named && text[length] == ':' ? text + length + 1 : text;
    if (!cli_parse_int(number, &percent) || percent < 0 || percent > 100) return false;
    if (number == text && strcmp(name, "states") != 0) return false; /* a bare one is theirs */
    *out_percent = (int)percent;
    return true;
}

/* What of an --offload goes: states and masters, what blocks keep, or both. */
static bool read_offload(const CliArgs *args, const char *text, PlanOptions *out) {
    const char *comma = strchr(text, ',');
    const char *first = comma ? arena_strndup(args->arena, text, (size_t)(comma - text)) : text;
    if (!comma && read_share(text, "activations", &out->offload_activations)) return true;
    return read_share(first, "states", &out->offload) &&
           (!comma || read_share(comma + 1, "activations", &out->offload_activations));
}

/* Halves of what products read stay with them: --masters split leaves states alone. */
static bool offload_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *text = cli_text(args, OPT_OFFLOAD, "0");
    bool searched = plan_offload_is_searched(args);
    if (!searched && !read_offload(args, text, options)) {
        diag_error(diag, NO_LOC,
                   "--offload: '%s' is no percentage from 0 to 100, nor auto, nor states, "
                   "activations or states,activations (states:50, activations:50: half)",
                   text);
        return false;
    }
    if ((!searched && !options->offload && !options->offload_activations) || options->cuda) {
        return true;
    }
    diag_error(diag, NO_LOC,
               "--offload: is for --device cuda: on a CPU all memory is the host's already");
    return false;
}

static bool averages_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    options->ema_decay = cli_real(args, OPT_EMA, 0);
    /* Of a model that is planned and trained at once, the run says that it needs it. */
    options->skips_spikes = cli_given(args, OPT_SKIP_SPIKES) || cli_given(args, OPT_SPIKE_FACTOR) ||
                            cli_given(args, OPT_NOISE_SCALE);
    if (!cli_given(args, OPT_EMA) || (options->ema_decay > 0 && options->ema_decay < 1)) {
        return true;
    }
    diag_error(diag, NO_LOC, "--ema: %g is not between 0 and 1, as 0.999 is", options->ema_decay);
    return false;
}

bool plan_precision_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *name = cli_text(args, OPT_PRECISION, options->cuda ? "bf16" : "f32");
    int dtype = dtype_find(name, (int)strlen(name));
    options->precision = (DType)dtype;
    options->frozen_bits = (int)cli_int(args, OPT_FROZEN_BITS, 0);
    options->qk_clip = cli_real(args, OPT_QK_CLIP, 0);
    options->max_logit = cli_given(args, OPT_MAX_LOGIT);
    if (dtype < 0 || !dtype_is_precision(options->precision)) {
        diag_error(diag, NO_LOC, "--precision: '%s' is not f32, bf16, f16 or fp8", name);
        return false;
    }
    if (options->frozen_bits && options->frozen_bits != 4 && options->frozen_bits != 8) {
        diag_error(diag, NO_LOC, "--frozen-bits: %d is not 4 or 8", options->frozen_bits);
        return false;
    }
    if (!dtype_from_args(args, OPT_OPTIMIZER_STATE, "--optimizer-state", true,
                         &options->state_dtype, diag) ||
        !dtype_from_args(args, OPT_GRADIENTS, "--gradients", false, &options->gradient_dtype,
                         diag) ||
        !averages_from_args(args, options, diag) || !masters_from_args(args, options, diag) ||
        !offload_from_args(args, options, diag)) {
        return false;
    }
    return options->gradient_dtype == DTYPE_F32 || !lacks_bf16(options, "--gradients bf16", diag);
}

bool plan_fp8_products_from_args(const CliArgs *args, const Cluster *cluster, PlanOptions *options,
                                 Diag *diag) {
    bool fp8 = options->precision == DTYPE_FP8;
    bool can = options->cuda && (!cluster || cluster->device.fp8_blocks);
    const char *how = cli_text(args, OPT_FP8_PRODUCTS, can ? "tensor" : "widened");
    bool tensor = strcmp(how, "tensor") == 0;
    options->fp8_tensor_cores = fp8 && tensor;
    if (!tensor && strcmp(how, "widened") != 0) {
        diag_error(diag, NO_LOC, "--fp8-products: '%s' is not tensor or widened", how);
        return false;
    }
    if (cli_given(args, OPT_FP8_PRODUCTS) && !fp8) {
        diag_error(diag, NO_LOC, "--fp8-products: for --precision fp8 only");
        return false;
    }
    if (!tensor || can) return true;
    diag_error(diag, NO_LOC,
               "--fp8-products tensor: %s%s no products of fp8 with a scale for 128 numbers, which "
               "sm_90 has; widened does the same in bf16",
               !options->cuda ? "CPUs have" : "the devices of cluster ",
               !options->cuda ? "" : arena_printf(args->arena, "%s have", cluster->name));
    return false;
}

/* "none", "N" or "dynamic[,FIRST[,STEPS]]". */
static bool parse_loss_scaling(Arena *arena, const char *text, LossScaling *out) {
    int64_t interval = 0;
    const char *item = next_item(arena, &text);
    bool dynamic = item && strcmp(item, "dynamic") == 0;
    *out = (LossScaling){0};
    if (item && strcmp(item, "none") == 0) return !*text;
    if (dynamic) {
        *out = (LossScaling){LOSS_SCALE_INITIAL, LOSS_SCALE_INTERVAL};
        if (!(item = next_item(arena, &text))) return true;
    }
    if (!item || !cli_parse_real(item, &out->initial) || out->initial < 1 ||
        out->initial > LOSS_SCALE_MOST) {
        return false;
    }
    if (!dynamic || !(item = next_item(arena, &text))) return !*text;
    if (!cli_parse_int(item, &interval) || interval < 1 || interval > LOSS_SCALE_MOST_INTERVAL) {
        return false;
    }
    out->interval = (int)interval;
    return !*text;
}

bool plan_loss_scaling_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    bool narrow = options->precision == DTYPE_F16; /* of exponent */
    const char *text = cli_text(args, OPT_LOSS_SCALE, narrow ? "dynamic" : "none");
    if (parse_loss_scaling(args->arena, text, &options->loss_scaling)) return true;
    diag_error(diag, NO_LOC,
               "--loss-scale: '%s' is not none, a number from 1 to 2^32, or "
               "dynamic[,FIRST[,STEPS]], steps a whole number up to %d",
               text, LOSS_SCALE_MOST_INTERVAL);
    return false;
}

static bool messages_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *text = cli_text(args, OPT_ZERO_MESSAGES, "block");
    options->join_messages = strcmp(text, "block") == 0;
    if (options->join_messages || strcmp(text, "weight") == 0) return true;
    diag_error(diag, NO_LOC,
               "--zero-messages: '%s' is not block (one message for all weights of a block, one "
               "for all gradients) or weight (one for each)",
               text);
    return false;
}

bool plan_zero_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *text = cli_text(args, OPT_ZERO, "0");
    options->zero = text[0] - '0';
    if (strlen(text) == 1 && options->zero >= 0 && options->zero < N_ZERO_STAGES) {
        return messages_from_args(args, options, diag);
    }
    diag_error(diag, NO_LOC,
               "--zero: '%s' is not 0 (every rank has everything), 1 (the optimizer's state is "
               "divided over d), 2 (gradients, too) or 3 (weights, too)",
               text);
    return false;
}

bool plan_recompute_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    const char *name = cli_text(args, OPT_RECOMPUTE, "none");
    int mode = recompute_mode_find(name, (int)strlen(name));
    options->recompute = (Recompute)mode;
    if (mode >= 0) return true;
    diag_error(diag, NO_LOC, "--recompute: '%s' is not none, selective or full", name);
    return false;
}

static bool cudnn_from_args(const CliArgs *args, PlanOptions *options, Diag *diag) {
    options->cudnn_backward = cli_given(args, OPT_CUDNN_BACKWARD);
    bool fits = options->cuda && options->precision != DTYPE_F32;
    if (fits || !options->cudnn_backward) return true;
    diag_error(diag, NO_LOC,
               "--cudnn-backward: for --device cuda with --precision bf16, f16 or fp8 only");
    return false;
}

static bool options_from_args(CliArgs *args, PlanOptions *options, Diag *diag) {
    bool seen[N_MESH_AXES];
    if (!plan_mesh_from_args(args, &options->mesh, seen, diag)) return false;
    if (!batch_from_args(args, options, diag)) return false;
    bool many_chunks = cli_int(args, OPT_CHUNKS, 1) > 1;
    options->schedule = cli_text(args, OPT_SCHEDULE, many_chunks ? "interleaved" : "1f1b");
    int schedule = schedule_find(options->schedule);
    bool chunked = schedule >= 0 && schedule_is_chunked(schedule);
    options->n_chunks = (int)cli_int(args, OPT_CHUNKS, chunked ? 2 : 1);
    options->sequence_parallel = cli_given(args, OPT_SEQUENCE_PARALLEL);
    options->expert_parts = (int)cli_int(args, OPT_EXPERT_PARTS, 1);
    if (!plan_zero_from_args(args, options, diag)) return false;
    DeviceKind device = DEVICE_CPU;
    bool runs = args->command->run != cmd_plan;
    if ((runs || cli_given(args, OPT_DEVICE)) && !device_from_args(args, &device, diag)) {
        return false;
    }
    options->cuda = device == DEVICE_CUDA;
    options->seed = (uint64_t)cli_int(args, OPT_SEED, 1);
    options->vocab_multiple = (int)cli_int(args, OPT_VOCAB_MULTIPLE, 0);
    options->lanes = (int)cli_int(args, OPT_LANES, 1);
    options->loss_parts = (int)cli_int(args, OPT_LOSS_PARTS, 1);
    options->dump_after = cli_text(args, OPT_DUMP_AFTER, NULL);
    if (options->dump_after && !is_pass(options->dump_after)) {
        diag_error(diag, NO_LOC, "--dump-after: '%s' is no pass; see perilune opt --list",
                   options->dump_after);
        return false;
    }
    if (!plan_recompute_from_args(args, options, diag)) return false;
    if (plan_offload_is_searched(args)) {
        diag_error(diag, NO_LOC,
                   "--offload auto: is for searches (--cluster); by hand, a percentage");
        return false;
    }
    return plan_precision_from_args(args, options, diag) &&
           plan_fp8_products_from_args(args, NULL, options, diag) &&
           plan_loss_scaling_from_args(args, options, diag) &&
           cudnn_from_args(args, options, diag) && split_from_args(args, options, diag);
}

/* "key=value" of `length`. */
static bool add_setting(CliArgs *args, SettingList *list, const char *text, size_t length) {
    const char *equals = memchr(text, '=', length);
    if (!equals || equals == text) return false;
    ModelSetting setting = {
        arena_strndup(args->arena, text, (size_t)(equals - text)),
        arena_strndup(args->arena, equals + 1, length - (size_t)(equals + 1 - text))};
    ARENA_PUSH(args->arena, list->items, list->count, list->capacity, setting);
    return true;
}

bool plan_add_file_settings(CliArgs *args, const char *path, bool must, SettingList *list,
                            const char **out_model, Diag *diag) {
    Safetensors *file = safetensors_open(path, diag);
    if (!file) return false;
    const char *text = safetensors_find_metadata(file, ENGINE_SETTINGS_KEY);
    bool fine = text || !must;
    *out_model = arena_strdup(args->arena, safetensors_find_metadata(file, "model"));
    if (!fine)
        diag_error(diag, (SourceLoc){path, 0},
                   "does not say the settings of its model: give them with --set");
    for (const char *at = text; fine && at && *at;) {
        size_t length = strcspn(at, "\n");
        fine = add_setting(args, list, at, length);
        if (!fine) {
            diag_error(diag, (SourceLoc){path, 0}, "its '%s' are damaged", ENGINE_SETTINGS_KEY);
        }
        at += length + (at[length] == '\n');
    }
    safetensors_close(file);
    return fine;
}

bool plan_add_settings(CliArgs *args, CliOption set, CliOption from, const char *absent,
                       const SettingList *between, SettingList *out, const char **out_model,
                       Diag *diag) {
    const CliValue *given = &args->values[set];
    bool must = cli_given(args, from), sized = false;
    *out_model = NULL;
    for (int i = 0; i < given->n_list; i++) sized |= strncmp(given->list[i], "size=", 5) == 0;
    if (must && sized) {
        diag_error(diag, NO_LOC, "--%s size: the file of --%s says all sizes",
                   CLI_OPTIONS[set].name, CLI_OPTIONS[from].name);
        return false;
    }
    const char *path = cli_text(args, from, sized ? NULL : absent);
    if (path && !plan_add_file_settings(args, path, must, out, out_model, diag)) return false;
    for (int i = 0; between && i < between->count; i++) {
        ARENA_PUSH(args->arena, out->items, out->count, out->capacity, between->items[i]);
    }
    for (int i = 0; i < given->n_list; i++) {
        if (add_setting(args, out, given->list[i], strlen(given->list[i]))) continue;
        diag_error(diag, NO_LOC, "--%s: '%s' is not KEY=VALUE", CLI_OPTIONS[set].name,
                   given->list[i]);
        return false;
    }
    return true;
}

ModelSetting *plan_settings_from_args(CliArgs *args, const char *absent, int *out_count,
                                      const char **out_model, Diag *diag) {
    SettingList list = {ARENA_ARRAY(args->arena, ModelSetting, 1), 0, 1};
    bool good =
        plan_add_settings(args, OPT_SET, OPT_SET_FROM, absent, NULL, &list, out_model, diag);
    *out_count = list.count;
    return good ? list.items : NULL;
}

/* What a setting belongs to that may have been passed over; NULL: not known. */
static const char *owner_of(const char *name) {
    static const struct {
        const char *begin, *owner;
    } OWNERS[] = {{"embed_", "embedding="},
                  {"class_", "classes="},
                  {"lora_", "lora="},
                  {"rotary_factor", "rotary_scaling="},
                  {"rotary_few", "rotary_scaling="},
                  {"rotary_many", "rotary_scaling="},
                  {"rotary_context", "rotary_scaling="},
                  {"rotary_short", "rotary_scaling=longrope"},
                  {"rotary_long", "rotary_scaling=longrope"},
                  {"rotary_mscale", "rotary_scaling="},
                  {"rotary_", "rotary positions"},
                  {"beta", "preference="},
                  {"gamma", "preference=simpo"},
                  {"label_smoothing", "preference="},
                  {"rpo_alpha", "preference="},
                  {"desirable_", "preference=kto"},
                  {"undesirable_", "preference=kto"},
                  {"online", "preference="},
                  {"clip", "policy="},
                  {"kl", "policy="},
                  {"diffusion_", "diffusion="},
                  {"mask_token", "diffusion="},
                  {"masked", "a loss of tokens"}};
    for (size_t i = 0; i < sizeof(OWNERS) / sizeof(OWNERS[0]); i++) {
        if (strncmp(name, OWNERS[i].begin, strlen(OWNERS[i].begin)) == 0) return OWNERS[i].owner;
    }
    return NULL;
}

/* Facts of a tokenizer and of a base's output, which what is trained of a base may leave aside. */
static bool is_of_base(const SettingTable *settings, const char *name) {
    static const char *const NAMES[] = {"padding",      "tied",          "head_bias",
                                        "transform",    "logit_divisor", "logit_scale",
                                        "decoder_bias", "logit_softcap", "head_act"};
    const size_t n = strlen(name);
    if (strcmp(name, "image_token") == 0) return false;
    if (strcmp(name, "mask_token") == 0 && settings_find(settings, "diffusion")) return false;
    for (size_t i = 0; i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        if (strcmp(name, NAMES[i]) == 0) return true;
    }
    return n > 6 && strcmp(name + n - 6, "_token") == 0;
}

bool plan_check_settings(const CliArgs *args, CliOption set, const Model *model, Diag *diag) {
    const CliValue *given = &args->values[set];
    bool fine = true;
    for (int i = 0; i < given->n_list; i++) {
        const char *name = arena_strndup(args->arena, given->list[i], strcspn(given->list[i], "="));
        const Setting *setting = settings_find(&model->settings, name);
        if (!setting || setting->is_axis || setting->is_count || setting->is_read) continue;
        if (is_of_base(&model->settings, name)) continue;
        if (!setting->own || strcmp(setting->own, setting_text(setting, args->arena)) == 0) {
            continue;
        }
        const char *owner = owner_of(name);
        diag_error(diag, NO_LOC,
                   "--%s %s: has no effect: model %s does not read it as it is set%s%s",
                   CLI_OPTIONS[set].name, given->list[i], model->name,
                   owner ? "; it belongs to " : "", owner ? owner : "");
        fine = false;
    }
    return fine;
}

/* Weights that will be quantized say so themselves. */
static bool qat_from_args(const CliArgs *args, Model *model, Diag *diag) {
    const char *name = cli_text(args, OPT_QAT, NULL);
    if (!name) return true;
    const GgufType *type = gguf_type_named(name);
    if (!type || (type->number != GGUF_TYPE_Q4_0 && type->number != GGUF_TYPE_Q8_0)) {
        diag_error(diag, NO_LOC, "--qat: '%s' is not q4_0 or q8_0", name);
        return false;
    }
    if (strcmp(cli_text(args, OPT_MASTERS, "whole"), "split") == 0) {
        diag_error(diag, NO_LOC,
                   "--masters split: with --qat copies are rounded to blocks, and are no halves of "
                   "their weights");
        return false;
    }
    return gguf_mark(model, type, diag);
}

/* The model of the operand, with a teacher's if there is one. */
static Model *load_model(CliArgs *args, Arena *arena, int64_t batch, const char **out_settings,
                         Diag *diag) {
    int n_settings = 0;
    const char *from;
    Distillation how;
    ModelSetting *settings = plan_settings_from_args(args, NULL, &n_settings, &from, diag);
    if (!settings || !teacher_args_check(args, &how, diag)) return NULL;
    const bool taught = cli_given(args, OPT_TEACHER) || how.stored > 0;
    Model *model = model_load_student(arena, args->operand, settings, n_settings, batch,
                                      taught ? &how : NULL, diag);
    if (!model && from) {
        diag_note(diag, NO_LOC, "--set-from %s: is of model '%s'", cli_text(args, OPT_SET_FROM, ""),
                  from);
    }
    if (!model) return NULL;
    if (from && strcmp(from, model->name) != 0) {
        diag_error(diag, NO_LOC, "--set-from %s: is of model '%s'; %s is model '%s'",
                   cli_text(args, OPT_SET_FROM, ""), from, args->operand, model->name);
        return NULL;
    }
    if (!plan_check_settings(args, OPT_SET, model, diag)) return NULL;
    *out_settings = settings_text(&model->settings, arena);
    if (!qat_from_args(args, model, diag)) return NULL;
    return teacher_args_join(args, arena, batch, model, &how, out_settings, diag) ? model : NULL;
}

bool plan_load_model(CliArgs *args, Arena *arena, int64_t batch, PlanRequest *request, Diag *diag) {
    const char *settings;
    Model *model = load_model(args, arena, batch, &settings, diag);
    if (!model) return false;
    if (model->note && !args->model_noted) fprintf(stderr, "%s\n", model->note);
    args->model_noted = true;
    request->model = model->name;
    request->settings = settings;
    request->forward = model->graph;
    request->n_blocks = model->n_blocks;
    request->seq = model->seq;
    request->vocab = model->vocab;
    request->recipe = model->recipe;
    request->recipe.learning_rate = cli_real(args, OPT_LR, request->recipe.learning_rate);
    return true;
}

Plan *plan_model(CliArgs *args, Arena *arena, int64_t batch, PlanRequest *request, Diag *diag) {
    Arena *work = arena_create();
    Plan *plan = NULL;
    if (plan_load_model(args, work, batch, request, diag)) plan = plan_make(arena, request, diag);
    arena_destroy(work);
    malloc_trim(0); /* else what planning took stays resident beside the run */
    return plan;
}

Plan *plan_from_model(CliArgs *args, StrBuf *dump, Diag *diag) {
    PlanRequest request = {.options.dump = dump};
    if (!options_from_args(args, &request.options, diag)) return NULL;
    int64_t batch = (int64_t)request.options.micro_batch * mesh_batch_parts(&request.options.mesh);
    return plan_model(args, args->arena, batch, &request, diag);
}

bool plan_is_model(const char *path) {
    size_t length = strlen(path);
    return length > 4 && strcmp(path + length - 4, ".lua") == 0;
}

Plan *plan_from_operand(CliArgs *args, Diag *diag) {
    if (plan_is_model(args->operand)) return plan_from_model(args, NULL, diag);
    int own = args->command->sections[0].groups;
    for (int i = 0; i < N_OPTIONS; i++) {
        /* Nothing that is given is ignored in silence. */
        if (!(CLI_OPTIONS[i].groups & own) && cli_given(args, (CliOption)i)) {
            diag_error(diag, NO_LOC, "--%s: %s is a plan already; only a MODEL.lua can be planned",
                       CLI_OPTIONS[i].name, args->operand);
            return NULL;
        }
    }
    return plan_read(args->arena, args->operand, diag);
}
