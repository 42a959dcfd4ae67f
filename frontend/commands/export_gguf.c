#include "frontend/commands/export_gguf.h"

#include "frontend/gguf/gguf_export.h"
#include "frontend/units.h"

#include <string.h>
#include <sys/stat.h>

bool export_format(const CliArgs *args, bool *out_gguf, Diag *diag) {
    /* Options of one format alone. */
    static const CliOption OF_HF[] = {OPT_ADAPTER, OPT_MAX_SHARD_SIZE}, OF_GGUF[] = {OPT_TOKENIZER};
    const char *name = cli_text(args, OPT_FORMAT, "hf");
    *out_gguf = strcmp(name, "gguf") == 0;
    if (!*out_gguf && strcmp(name, "hf") != 0) {
        diag_error(diag, NO_LOC, "--format: '%s' is not hf or gguf", name);
        return false;
    }
    const CliOption *others = *out_gguf ? OF_HF : OF_GGUF;
    const size_t n = *out_gguf ? sizeof(OF_HF) : sizeof(OF_GGUF);
    for (size_t i = 0; i < n / sizeof(*others); i++) {
        if (!cli_given(args, others[i])) continue;
        diag_error(diag, NO_LOC, "export: --%s goes with --format %s", CLI_OPTIONS[others[i]].name,
                   *out_gguf ? "hf" : "gguf");
        return false;
    }
    return true;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat x, y;
    return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* The file to write: not one that is read, and one that can be opened. */
static bool check_path(const CliArgs *args, const char *path, const HfExportRequest *files,
                       Diag *diag) {
    const char *const read[] = {files->path, files->trained_path,
                                cli_text(args, OPT_TOKENIZER, NULL)};
    if (!path || !path[0] || strcmp(path, "-") == 0) {
        diag_error(diag, NO_LOC, "export: -o FILE says which file to make, by its name");
        return false;
    }
    for (size_t i = 0; i < sizeof(read) / sizeof(read[0]); i++) {
        if (!is_same_file(path, read[i])) continue;
        diag_error(diag, NO_LOC, "--output %s: would replace what export reads", path);
        return false;
    }
    return cli_try_path(path, diag);
}

/* What llama.cpp does otherwise with text, or cannot do. */
static void print_tokenizer(const GgufTokenizer *tokenizer, bool given) {
    if (strcmp(tokenizer->kind, "none") == 0) {
        printf("note     no tokenizer: --tokenizer FILE or --like DIR gives it one\n");
        return;
    }
    if (strcmp(tokenizer->kind, "bytes") == 0 && !given) {
        printf("note     256 tokens and no tokenizer: they are the bytes of a text\n");
    }
    if (!tokenizer->ends_texts) {
        printf("note     no token ends texts: llama.cpp takes token 11, or 2 of a \"llama\", for "
               "one that does\n");
    }
    if (tokenizer->composes) {
        printf("note     text is to be in NFC, which llama.cpp does not see to\n");
    }
    if (tokenizer->n_plain) {
        printf("note     %d added tokens take spaces or words around them into account, which "
               "GGUF cannot say\n",
               tokenizer->n_plain);
    }
}

static void print_gguf(const CliArgs *args, const GgufExport *export, const char *path) {
    char bytes[32];
    units_format_bytes(bytes, sizeof(bytes), (int64_t) export->n_bytes);
    printf("model    %s: %d tensors, %s in %s%s\n", export->hf.type->architecture,
           export->n_tensors, bytes, export->type->name,
           export->hf.adapter_scale > 0 ? ", adapters merged into their weights" : "");
    printf("wrote    %s\n", path);
    export_print_implied(&export->hf);
    if (export->n_whole) {
        printf("note     %d tensors are %s: their rows are no whole blocks of %d\n",
               export->n_whole, export->type->block > GGUF_BLOCK ? "q8_0 or f16" : "f16",
               (int)export->type->block);
    }
    print_tokenizer(&export->tokenizer, cli_given(args, OPT_TOKENIZER));
}

int export_gguf(CliArgs *args, const Model *model, const HfExportRequest *files, Diag *diag) {
    const char *path = cli_text(args, OPT_OUTPUT_DIR, NULL);
    const char *dtype = cli_text(args, OPT_DTYPE, "bf16");
    const GgufExportRequest request = {.model = model,
                                       .weights = files->weights,
                                       .trained = files->trained,
                                       .path = files->path,
                                       .trained_path = files->trained_path,
                                       .tokenizer = cli_text(args, OPT_TOKENIZER, files->like),
                                       .type = gguf_type_named(dtype)};
    GgufExport export;
    if (!request.type) {
        diag_error(diag, NO_LOC,
                   "--dtype: '%s' is not f32, f16, bf16, q8_0, q6_K, q5_K, q4_K or q4_0", dtype);
        return EXIT_USAGE;
    }
    if (!check_path(args, path, files, diag) ||
        !gguf_export_open(args->arena, &request, &export, diag)) {
        return EXIT_USAGE;
    }
    const bool fine = gguf_export_write(&export, &request, path, diag);
    if (fine) print_gguf(args, &export, path);
    const bool wrong = export.refused;
    gguf_export_close(&export);
    return fine ? EXIT_DONE : wrong ? EXIT_USAGE : EXIT_FAILED;
}
