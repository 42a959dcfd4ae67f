/* Bytes that are messages, nearly, or not at all, by a seed. */
#ifndef TESTS_UNIT_MESSAGE_NOISE_H
#define TESTS_UNIT_MESSAGE_NOISE_H

#include "runtime/launch/message.h"

static inline uint32_t next_random(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* A frame whose parts are right or not, by chance. */
static inline void put_noise(StrBuf *out, uint32_t *random) {
    uint32_t choice = next_random(random) % 8;
    size_t n = next_random(random) % 300, start = out->length;
    if (choice > 0) start = message_begin(out, (MessageKind)(1 + next_random(random) % 9));
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)next_random(random);
        strbuf_put_bytes(out, &byte, 1);
    }
    if (choice > 1) message_end(out, start);
    if (choice == 2) out->text[start + next_random(random) % MESSAGE_HEADER_BYTES] ^= 0x10;
    if (choice == 3) out->length -= n / 2; /* half a message, then the next */
}

#endif
