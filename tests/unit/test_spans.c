/* What an encoder and a decoder are given: spans that are hidden, and prompts with completions.
 *
 * Catches: lengths other than T5's; a token that is lost, doubled or moved by hiding it; spans in
 * the same places in every sample, or some places never hidden; a decoder that sees what it is to
 * say; a prompt in the completion, an end that is missing or there twice, a cut that nobody is
 * told.
 */
#include "runtime/data/spans.h"

#include "runtime/data/dataset.h"
#include "runtime/data/pairs.h"
#include "runtime/data/token_mask.h"
#include "tests/unit/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { START = 0, EOS = 1, PAD = 2, SENTINEL = 999, SOURCE = 64, SEQ = 20, FIRST = 100 };

/* From the function of T5's preprocessors that finds them (seqio, random_spans_helper). */
static void check_sizes(void) {
    static const struct {
        double rate, mean;
        int64_t length, window, source, target;
    } CASES[] = {{0.15, 3, 512, 568, 512, 114}, {0.15, 3, 128, 141, 128, 29},
                 {0.3, 5, 256, 336, 256, 122},  {0.15, 3, 1024, 1137, 1024, 229},
                 {0.5, 8, 64, 112, 64, 64},     {0.15, 10, 100, 114, 100, 20}};
    check_begin("as many tokens as fit the encoder");
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        Spans spans = {.rate = CASES[i].rate, .mean = CASES[i].mean, .source = CASES[i].length};
        SpanSizes sizes = {0};
        CHECK(span_sizes(&spans, &sizes), "none fit %d", (int)CASES[i].length);
        CHECK(sizes.window == CASES[i].window && sizes.source == CASES[i].source &&
                  sizes.target == CASES[i].target,
              "%d: %d make %d and %d", (int)CASES[i].length, (int)sizes.window, (int)sizes.source,
              (int)sizes.target);
    }
    Spans small = {.rate = 0.15, .mean = 3, .source = 2}, odd = {.rate = 0.999999, .mean = 1e6};
    SpanSizes sizes;
    odd.source = 100;
    CHECK(!span_sizes(&small, &sizes), "two positions hold %d tokens", (int)sizes.window);
    CHECK(span_sizes(&odd, &sizes) && sizes.source <= 100, "all but nothing hidden");
    check_end();
}

static Spans small_spans(void) {
    return (Spans){.rate = 0.15,
                   .mean = 3,
                   .sentinel = SENTINEL,
                   .start = START,
                   .eos = EOS,
                   .pad = PAD,
                   .source = SOURCE,
                   .seq = SEQ};
}

/* Puts the text together again: what follows sentinel k in the target belongs in its place. False:
 * they do not fit. */
static bool restore(const int32_t *source, int64_t n_source, const int32_t *target,
                    int64_t n_target, int32_t *out, int64_t *out_n, int *out_spans) {
    int64_t n = 0, t = 0;
    int spans = 0;
    for (int64_t s = 0; s + 1 < n_source; s++) {
        if (source[s] != SENTINEL - spans) {
            out[n++] = source[s];
            continue;
        }
        if (target[t++] != SENTINEL - spans) return false;
        if (target[t] >= FIRST + 500) return false; /* an empty span */
        while (t < n_target && target[t] != EOS && target[t] != SENTINEL - spans - 1) {
            out[n++] = target[t++];
        }
        spans++;
    }
    *out_n = n;
    *out_spans = spans;
    return source[n_source - 1] == EOS && target[t] == EOS && t + 1 == n_target;
}

static void check_corruption(void) {
    enum { SAMPLES = 2000 };
    const Spans spans = small_spans();
    SpanSizes sizes;
    int32_t window[SOURCE + SEQ], source[SOURCE], tokens[SEQ], labels[SEQ], text[2 * SOURCE];
    int hidden[SOURCE + SEQ] = {0}, n_spans = 0;
    int64_t n = 0;
    check_begin("a text is what is seen and what is said");
    CHECK(span_sizes(&spans, &sizes) && sizes.target <= SEQ, "%d", (int)sizes.target);
    for (int64_t i = 0; i < sizes.window; i++) window[i] = FIRST + (int32_t)i;
    for (uint64_t key = 0; key < SAMPLES; key++) {
        span_corrupt(&spans, &sizes, key, window, source, tokens, labels);
        bool whole = restore(source, sizes.source, labels, sizes.target, text, &n, &n_spans);
        CHECK(whole && n == sizes.window && n_spans == sizes.spans &&
                  memcmp(text, window, (size_t)n * sizeof(int32_t)) == 0,
              "sample %d is another text", (int)key);
        for (int64_t i = sizes.source; i < SOURCE; i++) CHECK(source[i] == PAD, "no padding");
        for (int64_t i = 0; i < SEQ; i++) {
            int32_t before = i == 0 ? START : i < sizes.target ? labels[i - 1] : PAD;
            CHECK(tokens[i] == before, "token %d is %d, not %d", (int)i, tokens[i], before);
            if (i >= sizes.target) CHECK(labels[i] == DATASET_NO_LABEL, "a label behind the end");
            if (labels[i] >= FIRST && labels[i] < FIRST + 500) hidden[labels[i] - FIRST]++;
        }
    }
    /* The first token is always seen; of the others none is far from its share (three spans in
     * three runs of like lengths prefer some places). */
    CHECK(hidden[0] == 0, "the first token is hidden %d times", hidden[0]);
    double share = 0.15 * SAMPLES;
    for (int64_t i = 12; i < sizes.window - 12; i++) {
        CHECK(hidden[i] > 0.3 * share && hidden[i] < 2.5 * share, "token %d is hidden %d times",
              (int)i, hidden[i]);
    }
    check_end();
}

/* --- pairs --- */

static void put(TokenBuffer *buffer, const char *text) {
    for (const char *c = text; *c; c++) {
        uint32_t token = *c == '.' ? EOS : (uint32_t)*c;
        bool begins = c > text && c[-1] == '|';
        if (*c == '|') continue;
        unsigned char marks = (unsigned char)((*c == '.' || (*c >= 'A' && *c <= 'Z') ? 1 : 0) |
                                              (begins ? TOKEN_BEGINS : 0));
        CHECK(token_buffer_put(buffer, &token, &marks, 1, NULL), "no memory");
    }
}

/* A window as text: '.' the end, '_' padding; capital where it counts. */
static void check_window(const TokenBuffer *buffer, size_t window, const char *expected) {
    size_t row = strlen(expected);
    for (size_t i = 0; i < row; i++) {
        uint32_t token = token_buffer_at(buffer, window * row + i);
        char c = token == EOS ? '.' : token == PAD ? '_' : (char)token;
        bool counts = buffer->marks[window * row + i] & TOKEN_COUNTS;
        bool should = i >= 6 && expected[i] != '_';
        CHECK(c == expected[i] && counts == should, "window %d has '%c' at %d, not '%c'%s",
              (int)window, c, (int)i, expected[i], counts == should ? "" : "; it counts otherwise");
    }
}

static void check_pairs(void) {
    const PairOptions options = {.source = 6, .seq = 4, .eos = EOS, .pad = PAD};
    TokenBuffer buffer = {.token_bytes = 2};
    PairTotals totals;
    Diag *diag = diag_create();
    check_begin("prompts and completions have a window each");
    /* one; a conversation, of which the last answer counts, and too long; too long; nothing asked;
     * nothing said; an end that does not count follows */
    put(&buffer, "|abAB.|abABcdC.|abcdefghABCDEF.|ABC.|abc|aA.c");
    CHECK(pair_documents(&buffer, &options, &totals, diag), "%s", diag_text(diag));
    CHECK(totals.n_pairs == 4 && totals.n_left_out == 2 && totals.n_cut == 2,
          "%d pairs, %d left out, %d cut", (int)totals.n_pairs, (int)totals.n_left_out,
          (int)totals.n_cut);
    CHECK(buffer.n_tokens == 40, "%d tokens", (int)buffer.n_tokens);
    check_window(&buffer, 0, "ab.___AB._");
    check_window(&buffer, 1, "abABc.C.__");
    check_window(&buffer, 2, "abcde.ABC.");
    check_window(&buffer, 3, "a.____A.__");
    token_buffer_release(&buffer);
    put(&buffer, "|abc|ABC.");
    CHECK(!pair_documents(&buffer, &options, &totals, diag) &&
              strstr(diag_text(diag), "no prompt with a completion among 2 documents"),
          "%s", diag_text(diag));
    token_buffer_release(&buffer);
    diag_destroy(diag);
    check_end();
}

int main(void) {
    check_sizes();
    check_corruption();
    check_pairs();
    return check_report();
}
