/* Images of files: JPEG, PNG and WebP, told apart by what is in them, to 8 bits of red, green and
 * blue. As Pillow's convert("RGB") has it grey is all three, palettes are looked up, transparency
 * is left out, and CMYK is Adobe's, inverted; of 16 bits the upper 8 are taken. Of what moves there
 * is the first picture. What EXIF says of how the camera was held is applied.
 *
 * Files are not trusted: what is damaged, ends too early or is too large is an error. */
#ifndef RUNTIME_DATA_IMAGE_H
#define RUNTIME_DATA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    IMAGE_MOST_PIXELS = 100 * 1000 * 1000,
    IMAGE_FILE_MOST_SIDE = 65535,
    IMAGE_MOST_BYTES = 256 * 1024 * 1024, /* of a file */
    IMAGE_SLACK = 16,                     /* bytes behind rgb that may be read */
    IMAGE_WHY = 200,
};

typedef struct Image {
    int width, height;
    unsigned char *rgb; /* [height, width, 3], from malloc, and IMAGE_SLACK bytes */
} Image;

/* False: why [IMAGE_WHY] says what is wrong, and there is nothing to be released. */
bool image_decode(const unsigned char *bytes, size_t n, Image *out, char *why);
/* Width and height by the file's head, as image_decode would have them; rgb NULL. */
bool image_read_size(const unsigned char *bytes, size_t n, Image *out, char *why);
void image_release(Image *image);

/* Can an image have so many pixels? */
bool image_is_size(int64_t width, int64_t height);
/* Room for that many pixels; false: too many, or none. */
bool image_create(int64_t width, int64_t height, Image *out, char *why);

#endif
