#include "runtime/tokenizer/characters.h"

#include "ir/base/utf8.h"

#include <string.h>
#include <utf8proc.h>

static int keep(uint32_t character, uint32_t *out) {
    out[0] = character;
    return 1;
}

int character_lower(uint32_t character, uint32_t out[CHANGED_MOST]) {
    if (character < 0x80) return keep(character | (character - 'A' < 26u ? 0x20 : 0), out);
    if (character == 0x130) { /* the only one that becomes two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    return keep((uint32_t)utf8proc_tolower((utf8proc_int32_t)character), out);
}

int character_without_accents(uint32_t character, uint32_t out[CHANGED_MOST]) {
    if (character < 0x300) return keep(character, out);
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
    bool is_mark = category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_MC ||
                   category == UTF8PROC_CATEGORY_ME;
    return is_mark ? 0 : keep(character, out);
}

int character_without_nonspacing(uint32_t character, uint32_t out[CHANGED_MOST]) {
    if (character < 0x300) return keep(character, out);
    bool is_mark = utf8proc_category((utf8proc_int32_t)character) == UTF8PROC_CATEGORY_MN;
    return is_mark ? 0 : keep(character, out);
}

int character_clean(uint32_t character, uint32_t out[CHANGED_MOST]) {
    if (character > 0x20 && character < 0x7f) return keep(character, out);
    if (character == '\t' || character == '\n' || character == '\r') return keep(' ', out);
    if (character == 0 || character == 0xfffd) return 0;
    switch (utf8proc_category((utf8proc_int32_t)character)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO: return 0;
    default: return keep(utf8_is_space(character) ? ' ' : character, out);
    }
}

int character_spaced(uint32_t c, uint32_t out[CHANGED_MOST]) {
    bool is_chinese =
        c >= 0x3400 &&
        ((c >= 0x4e00 && c <= 0x9fff) || c <= 0x4dbf || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0x2f800 && c <= 0x2fa1f));
    if (!is_chinese) return keep(c, out);
    out[0] = out[2] = ' ';
    out[1] = c;
    return 3;
}

int character_nmt(uint32_t c, uint32_t out[CHANGED_MOST]) {
    if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f ||
        c == 0x9f) {
        return 0;
    }
    bool is_space = c == 9 || c == 10 || c == 12 || c == 13 || c == 0x1680 ||
                    (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                    c == 0xfeff || c == 0xfffd;
    return keep(is_space ? ' ' : c, out);
}

int text_columns(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    utf8proc_ssize_t left = (utf8proc_ssize_t)strlen(text), n;
    int columns = 0;
    for (utf8proc_int32_t c; left > 0; at += n, left -= n) {
        n = utf8proc_iterate(at, left, &c);
        columns += n > 0 ? utf8proc_charwidth(c) : 1;
        if (n <= 0) n = 1;
    }
    return columns;
}
