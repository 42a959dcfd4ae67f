/* Images and messages of other processes: bytes that are in memory. */
#include "runtime/data/image.h"
#include "runtime/launch/message.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

/* The head promises what the whole has. */
void fuzz_image(const unsigned char *bytes, size_t n) {
    Image head, image;
    char why[IMAGE_WHY] = "";
    const bool has_head = image_read_size(bytes, n, &head, why);
    if (!has_head && !why[0]) abort();
    if (has_head && !image_is_size(head.width, head.height)) abort();
    if (image_decode(bytes, n, &image, why)) {
        if (!has_head || image.width != head.width || image.height != head.height) abort();
        unsigned sum = 0;
        for (size_t i = 0; i < (size_t)image.width * (size_t)image.height * 3; i++)
            sum += image.rgb[i];
        static volatile unsigned seen;
        seen = sum;
        (void)seen;
        image_release(&image);
    }
}

/* A stream in pieces, whose lengths its first bytes say; payloads are read field by field. */
void fuzz_messages(const unsigned char *bytes, size_t n) {
    if (n < 4) return;
    MessageReader reader = message_reader_create(1024);
    Message message;
    MessageStatus status = MESSAGE_INCOMPLETE;
    for (size_t at = 4, piece = 0; at < n && status != MESSAGE_BAD; piece++) {
        size_t length = 1 + bytes[piece % 4];
        if (length > n - at) length = n - at;
        message_reader_feed(&reader, bytes + at, length);
        at += length;
        while ((status = message_reader_next(&reader, &message)) == MESSAGE_COMPLETE) {
            Cursor cursor = cursor_create(&message);
            char text[16];
            size_t taken;
            for (int i = 0; i < 64 && cursor.ok && cursor.left > 0; i++) {
                switch (bytes[i % 4] % 4) {
                case 0: cursor_u32(&cursor); break;
                case 1: cursor_u64(&cursor); break;
                case 2: cursor_text(&cursor, text, sizeof(text)); break;
                default: {
                    const unsigned char *from = cursor_bytes(&cursor, &taken);
                    for (size_t k = 0; k < taken; k++) text[k % sizeof(text)] ^= (char)from[k];
                }
                }
            }
            if (cursor_end(&cursor) && cursor.left) abort();
        }
    }
    message_reader_destroy(&reader);
}
