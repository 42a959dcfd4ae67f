#include "frontend/json_lines.h"

#include "ir/base/file.h"
#include "ir/base/json.h"

#include <limits.h>
#include <string.h>

static int count_lines(const FileMap *map) {
    int n = 0;
    for (size_t i = 0; i < map->length_bytes; i++) n += map->data[i] == '\n';
    return n + (map->length_bytes > 0 && map->data[map->length_bytes - 1] != '\n');
}

static bool is_blank(const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (!strchr(" \t\r", text[i]) || !text[i]) return false;
    }
    return true;
}

/* With fewer lines than an int counts. An empty file has no address. */
static bool check_size(const FileMap *map, const char *path, Diag *diag) {
    if (map->length_bytes < INT_MAX) return true;
    diag_error(diag, (SourceLoc){path, 0}, "has %zu bytes; fewer than %d are read here",
               map->length_bytes, INT_MAX);
    return false;
}

bool json_lines_each(const char *path, JsonLineFn *each, void *user, Diag *diag) {
    FileMap map;
    if (!file_map(path, &map, diag)) return false;
    bool good = check_size(&map, path, diag);
    if (!good || map.length_bytes == 0) {
        file_unmap(&map);
        return good;
    }
    const char *text = (const char *)map.data, *end = text + map.length_bytes;
    int n_lines = count_lines(&map);
    for (int line = 1; good && text < end; line++) {
        const char *next = memchr(text, '\n', (size_t)(end - text));
        size_t length = (size_t)((next ? next : end) - text);
        if (!is_blank(text, length)) {
            char where[512];
            snprintf(where, sizeof(where), "%s:%d", path, line);
            json_t *object = json_parse_bytes(where, text, length, diag);
            good = object && each(user, object, (SourceLoc){path, line}, n_lines);
            json_decref(object);
        }
        text += length + 1;
    }
    file_unmap(&map);
    return good;
}
