#include "runtime/data/embed_rows.h"

#include "ir/base/memory.h"
#include "runtime/data/dataset.h"
#include "runtime/data/mix.h"
#include "runtime/data/shuffle.h"
#include "runtime/data/token_mask.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LOOKED_AT = 256 }; /* groups beyond those that fill a window, for one without its texts */

void embed_add_totals(EmbedTotals *sum, const EmbedTotals *more) {
    sum->n_groups += more->n_groups;
    sum->n_rows += more->n_rows;
    sum->n_texts += more->n_texts;
    sum->n_tokens += more->n_tokens;
    sum->n_kept += more->n_kept;
    sum->n_cut += more->n_cut;
    sum->n_short += more->n_short;
    sum->n_torn += more->n_torn;
    sum->n_apart += more->n_apart;
    sum->n_shared += more->n_shared;
}

/* --- texts --- */

static bool is_around(const TokenBuffer *buffer, size_t i) {
    return (buffer->marks[i] & TOKEN_AROUND) != 0;
}

/* False: it has `pad` where none may be. */
static bool measure(const TokenBuffer *buffer, const EmbedRowOptions *options, size_t begin,
                    size_t next, EmbedText *out) {
    bool fine = true;
    *out = (EmbedText){.begin = begin,
                       .length = next - begin - 1,
                       .role = token_buffer_at(buffer, next - 1),
                       .hash = mix_bits(next - begin)};
    for (size_t i = begin; i < next - 1; i++) {
        const uint32_t token = token_buffer_at(buffer, i);
        const bool may_be = (options->last && i == next - 2) || buffer->marks[i] & TOKEN_COUNTS;
        fine = fine && (token != options->pad || may_be);
        out->n_around += is_around(buffer, i);
        out->hash = mix_bits(out->hash ^ token);
    }
    return fine;
}

/* A text's tokens where each may have `most`: one at least besides those around it. */
static size_t kept_length(const EmbedText *text, size_t most) {
    const size_t least = text->n_around < text->length ? text->n_around + 1 : text->length;
    return text->length <= most ? text->length : most > least ? most : least;
}

/* False: reported. */
static bool check_text(const EmbedText *text, bool fine, int64_t number,
                       const EmbedRowOptions *options, Diag *diag) {
    if (!fine) {
        diag_error(diag, NO_LOC,
                   "text %" PRId64 " has the token %" PRIu32 ", which stands behind texts: plan "
                   "with --set padding= (of decoders documents=), a token that no text has",
                   number, options->pad);
        return false;
    }
    if (kept_length(text, options->length) <= options->length) return true;
    diag_error(diag, NO_LOC,
               "text %" PRId64 ": texts of at most %zu tokens have no room for one beside the %zu "
               "around it: a larger --set embed_length= (of BERT's positions=)",
               number, options->length, text->n_around);
    return false;
}

EmbedText *embed_find_texts(const TokenBuffer *buffer, const EmbedRowOptions *options,
                            int64_t *out_count, Diag *diag) {
    size_t n_documents = 0;
    for (size_t i = 0; i < buffer->n_tokens; i++) {
        n_documents += (buffer->marks[i] & TOKEN_BEGINS) != 0;
    }
    EmbedText *texts = memory_alloc((n_documents + 1) * sizeof(*texts));
    *out_count = 0;
    for (size_t begin = 0, next; begin < buffer->n_tokens; begin = next) {
        next = begin + 1;
        while (next < buffer->n_tokens && !(buffer->marks[next] & TOKEN_BEGINS)) next++;
        if (!(buffer->marks[next - 1] & TOKEN_COUNTS)) BUG("a text without a role");
        EmbedText *text = &texts[(*out_count)++];
        const bool fine = measure(buffer, options, begin, next, text);
        if (check_text(text, fine, *out_count, options, diag)) continue;
        free(texts);
        return NULL;
    }
    if (*out_count > 0) return texts;
    diag_error(diag, NO_LOC, "there is no text");
    free(texts);
    return NULL;
}

size_t embed_take_text(const TokenBuffer *buffer, const EmbedText *text, size_t most,
                       uint32_t *out) {
    const size_t room = most > text->n_around ? most - text->n_around : 0;
    size_t n = 0, own = 0;
    for (size_t i = text->begin; i < text->begin + text->length; i++) {
        if (!is_around(buffer, i) && own++ >= room && text->length > most) continue;
        if (out) out[n] = token_buffer_at(buffer, i);
        n++;
    }
    return n;
}

/* --- windows --- */

typedef struct Grouping {
    const EmbedRowOptions *options;
    const EmbedText *texts; /* [n_groups * count] */
    int64_t n_groups;
    int64_t *order; /* [n_groups]: groups that are left, from `head` on */
    int64_t head;
    int64_t *chosen; /* [n_chosen]: of the window */
    size_t n_chosen;
} Grouping;

static const EmbedText *texts_of(const Grouping *g, int64_t group) {
    return g->texts + group * (int64_t)g->options->count;
}

/* Would a text be an answer and none, or a query have two answers of which one counts? That one is
 * no answer to either of two does no harm. */
static bool clashes(const Grouping *g, int64_t group) {
    const size_t count = g->options->count;
    const EmbedText *own = texts_of(g, group);
    for (size_t c = 0; c < g->n_chosen; c++) {
        const EmbedText *other = texts_of(g, g->chosen[c]);
        for (size_t k = 0; k < count * count; k++) {
            if (k / count >= 2 && k % count >= 2) continue;
            if (own[k / count].hash == other[k % count].hash) return true;
        }
    }
    return false;
}

/* Is a text that is to be no answer the query or its answer, too? */
static bool is_torn(const EmbedText *texts, size_t count) {
    for (size_t k = 2; k < count; k++) {
        if (texts[k].hash == texts[0].hash || texts[k].hash == texts[1].hash) return true;
    }
    return false;
}

/* Those of the next window; what is passed over stays, in its order, for the next ones. */
static void choose(Grouping *g) {
    const int64_t left = g->n_groups - g->head;
    const int64_t most = (int64_t)g->options->groups + LOOKED_AT;
    const int64_t looked = left < most ? left : most;
    int64_t kept[LOOKED_AT], at = 0;
    size_t n_kept = 0;
    g->n_chosen = 0;
    for (; at < looked && g->n_chosen < g->options->groups && n_kept < LOOKED_AT; at++) {
        const int64_t group = g->order[g->head + at];
        if (clashes(g, group)) {
            kept[n_kept++] = group;
        } else {
            g->chosen[g->n_chosen++] = group;
        }
    }
    g->head += at - (int64_t)n_kept;
    for (size_t i = 0; i < n_kept; i++) g->order[g->head + (int64_t)i] = kept[i];
}

static size_t row_length(const Grouping *g, size_t most) {
    size_t sum = g->n_chosen * g->options->count; /* what is behind each */
    for (size_t c = 0; c < g->n_chosen; c++) {
        for (size_t k = 0; k < g->options->count; k++) {
            sum += kept_length(texts_of(g, g->chosen[c]) + k, most);
        }
    }
    return sum;
}

/* The most tokens that each of the chosen may have; there is room for the least of all. */
static size_t find_most(const Grouping *g) {
    const EmbedRowOptions *options = g->options;
    size_t low = 1, high = options->length;
    if (row_length(g, high) <= options->seq) return high;
    while (low + 1 < high) {
        const size_t middle = low + (high - low) / 2;
        *(row_length(g, middle) <= options->seq ? &low : &high) = middle;
    }
    return low;
}

/* tokens, marks [seq] */
static void make_row(const Grouping *g, const TokenBuffer *from, size_t most, uint32_t *tokens,
                     unsigned char *marks, EmbedTotals *out) {
    const EmbedRowOptions *options = g->options;
    size_t at = 0;
    memset(marks, 0, options->seq);
    for (size_t c = 0; c < g->n_chosen; c++) {
        for (size_t k = 0; k < options->count; k++) {
            const EmbedText *text = texts_of(g, g->chosen[c]) + k;
            const size_t n = embed_take_text(from, text, kept_length(text, most), tokens + at);
            marks[at] |= TOKEN_BEGINS;
            marks[at + n] |= TOKEN_COUNTS;
            tokens[at + n] = (uint32_t)(k * options->groups + c);
            at += n + 1;
            out->n_tokens += (int64_t)text->length;
            out->n_kept += (int64_t)n;
            out->n_cut += n < text->length;
        }
    }
    for (; at < options->seq; at++) tokens[at] = options->pad;
}

/* Divides the groups in `order` among windows: groups as they then follow each other, and where
 * each window's end. Returns how many windows there are. */
static int64_t divide(const EmbedPool *pool, int64_t *order, int64_t *groups, int64_t *ends) {
    Grouping g = {.options = &pool->options,
                  .texts = pool->texts,
                  .n_groups = pool->n_groups,
                  .order = order};
    int64_t n = 0, at = 0;
    while (g.head < g.n_groups) {
        g.chosen = groups + at;
        choose(&g);
        at += (int64_t)g.n_chosen;
        ends[n++] = at;
    }
    return n;
}

/* Window `row` of those: its tokens and marks. */
static void make_window(const EmbedPool *pool, int64_t *groups, const int64_t *ends, int64_t row,
                        EmbedTotals *out) {
    const int64_t first = row > 0 ? ends[row - 1] : 0;
    const Grouping g = {.options = &pool->options,
                        .texts = pool->texts,
                        .chosen = groups + first,
                        .n_chosen = (size_t)(ends[row] - first)};
    make_row(&g, &pool->buffer, find_most(&g), pool->tokens, pool->marks, out);
    out->n_rows++;
    out->n_short += g.n_chosen < pool->options.groups;
}

/* Is there room for the shortest that any texts can be made? False: reported. */
static bool check_room(const EmbedPool *pool, int64_t n_texts, Diag *diag) {
    const EmbedRowOptions *options = &pool->options;
    size_t least = 1;
    for (int64_t i = 0; i < n_texts; i++) {
        const size_t own = kept_length(&pool->texts[i], 1);
        least = own > least ? own : least;
    }
    if (least + 1 <= options->seq / (options->groups * options->count)) return true;
    diag_error(diag, NO_LOC,
               "rows of %zu tokens have no room for %zu groups of %zu texts, with a token of each "
               "beside those around it and one behind: plan with a larger --set seq=, or a smaller "
               "--set embed_group=",
               options->seq, options->groups, options->count);
    return false;
}

static void create_pool(EmbedPool *pool, int64_t n_texts) {
    const size_t seq = pool->options.seq;
    pool->n_groups = n_texts / (int64_t)pool->options.count;
    const size_t bytes = ((size_t)pool->n_groups + 1) * sizeof(int64_t);
    pool->groups = memory_alloc(bytes);
    pool->row_ends = memory_alloc(bytes);
    pool->epoch_groups = memory_alloc(bytes);
    pool->epoch_ends = memory_alloc(bytes);
    pool->marks = memory_alloc(seq);
    pool->tokens = memory_alloc(seq * sizeof(*pool->tokens));
    pool->epoch = -1;
}

bool embed_rows(TokenBuffer *buffer, const EmbedRowOptions *options, EmbedPool *pool,
                EmbedTotals *out, Diag *diag) {
    int64_t n_texts;
    TokenBuffer windows = {.token_bytes = buffer->token_bytes};
    *out = (EmbedTotals){0};
    *pool = (EmbedPool){.options = *options, .buffer = *buffer};
    *buffer = windows;
    pool->texts = embed_find_texts(&pool->buffer, options, &n_texts, diag);
    if (!pool->texts || !check_room(pool, n_texts, diag)) return false;
    for (int64_t i = 0; i < n_texts; i++) {
        if (pool->texts[i].role != (uint64_t)i % options->count) BUG("roles out of order");
    }
    create_pool(pool, n_texts);
    for (int64_t i = 0; i < pool->n_groups; i++) {
        pool->epoch_groups[i] = shuffle_pick(pool->n_groups, 0, i);
        out->n_torn += is_torn(pool->texts + i * (int64_t)options->count, options->count);
    }
    pool->n_rows = divide(pool, pool->epoch_groups, pool->groups, pool->row_ends);
    bool good = true;
    for (int64_t row = 0; good && row < pool->n_rows; row++) {
        make_window(pool, pool->groups, pool->row_ends, row, out);
        good = token_buffer_put(buffer, pool->tokens, pool->marks, options->seq, diag);
    }
    out->n_groups = pool->n_groups;
    out->n_texts = n_texts;
    return good;
}

void embed_release(EmbedPool *pool) {
    token_buffer_release(&pool->buffer);
    free(pool->texts);
    free(pool->groups);
    free(pool->row_ends);
    free(pool->epoch_groups);
    free(pool->epoch_ends);
    free(pool->marks);
    free(pool->tokens);
    *pool = (EmbedPool){0};
}

static int by_number(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* The query (which 0) or its answer (1) of a group of the rows. */
static const uint64_t *hash_of(const EmbedPool *pool, int64_t group, int which) {
    return &pool->texts[pool->groups[group] * (int64_t)pool->options.count + which].hash;
}

/* Of the groups from `first` on: those whose query or answer is one of a group before. */
static int64_t count_shared(const EmbedPool *pool, int64_t first) {
    uint64_t *known = memory_alloc((size_t)(2 * first + 1) * sizeof(*known));
    int64_t n = 0;
    for (int64_t i = 0; i < 2 * first; i++) known[i] = *hash_of(pool, i / 2, (int)(i % 2));
    qsort(known, (size_t)(2 * first), sizeof(*known), by_number);
    for (int64_t i = first; i < pool->n_groups; i++) {
        bool shared = false;
        for (int k = 0; k < 2; k++) {
            shared |= bsearch(hash_of(pool, i, k), known, (size_t)(2 * first), sizeof(*known),
                              by_number) != NULL;
        }
        n += shared;
    }
    free(known);
    return n;
}

void embed_use_rows(EmbedPool *pool, int64_t n_rows, EmbedTotals *out) {
    if (n_rows < 1 || n_rows > pool->n_rows) BUG("%" PRId64 " rows", n_rows);
    out->n_apart += pool->n_groups - pool->row_ends[n_rows - 1];
    out->n_shared += count_shared(pool, pool->row_ends[n_rows - 1]);
    pool->n_rows = n_rows;
    pool->n_groups = pool->row_ends[n_rows - 1];
    pool->epoch = -1;
}

static void begin_epoch(EmbedPool *pool, uint64_t seed, int64_t epoch) {
    const int64_t n = pool->n_groups;
    int64_t *order = memory_alloc(((size_t)n + 1) * sizeof(*order));
    for (int64_t i = 0; i < n; i++) {
        order[i] = pool->groups[shuffle_pick(n, seed, epoch * n + i)];
    }
    pool->n_epoch_rows = divide(pool, order, pool->epoch_groups, pool->epoch_ends);
    pool->epoch = epoch;
    free(order);
}

void embed_epoch_row(EmbedPool *pool, uint64_t seed, int64_t epoch, int64_t row, int32_t *tokens,
                     int32_t *labels) {
    const int64_t seq = (int64_t)pool->options.seq;
    EmbedTotals unused = {0};
    if (epoch != pool->epoch) begin_epoch(pool, seed, epoch);
    /* There may be a row more or less, by what clashes. */
    make_window(pool, pool->epoch_groups, pool->epoch_ends, row % pool->n_epoch_rows, &unused);
    for (int64_t i = 0; i < seq; i++) {
        const bool counts = i + 1 < seq && pool->marks[i + 1] & TOKEN_COUNTS;
        tokens[i] = (int32_t)pool->tokens[i];
        labels[i] = counts ? (int32_t)pool->tokens[i + 1] : DATASET_NO_LABEL;
    }
}
