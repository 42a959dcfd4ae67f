/* Where the documents of packed sequences begin. */
#ifndef RUNTIME_CPU_DOCUMENTS_H
#define RUNTIME_CPU_DOCUMENTS_H

#include "ir/type.h"

/* tokens [rows, n]; starts, places [rows, kept], of the positions in `place`, which are less than
 * n. A row begins a document, and so does what follows a separator, which is its document's last
 * token. starts: the position at which a position's document begins; places: how far the position
 * is from there. */
void documents_find(int64_t rows, int64_t n, int64_t kept, const DimSpan *place, int32_t separator,
                    const int32_t *tokens, int32_t *starts, int32_t *places);

#endif
