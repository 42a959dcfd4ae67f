/* What a mistyped name may have meant. */
#ifndef FRONTEND_NEAREST_H
#define FRONTEND_NEAREST_H

/* The nearest of names by edit distance, or NULL when none is near; names ends with NULL. */
const char *nearest_name(const char *text, const char *const *names);

#endif
