/* Weights of Hugging Face's in fp8 with a scale for each block, as DeepSeek V3 and Qwen 3's -FP8
 * files have them, with one for all (Mistral's, ModelOpt's) or for each row (fbgemm): an import
 * gives what code times scale is, bit for bit, of every weight of a product, with blocks that do
 * not divide it, scales in F32 and in BF16; and whatever is wrong with scales or configuration is
 * one line.
 *
 * Would catch: a block's scale on its neighbour, rows and columns of blocks mixed up, the last
 * block of a row taken for a whole one, codes decoded otherwise than e4m3, the numbers of the
 * matrix before, scales that nothing reads, and fp8 that is read though nobody said so.
 */
#include "tests/unit/hf_fixture.h"

#include <math.h>

enum { ROWS = 12, COLUMNS = 20 }; /* of a block */

/* As the OCP's specification has it, by arithmetic. */
static float decode(uint8_t code) {
    int exponent = code >> 3 & 15, fraction = code & 7;
    float size =
        exponent ? ldexpf(1 + (float)fraction / 8, exponent - 7) : ldexpf((float)fraction / 8, -6);
    return code & 128 ? -size : size;
}

/* A number for a place, the same for the same seed; never the code that is no number. */
static uint8_t code_at(int64_t i, unsigned seed) {
    uint8_t code = (uint8_t)((uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> (40 + seed % 8));
    return (code & 127) == 127 ? (uint8_t)(code - 1) : code;
}

/* With few digits, so that BF16 has them, too. */
static float scale_at(int64_t i, unsigned seed) {
    return ldexpf(1 + (float)((i * 5 + seed) % 16) / 16, -9 - (int)(i % 3));
}

static bool is_weight(const SafetensorsInfo *info) {
    static const char *const NAMES[] = {"_proj.weight", "_a_proj_with_mqa.weight",
                                        "kv_b_proj.weight"};
    size_t length = strlen(info->name);
    for (size_t i = 0; info->n_dims == 2 && i < sizeof(NAMES) / sizeof(NAMES[0]); i++) {
        size_t end = strlen(NAMES[i]);
        if (length > end && strcmp(info->name + length - end, NAMES[i]) == 0) return true;
    }
    return false;
}

/* What numbers have one scale, and the scales' name. */
typedef enum Form { BLOCKS, ALL, OF_ROWS, BESIDE } Form;
static const char *const SCALES[] = {"_scale_inv", "_scale_inv", "_scale", "_scale"};

/* What a folder is made of: a fixture, in fp8 or with the same numbers in F32. */
typedef struct Folder {
    Arena *arena;
    const char *from, *to;
    Form form;
    bool wide, low_scales;
    const char *spoil; /* of the first weight: NULL: nothing, or a word of spoil_cases */
} Folder;

static bool is_spoilt(const Folder *f, const char *how, int n_weights) {
    return n_weights == 0 && f->spoil && strcmp(f->spoil, how) == 0;
}

static int64_t count(int64_t all, int64_t each) {
    return (all + each - 1) / each;
}

/* Scales' rows and columns, and the one of number i. */
static void scales_shape(const Folder *f, const SafetensorsInfo *info, int64_t *shape) {
    shape[0] = f->form == BLOCKS    ? count(info->shape[0], ROWS)
               : f->form == OF_ROWS ? info->shape[0]
                                    : 1;
    shape[1] = f->form == BLOCKS ? count(info->shape[1], COLUMNS) : 1;
}

static int64_t scale_of(const Folder *f, const SafetensorsInfo *info, int64_t i) {
    const int64_t row = i / info->shape[1], column = i % info->shape[1];
    if (f->form == OF_ROWS) return row;
    return f->form == BLOCKS ? row / ROWS * count(info->shape[1], COLUMNS) + column / COLUMNS : 0;
}

static void declare(const Folder *f, SafetensorsWriter *writer, const Safetensors *file) {
    for (int i = 0, n = 0; i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        bool fp8 = is_weight(info) && !f->wide;
        SafetensorsDtype dtype =
            is_weight(info) ? fp8 ? SAFETENSORS_F8_E4M3 : SAFETENSORS_F32 : info->dtype;
        if (fp8 && is_spoilt(f, "another fp8", n)) dtype = SAFETENSORS_F8_E5M2;
        safetensors_writer_add_tensor(writer, info->name, dtype, info->shape, info->n_dims);
        if (!fp8) continue;
        int64_t shape[2];
        scales_shape(f, info, shape);
        if (is_spoilt(f, "too few scales", n)) shape[1]--;
        const char *name = arena_printf(f->arena, "%s%s", info->name, SCALES[f->form]);
        if (!is_spoilt(f, "no scales", n)) {
            safetensors_writer_add_tensor(writer, name,
                                          f->low_scales ? SAFETENSORS_BF16 : SAFETENSORS_F32, shape,
                                          f->form == ALL      ? 0
                                          : f->form == BESIDE ? 1
                                                              : 2);
        }
        n++;
    }
    if (f->spoil && strcmp(f->spoil, "scales of nothing") == 0) {
        const int64_t one[2] = {1, 1};
        safetensors_writer_add_tensor(writer, "model.norm.weight_scale_inv", SAFETENSORS_F32, one,
                                      2);
    }
}

static bool put_scales(const Folder *f, SafetensorsWriter *writer, const SafetensorsInfo *info,
                       int n, Diag *diag) {
    int64_t shape[2];
    scales_shape(f, info, shape);
    if (is_spoilt(f, "too few scales", n)) shape[1]--;
    const char *name = arena_printf(f->arena, "%s%s", info->name, SCALES[f->form]);
    bool fine = true;
    for (int64_t i = 0; fine && i < shape[0] * shape[1]; i++) {
        float scale = scale_at(i, (unsigned)n);
        if (is_spoilt(f, "no number", n) && i == 0) scale = NAN;
        uint32_t bits;
        memcpy(&bits, &scale, sizeof(bits));
        uint16_t upper = (uint16_t)(bits >> 16);
        fine = f->low_scales ? safetensors_writer_put(writer, name, &upper, sizeof(upper), diag)
                             : safetensors_writer_put(writer, name, &scale, sizeof(scale), diag);
    }
    return fine;
}

static bool put_weight(const Folder *f, SafetensorsWriter *writer, const SafetensorsInfo *info,
                       int n, Diag *diag) {
    int64_t rows = info->shape[0], columns = info->shape[1];
    bool fine = true;
    for (int64_t i = 0; fine && i < rows * columns; i++) {
        uint8_t code = code_at(i, (unsigned)n);
        float number = decode(code) * scale_at(scale_of(f, info, i), (unsigned)n);
        fine = f->wide ? safetensors_writer_put(writer, info->name, &number, sizeof(number), diag)
                       : safetensors_writer_put(writer, info->name, &code, 1, diag);
    }
    if (!fine || f->wide || is_spoilt(f, "no scales", n)) return fine;
    return put_scales(f, writer, info, n, diag);
}

static bool put_all(const Folder *f, SafetensorsWriter *writer, const Safetensors *file,
                    Diag *diag) {
    bool fine = true;
    for (int i = 0, n = 0; fine && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        fine = is_weight(info)
                   ? put_weight(f, writer, info, n++, diag)
                   : safetensors_writer_put(writer, info->name, info->data, info->n_bytes, diag);
    }
    const float one = 1;
    if (fine && f->spoil && strcmp(f->spoil, "scales of nothing") == 0) {
        fine = safetensors_writer_put(writer, "model.norm.weight_scale_inv", &one, 4, diag);
    }
    return fine;
}

/* `how`: the text of quantization_config; NULL: none. */
static bool put_config(const Folder *f, const char *how, Diag *diag) {
    size_t length;
    const char *text = file_read(f->arena, arena_printf(f->arena, "%s/config.json", f->from),
                                 FILE_LIMIT_BYTES, &length, diag);
    const char *open = text ? strchr(text, '{') : NULL;
    if (!open) return false;
    FILE *file = fopen(arena_printf(f->arena, "%s/config.json", f->to), "w");
    if (!file) return false;
    fprintf(file, "{%s%s%s%s", how ? "\"quantization_config\": " : "", how ? how : "",
            how ? "," : "", open + 1);
    return fclose(file) == 0;
}

#define FP8(block, more)                                                                           \
    "{\"quant_method\": \"fp8\", \"weight_block_size\": " block more                               \
    ", \"activation_scheme\": \"dynamic\"}"
static const char *const GOOD = FP8("[12, 20]", ", \"fmt\": \"e4m3\"");
static const char *const HOW[] = {FP8("[12, 20]", ", \"fmt\": \"e4m3\""), FP8("null", ""),
                                  "{\"quant_method\": \"fbgemm_fp8\"}",
                                  "{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8\"}"};

static bool make(const Folder *f, const char *how, Diag *diag) {
    mkdir(f->to, 0700);
    Safetensors *file =
        safetensors_open(arena_printf(f->arena, "%s/model.safetensors", f->from), diag);
    if (!file) return false;
    SafetensorsWriter *writer = safetensors_writer_create();
    declare(f, writer, file);
    bool fine = safetensors_writer_open(
                    writer, arena_printf(f->arena, "%s/model.safetensors", f->to), diag) &&
                put_all(f, writer, file, diag);
    if (fine) {
        fine = safetensors_writer_commit(writer, diag);
    } else {
        safetensors_writer_abandon(writer);
    }
    safetensors_close(file);
    return fine && put_config(f, how, diag);
}

static void test_numbers(const char *name, Form form, bool low_scales) {
    Arena *arena = arena_create();
    Diag *diag = diag_create();
    HfImport narrow_import, wide_import;
    check_begin(arena_printf(arena, "%s in fp8, form %d, scales in %s", name, form,
                             low_scales ? "BF16" : "F32"));
    Folder narrow = {.arena = arena,
                     .from = fixture(arena, name),
                     .to = in_scratch(arena, "narrow"),
                     .form = form,
                     .low_scales = low_scales};
    Folder wide = {.arena = arena,
                   .from = narrow.from,
                   .to = in_scratch(arena, "wide"),
                   .form = form,
                   .wide = true};
    const char *a = in_scratch(arena, "a.safetensors"), *b = in_scratch(arena, "b.safetensors");
    bool fine = make(&narrow, HOW[form], diag) && make(&wide, NULL, diag) &&
                import(arena, narrow.to, a, &narrow_import, diag) &&
                import(arena, wide.to, b, &wide_import, diag);
    CHECK(fine, "%s", diag_text(diag));
    CHECK(fine && same_files(arena, a, b, diag), "the numbers are others");
    remove_folder(arena, narrow.to);
    remove_folder(arena, wide.to);
    unlink(a), unlink(b);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

static void test_refused(void) {
    static const struct {
        const char *spoil, *how, *expected;
    } CASES[] = {
        {"no scales", NULL, "_proj.weight' in F8_E4M3, but no '"},
        {"too few scales", NULL, "must be F32 or BF16 ["},
        {"another fp8", NULL, "is F8_E5M2; only F32, BF16 and F16 are supported"},
        {"no number", NULL, "has a value that is not finite"},
        {"scales of nothing", NULL, "_scale_inv\" is none that a qwen3"},
        {NULL, FP8("[12, 10]", ""), "must be F32 or BF16 ["},
        {NULL, FP8("[12]", ""), "'quantization_config.weight_block_size' is no pair of sizes"},
        {NULL, FP8("[0, 20]", ""), "'quantization_config.weight_block_size' is no pair of sizes"},
        {NULL, FP8("[12, 2000000]", ""), "is no pair of sizes from 1 to 65536"},
        {NULL, FP8("\"12\"", ""), "'quantization_config.weight_block_size' is no pair of sizes"},
        {NULL, FP8("[12, 20]", ", \"fmt\": \"e5m2\""),
         "'quantization_config.fmt' is not supported"},
        {NULL, "{\"quant_method\": \"hqq\"}",
         "'quantization_config.quant_method' is \"hqq\", which is not supported; supported: awq, "},
        {NULL, "{\"quant_method\": 8}", "'quantization_config' is "},
        {NULL, "null", "is F8_E4M3; only F32, BF16 and F16 are supported"},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        Arena *arena = arena_create();
        Diag *diag = diag_create();
        HfImport out;
        check_begin(
            arena_printf(arena, "refused: %s", CASES[k].spoil ? CASES[k].spoil : CASES[k].how));
        Folder folder = {.arena = arena,
                         .from = fixture(arena, "qwen3"),
                         .to = in_scratch(arena, "spoilt"),
                         .spoil = CASES[k].spoil};
        const char *path = in_scratch(arena, "spoilt.safetensors");
        CHECK(make(&folder, CASES[k].how ? CASES[k].how : GOOD, diag), "%s", diag_text(diag));
        bool taken = import(arena, folder.to, path, &out, diag);
        CHECK(!taken && strstr(diag_text(diag), CASES[k].expected), "not said: %s; but: %s",
              CASES[k].expected, diag_text(diag));
        CHECK(access(path, F_OK) != 0, "a file is left");
        unlink(path);
        remove_folder(arena, folder.to);
        diag_destroy(diag);
        arena_destroy(arena);
        check_end();
    }
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder");
    test_numbers("qwen3", BLOCKS, false);
    test_numbers("qwen3", BLOCKS, true);
    test_numbers("deepseek_v3", BLOCKS, false);
    test_numbers("qwen3_moe", BLOCKS, true);
    test_numbers("mistral", ALL, true);
    test_numbers("llama31", OF_ROWS, false);
    test_numbers("olmo2", BESIDE, false);
    test_refused();
    rmdir(scratch);
    return check_report();
}
