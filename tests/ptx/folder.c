#include "tests/ptx/folder.h"

#include "ir/base/file.h"
#include "tests/ptx/ptx.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILE_BYTES = 64 << 20 };

static pthread_mutex_t launching = PTHREAD_MUTEX_INITIALIZER;
static Arena *arena; /* for the whole program */
static PtxModule *module;

const char *ptx_folder(void) {
    return getenv("PERILUNE_TEST_PTX");
}

static bool read_folder(const char *folder, Diag *diag) {
    DIR *dir = opendir(folder);
    if (!dir) {
        diag_error(diag, (SourceLoc){folder, 0}, "cannot be read");
        return false;
    }
    bool good = true;
    arena = arena_create();
    module = ptx_module_create(arena);
    for (struct dirent *entry; good && (entry = readdir(dir));) {
        const char *end = strrchr(entry->d_name, '.');
        if (!end || strcmp(end, ".ptx") != 0) continue;
        const char *path = arena_printf(arena, "%s/%s", folder, entry->d_name);
        const char *text = file_read(arena, path, MOST_FILE_BYTES, NULL, diag);
        if (text) ptx_module_add(module, path, text);
        good = text != NULL;
    }
    closedir(dir);
    return good;
}

const char *ptx_folder_launch(const char *kernel, const uint32_t grid[3], int threads,
                              int shared_bytes, const void *args, size_t args_bytes,
                              unsigned order) {
    static char why[512];
    Diag *diag = diag_create();
    pthread_mutex_lock(&launching);
    why[0] = '\0';
    PtxLaunch launch = {.grid = {grid[0], grid[1], grid[2]},
                        .threads = threads,
                        .shared_bytes = shared_bytes,
                        .args = args,
                        .args_bytes = args_bytes,
                        .order = order};
    if (module || read_folder(ptx_folder(), diag))
        launch.kernel = ptx_module_find(module, kernel, diag);
    if (!launch.kernel) {
        snprintf(why, sizeof why, "%s", diag_text(diag));
    } else if (!ptx_launch(&launch)) {
        snprintf(why, sizeof why, "%s", ptx_error());
    }
    pthread_mutex_unlock(&launching);
    diag_destroy(diag);
    return why[0] ? why : NULL;
}
