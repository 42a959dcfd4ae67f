/* The libraries that image.c decodes with. Each is given bytes that begin as its own do, and tells
 * what it reads: `sizes`, only how large the image is. */
#ifndef RUNTIME_DATA_IMAGE_CODECS_H
#define RUNTIME_DATA_IMAGE_CODECS_H

#include "runtime/data/image.h"

typedef struct ImageRead {
    const unsigned char *bytes;
    size_t n;
    bool sizes;
    Image image;     /* width and height; and rgb, where not `sizes` alone */
    int orientation; /* EXIF's, 1 to 8 */
    char *why;       /* [IMAGE_WHY] */
} ImageRead;

bool image_read_jpeg(ImageRead *read);
bool image_read_png(ImageRead *read);
bool image_read_webp(ImageRead *read);

/* Of EXIF's TIFF, perhaps behind "Exif\0\0"; 1 where it is not said. */
int image_exif_orientation(const unsigned char *exif, size_t n);

/* What the head says: read->image, with room for pixels unless sizes are all that is asked for. */
bool image_begin(ImageRead *read, int64_t width, int64_t height);

/* `why`, and false. */
bool image_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
