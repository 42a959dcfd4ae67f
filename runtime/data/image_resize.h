/* Images to other sizes, to the bit as Pillow does it: of 8 bits, along the rows and then along the
 * columns, each output pixel a sum of those within the filter's support, which grows as the image
 * shrinks; weights in fixed point of 22 bits, rounded to 8 bits after each of the two. */
#ifndef RUNTIME_DATA_IMAGE_RESIZE_H
#define RUNTIME_DATA_IMAGE_RESIZE_H

#include "ir/image_rule.h"
#include "runtime/data/image.h"

/* *image becomes one of width x height. False: too many pixels; why [IMAGE_WHY]. */
bool image_resize(Image *image, int width, int height, ImageFilter filter, char *why);

#endif
