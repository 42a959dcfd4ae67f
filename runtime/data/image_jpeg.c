/* JPEG by libjpeg-turbo. */
#include "runtime/data/image_codecs.h"

#include <stdio.h>
/* After stdio.h, whose FILE it needs. */
#include <jpeglib.h>
/* After jpeglib.h, whose version and parts say which codes there are. */
#include <jerror.h>
#include <setjmp.h>
#include <string.h>

enum {
    MOST_SCANS = 500, /* each of a few bytes takes as long as the whole image */
    EXIF_MARKER = JPEG_APP0 + 1,
};

typedef struct Jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    ImageRead *read;
    JSAMPROW row; /* of CMYK */
} Jpeg;

static void fail(j_common_ptr common) {
    Jpeg *jpeg = common->client_data;
    char text[JMSG_LENGTH_MAX];
    common->err->format_message(common, text);
    image_refuse(jpeg->read->why, "a damaged JPEG: %s", text);
    longjmp(jpeg->failed, 1);
}

/* What libjpeg warns of and then makes up pixels for; of what else it warns nothing is lost. */
static void warn(j_common_ptr common, int level) {
    const int code = common->err->msg_code;
    const bool lost = code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE || code == JWRN_ARITH_BAD_CODE ||
                      code == JWRN_MUST_RESYNC;
    if (level < 0 && lost) fail(common);
}

static void keep_silent(j_common_ptr common) {
    (void)common;
}

static void count_scans(j_common_ptr common) {
    Jpeg *jpeg = common->client_data;
    if (jpeg->info.input_scan_number <= MOST_SCANS) return;
    image_refuse(jpeg->read->why, "a JPEG of more than %d scans", MOST_SCANS);
    longjmp(jpeg->failed, 1);
}

static void find_orientation(Jpeg *jpeg) {
    for (jpeg_saved_marker_ptr m = jpeg->info.marker_list; m; m = m->next) {
        if (m->marker != EXIF_MARKER || m->data_length < 6 || memcmp(m->data, "Exif\0", 6) != 0) {
            continue;
        }
        jpeg->read->orientation = image_exif_orientation(m->data, m->data_length);
        return;
    }
}

/* As Adobe's programs write it, inverted: 255 is no ink. Rounded as Pillow rounds. */
static void convert_cmyk(const unsigned char *from, unsigned char *to, int width) {
    for (int x = 0; x < width; x++, from += 4, to += 3) {
        const int white = from[3];
        for (int c = 0; c < 3; c++) {
            int product = (255 - from[c]) * white + 128;
            int value = white - (((product >> 8) + product) >> 8);
            to[c] = (unsigned char)(value < 0 ? 0 : value);
        }
    }
}

static void read_rows(Jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    Image *image = &jpeg->read->image;
    const bool cmyk = info->out_color_space == JCS_CMYK;
    while (info->output_scanline < info->output_height) {
        unsigned char *to = image->rgb + (size_t)info->output_scanline * (size_t)image->width * 3;
        JSAMPROW row = cmyk ? jpeg->row : to;
        jpeg_read_scanlines(info, &row, 1);
        if (cmyk) convert_cmyk(jpeg->row, to, image->width);
    }
}

static bool read_jpeg(Jpeg *jpeg) {
    struct jpeg_decompress_struct *info = &jpeg->info;
    ImageRead *read = jpeg->read;
    jpeg_create_decompress(info);
    info->progress = &jpeg->progress;
    jpeg_save_markers(info, EXIF_MARKER, 0xffff);
    jpeg_mem_src(info, read->bytes, read->n);
    jpeg_read_header(info, TRUE);
    find_orientation(jpeg);
    const int n = info->num_components;
    if (n != 1 && n != 3 && n != 4) {
        return image_refuse(read->why, "a JPEG of %d colours; 1, 3 and 4 are known", n);
    }
    if (!image_begin(read, info->image_width, info->image_height)) return false;
    if (read->sizes) return true;
    info->out_color_space = n == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(info);
    if (n == 4) {
        jpeg->row =
            info->mem->alloc_small((j_common_ptr)info, JPOOL_IMAGE, (size_t)info->output_width * 4);
    }
    read_rows(jpeg);
    jpeg_finish_decompress(info);
    return true;
}

static bool guard(Jpeg *jpeg) {
    return setjmp(jpeg->failed) == 0 && read_jpeg(jpeg);
}

bool image_read_jpeg(ImageRead *read) {
    Jpeg jpeg;
    memset(&jpeg, 0, sizeof(jpeg));
    jpeg.read = read;
    jpeg.info.client_data = &jpeg;
    jpeg.info.err = jpeg_std_error(&jpeg.errors);
    jpeg.errors.error_exit = fail;
    jpeg.errors.emit_message = warn;
    jpeg.errors.output_message = keep_silent;
    jpeg.progress.progress_monitor = count_scans;
    bool good = guard(&jpeg);
    jpeg_destroy_decompress(&jpeg.info);
    return good;
}
