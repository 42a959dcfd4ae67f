/* Images as a model takes them: a square of so many pixels a side, cut into square patches. */
#ifndef RUNTIME_DATA_IMAGE_FIT_H
#define RUNTIME_DATA_IMAGE_FIT_H

#include "runtime/data/image_resize.h"

typedef enum ImageFit {
    FIT_STRETCH, /* to the square, whatever that does to the image */
    FIT_CROP,    /* the shorter side to the square's, then the middle (CLIP) */
    FIT_PAD,     /* a square around the image, of `mean` where it is not, then resized (LLaVA) */
} ImageFit;

/* By its name; false: there is none such. */
bool image_fit_find(const char *name, ImageFit *out);

typedef struct ImageShape {
    ImageFit fit;
    ImageFilter filter;
    int side, patch; /* pixels; patch divides side */
    unsigned char mean[3];
} ImageShape;

/* Numbers of all patches of an image. */
static inline int64_t image_shape_numbers(const ImageShape *shape) {
    return (int64_t)shape->side * shape->side * 3;
}

/* *image becomes the square. False: too many pixels on the way; why [IMAGE_WHY]. */
bool image_fit(Image *image, const ImageShape *shape, char *why);
/* A square -> numbers 0..255 [patches, channel, y, x], patches row by row. */
void image_cut(const Image *square, int patch, int32_t *out);

#endif
