/* perilune export: a file of Perilune's weights -> a folder for Hugging Face's transformers. */
#include "frontend/commands/export_gguf.h"
#include "frontend/commands/plan_args.h"
#include "frontend/hf/hf_embed.h"
#include "frontend/hf/hf_export.h"
#include "frontend/units.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static const double MOST_SHARD_BYTES = 1e15;

/* "5GB", "500MB", "100000": decimal, as transformers reads them. */
static bool parse_size(const char *text, size_t *out) {
    static const struct {
        const char *unit;
        double bytes;
    } UNITS[] = {{"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}};
    size_t length = strspn(text, "0123456789.");
    char number[32];
    double value;
    snprintf(number, sizeof(number), "%.*s", (int)(length < 31 ? length : 31), text);
    if (!length || !cli_parse_real(number, &value)) return false;
    for (size_t i = 0; i < sizeof(UNITS) / sizeof(UNITS[0]); i++) {
        if (strcmp(text + length, UNITS[i].unit) != 0) continue;
        value *= UNITS[i].bytes;
        *out = value < MOST_SHARD_BYTES ? (size_t)value : (size_t)MOST_SHARD_BYTES;
        return value >= 1;
    }
    return false;
}

/* A folder that is made and put in its place: neither the one at hand nor standard output. */
static bool names_folder(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    return path[0] && !is_dots && strcmp(path, "-") != 0;
}

static bool options_from_args(const CliArgs *args, DType *dtype, size_t *max_bytes, Diag *diag) {
    bool alone = cli_given(args, OPT_ADAPTER);
    const char *name = cli_text(args, OPT_DTYPE, alone ? "f32" : "bf16"),
               *size = cli_text(args, OPT_MAX_SHARD_SIZE, "5GB");
    int found = dtype_find(name, (int)strlen(name));
    if (!names_folder(cli_text(args, OPT_OUTPUT_DIR, ""))) {
        diag_error(diag, NO_LOC, "export: -o DIR says which folder to make, by its name");
    } else if (found < 0 || !dtype_is_float((DType)found)) {
        diag_error(diag, NO_LOC, "--dtype: '%s' is not f32, bf16 or f16", name);
    } else if (!parse_size(size, max_bytes)) {
        diag_error(diag, NO_LOC, "--max-shard-size: '%s' is no size as 500MB or 5GB", size);
    } else {
        *dtype = (DType)found;
        return true;
    }
    return false;
}

/* By --model, or the shipped one that the weights name, with the settings of what was trained last.
 * NULL: reported. */
static Model *load_model(CliArgs *args, const Safetensors *weights, Diag *diag) {
    const char *of = cli_text(args, OPT_LOAD_TRAINED, args->operand);
    int n_settings = 0;
    const char *from, *script = cli_text(args, OPT_MODEL_SCRIPT, NULL);
    const char *name = safetensors_find_metadata(weights, "model");
    if (name && !hf_family_of(args->arena, name, diag)) return NULL;
    ModelSetting *settings = plan_settings_from_args(args, of, &n_settings, &from, diag);
    Model *model = NULL;
    if (!settings) return NULL;
    if (script) {
        model = model_load(args->arena, script, settings, n_settings, 1, diag);
    } else if (name) {
        model = model_load_shipped(args->arena, name, settings, n_settings, 1, diag);
    } else {
        diag_error(diag, (SourceLoc){args->operand, 0},
                   "does not say which model it is of; give --model MODEL.lua");
    }
    if (model) {
        ModelSetting more[HF_EMBED_SETTINGS];
        const int n_more = hf_embed_exported(args->arena, model, more), n = n_settings + n_more;
        ModelSetting *all = ARENA_ARRAY(args->arena, ModelSetting, n + 1);
        if (n_settings) memcpy(all, settings, (size_t)n_settings * sizeof(*all));
        if (n_more) memcpy(all + n_settings, more, (size_t)n_more * sizeof(*all));
        if (n_more) {
            model = script ? model_load(args->arena, script, all, n, 1, diag)
                           : model_load_shipped(args->arena, name, all, n, 1, diag);
        }
    }
    if (!model) return NULL;
    bool other = name && strcmp(name, model->name) != 0;
    if (!other && (!from || strcmp(from, model->name) == 0)) return model;
    diag_error(diag, (SourceLoc){other ? args->operand : cli_text(args, OPT_SET_FROM, ""), 0},
               "is of model '%s', not '%s'", other ? name : from, model->name);
    return NULL;
}

/* The model's value of the setting of "key=value"; NULL: it has none. */
static const char *value_of(const HfExport *export, const char *pair) {
    const char *name = arena_strndup(export->arena, pair, strcspn(pair, "="));
    const Setting *setting = settings_find(&export->model->settings, name);
    return setting && setting->has_value ? setting_text(setting, export->arena) : NULL;
}

static bool has(const HfExport *export, const char *pair) {
    const char *value = value_of(export, pair);
    return value && strcmp(value, strchr(pair, '=') + 1) == 0;
}

/* What the model does otherwise than the exported one will. */
void export_print_implied(const HfExport *export) {
    const HfFamily *family = export->family;
    if (!family->implied || has(export, family->implied)) return;
    if (!value_of(export, family->implied)) return;
    if (family->implied_when && !has(export, family->implied_when)) return;
    printf("note     %.*s is %s here; %s (%s)\n", (int)strcspn(family->implied, "="),
           family->implied, value_of(export, family->implied), family->implied_means,
           family->implied);
}

/* By it transformers finds a decoder's text's last token, whose classes are those of the text. */
static void print_padding(const HfExport *export) {
    const int64_t padding = hf_classes_padding(export->config);
    if (hf_classes_count(export->model) == 0 || hf_classes_of_encoder(export->family)) return;
    if (padding < 0) {
        printf("note     no pad_token_id, without which transformers takes one text at a time: "
               "--set documents=ID or --like DIR says it\n");
        return;
    }
    printf("note     pad_token_id is %" PRId64 ": transformers tells a text by its last token that "
           "is another\n",
           padding);
}

static void print_export(const HfExport *export, const char *dir) {
    char bytes[32];
    units_format_bytes(bytes, sizeof(bytes), (int64_t) export->n_bytes);
    printf("model    %s (%s): ", export->type->name,
           hf_classes_architecture(export->type, export->model));
    if (export->adapters_alone) {
        printf("adapters alone, %s in %s\n", bytes, dtype_name(export->dtype));
        printf("wrote    %s: adapter_config.json and adapter_model.safetensors\n", dir);
        return;
    }
    printf("%d tensors, %s in %s%s\n", export->layout.n_items, bytes, dtype_name(export->dtype),
           export->adapter_scale > 0 ? ", adapters merged into their weights" : "");
    printf("wrote    %s: config.json and %d file%s of weights\n", dir, export->n_shards,
           export->n_shards == 1 ? "" : "s");
    export_print_implied(export);
    print_padding(export);
    if (!export->like) {
        printf("note     no tokenizer: --like DIR copies that of a folder of Hugging Face's\n");
    }
}

static int export_weights(CliArgs *args, HfExportRequest *request, Diag *diag) {
    HfExport export;
    size_t max_bytes;
    const char *dir = cli_text(args, OPT_OUTPUT_DIR, NULL);
    if (!options_from_args(args, &request->dtype, &max_bytes, diag)) return EXIT_USAGE;
    request->model = load_model(args, request->weights, diag);
    if (!request->model || !hf_export_try(args->arena, dir, diag) ||
        !hf_export_open(args->arena, request, &export, diag)) {
        return EXIT_USAGE;
    }
    export.max_shard_bytes = max_bytes;
    bool fine = hf_export_write(&export, dir, diag);
    if (fine) print_export(&export, dir);
    hf_export_close(&export);
    return fine ? EXIT_DONE : EXIT_FAILED;
}

int cmd_export(CliArgs *args) {
    Diag *diag = diag_create();
    HfExportRequest request = {.path = args->operand,
                               .trained_path = cli_text(args, OPT_LOAD_TRAINED, NULL),
                               .like = cli_text(args, OPT_LIKE, NULL),
                               .adapters_alone = cli_given(args, OPT_ADAPTER)};
    bool as_gguf;
    int status = EXIT_USAGE;
    const bool known = export_format(args, &as_gguf, diag);
    request.weights = known ? safetensors_open(request.path, diag) : NULL;
    if (request.weights && request.trained_path) {
        request.trained = safetensors_open(request.trained_path, diag);
    }
    bool open = request.weights && (request.trained || !request.trained_path);
    if (open && as_gguf) {
        const Model *model = load_model(args, request.weights, diag);
        if (model) status = export_gguf(args, model, &request, diag);
    } else if (open) {
        status = export_weights(args, &request, diag);
    }
    safetensors_close(request.weights);
    safetensors_close(request.trained);
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
