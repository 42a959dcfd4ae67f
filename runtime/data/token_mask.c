#include "runtime/data/token_mask.h"

#include <stdlib.h>
#include <unistd.h>

static const char SUFFIX[] = ".mask.npy";
enum { SUFFIX_BYTES = sizeof(SUFFIX) - 1 };

bool token_mask_is_name(const char *path) {
    size_t n = strlen(path);
    return n > SUFFIX_BYTES && strcmp(path + n - SUFFIX_BYTES, SUFFIX) == 0;
}

const char *token_mask_name(Arena *arena, const char *path) {
    return arena_printf(arena, "%s%s", path, SUFFIX);
}

static bool check(const TokenFile *file, const TokenFile *mask, Diag *diag) {
    SourceLoc loc = {mask->path, 0};
    if (mask->is_text || mask->token_bytes != 1) {
        diag_error(diag, loc, "is no mask: one is a .npy of booleans or u1, one for each token");
        return false;
    }
    if (mask->n_tokens != file->n_tokens) {
        diag_error(diag, loc, "masks %lld tokens, but %s has %lld", (long long)mask->n_tokens,
                   file->path, (long long)file->n_tokens);
        return false;
    }
    for (int64_t i = 0; i < mask->n_tokens; i++) {
        if (mask->tokens[i] <= 1) continue;
        diag_error(diag, loc, "is %d at position %lld: a mask is 1 where a token counts, else 0",
                   mask->tokens[i], (long long)i);
        return false;
    }
    return true;
}

bool token_mask_open(TokenFile *file, Diag *diag) {
    Arena *arena = arena_create();
    const char *path = token_mask_name(arena, file->path);
    bool good = true;
    if (access(path, F_OK) == 0) {
        file->mask = calloc(1, sizeof(*file->mask));
        if (!file->mask) BUG("out of memory");
        good = token_file_open(file->mask, path, 1, diag) && check(file, file->mask, diag);
        file->counts = file->mask->tokens;
    }
    arena_destroy(arena);
    return good;
}
