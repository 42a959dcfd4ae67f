#include "runtime/cuda/driver/api.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* One search for one library. */
typedef struct Search {
    const LibraryFile *file;
    char *path, *why;
    size_t path_size, why_size;
    bool broken; /* a file was there and could not be loaded: *why says what the loader said */
} Search;

static void *open_at(Search *search, const char *folder) {
    int length = snprintf(search->path, search->path_size, "%s%s%s", folder, *folder ? "/" : "",
                          search->file->file);
    if (length < 0 || (size_t)length >= search->path_size) return NULL;
    void *handle = dlopen(search->path, RTLD_NOW | RTLD_LOCAL);
    bool there = *folder && access(search->path, F_OK) == 0;
    if (handle || search->broken || (*search->why && !there)) return handle;
    const char *why = dlerror();
    snprintf(search->why, search->why_size, "%s", why ? why : "not found");
    search->broken = there;
    return NULL;
}

/* The folders of a colon-separated list, each with `pattern` after it, wildcards allowed. */
static void *open_in_list(Search *search, const char *list, const char *pattern) {
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char folder[1024];
        glob_t found;
        int written = snprintf(folder, sizeof(folder), "%.*s%s", (int)length, list, pattern);
        list += length + (list[length] == ':');
        if (written <= 0 || (size_t)written >= sizeof(folder)) continue;
        if (glob(folder, 0, NULL, &found) != 0) continue;
        void *handle = NULL;
        for (size_t i = 0; i < found.gl_pathc && !handle; i++) {
            handle = open_at(search, found.gl_pathv[i]);
        }
        globfree(&found);
        if (handle) return handle;
    }
    return NULL;
}

/* NVRTC looks for its other half by name alone, as it first compiles, and so finds it only where
 * the loader looks. What is loaded already has that name: it is loaded from where NVRTC was, and
 * stays.
 */
static void open_builtins(const char *nvrtc) {
    char pattern[600];
    const char *slash = strrchr(nvrtc, '/');
    glob_t found;
    if (!slash) return; /* it was the loader that found NVRTC */
    snprintf(pattern, sizeof(pattern), "%.*s/libnvrtc-builtins.so.*", (int)(slash - nvrtc), nvrtc);
    if (glob(pattern, 0, NULL, &found) != 0) return;
    for (size_t i = 0; i < found.gl_pathc; i++) dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
}

void *cu_library_open(CuLibrary library, const CuPlaces *places, char *out_path, size_t path_size,
                      char *out_why, size_t why_size) {
    Search search = {&FILES[library], out_path, out_why, path_size, why_size, false};
    char wheel[64], python[96];
    *out_why = '\0';
    snprintf(wheel, sizeof(wheel), "/nvidia/%s/lib", search.file->wheel);
    snprintf(python, sizeof(python), "/lib/python3*/*-packages%s", wheel);
    void *handle = open_in_list(&search, places->given, "");
    if (!handle) handle = open_in_list(&search, places->packages, wheel);
    if (!handle && search.broken) return NULL; /* what was asked for is not replaced in silence */
    if (!handle && places->loader) handle = open_at(&search, "");
    if (!handle) handle = open_in_list(&search, places->toolkit, "");
    if (!handle) handle = open_in_list(&search, places->python, python);
    if (handle) *out_why = '\0';
    if (handle && library == LIBRARY_nvrtc) open_builtins(out_path);
    if (!handle && !*out_why) snprintf(out_why, why_size, "%s: not found", search.file->file);
    return handle;
}

void cu_python_prefixes(const char *path, char *out, size_t size) {
    char program[1024];
    *out = '\0';
    while (path && *path) {
        size_t length = strcspn(path, ":");
        int written = snprintf(program, sizeof(program), "%.*s/python3", (int)length, path);
        bool fits = written > 0 && (size_t)written < sizeof(program);
        if (length && fits && access(program, X_OK) == 0) {
            /* Debian's own is in /usr, what pip adds to it in /usr/local. */
            written = snprintf(out, size, "%.*s/..:/usr/local", (int)length, path);
            if (written < 0 || (size_t)written >= size) *out = '\0';
            return;
        }
        path += length + (path[length] == ':');
    }
}

static void *open_library(CuLibrary library) {
    char toolkit[1024], python[1024];
    const char *home = getenv("CUDA_HOME");
    if (!home || !*home) home = "/usr/local/cuda";
    int written = snprintf(toolkit, sizeof(toolkit), "%s/lib64:%s/lib", home, home);
    if (written < 0 || (size_t)written >= sizeof(toolkit)) *toolkit = '\0';
    cu_python_prefixes(getenv("PATH"), python, sizeof(python));
    const CuPlaces places = {.given = getenv("PERILUNE_CUDA_LIBRARIES"),
                             .packages = getenv("PERILUNE_SITE_PACKAGES"),
                             .loader = true,
                             .toolkit = toolkit,
                             .python = python};
    void *handle = cu_library_open(library, &places, paths[library], sizeof(paths[library]),
                                   errors[library], sizeof(errors[library]));
    if (handle) api.path[library] = paths[library];
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
    /* Streams that share a work queue wait for each other. A rank has up to 13 of its own, and NCCL
     * more: with the usual 8 queues a message can be stuck behind one that waits for it. */
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    /* NCCL connects the ranks of a communicator as it is made, not at the first message: the memory
     * that this takes is gone before arenas are compared with what is free. */
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
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
