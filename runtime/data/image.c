#include "runtime/data/image.h"

#include "ir/base/memory.h"
#include "runtime/data/image_codecs.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool image_refuse(char *why, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, IMAGE_WHY, format, args);
    va_end(args);
    return false;
}

bool image_is_size(int64_t width, int64_t height) {
    return width >= 1 && height >= 1 && width <= IMAGE_FILE_MOST_SIDE &&
           height <= IMAGE_FILE_MOST_SIDE && width * height <= IMAGE_MOST_PIXELS;
}

static bool check_size(int64_t width, int64_t height, char *why) {
    if (width < 1 || height < 1) return image_refuse(why, "an image without pixels");
    if (image_is_size(width, height)) return true;
    return image_refuse(why,
                        "an image of %" PRId64 " x %" PRId64
                        " pixels: at most %d a side, and %d million in all",
                        width, height, IMAGE_FILE_MOST_SIDE, IMAGE_MOST_PIXELS / 1000000);
}

bool image_create(int64_t width, int64_t height, Image *out, char *why) {
    *out = (Image){0};
    if (!check_size(width, height, why)) return false;
    const size_t bytes = (size_t)(width * height) * 3;
    *out = (Image){(int)width, (int)height, memory_alloc(bytes + IMAGE_SLACK)};
    memset(out->rgb + bytes, 0, IMAGE_SLACK);
    return true;
}

void image_release(Image *image) {
    free(image->rgb);
    *image = (Image){0};
}

bool image_begin(ImageRead *read, int64_t width, int64_t height) {
    if (!read->sizes) return image_create(width, height, &read->image, read->why);
    if (!check_size(width, height, read->why)) return false;
    read->image = (Image){(int)width, (int)height, NULL};
    return true;
}

/* --- how the camera was held --- */

static unsigned read_16(const unsigned char *at, bool big) {
    return big ? (unsigned)at[0] << 8 | at[1] : (unsigned)at[1] << 8 | at[0];
}

static size_t read_32(const unsigned char *at, bool big) {
    size_t high = read_16(big ? at : at + 2, big), low = read_16(big ? at + 2 : at, big);
    return high << 16 | low;
}

int image_exif_orientation(const unsigned char *exif, size_t n) {
    enum { TAG = 0x0112, SHORT = 3, ENTRY = 12 };
    if (n >= 6 && memcmp(exif, "Exif\0", 6) == 0) {
        exif += 6;
        n -= 6;
    }
    if (n < 8 || (memcmp(exif, "II*\0", 4) != 0 && memcmp(exif, "MM\0*", 4) != 0)) return 1;
    const bool big = exif[0] == 'M';
    const size_t at = read_32(exif + 4, big);
    if (at > n || n - at < 2) return 1;
    const size_t count = read_16(exif + at, big);
    for (size_t i = 0, entry = at + 2; i < count && n - entry >= ENTRY; i++, entry += ENTRY) {
        if (read_16(exif + entry, big) != TAG) continue;
        unsigned said = read_16(exif + entry + 8, big);
        return read_16(exif + entry + 2, big) == SHORT && said >= 1 && said <= 8 ? (int)said : 1;
    }
    return 1;
}

/* From 5 on, width and height change places. */
static bool is_turned(int orientation) {
    return orientation >= 5;
}

/* What is at x, y of the upright image is where in the one that was stored? */
static size_t stored_at(const Image *from, int orientation, int x, int y) {
    const int across = is_turned(orientation) ? y : x, down = is_turned(orientation) ? x : y;
    const bool flips_x =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    const bool flips_y =
        orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    const int column = flips_x ? from->width - 1 - across : across;
    const int row = flips_y ? from->height - 1 - down : down;
    return ((size_t)row * (size_t)from->width + (size_t)column) * 3;
}

static bool make_upright(Image *image, int orientation, char *why) {
    Image out;
    const bool turned = is_turned(orientation);
    const int width = turned ? image->height : image->width;
    const int height = turned ? image->width : image->height;
    if (!image_create(width, height, &out, why)) return false;
    unsigned char *to = out.rgb;
    for (int y = 0; y < height; y++) {
        for (int x = 0; x < width; x++, to += 3) {
            memcpy(to, image->rgb + stored_at(image, orientation, x, y), 3);
        }
    }
    image_release(image);
    *image = out;
    return true;
}

/* --- kinds --- */

typedef bool Reader(ImageRead *read);

static Reader *find_reader(const unsigned char *bytes, size_t n) {
    if (n >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) return image_read_jpeg;
    if (n >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) return image_read_png;
    if (n >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0) {
        return image_read_webp;
    }
    return NULL;
}

static bool read_image(ImageRead *read) {
    Reader *reader = find_reader(read->bytes, read->n);
    read->orientation = 1;
    if (read->n > IMAGE_MOST_BYTES) {
        return image_refuse(read->why, "an image's file of more than %d MiB",
                            IMAGE_MOST_BYTES >> 20);
    }
    if (!reader) {
        return image_refuse(read->why, read->n ? "no image that is known: JPEG, PNG or WebP"
                                               : "an empty file, no image");
    }
    if (reader(read)) return true;
    image_release(&read->image);
    return false;
}

bool image_decode(const unsigned char *bytes, size_t n, Image *out, char *why) {
    ImageRead read = {.bytes = bytes, .n = n, .why = why};
    *out = (Image){0};
    if (!read_image(&read)) return false;
    if (read.orientation != 1 && !make_upright(&read.image, read.orientation, why)) {
        image_release(&read.image);
        return false;
    }
    *out = read.image;
    return true;
}

bool image_read_size(const unsigned char *bytes, size_t n, Image *out, char *why) {
    ImageRead read = {.bytes = bytes, .n = n, .sizes = true, .why = why};
    *out = (Image){0};
    if (!read_image(&read)) return false;
    const bool turned = is_turned(read.orientation);
    *out = (Image){turned ? read.image.height : read.image.width,
                   turned ? read.image.width : read.image.height, NULL};
    return true;
}
