/* Base64 (RFC 4648) with its padding -> bytes. */
#ifndef RUNTIME_TOKENIZER_BASE64_H
#define RUNTIME_TOKENIZER_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Text [length] -> out, which has room for `most` bytes. False: it is none, empty, or longer. */
bool base64_decode(const char *text, size_t length, unsigned char *out, size_t most,
                   size_t *out_length);

#endif
