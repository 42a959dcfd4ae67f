/* Images as a model takes them: a square of so many pixels a side, cut into square patches. */
#ifndef RUNTIME_DATA_IMAGE_FIT_H
#define RUNTIME_DATA_IMAGE_FIT_H

#include "runtime/data/image_resize.h"

/* Numbers of all patches of an image, or of a part of one. Pixels behind the last whole patch, on
 * the right and below, are nobody's. */
static inline int64_t image_numbers(const ImageRule *rule) {
    const int64_t side = rule->side / rule->patch * rule->patch;
    return side * side * 3;
}

/* *image becomes the square. False: too many pixels on the way; why [IMAGE_WHY]. */
bool image_fit(Image *image, const ImageRule *rule, char *why);
/* A square -> numbers 0..255 [patches, channel, y, x], patches row by row. */
void image_cut(const Image *square, const ImageRule *rule, int32_t *out);

/* Can an image of that size be made what the rule wants? False: too many pixels on the way; why
 * [IMAGE_WHY]. */
bool image_fit_check(const ImageRule *rule, int width, int height, char *why);
/* Tiles of an image of that size. */
ImageGrid image_grid_of(const ImageRule *rule, int width, int height);
/* All parts, [image_grid_parts, image_numbers]: tiles row by row, then the whole. The image is
 * changed. False: too many pixels on the way; why [IMAGE_WHY]. */
bool image_fit_parts(Image *image, const ImageRule *rule, int32_t *out, char *why);

#endif
