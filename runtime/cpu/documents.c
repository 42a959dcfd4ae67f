#include "runtime/cpu/documents.h"

#include "ir/ngram.h"

#define PARALLEL_ELEMENTS 65536

void documents_find(const DocumentsShape *s, const int32_t *tokens, int32_t *starts,
                    int32_t *places) {
#pragma omp parallel for schedule(static) if (s->rows * s->n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < s->rows; r++) {
        const int32_t *row = tokens + r * s->n;
        int64_t start = 0, looked = 0; /* at tokens before this one */
        for (int64_t i = 0; i < s->kept; i++) {
            const int64_t position = span_at(&s->place, i), at = r * s->kept + i;
            for (; looked < position; looked++)
                if (row[looked] == s->separator) start = looked + 1;
            const bool alone = s->apart && row[position] == s->separator;
            starts[at] = (int32_t)(alone ? position : start);
            places[at] = (int32_t)(position - starts[at]);
        }
    }
}

void documents_find_ends(const DocumentsShape *s, const int32_t *tokens, int32_t *ends) {
#pragma omp parallel for schedule(static) if (s->rows * s->n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < s->rows; r++) {
        const int32_t *row = tokens + r * s->n;
        int64_t end = s->n, looked = end; /* at tokens from this one on */
        for (int64_t i = s->kept - 1; i >= 0; i--) {
            const int64_t position = span_at(&s->place, i);
            for (; looked > position + 1; looked--)
                if (row[looked - 1] == s->separator) end = s->apart ? looked - 1 : looked;
            const bool last = row[position] == s->separator;
            ends[r * s->kept + i] = (int32_t)(last ? position + 1 : end);
        }
    }
}

void documents_hash(const DocumentsShape *s, const NgramRule *rule, const int32_t *tokens,
                    int32_t *hashes) {
#pragma omp parallel for schedule(static) if (s->rows * s->n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < s->kept; i++) {
            hashes[r * s->kept + i] = ngram_hash(tokens + r * s->n, span_at(&s->place, i), rule->by,
                                                 s->separator, rule->seed, rule->count);
        }
    }
}

void documents_count(const DocumentsShape *s, const int32_t *tokens, int32_t *numbers) {
#pragma omp parallel for schedule(static) if (s->rows * s->n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < s->rows; r++) {
        const int32_t *row = tokens + r * s->n;
        int64_t looked = 0; /* at tokens before this one */
        int32_t count = 0;
        for (int64_t i = 0; i < s->kept; i++) {
            const int64_t position = span_at(&s->place, i);
            for (; looked < position; looked++) count += row[looked] == s->separator;
            numbers[r * s->kept + i] = row[position] == s->separator ? count : -1;
        }
    }
}
