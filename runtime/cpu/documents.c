#include "runtime/cpu/documents.h"

#define PARALLEL_ELEMENTS 65536

void documents_find(int64_t rows, int64_t n, int64_t kept, const DimSpan *place, int32_t separator,
                    const int32_t *tokens, int32_t *starts, int32_t *places) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        int64_t start = 0, looked = 0; /* at tokens before this one */
        for (int64_t i = 0; i < kept; i++) {
            const int64_t position = span_at(place, i);
            for (; looked < position; looked++)
                if (tokens[r * n + looked] == separator) start = looked + 1;
            starts[r * kept + i] = (int32_t)start;
            places[r * kept + i] = (int32_t)(position - start);
        }
    }
}
