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

/* A copy of the folder with tensor `which` as `piece`, or without it where that has no bytes. The
 * program's own writer would wait for the disk each time. */
static bool put_damaged(Arena *arena, const char *name, const Safetensors *file, int which,
                        const Piece *piece) {
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
    changed_fixture(arena, arena_printf(arena, "../hf_quantized/%s", name), NULL, NULL);
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
    for (int i = 0; file && i < safetensors_count(file); i++) {
        const SafetensorsInfo *info = safetensors_at(file, i);
        if (!strstr(info->name, all ? "_proj." : "k_proj.")) continue;
        for (int how = 0; how < N_DAMAGES; how++) {
            const Piece piece =
                how == MISSING ? (Piece){*info, NULL} : damaged(arena, info, (Damage)how);
            CHECK(put_damaged(arena, name, file, i, &piece), "no such folder");
            const bool allowed = is_allowed(info, name, (Damage)how);
            try_import(arena, arena_printf(arena, "%s %s", info->name, DAMAGES[how]),
                       how == RANDOM || (how == ONES && !allowed), allowed);
        }
    }
    safetensors_close(file);
    diag_destroy(diag);
    arena_destroy(arena);
    check_end();
}

int main(void) {
    if (!mkdtemp(scratch)) BUG("no folder");
    for (int i = 0; i < N_NAMES; i++) test_numbers(NAMES[i]);
    for (int i = 0; i < N_NAMES; i++) test_damaged(NAMES[i]);
    remove_scratch();
    return check_report();
}
