/* PNG by libpng. */
#include "runtime/data/image_codecs.h"

#include "ir/base/memory.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CHUNK_BYTES = 8 << 20 }; /* of what is no pixels, once it is unpacked */

typedef struct Png {
    ImageRead *read;
    size_t at;
    png_structp png;
    png_infop info;
    png_bytep *rows; /* [height], from malloc */
    jmp_buf failed;
} Png;

static void fail(png_structp png, png_const_charp text) {
    Png *p = png_get_error_ptr(png);
    image_refuse(p->read->why, "a damaged PNG: %s", text);
    longjmp(p->failed, 1);
}

static void keep_silent(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void take_bytes(png_structp png, png_bytep to, size_t n) {
    Png *p = png_get_io_ptr(png);
    if (n > p->read->n - p->at) png_error(png, "it ends too early");
    memcpy(to, p->read->bytes + p->at, n);
    p->at += n;
}

static void find_orientation(Png *p) {
    png_bytep exif;
    png_uint_32 n;
    if (png_get_eXIf_1(p->png, p->info, &n, &exif)) {
        p->read->orientation = image_exif_orientation(exif, n);
    }
}

/* libpng makes room for some chunks (eXIf) as they claim, before it reads what is there. Pixels it
 * takes as they come: a file whose last ones are missing still has a size. */
static bool claims_too_much(const unsigned char *bytes, size_t n) {
    enum { SIGNATURE = 8, LENGTH = 4, KIND = 4, CRC = 4 };
    for (size_t at = SIGNATURE; at + LENGTH + KIND <= n;) {
        const unsigned char *b = bytes + at;
        const size_t length = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (memcmp(b + LENGTH, "IEND", KIND) == 0) return false;
        if (length > n - at - LENGTH - KIND) return memcmp(b + LENGTH, "IDAT", KIND) != 0;
        at += LENGTH + KIND + length + CRC;
    }
    return false;
}

/* EXIF may be behind the pixels, so that its size is not known from the head alone: those who ask
 * for sizes are told what the head says. */
static bool read_png(Png *p) {
    ImageRead *read = p->read;
    png_set_read_fn(p->png, p, take_bytes);
    png_set_user_limits(p->png, IMAGE_FILE_MOST_SIDE, IMAGE_FILE_MOST_SIDE);
    png_set_chunk_malloc_max(p->png, MOST_CHUNK_BYTES);
    png_read_info(p->png, p->info);
    const png_uint_32 width = png_get_image_width(p->png, p->info);
    const png_uint_32 height = png_get_image_height(p->png, p->info);
    if (!image_begin(read, width, height)) return false;
    find_orientation(p);
    if (read->sizes) return true;
    png_set_expand(p->png);
    png_set_strip_16(p->png);
    png_set_strip_alpha(p->png);
    png_set_gray_to_rgb(p->png);
    png_set_interlace_handling(p->png);
    png_read_update_info(p->png, p->info);
    if (png_get_rowbytes(p->png, p->info) != (size_t)width * 3) {
        return image_refuse(read->why, "a PNG of a kind that is not known");
    }
    p->rows = memory_alloc(height * sizeof(*p->rows));
    for (size_t y = 0; y < height; y++) p->rows[y] = read->image.rgb + y * width * 3;
    png_read_image(p->png, p->rows);
    png_read_end(p->png, p->info);
    find_orientation(p);
    return true;
}

static bool guard(Png *p) {
    return setjmp(p->failed) == 0 && read_png(p);
}

bool image_read_png(ImageRead *read) {
    Png p;
    if (claims_too_much(read->bytes, read->n))
        return image_refuse(read->why, "a damaged PNG: it ends too early");
    memset(&p, 0, sizeof(p));
    p.read = read;
    p.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &p, fail, keep_silent);
    if (!p.png) memory_exhausted(0);
    p.info = png_create_info_struct(p.png);
    if (!p.info) memory_exhausted(0);
    bool good = guard(&p);
    free(p.rows);
    png_destroy_read_struct(&p.png, &p.info, NULL);
    return good;
}
