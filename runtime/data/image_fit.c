#include "runtime/data/image_fit.h"

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

void image_cut(const Image *square, const ImageRule *rule, int32_t *out) {
    const int patch = (int)rule->patch;
    const int grid = square->width / patch;
    for (int p = 0; p < grid * grid; p++) {
        const unsigned char *first =
            square->rgb +
            ((size_t)(p / grid * patch) * (size_t)square->width + (size_t)(p % grid * patch)) * 3;
        for (int c = 0; c < 3; c++) {
            for (int y = 0; y < patch; y++) {
                const unsigned char *at = first + (size_t)y * (size_t)square->width * 3 + c;
                for (int x = 0; x < patch; x++) *out++ = at[3 * x];
            }
        }
    }
}
