/* A folder of data: its files in the order of their names. Those whose names begin with a dot, and
 * folders in it, are passed over. */
#ifndef RUNTIME_DATA_FOLDER_H
#define RUNTIME_DATA_FOLDER_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

/* Their paths, and how many. -1: none, or it cannot be read; reported. */
int folder_list(Arena *arena, const char *path, const char ***out, Diag *diag);

#endif
