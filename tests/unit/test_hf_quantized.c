/* Weights of Hugging Face's that are quantized: a tiny Llama as GPTQ, AWQ, bitsandbytes,
 * compressed-tensors and ModelOpt have it (tests/reference/make_quantized.py). An import, exported
 * again in f32, has bit for bit what these methods' own code makes of the weights, and gives
 * transformers' logits; and files that are damaged are an error of one line, whatever was damaged.
 *
 * Would catch: codes taken from the wrong bits or in another order, a scale or zero point of the
 * neighbouring group, groups by place where g_idx says otherwise, zero points less one or not, rows
 * and columns mixed up, the matrix before, an export that still says it is quantized; sizes that
 * are believed, groups and texts that point beyond their tensors.
 */
#include "tests/unit/hf_fixture.h"

#include <math.h>

static const char *const NAMES[] = {"gptq",
                                    "gptq_v2",
                                    "gptq_8",
                                    "awq",
                                    "bnb_nf4",
                                    "bnb_fp4",
                                    "bnb_int8",
                                    "compressed",
                                    "compressed_mixed",
                                    "compressed_int8",
                                    "modelopt"};
enum { N_NAMES = sizeof(NAMES) / sizeof(NAMES[0]), N_PRODUCTS = 7 };

static const char *folder_of(Arena *arena, const char *name) {
    return arena_printf(arena, "tests/reference/hf_quantized/%s", name);
}

/* --- what the codes stand for --- */

static uint64_t word_sum(const SafetensorsInfo *info) {
    uint64_t sum = 0;
    for (size_t i = 0; i < info->n_bytes / sizeof(uint32_t); i++) {
        uint32_t word;
        memcpy(&word, (const char *)info->data + i * sizeof(word), sizeof(word));
        sum += word * (2 * i + 1);
    }
    return sum;
}

static void compare_sums(Arena *arena, const char *dir, const Safetensors *expected) {
    Diag *diag = diag_create();
    HfFiles files;
    bool opened = hf_files_open(arena, dir, &files, diag);
    int n = 0;
    CHECK(opened, "%s", diag_text(diag));
    for (int i = 0; opened && i < files.n_tensors; i++) {
        const SafetensorsInfo *info = files.tensors[i].info;
        SafetensorsInfo sum;
        uint64_t wanted = 0;
        bool found = safetensors_find(expected, arena_printf(arena, "sum/%s", info->name), &sum);
        if (found) memcpy(&wanted, sum.data, sizeof(wanted));
        CHECK(found && info->dtype == SAFETENSORS_F32 && word_sum(info) == wanted, "%s differs",
              info->name);
        n++;
    }
    CHECK(n == N_PRODUCTS + 4, "%d tensors", n);
    if (opened) hf_files_close(&files);
    diag_destroy(diag);
}

static void compare_logits(const HfImport *imported, const char *path,
                           const Safetensors *expected) {
    SafetensorsInfo tokens, logits;
    Run run;
    bool fine = start(&run, imported, path) && safetensors_find(expected, "tokens", &tokens) &&
                safetensors_find(expected, "logits", &logits);
    const int64_t n = fine ? BATCH * run.plan->seq * run.plan->vocab : 0;
    CHECK(fine && logits.n_bytes == (size_t)n * sizeof(float), "%s", diag_text(run.diag));
    if (fine) {
        int32_t *given = ARENA_ARRAY(run.arena, int32_t, BATCH * run.plan->seq);
        float *ours = ARENA_ARRAY(run.arena, float, n), most = 0, apart = 0, theirs;
        memcpy(given, tokens.data, tokens.n_bytes);
        CHECK(engine_logits(run.engine, given, ours, run.diag), "%s", diag_text(run.diag));
        for (int64_t i = 0; i < n; i++) {
            memcpy(&theirs, (const char *)logits.data + i * (int64_t)sizeof(theirs),
                   sizeof(theirs));
            most = fmaxf(most, fabsf(theirs));
            apart = fmaxf(apart, fabsf(theirs - ours[i]));
        }
        /* f32 beside float64. */
        CHECK(apart < 1e-5F * most, "logits are %g apart, of %g", (double)apart, (double)most);
    }
    run_close(&run);
}

static void test_numbers(const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport imported;
    check_begin(arena_printf(arena, "%s: numbers and logits", name));
    const char *dir = folder_of(arena, name), *path = in_scratch(arena, "weights.safetensors");
    const char *out = in_scratch(arena, "out");
    Safetensors *expected =
        safetensors_open(arena_printf(arena, "%s/expect.safetensors", dir), diag);
    bool fine = expected && import(arena, dir, path, &imported, diag) &&
                export(arena, imported.model, path, dir, DTYPE_F32, 1 << 20, out, diag);
    CHECK(fine, "%s", diag_text(diag));
    if (fine) {
        CHECK(imported.n_packed == N_PRODUCTS, "%d were in codes", imported.n_packed);
        compare_sums(arena, out, expected);
        compare_logits(&imported, path, expected);
        json_t *config = json_load_file(arena_printf(arena, "%s/config.json", out), 0, NULL);
        CHECK(config && !json_object_get(config, "quantization_config"), "config.json says so");
        json_decref(config);
        CHECK(access(arena_printf(arena, "%s/hf_quant_config.json", out), F_OK) != 0, "so does it");
    }
    safetensors_close(expected);
    remove_folder(arena, out);
    unlink(path);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

/* --- damaged files --- */

typedef enum Damage {
    MISSING,
    FLAT,   /* as [1, n], or [n] */
    HALF,   /* of the first dimension's numbers */
    EMPTY,  /* none of them */
    LONGER, /* one more */
    OTHER,  /* another type of as many bytes */
    ONES,   /* all bits set */
    RANDOM,
    N_DAMAGES
} Damage;
static const char *const DAMAGES[] = {"missing", "flat",         "halved",       "empty",
                                      "longer",  "another type", "all bits set", "random"};

static SafetensorsDtype other_dtype(SafetensorsDtype dtype) {
    switch (dtype) {
    case SAFETENSORS_I32: return SAFETENSORS_U32;
    case SAFETENSORS_F32: return SAFETENSORS_I32;
    case SAFETENSORS_BF16: return SAFETENSORS_I16;
    case SAFETENSORS_F16: return SAFETENSORS_U16;
    case SAFETENSORS_I64: return SAFETENSORS_F64;
    default: return SAFETENSORS_BOOL; /* a byte */
    }
}

/* What stands in the damaged file. */
typedef struct Piece {
    SafetensorsInfo info;
    char *bytes;
} Piece;

static Piece damaged(Arena *arena, const SafetensorsInfo *info, Damage how) {
    Piece piece = {*info, NULL};
    const int64_t whole = (int64_t)info->n_bytes / (int64_t)safetensors_dtype_bytes(info->dtype);
    if (how == FLAT) {
        piece.info.n_dims = info->n_dims == 1 ? 2 : 1;
        piece.info.shape[0] = info->n_dims == 1 ? 1 : whole;
        piece.info.shape[1] = whole;
    }
    if (info->n_dims == 0 && how >= HALF && how <= LONGER) {
        piece.info.n_dims = 1;
        piece.info.shape[0] = 1;
    }
    if (how == HALF) piece.info.shape[0] /= 2;
    if (how == EMPTY) piece.info.shape[0] = 0;
    if (how == LONGER) piece.info.shape[0]++;
    if (how == OTHER) piece.info.dtype = other_dtype(info->dtype);
    piece.info.n_bytes = safetensors_dtype_bytes(piece.info.dtype);
    for (int i = 0; i < piece.info.n_dims; i++) piece.info.n_bytes *= (size_t)piece.info.shape[i];
    piece.bytes = arena_alloc(arena, piece.info.n_bytes + 1);
    uint64_t random = 99;
    for (size_t i = 0; i < piece.info.n_bytes; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
        piece.bytes[i] = how == ONES         ? (char)255
                         : how == RANDOM     ? (char)(random >> 56)
                         : i < info->n_bytes ? ((const char *)info->data)[i]
                                             : 0;
    }
    return piece;
}

/* Puts weights with tensor `which` as `piece`, or without it where that has no bytes, into the copy
 * that changed_fixture made. The program's own writer would wait for the disk each time. */
static bool put_damaged(Arena *arena, const Safetensors *file, int which, const Piece *piece) {
    const char *to = in_scratch(arena, "changed");
    const char *path = arena_printf(arena, "%s/model.safetensors", to), *comma = "";
    StrBuf header = strbuf_create();
    size_t at = 0;
    strbuf_put(&header, "{");
    for (int i = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = i == which ? &piece->info : safetensors_at(file, i);
        if (i == which && !piece->bytes) continue;
        strbuf_printf(&header, "%s\"%s\": {\"dtype\": \"%s\", \"shape\": [", comma, info->name,
                      safetensors_dtype_name(info->dtype));
        for (int k = 0; k < info->n_dims; k++) {
            strbuf_printf(&header, "%s%lld", k ? ", " : "", (long long)info->shape[k]);
        }
        strbuf_printf(&header, "], \"data_offsets\": [%zu, %zu]}", at, at + info->n_bytes);
        at += info->n_bytes;
        comma = ", ";
    }
    strbuf_put(&header, "}");
    unlink(path);
    FILE *out = fopen(path, "wb");
    const uint64_t length = header.length;
    bool fine = out && fwrite(&length, sizeof(length), 1, out) == 1 &&
                fwrite(header.text, header.length, 1, out) == 1;
    for (int i = 0; fine && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = i == which ? &piece->info : safetensors_at(file, i);
        const void *bytes = i == which ? piece->bytes : info->data;
        if (bytes && info->n_bytes) fine = fwrite(bytes, info->n_bytes, 1, out) == 1;
    }
    strbuf_destroy(&header);
    return out && fclose(out) == 0 && fine;
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), n = strlen(end);
    return length >= n && strcmp(text + length - n, end) == 0;
}

/* Where nothing has to be wrong: what may be missing, or has any bits, or is left out. */
static bool is_allowed(const SafetensorsInfo *info, const char *folder, Damage how) {
    static const char *const OPTIONAL[] = {"g_idx", "weight_format"};
    static const char *const ANY[] = {"qweight",           "qzeros", "weight_packed",
                                      "weight_zero_point", "absmax", "weight"};
    static const char *const NUMBERS[] = {"scale", "scales", "scale_2", "SCB", "map"};
    const char *name = info->name;
    if (ends_with(name, "input_scale") || ends_with(name, "k_scale")) return true;
    if (how == FLAT) return info->n_dims == 0; /* [] and [1] are the same */
    for (size_t i = 0; how == MISSING && i < sizeof(OPTIONAL) / sizeof(OPTIONAL[0]); i++) {
        if (ends_with(name, OPTIONAL[i])) return true;
    }
    for (size_t i = 0; how >= ONES && i < sizeof(ANY) / sizeof(ANY[0]); i++) {
        if (ends_with(name, ANY[i])) return true;
    }
    for (size_t i = 0; how == RANDOM && i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
        if (ends_with(name, NUMBERS[i])) return true;
    }
    return how == ONES && strcmp(folder, "compressed_mixed") == 0 && strstr(name, "up_proj.weight");
}

/* `written`: what is read later is tried, too. */
static void try_import(Arena *arena, const char *what, bool written, bool allowed) {
    Diag *diag = diag_create();
    HfImport out;
    const char *path = in_scratch(arena, "damaged.safetensors");
    const bool opened =
        hf_import_open(arena, in_scratch(arena, "changed"), NULL, NULL, 0, &out, diag);
    const bool taken = opened && (!written || hf_import_write(&out, path, diag));
    if (opened) hf_import_close(&out);
    const char *text = diag_text(diag), *line = strchr(text, '\n');
    CHECK(taken || diag_error_count(diag) == 1, "%s: %d errors", what, diag_error_count(diag));
    CHECK(taken || !line || !line[1], "%s: several lines: %s", what, text);
    CHECK(!taken || allowed, "%s: is taken", what);
    CHECK((taken && written) == (access(path, F_OK) == 0), "%s: a file is left, or none", what);
    unlink(path);
    diag_destroy(diag);
}

static void test_damaged(const char *name) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    check_begin(arena_printf(arena, "%s: damaged in each of its parts", name));
    Safetensors *file =
        safetensors_open(arena_printf(arena, "%s/model.safetensors", folder_of(arena, name)), diag);
    const bool all = strcmp(name, "compressed_mixed") == 0;
    changed_fixture(arena, arena_printf(arena, "../hf_quantized/%s", name), NULL, NULL);
    for (int i = 0; file && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        if (!strstr(info->name, all ? "_proj." : "k_proj.")) continue;
        for (int how = 0; how < N_DAMAGES; how++) {
            const Piece piece =
                how == MISSING ? (Piece){*info, NULL} : damaged(arena, info, (Damage)how);
            CHECK(put_damaged(arena, file, i, &piece), "no such folder");
            const bool allowed = is_allowed(info, name, (Damage)how);
            try_import(arena, arena_printf(arena, "%s %s", info->name, DAMAGES[how]),
                       how >= ONES && !allowed, allowed);
        }
    }
    safetensors_close(file);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

/* --- what is refused, and how it is said --- */

static void expect_import(Arena *arena, const char *dir, const char *expected) {
    Diag *diag = diag_create();
    HfImport out;
    bool opened = hf_import_open(arena, dir, NULL, NULL, 0, &out, diag);
    CHECK(expected
              ? !opened && diag_error_count(diag) == 1 && strstr(diag_text(diag), expected) != NULL
              : opened,
          "not said: %s; but: %s", expected ? expected : "(taken)", diag_text(diag));
    if (opened) hf_import_close(&out);
    diag_destroy(diag);
}

static const struct {
    const char *folder, *how, *expected; /* NULL: it is taken */
} CONFIGS[] = {
    {"gptq", "null", "has no tensor 'model.layers.0.self_attn.q_proj.weight'"},
    {"gptq", "{\"quant_method\": \"hqq\"}", "'quantization_config.quant_method' is \"hqq\""},
    {"gptq", "{\"quant_method\": \"gptq\"}", "'quantization_config.bits' is missing; it must be"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": \"4\"}",
     "is \"4\"; it must be a whole number"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 5, \"group_size\": 8}",
     "'quantization_config.bits' is 5, which is not supported; supported: 2, 3, 4, 8"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 0}",
     "'quantization_config.group_size' is 0, which is not supported; supported: -1 or more"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 8, \"group_size\": 8}",
     "qweight' must be I32 [8, 32] by the configuration; it is I32 [4, 32]"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 16}",
     "qzeros' must be I32 [2, 4] by the configuration; it is I32 [4, 4]"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"checkpoint_format\": \"marlin\"}",
     "'quantization_config.checkpoint_format' is \"marlin\""},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"pack_dtype\": \"int16\"}", "int16"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"is_marlin_format\": true}", "is_marlin"},
    {"gptq", "{\"quant_method\": \"gptq\", \"bits\": 4, \"dynamic\": {\"+:.*\": {\"bits\": 8}}}",
     "'quantization_config.dynamic' is "},
    {"gptq",
     "{\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 8, \"dynamic\": {\"-:.*x\": {}}}",
     NULL},
    {"awq", "{\"quant_method\": \"awq\", \"version\": \"gemv\"}", "version' is \"gemv\", which is"},
    {"awq", "{\"quant_method\": \"awq\", \"bits\": 8}", "'quantization_config.bits' is 8"},
    {"awq", "{\"quant_method\": \"awq\", \"zero_point\": false}", "zero_point' is false"},
    {"awq", "{\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 128}", "qzeros' must be"},
    {"bnb_nf4", "{\"quant_method\": \"bitsandbytes\"}", "one of 'load_in_4bit' and 'load_in_8bit'"},
    {"bnb_nf4", "{\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}",
     "is U8; only F32, BF16 and F16 are supported"},
    {"bnb_nf4",
     "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, \"bnb_4bit_quant_storage\": "
     "\"bfloat16\"}",
     "bnb_4bit_quant_storage' is \"bfloat16\""},
    {"modelopt", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"W4A8_AWQ\"}",
     "'quantization_config.quant_algo' is \"W4A8_AWQ\", which is not supported; supported: FP8"},
    {"modelopt", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": 32}",
     "'quantization_config.group_size' is 32; it must be"},
    {"../hf/gpt2", "{\"quant_method\": \"gptq\", \"bits\": 4}", "which a gpt2 is not read in"},
#define COMPRESSED(format, group, more)                                                            \
    "{\"quant_method\": \"compressed-tensors\", \"format\": \"" format                             \
    "\", \"config_groups\": {\"a\": {\"weights\": " group "}}" more "}"
#define INT4 "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", \"group_size\": 8}"
    {"compressed", COMPRESSED("pack-quantized", INT4, ""), NULL},
    {"compressed", COMPRESSED("pack-quantized", INT4, ", \"sparsity_config\": {\"format\": \"x\"}"),
     "'quantization_config.sparsity_config' is "},
    {"compressed",
     COMPRESSED("pack-quantized", INT4, ", \"transform_config\": {\"config_groups\": {\"R\": 1}}"),
     "'quantization_config.transform_config' is "},
    {"compressed", "{\"quant_method\": \"compressed-tensors\"}",
     "config_groups' must be an object"},
    {"compressed", COMPRESSED("marlin-24", INT4, ""), "in format \"marlin-24\", which is not"},
    {"compressed", COMPRESSED("pack-quantized", "{\"num_bits\": 9, \"type\": \"int\"}", ""),
     "weights.num_bits' must be from 1 to 8 for pack-quantized"},
    {"compressed", COMPRESSED("float-quantized", "{\"num_bits\": 4, \"type\": \"float\"}", ""),
     "weights.num_bits' must be from 8 to 8 for float-quantized"},
    {"compressed",
     COMPRESSED("pack-quantized", "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"x\"}", ""),
     "weights.strategy' is \"x\", which is not supported; supported: tensor, channel"},
    {"compressed",
     COMPRESSED("pack-quantized", "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\"}",
                ""),
     "weights.group_size' is missing, which pack-quantized does not allow"},
    {"compressed",
     COMPRESSED("pack-quantized",
                "{\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"block\", "
                "\"block_structure\": [0, 8]}",
                ""),
     "weights.block_structure' is no pair of sizes"},
    {"compressed",
     COMPRESSED("nvfp4-pack-quantized",
                "{\"num_bits\": 4, \"type\": \"float\", \"group_size\": 32}", ""),
     "weights.group_size' is 32, which nvfp4-pack-quantized does not allow"},
    {"compressed",
     COMPRESSED("pack-quantized", "{\"num_bits\": 4, \"type\": \"int\", \"group_size\": 5}", ""),
     "32 columns are no whole groups of 5"},
    {"compressed",
     COMPRESSED("pack-quantized",
                "{\"num_bits\": 4, \"type\": \"int\", \"group_size\": 8, \"symmetric\": false}",
                ""),
     "weight_packed' in I32, but no '"},
    {"compressed", COMPRESSED("float-quantized", "{\"num_bits\": 8, \"type\": \"float\"}", ""),
     "is of no format that 'quantization_config' has"},
    {"compressed", COMPRESSED("pack-quantized", "null", ""), "is of no format that"}};

static void test_configs(void) {
    for (size_t k = 0; k < sizeof(CONFIGS) / sizeof(CONFIGS[0]); k++) {
        Arena *arena = arena_create();
        const char *name = arena_printf(arena, "../hf_quantized/%s", CONFIGS[k].folder);
        check_begin(arena_printf(arena, "%s as %s", CONFIGS[k].folder, CONFIGS[k].how));
        expect_import(arena, changed_fixture(arena, name, "quantization_config", CONFIGS[k].how),
                      CONFIGS[k].expected);
        arena_destroy(arena);
        check_end();
    }
}

/* What stands in place of one tensor of a folder: a text, or numbers. */
static const struct {
    const char *folder, *end, *name, *text;
    SafetensorsDtype dtype;
    const char *expected;
} TENSORS[] = {
#define STATE "k_proj.weight.quant_state.bitsandbytes__nf4"
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32]", SAFETENSORS_U8, "bitsandbytes__nf4"},
    {"bnb_nf4", STATE, NULL, "[]", SAFETENSORS_U8, "'shape' is missing; it must be [32, 32] by"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [64, 16]}", SAFETENSORS_U8, "'shape' is [64,16]; it"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32], \"blocksize\": 0}", SAFETENSORS_U8,
     "'blocksize' is 0; it must be a whole number from 1 to"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32], \"blocksize\": -64}", SAFETENSORS_U8, "-64"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32], \"blocksize\": 64}", SAFETENSORS_U8,
     "'nested_offset' is missing; it must be a number"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32], \"blocksize\": 64, \"nested_offset\": 1e300}",
     SAFETENSORS_U8, "'nested_offset' is 1"},
    {"bnb_nf4", STATE, NULL, "{\"shape\": [32, 32], \"blocksize\": 64, \"nested_offset\": 1}",
     SAFETENSORS_U8, "'nested_blocksize' is missing"},
    {"bnb_nf4", STATE, NULL,
     "{\"shape\": [32, 32], \"blocksize\": 64, \"nested_offset\": 1, \"nested_blocksize\": 4}",
     SAFETENSORS_U8, "nested_absmax' must be F32 [4] by the configuration; it is F32 [2]"},
    {"bnb_nf4", STATE, NULL,
     "{\"shape\": [32, 32], \"blocksize\": 8, \"nested_offset\": 1, \"nested_blocksize\": 8}",
     SAFETENSORS_U8, "absmax' must be U8 [128] by the configuration; it is U8 [16]"},
    {"gptq", "k_proj.g_idx", NULL, "\0\0\0\0\4\0\0\0" /* and 30 times 0 */, SAFETENSORS_I32,
     "g_idx' has group 4 at 1; there are 4"},
    {"gptq", "k_proj.g_idx", "model.layers.0.self_attn.k_proj.bias", NULL, SAFETENSORS_I32, NULL},
    {"gptq", "k_proj.g_idx", "model.layers.0.self_attn.k_proj.bias", "\0\0\0\0\0\0\0\1",
     SAFETENSORS_I32, "is none that a llama of this configuration has"},
    {"bnb_int8", "k_proj.weight_format", NULL, "\1", SAFETENSORS_U8, "only codes that lie row by"}};

static void test_tensors(void) {
    enum { N = 32, MOST = 128 };
    for (size_t k = 0; k < sizeof(TENSORS) / sizeof(TENSORS[0]); k++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        const bool text = TENSORS[k].dtype == SAFETENSORS_U8;
        char bytes[MOST] = {0};
        check_begin(arena_printf(arena, "%s: another %s", TENSORS[k].folder, TENSORS[k].end));
        Safetensors *file = safetensors_open(
            arena_printf(arena, "%s/model.safetensors", folder_of(arena, TENSORS[k].folder)), diag);
        changed_fixture(arena, arena_printf(arena, "../hf_quantized/%s", TENSORS[k].folder), NULL,
                        NULL);
        for (int i = 0; file && i < safetensors_count(file); i++) {
            Piece piece = {*safetensors_at(file, i), bytes};
            if (!ends_with(piece.info.name, TENSORS[k].end)) continue;
            if (TENSORS[k].text) memcpy(bytes, TENSORS[k].text, text ? strlen(TENSORS[k].text) : 8);
            if (TENSORS[k].name) piece.info.name = TENSORS[k].name;
            piece.info.dtype = TENSORS[k].dtype;
            piece.info.n_dims = 1;
            piece.info.n_bytes = text ? strlen(bytes) : N * sizeof(int32_t);
            piece.info.shape[0] = text ? (int64_t)piece.info.n_bytes : N;
            CHECK(put_damaged(arena, file, i, &piece), "no such folder");
            expect_import(arena, in_scratch(arena, "changed"), TENSORS[k].expected);
        }
        safetensors_close(file);
        diag_destroy(diag);
        arena_destroy(arena);
        check_end();
    }
}

static void test_beside(void) {
    Arena *arena = arena_create();
    check_begin("ModelOpt's own file is damaged");
    const char *dir = changed_fixture(arena, "../hf_quantized/modelopt", NULL, NULL);
    const char *path = arena_printf(arena, "%s/hf_quant_config.json", dir);
    static const char *const TEXTS[][2] = {{"{}", "has no object 'quantization'"},
                                           {"{", "hf_quant_config.json"},
                                           {"{\"quantization\": {}}", "quant_algo' is missing"}};
    for (size_t k = 0; k < sizeof(TEXTS) / sizeof(TEXTS[0]); k++) {
        unlink(path);
        FILE *file = fopen(path, "w");
        if (file) fputs(TEXTS[k][0], file), fclose(file);
        expect_import(arena, dir, TEXTS[k][1]);
    }
    arena_destroy(arena);
    check_end();
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder");
    for (int i = 0; i < N_NAMES; i++) test_numbers(NAMES[i]);
    for (int i = 0; i < N_NAMES; i++) test_damaged(NAMES[i]);
    test_configs();
    test_tensors();
    test_beside();
    remove_scratch();
    return check_report();
}
