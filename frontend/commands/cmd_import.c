/* perilune import: Hugging Face's weights, or PEFT's adapters -> a file of Perilune's. */
#include "frontend/commands/plan_args.h"
#include "frontend/gguf/gguf_import.h"
#include "frontend/gguf/gguf_tokenizer.h"
#include "frontend/hf/hf_adapter_import.h"
#include "frontend/hf/hf_import.h"
#include "frontend/hf/hf_vision.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

/* transformers goes by how long a text is when it runs, which a compiled graph cannot. */
static void print_positions(const SettingTable *settings) {
    const Setting *scaling = settings_find(settings, "rotary_scaling");
    const Setting *seq = settings_find(settings, "seq");
    const Setting *context = settings_find(settings, "rotary_context");
    if (!scaling || scaling->type != SETTING_STRING || strcmp(scaling->text, "longrope") != 0 ||
        !seq || seq->type != SETTING_INTEGER || !context || context->type != SETTING_INTEGER) {
        return;
    }
    const bool is_long = seq->integer > context->integer;
    printf("note     longrope: texts of any length have the factors of %s ones, as seq is %s "
           "than %" PRId64 ": --set seq=N\n",
           is_long ? "long" : "short", is_long ? "more" : "no more", context->integer);
}

static void print_import(CliArgs *args, const HfImport *import, const char *path) {
    const HfConfig *config = &import->config;
    const char *shipped = arena_printf(args->arena, "models/%s.lua", config->family->script);
    const char *text = settings_text(&import->model->settings, args->arena);
    const char *script = cli_text(args, OPT_MODEL_SCRIPT, shipped);
    printf("model    %s (%s) as %s: %" PRId64 " parameters\n", config->type->name,
           hf_classes_architecture(config->type, import->model), script, import->n_parameters);
    printf("settings");
    for (; *text; text += strcspn(text, "\n") + 1) {
        printf(" %.*s", (int)strcspn(text, "\n"), text);
    }
    printf("\n");
    if (config->cut) {
        const char *value =
            setting_text(settings_find(&import->model->settings, config->cut), args->arena);
        printf("note     %s is %s, and could be %" PRId64 " by its configuration: --set %s=N\n",
               config->cut, value, config->cut_from, config->cut);
    }
    if (config->part) {
        printf("note     the text part of a %s: %d other tensors are left out\n",
               config->part->type, import->n_left_out);
    } else if (import->n_left_out) {
        printf("note     %d tensors are left out, of what %s\n", import->n_left_out,
               hf_vision_is_type(config->type->name) ? "the tower computes behind what is read"
                                                     : "predicts tokens beyond the next");
    }
    if (import->n_packed) {
        printf("note     %d tensors were quantized (%s) and are widened: training, and an export, "
               "have them in floating point\n",
               import->n_packed, config->quantized.method->name);
    }
    if (import->n_scales) {
        printf("note     %d scales of activations are left out\n", import->n_scales);
    }
    if (config->classes.unnamed) {
        printf(
            "note     classes have numbers: label %s cannot be a name here; export --like of the "
            "folder gives its labels again\n",
            config->classes.unnamed);
    }
    print_positions(&import->model->settings);
    printf("wrote    %s\n", path);
    printf("next     perilune train %s --set-from %s --load %s --data FILE\n", script, path, path);
}

/* What was given: settings, and the name of the model that --set-from's file is of. */
typedef struct Given {
    ModelSetting *settings;
    int n_settings;
    const char *from, *script, *path;
    DType dtype; /* to write */
} Given;

static int import_model(CliArgs *args, const Given *given, Diag *diag) {
    HfImport import;
    if (given->from) {
        diag_error(diag, NO_LOC, "import: --set-from: %s is no adapter of PEFT's, but a model",
                   args->operand);
        return EXIT_USAGE;
    }
    if (!hf_import_open(args->arena, args->operand, given->script, given->settings,
                        given->n_settings, &import, diag)) {
        return EXIT_USAGE;
    }
    import.dtype = given->dtype;
    bool fine = hf_import_write(&import, given->path, diag);
    if (fine) print_import(args, &import, given->path);
    hf_import_close(&import);
    return fine ? EXIT_DONE : import.damaged ? EXIT_USAGE : EXIT_FAILED;
}

static int import_gguf(CliArgs *args, const Given *given, Diag *diag) {
    GgufFile file;
    HfImport import;
    const char *tokenizer = cli_text(args, OPT_SAVE_TOKENIZER, NULL);
    if (given->from) {
        diag_error(diag, NO_LOC, "import: --set-from: %s is no adapter of PEFT's, but a GGUF file",
                   args->operand);
        return EXIT_USAGE;
    }
    if (!gguf_import_open(args->arena, args->operand, given->script, given->settings,
                          given->n_settings, &file, &import, diag)) {
        return EXIT_USAGE;
    }
    import.dtype = given->dtype;
    bool readable = !tokenizer || gguf_tokenizer_save(&file, tokenizer, diag);
    bool fine = readable && hf_import_write(&import, given->path, diag);
    if (fine) print_import(args, &import, given->path);
    if (fine && tokenizer) printf("wrote    %s\n", tokenizer);
    const bool wrong = import.damaged || !readable;
    hf_import_close(&import);
    gguf_close(&file);
    return fine ? EXIT_DONE : wrong ? EXIT_USAGE : EXIT_FAILED;
}

static int import_adapter(CliArgs *args, const Given *given, Diag *diag) {
    HfAdapterImport import;
    bool wrong;
    if (given->dtype != DTYPE_F32) {
        diag_error(diag, NO_LOC, "--dtype: adapters are imported in f32");
        return EXIT_USAGE;
    }
    if (!given->from) {
        diag_error(diag, NO_LOC,
                   "import: %s is an adapter of PEFT's: --set-from BASE says which model it is of, "
                   "by its imported weights",
                   args->operand);
        return EXIT_USAGE;
    }
    if (!hf_adapter_import(args->arena, args->operand, given->from, given->script, given->settings,
                           given->n_settings, given->path, &import, &wrong, diag)) {
        return wrong ? EXIT_USAGE : EXIT_FAILED;
    }
    const char *base = cli_text(args, OPT_SET_FROM, "");
    printf("model    %s with adapters: %d tensors\n", import.model->name, import.n_adapters);
    printf("wrote    %s\n", given->path);
    if (import.n_saved) {
        printf("note     %d whole, beside adapters; --set freeze=!NAME lets such train on\n",
               import.n_saved);
    }
    printf("next     perilune train models/%s.lua --set-from %s%s%s%s --load %s --load-trained %s "
           "--data FILE\n",
           import.model->name, given->path, import.saved ? " --set 'freeze=" : "",
           import.saved ? import.saved : "", import.saved ? "'" : "", base, given->path);
    return EXIT_DONE;
}

/* What is no GGUF file must be a folder. */
static bool check_folder(const char *path, Diag *diag) {
    struct stat st;
    if (stat(path, &st) != 0) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot open: %s", strerror(errno));
        return false;
    }
    if (S_ISDIR(st.st_mode)) return true;
    diag_error(diag, (SourceLoc){path, 0},
               "is neither a GGUF file nor a folder of transformers', with config.json and "
               "weights");
    return false;
}

int cmd_import(CliArgs *args) {
    Diag *diag = diag_create();
    Given given = {.path = cli_text(args, OPT_OUTPUT_WEIGHTS, NULL),
                   .script = cli_text(args, OPT_MODEL_SCRIPT, NULL)};
    const char *dtype = cli_text(args, OPT_DTYPE, "f32");
    int status = EXIT_USAGE, found = dtype_find(dtype, (int)strlen(dtype));
    bool known = found >= 0 && dtype_is_float((DType)found);
    given.dtype = known ? (DType)found : DTYPE_F32;
    given.settings = plan_settings_from_args(args, NULL, &given.n_settings, &given.from, diag);
    if (given.settings && !given.path) {
        diag_error(diag, NO_LOC, "import: -o FILE says where to write");
    }
    if (given.settings && !known) {
        diag_error(diag, NO_LOC, "--dtype: '%s' is not f32, bf16 or f16", dtype);
    } else if (given.settings && given.path) {
        const bool adapter = hf_adapter_is_folder(args->arena, args->operand);
        const bool gguf = gguf_is_file(args->operand);
        if (cli_given(args, OPT_SAVE_TOKENIZER) && !gguf) {
            diag_error(diag, NO_LOC,
                       "--save-tokenizer: %s is no GGUF file; a folder has its "
                       "tokenizer's files",
                       args->operand);
        } else if (gguf || check_folder(args->operand, diag)) {
            status = gguf      ? import_gguf(args, &given, diag)
                     : adapter ? import_adapter(args, &given, diag)
                               : import_model(args, &given, diag);
        }
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
