#include "runtime/data/image_fit.h"

#include "runtime/data/image_codecs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* The part of `from` that begins at left, top, into all of `to`. */
static void copy_part(const Image *from, int left, int top, Image *to) {
    for (int y = 0; y < to->height; y++) {
        memcpy(to->rgb + (size_t)y * (size_t)to->width * 3,
               from->rgb + ((size_t)(top + y) * (size_t)from->width + (size_t)left) * 3,
               (size_t)to->width * 3);
    }
}

/* The middle of an image whose sides are at least that long; odd pixels are on the right and
 * below. */
static bool crop_middle(Image *image, int side, char *why) {
    Image out;
    if (image->width == side && image->height == side) return true;
    if (!image_create(side, side, &out, why)) return false;
    copy_part(image, (image->width - side) / 2, (image->height - side) / 2, &out);
    image_release(image);
    *image = out;
    return true;
}

static bool fit_shorter(Image *image, const ImageRule *rule, char *why) {
    const int side = (int)rule->side;
    const bool tall = image->width <= image->height;
    const int shorter = tall ? image->width : image->height;
    const int64_t longer = tall ? image->height : image->width;
    const int64_t other = side * longer / shorter;
    Image probe;
    /* Says so before a side that is no int. */
    if (other > IMAGE_FILE_MOST_SIDE) return image_create(other, side, &probe, why);
    const int width = tall ? side : (int)other, height = tall ? (int)other : side;
    return image_resize(image, width, height, rule->filter, why) && crop_middle(image, side, why);
}

static bool pad_square(Image *image, const unsigned char mean[3], char *why) {
    const int side = image->width > image->height ? image->width : image->height;
    Image out;
    if (image->width == image->height) return true;
    if (!image_create(side, side, &out, why)) return false;
    const size_t n = (size_t)side * (size_t)side;
    for (size_t i = 0; i < n; i++) memcpy(out.rgb + 3 * i, mean, 3);
    const int left = (side - image->width) / 2, top = (side - image->height) / 2;
    for (int y = 0; y < image->height; y++) {
        memcpy(out.rgb + ((size_t)(top + y) * (size_t)side + (size_t)left) * 3,
               image->rgb + (size_t)y * (size_t)image->width * 3, (size_t)image->width * 3);
    }
    image_release(image);
    *image = out;
    return true;
}

bool image_fit(Image *image, const ImageRule *rule, char *why) {
    const int side = (int)rule->side;
    if (rule->fit == IMAGE_CROP) return fit_shorter(image, rule, why);
    if (rule->fit == IMAGE_PAD && !pad_square(image, rule->mean, why)) return false;
    return image_resize(image, side, side, rule->filter, why);
}

/* The square of the rule's side that begins at left, top. */
static void cut_part(const Image *image, int left, int top, const ImageRule *rule, int32_t *out) {
    const int patch = (int)rule->patch;
    const int grid = (int)rule->side / patch;
    for (int p = 0; p < grid * grid; p++) {
        const unsigned char *first =
            image->rgb + ((size_t)(top + p / grid * patch) * (size_t)image->width +
                          (size_t)(left + p % grid * patch)) *
                             3;
        for (int c = 0; c < 3; c++) {
            for (int y = 0; y < patch; y++) {
                const unsigned char *at = first + (size_t)y * (size_t)image->width * 3 + c;
                for (int x = 0; x < patch; x++) *out++ = at[3 * x];
            }
        }
    }
}

void image_cut(const Image *square, const ImageRule *rule, int32_t *out) {
    cut_part(square, 0, 0, rule, out);
}

/* --- parts --- */

/* As Python has them: real numbers, cut off towards 0. */
static int to_multiple(int length, int64_t of) {
    return (int)(((length > 1 ? length : 1) + of - 1) / of * of);
}

/* The longer side becomes `edge` pixels, the other one even (transformers'
 * Idefics3ImageProcessor.resize, with an edge of at most 4096). */
static void size_of_edge(const ImageRule *rule, int *width, int *height) {
    const double ratio = (double)*width / *height;
    const int edge = (int)rule->edge;
    if (*width >= *height) {
        *width = edge;
        *height = (int)(edge / ratio);
        *height += *height % 2;
    } else {
        *height = edge;
        *width = (int)(edge * ratio);
        *width += *width % 2;
    }
    if (*width < 1) *width = 1;
    if (*height < 1) *height = 1;
}

/* Both sides become multiples of a tile's, one at least (its resize_for_vision_encoder, where a
 * side whose product rounds below a pixel is 0, and resizing to it fails). */
static void size_of_tiles(const ImageRule *rule, int *width, int *height) {
    const double ratio = (double)*width / *height;
    if (*width >= *height) {
        *width = to_multiple(*width, rule->side);
        *height = to_multiple((int)(*width / ratio), rule->side);
    } else {
        *height = to_multiple(*height, rule->side);
        *width = to_multiple((int)(*height * ratio), rule->side);
    }
}

/* Of all grids of so many tiles the one whose sides are most like the image's; of equal ones that
 * with more tiles, as long as these have no more than twice the image's pixels (transformers'
 * get_optimal_tiled_canvas). */
static ImageGrid grid_of_ratio(const ImageRule *rule, int width, int height) {
    const double ratio = (double)width / height, area = (double)width * height;
    const double tile = (double)rule->side * (double)rule->side;
    double best = INFINITY;
    ImageGrid grid = {1, 1};
    for (int n = rule->least_tiles; n <= rule->most_tiles; n++) {
        for (int columns = 1; columns <= n; columns++) {
            const int rows = n / columns;
            if (rows * columns != n) continue;
            const double differs = fabs(ratio - (double)columns / rows);
            if (differs > best || (differs == best && area <= 0.5 * tile * n)) continue;
            best = differs;
            grid = (ImageGrid){rows, columns};
        }
    }
    return grid;
}

ImageGrid image_grid_of(const ImageRule *rule, int width, int height) {
    ImageGrid grid = {0, 0};
    if (rule->split == IMAGE_EDGE) {
        size_of_edge(rule, &width, &height);
        size_of_tiles(rule, &width, &height);
        grid = (ImageGrid){(int)(height / rule->side), (int)(width / rule->side)};
    } else if (rule->split == IMAGE_RATIO) {
        grid = grid_of_ratio(rule, width, height);
    }
    return grid.rows * grid.columns > 1 ? grid : (ImageGrid){0, 0};
}

static void cut_tiles(const Image *image, ImageGrid grid, const ImageRule *rule, int32_t *out) {
    const int side = (int)rule->side;
    for (int i = 0; i < grid.rows * grid.columns; i++, out += image_numbers(rule)) {
        cut_part(image, i % grid.columns * side, i / grid.columns * side, rule, out);
    }
}

/* The whole is made of what the tiles are made of. */
static bool fit_edge(Image *image, const ImageRule *rule, char *why) {
    int width = image->width, height = image->height;
    size_of_edge(rule, &width, &height);
    if (!image_resize(image, width, height, rule->filter, why)) return false;
    size_of_tiles(rule, &width, &height);
    return image_resize(image, width, height, rule->filter, why);
}

/* The whole is made of the image itself. */
static bool cut_ratio(const Image *image, ImageGrid grid, const ImageRule *rule, int32_t *out,
                      char *why) {
    const int width = grid.columns * (int)rule->side, height = grid.rows * (int)rule->side;
    Image large;
    if (!image_create(image->width, image->height, &large, why)) return false;
    copy_part(image, 0, 0, &large);
    bool good = image_resize(&large, width, height, rule->filter, why);
    if (good) cut_tiles(&large, grid, rule, out);
    image_release(&large);
    return good;
}

bool image_fit_parts(Image *image, const ImageRule *rule, int32_t *out, char *why) {
    const ImageGrid grid = image_grid_of(rule, image->width, image->height);
    if (rule->split == IMAGE_EDGE) {
        if (!fit_edge(image, rule, why)) return false;
        cut_tiles(image, grid, rule, out);
    } else if (grid.rows > 0 && !cut_ratio(image, grid, rule, out, why)) {
        return false;
    }
    out += (image_grid_parts(grid) - 1) * image_numbers(rule);
    if (!image_fit(image, rule, why)) return false;
    image_cut(image, rule, out);
    return true;
}

/* --- sizes alone --- */

typedef struct Walk {
    int64_t width, height; /* of what it is by now, or of the first that is too large */
    bool good;
} Walk;

static void walk_to(Walk *walk, int64_t width, int64_t height) {
    if (!walk->good) return;
    walk->width = width;
    walk->height = height;
    walk->good = image_is_size(width, height);
}

/* As image_resize: rows first. */
static void walk_resize(Walk *walk, int64_t width, int64_t height) {
    walk_to(walk, width, walk->height);
    walk_to(walk, width, height);
}

static void walk_fit(Walk *walk, const ImageRule *rule) {
    const int64_t side = rule->side, width = walk->width, height = walk->height;
    const int64_t longer = width > height ? width : height;
    if (!walk->good) return;
    if (rule->fit == IMAGE_PAD) walk_to(walk, longer, longer);
    if (rule->fit != IMAGE_CROP) {
        walk_resize(walk, side, side);
    } else if (width <= height) {
        walk_resize(walk, side, side * height / width);
    } else {
        walk_resize(walk, side * width / height, side);
    }
}

bool image_fit_check(const ImageRule *rule, int width, int height, char *why) {
    const ImageGrid grid = image_grid_of(rule, width, height);
    Walk walk = {width, height, true}, whole = walk;
    if (rule->split == IMAGE_EDGE) {
        int w = width, h = height;
        size_of_edge(rule, &w, &h);
        walk_resize(&walk, w, h);
        size_of_tiles(rule, &w, &h);
        walk_resize(&walk, w, h);
        whole = walk;
    } else if (grid.rows > 0) {
        walk_resize(&walk, grid.columns * rule->side, grid.rows * rule->side);
    }
    walk_fit(&whole, rule);
    if (walk.good && whole.good) return true;
    if (walk.good) walk = whole;
    return image_refuse(why,
                        "an image of %d x %d pixels, of which %" PRId64 " x %" PRId64
                        " would be made: too many",
                        width, height, walk.width, walk.height);
}
