/* UTF-8 (RFC 3629): one character at a time, and how far a text is valid. */
#ifndef IR_BASE_UTF8_H
#define IR_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the character at `text`, of which `length` > 0 are there; 0: not valid, surrogates,
 * overlong forms and what is beyond U+10FFFF included. */
static inline int utf8_read(const unsigned char *text, size_t length, uint32_t *out_character) {
    unsigned char first = text[0];
    if (first < 0x80) {
        *out_character = first;
        return 1;
    }
    int bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (bytes == 0 || length < (size_t)bytes) return 0;
    uint32_t character = first & (0x7fu >> bytes);
    for (int i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80) return 0;
        character = character << 6 | (text[i] & 0x3fu);
    }
    if (bytes == 3 && (character < 0x800 || (character >= 0xd800 && character < 0xe000))) return 0;
    if (bytes == 4 && (character < 0x10000 || character > 0x10ffff)) return 0;
    *out_character = character;
    return bytes;
}

/* Writes a character of at most U+10FFFF, up to 4 bytes; returns how many. */
static inline int utf8_write(uint32_t character, unsigned char *out) {
    if (character < 0x80) {
        out[0] = (unsigned char)character;
        return 1;
    }
    int bytes = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (int i = bytes - 1; i > 0; i--) {
        out[i] = (unsigned char)(0x80 | (character & 0x3f));
        character >>= 6;
    }
    out[0] = (unsigned char)((0xf00u >> bytes) | character);
    return bytes;
}

/* How many bytes from the beginning on are valid and complete characters. */
static inline size_t utf8_valid_bytes(const unsigned char *text, size_t length) {
    size_t at = 0;
    while (at < length) {
        uint64_t eight;
        uint32_t character;
        while (at + 8 <= length) {
            memcpy(&eight, text + at, 8);
            if (eight & 0x8080808080808080u) break;
            at += 8;
        }
        if (at == length) break;
        int bytes = utf8_read(text + at, length - at, &character);
        if (bytes == 0) break;
        at += (size_t)bytes;
    }
    return at;
}

/* For a terminal: control characters, also those of two bytes (U+0080 to U+009F), become '?'. Tabs
 * stay. The text is terminated. */
static inline void utf8_keep_printable(char *text) {
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if ((*c < ' ' && *c != '\t') || *c == 0x7f) *c = '?';
        if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) c[0] = c[1] = '?';
    }
}

/* White_Space of the Unicode character database. */
static inline int utf8_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000;
}

#endif
