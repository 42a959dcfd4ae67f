#include "runtime/tokenizer/spelled_tokens.h"

static int find_child(const SpelledTokens *tokens, int node, unsigned char byte) {
    int child = tokens->nodes[node].child;
    while (child && tokens->nodes[child].byte != byte) child = tokens->nodes[child].next;
    return child;
}

static int add_node(SpelledTokens *tokens, Arena *arena, SpelledNode node) {
    ARENA_PUSH(arena, tokens->nodes, tokens->count, tokens->capacity, node);
    return tokens->count - 1;
}

static void add_token(SpelledTokens *tokens, const AddedToken *token, Arena *arena) {
    int at = 0;
    for (size_t i = 0; i < token->length; i++) {
        unsigned char byte = (unsigned char)token->text[i];
        int child = find_child(tokens, at, byte);
        if (!child) {
            child = add_node(
                tokens, arena,
                (SpelledNode){.next = tokens->nodes[at].child, .byte = byte, .token = NO_TOKEN});
            tokens->nodes[at].child = child;
        }
        at = child;
    }
    tokens->nodes[at].token = token->id;
    tokens->begins[(unsigned char)token->text[0]] = true;
}

void spelled_tokens_build(SpelledTokens *out, const Tokenizer *tokenizer, Arena *arena) {
    *out = (SpelledTokens){0};
    add_node(out, arena, (SpelledNode){.token = NO_TOKEN});
    for (int i = 0; i < tokenizer->added.count; i++) {
        const AddedToken *token = &tokenizer->added.items[i];
        if (token->special && token->length) add_token(out, token, arena);
    }
}

size_t spelled_tokens_at(const SpelledTokens *tokens, const char *text, size_t most,
                         uint32_t *out_token) {
    size_t longest = 0;
    int at = 0;
    if (most == 0 || !tokens->begins[(unsigned char)*text]) return 0;
    for (size_t i = 0; i < most; i++) {
        at = find_child(tokens, at, (unsigned char)text[i]);
        if (!at) break;
        if (tokens->nodes[at].token == NO_TOKEN) continue;
        *out_token = tokens->nodes[at].token;
        longest = i + 1;
    }
    return longest;
}
