/* GGUF files: blocks of ggml's types against gguf's own numbers, llama.cpp's conversions of tiny
 * models against Hugging Face's folders, exports that are imported again, tokenizers, and files
 * that are damaged (tests/reference/make_gguf.py made tests/data/gguf).
 *
 * Would catch: a code taken from the wrong bits, a scale of the neighbouring block, rounding to
 * even where llama.cpp rounds away from zero, rotary pairs in the other order, experts or rows
 * mixed up, gains that lack their 1, a setting that metadata lose; sizes, counts and offsets that
 * are believed.
 */
#include "frontend/gguf/gguf_archs.h"
#include "frontend/gguf/gguf_export.h"
#include "frontend/gguf/gguf_import.h"
#include "frontend/gguf/gguf_marks.h"
#include "frontend/gguf/gguf_tokenizer.h"
#include "runtime/cpu/round_blocks.h"
#include "runtime/tokenizer/encoder.h"
#include "runtime/tokenizer/tokenizer.h"
#include "tests/unit/hf_fixture.h"

#define DATA "tests/data/gguf/"

/* --- blocks --- */

static double error_of(const GgufType *type, const unsigned char *codes, const float *from,
                       int64_t n_blocks) {
    float *out = malloc((size_t)(n_blocks * type->block) * sizeof(float));
    double error = 0;
    type->widen(codes, n_blocks, out);
    for (int64_t i = 0; i < n_blocks * type->block; i++) {
        error += ((double)out[i] - from[i]) * ((double)out[i] - from[i]);
    }
    free(out);
    return error;
}

/* Scales that are searched for: another may be as good, but none is worse than ggml's. */
static void test_search(Arena *arena, const Safetensors *file, const GgufType *type) {
    SafetensorsInfo codes, numbers;
    check_begin(arena_printf(arena, "gguf %s: and are written as well as ggml does", type->name));
    const bool found =
        safetensors_find(file, arena_printf(arena, "narrow/%s/codes", type->name), &codes) &&
        safetensors_find(file, arena_printf(arena, "narrow/%s/from", type->name), &numbers);
    CHECK(found, "no such blocks");
    if (!found) return;
    float *from = malloc(numbers.n_bytes);
    unsigned char *bytes = malloc(codes.n_bytes);
    memcpy(from, numbers.data, numbers.n_bytes);
    for (int64_t i = 0; i < codes.shape[0]; i++) {
        const size_t at = (size_t)i * type->bytes;
        CHECK(type->narrow(from + i * type->block, 1, bytes + at), "too large");
        const double ours = error_of(type, bytes + at, from + i * type->block, 1);
        const double theirs =
            error_of(type, (const unsigned char *)codes.data + at, from + i * type->block, 1);
        CHECK(ours <= 1.02 * theirs, "block %d: an error of %g, not %g", (int)i, ours, theirs);
    }
    from[3] = 1e30F;
    CHECK(!type->narrow(from, 1, bytes), "1e30 fits");
    from[3] = INFINITY;
    CHECK(!type->narrow(from, 1, bytes), "infinity fits");
    free(from);
    free(bytes);
}

static void test_blocks(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Safetensors *file = safetensors_open(DATA "blocks.safetensors", diag);
    int n_read = 0;
    for (const GgufType *type = GGUF_TYPES; type->name && file; type++) {
        SafetensorsInfo codes, numbers;
        if (!type->widen || type->number == GGUF_TYPE_F32) continue;
        n_read++;
        check_begin(arena_printf(arena, "gguf %s: blocks are gguf's numbers", type->name));
        const bool found =
            safetensors_find(file, arena_printf(arena, "%s/codes", type->name), &codes) &&
            safetensors_find(file, arena_printf(arena, "%s/numbers", type->name), &numbers);
        CHECK(found && codes.shape[1] == (int64_t)type->bytes && numbers.shape[1] == type->block,
              "no such blocks");
        if (!found) continue;
        float *out = malloc(numbers.n_bytes);
        type->widen(codes.data, codes.shape[0], out);
        CHECK(memcmp(out, numbers.data, numbers.n_bytes) == 0, "other numbers");
        free(out);
        if (!type->narrow) continue;
        if (type->block > GGUF_BLOCK) {
            test_search(arena, file, type);
            continue;
        }
        check_begin(
            arena_printf(arena, "gguf %s: and are written as gguf writes them", type->name));
        safetensors_find(file, arena_printf(arena, "narrow/%s/codes", type->name), &codes);
        safetensors_find(file, arena_printf(arena, "narrow/%s/from", type->name), &numbers);
        float *from = malloc(numbers.n_bytes);
        unsigned char *bytes = malloc(codes.n_bytes);
        memcpy(from, numbers.data, numbers.n_bytes);
        CHECK(type->narrow(from, codes.shape[0], bytes), "a number is too large");
        CHECK(memcmp(bytes, codes.data, codes.n_bytes) == 0, "other bytes");
        from[0] = 1e30F;
        CHECK(type->number == GGUF_TYPE_BF16 || !type->narrow(from, 1, bytes), "1e30 fits");
        free(from);
        free(bytes);
    }
    CHECK(file && n_read == 15, "%d types: %s", n_read, diag_text(diag));
    safetensors_close(file);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- import and export --- */

static bool import_gguf(Arena *arena, const char *from, const char *to, HfImport *out, Diag *diag) {
    GgufFile file;
    if (!gguf_import_open(arena, from, NULL, NULL, 0, &file, out, diag)) return false;
    const bool fine = hf_import_write(out, to, diag);
    hf_import_close(out);
    gguf_close(&file);
    return fine;
}

static bool export_gguf(Arena *arena, const Model *model, const char *from, const char *type,
                        const char *tokenizer, const char *to, Diag *diag) {
    GgufExport out;
    Safetensors *file = safetensors_open(from, diag);
    const GgufExportRequest request = {.model = model,
                                       .weights = file,
                                       .path = from,
                                       .tokenizer = tokenizer,
                                       .type = gguf_type_named(type)};
    bool fine = file && gguf_export_open(arena, &request, &out, diag);
    if (fine) {
        fine = gguf_export_write(&out, &request, to, diag);
        gguf_export_close(&out);
    }
    safetensors_close(file);
    return fine;
}

/* Tensors of two files of weights: the same, or within `most` of each other. */
static void compare_weights(const char *a_path, const char *b_path, float most, Diag *diag) {
    Safetensors *a = safetensors_open(a_path, diag), *b = safetensors_open(b_path, diag);
    CHECK(a && b && safetensors_count(a) == safetensors_count(b), "%s", diag_text(diag));
    for (int i = 0; a && b && i < safetensors_count(a); i++) {
        const SafetensorsInfo *x = safetensors_at(a, i);
        SafetensorsInfo y;
        const bool found = safetensors_find(b, x->name, &y) && x->n_bytes == y.n_bytes;
        CHECK(found, "%s is missing", x->name);
        for (size_t k = 0; found && k < x->n_bytes / sizeof(float); k++) {
            float p, q;
            memcpy(&p, (const char *)x->data + k * sizeof(p), sizeof(p));
            memcpy(&q, (const char *)y.data + k * sizeof(q), sizeof(q));
            CHECK(fabsf(p - q) <= most, "%s differs: %g, %g", x->name, (double)p, (double)q);
        }
    }
    safetensors_close(a);
    safetensors_close(b);
}

/* The loss of a batch by imported weights and their settings. */
static double loss_of(Arena *arena, const HfImport *import, const char *path) {
    Run run;
    double loss = NAN;
    if (start(&run, import, path)) {
        const int64_t n = BATCH * run.model->seq;
        int32_t *tokens = ARENA_ARRAY(arena, int32_t, n), *labels = ARENA_ARRAY(arena, int32_t, n);
        for (int64_t i = 0; i < n; i++) {
            tokens[i] = (int32_t)(i * i % 31);
            labels[i] = (int32_t)((i + 1) * (i + 1) % 31);
        }
        engine_evaluate(run.engine, tokens, labels, &loss, run.diag);
    }
    CHECK(isfinite(loss), "%s", diag_text(run.diag));
    run_close(&run);
    return loss;
}

/* What llama.cpp's converter made of a folder is what an import of the folder has. */
static void test_converted(const char *name, float most) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport theirs, ours;
    const char *a = in_scratch(arena, "a.st"), *b = in_scratch(arena, "b.st");
    check_begin(arena_printf(arena, "gguf %s: llama.cpp's conversion is the folder", name));
    CHECK(import(arena, fixture(arena, name), a, &theirs, diag) &&
              import_gguf(arena, arena_printf(arena, DATA "%s.gguf", name), b, &ours, diag),
          "%s", diag_text(diag));
    compare_weights(a, b, most, diag);
    if (strcmp(name, "llama31") == 0) { /* others have losses of their own, or other scales */
        const double x = loss_of(arena, &theirs, a), y = loss_of(arena, &ours, b);
        CHECK(fabs(x - y) < 1e-6, "the loss is %g, not %g", y, x);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Settings by which a type differs from its fixture; most: gains lose bits where 1 is added. */
typedef struct Case {
    const char *name, *arch, *key, *value;
    float most;
} Case;
static const Case CASES[] = {{"llama", "llama", NULL, NULL, 0},
                             {"llama31", "llama", NULL, NULL, 0},
                             {"llama_linear", "llama", NULL, NULL, 0},
                             {"llama_yarn", "llama", "rotary_many", "32", 0},
                             {"mistral", "llama", "window", "0", 0},
                             {"qwen2", "qwen2", NULL, NULL, 0},
                             {"qwen3", "qwen3", NULL, NULL, 0},
                             {"olmo2", "olmo2", NULL, NULL, 0},
                             {"smollm3", "smollm3", NULL, NULL, 0},
                             {"granite", "granite", NULL, NULL, 0},
                             {"stablelm", "stablelm", NULL, NULL, 0},
                             {"phi3", "phi3", "window", "0", 0},
                             {"ernie4_5", "llama", NULL, NULL, 0},
                             {"arcee", "arcee", NULL, NULL, 0},
                             {"starcoder2", "starcoder2", "window", "0", 0},
                             {"phi", "phi2", NULL, NULL, 0},
                             {"gpt2", "gpt2", NULL, NULL, 0},
                             {"gemma", "gemma", NULL, NULL, 2e-7F},
                             {"gemma2", "gemma2", "attention_scale", "8", 2e-7F},
                             {"gemma3", "gemma3", "attention_scale", "8", 2e-7F},
                             {"mixtral", "llama", "window", "0", 0},
                             {"qwen2_moe", "qwen2moe", NULL, NULL, 0},
                             {"granitemoe", "granitemoe", NULL, NULL, 0}};
enum { N_CASES = sizeof(CASES) / sizeof(CASES[0]) };

/* The imported model, with one more setting. */
static Model *model_with(Arena *arena, const HfImport *import, const Case *c, Diag *diag) {
    const HfConfig *config = &import->config;
    ModelSetting *all = ARENA_ARRAY(arena, ModelSetting, config->n_settings + 2);
    int n = config->n_settings;
    memcpy(all, config->settings, (size_t)n * sizeof(*all));
    if (c->key) all[n++] = (ModelSetting){c->key, c->value};
    if (strcmp(c->name, "llama_yarn") == 0) all[n++] = (ModelSetting){"rotary_few", "1"};
    return model_load_shipped(arena, config->family->script, all, n, 1, diag);
}

/* What training with --qat reads is what an export in that type has, imported again. */
static void compare_rounded(const Graph *graph, const char *a_path, const char *b_path, int *n,
                            Diag *diag) {
    Safetensors *a = safetensors_open(a_path, diag), *b = safetensors_open(b_path, diag);
    for (int i = 0; a && b && i < graph->n_nodes; i++) {
        const Node *param = graph->nodes[i];
        SafetensorsInfo x, y;
        if (param->op != OP_PARAM) continue;
        const char *name = node_logical_name(param, 0, graph->arena);
        const bool found = safetensors_find(a, name, &x) && safetensors_find(b, name, &y);
        CHECK(found, "no '%s'", name);
        if (!found) continue;
        float *from = malloc(x.n_bytes), *to = malloc(x.n_bytes);
        memcpy(from, x.data, x.n_bytes);
        memcpy(to, x.data, x.n_bytes);
        if (node_is_rounded(param)) {
            const RoundForm form = round_form_find(node_string(param, ATTR_blocks));
            const RoundLayout layout = round_layout(param, &param->types[0]);
            round_blocks(form, &layout, from, DTYPE_F32, to, type_elements(&param->types[0]));
            n[form]++;
        }
        CHECK(memcmp(to, y.data, x.n_bytes) == 0, "'%s' is not as the file has it (%s)", name,
              node_string(param, ATTR_blocks));
        free(from);
        free(to);
    }
    safetensors_close(a);
    safetensors_close(b);
}

static int n_rounded[N_ROUND_FORMS];

static void test_marks(Arena *arena, const Case *c, Model *model, const HfImport *first,
                       const char *weights, int number, Diag *diag) {
    HfImport import;
    const char *type = number % 2 ? "q8_0" : "q4_0", *gguf = in_scratch(arena, "z.gguf"),
               *b = in_scratch(arena, "b.st");
    check_begin(arena_printf(arena, "gguf %s: trained as %s is what a file has", c->name, type));
    const bool fine = gguf_mark(model, gguf_type_named(type), diag) &&
                      export_gguf(arena, model, weights, type, NULL, gguf, diag) &&
                      import_gguf(arena, gguf, b, &import, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine && c->most == 0) compare_rounded(model->graph, weights, b, n_rounded, diag);
    if (!fine || c != CASES) return;
    const double file = loss_of(arena, &import, b), plain = loss_of(arena, first, weights);
    run_qat = gguf_type_named(type);
    const double own = loss_of(arena, first, weights);
    run_qat = NULL;
    CHECK(own == file && own != plain, "its loss is %.17g, the file's %.17g", own, file);
}

static void test_round_trip_of(const Case *c) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport first, second;
    const char *a = in_scratch(arena, "a.st"), *b = in_scratch(arena, "b.st"),
               *gguf = in_scratch(arena, "x.gguf"), *again = in_scratch(arena, "y.gguf");
    check_begin(arena_printf(arena, "gguf %s: an export is imported as it was", c->name));
    bool fine = import(arena, fixture(arena, c->name), a, &first, diag);
    Model *model = fine ? model_with(arena, &first, c, diag) : NULL;
    fine = model && export_gguf(arena, model, a, "f32", NULL, gguf, diag) &&
           import_gguf(arena, gguf, b, &second, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        compare_weights(a, b, c->most, diag);
        CHECK(strcmp(second.config.type->architecture, c->arch) == 0, "is a %s",
              second.config.type->architecture);
        /* All that the architecture can say is back: a second export is the first. */
        CHECK(export_gguf(arena, second.model, b, "f32", NULL, again, diag), "%s", diag_text(diag));
        GgufFile x, y;
        fine = gguf_open(arena, gguf, &x, diag) && gguf_open(arena, again, &y, diag);
        CHECK(fine && x.n_pairs == y.n_pairs, "other metadata");
        for (int i = 0; fine && i < x.n_pairs; i++) {
            const size_t bytes = x.pairs[i].kind == GGUF_TEXT ? 8 : 1;
            CHECK(strcmp(x.pairs[i].key, y.pairs[i].key) == 0 &&
                      (strcmp(x.pairs[i].key, "general.name") == 0 ||
                       memcmp(x.pairs[i].data, y.pairs[i].data, bytes) == 0),
                  "%s differs", x.pairs[i].key);
        }
        if (fine) gguf_close(&y);
        gguf_close(&x);
        test_marks(arena, c, model, &first, a, (int)(c - CASES), diag);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- types of 4, 8 and 16 bits --- */

/* Untrained weights of a Llama whose rows are whole blocks but those of one tensor. */
static const Model *make_weights(Arena *arena, const char *path, int vocab, const char *width,
                                 const char *ffn, Run *run) {
    const ModelSetting settings[] = {{"layers", "1"},
                                     {"model", width},
                                     {"ffn", ffn},
                                     {"vocab", arena_printf(arena, "%d", vocab)}};
    const bool fine =
        start_model(run, "llama", settings, 4) && engine_save(run->engine, path, run->diag);
    return fine ? run->model : NULL;
}

/* A tensor without rotary pairs: what the type makes of the weights. */
static void compare_narrowed(const char *weights, const HfImport *import, const char *path,
                             const GgufType *type, Diag *diag) {
    static const char NAME[] = "blocks.0.mlp.wup";
    Safetensors *a = safetensors_open(weights, diag), *b = safetensors_open(path, diag);
    SafetensorsInfo from, to;
    CHECK(a && b && safetensors_find(a, NAME, &from) && safetensors_find(b, NAME, &to),
          "no such tensor");
    /* Ours is [model, ffn], theirs [ffn, model]. */
    const int64_t rows = 72, columns = 64, n = rows * columns;
    float *turned = malloc(from.n_bytes), *wide = malloc(from.n_bytes), number;
    unsigned char *bytes = malloc(from.n_bytes);
    CHECK(from.n_bytes == (size_t)n * sizeof(float) && import->n_packed >= 0, "another size");
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = from.shape[0] == columns ? i % columns * rows + i / columns : i;
        memcpy(&turned[i], (const char *)from.data + at * (int64_t)sizeof(float), sizeof(float));
    }
    CHECK(type->narrow(turned, n / type->block, bytes), "too large");
    type->widen(bytes, n / type->block, wide);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = to.shape[0] == columns ? i % columns * rows + i / columns : i;
        memcpy(&number, (const char *)to.data + at * (int64_t)sizeof(float), sizeof(float));
        CHECK(number == wide[i], "number %d is %g, not %g", (int)i, (double)number,
              (double)wide[i]);
    }
    free(turned);
    free(wide);
    free(bytes);
    safetensors_close(a);
    safetensors_close(b);
}

static void test_types(void) {
    static const char *const NAMES[] = {"f16", "bf16", "q8_0", "q4_0"};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Run run;
    const char *a = in_scratch(arena, "a.st"), *b = in_scratch(arena, "b.st"),
               *gguf = in_scratch(arena, "x.gguf"), *again = in_scratch(arena, "y.gguf");
    check_begin("gguf: weights to narrow");
    const Model *model = make_weights(arena, a, 64, "64", "72", &run);
    CHECK(model, "%s", diag_text(run.diag));
    for (int i = 0; model && i < 4; i++) {
        HfImport import;
        GgufFile x, y;
        const GgufType *type = gguf_type_named(NAMES[i]);
        check_begin(arena_printf(arena, "gguf: weights in %s are widened, and written again alike",
                                 NAMES[i]));
        bool fine = export_gguf(arena, model, a, NAMES[i], NULL, gguf, diag) &&
                    import_gguf(arena, gguf, b, &import, diag) &&
                    export_gguf(arena, import.model, b, NAMES[i], NULL, again, diag);
        CHECK(fine, "%s", diag_text(diag));
        if (!fine) continue;
        compare_narrowed(a, &import, b, type, diag);
        fine = gguf_open(arena, gguf, &x, diag) && gguf_open(arena, again, &y, diag);
        CHECK(fine && x.n_tensors == y.n_tensors && x.n_tensors == 12, "%s", diag_text(diag));
        for (int k = 0; fine && k < x.n_tensors; k++) {
            const GgufTensor *p = &x.tensors[k], *q = &y.tensors[k];
            const bool vector = p->info.n_dims == 1;
            const bool cut = strcmp(p->info.name, "blk.0.ffn_down.weight") == 0;
            const GgufType *wanted = vector                   ? gguf_type_named("f32")
                                     : cut && type->block > 1 ? gguf_type_named("f16")
                                                              : type;
            CHECK(p->type == wanted && q->type == wanted, "%s is %s", p->info.name, p->type->name);
            CHECK(memcmp(p->info.data, q->info.data, p->info.n_bytes) == 0, "%s differs",
                  p->info.name);
        }
        if (fine) gguf_close(&y);
        gguf_close(&x);
    }
    run_close(&run);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* Blocks of 256, and the table that makes logits in more bits; rows of 64 are blocks of 32. */
static void test_k_types(void) {
    static const struct {
        const char *name, *type;
    } WANTED[] = {{"token_embd.weight", "q4_K"},       {"output.weight", "q6_K"},
                  {"blk.0.attn_q.weight", "q4_K"},     {"blk.0.ffn_up.weight", "q4_K"},
                  {"blk.0.ffn_down.weight", "q8_0"},   {"blk.0.attn_norm.weight", "f32"},
                  {"blk.0.attn_output.weight", "q4_K"}};
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    Run run;
    GgufFile file;
    HfImport import;
    const char *a = in_scratch(arena, "a.st"), *b = in_scratch(arena, "b.st"),
               *gguf = in_scratch(arena, "x.gguf");
    check_begin("gguf: weights in q4_K, with an output in q6_K");
    const Model *model = make_weights(arena, a, 64, "256", "96", &run);
    CHECK(model, "%s", diag_text(run.diag));
    const bool fine = model && export_gguf(arena, model, a, "q4_k", NULL, gguf, diag) &&
                      import_gguf(arena, gguf, b, &import, diag) &&
                      gguf_open(arena, gguf, &file, diag);
    CHECK(fine, "%s", diag_text(diag));
    for (size_t i = 0; fine && i < sizeof(WANTED) / sizeof(WANTED[0]); i++) {
        const GgufTensor *tensor = gguf_find_tensor(&file, WANTED[i].name);
        CHECK(tensor && strcmp(tensor->type->name, WANTED[i].type) == 0, "%s is %s", WANTED[i].name,
              tensor ? tensor->type->name : "missing");
    }
    /* Weights are within four times their spread of 0.05, in 16 steps. */
    if (fine) compare_weights(a, b, 0.02F, diag);
    if (fine) gguf_close(&file);
    run_close(&run);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- tokenizers --- */

/* Of characters: three special tokens, bytes, and pieces that SentencePiece could have learned. */
static const char *make_tokenizer(const char *path, const char *more) {
    StrBuf text = strbuf_create();
    Diag *diag = diag_create();
    strbuf_put(&text, "{\"added_tokens\": [");
    const char *const special[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++) {
        strbuf_printf(&text,
                      "%s{\"id\": %d, \"content\": \"%s\", \"single_word\": false, "
                      "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, "
                      "\"special\": true}",
                      i ? ", " : "", i, special[i]);
    }
    strbuf_put(&text,
               "], \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
               "\"Prepend\", \"prepend\": \"\xe2\x96\x81\"}, {\"type\": \"Replace\", "
               "\"pattern\": {\"String\": \" \"}, \"content\": \"\xe2\x96\x81\"}]}, "
               "\"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": null, "
               "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, "
               "\"byte_fallback\": true, \"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"</s>\": 2");
    for (int i = 0; i < 256; i++) strbuf_printf(&text, ", \"<0x%02X>\": %d", i, 3 + i);
    strbuf_printf(&text,
                  ", \"\xe2\x96\x81\": 259, \"a\": 260, \"b\": 261, \"\xe2\x96\x81"
                  "ab\": 262, \"ab\": 263, \"aab\": 264%s}, \"merges\": [\"a b\", "
                  "\"\xe2\x96\x81 ab\", \"a ab\"]}}",
                  more);
    CHECK(file_write(path, text.text, text.length, diag), "%s", diag_text(diag));
    strbuf_destroy(&text);
    diag_destroy(diag);
    return path;
}

/* Of the untrained Llama above, whose vocabulary is larger. */
static void test_tokenizer(const char *path, const char *what, const Model *model,
                           const char *weights) {
    static const char TEXT[] = "aab ab  ba\tThe 1234 \xc3\xa9t\xc3\xa9 isn't\n\nit?";
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    GgufFile file;
    const char *gguf = in_scratch(arena, "t.gguf"), *saved = in_scratch(arena, "t.json");
    check_begin(arena_printf(arena, "gguf: a tokenizer %s is saved as it was", what));
    bool fine = export_gguf(arena, model, weights, "bf16", path, gguf, diag) &&
                gguf_open(arena, gguf, &file, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        CHECK(gguf_tokenizer_save(&file, saved, diag), "%s", diag_text(diag));
        Tokenizer *a = tokenizer_load(path, NULL, diag), *b = tokenizer_load(saved, NULL, diag);
        CHECK(a && b, "%s", diag_text(diag));
        if (a && b) {
            TokenList first = {0}, second = {0};
            const EncoderOutput one = {.tokens = &first}, other = {.tokens = &second};
            Encoder *x = encoder_create(a), *y = encoder_create(b);
            CHECK(encoder_encode(x, (const unsigned char *)TEXT, strlen(TEXT), true, &one, "text",
                                 diag) &&
                      encoder_encode(y, (const unsigned char *)TEXT, strlen(TEXT), true, &other,
                                     "text", diag),
                  "%s", diag_text(diag));
            CHECK(first.count == second.count && first.count > 8 &&
                      memcmp(first.items, second.items, first.count * sizeof(*first.items)) == 0,
                  "%zu and %zu tokens", first.count, second.count);
            encoder_destroy(x);
            encoder_destroy(y);
            free(first.items);
            free(second.items);
        }
        tokenizer_destroy(a);
        tokenizer_destroy(b);
        gguf_close(&file);
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_tokenizers(void) {
    Arena *arena = arena_create();
    Run run;
    const char *a = in_scratch(arena, "a.st"), *path = in_scratch(arena, "made.json");
    check_begin("gguf: weights for tokenizers");
    const Model *small = make_weights(arena, a, 264, "64", "72", &run);
    CHECK(small, "%s", diag_text(run.diag));
    if (small) {
        Diag *diag = diag_create();
        CHECK(!export_gguf(arena, small, a, "f32", make_tokenizer(path, ""),
                           in_scratch(arena, "t.gguf"), diag) &&
                  strstr(diag_text(diag), "has token 264, but the model has 264 tokens"),
              "%s", diag_text(diag));
        diag_destroy(diag);
    }
    run_close(&run);
    const Model *model = make_weights(arena, a, 512, "64", "72", &run);
    CHECK(model, "%s", diag_text(run.diag));
    if (model) {
        test_tokenizer(make_tokenizer(path, ""), "of characters", model, a);
        test_tokenizer("tests/data/tokenizers/trained.json", "of bytes", model, a);
        Diag *diag = diag_create();
        check_begin("gguf: a tokenizer that llama.cpp would read otherwise is refused");
        CHECK(!export_gguf(arena, model, a, "f32", make_tokenizer(path, ", \"ba\": 265"),
                           in_scratch(arena, "t.gguf"), diag) &&
                  strstr(diag_text(diag), "its merges lack \"b a\""),
              "%s", diag_text(diag));
        CHECK(!export_gguf(arena, model, a, "f32", "tests/data/tokenizers/deepseek.json",
                           in_scratch(arena, "t.gguf"), diag) &&
                  strstr(diag_text(diag), "in a way that llama.cpp has no name for"),
              "%s", diag_text(diag));
        CHECK(!export_gguf(arena, model, a, "f32", "tests/data/tokenizers/t5.json",
                           in_scratch(arena, "t.gguf"), diag) &&
                  strstr(diag_text(diag), "is no tokenizer.json of type BPE"),
              "%s", diag_text(diag));
        diag_destroy(diag);
    }
    run_close(&run);
    arena_destroy(arena);
}

/* A vocabulary of a, aa, aaa, ... has half of its square of pairs that make a token. */
static void test_many_merges(void) {
    enum { TOKENS = 300 };
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    GgufWriter *writer = gguf_writer_create();
    const char *path = in_scratch(arena, "many.gguf"), *to = in_scratch(arena, "many.json");
    const int32_t normal = 1;
    const float score = 0;
    char letters[TOKENS];
    GgufFile file;
    memset(letters, 'a', sizeof(letters));
    check_begin("gguf: tokens that make each other in too many ways");
    gguf_put_text(writer, "tokenizer.ggml.model", "llama");
    gguf_put_array(writer, "tokenizer.ggml.tokens", GGUF_TEXT, TOKENS);
    for (size_t i = 1; i <= TOKENS; i++) gguf_put_element_text(writer, letters, i);
    gguf_put_array(writer, "tokenizer.ggml.token_type", GGUF_I32, TOKENS);
    for (int i = 0; i < TOKENS; i++) gguf_put_element(writer, &normal, sizeof(normal));
    gguf_put_array(writer, "tokenizer.ggml.scores", GGUF_F32, TOKENS);
    for (int i = 0; i < TOKENS; i++) gguf_put_element(writer, &score, sizeof(score));
    CHECK(gguf_writer_open(writer, path, diag) && gguf_writer_commit(writer, diag), "%s",
          diag_text(diag));
    CHECK(gguf_open(arena, path, &file, diag), "%s", diag_text(diag));
    CHECK(!gguf_tokenizer_save(&file, to, diag) &&
              strstr(diag_text(diag), "made of each other in too many ways"),
          "%s", diag_text(diag));
    CHECK(access(to, F_OK) != 0, "something was written");
    gguf_close(&file);
    diag_destroy(diag);
    arena_destroy(arena);
}

/* --- what is no such file --- */

typedef struct Damaged {
    Arena *arena;
    unsigned char *bytes;
    size_t length;
} Damaged;

/* Reads the file as it is now; an error is of one line. Returns what it says, or "". */
static const char *said(const Damaged *d) {
    Diag *diag = diag_create();
    HfImport import;
    GgufFile file;
    const char *path = in_scratch(d->arena, "damaged.gguf");
    FILE *out = fopen(path, "wb"); /* not to the disk each time, as file_write has it */
    CHECK(out && fwrite(d->bytes, 1, d->length, out) == d->length && fclose(out) == 0, "no file");
    const bool fine = gguf_import_open(d->arena, path, NULL, NULL, 0, &file, &import, diag);
    if (fine) {
        hf_import_close(&import);
        gguf_close(&file);
    }
    const char *text = arena_strdup(d->arena, diag_text(diag));
    CHECK(fine == (diag_error_count(diag) == 0) && diag_error_count(diag) <= 1, "%s", text);
    CHECK(fine || strstr(text, "damaged.gguf"), "it does not say where: %s", text);
    diag_destroy(diag);
    return text;
}

static unsigned char *find_bytes(const Damaged *d, const char *text) {
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= d->length; i++) {
        if (memcmp(d->bytes + i, text, n) == 0) return d->bytes + i;
    }
    BUG("the file has no '%s'", text);
}

/* Another value of 4 or 8 bytes in that place, for one reading. */
static void expect_with(Damaged *d, unsigned char *at, uint64_t value, size_t bytes,
                        const char *wanted) {
    unsigned char kept[8];
    memcpy(kept, at, bytes);
    memcpy(at, &value, bytes);
    const char *text = said(d);
    CHECK(strstr(text, wanted), "'%s', not '%s'", text, wanted);
    memcpy(at, kept, bytes);
}

static void put_letters(unsigned char *at, const char *letters) {
    while (*letters) *at++ = (unsigned char)*letters++;
}

static void test_damaged(void) {
    enum { SEED = 11 };
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    size_t length;
    char *text = file_read(arena, DATA "llama31.gguf", FILE_LIMIT_BYTES, &length, diag);
    check_begin("gguf: damaged files are an error of one line");
    CHECK(text, "%s", diag_text(diag));
    Damaged d = {arena, (unsigned char *)text, length};
    CHECK(said(&d)[0] == '\0', "%s", said(&d));
    unsigned char *heads = find_bytes(&d, "llama.attention.head_count\004");
    unsigned char *norm = find_bytes(&d, "output_norm.weight"); /* 18 letters, one dimension */
    unsigned char *q = find_bytes(&d, "blk.0.attn_q.weight");
    expect_with(&d, d.bytes, 0, 4, "is no GGUF file");
    expect_with(&d, d.bytes + 4, 1, 4, "is GGUF of version 1; versions 2 and 3");
    expect_with(&d, d.bytes + 4, 0x03000000, 4, "with the highest bytes of numbers first");
    expect_with(&d, d.bytes + 8, 1u << 30, 8, "says that it has 1073741824 tensors");
    expect_with(&d, d.bytes + 16, UINT64_MAX, 8, "pairs of metadata, where");
    expect_with(&d, d.bytes + 24, UINT64_MAX, 8, "has a text of 18446744073709551615 bytes in a");
    expect_with(&d, heads - 8, 0, 8, "is no name");
    expect_with(&d, heads + 26, 9, 4, "bytes in a key, where");
    expect_with(&d, heads + 26, 77, 4, "is of type 77, which is not supported");
    expect_with(&d, heads + 30, 3, 4, "heads");
    put_letters(heads + 16, "hoad_count");
    CHECK(strstr(said(&d), "\"llama.attention.hoad_count\" is not supported"), "%s", said(&d));
    put_letters(heads + 16, "head_count");
    expect_with(&d, norm + 18, 5, 4, "has 5 dimensions; 1 to 4");
    expect_with(&d, norm + 22, 0, 8, "has a dimension of 0");
    expect_with(&d, norm + 22, UINT64_MAX, 8, "has a dimension of 18446744073709551615");
    expect_with(&d, norm + 22, 15, 8, "is [15]; by the configuration it is [16]");
    expect_with(&d, norm + 30, 4, 4, "is of type 4, which is none");
    expect_with(&d, norm + 30, 8, 4, "is q8_0, of blocks of 32, but its rows have 16");
    expect_with(&d, norm + 30, 26, 4, "is i32, which is not read");
    expect_with(&d, norm + 34, 3, 8, "begins at 3, which is no multiple of 32");
    expect_with(&d, norm + 34, 1u << 20, 8, "is the file whole?");
    expect_with(&d, norm + 34, UINT64_MAX - 31, 8, "is the file whole?");
    expect_with(&d, norm + 34, 32, 8, "overlap");
    put_letters(q, "blk.1");
    CHECK(strstr(said(&d), "has a tensor \"blk.1.attn_q.weight\" twice"), "%s", said(&d));
    put_letters(q, "blk.7");
    CHECK(strstr(said(&d), "has no tensor 'blk.0.attn_q.weight'"), "%s", said(&d));
    put_letters(q, "blk.0");
    unsigned char *arch = find_bytes(&d, "llama"); /* the first is the architecture's value */
    put_letters(arch, "lamma");
    CHECK(strstr(said(&d), "is of the architecture \"lamma\"; supported: gpt2, llama, "), "%s",
          said(&d));
    put_letters(arch, "llama");
    CHECK(said(&d)[0] == '\0', "%s", said(&d));
    check_begin("gguf: files that end early, and bytes that are others");
    for (size_t n = 0; n < length; n += (n < 3000 ? 61u : 2003u) * VARIANT_STEP) {
        Damaged cut = {arena, d.bytes, n};
        CHECK(said(&cut)[0], "%zu bytes are enough", n);
    }
    for (size_t at = 4; at < 2600; at += 7 * VARIANT_STEP) {
        const unsigned char kept = d.bytes[at];
        d.bytes[at] = (unsigned char)(kept ^ (1u << (at * SEED % 8)));
        said(&d);
        d.bytes[at] = kept;
    }
    diag_destroy(diag);
    arena_destroy(arena);
}

static void test_refused(void) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    const char *a = in_scratch(arena, "a.st"), *to = in_scratch(arena, "x.gguf");
    check_begin("gguf: models that llama.cpp does not have are refused");
    CHECK(import(arena, fixture(arena, "mistral"), a, &imported, diag) &&
              !export_gguf(arena, imported.model, a, "f32", NULL, to, diag) &&
              strstr(diag_text(diag), "llama.cpp has no model of these settings") &&
              strstr(diag_text(diag), "llama with window=0"),
          "%s", diag_text(diag));
    CHECK(import(arena, fixture(arena, "bert"), a, &imported, diag) &&
              !export_gguf(arena, imported.model, a, "f32", NULL, to, diag) &&
              strstr(diag_text(diag), "model 'bert' has no architecture of llama.cpp's here; there "
                                      "are: gpt2, llama, qwen2"),
          "%s", diag_text(diag));
    CHECK(import(arena, fixture(arena, "llama_classes"), a, &imported, diag) &&
              !export_gguf(arena, imported.model, a, "f32", NULL, to, diag) &&
              strstr(diag_text(diag),
                     "that tells classes of texts, rewards or vectors is not written"),
          "%s", diag_text(diag));
    CHECK(import(arena, fixture(arena, "llama_yarn"), a, &imported, diag) &&
              !export_gguf(arena, imported.model, a, "f32", NULL, to, diag) &&
              strstr(diag_text(diag), "llama.cpp has yarn with 32 and 1 there"),
          "%s", diag_text(diag));
    CHECK(import(arena, fixture(arena, "gemma2"), a, &imported, diag) &&
              !export_gguf(arena, imported.model, a, "f32", NULL, to, diag) &&
              strstr(diag_text(diag), "attention_scale is 12; llama.cpp has 8"),
          "%s", diag_text(diag));
    CHECK(access(to, F_OK) != 0, "something was written");
    diag_destroy(diag);
    arena_destroy(arena);
}

int main(void) {
    if (!mkdtemp(scratch)) return 1;
    Arena *arena = arena_create();
    test_blocks();
    test_converted("llama31", 0);
    test_converted("qwen2_moe", 0);
    test_converted("gemma3", 2e-7F);
    test_refused();
    for (int i = 0; i < N_CASES; i += VARIANT_STEP) test_round_trip_of(&CASES[i]);
    check_begin("gguf: of all forms some were trained as");
    for (int i = 0; i < N_ROUND_FORMS; i++) CHECK(n_rounded[i], "no %s", ROUND_FORM_NAMES[i]);
    test_types();
    test_k_types();
    test_tokenizers();
    test_many_merges();
    test_damaged();
    remove_folder(arena, scratch);
    arena_destroy(arena);
    return check_report();
}
