/* Images: read, resized, cut and put into rows. Catches: pixels that are not Pillow's (hashes by
 * tests/reference/make_images.py), an image that lies on its side, patches in another order, a
 * damaged file that is taken for whole or that kills the process, an image's places cut or counted
 * as labels, an image given to another row. */
#include "ir/base/file.h"
#include "ir/base/memory.h"
#include "runtime/data/image_ahead.h"
#include "runtime/data/image_fit.h"
#include "runtime/data/image_rows.h"
#include "runtime/data/image_store.h"
#include "runtime/data/mix.h"
#include "runtime/data/token_mask.h"
#include "runtime/tokenizer/corpus.h"
#include "runtime/tokenizer/corpus_images.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char FOLDER[] = "tests/data/images/";
static const char *const FILES[] = {
    "wide.jpg",   "tall.jpg",   "progressive.jpg", "grey.jpg",   "cmyk.jpg",       "wide.png",
    "grey.png",   "bits.png",   "palette.png",     "alpha.png",  "grey_alpha.png", "wide.webp",
    "alpha.webp", "moves.webp", "turned.jpg",      "turned.png", "turned.webp"};
enum { N_FILES = sizeof(FILES) / sizeof(FILES[0]), MOST_BYTES = 8192 };

static size_t read_file(const char *name, unsigned char *out) {
    char path[128];
    snprintf(path, sizeof(path), "%s%s", FOLDER, name);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    const size_t n = fread(out, 1, MOST_BYTES, file);
    fclose(file);
    return n;
}

static uint64_t hash_of(const Image *image) {
    uint64_t hash = 0xcbf29ce484222325u;
    const size_t n = (size_t)image->width * (size_t)image->height * 3;
    for (size_t i = 0; i < n; i++) hash = (hash ^ image->rgb[i]) * 0x100000001b3u;
    return hash;
}

/* --- as Pillow has them --- */

/* FILE[@PLACE=BYTE] WIDTH HEIGHT HASH */
static void check_decoded(char *name, int width, int height, uint64_t hash) {
    unsigned char bytes[MOST_BYTES];
    char *at = strchr(name, '@'), why[IMAGE_WHY] = "";
    size_t place = 0;
    unsigned byte = 0;
    if (at) {
        sscanf(at, "@%zu=%u", &place, &byte);
        *at = '\0';
    }
    const size_t n = read_file(name, bytes);
    if (at) bytes[place] = (unsigned char)byte;
    Image image, size;
    CHECK(image_decode(bytes, n, &image, why), "%s: %s", name, why);
    if (check_case_failed) return;
    CHECK(image.width == width && image.height == height && hash_of(&image) == hash,
          "%s turned %u: %d x %d", name, byte, image.width, image.height);
    CHECK(image_read_size(bytes, n, &size, why) && size.width == width && size.height == height,
          "%s: head says %d x %d", name, size.width, size.height);
    image_release(&image);
}

static ImageRule rule_of(const char *fit, const char *filter, int64_t side, int64_t patch) {
    ImageRule rule = {.side = side, .patch = patch, .mean = {122, 116, 104}};
    rule.fit = fit[0] == 's' ? IMAGE_STRETCH : fit[0] == 'c' ? IMAGE_CROP : IMAGE_PAD;
    rule.filter = filter[0] == 'l'                 ? IMAGE_LANCZOS
                  : strcmp(filter, "bicubic") == 0 ? IMAGE_BICUBIC
                                                   : IMAGE_BILINEAR;
    return rule;
}

static void check_fitted(const char *name, const char *fit, const char *filter, int side,
                         uint64_t hash) {
    unsigned char bytes[MOST_BYTES];
    char why[IMAGE_WHY] = "";
    const ImageRule rule = rule_of(fit, filter, side, 4);
    Image image;
    bool good = image_decode(bytes, read_file(name, bytes), &image, why);
    CHECK(good && image_fit(&image, &rule, why), "%s: %s", name, why);
    if (!good) return;
    CHECK(hash_of(&image) == hash, "%s %s %s %d", name, fit, filter, side);
    image_release(&image);
}

static void test_pillow(void) {
    char line[256], name[64], fit[32], filter[32];
    int width, height, side, n_decoded = 0, n_fitted = 0;
    unsigned long long hash;
    FILE *file = fopen("tests/data/images/expected.txt", "r");
    check_begin("images: read and resized as Pillow does");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "%63s %d %d %llx", name, &width, &height, &hash) == 4) {
            check_decoded(name, width, height, hash);
            n_decoded++;
        } else if (sscanf(line, "%63s %31s %31s %d %llx", name, fit, filter, &side, &hash) == 5) {
            check_fitted(name, fit, filter, side, hash);
            n_fitted++;
        }
    }
    if (file) fclose(file);
    CHECK(n_decoded == 31 && n_fitted == 54, "%d and %d lines", n_decoded, n_fitted);
}

/* Of a side of 7 what is behind the last whole patch is left out. */
static void check_patches(int side) {
    char why[IMAGE_WHY];
    Image image;
    int32_t out[6 * 6 * 3];
    const ImageRule rule = rule_of("stretch", "bicubic", side, 3);
    CHECK(image_numbers(&rule) == 6 * 6 * 3, "%d numbers", (int)image_numbers(&rule));
    CHECK(image_create(side, side, &image, why), "room");
    for (int i = 0; i < side * side * 3; i++) image.rgb[i] = (unsigned char)i;
    image_cut(&image, &rule, out);
    for (int p = 0, at = 0; p < 4; p++) {
        for (int c = 0; c < 3; c++) {
            for (int k = 0; k < 9; k++, at++) {
                int y = p / 2 * 3 + k / 3, x = p % 2 * 3 + k % 3;
                CHECK(out[at] == (y * side + x) * 3 + c, "%d: %d", at, out[at]);
            }
        }
    }
    image_release(&image);
}

static void test_patches(void) {
    check_begin("images: patches row by row, of each [channel, y, x]");
    check_patches(6);
    check_patches(7);
}

/* --- damaged --- */

static bool survives(const unsigned char *bytes, size_t n) {
    Image image;
    char why[IMAGE_WHY] = "";
    if (image_decode(bytes, n, &image, why)) {
        bool good = image.width > 0 && image.height > 0 && image.rgb;
        image_release(&image);
        return good;
    }
    return why[0] && !image.rgb;
}

static void test_damaged(void) {
    enum { TIMES = 25 };
    check_begin("images: damaged files are errors, or other images");
    for (int f = 0; f < N_FILES; f++) {
        unsigned char bytes[MOST_BYTES], other[MOST_BYTES];
        const size_t n = read_file(FILES[f], bytes);
        uint64_t state = (uint64_t)f;
        for (int i = 0; i < TIMES; i++) {
            memcpy(other, bytes, n);
            int changes = 1 + (int)(mix_draw(&state) * 6);
            for (int k = 0; k < changes; k++) {
                /* Heads are more worth it than pixels. */
                double share = mix_draw(&state);
                size_t at = (size_t)(share * share * (double)n);
                other[at] = (unsigned char)(mix_draw(&state) * 256);
            }
            CHECK(survives(other, n), "%s, change %d", FILES[f], i);
        }
        for (size_t cut = 0; cut < n; cut += n / 12 + 1) {
            Image image;
            char why[IMAGE_WHY] = "";
            unsigned char *exact = memory_alloc(cut + 1); /* for sanitizers */
            memcpy(exact, bytes, cut);
            exact = memory_grow(exact, cut ? cut : 1);
            bool good = image_decode(exact, cut, &image, why);
            free(exact);
            CHECK(!good, "%s cut to %zu is an image", FILES[f], cut);
            CHECK(why[0], "%s: why?", FILES[f]);
        }
    }
}

/* The frame of a JPEG says how large it is, without a sum that guards it. */
static void test_large(void) {
    unsigned char bytes[MOST_BYTES];
    const size_t n = read_file("wide.jpg", bytes);
    char why[IMAGE_WHY] = "";
    Image image;
    size_t at = 0;
    check_begin("images: what is too large is refused");
    while (at + 9 < n && !(bytes[at] == 0xff && bytes[at + 1] == 0xc0)) at++;
    memcpy(bytes + at + 5, "\xff\x00\xff\x01", 4);
    CHECK(!image_decode(bytes, n, &image, why) &&
              strstr(why, "65281 x 65280 pixels: at most 65535 a side, and 100 million in all"),
          "%s", why);
    bytes[at + 5] = bytes[at + 6] = 0;
    CHECK(!image_decode(bytes, n, &image, why) && strstr(why, "a damaged JPEG"), "%s", why);
    CHECK(!image_decode((const unsigned char *)"GIF89a", 6, &image, why) &&
              strcmp(why, "no image that is known: JPEG, PNG or WebP") == 0,
          "%s", why);
    CHECK(!image_decode(bytes, 0, &image, why) && strstr(why, "an empty file"), "%s", why);
    /* Its shorter side is made larger. */
    const ImageRule rule = rule_of("crop", "bicubic", 64, 4);
    CHECK(image_create(2, 4000, &image, why), "%s", why);
    memset(image.rgb, 0, 2 * 4000 * 3);
    CHECK(!image_fit(&image, &rule, why) && strstr(why, "pixels: at most"), "%s", why);
    image_release(&image);
}

/* --- of data --- */

static int64_t add(ImageStore *store, const char *name, Diag *diag) {
    return image_store_add(store, name, strlen(name), (SourceLoc){"tests/data/images/x.jsonl", 3},
                           diag);
}

/* What is read ahead are the numbers that reading at once gives; the rest is left to be read. */
static void test_ahead(void) {
    enum { N = 48 };
    static const char *const NAMES[] = {"wide.jpg", "tall.jpg", "wide.png", "red.png"};
    const ImageRule rule = rule_of("stretch", "bicubic", 4, 2);
    const ImageGrid whole = {0, 0};
    int32_t at_once[4][N], ahead[6][N];
    ImageWanted wanted[6], direct[4];
    Diag *diag = diag_create();
    check_begin("images: read ahead");
    ImageStore *store = image_store_create("tests/data/images");
    for (int i = 0; i < 4; i++) {
        CHECK(add(store, NAMES[i], diag) == i, "%s", NAMES[i]);
        direct[i] = (ImageWanted){i, whole, at_once[i]};
    }
    CHECK(image_store_check(store, &rule, NULL, NULL, diag), "%s", diag_text(diag));
    CHECK(image_store_read(store, &rule, direct, 4, diag), "%s", diag_text(diag));
    ImageAhead *reader = image_ahead_create(store, &rule, 2);
    for (int round = 0; round < 3; round++) { /* the next one's are others, and fewer or more */
        const int n_read = 1 + 2 * round > 4 ? 4 : 1 + 2 * round;
        image_ahead_begin(reader, direct, n_read);
        memset(ahead, 0xff, sizeof(ahead));
        for (int i = 0; i < 6; i++) wanted[i] = (ImageWanted){(5 - i) % 4, whole, ahead[i]};
        const int64_t left = image_ahead_take(reader, wanted, 6);
        int n_left = 0;
        for (int i = 0; i < 6; i++) {
            const int number = (5 - i) % 4;
            const bool given = memcmp(ahead[i], at_once[number], sizeof(at_once[0])) == 0;
            CHECK(given == (number < n_read), "round %d: image %d", round, number);
            if (number < n_read) continue;
            CHECK(wanted[n_left].number == number && wanted[n_left].out == ahead[i], "left");
            n_left++;
        }
        CHECK(left == n_left, "%d are left, not %d", (int)left, n_left);
    }
    /* Of another grid than it was: left, for whoever reads it then to tell. */
    direct[1].grid = (ImageGrid){1, 2};
    image_ahead_begin(reader, direct, 2);
    wanted[0] = direct[1];
    CHECK(image_ahead_take(reader, wanted, 1) == 1, "another grid");
    image_ahead_begin(reader, direct, 1);
    wanted[0] = (ImageWanted){0, {1, 2}, ahead[0]};
    CHECK(image_ahead_take(reader, wanted, 1) == 1, "it was read of another grid");
    image_ahead_begin(reader, direct, 4); /* and released while it reads */
    image_ahead_destroy(reader);
    CHECK(diag_error_count(diag) == 0, "%s", diag_text(diag));
    image_store_destroy(store);
    diag_destroy(diag);
    check_end();
}

static void test_store(void) {
    static const char BAD[][2][120] = {
        {"http://example.org/a.jpg",
         "x.jsonl:3: an image in a network: fetch it first, and name the file"},
        {"HTTPS://example.org/a.jpg", "an image in a network"},
        {"", "an image without a path"},
        {"data:image/png,abc", "written in base64"},
    };
    static const char PIXEL[] =
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADE"
        "lEQVR42mPgEpEDAABoAD1q9XBbAAAAAElFTkSuQmCC";
    Diag *diag = diag_create();
    check_begin("images: names of data's lines");
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        Diag *own = diag_create();
        ImageStore *store = image_store_create(NULL);
        CHECK(add(store, BAD[i][0], own) == -1 && strstr(diag_text(own), BAD[i][1]), "%s: %s",
              BAD[i][0], diag_text(own));
        image_store_destroy(store);
        diag_destroy(own);
    }
    const ImageRule rule = rule_of("stretch", "bicubic", 4, 2);
    ImageStore *store = image_store_create(NULL), *folder = image_store_create("tests/data/images");
    CHECK(add(store, "wide.jpg", diag) == 0 && add(store, "tall.jpg", diag) == 1 &&
              add(store, "wide.jpg", diag) == 0 && add(store, PIXEL, diag) == 2 &&
              add(store, "file://tall.jpg", diag) == 1 && image_store_count(store) == 3,
          "%d of them", (int)image_store_count(store));
    CHECK(image_store_check(store, &rule, NULL, NULL, diag), "%s", diag_text(diag));
    CHECK(add(folder, "wide.png", diag) == 0 && image_store_check(folder, &rule, NULL, NULL, diag),
          "%s", diag_text(diag));
    int32_t a[48], b[48], c[48], again[48];
    const ImageGrid whole = {0, 0};
    const ImageWanted wanted[] = {{0, whole, a}, {1, whole, b}, {2, whole, c}, {0, whole, again}};
    CHECK(image_store_read(store, &rule, wanted, 4, diag), "%s", diag_text(diag));
    CHECK(memcmp(a, again, sizeof(a)) == 0 && memcmp(a, b, sizeof(a)) != 0, "whose pixels?");
    for (int i = 0; i < 48; i++) CHECK(c[i] == 10 * (1 + i % 12 / 4), "%d: %d", i, c[i]);
    CHECK(diag_error_count(diag) == 0, "%s", diag_text(diag));
    CHECK(
        add(store, "expected.txt", diag) == 3 &&
            !image_store_check(store, &rule, NULL, NULL, diag) &&
            strstr(diag_text(diag), "tests/data/images/expected.txt: is no image that is known") &&
            strstr(diag_text(diag), "note: tests/data/images/x.jsonl:3: named here"),
        "%s", diag_text(diag));
    CHECK(add(folder, "none.png", diag) == 1 &&
              !image_store_check(folder, &rule, NULL, NULL, diag) &&
              strstr(diag_text(diag), "tests/data/images/none.png: cannot open"),
          "%s", diag_text(diag));
    const ImageWanted gone = {1, whole, a}, other = {0, {1, 2}, a};
    CHECK(!image_store_read(store, &rule, &other, 1, diag) &&
              strstr(diag_text(diag), "wide.jpg: is no longer the image that it was"),
          "%s", diag_text(diag));
    CHECK(!image_store_read(folder, &rule, &gone, 1, diag), "is not there");
    image_store_destroy(store);
    image_store_destroy(folder);
    diag_destroy(diag);
}

/* "ab!c3": tokens, ! a place, capitals count; then the images' numbers and how many. */
static TokenBuffer make_texts(const char *const *texts, int n, Diag *diag) {
    TokenBuffer buffer = {.token_bytes = 4};
    for (int t = 0; t < n; t++) {
        uint32_t n_images = 0, tokens[64];
        unsigned char marks[64] = {0};
        size_t count = 0;
        for (const char *at = texts[t]; *at; at++) {
            marks[count] = *at >= 'A' && *at <= 'Z' ? TOKEN_COUNTS : 0;
            tokens[count++] = *at == '!' ? 300 : (uint32_t)*at;
            n_images += *at == '!';
        }
        for (uint32_t i = 0; i < n_images; i++) tokens[count++] = (uint32_t)(10 * t) + i;
        tokens[count++] = n_images;
        marks[0] |= TOKEN_BEGINS;
        token_buffer_put(&buffer, tokens, marks, count, diag);
    }
    return buffer;
}

static void check_row(const TokenBuffer *rows, size_t row, size_t n, const char *tokens,
                      const char *marks) {
    for (size_t i = 0; i < n; i++) {
        uint32_t token = token_buffer_at(rows, row * n + i);
        int shown = token == 300 ? '!' : token < 40 ? '0' + (int)token : (int)token;
        bool counts = rows->marks[row * n + i] & TOKEN_COUNTS;
        CHECK(shown == tokens[i], "row %zu, %zu: %c", row, i, shown);
        CHECK(counts == (marks[i] == 'x'), "row %zu, %zu counts: %d", row, i, counts);
    }
}

static void test_rows(void) {
    /* In 8 tokens, with two images of [!!]: text 0 fits; 1 loses its end; 2 would lose an image; 3
     * has three; of 4 nothing counts that is kept; 5 is without images. */
    static const char *const TEXTS[] = {"a!BC", "a!BCDEF", "abcde!F", "!!!A", "!abcdE", "ABC"};
    const ImageRule rule = {.token = 300,
                            .images = 2,
                            .tokens = 2,
                            .before = {.n = 1, .tokens = {'['}},
                            .after = {.n = 1, .tokens = {']'}}};
    ImageRowOptions how = {.rule = &rule, .seq = 8, .pad = '_'};
    ImageTotals totals;
    Diag *diag = diag_create();
    check_begin("images: texts with them as rows");
    how.texts = image_texts_create(&rule, NULL, 301);
    TokenBuffer buffer = make_texts(TEXTS, 6, diag);
    CHECK(image_rows(&buffer, &how, &totals, diag), "%s", diag_text(diag));
    CHECK(buffer.n_tokens == 30, "%zu tokens", buffer.n_tokens);
    if (buffer.n_tokens == 30) {
        check_row(&buffer, 0, 10, "a[!!]BC_10", ".....xx...");
        check_row(&buffer, 1, 10, "a[!!]BCD;0", ".....xxx..");
        check_row(&buffer, 2, 10, "ABC_____00", ".xx.......");
    }
    CHECK(totals.n_texts == 3 && totals.n_images == 2 && totals.n_cut == 1 && totals.n_long == 1 &&
              totals.n_many == 1 && totals.n_empty == 1 && totals.n_tokens == 18,
          "%d texts, %d cut, %d long, %d many, %d empty", (int)totals.n_texts, (int)totals.n_cut,
          (int)totals.n_long, (int)totals.n_many, (int)totals.n_empty);
    token_buffer_release(&buffer);
    buffer = make_texts(TEXTS + 2, 3, diag);
    CHECK(!image_rows(&buffer, &how, &totals, diag) &&
              strstr(diag_text(diag), "no text becomes a row of 8 tokens with at most 2 images: 1 "
                                      "have more, 1 have no room for theirs, and in 1 nothing "
                                      "counts"),
          "%s", diag_text(diag));
    token_buffer_release(&buffer);
    image_texts_destroy(how.texts);
    diag_destroy(diag);
}

/* --- in parts --- */

static ImageRule split_rule(const char *split, int side, int edge, int least, int most) {
    ImageRule rule = rule_of("stretch", "lanczos", side, side);
    rule.split = strcmp(split, "edge") == 0 ? IMAGE_EDGE : IMAGE_RATIO;
    if (rule.split == IMAGE_RATIO) rule.filter = IMAGE_BICUBIC;
    rule.edge = edge;
    rule.least_tiles = least;
    rule.most_tiles = most;
    return rule;
}

static void check_parts(const char *name, const ImageRule *rule, ImageGrid grid, uint64_t hash) {
    unsigned char bytes[MOST_BYTES];
    char why[IMAGE_WHY] = "";
    Image image;
    bool good = image_decode(bytes, read_file(name, bytes), &image, why);
    CHECK(good, "%s: %s", name, why);
    if (!good) return;
    const ImageGrid own = image_grid_of(rule, image.width, image.height);
    CHECK(own.rows == grid.rows && own.columns == grid.columns, "%s: %d x %d", name, own.rows,
          own.columns);
    const int64_t n = image_grid_parts(own) * image_numbers(rule);
    int32_t *numbers = memory_alloc((size_t)n * sizeof(*numbers));
    uint64_t value = 0xcbf29ce484222325u;
    CHECK(image_fit_parts(&image, rule, numbers, why), "%s: %s", name, why);
    for (int64_t i = 0; i < n; i++) value = (value ^ (uint64_t)numbers[i]) * 0x100000001b3u;
    CHECK(value == hash, "%s in parts of %d, by %d", name, (int)rule->side, (int)rule->split);
    free(numbers);
    image_release(&image);
}

static void check_tokens(ImageTexts *texts, ImageGrid grid, const char *expected, Diag *diag) {
    const TokenList *tokens = image_texts_of(texts, grid, diag);
    CHECK(tokens, "%s", diag_text(diag));
    size_t n = 0;
    int width;
    for (unsigned token; tokens && sscanf(expected, "%u%n", &token, &width) == 1; n++) {
        CHECK(n < tokens->count && tokens->items[n] == token, "%d x %d, token %zu", grid.rows,
              grid.columns, n);
        expected += width;
    }
    CHECK(tokens && n == tokens->count, "%d x %d: %zu tokens", grid.rows, grid.columns, n);
}

static ImageRule text_rule(const Tokenizer *tokenizer) {
    ImageRule rule = split_rule("edge", 16, 64, 1, 1);
    rule.token = (int32_t)added_tokens_by_text(&tokenizer->added, "<|endoftext|>")->id;
    rule.tokens = 2;
    rule.images = 20;
    strcpy(rule.before.text, "<|im_start|><global-img>");
    strcpy(rule.after.text, "<|im_start|>");
    strcpy(rule.tile, "<|im_start|><row_{row}_col_{column}>");
    strcpy(rule.line, "\n");
    return rule;
}

/* What transformers' processors do (tests/reference/make_parts.py). */
static void test_parts(void) {
    char line[2048], name[64], split[32];
    int side, edge, least, most, width, height, at, n_parts = 0, n_grids = 0, n_tokens = 0;
    unsigned long long hash;
    ImageGrid grid;
    Diag *diag = diag_create();
    Tokenizer *tokenizer = tokenizer_load("tests/data/tokenizers/qwen2.json", NULL, diag);
    const ImageRule words = text_rule(tokenizer);
    ImageTexts *texts = image_texts_create(&words, tokenizer, tokenizer->n_ids);
    FILE *file = fopen("tests/data/images/parts.txt", "r");
    check_begin("images: split, and told of, as transformers does");
    CHECK(texts, "%s", diag_text(diag));
    while (texts && file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "grid %31s %d %d %d %d %d %d %d %d", split, &side, &edge, &least, &most,
                   &width, &height, &grid.rows, &grid.columns) == 9) {
            const ImageRule rule = split_rule(split, side, edge, least, most);
            const ImageGrid own = image_grid_of(&rule, width, height);
            CHECK(own.rows == grid.rows && own.columns == grid.columns, "%s: %d x %d", line,
                  own.rows, own.columns);
            n_grids++;
        } else if (sscanf(line, "tokens %d %d%n", &grid.rows, &grid.columns, &at) == 2) {
            check_tokens(texts, grid, line + at, diag);
            n_tokens++;
        } else if (sscanf(line, "%63s %31s %d %d %d %d %d %llx", name, split, &side, &edge, &most,
                          &grid.rows, &grid.columns, &hash) == 8) {
            const ImageRule rule = split_rule(split, side, edge, 1, most);
            check_parts(name, &rule, grid, hash);
            n_parts++;
        }
    }
    if (file) fclose(file);
    CHECK(n_parts == 18 && n_grids == 70 && n_tokens == 4, "%d, %d and %d lines", n_parts, n_grids,
          n_tokens);
    image_texts_destroy(texts);
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

/* Of sides like these a product rounds below one pixel: transformers resizes to 0, and fails. */
static void test_thin_parts(void) {
    static const int SIDES[] = {49, 98, 196, 392};
    check_begin("images: parts of a line of pixels");
    for (int i = 0; i < 8; i++) {
        const int side = SIDES[i / 2], width = i % 2 ? 6000 : 1;
        const ImageRule rule = split_rule("edge", side, side, 1, 1);
        const ImageGrid grid = image_grid_of(&rule, width, 6001 - width);
        char why[IMAGE_WHY] = "";
        Image image;
        CHECK(image_grid_parts(grid) == 1, "%d: %d x %d", side, grid.rows, grid.columns);
        if (!image_create(width, 6001 - width, &image, why)) BUG("%s", why);
        memset(image.rgb, 7, (size_t)6000 * 3);
        int32_t *numbers = memory_alloc((size_t)image_numbers(&rule) * sizeof(*numbers));
        CHECK(image_fit_parts(&image, &rule, numbers, why), "%d: %s", side, why);
        CHECK(numbers[0] == 7 && numbers[image_numbers(&rule) - 1] == 7, "%d: %d", side,
              (int)numbers[0]);
        free(numbers);
        image_release(&image);
    }
}

/* What is said of a size alone is what becomes of such an image. */
static void test_sizes(void) {
    static const int SIZES[][2] = {{1, 60000}, {60000, 1}, {300, 200}};
    static const char *const FITS[] = {"stretch", "crop", "pad"};
    int n_refused = 0;
    check_begin("images: sizes that cannot be");
    for (int i = 0; i < 15; i++) {
        const int kind = i / 3, width = SIZES[i % 3][0], height = SIZES[i % 3][1];
        ImageRule rule = kind < 3 ? rule_of(FITS[kind], "bilinear", 2048, 2048)
                                  : split_rule(kind == 3 ? "edge" : "ratio", 2048, 2048, 1, 2);
        char why[IMAGE_WHY] = "", said[IMAGE_WHY] = "";
        Image image;
        rule.filter = IMAGE_BILINEAR;
        rule.patch = 1025; /* the rest is nobody's */
        if (!image_create(width, height, &image, why)) BUG("%s", why);
        memset(image.rgb, 7, (size_t)width * (size_t)height * 3);
        const int64_t n = image_grid_parts(image_grid_of(&rule, width, height));
        int32_t *out = memory_alloc((size_t)(n * image_numbers(&rule)) * sizeof(*out));
        const bool can = image_fit_check(&rule, width, height, said);
        CHECK(image_fit_parts(&image, &rule, out, why) == can, "%d: %s, %s", i, said, why);
        CHECK(can || strstr(said, "pixels, of which "), "%s", said);
        n_refused += !can;
        free(out);
        image_release(&image);
    }
    CHECK(n_refused == 6, "%d are refused", n_refused);
}

/* "a!C!": tokens, ! the place of an image in parts. */
static void test_part_rows(void) {
    static const char *const TEXTS[] = {"!A!B"};
    Diag *diag = diag_create();
    ImageStore *store = image_store_create(NULL);
    ImageRule rule = split_rule("ratio", 16, 0, 1, 4); /* two tiles, or none, and the whole */
    check_begin("images: texts with parts of them as rows");
    rule.token = 300;
    rule.images = 4;
    rule.tokens = 1;
    rule.before = (ImageAround){.n = 1, .tokens = {'['}};
    rule.after = (ImageAround){.n = 1, .tokens = {']'}};
    ImageRowOptions how = {.rule = &rule, .store = store, .seq = 10, .pad = '_'};
    how.texts = image_texts_create(&rule, NULL, 301);
    CHECK(add(store, "wide.png", diag) == 0 && add(store, "red.png", diag) == 1 &&
              image_store_check(store, &rule, NULL, NULL, diag),
          "%s", diag_text(diag));
    ImageTotals totals;
    TokenBuffer buffer = make_texts(TEXTS, 1, diag);
    CHECK(image_rows(&buffer, &how, &totals, diag), "%s", diag_text(diag));
    /* wide.png: [!!!], red.png: [!] */
    CHECK(buffer.n_tokens == 14, "%zu numbers", buffer.n_tokens);
    if (buffer.n_tokens == 14) check_row(&buffer, 0, 14, "[!!!]A[!]B1112", ".....x...x....");
    CHECK(totals.n_images == 2 && totals.n_parts == 4, "%d parts", (int)totals.n_parts);
    rule.images = 3;
    token_buffer_release(&buffer);
    buffer = make_texts(TEXTS, 1, diag);
    CHECK(!image_rows(&buffer, &how, &totals, diag) &&
              strstr(diag_text(diag), "at most 3 parts of images: 1 have more") &&
              strstr(diag_text(diag), "or a smaller most_tiles="),
          "%s", diag_text(diag));
    token_buffer_release(&buffer);
    image_texts_destroy(how.texts);
    image_store_destroy(store);
    diag_destroy(diag);
}

static void test_part_texts(void) {
    Diag *diag = diag_create();
    Tokenizer *tokenizer = tokenizer_load("tests/data/tokenizers/qwen2.json", NULL, diag);
    check_begin("images: texts around them that cannot be");
    for (int i = 0; i < 4; i++) {
        static const char *const WANTED[] = {
            "begins with a special token, as the model says, but the tokenizer has no token of its "
            "own there: '<fake_token_around_image><global-img>'",
            "begins with a special token, as the model says, but the tokenizer has no token of its "
            "own there: '<tile>'",
            "what stands around images has image_token", "and the model's vocabulary has 7"};
        ImageRule rule = text_rule(tokenizer);
        Diag *own = diag_create();
        if (i == 0) strcpy(rule.before.text, "<fake_token_around_image><global-img>");
        if (i == 1) strcpy(rule.tile, "<tile>");
        if (i == 2) strcpy(rule.after.text, "<|endoftext|><|im_start|>");
        ImageTexts *texts = image_texts_create(&rule, tokenizer, i == 3 ? 7 : 1 << 20);
        CHECK(!image_texts_of(texts, (ImageGrid){0, 0}, own) && strstr(diag_text(own), WANTED[i]),
              "%d: %s", i, diag_text(own));
        image_texts_destroy(texts);
        diag_destroy(own);
    }
    tokenizer_destroy(tokenizer);
    diag_destroy(diag);
}

/* --- lines of data --- */

/* As LLaVA 1.5's: images first; and as SmolVLM's: where they stand. The third knows texts alone. */
static const char FIRST[] =
    "{% for m in messages %}{{ m['role'] | upper }}: {% for part in m['content'] | "
    "selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}{% for part in "
    "m['content'] | selectattr('type', 'equalto', 'text') %}{% if m['role'] == 'assistant' %}"
    "{% generation %}{{ part['text'] + ' ' }}{% endgeneration %}{% else %}{{ part['text'] + ' ' }}"
    "{% endif %}{% endfor %}{% endfor %}";
static const char IN_PLACE[] =
    "{% for m in messages %}{{ m['role'] | capitalize }}{% if m['content'][0]['type'] == 'image' "
    "%}{{ ':' }}{% else %}{{ ': ' }}{% endif %}{% for part in m['content'] %}{% if part['type'] == "
    "'text' %}{{ part['text'] }}{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}"
    "{% endif %}";
static const char TEXTS_ALONE[] =
    "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

typedef struct Corpus {
    const Tokenizer *tokenizer;
    Arena *arena;
    Diag *diag;
    char *path; /* of a line of data */
} Corpus;

static bool keep(void *user, const uint32_t *tokens, const unsigned char *marks, size_t count,
                 Diag *diag) {
    return token_buffer_put(user, tokens, marks, count, diag);
}

/* The first document as text: <#> a place, {} around what counts, and behind it the names of its
 * images; an error as it is. */
static const char *encode(const Corpus *c, const char *template, const char *line, uint32_t image) {
    Diag *diag = diag_create();
    char *path = arena_printf(c->arena, "%s.jinja", c->path);
    TokenBuffer buffer = {.token_bytes = 4};
    CorpusTotals totals;
    Chat chat;
    ImageStore *store = image_store_create("");
    const char *paths[] = {c->path};
    CorpusOptions o = {
        .paths = paths, .n_paths = 1, .first = NO_TOKEN, .last = NO_TOKEN, .n_threads = 1};
    const ChatSettings settings = {.arena = c->arena};
    bool good = file_write(c->path, line, strlen(line), diag);
    if (template) {
        good = good && file_write(path, template, strlen(template), diag) &&
               chat_prepare(chat_template_find(path, c->arena, diag), c->tokenizer, NO_TOKEN,
                            &settings, &chat, diag);
        o.chat = &chat;
    }
    o.last = added_tokens_by_text(&c->tokenizer->added, "<|im_end|>")->id;
    const CorpusImages images = corpus_images_of(store, c->tokenizer, image, o.chat, c->arena);
    o.images = &images;
    StrBuf out = strbuf_create();
    good = good && corpus_encode(c->tokenizer, &o, keep, &buffer, &totals, diag);
    const size_t n = buffer.n_tokens, n_images = n ? token_buffer_at(&buffer, n - 1) : 0;
    bool counts = false;
    for (size_t i = 0; good && i < n - n_images; i++) {
        const uint32_t token = token_buffer_at(&buffer, i);
        size_t length;
        if (counts != ((buffer.marks[i] & TOKEN_COUNTS) != 0)) strbuf_put(&out, counts ? "}" : "{");
        counts = buffer.marks[i] & TOKEN_COUNTS;
        if (i + 1 == n - n_images) break;
        const char *text = tokenizer_text(c->tokenizer, token, &length);
        if (token == image) strbuf_put(&out, "<#>");
        if (token != image) strbuf_put_bytes(&out, text, length);
    }
    for (size_t i = n - n_images - 1; good && i < n; i++) {
        strbuf_printf(&out, " %u", token_buffer_at(&buffer, i));
    }
    const char *shown = arena_strdup(c->arena, good ? out.text : diag_text(diag));
    strbuf_destroy(&out);
    token_buffer_release(&buffer);
    image_store_destroy(store);
    diag_destroy(diag);
    unlink(path);
    unlink(c->path);
    return shown;
}

#define ASKED    "{\"messages\": [{\"role\": \"user\", \"content\": "
#define ANSWERED "}, {\"role\": \"assistant\", \"content\": \"Two.\"}]"

static void test_lines(void) {
    static const struct {
        const char *template, *line, *expected;
    } CASES[] = {
        /* Parts with names; and without, beside them; LLaVA's own; none said, so in front. */
        {IN_PLACE,
         ASKED "[{\"type\": \"image\", \"image\": \"a.png\"}, {\"type\": \"text\", \"text\": \"How "
               "many?\"}, {\"type\": \"image\", \"path\": \"b.png\"}]" ANSWERED "}",
         "User:<#>How many?<#><|im_end|>Assistant:{ Two.<|im_end|>} 0 1 2"},
        {IN_PLACE,
         ASKED "[{\"type\": \"text\", \"text\": \"Is \"}, {\"type\": \"image\"}, {\"type\": "
               "\"image\"}]" ANSWERED ", \"images\": [\"a.png\", {\"path\": \"b.png\"}]}",
         "User: Is <#><#><|im_end|>Assistant:{ Two.<|im_end|>} 0 1 2"},
        {IN_PLACE,
         "{\"image\": \"a.png\", \"conversations\": [{\"from\": \"human\", \"value\": "
         "\"<image>\\nHow many?\"}, {\"from\": \"gpt\", \"value\": \"Two.\"}]}",
         "User:<#>How many?<|im_end|>Assistant:{ Two.<|im_end|>} 0 1"},
        {FIRST,
         "{\"image\": \"a.png\", \"conversations\": [{\"from\": \"human\", \"value\": \"How "
         "many?\\n<image>\"}, {\"from\": \"gpt\", \"value\": \"Two.\"}]}",
         "USER: <#>\nHow many? ASSISTANT: {Two. <|im_end|>} 0 1"},
        {FIRST, ASKED "\"How many?\"" ANSWERED ", \"images\": [\"a.png\", \"a.png\"]}",
         "USER: <#>\n<#>\nHow many? ASSISTANT: {Two. <|im_end|>} 0 0 2"},
        {FIRST,
         ASKED "[{\"type\": \"image_url\", \"image_url\": {\"url\": \"a.png\"}}]" ANSWERED "}",
         "USER: <#>\nASSISTANT: {Two. <|im_end|>} 0 1"},
        {FIRST, ASKED "\"How many?\"" ANSWERED "}",
         "USER: How many? ASSISTANT: {Two. <|im_end|>} 0"},
        {TEXTS_ALONE,
         ASKED "[{\"type\": \"image\", \"image\": \"a.png\"}, {\"type\": \"text\", \"text\": "
               "\"?\"}]" ANSWERED "}",
         "user: <#>?<|im_end|>assistant: {Two.<|im_end|>} 0 1"},
        {TEXTS_ALONE, ASKED "\"?\"" ANSWERED ", \"image\": \"a.png\"}",
         "user: <#>\n?<|im_end|>assistant: {Two.<|im_end|>} 0 1"},
        {NULL, "{\"image\": \"a.png\", \"prompt\": \"See <image>:\", \"completion\": \"x\"}",
         "See <#>:{x<|im_end|>} 0 1"},
        {NULL, "{\"images\": [\"a.png\"], \"prompt\": \"p\", \"completion\": \"x\"}",
         "<#>p{x<|im_end|>} 0 1"},
        {NULL, "{\"images\": [\"b.png\"], \"text\": \"y <image> z\"}", "{y }<#>{ z<|im_end|>} 0 1"},
        /* What cannot be. */
        {IN_PLACE, ASKED "\"<image> and <image>\"" ANSWERED ", \"image\": \"a.png\"}",
         ":1: 1 images, and 2 places for them in what is said"},
        {IN_PLACE, ASKED "\"<image>\"" ANSWERED ", \"images\": [\"a.png\", \"b.png\"]}",
         ":1: 2 images, and 1 places for them in what is said"},
        {IN_PLACE, ASKED "\"<image>\"" ANSWERED ", \"images\": [3]}",
         ":1: an image is a path, or an object with one as 'path'"},
        {NULL, "{\"prompt\": \"<image>\", \"completion\": \"x\"}",
         ":1: 0 images, and 1 places for them in the text"},
        {NULL, "{\"image\": \"https://a.b/c.png\", \"prompt\": \"p\", \"completion\": \"x\"}",
         ":1: an image in a network: fetch it first, and name the file: https://a.b/c.png"},
    };
    char folder[] = "/tmp/test_image-XXXXXX";
    Corpus c = {.arena = arena_create(), .diag = diag_create()};
    check_begin("images: places of lines of data");
    c.tokenizer = tokenizer_load("tests/data/tokenizers/qwen2.json", NULL, c.diag);
    const AddedToken *end =
        c.tokenizer ? added_tokens_by_text(&c.tokenizer->added, "<|im_end|>") : NULL;
    const AddedToken *image =
        c.tokenizer ? added_tokens_by_text(&c.tokenizer->added, "<|endoftext|>") : NULL;
    CHECK(end && image && mkdtemp(folder), "%s", diag_text(c.diag));
    if (check_case_failed) return;
    c.path = arena_printf(c.arena, "%s/x.jsonl", folder);
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        const char *got = encode(&c, CASES[i].template, CASES[i].line, image->id);
        bool same = CASES[i].expected[0] == ':' ? strstr(got, CASES[i].expected) != NULL
                                                : strcmp(got, CASES[i].expected) == 0;
        CHECK(same, "line %zu: '%s', not '%s'", i, got, CASES[i].expected);
    }
    rmdir(folder);
    tokenizer_destroy((Tokenizer *)(uintptr_t)c.tokenizer);
    arena_destroy(c.arena);
    diag_destroy(c.diag);
}

int main(void) {
    test_pillow();
    test_patches();
    test_damaged();
    test_large();
    test_store();
    test_ahead();
    test_rows();
    test_parts();
    test_thin_parts();
    test_sizes();
    test_part_rows();
    test_part_texts();
    test_lines();
    return check_report();
}
