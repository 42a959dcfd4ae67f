/* Hashes of bytes and of numbers, for tables of what comes from outside: keyed by a number that is
 * another in each process, so that nobody can write a file whose keys all meet. */
#ifndef IR_BASE_HASH_H
#define IR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Of this process. */
uint64_t hash_key(void);

static inline uint64_t hash_mix(uint64_t a, uint64_t b) {
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_number(uint64_t number, uint64_t key) {
    return hash_mix(number ^ key, 0x9e3779b97f4a7c15u);
}

/* After wyhash (Wang Yi): 16 bytes at a time go through a product of 128 bits. */
static inline uint64_t hash_bytes(const void *bytes, size_t length, uint64_t key) {
    const unsigned char *at = bytes;
    uint64_t state = key ^ length, a = 0, b = 0;
    size_t left = length;
    for (; left > 16; left -= 16, at += 16) {
        memcpy(&a, at, 8);
        memcpy(&b, at + 8, 8);
        state = hash_mix(a ^ 0xa0761d6478bd642fu, b ^ state);
    }
    a = b = 0;
    if (left >= 8) { /* the two eights overlap */
        memcpy(&a, at, 8);
        memcpy(&b, at + left - 8, 8);
    } else if (left >= 4) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + left - 4, 4);
        a = low;
        b = high;
    } else if (left > 0) {
        a = (uint64_t)at[0] << 16 | (uint64_t)at[left / 2] << 8 | at[left - 1];
    }
    return hash_mix(hash_mix(a ^ 0xe7037ed1a0b428dbu, b ^ state), 0x8ebc6af09c88c6e3u ^ length);
}

#endif
