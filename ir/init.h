/* How a parameter begins: what its attribute `init` says. */
#ifndef IR_INIT_H
#define IR_INIT_H

#include <stddef.h>
#include <string.h>

/* The name as a constant; NULL: there is none. */
static inline const char *init_find(const char *text) {
    static const char *const INITS[] = {"normal", "uniform", "range", "zeros", "ones"};
    for (size_t i = 0; i < sizeof(INITS) / sizeof(INITS[0]); i++) {
        if (strcmp(INITS[i], text) == 0) return INITS[i];
    }
    return NULL;
}

#endif
