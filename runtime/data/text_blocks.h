/* A text that is packed, or comes through a pipe, in blocks that end where a document does, read by
 * a thread of its own while the block before is in work. */
#ifndef RUNTIME_DATA_TEXT_BLOCKS_H
#define RUNTIME_DATA_TEXT_BLOCKS_H

#include "ir/base/diag.h"
#include "runtime/data/unpack.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct TextBlocks TextBlocks;

/* The unpacker is taken. `path` stays where it is: what errors call it. */
TextBlocks *text_blocks_open(const char *path, Unpacker *unpacker);
void text_blocks_close(TextBlocks *blocks);
/* Its first bytes, before there is a first block: to see what it is. What is wrong with it is said
 * later. */
size_t text_blocks_peek(TextBlocks *blocks, const unsigned char **out);
/* What ends a document, "\n" or a separator, which stays where it is; NULL: the text is one block.
 */
void text_blocks_end_with(TextBlocks *blocks, const char *end);
/* The next block, from malloc, which the caller frees, and how many bytes, as they came, were
 * read for it.
 * *out NULL: there is none. A document must fit into half of this machine's memory. Reports. */
bool text_blocks_next(TextBlocks *blocks, unsigned char **out, size_t *out_length,
                      size_t *out_packed, Diag *diag);

#endif
