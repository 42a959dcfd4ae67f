/* JSON read from outside: jansson's parser with our diagnostics. And texts within JSON that is
 * written as it comes, without a tree.
 *
 * Duplicate keys are errors (two readers must not see two different documents), so is anything but
 * white space after the document. The caller frees the result with json_decref.
 */
#ifndef IR_BASE_JSON_H
#define IR_BASE_JSON_H

#include "ir/base/diag.h"
#include "ir/base/strbuf.h"

#include <jansson.h>
#include <stddef.h>

/* A whole document, not terminated. `path` names its source in errors. Reports, returns NULL. */
json_t *json_parse_bytes(const char *path, const void *bytes, size_t length, Diag *diag);

/* A regular file of at most limit_bytes. Reports and returns NULL. */
json_t *json_parse_file(const char *path, size_t limit_bytes, Diag *diag);
/* The same where no number matters: whole ones are reals, so that none is too large. transformers
 * writes 10^30 as the model_max_length of a tokenizer that has no limit. */
json_t *json_parse_file_texts(const char *path, size_t limit_bytes, Diag *diag);

/* Appends a text in UTF-8 as a JSON string, quotes included, in ASCII alone; a byte that is no
 * UTF-8 becomes the character of its number. */
void json_put_text(StrBuf *out, const char *text);
/* The same of so many bytes, zeros among them. */
void json_put_bytes(StrBuf *out, const char *text, size_t length);

#endif
