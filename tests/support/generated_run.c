#include "tests/support/generated_run.h"

#include "tests/ptx/folder.h"
#include "tests/support/generated_ptx.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { PART = 24, MOST_PARTS = 8 }; /* kernels of one compiler's run; runs at once */

typedef void GeneratedFunction(Grid grid, int threads, const void *args);

typedef struct Compiled {
    uint64_t hash;
    GeneratedFunction *run; /* NULL: its PTX is */
} Compiled;

static Compiled *compiled;
static int n_compiled, capacity;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char why_text[512];

static const char *compiler(void) {
    const char *chosen = getenv("CXX");
    if (chosen) return chosen;
#ifdef __clang__
    return "clang++";
#else
    return "g++";
#endif
}

static bool run_compiler(char *const *argv, pid_t *out_pid) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    bool good = posix_spawnp(out_pid, argv[0], &actions, NULL, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return good;
}

static bool wait_for(pid_t pid) {
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

const char *generated_host_missing(void) {
    static int state; /* 1: there, -1: missing */
    pid_t pid;
    char *argv[] = {(char *)compiler(), "-dumpversion", NULL};
    if (!state) state = run_compiler(argv, &pid) && wait_for(pid) ? 1 : -1;
    return state > 0 ? NULL : "no C++ compiler to build generated kernels for the host with";
}

static const Compiled *find(uint64_t hash) {
    for (int i = 0; i < n_compiled; i++) {
        if (compiled[i].hash == hash) return &compiled[i];
    }
    return NULL;
}

static void keep(uint64_t hash, GeneratedFunction *run) {
    if (n_compiled == capacity) {
        capacity = capacity ? 2 * capacity : 64;
        compiled = realloc(compiled, (size_t)capacity * sizeof(*compiled));
        if (!compiled) exit(2);
    }
    compiled[n_compiled++] = (Compiled){hash, run};
}

/* All sources begin with the same text; a file of many has it once. */
static const char *body_of(const GeneratedKernel *kernel) {
    const char *body = strstr(kernel->source, "\nextern \"C\"");
    if (!body) BUG("%s has no kernel", kernel->name);
    return body;
}

static void write_kernels(FILE *file, const GeneratedKernel *const *kernels, int count) {
    const char *source = kernels[0]->source;
    size_t prelude = (size_t)(body_of(kernels[0]) - source);
    fwrite(source, 1, prelude, file);
    for (int i = 0; i < count; i++) {
        const char *body = body_of(kernels[i]);
        if ((size_t)(body - kernels[i]->source) != prelude ||
            memcmp(kernels[i]->source, source, prelude) != 0) {
            BUG("%s begins otherwise than %s", kernels[i]->name, kernels[0]->name);
        }
        fputs(body, file);
    }
}

static void write_part(FILE *file, const GeneratedKernel *const *kernels, int count) {
    write_kernels(file, kernels, count);
    fputs("struct Grid { uint32_t x, y, z; };\n"
          "template <void (*KERNEL)(FusedArgs)>\n"
          "static void run(Grid grid, int threads, const void *args) {\n"
          "    blockDim = {(unsigned)threads, 1, 1};\n"
          "    gridDim = {grid.x, grid.y, grid.z};\n"
          "    for (uint32_t z = 0; z < grid.z; z++)\n"
          "        for (uint32_t y = 0; y < grid.y; y++)\n"
          "            for (uint32_t x = 0; x < grid.x; x++)\n"
          "                for (int t = 0; t < threads; t++) {\n"
          "                    blockIdx = {x, y, z};\n"
          "                    threadIdx = {(unsigned)t, 0, 0};\n"
          "                    KERNEL(*(const FusedArgs *)args);\n"
          "                }\n"
          "}\n",
          file);
    for (int i = 0; i < count; i++) {
        fprintf(file,
                "extern \"C\" void run_%s(Grid grid, int threads, const void *args) {\n"
                "    run<%s>(grid, threads, args);\n}\n",
                kernels[i]->name, kernels[i]->name);
    }
}

static bool start_part(const char *folder, int part, const GeneratedKernel *const *kernels,
                       int count, pid_t *out_pid) {
    char source[128], library[128];
    snprintf(source, sizeof(source), "%s/%d.cpp", folder, part);
    snprintf(library, sizeof(library), "%s/%d.so", folder, part);
    FILE *file = fopen(source, "w");
    if (!file) return false;
    write_part(file, kernels, count);
    if (fclose(file)) return false;
    /* -ffp-contract: as NVRTC is told. -w: what dialect.h does not use. -O0: each runs for less
     * time than it takes to compile. */
    char *argv[] = {(char *)compiler(),
                    "-std=c++17",
                    "-O0",
                    "-w",
                    "-ffp-contract=off",
                    "-fno-strict-aliasing",
                    "-fno-math-errno",
                    "-fPIC",
                    "-shared",
                    "-I.",
                    "-DEMULATE_ALONE",
                    "-include",
                    "tests/emulate/dialect.h",
                    "-o",
                    library,
                    source,
#ifdef __SANITIZE_ADDRESS__
                    "-fsanitize=address",
#endif
                    NULL};
    return run_compiler(argv, out_pid);
}

static bool load_part(const char *folder, int part, const GeneratedKernel *const *kernels,
                      int count) {
    char library[128], name[128];
    snprintf(library, sizeof(library), "%s/%d.so", folder, part);
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* never closed: functions stay */
    if (!handle) {
        snprintf(why_text, sizeof(why_text), "%s", dlerror());
        return false;
    }
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "run_%s", kernels[i]->name);
        void *symbol = dlsym(handle, name);
        if (!symbol) BUG("%s lacks %s", library, name);
        GeneratedFunction *run;
        memcpy(&run, &symbol, sizeof(symbol));
        keep(kernels[i]->hash, run);
    }
    return true;
}

static void remove_folder(const char *folder, int n_parts) {
    char path[128];
    for (int part = 0; part < n_parts; part++) {
        snprintf(path, sizeof(path), "%s/%d.cpp", folder, part);
        unlink(path);
        snprintf(path, sizeof(path), "%s/%d.so", folder, part);
        unlink(path);
    }
    rmdir(folder);
}

static bool compile_parts(const GeneratedKernel *const *kernels, int count) {
    char folder[] = "/tmp/perilune-generated-XXXXXX";
    int n_parts = (count + PART - 1) / PART;
    pid_t pids[MOST_PARTS];
    bool good = true;
    if (n_parts > MOST_PARTS) n_parts = MOST_PARTS;
    int each = (count + n_parts - 1) / n_parts;
    n_parts = (count + each - 1) / each;
    if (!mkdtemp(folder)) {
        snprintf(why_text, sizeof(why_text), "cannot make a folder in /tmp");
        return false;
    }
    snprintf(why_text, sizeof(why_text), "%s: does not compile: see %s", compiler(), folder);
    for (int part = 0; part < n_parts; part++) {
        int n = count - part * each < each ? count - part * each : each;
        pids[part] = 0;
        good &= start_part(folder, part, kernels + part * each, n, &pids[part]);
    }
    for (int part = 0; part < n_parts; part++) good &= pids[part] > 0 && wait_for(pids[part]);
    if (!good) return false; /* the sources stay, to be looked at */
    for (int part = 0; part < n_parts && good; part++) {
        int n = count - part * each < each ? count - part * each : each;
        good = load_part(folder, part, kernels + part * each, n);
    }
    remove_folder(folder, n_parts);
    return good;
}

static bool compile_ptx(const GeneratedKernel *const *kernels, int count) {
    char *source = NULL;
    const char *why = "";
    size_t bytes;
    FILE *file = open_memstream(&source, &bytes);
    if (!file) exit(2);
    write_kernels(file, kernels, count);
    if (fclose(file)) exit(2);
    bool good = generated_ptx_compile(source, &why);
    snprintf(why_text, sizeof(why_text), "%s", why);
    for (int i = 0; i < count && good; i++) keep(kernels[i]->hash, NULL);
    free(source);
    return good;
}

static bool compile_new(const GeneratedKernel *const *kernels, int n) {
    int count = 0;
    const GeneratedKernel **fresh = calloc((size_t)n + 1, sizeof(const GeneratedKernel *));
    if (!fresh) exit(2);
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < count && fresh[k]->hash != kernels[i]->hash) k++;
        if (k == count && !find(kernels[i]->hash)) fresh[count++] = kernels[i];
    }
    bool good = count == 0 || (ptx_folder() ? compile_ptx : compile_parts)(fresh, count);
    free(fresh);
    return good;
}

bool generated_host_compile_kernels(const GeneratedKernel *const *kernels, int count,
                                    const char **out_why) {
    pthread_mutex_lock(&lock);
    const char *missing = generated_host_missing();
    bool good = !missing && compile_new(kernels, count);
    if (!good) *out_why = missing ? missing : why_text;
    pthread_mutex_unlock(&lock);
    return good;
}

bool generated_host_compile(const KernelCache *cache, const char **out_why) {
    int n = kernel_cache_count(cache);
    const GeneratedKernel **kernels = calloc((size_t)n + 1, sizeof(const GeneratedKernel *));
    if (!kernels) exit(2);
    for (int i = 0; i < n; i++) kernels[i] = kernel_cache_get(cache, i);
    bool good = generated_host_compile_kernels(kernels, n, out_why);
    free(kernels);
    return good;
}

bool generated_host_has(const GeneratedKernel *kernel) {
    pthread_mutex_lock(&lock);
    bool has = find(kernel->hash) != NULL;
    pthread_mutex_unlock(&lock);
    return has;
}

bool generated_host_run(const GeneratedKernel *kernel, Grid grid, int threads, const void *args,
                        const char **out_why) {
    pthread_mutex_lock(&lock);
    const Compiled *found = find(kernel->hash);
    bool good = found != NULL;
    if (!found) {
        *out_why = "a generated kernel that was not compiled";
    } else if (found->run) {
        found->run(grid, threads, args);
    } else {
        good = generated_ptx_run(kernel, grid, threads, args, out_why);
    }
    pthread_mutex_unlock(&lock);
    return good;
}

bool generated_host_launch(void *user, const LaunchCommand *launch, const char **out_why) {
    const GeneratedKernel *kernel = launch->generated;
    if (!generated_host_has(kernel) && !generated_host_compile(user, out_why)) return false;
    return generated_host_run(kernel, launch->grid, launch->threads, launch->args, out_why);
}
