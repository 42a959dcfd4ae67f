#include "runtime/data/pack.h"

#include "runtime/data/token_mask.h"

#include <stdlib.h>

enum { WORD = 64 };

/* A document, or a piece of one. */
typedef struct Piece {
    size_t begin, length;
    int64_t window;
    int64_t next;  /* of those of its length, or among windows with as much room; -1: none */
    bool is_first; /* of its window: the longest */
} Piece;

typedef struct Packing {
    TokenBuffer *buffer;
    const PackOptions *options;
    PackTotals *totals;
    Piece *pieces;
    int64_t n_pieces, capacity;
    int64_t *rooms;          /* [seq + 1]: the last window with so much room; -1: none */
    int64_t *next_window;    /* [n_windows]: with as much room */
    uint64_t *bits, *groups; /* of rooms: which have one, and which words of bits have one */
} Packing;

/* --- documents --- */

static void add_piece(Packing *packing, size_t begin, size_t length) {
    unsigned char *marks = packing->buffer->marks;
    bool counts = false;
    marks[begin] = (unsigned char)(marks[begin] & ~TOKEN_COUNTS);
    for (size_t i = begin; !counts && i < begin + length; i++) counts = marks[i] & TOKEN_COUNTS;
    if (!counts) {
        packing->totals->n_empty++;
        return;
    }
    if (packing->n_pieces == packing->capacity) {
        packing->capacity = 2 * packing->capacity + 1024;
        packing->pieces =
            realloc(packing->pieces, (size_t)packing->capacity * sizeof(*packing->pieces));
        if (!packing->pieces) BUG("out of memory");
    }
    packing->pieces[packing->n_pieces++] = (Piece){.begin = begin, .length = length};
}

static void add_document(Packing *packing, size_t begin, size_t length) {
    size_t seq = packing->options->seq;
    packing->totals->n_documents++;
    if (length <= seq) {
        add_piece(packing, begin, length);
        return;
    }
    packing->totals->n_long++;
    if (packing->options->drops_long) return;
    for (size_t at = 0; at < length; at += seq) {
        add_piece(packing, begin + at, length - at < seq ? length - at : seq);
        packing->totals->n_pieces++;
    }
}

static void find_documents(Packing *packing) {
    const TokenBuffer *buffer = packing->buffer;
    size_t begin = 0;
    for (size_t i = 1; i <= buffer->n_tokens; i++) {
        if (i < buffer->n_tokens && !(buffer->marks[i] & TOKEN_BEGINS)) continue;
        add_document(packing, begin, i - begin);
        begin = i;
    }
}

/* --- windows by their room --- */

static void put_room(Packing *packing, int64_t window, size_t room) {
    packing->next_window[window] = packing->rooms[room];
    packing->rooms[room] = window;
    packing->bits[room / WORD] |= (uint64_t)1 << (room % WORD);
    packing->groups[room / WORD / WORD] |= (uint64_t)1 << (room / WORD % WORD);
}

static int64_t take_room(Packing *packing, size_t room) {
    int64_t window = packing->rooms[room];
    packing->rooms[room] = packing->next_window[window];
    if (packing->rooms[room] >= 0) return window;
    packing->bits[room / WORD] &= ~((uint64_t)1 << (room % WORD));
    if (packing->bits[room / WORD] == 0) {
        packing->groups[room / WORD / WORD] &= ~((uint64_t)1 << (room / WORD % WORD));
    }
    return window;
}

/* The first bit from `from` on that is set, of n words; SIZE_MAX: none. */
static size_t find_bit(const uint64_t *words, size_t n, size_t from) {
    for (size_t w = from / WORD; w < n; w++) {
        uint64_t word = words[w];
        if (w == from / WORD) word &= ~(uint64_t)0 << (from % WORD);
        if (word) return w * WORD + (size_t)__builtin_ctzll(word);
    }
    return SIZE_MAX;
}

/* The least room of a window that has at least so much; SIZE_MAX: there is none. */
static size_t find_room(const Packing *packing, size_t least) {
    size_t n_words = packing->options->seq / WORD + 1, n_groups = n_words / WORD + 1;
    size_t word = least / WORD;
    uint64_t rest = packing->bits[word] & (~(uint64_t)0 << (least % WORD));
    if (rest) return word * WORD + (size_t)__builtin_ctzll(rest);
    word = find_bit(packing->groups, n_groups, word + 1);
    if (word == SIZE_MAX) return SIZE_MAX;
    return word * WORD + (size_t)__builtin_ctzll(packing->bits[word]);
}

/* --- best fit --- */

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (!memory) BUG("out of memory");
    return memory;
}

/* By length, the longest first; of one length in order. */
static int64_t *sort_pieces(Packing *packing) {
    size_t seq = packing->options->seq;
    int64_t *heads = allocate(seq + 1, sizeof(*heads)), n = packing->n_pieces, at = 0;
    int64_t *order = allocate((size_t)n + 1, sizeof(*order));
    for (size_t length = 0; length <= seq; length++) heads[length] = -1;
    for (int64_t i = n - 1; i >= 0; i--) {
        Piece *piece = &packing->pieces[i];
        piece->next = heads[piece->length];
        heads[piece->length] = i;
    }
    for (size_t length = seq; length > 0; length--) {
        for (int64_t i = heads[length]; i >= 0; i = packing->pieces[i].next) order[at++] = i;
    }
    free(heads);
    return order;
}

static void fit(Packing *packing) {
    size_t seq = packing->options->seq, n_words = seq / WORD + 2;
    int64_t *order = sort_pieces(packing), n_windows = 0;
    packing->rooms = allocate(seq + 1, sizeof(int64_t));
    packing->next_window = allocate((size_t)packing->n_pieces + 1, sizeof(int64_t));
    packing->bits = allocate(n_words, sizeof(uint64_t));
    packing->groups = allocate(n_words / WORD + 2, sizeof(uint64_t));
    for (size_t room = 0; room <= seq; room++) packing->rooms[room] = -1;
    for (int64_t k = 0; k < packing->n_pieces; k++) {
        Piece *piece = &packing->pieces[order[k]];
        size_t room = find_room(packing, piece->length);
        piece->is_first = room == SIZE_MAX;
        piece->window = piece->is_first ? n_windows++ : take_room(packing, room);
        put_room(packing, piece->window, (piece->is_first ? seq : room) - piece->length);
    }
    packing->totals->n_windows = n_windows;
    free(order);
}

/* Windows in the order of their first pieces. */
static void number_windows(Packing *packing) {
    int64_t *numbers = packing->next_window, n = 0;
    for (int64_t i = 0; i < packing->n_pieces; i++) {
        if (packing->pieces[i].is_first) numbers[packing->pieces[i].window] = n++;
    }
    for (int64_t i = 0; i < packing->n_pieces; i++) {
        packing->pieces[i].window = numbers[packing->pieces[i].window];
    }
}

static bool fill_windows(Packing *packing, Diag *diag) {
    TokenBuffer *from = packing->buffer, to;
    PackTotals *totals = packing->totals;
    size_t seq = packing->options->seq, n = (size_t)totals->n_windows * seq, width;
    width = from->token_bytes;
    if (!token_buffer_create(&to, width, n, diag)) return false;
    size_t *filled = allocate((size_t)totals->n_windows + 1, sizeof(*filled));
    for (int64_t i = 0; i < packing->n_pieces; i++) {
        const Piece *piece = &packing->pieces[i];
        size_t at = (size_t)piece->window * seq + filled[piece->window];
        memcpy(to.tokens + at * width, from->tokens + piece->begin * width, piece->length * width);
        memcpy(to.marks + at, from->marks + piece->begin, piece->length);
        to.marks[at] |= TOKEN_BEGINS;
        filled[piece->window] += piece->length;
        totals->n_tokens += (int64_t)piece->length;
    }
    for (size_t w = 0; w < (size_t)totals->n_windows; w++) {
        for (size_t i = filled[w]; i < seq; i++) {
            token_buffer_set(&to, w * seq + i, packing->options->padding);
        }
    }
    totals->n_padding = (int64_t)n - totals->n_tokens;
    free(filled);
    token_buffer_release(from);
    *from = to;
    return true;
}

bool pack_documents(TokenBuffer *buffer, const PackOptions *options, PackTotals *out, Diag *diag) {
    Packing packing = {.buffer = buffer, .options = options, .totals = out};
    *out = (PackTotals){0};
    if (buffer->n_tokens > 0) find_documents(&packing);
    bool good = packing.n_pieces > 0;
    if (good) {
        fit(&packing);
        number_windows(&packing);
        good = fill_windows(&packing, diag);
    } else {
        diag_error(diag, NO_LOC,
                   "--pack: of %lld documents, none is left in which something counts%s",
                   (long long)out->n_documents,
                   out->n_long > 0 && options->drops_long ? " and that fits into a window" : "");
    }
    free(packing.pieces);
    free(packing.rooms);
    free(packing.next_window);
    free(packing.bits);
    free(packing.groups);
    return good;
}
