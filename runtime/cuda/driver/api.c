#include "runtime/cuda/driver/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct LibraryFile {
    const char *name, *file, *wheel; /* wheel: its folder in site-packages/nvidia */
} LibraryFile;

static const LibraryFile FILES[N_LIBRARIES] = {
    [LIBRARY_cudart] = {"cudart", "libcudart.so.13", "cu13"},
    [LIBRARY_cublasLt] = {"cublasLt", "libcublasLt.so.13", "cu13"},
    [LIBRARY_nvrtc] = {"nvrtc", "libnvrtc.so.13", "cu13"},
    [LIBRARY_nccl] = {"nccl", "libnccl.so.2", "nccl"},
    [LIBRARY_cudnn] = {"cudnn", "libcudnn.so.9", "cudnn"},
};

const char *cu_library_name(CuLibrary library) {
    return FILES[library].name;
}

static CuApi api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char paths[N_LIBRARIES][512], errors[N_LIBRARIES][256];

static void *open_at(const char *folder, const char *file, char *out_path, size_t size) {
    int length = snprintf(out_path, size, "%s%s%s", folder, *folder ? "/" : "", file);
    if (length < 0 || (size_t)length >= size) return NULL;
    return dlopen(out_path, RTLD_NOW | RTLD_LOCAL);
}

/* The folders of a colon-separated list, each with `pattern` after it, wildcards allowed. */
static void *open_in_list(const char *list, const char *pattern, const char *file, char *out_path,
                          size_t size) {
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char folder[400];
        glob_t found;
        int written =
            snprintf(folder, sizeof(folder), "%.*s%s", (int)(length % 300), list, pattern);
        list += length + (list[length] == ':');
        if (written <= 0 || (size_t)written >= sizeof(folder)) continue;
        if (glob(folder, 0, NULL, &found) != 0) continue;
        void *handle = NULL;
        for (size_t i = 0; i < found.gl_pathc && !handle; i++) {
            handle = open_at(found.gl_pathv[i], file, out_path, size);
        }
        globfree(&found);
        if (handle) return handle;
    }
    return NULL;
}

static void *open_library(CuLibrary library) {
    const LibraryFile *file = &FILES[library];
    char wheel[64], *path = paths[library];
    size_t size = sizeof(paths[library]);
    void *handle = open_in_list(getenv("PERILUNE_CUDA_LIBRARIES"), "", file->file, path, size);
    if (!handle) handle = open_at("", file->file, path, size);
    if (!handle) {
        const char *why = dlerror();
        snprintf(errors[library], sizeof(errors[library]), "%s", why ? why : "not found");
        handle =
            open_in_list("/usr/local/cuda/lib64:/usr/local/cuda/lib", "", file->file, path, size);
    }
    snprintf(wheel, sizeof(wheel), "/nvidia/%s/lib", file->wheel);
    if (!handle) {
        handle = open_in_list(getenv("PERILUNE_SITE_PACKAGES"), wheel, file->file, path, size);
    }
    if (!handle) return NULL;
    errors[library][0] = '\0';
    api.path[library] = path;
    return handle;
}

/* A function missing from an old library makes the library unusable: said once, by its name. */
static void *find(CuLibrary library, void *handle, const char *name) {
    void *function = handle ? dlsym(handle, name) : NULL;
    if (handle && !function && api.path[library]) {
        snprintf(errors[library], sizeof(errors[library]), "%s lacks %s: too old",
                 api.path[library], name);
        api.path[library] = NULL;
    }
    return function;
}

static void load(void) {
    void *handles[N_LIBRARIES];
    /* Streams that share a work queue wait for each other. A rank has up to 8 of its own, and NCCL
     * more: with the usual 8 queues a message can be stuck behind one that waits for it. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    for (int i = 0; i < N_LIBRARIES; i++) {
        handles[i] = open_library((CuLibrary)i);
        api.error[i] = errors[i];
    }
    /* Names after macro expansion, so that versioned ones (_v2) are found. ISO C has no cast from
     * object to function pointers; POSIX asks for this one to work. */
#define NAME_TEXT(name) #name
#define CUDA_FN(library, function)                                                                 \
    {                                                                                              \
        void *found = find(LIBRARY_##library, handles[LIBRARY_##library], NAME_TEXT(function));    \
        memcpy(&api.function, &found, sizeof(found));                                              \
    }
#include "runtime/cuda/driver/api.def"
#undef CUDA_FN
}

bool cu_driver_present(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver) dlclose(driver);
    return driver != NULL;
}

const CuApi *cu_api_load(void) {
    pthread_once(&once, load);
    return &api;
}
