#define _GNU_SOURCE /* memmem, memrchr */
#include "runtime/data/text_blocks.h"

#include "ir/base/host.h"
#include "ir/base/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 << 20 };

struct TextBlocks {
    const char *path, *end;
    Unpacker *unpacker;
    pthread_t thread;
    bool runs;
    /* What the thread fills until it is joined. */
    unsigned char *text;
    size_t length, packed;
    bool at_end, peeks;
    const char *wrong;
};

static size_t most_bytes(void) {
    int64_t bytes = host_memory_bytes();
    return bytes > 0 ? (size_t)bytes / 2 : SIZE_MAX / 4;
}

/* Behind the last document that ends in text [length]; 0: none does. */
static size_t last_end(const unsigned char *text, size_t length, const char *end) {
    size_t n = end ? strlen(end) : 0;
    if (n == 0 || length < n) return 0;
    for (size_t room = length; room >= n;) {
        const unsigned char *found = memrchr(text, end[n - 1], room);
        if (!found) return 0;
        room = (size_t)(found - text);
        if (room + 1 >= n && memcmp(found + 1 - n, end, n) == 0) return room + 1;
    }
    return 0;
}

/* Reads on, a block at least, then until it has the end of a document, or is at the text's. */
static void fill(TextBlocks *blocks) {
    size_t wanted = blocks->length + BLOCK_BYTES, most = most_bytes();
    while (!blocks->at_end && !blocks->wrong) {
        unsigned char *text = wanted > most ? NULL : realloc(blocks->text, wanted + 1);
        if (!text) {
            blocks->wrong = "a document of it takes more than half of this machine's memory: "
                            "unpack it, so that it can be mapped";
            return;
        }
        blocks->text = text;
        size_t n = wanted - blocks->length;
        size_t got = unpacker_read(blocks->unpacker, text + blocks->length, n, &blocks->wrong);
        blocks->length += got;
        blocks->at_end = got < n;
        if (blocks->peeks || last_end(text, blocks->length, blocks->end) > 0) break;
        wanted += wanted;
    }
}

static void *run(void *user) {
    fill(user);
    return NULL;
}

/* Without a thread to be had it is done now. */
static void start(TextBlocks *blocks) {
    blocks->runs = pthread_create(&blocks->thread, NULL, run, blocks) == 0;
    if (!blocks->runs) fill(blocks);
}

static void finish(TextBlocks *blocks) {
    if (blocks->runs) pthread_join(blocks->thread, NULL);
    blocks->runs = false;
}

TextBlocks *text_blocks_open(const char *path, Unpacker *unpacker) {
    TextBlocks *blocks = memory_zeroed(1, sizeof(*blocks));
    blocks->path = path;
    blocks->unpacker = unpacker;
    blocks->peeks = true;
    fill(blocks);
    blocks->peeks = false;
    return blocks;
}

size_t text_blocks_peek(TextBlocks *blocks, const unsigned char **out) {
    *out = blocks->text;
    return blocks->length;
}

void text_blocks_end_with(TextBlocks *blocks, const char *end) {
    blocks->end = end;
    if (last_end(blocks->text, blocks->length, end) == 0) fill(blocks);
}

void text_blocks_close(TextBlocks *blocks) {
    if (!blocks) return;
    finish(blocks);
    unpacker_destroy(blocks->unpacker);
    free(blocks->text);
    free(blocks);
}

bool text_blocks_next(TextBlocks *blocks, unsigned char **out, size_t *out_length,
                      size_t *out_packed, Diag *diag) {
    finish(blocks);
    *out = NULL;
    *out_length = *out_packed = 0;
    if (blocks->wrong) {
        diag_error(diag, (SourceLoc){blocks->path, 0}, "%s", blocks->wrong);
        return false;
    }
    if (blocks->length == 0) return true;
    size_t position = unpacker_position(blocks->unpacker);
    size_t length = last_end(blocks->text, blocks->length, blocks->end);
    if (length == 0 || blocks->at_end) length = blocks->length;
    *out = blocks->text;
    *out_length = length;
    *out_packed = position - blocks->packed;
    blocks->packed = position;
    blocks->length -= length;
    blocks->text = memory_alloc(blocks->length + 1);
    memcpy(blocks->text, *out + length, blocks->length);
    if (!blocks->at_end) start(blocks);
    return true;
}
