#include "runtime/tokenizer/added_tokens.h"

#include "ir/base/diag.h"
#include "ir/base/memory.h"
#include "ir/base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* A trie: children are a list through `sibling`. */
typedef struct AddedNode {
    int child, sibling, item; /* -1: none */
    unsigned char byte;
} AddedNode;

void added_tokens_init(AddedTokens *tokens) {
    *tokens = (AddedTokens){.roots = {-1, -1}};
}

void added_tokens_release(AddedTokens *tokens) {
    for (int i = 0; i < tokens->count; i++) free(tokens->items[i].text);
    free(tokens->items);
    free(tokens->nodes);
    added_tokens_init(tokens);
}

static int add_node(AddedTokens *tokens, unsigned char byte) {
    if (tokens->n_nodes == tokens->nodes_capacity) {
        tokens->nodes_capacity = 2 * tokens->nodes_capacity + 64;
        tokens->nodes =
            memory_grow(tokens->nodes, (size_t)tokens->nodes_capacity * sizeof(AddedNode));
    }
    tokens->nodes[tokens->n_nodes] = (AddedNode){-1, -1, -1, byte};
    return tokens->n_nodes++;
}

static int find_child(const AddedTokens *tokens, int node, unsigned char byte) {
    int child = tokens->nodes[node].child;
    while (child >= 0 && tokens->nodes[child].byte != byte) child = tokens->nodes[child].sibling;
    return child;
}

/* The node of text [length], made where there is none yet. */
static int reach_node(AddedTokens *tokens, int set, const unsigned char *text, size_t length) {
    if (tokens->roots[set] < 0) tokens->roots[set] = add_node(tokens, 0);
    int node = tokens->roots[set];
    for (size_t i = 0; i < length; i++) {
        int child = find_child(tokens, node, text[i]);
        if (child < 0) {
            child = add_node(tokens, text[i]);
            tokens->nodes[child].sibling = tokens->nodes[node].child;
            tokens->nodes[node].child = child;
        }
        node = child;
    }
    return node;
}

bool added_tokens_add(AddedTokens *tokens, const AddedToken *token, const void *found,
                      size_t n_found) {
    if (token->length == 0 || token->length > ADDED_TOKEN_MOST_BYTES) return false;
    if (n_found > ADDED_TOKEN_MOST_BYTES) return false;
    int set = token->normalized, node = reach_node(tokens, set, found, n_found);
    int other = tokens->nodes[node].item;
    if (other >= 0 && strcmp(tokens->items[other].text, token->text) == 0) return false;
    if (tokens->count == tokens->capacity) {
        tokens->capacity = 2 * tokens->capacity + 16;
        tokens->items =
            memory_grow(tokens->items, (size_t)tokens->capacity * sizeof(*tokens->items));
    }
    AddedToken *item = &tokens->items[tokens->count++];
    *item = *token;
    item->text = memory_strndup(token->text, token->length);
    if (other >= 0 || n_found == 0) return true;
    tokens->nodes[node].item = tokens->count - 1;
    tokens->begins[set][*(const unsigned char *)found] = true;
    tokens->any_plain[set] |= !token->special;
    return true;
}

const AddedToken *added_tokens_by_id(const AddedTokens *tokens, uint32_t id) {
    for (int i = 0; i < tokens->count; i++) {
        if (tokens->items[i].id == id) return &tokens->items[i];
    }
    return NULL;
}

const AddedToken *added_tokens_by_text(const AddedTokens *tokens, const char *text) {
    for (int i = 0; i < tokens->count; i++) {
        if (strcmp(tokens->items[i].text, text) == 0) return &tokens->items[i];
    }
    return NULL;
}

bool added_tokens_any(const AddedTokens *tokens, bool normalized, bool with_special) {
    return tokens->roots[normalized] >= 0 && (with_special || tokens->any_plain[normalized]);
}

/* --- searching --- */

/* The character that ends at `at`; false: none, or bytes that are none. */
static bool character_before(const unsigned char *text, size_t at, uint32_t *out) {
    for (size_t bytes = 1; bytes <= 4 && bytes <= at; bytes++) {
        if (utf8_read(text + at - bytes, bytes, out) == (int)bytes) return true;
    }
    return false;
}

/* \w of Unicode (UTS #18), all but for some symbols that count as letters. */
static bool is_word(uint32_t c) {
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return c == 0x200c || c == 0x200d;
    }
}

static bool stands_alone(const unsigned char *text, size_t length, size_t begin, size_t end) {
    uint32_t character;
    if (character_before(text, begin, &character) && is_word(character)) return false;
    return end == length || utf8_read(text + end, length - end, &character) == 0 ||
           !is_word(character);
}

static size_t strip_left(const unsigned char *text, size_t begin, size_t least) {
    uint32_t character;
    unsigned char bytes[4];
    while (begin > least && character_before(text, begin, &character) && utf8_is_space(character)) {
        size_t n = (size_t)utf8_write(character, bytes);
        if (begin - least < n) break;
        begin -= n;
    }
    return begin;
}

static size_t strip_right(const unsigned char *text, size_t length, size_t end) {
    uint32_t character;
    int bytes;
    while (end < length && (bytes = utf8_read(text + end, length - end, &character)) > 0 &&
           utf8_is_space(character)) {
        end += (size_t)bytes;
    }
    return end;
}

/* The longest at this place and the bytes that it is found by, or NULL. */
static const AddedToken *match_at(const AddedTokens *tokens, int root, const unsigned char *text,
                                  size_t length, size_t *out_length) {
    const AddedToken *longest = NULL;
    int node = root;
    for (size_t i = 0; i < length; i++) {
        node = find_child(tokens, node, text[i]);
        if (node < 0) break;
        if (tokens->nodes[node].item < 0) continue;
        longest = &tokens->items[tokens->nodes[node].item];
        *out_length = i + 1;
    }
    return longest;
}

const AddedToken *added_tokens_find(const AddedTokens *tokens, bool normalized, bool with_special,
                                    const unsigned char *text, size_t length, size_t from,
                                    size_t taken, size_t *out_begin, size_t *out_end,
                                    size_t *out_next) {
    const bool *begins = tokens->begins[normalized];
    if (!added_tokens_any(tokens, normalized, with_special)) return NULL;
    for (size_t at = from; at < length; at++) {
        if (!begins[text[at]]) continue;
        size_t n_found = 0;
        const AddedToken *token =
            match_at(tokens, tokens->roots[normalized], text + at, length - at, &n_found);
        if (!token) continue;
        size_t end = at + n_found;
        bool counts = (with_special || !token->special) &&
                      (!token->single_word || stands_alone(text, length, at, end));
        if (!counts) { /* it hides what lies within, as in Hugging Face's */
            at = end - 1;
            continue;
        }
        *out_next = end;
        *out_begin = token->left_strip ? strip_left(text, at, taken) : at;
        *out_end = token->right_strip ? strip_right(text, length, end) : end;
        return token;
    }
    return NULL;
}
