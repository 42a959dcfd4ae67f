/* NVRTC without a GPU: every kernel that plans of gpt and llama need compiles for every
 * architecture, without spilling registers; the cache on disk is used, not trusted, and not needed;
 * a bad source is one line of error.
 */
#include "tests/unit/check.h"

#ifndef HAVE_CUDA

int main(void) {
    printf("skip NVRTC: built without CUDA's headers\n");
    return 0;
}

#else

#include "ir/base/file.h"
#include "runtime/cuda/driver/compile.h"
#include "tests/support/elementwise_nodes.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_KERNELS = 512 };

/* NVRTC itself is not looked at by sanitizers: some of the kernels will do. */
#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 4 };
#else
enum { EVERY = 1 };
#endif

typedef struct Fixture {
    Arena *arena;
    const CuApi *api;
    char folder[64];
    int n_kernels;
    const GeneratedKernel *kernels[MOST_KERNELS];
    Cubin cubins[MOST_KERNELS];
} Fixture;

static void empty_folder(const char *folder) {
    DIR *open = opendir(folder);
    struct dirent *entry;
    char path[512];
    while (open && (entry = readdir(open))) {
        snprintf(path, sizeof(path), "%s/%.200s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    if (open) closedir(open);
}

/* Any entry of the cache. */
static bool find_entry(const char *folder, const char *suffix, char *out, size_t size) {
    DIR *open = opendir(folder);
    struct dirent *entry;
    bool found = false;
    while (open && !found && (entry = readdir(open))) {
        size_t length = strlen(entry->d_name), end = strlen(suffix);
        found = length > end && strcmp(entry->d_name + length - end, suffix) == 0;
        if (found) snprintf(out, size, "%s/%.200s", folder, entry->d_name);
    }
    if (open) closedir(open);
    return found;
}

static bool compile(Fixture *f, const char *arch, const char *folder,
                    const GeneratedKernel *const *kernels, int n, CompileStats *stats, Diag *diag) {
    CompileRequest request = {.api = f->api, .arch = arch, .folder = folder};
    memset(f->cubins, 0, sizeof(f->cubins));
    return compile_kernels(&request, kernels, n, f->arena, f->cubins, stats, diag);
}

static bool holds(const char *bytes, size_t length, const char *text) {
    size_t n = strlen(text);
    for (size_t i = 0; i + n <= length; i++) {
        if (memcmp(bytes + i, text, n) == 0) return true;
    }
    return false;
}

/* All for one, whose cache is read below, and every other one for one of the others: what is wrong
 * with a source is so everywhere, as no source asks what it is compiled for. */
static void check_architectures(Fixture *f) {
    static const char *const ARCHS[] = {"sm_90", "sm_80", "sm_100"};
    const GeneratedKernel *kernels[MOST_KERNELS];
    for (int a = 0; a < 3; a++) {
        char name[64];
        Diag *diag = diag_create();
        CompileStats stats = {0};
        int n = 0;
        snprintf(name, sizeof(name), "kernels of gpt and llama for %s", ARCHS[a]);
        check_begin(name);
        for (int i = a == 2 ? 2 : 0; i < f->n_kernels; i += a ? 4 : 1) {
            CHECK(!strstr(f->kernels[i]->source, "__CUDA_ARCH"), "%s asks", f->kernels[i]->name);
            kernels[n++] = f->kernels[i];
        }
        bool good = compile(f, ARCHS[a], f->folder, kernels, n, &stats, diag);
        CHECK(good && diag_error_count(diag) == 0, "%s", diag_text(diag));
        CHECK(stats.n_compiled == n, "%d of %d compiled", stats.n_compiled, n);
        for (int i = 0; i < n && good; i++) {
            const char *text = f->cubins[i].data;
            CHECK(f->cubins[i].bytes > 1000 && memcmp(text, "\177ELF", 4) == 0, "%s",
                  kernels[i]->name);
            CHECK(holds(text, f->cubins[i].bytes, kernels[i]->name), "%s is not in its cubin",
                  kernels[i]->name);
        }
        diag_destroy(diag);
    }
}

/* ptxas says how many bytes it spilled. */
static void check_spills(Fixture *f) {
    const char *options[] = {"--gpu-architecture=sm_90", "--std=c++17", "--fmad=false",
                             "--ptxas-options=-v"};
    check_begin("no kernel spills registers or keeps an array in memory");
    for (int i = 0; i<f->n_kernels; i += f->n_kernels> 40 ? 3 : 1) {
        nvrtcProgram program;
        size_t bytes = 0;
        f->api->nvrtcCreateProgram(&program, f->kernels[i]->source, NULL, 0, NULL, NULL);
        nvrtcResult status = f->api->nvrtcCompileProgram(program, 4, options);
        CHECK(status == NVRTC_SUCCESS, "%s", f->kernels[i]->name);
        f->api->nvrtcGetProgramLogSize(program, &bytes);
        char *log = calloc(bytes + 1, 1);
        if (!log) exit(2);
        f->api->nvrtcGetProgramLog(program, log);
        CHECK(strstr(log, "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
              "%s: %s\n%s", f->kernels[i]->name, log, f->kernels[i]->source);
        free(log);
        f->api->nvrtcDestroyProgram(&program);
    }
}

static void check_hit(Fixture *f) {
    Diag *diag = diag_create();
    CompileStats stats = {0};
    check_begin("the second time everything comes from the cache");
    CHECK(compile(f, "sm_90", f->folder, f->kernels, f->n_kernels, &stats, diag), "%s",
          diag_text(diag));
    CHECK(stats.n_from_cache == f->n_kernels && stats.n_compiled == 0, "%d of %d from the cache",
          stats.n_from_cache, f->n_kernels);
    const Cubin *cubin = &f->cubins[0];
    CHECK(cubin->bytes > 1000 && memcmp(cubin->data, "\177ELF", 4) == 0, "not a cubin");
    diag_destroy(diag);
}

/* How an entry can be wrong. */
typedef enum Damage { CUT, EMPTIED, FLIPPED, LENGTHENED, ANOTHER, HEADER, N_DAMAGES } Damage;

static void damage(Fixture *f, const char *path, Damage how) {
    Diag *diag = diag_create();
    size_t length = 0;
    char *text = file_read(f->arena, path, 1 << 24, &length, diag);
    char *copy = arena_alloc(f->arena, length + 16);
    if (!text) exit(2);
    memcpy(copy, text, length);
    switch (how) {
    case CUT: length /= 2; break;
    case EMPTIED: length = 0; break;
    case FLIPPED: copy[length / 2] ^= 4; break;
    case LENGTHENED: length += 3; break;
    case ANOTHER: copy[9] ^= 1; break; /* the hash of another source */
    default: copy[0] ^= 1;
    }
    if (!file_write(path, copy, length, diag)) exit(2);
    diag_destroy(diag);
}

static void check_damage(Fixture *f) {
    char path[512];
    check_begin("a damaged entry is compiled again, and replaced");
    empty_folder(f->folder);
    for (int how = -1; how < N_DAMAGES; how++) {
        Diag *diag = diag_create();
        CompileStats stats = {0};
        if (how >= 0) {
            CHECK(find_entry(f->folder, ".cubin", path, sizeof(path)), "no entry");
            damage(f, path, (Damage)how);
        }
        CHECK(compile(f, "sm_90", f->folder, f->kernels, 1, &stats, diag), "%s", diag_text(diag));
        CHECK(stats.n_compiled == 1 && stats.n_from_cache == 0, "damage %d was not seen", how);
        CHECK(compile(f, "sm_90", f->folder, f->kernels, 1, &stats, diag), "%s", diag_text(diag));
        CHECK(stats.n_from_cache == 1, "after damage %d the entry was not replaced", how);
        diag_destroy(diag);
    }
}

static void check_other_architecture(Fixture *f) {
    Diag *diag = diag_create();
    CompileStats stats = {0};
    check_begin("another architecture's entry is not taken");
    CHECK(compile(f, "sm_80", f->folder, f->kernels, 1, &stats, diag) && stats.n_compiled == 1,
          "%s", diag_text(diag));
    CHECK(stats.n_from_cache == 0, "it was");
    diag_destroy(diag);
}

static void check_unwritable(Fixture *f) {
    static const char *const FOLDERS[] = {NULL, "/proc/perilune/kernels", "/dev/null/kernels"};
    check_begin("without a cache that can be written");
    for (int i = 0; i < 3; i++) {
        Diag *diag = diag_create();
        CompileStats stats = {0};
        CHECK(compile(f, "sm_90", FOLDERS[i], f->kernels, 1, &stats, diag), "%s", diag_text(diag));
        CHECK(stats.n_compiled == 1 && diag_error_count(diag) == 0, "%s", diag_text(diag));
        diag_destroy(diag);
    }
}

static void check_bad_source(Fixture *f) {
    const GeneratedKernel bad = {"fused_bad", "extern \"C\" __global__ void fused_bad() { x; }\n",
                                 1};
    const GeneratedKernel *kernels[] = {f->kernels[0], &bad};
    Diag *diag = diag_create();
    char want[512];
    check_begin("a bad source is one line of error");
    CHECK(!compile(f, "sm_90", f->folder, kernels, 2, NULL, diag), "compiled");
    const char *text = diag_text(diag);
    snprintf(want, sizeof(want), "; its source is in %s/fused_bad.cu\n", f->folder);
    CHECK(diag_error_count(diag) == 1, "%d errors", diag_error_count(diag));
    CHECK(strncmp(text, "fused_bad does not compile for sm_90: fused_bad.cu(1): error: ", 62) == 0,
          "%s", text);
    CHECK(strstr(text, "\"x\" is undefined") && strstr(text, want), "%s", text);
    const char *left =
        file_read(f->arena, arena_printf(f->arena, "%s/fused_bad.cu", f->folder), 4096, NULL, diag);
    CHECK(left && strcmp(left, bad.source) == 0, "the source that was left");
    diag_destroy(diag);
    diag = diag_create();
    CHECK(!compile(f, "sm_1", NULL, f->kernels, 1, NULL, diag), "for an unknown architecture");
    CHECK(diag_error_count(diag) == 1, "%s", diag_text(diag));
    diag_destroy(diag);
}

static void check_missing(Fixture *f) {
    Diag *diag = diag_create();
    CuApi none = *f->api;
    none.path[LIBRARY_nvrtc] = NULL;
    none.error[LIBRARY_nvrtc] = "libnvrtc.so.13: not found";
    CompileRequest request = {.api = &none, .arch = "sm_90"};
    check_begin("without the library");
    CHECK(!compile_kernels(&request, f->kernels, 1, f->arena, f->cubins, NULL, diag), "compiled");
    CHECK(strcmp(diag_text(diag), "NVRTC, which compiles fused kernels, cannot be used: "
                                  "libnvrtc.so.13: not found\n") == 0,
          "%s", diag_text(diag));
    diag_destroy(diag);
}

static void check_folder(Fixture *f) {
    check_begin("where the cache lies");
    setenv("HOME", "/home/someone", 1);
    unsetenv("XDG_CACHE_HOME");
    const char *folder = compile_cache_folder(f->arena);
    CHECK(folder && strcmp(folder, "/home/someone/.cache/perilune/kernels") == 0, "%s", folder);
    setenv("XDG_CACHE_HOME", "/var/cache/someone", 1);
    folder = compile_cache_folder(f->arena);
    CHECK(folder && strcmp(folder, "/var/cache/someone/perilune/kernels") == 0, "%s", folder);
    setenv("XDG_CACHE_HOME", "relative", 1); /* to be ignored, says the specification */
    unsetenv("HOME");
    CHECK(!compile_cache_folder(f->arena), "a folder out of nothing");
}

static void collect(Fixture *f) {
    Diag *diag = diag_create();
    KernelCache *cache = kernel_cache_create(f->arena);
    for (int i = 0; i < elementwise_n_plans(); i++) elementwise_collect(i, f->arena, cache, diag);
    int count = kernel_cache_count(cache);
    if (count > MOST_KERNELS || diag_error_count(diag)) BUG("%s", diag_text(diag));
    for (int i = 0; i < count; i += EVERY) f->kernels[f->n_kernels++] = kernel_cache_get(cache, i);
    diag_destroy(diag);
}

int main(void) {
    Fixture f = {.arena = arena_create(), .api = cu_api_load()};
    if (!f.api->path[LIBRARY_nvrtc]) {
        printf("skip NVRTC: %s\n", f.api->error[LIBRARY_nvrtc]);
        return 0;
    }
    snprintf(f.folder, sizeof(f.folder), "/tmp/perilune-nvrtc-%d", (int)getpid());
    collect(&f);
    check_architectures(&f);
    check_hit(&f);
    check_spills(&f);
    check_damage(&f);
    check_other_architecture(&f);
    check_unwritable(&f);
    check_bad_source(&f);
    check_missing(&f);
    check_folder(&f);
    empty_folder(f.folder);
    rmdir(f.folder);
    arena_destroy(f.arena);
    return check_report();
}

#endif
