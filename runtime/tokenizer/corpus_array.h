/* Where the objects of a JSON array begin and end, without parsing what is in them: so that a file
 * of any size can be read object by object, by several threads. */
#ifndef RUNTIME_TOKENIZER_CORPUS_ARRAY_H
#define RUNTIME_TOKENIZER_CORPUS_ARRAY_H

#include <stdbool.h>
#include <stddef.h>

/* The first of bytes [at, length) that is not blank; length: none. */
size_t corpus_array_skip(const unsigned char *text, size_t length, size_t at);

/* Does the text begin as an array of objects does? *out_first: where the first of them is. */
bool corpus_array_begins(const unsigned char *text, size_t length, size_t *out_first);

/* Behind the object that begins at `at`; 0: it does not end. Brackets and braces count alike: what
 * is no JSON in between is for a parser to find. */
size_t corpus_array_object_end(const unsigned char *text, size_t length, size_t at);

/* Has the object that begins at `at` a field of this name, which is written without escapes? */
bool corpus_array_has_field(const unsigned char *text, size_t length, size_t at, const char *name);

/* What follows an object that ends at `at`: *out_next is where the next one begins, or, at the
 * array's end, the end of the text. NULL, or what is wrong, and *out_next says where. */
const char *corpus_array_next(const unsigned char *text, size_t length, size_t at,
                              size_t *out_next);

#endif
