#include "runtime/metrics/crc32c.h"

/* What four bits leave behind, by 0x82f63b78, the polynomial with its lowest power first. Four at
 * a time, not eight: a step's few hundred bytes need no table of 256. */
static const uint32_t OF_BITS[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3, 0x61c69362, 0x7198540d,
    0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9, 0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75};

uint32_t crc32c(const void *bytes, size_t length) {
    const unsigned char *at = bytes;
    uint32_t crc = UINT32_MAX;
    for (size_t i = 0; i < length; i++) {
        crc = OF_BITS[(crc ^ at[i]) & 15] ^ (crc >> 4);
        crc = OF_BITS[(crc ^ (at[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}
