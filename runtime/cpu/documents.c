#include "runtime/cpu/documents.h"

#define PARALLEL_ELEMENTS 65536

void documents_find(int64_t rows, int64_t n, int32_t separator, const int32_t *tokens,
                    int32_t *starts, int32_t *places) {
#pragma omp parallel for schedule(static) if (rows * n > PARALLEL_ELEMENTS)
    for (int64_t r = 0; r < rows; r++) {
        int32_t start = 0;
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = r * n + i;
            starts[at] = start;
            places[at] = (int32_t)i - start;
            if (tokens[at] == separator) start = (int32_t)i + 1;
        }
    }
}
