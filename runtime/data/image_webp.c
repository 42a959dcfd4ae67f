/* WebP by libwebp. */
#include "runtime/data/image_codecs.h"

#include <string.h>
#include <webp/decode.h>
#include <webp/demux.h>

static bool damaged(const ImageRead *read) {
    return image_refuse(read->why, "a damaged WebP, or one that ends too early");
}

static void find_orientation(ImageRead *read) {
    const WebPData data = {read->bytes, read->n};
    WebPDemuxer *demuxer = WebPDemux(&data);
    WebPChunkIterator chunk;
    if (demuxer && WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk)) {
        read->orientation = image_exif_orientation(chunk.chunk.bytes, chunk.chunk.size);
        WebPDemuxReleaseChunkIterator(&chunk);
    }
    WebPDemuxDelete(demuxer);
}

/* The first picture, on a canvas that is black where there is none. */
static bool decode_first(ImageRead *read) {
    const WebPData data = {read->bytes, read->n};
    WebPAnimDecoderOptions options;
    uint8_t *canvas;
    int time;
    if (!WebPAnimDecoderOptionsInit(&options)) return damaged(read);
    options.color_mode = MODE_RGBA;
    WebPAnimDecoder *decoder = WebPAnimDecoderNew(&data, &options);
    WebPAnimInfo info;
    bool good = decoder && WebPAnimDecoderGetInfo(decoder, &info) &&
                info.canvas_width == (uint32_t)read->image.width &&
                info.canvas_height == (uint32_t)read->image.height &&
                WebPAnimDecoderGetNext(decoder, &canvas, &time);
    const size_t n = (size_t)read->image.width * (size_t)read->image.height;
    for (size_t i = 0; good && i < n; i++) memcpy(read->image.rgb + 3 * i, canvas + 4 * i, 3);
    WebPAnimDecoderDelete(decoder);
    return good || damaged(read);
}

bool image_read_webp(ImageRead *read) {
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(read->bytes, read->n, &features) != VP8_STATUS_OK) return damaged(read);
    if (!image_begin(read, features.width, features.height)) return false;
    find_orientation(read);
    if (read->sizes) return true;
    if (features.has_animation) return decode_first(read);
    const int stride = 3 * read->image.width;
    const size_t bytes = (size_t)stride * (size_t)read->image.height;
    return WebPDecodeRGBInto(read->bytes, read->n, read->image.rgb, bytes, stride) != NULL ||
           damaged(read);
}
