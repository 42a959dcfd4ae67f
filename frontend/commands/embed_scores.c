#include "frontend/commands/embed_scores.h"

#include "ir/base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NEAREST = 10 };

static float dot(const float *a, const float *b, int64_t width) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t k = 0; k < width; k++) sum += a[k] * b[k];
    return sum;
}

/* --- retrieval --- */

typedef struct Known {
    uint64_t hash;
    int64_t text;
} Known;

static int by_hash(const void *a, const void *b) {
    const Known *x = a, *y = b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->text < y->text ? -1 : x->text > y->text;
}

static bool is_answer(uint32_t role) {
    return role >= 1 && role <= CORPUS_TEXT;
}

/* The first of each of the different texts, in the order of the hashes. */
static Known *list(const EmbedSource *s, bool (*is)(uint32_t role), int64_t *out_count) {
    Known *known = memory_alloc((size_t)(s->n_texts + 1) * sizeof(*known));
    int64_t n = 0, n_kept = 0;
    for (int64_t i = 0; i < s->n_texts; i++) {
        if (is(s->texts[i].role)) known[n++] = (Known){s->texts[i].hash, i};
    }
    qsort(known, (size_t)n, sizeof(*known), by_hash);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || known[i].hash != known[i - 1].hash) known[n_kept++] = known[i];
    }
    *out_count = n_kept;
    return known;
}

static int64_t find(const Known *known, int64_t n, uint64_t hash) {
    int64_t low = 0, high = n;
    while (low + 1 < high) {
        const int64_t middle = low + (high - low) / 2;
        *(known[middle].hash <= hash ? &low : &high) = middle;
    }
    return low;
}

typedef struct Pair {
    uint64_t query;
    int64_t query_text, answer; /* of the source; of the answers */
} Pair;

static int by_query(const void *a, const void *b) {
    const Pair *x = a, *y = b;
    if (x->query != y->query) return x->query < y->query ? -1 : 1;
    return x->answer < y->answer ? -1 : x->answer > y->answer;
}

/* Queries with each of their different answers, those of a query one behind the other. */
static Pair *list_pairs(const EmbedSource *s, const Known *answers, int64_t n_answers,
                        int64_t *out_count) {
    Pair *pairs = memory_alloc((size_t)(s->n_texts + 1) * sizeof(*pairs));
    int64_t n = 0, n_kept = 0;
    for (int64_t i = 0; i + 1 < s->n_texts; i++) {
        if (s->texts[i].role != 0) continue; /* behind it is its answer */
        pairs[n++] = (Pair){s->texts[i].hash, i, find(answers, n_answers, s->texts[i + 1].hash)};
    }
    qsort(pairs, (size_t)n, sizeof(*pairs), by_query);
    for (int64_t i = 0; i < n; i++) {
        const bool again =
            i > 0 && pairs[i].query == pairs[i - 1].query && pairs[i].answer == pairs[i - 1].answer;
        if (!again) pairs[n_kept++] = pairs[i];
    }
    *out_count = n_kept;
    return pairs;
}

/* Of one query, whose pairs these are; scores [n_answers]. */
static void add_query(EmbedSource *to, const Pair *pairs, int64_t n, const float *scores,
                      int64_t n_answers) {
    int64_t first = NEAREST, n_found = 0;
    double gain = 0, most = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t own = pairs[k].answer;
        int64_t rank = 0;
        for (int64_t j = 0; j < n_answers; j++) {
            rank += j != own && scores[j] >= scores[own];
        }
        if (k < NEAREST) most += 1 / log2((double)k + 2);
        if (rank >= NEAREST) continue;
        n_found++;
        gain += 1 / log2((double)rank + 2);
        if (rank < first) first = rank;
    }
    to->n_queries++;
    to->first_right += first == 0;
    to->recall += (double)n_found / (double)n;
    to->reciprocal_rank += first < NEAREST ? 1 / (double)(first + 1) : 0;
    to->gain += gain / most;
}

void embed_scores_retrieval(EmbedSource *s, int64_t width) {
    int64_t n_answers, n_pairs;
    Known *answers = list(s, is_answer, &n_answers);
    Pair *pairs = list_pairs(s, answers, n_answers, &n_pairs);
    float *scores = memory_alloc((size_t)(n_answers + 1) * sizeof(*scores));
    s->n_answers = n_answers;
    for (int64_t first = 0, next; first < n_pairs; first = next) {
        const float *query = s->vectors + pairs[first].query_text * width;
        next = first + 1;
        while (next < n_pairs && pairs[next].query == pairs[first].query) next++;
#pragma omp parallel for schedule(static)
        for (int64_t j = 0; j < n_answers; j++) {
            scores[j] = dot(query, s->vectors + answers[j].text * width, width);
        }
        add_query(s, pairs + first, next - first, scores, n_answers);
    }
    const double n = s->n_queries > 0 ? (double)s->n_queries : 1;
    s->first_right /= n;
    s->recall /= n;
    s->reciprocal_rank /= n;
    s->gain /= n;
    free(scores);
    free(pairs);
    free(answers);
}

/* --- scored pairs --- */

typedef struct Ranked {
    double value;
    int64_t index;
} Ranked;

static int by_value(const void *a, const void *b) {
    const double x = ((const Ranked *)a)->value, y = ((const Ranked *)b)->value;
    return x < y ? -1 : x > y;
}

static double *ranks_of(const double *x, int64_t n) {
    Ranked *sorted = memory_alloc((size_t)n * sizeof(*sorted));
    double *ranks = memory_alloc((size_t)n * sizeof(*ranks));
    for (int64_t i = 0; i < n; i++) sorted[i] = (Ranked){x[i], i};
    qsort(sorted, (size_t)n, sizeof(*sorted), by_value);
    for (int64_t first = 0, next; first < n; first = next) {
        next = first + 1;
        while (next < n && sorted[next].value == sorted[first].value) next++;
        for (int64_t i = first; i < next; i++) {
            ranks[sorted[i].index] = (double)(first + next - 1) / 2;
        }
    }
    free(sorted);
    return ranks;
}

double embed_correlation(const double *a, const double *b, int64_t n, bool of_ranks) {
    if (of_ranks) {
        double *x = ranks_of(a, n), *y = ranks_of(b, n);
        const double of = embed_correlation(x, y, n, false);
        free(x);
        free(y);
        return of;
    }
    double mean_a = 0, mean_b = 0, ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) {
        mean_a += a[i] / (double)n;
        mean_b += b[i] / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        ab += (a[i] - mean_a) * (b[i] - mean_b);
        aa += (a[i] - mean_a) * (a[i] - mean_a);
        bb += (b[i] - mean_b) * (b[i] - mean_b);
    }
    return aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

void embed_scores_likeness(EmbedSource *s, int64_t width) {
    double *cosines = memory_alloc((size_t)(s->n_texts + 1) * sizeof(*cosines));
    double *likeness = memory_alloc((size_t)(s->n_texts + 1) * sizeof(*likeness));
    s->n_pairs = 0;
    for (int64_t i = 1; i + 1 < s->n_texts; i++) { /* between two texts */
        float score;
        if (s->texts[i].role != CORPUS_LIKENESS) continue;
        const uint32_t bits = token_buffer_at(&s->buffer, s->texts[i].begin);
        memcpy(&score, &bits, sizeof(score));
        cosines[s->n_pairs] =
            (double)dot(s->vectors + (i - 1) * width, s->vectors + (i + 1) * width, width);
        likeness[s->n_pairs++] = (double)score;
    }
    if (s->n_pairs > 0) {
        s->spearman = embed_correlation(cosines, likeness, s->n_pairs, true);
        s->pearson = embed_correlation(cosines, likeness, s->n_pairs, false);
    }
    free(cosines);
    free(likeness);
}
