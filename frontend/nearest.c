#include "frontend/nearest.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Edits (insert, delete, replace, swap neighbours) from a to b; both are cut to 31 characters. */
static int edit_distance(const char *a, const char *b) {
    enum { LONGEST = 31 };
    int n = (int)strnlen(a, LONGEST), m = (int)strnlen(b, LONGEST);
    int rows[LONGEST + 1][LONGEST + 1];
    for (int i = 0; i <= n; i++) rows[i][0] = i;
    for (int j = 0; j <= m; j++) rows[0][j] = j;
    for (int i = 1; i <= n; i++) {
        for (int j = 1; j <= m; j++) {
            int best = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (rows[i - 1][j] + 1 < best) best = rows[i - 1][j] + 1;
            if (rows[i][j - 1] + 1 < best) best = rows[i][j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && rows[i - 2][j - 2] + 1 < best) best = rows[i - 2][j - 2] + 1;
            rows[i][j] = best;
        }
    }
    return rows[n][m];
}

const char *nearest_name(const char *text, const char *const *names) {
    const char *nearest = NULL;
    int best = 1 + (int)strlen(text) / 3; /* a third of it wrong is still a slip */
    for (; *names; names++) {
        int distance = edit_distance(text, *names);
        if (distance < best || (distance == best && !nearest)) {
            best = distance;
            nearest = *names;
        }
    }
    return nearest;
}
