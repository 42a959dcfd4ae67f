/* Packing of documents into windows. Would catch: a document that is cut, lost or there twice, a
 * token with another's mark, padding that counts, windows that depend on more than the documents,
 * windows with room that a document would have fitted into.
 */
#include "runtime/data/pack.h"
#include "runtime/data/token_mask.h"
#include "tests/unit/check.h"

#include <stdlib.h>
#include <string.h>

enum { PADDING = 65535, MOST_DOCUMENTS = 400 };

static uint32_t state = 99;
static uint32_t random_below(uint32_t n) {
    state = state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)state * n >> 32);
}

/* Document d has `length` tokens d, d + 1, ... and counts from `counts_from` on. */
typedef struct Document {
    int length, counts_from;
} Document;

static void put_document(TokenBuffer *buffer, int d, const Document *document, Diag *diag) {
    for (int i = 0; i < document->length; i++) {
        uint32_t token = (uint32_t)(d + i) % PADDING;
        unsigned char mark = i >= document->counts_from ? TOKEN_COUNTS : 0;
        if (i == 0) mark |= TOKEN_BEGINS;
        CHECK(token_buffer_put(buffer, &token, &mark, 1, diag), "%s", diag_text(diag));
    }
}

/* Which document (or piece of one) stands at a place of a window: -1, none. */
static int match(const TokenBuffer *buffer, size_t at, const Document *documents, int n, int seq,
                 bool drops, int *out_offset) {
    for (int d = 0; d < n; d++) {
        if (drops && documents[d].length > seq) continue;
        for (int offset = 0; offset < documents[d].length; offset += seq) {
            if (token_buffer_at(buffer, at) != (uint32_t)(d * 1000 + offset) % PADDING) continue;
            *out_offset = offset;
            return d;
        }
    }
    return -1;
}

static void check_windows(const TokenBuffer *buffer, const Document *documents, int n, int seq,
                          bool drops, const PackTotals *totals) {
    static int seen[MOST_DOCUMENTS][64];
    int64_t n_tokens = 0;
    memset(seen, 0, sizeof(seen));
    CHECK((int64_t)buffer->n_tokens == totals->n_windows * seq, "%zu tokens", buffer->n_tokens);
    for (size_t w = 0; w < buffer->n_tokens; w += (size_t)seq) {
        int at = 0, last = -1, offset = 0;
        while (at < seq && token_buffer_at(buffer, w + (size_t)at) != PADDING) {
            int d = match(buffer, w + (size_t)at, documents, n, seq, drops, &offset);
            int length = d < 0                                ? 1
                         : documents[d].length - offset < seq ? documents[d].length - offset
                                                              : seq;
            CHECK(d >= 0 && d > last && at + length <= seq, "window %zu, place %d: document %d",
                  w / (size_t)seq, at, d);
            if (d < 0) return;
            last = d;
            seen[d][offset / seq]++;
            for (int i = 0; i < length; i++) {
                unsigned char mark = buffer->marks[w + (size_t)(at + i)];
                bool counts = i > 0 && offset + i >= documents[d].counts_from;
                CHECK(token_buffer_at(buffer, w + (size_t)(at + i)) ==
                              (uint32_t)(d * 1000 + offset + i) % PADDING &&
                          mark == (counts ? TOKEN_COUNTS : 0) + (i == 0 ? TOKEN_BEGINS : 0),
                      "document %d, token %d: mark %d", d, offset + i, mark);
            }
            at += length;
            n_tokens += length;
        }
        for (; at < seq; at++) {
            CHECK(token_buffer_at(buffer, w + (size_t)at) == PADDING &&
                      buffer->marks[w + (size_t)at] == 0,
                  "padding");
        }
    }
    CHECK(n_tokens == totals->n_tokens &&
              totals->n_tokens + totals->n_padding == (int64_t)buffer->n_tokens,
          "%lld tokens", (long long)n_tokens);
    for (int d = 0; d < n; d++) {
        for (int k = 0; k * seq < documents[d].length; k++) {
            int length = documents[d].length - k * seq, from = documents[d].counts_from - k * seq;
            if (length > seq) length = seq;
            bool kept = length > 1 && from < length && !(drops && documents[d].length > seq);
            CHECK(seen[d][k] == kept, "document %d, piece %d: %d times", d, k, seen[d][k]);
        }
    }
}

static void test_random(void) {
    check_begin("pack: documents stay whole, masks stay with them, whatever their lengths");
    Diag *diag = diag_create();
    for (int round = 0; round < 60; round++) {
        static const int SEQS[] = {2, 7, 63, 64, 65, 200};
        int seq = SEQS[round % 6], n = 1 + (int)random_below(60);
        bool drops = round % 4 == 3;
        Document documents[MOST_DOCUMENTS];
        TokenBuffer buffer = {.token_bytes = 2 + 2 * (size_t)(round % 2)}, again = buffer;
        PackTotals totals, more;
        PackOptions options = {.seq = (size_t)seq, .drops_long = drops, .padding = PADDING};
        for (int d = 0; d < n; d++) {
            documents[d].length = 1 + (int)random_below(round % 5 ? (uint32_t)seq : 120);
            documents[d].counts_from = (int)random_below((uint32_t)documents[d].length + 2);
            put_document(&buffer, d * 1000, &documents[d], diag);
            put_document(&again, d * 1000, &documents[d], diag);
        }
        bool good = pack_documents(&buffer, &options, &totals, diag);
        if (good) check_windows(&buffer, documents, n, seq, drops, &totals);
        CHECK(good == pack_documents(&again, &options, &more, diag) &&
                  (!good || (buffer.n_tokens == again.n_tokens &&
                             memcmp(buffer.tokens, again.tokens,
                                    buffer.n_tokens * buffer.token_bytes) == 0)),
              "packed otherwise the second time");
        CHECK(totals.n_documents == n, "%lld documents", (long long)totals.n_documents);
        token_buffer_release(&buffer);
        token_buffer_release(&again);
    }
    diag_destroy(diag);
}

/* Best fit, decreasing, is within 11/9 of the fewest windows and one (Johnson 1973). */
static void test_fill(void) {
    check_begin("pack: windows are as full as best fit makes them");
    Diag *diag = diag_create();
    TokenBuffer buffer = {.token_bytes = 4};
    PackTotals totals;
    enum { SEQ = 10000, PARTS = 25, WINDOWS = 40 };
    PackOptions options = {.seq = SEQ, .padding = PADDING};
    for (int w = 0; w < WINDOWS; w++) { /* documents that fill windows to the last token */
        int left = SEQ;
        for (int i = 0; i < PARTS && left > 1; i++) {
            Document document = {2 + (int)random_below(2 * SEQ / PARTS), 0};
            if (document.length > left - 2 || i + 1 == PARTS) document.length = left;
            put_document(&buffer, 0, &document, diag);
            left -= document.length;
        }
    }
    CHECK(pack_documents(&buffer, &options, &totals, diag), "%s", diag_text(diag));
    CHECK(totals.n_windows >= WINDOWS && totals.n_windows <= WINDOWS + 1, "%lld windows",
          (long long)totals.n_windows);
    token_buffer_release(&buffer);

    check_begin("pack: nothing that counts");
    put_document(&buffer, 0, &(Document){9, 9}, diag);
    CHECK(!pack_documents(&buffer, &options, &totals, diag) && totals.n_empty == 1, "packed");
    CHECK(strstr(diag_text(diag), "of 1 documents, none is left"), "%s", diag_text(diag));
    token_buffer_release(&buffer);
    diag_destroy(diag);
}

int main(void) {
    test_random();
    test_fill();
    return check_report();
}
