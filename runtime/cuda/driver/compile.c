#include "runtime/cuda/driver/compile.h"

#include "ir/base/clock.h"
#include "ir/base/file.h"
#include "ir/base/host.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Contraction off: + and * round as on the CPU. */
#define OPTIONS "--std=c++17", "--fmad=false"

enum { ENTRY_FORMAT = 1, MOST_ENTRY_BYTES = 16 << 20, PROGRESS_SECONDS = 2, MOST_THREADS = 64 };

/* In front of an entry's cubin. */
typedef struct EntryHeader {
    char magic[8];
    uint64_t other_hash; /* of the same text as the file's name, made otherwise */
    uint64_t bytes, checksum;
} EntryHeader;
static const char MAGIC[8] = {'P', 'L', 'C', 'U', 'B', 'I', 'N', '1'};

typedef struct Result {
    void *cubin; /* from malloc */
    size_t bytes;
    bool from_cache;
    char *error; /* from malloc; NULL: none */
} Result;

typedef struct Work {
    const CompileRequest *request;
    const GeneratedKernel *const *kernels;
    int n_kernels;
    int major, minor; /* NVRTC's */
    Result *results;
    pthread_mutex_t lock;
    pthread_cond_t advanced;
    int next, n_done; /* under the lock */
    bool failed;      /* no more are begun */
} Work;

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t length) {
    const unsigned char *bytes = data;
    for (size_t i = 0; i < length; i++) hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* --- the cache --- */

const char *compile_cache_folder(Arena *arena) {
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (xdg && xdg[0] == '/') return arena_printf(arena, "%s/perilune/kernels", xdg);
    if (!home || home[0] != '/') return NULL;
    return arena_printf(arena, "%s/.cache/perilune/kernels", home);
}

/* What two entries of the same name would have to share. */
static void hash_entry(const Work *work, const GeneratedKernel *kernel, uint64_t *out_hash,
                       uint64_t *out_other) {
    static const char *const TEXTS[] = {OPTIONS};
    char about[64];
    int length = snprintf(about, sizeof(about), "%d %d.%d %.20s", ENTRY_FORMAT, work->major,
                          work->minor, work->request->arch);
    uint64_t hashes[2] = {UINT64_C(14695981039346656037), UINT64_C(0x9E3779B97F4A7C15)};
    for (int i = 0; i < 2; i++) {
        hashes[i] = hash_bytes(hashes[i], about, (size_t)length + 1);
        for (size_t k = 0; k < sizeof(TEXTS) / sizeof(TEXTS[0]); k++) {
            hashes[i] = hash_bytes(hashes[i], TEXTS[k], strlen(TEXTS[k]) + 1);
        }
        hashes[i] = hash_bytes(hashes[i], kernel->source, strlen(kernel->source));
    }
    *out_hash = hashes[0];
    *out_other = hashes[1];
}

static bool read_entry(const char *path, uint64_t other_hash, Arena *arena, Result *out) {
    Diag *diag = diag_create();
    EntryHeader header;
    size_t length;
    const char *text = file_read(arena, path, MOST_ENTRY_BYTES, &length, diag);
    diag_destroy(diag);
    if (!text || length < sizeof(header)) return false;
    memcpy(&header, text, sizeof(header));
    const char *cubin = text + sizeof(header);
    length -= sizeof(header);
    if (memcmp(header.magic, MAGIC, sizeof(MAGIC)) != 0 || header.other_hash != other_hash ||
        header.bytes != length || header.checksum != hash_bytes(other_hash, cubin, length) ||
        length < 4 || memcmp(cubin, "\177ELF", 4) != 0) {
        return false;
    }
    out->cubin = malloc(length);
    if (!out->cubin) BUG("out of memory for %zu bytes of a kernel", length);
    memcpy(out->cubin, cubin, length);
    out->bytes = length;
    out->from_cache = true;
    return true;
}

static void write_entry(const char *path, uint64_t other_hash, const Result *result) {
    Diag *diag = diag_create();
    EntryHeader header = {.other_hash = other_hash, .bytes = result->bytes};
    memcpy(header.magic, MAGIC, sizeof(MAGIC));
    header.checksum = hash_bytes(other_hash, result->cubin, result->bytes);
    FileWriter *writer = file_writer_open(path, diag);
    if (writer) {
        file_writer_put(writer, &header, sizeof(header), diag);
        file_writer_put(writer, result->cubin, result->bytes, diag);
        file_writer_commit(writer, diag);
    }
    diag_destroy(diag);
}

/* --- one kernel --- */

/* The log's first line that tells of an error, or its first. */
static void find_error(const char *log, char *out, size_t size) {
    const char *line = log, *found = NULL;
    while (*line && !found) {
        size_t length = strcspn(line, "\n");
        const char *error = strstr(line, "error");
        if (error && error < line + length) found = line;
        line += length + (line[length] == '\n');
    }
    if (!found) found = log + strspn(log, "\n ");
    snprintf(out, size, "%.*s", (int)strcspn(found, "\n"), found);
}

/* Leaves the source where a person can compile it again. */
static void leave_source(const Work *work, const GeneratedKernel *kernel, char *out, size_t size) {
    const char *folder = work->request->folder, *temporary = getenv("TMPDIR");
    Diag *diag = diag_create();
    snprintf(out, size, "%s/%s.cu", folder ? folder : temporary ? temporary : "/tmp", kernel->name);
    if (!file_write(out, kernel->source, strlen(kernel->source), diag)) {
        snprintf(out, size, "%s", "nowhere: it could not be written");
    }
    diag_destroy(diag);
}

static char *describe_failure(const Work *work, const GeneratedKernel *kernel, nvrtcResult status,
                              nvrtcProgram program) {
    const CuApi *api = work->request->api;
    size_t log_bytes = 0;
    char error[400], left[512], text[1024];
    char *log = NULL;
    if (program && api->nvrtcGetProgramLogSize(program, &log_bytes) == NVRTC_SUCCESS && log_bytes) {
        log = calloc(log_bytes + 1, 1);
        if (log) api->nvrtcGetProgramLog(program, log);
    }
    find_error(log && *log ? log : api->nvrtcGetErrorString(status), error, sizeof(error));
    free(log);
    leave_source(work, kernel, left, sizeof(left));
    snprintf(text, sizeof(text), "%s does not compile for %s: %s; its source is in %s",
             kernel->name, work->request->arch, error, left);
    return strdup(text);
}

static nvrtcResult compile_program(const Work *work, nvrtcProgram program, Result *out) {
    const CuApi *api = work->request->api;
    char arch[64];
    const char *options[] = {arch, OPTIONS};
    size_t bytes = 0;
    snprintf(arch, sizeof(arch), "--gpu-architecture=%.20s", work->request->arch);
    nvrtcResult status =
        api->nvrtcCompileProgram(program, (int)(sizeof(options) / sizeof(options[0])), options);
    if (status == NVRTC_SUCCESS) status = api->nvrtcGetCUBINSize(program, &bytes);
    if (status != NVRTC_SUCCESS) return status;
    out->cubin = malloc(bytes ? bytes : 1);
    if (!out->cubin) BUG("out of memory for %zu bytes of a kernel", bytes);
    out->bytes = bytes;
    return api->nvrtcGetCUBIN(program, out->cubin);
}

static void compile_one(const Work *work, const GeneratedKernel *kernel, Result *out) {
    const CuApi *api = work->request->api;
    char name[96];
    nvrtcProgram program = NULL;
    snprintf(name, sizeof(name), "%.80s.cu", kernel->name);
    nvrtcResult status = api->nvrtcCreateProgram(&program, kernel->source, name, 0, NULL, NULL);
    if (status == NVRTC_SUCCESS) status = compile_program(work, program, out);
    if (status != NVRTC_SUCCESS) out->error = describe_failure(work, kernel, status, program);
    if (program) api->nvrtcDestroyProgram(&program);
}

static void make_one(const Work *work, const GeneratedKernel *kernel, Result *out) {
    const char *folder = work->request->folder;
    Arena *arena = arena_create();
    const char *path = NULL;
    uint64_t hash, other_hash;
    hash_entry(work, kernel, &hash, &other_hash);
    if (folder) path = arena_printf(arena, "%s/%016" PRIx64 ".cubin", folder, hash);
    if (!path || !read_entry(path, other_hash, arena, out)) {
        compile_one(work, kernel, out);
        if (path && !out->error) write_entry(path, other_hash, out);
    }
    arena_destroy(arena);
}

/* --- all of them --- */

static void *run_worker(void *user) {
    Work *work = user;
    pthread_mutex_lock(&work->lock);
    while (work->next < work->n_kernels && !work->failed) {
        int i = work->next++;
        pthread_mutex_unlock(&work->lock);
        make_one(work, work->kernels[i], &work->results[i]);
        pthread_mutex_lock(&work->lock);
        work->failed |= work->results[i].error != NULL;
        work->n_done++;
        pthread_cond_signal(&work->advanced);
    }
    pthread_mutex_unlock(&work->lock);
    return NULL;
}

/* Until all that were begun are done. */
static void watch(Work *work) {
    const CompileRequest *request = work->request;
    double told = clock_now();
    pthread_mutex_lock(&work->lock);
    while (work->n_done < work->next || (work->next < work->n_kernels && !work->failed)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PROGRESS_SECONDS;
        pthread_cond_timedwait(&work->advanced, &work->lock, &until);
        if (!request->progress || clock_now() - told < PROGRESS_SECONDS) continue;
        told = clock_now();
        request->progress(request->progress_user, work->n_done, work->n_kernels);
    }
    pthread_mutex_unlock(&work->lock);
}

static void run_all(Work *work) {
    pthread_t threads[MOST_THREADS];
    int n_started = 0, n_threads = work->request->n_threads;
    if (n_threads <= 0) n_threads = host_count_cores();
    if (n_threads > MOST_THREADS) n_threads = MOST_THREADS;
    if (n_threads > work->n_kernels) n_threads = work->n_kernels;
    while (n_started < n_threads &&
           pthread_create(&threads[n_started], NULL, run_worker, work) == 0) {
        n_started++;
    }
    if (n_started == 0) run_worker(work);
    watch(work);
    for (int i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
}

/* Moves the results to the arena, reports the first error, frees everything. */
static bool collect(Work *work, Arena *arena, Cubin *out_cubins, CompileStats *stats, Diag *diag) {
    bool reported = false;
    for (int i = 0; i < work->n_kernels; i++) {
        Result *result = &work->results[i];
        if (result->error && !reported) diag_error(diag, NO_LOC, "%s", result->error);
        reported |= result->error != NULL;
        if (result->cubin && !work->failed) {
            void *copy = arena_alloc(arena, result->bytes);
            memcpy(copy, result->cubin, result->bytes);
            out_cubins[i] = (Cubin){copy, result->bytes};
        }
        stats->n_from_cache += result->from_cache;
        stats->n_compiled += result->cubin && !result->from_cache;
        free(result->cubin);
        free(result->error);
    }
    free(work->results);
    return !work->failed;
}

bool compile_kernels(const CompileRequest *request, const GeneratedKernel *const *kernels,
                     int n_kernels, Arena *arena, Cubin *out_cubins, CompileStats *out_stats,
                     Diag *diag) {
    const CuApi *api = request->api;
    CompileStats stats = {0};
    double begin = clock_now();
    Work work = {.request = request,
                 .kernels = kernels,
                 .n_kernels = n_kernels,
                 .lock = PTHREAD_MUTEX_INITIALIZER,
                 .advanced = PTHREAD_COND_INITIALIZER};
    if (!api->path[LIBRARY_nvrtc] || api->nvrtcVersion(&work.major, &work.minor)) {
        diag_error(diag, NO_LOC, "NVRTC, which compiles fused kernels, cannot be used: %s",
                   api->path[LIBRARY_nvrtc] ? "it does not say its version"
                                            : api->error[LIBRARY_nvrtc]);
        return false;
    }
    work.results = calloc((size_t)n_kernels + 1, sizeof(*work.results));
    if (!work.results) BUG("out of memory for %d kernels", n_kernels);
    if (request->folder) file_make_folders(request->folder, 0700); /* else writing fails, quietly */
    run_all(&work);
    bool good = collect(&work, arena, out_cubins, &stats, diag);
    stats.seconds = clock_now() - begin;
    if (out_stats) *out_stats = stats;
    return good;
}
