#include "runtime/tokenizer/base64.h"

#include <stdint.h>

static int value_of(unsigned char c) {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool base64_decode(const char *text, size_t length, unsigned char *out, size_t most,
                   size_t *out_length) {
    size_t padding = length > 1 && text[length - 1] == '=' ? 1 + (text[length - 2] == '=') : 0;
    size_t n_bytes = length / 4 * 3 - padding, n = 0;
    uint32_t bits = 0;
    if (length == 0 || length % 4 != 0 || n_bytes > most) return false;
    for (size_t i = 0; i < length; i++) {
        int value = i < length - padding ? value_of((unsigned char)text[i]) : 0;
        if (value < 0) return false;
        bits = bits << 6 | (uint32_t)value;
        if (i % 4 != 3) continue;
        for (int k = 2; k >= 0 && n < n_bytes; k--) out[n++] = (unsigned char)(bits >> (8 * k));
    }
    *out_length = n;
    return true;
}
