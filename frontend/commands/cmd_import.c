/* perilune import: Hugging Face's weights -> a file of Perilune's. */
#include "frontend/commands/plan_args.h"
#include "frontend/hf/hf_import.h"

#include <inttypes.h>
#include <string.h>

static void print_import(CliArgs *args, const HfImport *import, const char *path) {
    const HfConfig *config = &import->config;
    const char *shipped = arena_printf(args->arena, "models/%s.lua", config->family->script);
    const char *text = settings_text(&import->model->settings, args->arena);
    const char *script = cli_text(args, OPT_MODEL_SCRIPT, shipped);
    printf("model    %s (%s) as %s: %" PRId64 " parameters\n", config->type->name,
           config->type->architecture, script, import->n_parameters);
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
    printf("wrote    %s\n", path);
    printf("next     perilune train %s --set-from %s --load %s --data FILE\n", script, path, path);
}

int cmd_import(CliArgs *args) {
    Diag *diag = diag_create();
    const char *path = cli_text(args, OPT_OUTPUT_WEIGHTS, NULL), *from;
    int n_settings = 0, status = EXIT_USAGE;
    HfImport import;
    ModelSetting *settings = plan_settings_from_args(args, NULL, &n_settings, &from, diag);
    if (settings && !path) diag_error(diag, NO_LOC, "import: -o FILE says where to write");
    if (settings && path &&
        hf_import_open(args->arena, args->operand, cli_text(args, OPT_MODEL_SCRIPT, NULL), settings,
                       n_settings, &import, diag)) {
        status = hf_import_write(&import, path, diag) ? EXIT_DONE : EXIT_FAILED;
        if (status == EXIT_DONE) print_import(args, &import, path);
        hf_import_close(&import);
    }
    cli_fail(diag, status);
    diag_destroy(diag);
    return status;
}
