#include "ir/teacher.h"

#include <ctype.h>
#include <string.h>

enum { MOST_DIGITS = 6 };

static const char *after(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

const char *teacher_own_name(const char *name) {
    return after(name, TEACHER_PARAMS);
}

const char *teacher_axis_name(const char *axis) {
    const char *own = after(axis, TEACHER_AXES);
    return own ? own : axis;
}

/* Of the text behind '#'; *out_end: behind what says it. */
static int read_before(const char *text, const char **out_end) {
    int before = 0, n = 0;
    *out_end = text;
    if (*text != '-') return 0;
    for (text++; n < MOST_DIGITS && isdigit((unsigned char)text[n]); n++) {
        before = 10 * before + (text[n] - '0');
    }
    if (n > 0) *out_end = text + n;
    return before;
}

const char *name_of_block(const char *name, int block, Arena *arena) {
    const char *mark = strchr(name, '#'), *rest;
    if (!mark) return name;
    int before = read_before(mark + 1, &rest);
    return arena_printf(arena, "%.*s%d%s", (int)(mark - name), name, block - before, rest);
}

int name_blocks_before(const char *name) {
    const char *mark = strchr(name, '#'), *rest;
    return mark ? read_before(mark + 1, &rest) : 0;
}
