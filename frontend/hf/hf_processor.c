#include "frontend/hf/hf_processor.h"

#include "frontend/hf/hf_config.h"
#include "frontend/hf/hf_export.h"
#include "frontend/hf/hf_vision.h"
#include "ir/base/file.h"
#include "ir/base/json.h"
#include "ir/image_rule.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LIMIT_BYTES = 1 << 20 };

static const char PREPROCESSOR[] = "preprocessor_config.json",
                  PROCESSOR[] = "processor_config.json";

typedef enum Kind { LLAVA, SIGLIP, INTERNVL } Kind;

/* Classes without what their names may end with, the first being what is written, and what they
 * mean where a file does not say it. */
static const struct {
    const char *type;
    Kind kind;
    const char *classes[4], *processor;
    double mean[3], std[3];
    int resample; /* Pillow's number */
} TYPES[] = {
    {"llava",
     LLAVA,
     {"CLIPImageProcessor", "LlavaImageProcessor", "CLIPFeatureExtractor"},
     "LlavaProcessor",
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711},
     3},
    {"idefics3",
     SIGLIP,
     {"Idefics3ImageProcessor", "SmolVLMImageProcessor"},
     "Idefics3Processor",
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5},
     1},
    {"smolvlm",
     SIGLIP,
     {"SmolVLMImageProcessor", "Idefics3ImageProcessor"},
     "SmolVLMProcessor",
     {0.5, 0.5, 0.5},
     {0.5, 0.5, 0.5},
     1},
    {"internvl",
     INTERNVL,
     {"GotOcr2ImageProcessor"},
     "InternVLProcessor",
     {0.48145466, 0.4578275, 0.40821073},
     {0.26862954, 0.26130258, 0.27577711},
     3},
};
enum { N_TYPES = sizeof(TYPES) / sizeof(TYPES[0]) };

/* Pillow's numbers of filters. */
static const struct {
    const char *name;
    int resample;
} FILTERS[] = {{"lanczos", 1}, {"bilinear", 2}, {"bicubic", 3}};
enum { N_FILTERS = sizeof(FILTERS) / sizeof(FILTERS[0]) };

static int find_type(const char *name) {
    for (int i = 0; name && i < N_TYPES; i++) {
        if (strcmp(TYPES[i].type, name) == 0) return i;
    }
    return -1;
}

/* --- files --- */

/* *out NULL: there is no such file. False: reported. */
static bool read_object(Arena *arena, const char *path, json_t **out, Diag *diag) {
    size_t length;
    *out = NULL;
    if (access(path, F_OK) != 0) return true;
    const char *text = file_read(arena, path, LIMIT_BYTES, &length, diag);
    *out = text ? json_parse_bytes(path, text, length, diag) : NULL;
    if (!*out || json_is_object(*out)) return *out != NULL;
    diag_error(diag, (SourceLoc){path, 0}, "is not a JSON object");
    json_decref(*out);
    *out = NULL;
    return false;
}

/* What a folder says: of the processor, or NULL, and of images, or NULL, in the file *path. */
typedef struct Files {
    json_t *processor, *images;
    const char *processor_path, *path;
} Files;

static void close_files(Files *files) {
    json_decref(files->processor);
    json_decref(files->images);
    *files = (Files){0};
}

static bool open_files(Arena *arena, const char *dir, Files *out, Diag *diag) {
    *out = (Files){.processor_path = arena_printf(arena, "%s/%s", dir, PROCESSOR),
                   .path = arena_printf(arena, "%s/%s", dir, PREPROCESSOR)};
    if (!read_object(arena, out->processor_path, &out->processor, diag)) return false;
    json_t *within = json_object_get(out->processor, "image_processor");
    if (json_is_object(within)) { /* as transformers 5 saves it, and looks first */
        out->path = out->processor_path;
        out->images = json_incref(within);
        return true;
    }
    if (read_object(arena, out->path, &out->images, diag)) return true;
    close_files(out);
    return false;
}

/* --- reading --- */

typedef struct Reader {
    Arena *arena;
    const char *path;
    const json_t *json, *config;
    int type;
    int64_t side, patch, shuffle;
    ModelSetting *out;
    int n;
    Diag *diag;
} Reader;

static void give(Reader *reader, const char *name, const char *value) {
    if (reader->n == HF_PROCESSOR_SETTINGS) BUG("more settings of images");
    reader->out[reader->n++] = (ModelSetting){name, value};
}

static void give_number(Reader *reader, const char *name, int64_t value) {
    give(reader, name, arena_printf(reader->arena, "%" PRId64, value));
}

/* key: "a.b" is b in the object a. */
static bool refuse(const Reader *reader, const char *key, const json_t *value, const char *what) {
    diag_error(reader->diag, (SourceLoc){reader->path, 0}, "'%s' is %s, which is not supported; %s",
               key, value ? hf_config_shown(reader->arena, value) : "missing", what);
    return false;
}

static const json_t *find(const Reader *reader, const char *key) {
    const json_t *value = json_object_get(reader->json, key);
    return json_is_null(value) ? NULL : value;
}

static bool flag(const Reader *reader, const char *key, bool absent) {
    const json_t *value = find(reader, key);
    return value ? json_is_true(value) : absent;
}

/* True, or missing. */
static bool check_done(const Reader *reader, const char *key) {
    if (flag(reader, key, true)) return true;
    return refuse(reader, key, json_object_get(reader->json, key), "only true is");
}

/* Fewest digits that are the same number. */
static const char *number_text(Arena *arena, double number) {
    for (int digits = 1;; digits++) {
        const char *text = arena_printf(arena, "%.*g", digits, number);
        if (digits == 17 || strtod(text, NULL) == number) return text;
    }
}

/* Of red, green and blue. */
static bool read_colours(Reader *reader, const char *key, const char *setting, const double *absent,
                         double *out) {
    const json_t *list = find(reader, key);
    const char *text = "";
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_is_array(list) ? json_array_get(list, (size_t)i) : list;
        out[i] = list ? json_number_value(value) : absent[i];
        if (!(out[i] > 0 && out[i] < 1000) || (json_is_array(list) && json_array_size(list) != 3)) {
            return refuse(reader, key, list, "it must be three numbers more than 0");
        }
        text = arena_printf(reader->arena, "%s%s%s", text, i ? "," : "",
                            number_text(reader->arena, out[i]));
    }
    give(reader, setting, text);
    return true;
}

static bool read_pixels(Reader *reader, double *out_mean) {
    double std[3];
    const json_t *factor = find(reader, "rescale_factor");
    const double rescale = factor ? json_number_value(factor) : 1 / 255.0;
    if (!check_done(reader, "do_resize") || !check_done(reader, "do_rescale") ||
        !check_done(reader, "do_normalize")) {
        return false;
    }
    if (!(fabs(rescale * 255 - 1) < 1e-6)) {
        return refuse(reader, "rescale_factor", factor, "only 1/255 is");
    }
    return read_colours(reader, "image_mean", "pixel_mean", TYPES[reader->type].mean, out_mean) &&
           read_colours(reader, "image_std", "pixel_std", TYPES[reader->type].std, std);
}

static bool read_filter(Reader *reader) {
    const json_t *value = find(reader, "resample");
    const json_int_t resample = value ? json_integer_value(value) : TYPES[reader->type].resample;
    for (int i = 0; i < N_FILTERS && (!value || json_is_integer(value)); i++) {
        if (FILTERS[i].resample != resample) continue;
        give(reader, "image_filter", FILTERS[i].name);
        return true;
    }
    return refuse(reader, "resample", value, "1 (lanczos), 2 (bilinear) and 3 (bicubic) are");
}

/* Of the model's square; a number alone stands for itself. */
static bool is_side(const Reader *reader, const json_t *value) {
    return json_is_integer(value) && json_integer_value(value) == reader->side;
}

static bool is_square(const Reader *reader, const json_t *value) {
    return is_side(reader, value) || (is_side(reader, json_object_get(value, "height")) &&
                                      is_side(reader, json_object_get(value, "width")));
}

static bool refuse_size(const Reader *reader, const char *key) {
    return refuse(reader, key, json_object_get(reader->json, key),
                  arena_printf(reader->arena,
                               "it must be the %" PRId64
                               " pixels of the configuration's 'vision_config.image_size'",
                               reader->side));
}

/* The class that `name` is a form of, or -1. */
static int find_class(const Reader *reader, const char *name) {
    static const char *const ENDS[] = {"", "Fast", "Pil"};
    for (int i = 0; name && TYPES[reader->type].classes[i]; i++) {
        const size_t length = strlen(TYPES[reader->type].classes[i]);
        if (strncmp(name, TYPES[reader->type].classes[i], length) != 0) continue;
        for (int end = 0; end < 3; end++) {
            if (strcmp(name + length, ENDS[end]) == 0) return i;
        }
    }
    return -1;
}

static bool read_class(const Reader *reader, int *out) {
    static const char *const KEYS[] = {"image_processor_type", "feature_extractor_type"};
    *out = 0;
    for (int i = 0; i < 2; i++) {
        const json_t *value = find(reader, KEYS[i]);
        if (!value) continue;
        *out = find_class(reader, json_string_value(value));
        if (*out >= 0) return true;
        return refuse(reader, KEYS[i], value,
                      arena_printf(reader->arena, "a %s has %s", TYPES[reader->type].type,
                                   TYPES[reader->type].classes[0]));
    }
    return true;
}

/* LLaVA's: the shorter side and then the middle, or a square at once, with a border first or not.
 */
static bool read_llava(Reader *reader, int class, const double *mean) {
    const json_t *size = find(reader, "size"), *crop = find(reader, "crop_size");
    const json_t *shortest = json_is_object(size) ? json_object_get(size, "shortest_edge") : size;
    const bool middle = flag(reader, "do_center_crop", true), pads = flag(reader, "do_pad", false);
    int colour[3];
    if (!is_side(reader, shortest) && (shortest || !is_square(reader, size))) {
        return refuse_size(reader, "size");
    }
    if (middle && !is_square(reader, crop)) return refuse_size(reader, "crop_size");
    if (pads && class != 1) {
        return refuse(reader, "do_pad", find(reader, "do_pad"),
                      "LlavaImageProcessor alone does so");
    }
    if (shortest && !pads && !middle) {
        return refuse(reader, "do_center_crop", find(reader, "do_center_crop"),
                      "images of other sides than 'shortest_edge' would not be squares");
    }
    give(reader, "image_fit", pads ? "pad" : shortest ? "crop" : "stretch");
    for (int i = 0; i < 3; i++) {
        colour[i] = (int)(mean[i] * 255);
        if (colour[i] <= 255) continue;
        if (!pads) return true;
        return refuse(reader, "image_mean", find(reader, "image_mean"),
                      "with 'do_pad' it is a colour, from 0 to 1");
    }
    give(reader, "image_mean",
         arena_printf(reader->arena, "%d,%d,%d", colour[0], colour[1], colour[2]));
    return true;
}

/* So many parts of an image are the room of a row. */
static void give_parts(Reader *reader, int64_t parts) {
    const int64_t across = reader->side / reader->patch;
    give_number(reader, "images", parts);
    give_number(reader, "patches", parts * across * across);
}

static bool read_siglip(Reader *reader) {
    const json_t *size = find(reader, "size"), *square = find(reader, "max_image_size");
    const json_t *longest = json_object_get(size, "longest_edge");
    const json_int_t said = json_is_integer(longest) ? json_integer_value(longest) : 0;
    const json_int_t edge = said > IMAGE_MOST_SIDE ? 0 : said; /* 0: none that can be */
    if (!is_side(reader, json_object_get(square, "longest_edge"))) {
        return refuse_size(reader, "max_image_size");
    }
    give(reader, "image_fit", "stretch");
    if (!flag(reader, "do_image_splitting", true)) {
        if (!longest && !is_square(reader, size)) return refuse_size(reader, "size");
        give(reader, "image_split", "none");
        give_parts(reader, 1);
        return true;
    }
    /* The other side is made even, and may be larger by one. */
    const int64_t tiles = (edge + edge % 2 + reader->side - 1) / reader->side;
    if (edge < reader->side || tiles * tiles >= IMAGE_MOST_IMAGES) {
        return refuse(reader, "size", size,
                      arena_printf(reader->arena,
                                   "'longest_edge' must be from %" PRId64
                                   " pixels, a tile's side, to %d, and at most %d tiles",
                                   reader->side, IMAGE_MOST_SIDE, IMAGE_MOST_IMAGES - 1));
    }
    give(reader, "image_split", "edge");
    give_number(reader, "image_edge", edge);
    give_parts(reader, tiles * tiles + 1);
    return true;
}

static bool read_internvl(Reader *reader) {
    const json_t *least = find(reader, "min_patches"), *most = find(reader, "max_patches");
    const json_int_t first = least ? json_integer_value(least) : 1;
    const json_int_t last = most ? json_integer_value(most) : 12;
    if (!is_square(reader, find(reader, "size"))) return refuse_size(reader, "size");
    if (last < 1 || last > IMAGE_MOST_TILES) {
        return refuse(reader, "max_patches", most, "from 1 to 64 tiles are");
    }
    if (first < 1 || first > last) {
        return refuse(reader, "min_patches", least, "it must be from 1 to 'max_patches'");
    }
    give(reader, "image_fit", "stretch");
    give(reader, "image_split", last > 1 ? "ratio" : "none");
    if (last > 1) give_number(reader, "least_tiles", first);
    if (last > 1) give_number(reader, "most_tiles", last);
    give_parts(reader, last > 1 ? last + 1 : 1);
    return true;
}

/* Placeholders of a square. */
static int64_t square_tokens(int64_t side, int64_t patch, int64_t shuffle) {
    const int64_t across = patch > 0 && shuffle > 0 ? side / patch / shuffle : 0;
    return across * across;
}

/* What a processor_config.json says of placeholders. */
static bool check_processor(Reader *reader, const Files *files) {
    const int64_t tokens = square_tokens(reader->side, reader->patch, reader->shuffle);
    static const char *const COUNTS[] = {"image_seq_len", "image_seq_length"};
    reader->json = files->processor;
    reader->path = files->processor_path;
    const json_t *patch = find(reader, "patch_size"), *more = NULL;
    if (TYPES[reader->type].kind != LLAVA) {
        const json_t *given = find(reader, COUNTS[TYPES[reader->type].kind == INTERNVL]);
        if (!given || (json_is_integer(given) && json_integer_value(given) == tokens)) return true;
        return refuse(reader, COUNTS[TYPES[reader->type].kind == INTERNVL], given,
                      arena_printf(reader->arena,
                                   "by its configuration a square has %" PRId64 " tokens", tokens));
    }
    if (!patch) return true; /* of before transformers 4.46, which counts them elsewhere */
    if (!json_is_integer(patch) || json_integer_value(patch) != reader->patch) {
        return refuse(reader, "patch_size", patch,
                      arena_printf(reader->arena,
                                   "the configuration's 'vision_config.patch_size' is %" PRId64,
                                   reader->patch));
    }
    const char *strategy = json_string_value(find(reader, "vision_feature_select_strategy"));
    const bool less = strategy && strcmp(strategy, "default") == 0;
    more = find(reader, "num_additional_image_tokens");
    if (json_integer_value(more) == less) return true; /* 0 where it is missing */
    return refuse(reader, "num_additional_image_tokens", more,
                  "an image has as many tokens as patches: 1 goes with "
                  "'vision_feature_select_strategy' \"default\", 0 without");
}

static int64_t integer_of(const json_t *json, const char *key) {
    return json_integer_value(json_object_get(json, key));
}

bool hf_processor_read(Arena *arena, const char *dir, const json_t *config, ModelSetting *out,
                       int *out_count, Diag *diag) {
    const json_t *vision = json_object_get(config, "vision_config");
    const int type = find_type(json_string_value(json_object_get(config, "model_type")));
    Files files;
    double mean[3];
    int class;
    *out_count = 0;
    if (type < 0) return true;
    if (!open_files(arena, dir, &files, diag)) return false;
    Reader reader = {.arena = arena,
                     .path = files.path,
                     .json = files.images,
                     .config = config,
                     .type = type,
                     .side = integer_of(vision, "image_size"),
                     .patch = integer_of(vision, "patch_size"),
                     .shuffle = 1,
                     .out = out,
                     .diag = diag};
    if (TYPES[type].kind != LLAVA) {
        reader.shuffle =
            json_object_get(config, "scale_factor") ? integer_of(config, "scale_factor") : 2;
    }
    bool good = true;
    if (files.images) {
        good = read_class(&reader, &class) && read_pixels(&reader, mean) && read_filter(&reader) &&
               (TYPES[type].kind == LLAVA    ? read_llava(&reader, class, mean)
                : TYPES[type].kind == SIGLIP ? read_siglip(&reader)
                                             : read_internvl(&reader));
    }
    good = good && (!files.processor || check_processor(&reader, &files));
    *out_count = reader.n;
    close_files(&files);
    return good;
}

/* --- writing --- */

typedef struct Writer {
    Arena *arena;
    const Model *model;
    int type;
    json_t *images, *processor;
    Diag *diag;
} Writer;

static const char *text_of(const Writer *writer, const char *name) {
    const Setting *setting = settings_find(&writer->model->settings, name);
    return setting && setting->has_value ? setting_text(setting, writer->arena) : "";
}

static int64_t number_of(const Writer *writer, const char *name) {
    return strtoll(text_of(writer, name), NULL, 10);
}

static bool is_set(const Writer *writer, const char *name, const char *value) {
    return strcmp(text_of(writer, name), value) == 0;
}

static void put(json_t *json, const char *key, json_t *value) {
    if (!value || json_object_set_new(json, key, value) != 0) BUG("out of memory");
}

static bool fail_write(const Writer *writer, const char *setting, const char *what) {
    diag_error(writer->diag, NO_LOC, "%s is '%s', which %s cannot say of a %s: --set %s", setting,
               text_of(writer, setting), PREPROCESSOR, TYPES[writer->type].type, what);
    return false;
}

static json_t *square_of(int64_t side) {
    return json_pack("{s:I, s:I}", "height", (json_int_t)side, "width", (json_int_t)side);
}

/* "a,b,c" */
static void put_colours(const Writer *writer, const char *key, const char *setting, double *out) {
    const char *text = text_of(writer, setting);
    json_t *list = json_array();
    char *end;
    for (int i = 0; i < 3; i++, text = *end == ',' ? end + 1 : end) {
        out[i] = strtod(text, &end);
        json_array_append_new(list, json_real(out[i]));
    }
    put(writer->images, key, list);
}

static bool write_llava(Writer *writer, const double *mean) {
    const int64_t side = number_of(writer, "image_side");
    const bool crops = is_set(writer, "image_fit", "crop"),
               pads = is_set(writer, "image_fit", "pad");
    const char *colour = arena_printf(writer->arena, "%d,%d,%d", (int)(mean[0] * 255),
                                      (int)(mean[1] * 255), (int)(mean[2] * 255));
    if (!is_set(writer, "image_split", "none")) {
        return fail_write(writer, "image_split", "image_split=none");
    }
    if (pads && !is_set(writer, "image_mean", colour)) {
        return fail_write(writer, "image_mean",
                          arena_printf(writer->arena, "image_mean=%s, its pixel_mean", colour));
    }
    put(writer->images, "image_processor_type", json_string(TYPES[writer->type].classes[pads]));
    put(writer->images, "size",
        crops ? json_pack("{s:I}", "shortest_edge", (json_int_t)side) : square_of(side));
    put(writer->images, "do_center_crop", json_boolean(crops));
    put(writer->images, "crop_size", square_of(side));
    put(writer->images, "do_pad", json_boolean(pads));
    put(writer->processor, "patch_size", json_integer(number_of(writer, "patch")));
    put(writer->processor, "vision_feature_select_strategy", json_string("default"));
    put(writer->processor, "num_additional_image_tokens", json_integer(1));
    return true;
}

static bool write_siglip(Writer *writer) {
    const int64_t side = number_of(writer, "image_side");
    const bool splits = is_set(writer, "image_split", "edge");
    if (is_set(writer, "image_split", "ratio")) {
        return fail_write(writer, "image_split", "image_split=edge, or none");
    }
    put(writer->images, "do_image_splitting", json_boolean(splits));
    put(writer->images, "size",
        splits ? json_pack("{s:I}", "longest_edge", (json_int_t)number_of(writer, "image_edge"))
               : square_of(side));
    put(writer->images, "max_image_size", json_pack("{s:I}", "longest_edge", (json_int_t)side));
    put(writer->images, "do_pad", json_true());
    put(writer->processor, "image_seq_len",
        json_integer(
            square_tokens(side, number_of(writer, "patch"), number_of(writer, "shuffle"))));
    return true;
}

static bool write_internvl(Writer *writer) {
    const int64_t side = number_of(writer, "image_side");
    const bool splits = is_set(writer, "image_split", "ratio");
    if (is_set(writer, "image_split", "edge")) {
        return fail_write(writer, "image_split", "image_split=ratio, or none");
    }
    put(writer->images, "size", square_of(side));
    put(writer->images, "crop_to_patches", json_boolean(splits));
    put(writer->images, "min_patches", json_integer(splits ? number_of(writer, "least_tiles") : 1));
    put(writer->images, "max_patches", json_integer(splits ? number_of(writer, "most_tiles") : 1));
    put(writer->processor, "image_seq_length",
        json_integer(
            square_tokens(side, number_of(writer, "patch"), number_of(writer, "shuffle"))));
    return true;
}

static bool fill(Writer *writer) {
    const Kind kind = TYPES[writer->type].kind;
    double mean[3], std[3];
    if (kind != LLAVA && !is_set(writer, "image_fit", "stretch")) {
        return fail_write(writer, "image_fit", "image_fit=stretch");
    }
    put(writer->images, "image_processor_type", json_string(TYPES[writer->type].classes[0]));
    put(writer->images, "processor_class", json_string(TYPES[writer->type].processor));
    put(writer->processor, "processor_class", json_string(TYPES[writer->type].processor));
    static const char *const DONE[] = {"do_convert_rgb", "do_resize", "do_rescale", "do_normalize"};
    for (int i = 0; i < 4; i++) put(writer->images, DONE[i], json_true());
    put(writer->images, "rescale_factor", json_real(1 / 255.0));
    put_colours(writer, "image_mean", "pixel_mean", mean);
    put_colours(writer, "image_std", "pixel_std", std);
    for (int i = 0; i < N_FILTERS; i++) {
        if (!is_set(writer, "image_filter", FILTERS[i].name)) continue;
        put(writer->images, "resample", json_integer(FILTERS[i].resample));
    }
    return kind == LLAVA    ? write_llava(writer, mean)
           : kind == SIGLIP ? write_siglip(writer)
                            : write_internvl(writer);
}

bool hf_processor_write(Arena *arena, const Model *model, const char *type, const char *like,
                        const char *dir, Diag *diag) {
    Files files = {0};
    Writer writer = {.arena = arena, .model = model, .type = find_type(type), .diag = diag};
    if (writer.type < 0) return true;
    if (like && !open_files(arena, like, &files, diag)) return false;
    writer.images = files.images ? json_deep_copy(files.images) : json_object();
    writer.processor = files.processor ? json_deep_copy(files.processor) : json_object();
    if (!writer.images || !writer.processor) BUG("out of memory");
    close_files(&files);
    json_object_del(writer.processor, "image_processor"); /* which is a file of its own */
    json_object_del(writer.images, "feature_extractor_type");
    bool good = fill(&writer);
    if (good && dir) {
        good = hf_write_json(arena, dir, PREPROCESSOR, writer.images, diag) &&
               hf_write_json(arena, dir, PROCESSOR, writer.processor, diag);
    }
    json_decref(writer.images);
    json_decref(writer.processor);
    return good;
}
