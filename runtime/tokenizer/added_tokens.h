/* Tokens that are found in text as they are, before it is divided into words: special ones such as
 * <|endoftext|>, and others that somebody added to a vocabulary. Leftmost first, of those the
 * longest. */
#ifndef RUNTIME_TOKENIZER_ADDED_TOKENS_H
#define RUNTIME_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct AddedToken {
    uint32_t id;
    char *text; /* owned by the set; not empty */
    size_t length;
    bool special;                 /* found only where it is asked for */
    bool single_word;             /* not beside letters and digits */
    bool left_strip, right_strip; /* with the white space on that side */
    bool normalized; /* found in what the normalizer made of the text, else in the text itself */
} AddedToken;

typedef struct AddedTokens {
    AddedToken *items;
    int count, capacity;
    struct AddedNode *nodes; /* two tries; items of node i's children are in a list */
    int n_nodes, nodes_capacity;
    int roots[2];        /* by `normalized`; -1: none */
    bool begins[2][256]; /* a token begins with this byte */
    bool any_plain[2];   /* one that is not special */
} AddedTokens;

enum { ADDED_TOKEN_MOST_BYTES = 1024 }; /* so that a search of n bytes takes at most n times this */

void added_tokens_init(AddedTokens *tokens);
void added_tokens_release(AddedTokens *tokens);
/* Copies the text. found [n_found]: what it is found by, its text or what a normalizer makes of it;
 * of several that are found by the same the first one is, and none by nothing. False: either is too
 * long, or the text is empty or there already. */
bool added_tokens_add(AddedTokens *tokens, const AddedToken *token, const void *found,
                      size_t n_found);
const AddedToken *added_tokens_by_id(const AddedTokens *tokens, uint32_t id);
const AddedToken *added_tokens_by_text(const AddedTokens *tokens, const char *text);

/* The first one in text [length] from `from` on; `normalized` says which set. *out_begin and
 * *out_end: its place, with the white space that it takes in, and *out_next, where to search on.
 * NULL: none. `taken`: white space before it may not be taken in. */
const AddedToken *added_tokens_find(const AddedTokens *tokens, bool normalized, bool with_special,
                                    const unsigned char *text, size_t length, size_t from,
                                    size_t taken, size_t *out_begin, size_t *out_end,
                                    size_t *out_next);
/* Whether added_tokens_find could find anything in any text. */
bool added_tokens_any(const AddedTokens *tokens, bool normalized, bool with_special);

#endif
