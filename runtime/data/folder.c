#include "runtime/data/folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int compare_names(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int folder_list(Arena *arena, const char *path, const char ***out, Diag *diag) {
    DIR *folder = opendir(path);
    const char **names = NULL;
    int count = 0, capacity = 0;
    struct stat st;
    if (!folder) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be read: %s", strerror(errno));
        return -1;
    }
    bool good = true;
    errno = 0;
    for (struct dirent *entry; good && (entry = readdir(folder)); errno = 0) {
        const char *name = arena_printf(arena, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] == '.') continue;
        good = stat(name, &st) == 0;
        if (!good) diag_error(diag, (SourceLoc){name, 0}, "cannot be read: %s", strerror(errno));
        if (!good || !S_ISREG(st.st_mode)) continue;
        if (count == capacity) {
            const char **more = ARENA_ARRAY(arena, const char *, 2 * capacity + 16);
            if (count) memcpy(more, names, (size_t)count * sizeof(*more));
            names = more;
            capacity = 2 * capacity + 16;
        }
        names[count++] = name;
    }
    if (good && errno) {
        diag_error(diag, (SourceLoc){path, 0}, "cannot be listed: %s", strerror(errno));
        good = false;
    }
    closedir(folder);
    if (!good) return -1;
    if (count) qsort(names, (size_t)count, sizeof(*names), compare_names);
    if (!count) diag_error(diag, (SourceLoc){path, 0}, "is a folder without files");
    *out = names;
    return count ? count : -1;
}
