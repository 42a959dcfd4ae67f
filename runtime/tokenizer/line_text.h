/* The text of a line of JSON, {"text": "...", ...}, without a tree of it: for files of which that
 * is all there is to take. Whatever is not surely valid JSON, as jansson takes it (no key twice,
 * strings in UTF-8), or asks for more than a look, is left to jansson. */
#ifndef RUNTIME_TOKENIZER_LINE_TEXT_H
#define RUNTIME_TOKENIZER_LINE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Where unescaped text is put: it grows. All zeros at first; `bytes` is freed by its owner. */
typedef struct LineRoom {
    unsigned char *bytes;
    size_t size;
} LineRoom;

/* line [length] -> the string that the object has as `field`, in the line or in `room`. False: it
 * may have one or not. `others` [n_others]: keys of which it must have none. */
bool line_text_find(const unsigned char *line, size_t length, const char *field,
                    const char *const *others, size_t n_others, LineRoom *room,
                    const unsigned char **out_text, size_t *out_length);

#endif
