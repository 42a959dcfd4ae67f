#include "tests/support/fake_cuda.h"

#ifdef HAVE_CUDA

#include "tests/emulate/emulate.h"
#include "tests/support/fake_internal.h"
#include "tests/support/generated_run.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC = 0x46414b45 };

Fake *fake;

static const char *const KIND_NAMES[N_FAKE_KINDS] = {
    "stream",           "event",        "graph",   "executable graph", "library",
    "cuBLASLt handle",  "descriptor",   "layout",  "preference",       "cuDNN handle",
    "cuDNN descriptor", "communicator", "program",
};

void fake_defect(const char *format, ...) {
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&fake->lock);
    if (fake->n_defects < FAKE_MOST_DEFECTS) {
        vsnprintf(fake->defects[fake->n_defects], FAKE_DEFECT_BYTES, format, args);
    }
    fake->n_defects++;
    pthread_mutex_unlock(&fake->lock);
    va_end(args);
}

int fake_cuda_n_defects(void) {
    return fake->n_defects;
}

const char *fake_cuda_defect(int i) {
    return i < fake->n_defects && i < FAKE_MOST_DEFECTS ? fake->defects[i] : "";
}

void fake_cuda_forget_defects(void) {
    fake->n_defects = 0;
}

int fake_cuda_n_graphs(void) {
    return fake->n_instantiated;
}

const FakeGraph *fake_cuda_graph(int i) {
    return fake->instantiated[i];
}

int64_t fake_cuda_n_eager(void) {
    return fake->n_eager;
}

/* Objects */

void *fake_new(FakeKind kind, size_t bytes) {
    FakeObject *object = calloc(1, bytes);
    if (!object) BUG("out of memory for a handle");
    *object = (FakeObject){.magic = MAGIC, .kind = kind, .live = true};
    pthread_mutex_lock(&fake->lock);
    object->next = fake->objects;
    fake->objects = object;
    pthread_mutex_unlock(&fake->lock);
    return object;
}

void *fake_get(const void *handle, FakeKind kind, const char *function) {
    FakeObject *object = (FakeObject *)handle;
    if (!object || object->magic != MAGIC || object->kind != kind) {
        fake_defect("%s: what it was given is no %s", function, KIND_NAMES[kind]);
        return NULL;
    }
    if (!object->live) {
        fake_defect("%s: the %s was destroyed before", function, KIND_NAMES[kind]);
        return NULL;
    }
    return object;
}

bool fake_end(const void *handle, FakeKind kind, const char *function) {
    FakeObject *object = fake_get(handle, kind, function);
    if (object) object->live = false;
    return object != NULL;
}

void fake_cuda_check_leaks(void) {
    for (const FakeObject *object = fake->objects; object; object = object->next) {
        if (object->live) fake_defect("a %s is left at the end", KIND_NAMES[object->kind]);
    }
    for (int i = 0; i < fake->n_blocks; i++) {
        fake_defect("%zu bytes of %s memory are left at the end", fake->blocks[i].bytes,
                    fake->blocks[i].device ? "device" : "pinned");
    }
    if (fake->capture) fake_defect("a capture is left at the end");
    if (fake->group_depth) fake_defect("an NCCL group is left at the end");
}

/* Memory */

static FakeBlock *find_block(const void *at, int64_t bytes) {
    const unsigned char *byte = at;
    for (int i = 0; i < fake->n_blocks; i++) {
        FakeBlock *block = &fake->blocks[i];
        if (byte >= block->at && byte <= block->at + block->bytes &&
            (int64_t)(block->at + block->bytes - byte) >= bytes) {
            return block;
        }
    }
    return NULL;
}

bool fake_memory_has(const void *at, int64_t bytes, bool device_only) {
    const FakeBlock *block = at ? find_block(at, bytes) : NULL;
    return block && (block->device || !device_only);
}

cudaError_t fake_allocate(void **out, size_t bytes, bool device) {
    enum { ALIGNMENT = 256 };
    if (device && fake->used_bytes + (int64_t)bytes > fake->options.memory_bytes) {
        return cudaErrorMemoryAllocation;
    }
    if (bytes == 0) {
        *out = NULL;
        return cudaSuccess;
    }
    if (fake->n_blocks == fake->block_capacity) {
        fake->block_capacity = fake->block_capacity ? 2 * fake->block_capacity : 32;
        fake->blocks = realloc(fake->blocks, (size_t)fake->block_capacity * sizeof(FakeBlock));
        if (!fake->blocks) BUG("out of memory");
    }
    /* No larger than asked for: AddressSanitizer sees what lies beyond. */
    if (posix_memalign(out, ALIGNMENT, bytes)) return cudaErrorMemoryAllocation;
    if (fake->options.poison) memset(*out, 0xff, bytes);
    if (device) fake->used_bytes += (int64_t)bytes;
    fake->blocks[fake->n_blocks++] = (FakeBlock){*out, bytes, device, false};
    return cudaSuccess;
}

cudaError_t fake_allocate_mapped(void **out, size_t bytes) {
    cudaError_t status = fake_allocate(out, bytes, false);
    if (status == cudaSuccess && bytes > 0) fake->blocks[fake->n_blocks - 1].mapped = true;
    return status;
}

cudaError_t fake_release(void *at, bool device, const char *function) {
    if (fake->hung) fake_defect("%s would wait for another rank for ever", function);
    if (!at) return cudaSuccess;
    for (int i = 0; i < fake->n_blocks; i++) {
        FakeBlock *block = &fake->blocks[i];
        if (block->at != at || block->device != device) continue;
        if (device) fake->used_bytes -= (int64_t)block->bytes;
        free(block->at);
        *block = fake->blocks[--fake->n_blocks];
        return cudaSuccess;
    }
    fake_defect("%s: what it was given was not allocated, or freed before", function);
    return cudaErrorInvalidValue;
}

FakeMemory fake_cuda_save(void) {
    size_t n = (size_t)fake->n_blocks + 1;
    FakeMemory memory = {.at = calloc(n, sizeof(*memory.at)),
                         .bytes = calloc(n, sizeof(*memory.bytes)),
                         .copies = calloc(n, sizeof(*memory.copies))};
    if (!memory.at || !memory.bytes || !memory.copies) BUG("out of memory");
    for (int i = 0; i < fake->n_blocks; i++) {
        const FakeBlock *block = &fake->blocks[i];
        if (!block->device && !block->mapped) continue;
        int part = memory.n_parts++;
        memory.at[part] = block->at;
        memory.bytes[part] = block->bytes;
        memory.copies[part] = malloc(block->bytes);
        if (!memory.copies[part]) BUG("out of memory for a copy of %zu bytes", block->bytes);
        memcpy(memory.copies[part], block->at, block->bytes);
    }
    return memory;
}

void fake_cuda_restore(const FakeMemory *memory) {
    for (int i = 0; i < memory->n_parts; i++) {
        memcpy(memory->at[i], memory->copies[i], memory->bytes[i]);
    }
}

void fake_memory_free(FakeMemory *memory) {
    for (int i = 0; i < memory->n_parts; i++) free(memory->copies[i]);
    free(memory->at);
    free(memory->bytes);
    free(memory->copies);
    *memory = (FakeMemory){0};
}

/* Execution */

static bool run_launch(const FakeLaunch *launch) {
    const FakeFunction *function = launch->function;
    if (!function->generated) {
        if (emulate_launch(function->kernel, launch->grid, launch->threads, launch->shared_bytes,
                           launch->args)) {
            return true;
        }
        fake_defect("%s", emulate_error());
        return false;
    }
    const char *why = "";
    if (!generated_host_has(function->generated) && !fake_compile_generated()) return false;
    if (generated_host_run(function->generated, launch->grid, launch->threads, launch->args, &why))
        return true;
    fake_defect("%s: %s", function->generated->name, why);
    return false;
}

bool fake_cuda_run_node(const FakeNode *node) {
    switch (node->kind) {
    case FAKE_KERNEL: return run_launch(&node->launch);
    case FAKE_GEMM: return fake_run_product(&node->product);
    case FAKE_ATTENTION: return fake_run_attention(&node->attention);
    case FAKE_COPY: memmove(node->copy.to, node->copy.from, (size_t)node->copy.bytes); return true;
    case FAKE_FILL: memset(node->fill.to, node->fill.byte, (size_t)node->fill.bytes); return true;
    case FAKE_NCCL:
        /* Of several ranks: see fake_cuda_launch_together. */
        return node->message.n_members > 1 || fake_run_messages(&node);
    }
    return false;
}

bool fake_cuda_run(const FakeGraph *graph, const int *order) {
    for (int i = 0; i < graph->n_nodes; i++) {
        if (!fake_cuda_run_node(&graph->nodes[order[i]])) return false;
    }
    return true;
}

/* The fake itself */

static void announce(void *user, const Command *command) {
    (void)user;
    fake->command = command;
}

const CuApi *fake_cuda_create(const FakeOptions *options) {
    if (fake) BUG("there is a fake already");
    fake = calloc(1, sizeof(*fake));
    if (!fake) BUG("out of memory");
    fake->options = *options;
    fake->hung = options->hung;
    if (!fake->options.memory_bytes) fake->options.memory_bytes = INT64_C(141) << 30;
    pthread_mutex_init(&fake->lock, NULL);
    for (int i = 0; i < N_LIBRARIES; i++) {
        bool absent = i == LIBRARY_cudnn && !options->cudnn_version;
        fake->api.path[i] = absent ? NULL : "fake";
        fake->api.error[i] = absent ? "not wanted" : "";
    }
    fake_fill_device(&fake->api);
    fake_fill_streams(&fake->api);
    fake_fill_kernels(&fake->api);
    fake_fill_blas(&fake->api);
    fake_fill_nccl(&fake->api);
    fake_fill_cudnn(&fake->api);
    fake->api.announce = announce;
#define CUDA_FN(library, function)                                                                 \
    if (!fake->api.function) BUG("the fake lacks %s", #function);                                  \
    if (options->no_blas && LIBRARY_##library == LIBRARY_cublasLt) fake->api.function = NULL;
#include "runtime/cuda/driver/api.def"
#undef CUDA_FN
    return &fake->api;
}

static void free_object(FakeObject *object) {
    if (object->kind == FAKE_IS_EXEC) fake_dag_free(&((FakeExec *)object)->dag);
    if (object->kind == FAKE_IS_LIBRARY) {
        free((void *)((FakeLibrary *)object)->generated.name);
        free((void *)((FakeLibrary *)object)->generated.source);
    }
    if (object->kind == FAKE_IS_DNN_DESCRIPTOR) fake_free_descriptor(object);
    free(object);
}

void fake_cuda_destroy(void) {
    if (!fake) return;
    for (int i = 0; i < fake->n_graphs; i++) {
        fake_graph_free(fake->graphs[i]);
        free(fake->graphs[i]);
    }
    while (fake->objects) {
        FakeObject *object = fake->objects;
        fake->objects = object->next;
        free_object(object);
    }
    for (int i = 0; i < fake->n_blocks; i++) free(fake->blocks[i].at);
    free(fake->blocks);
    free(fake->graphs);
    free(fake->instantiated);
    free(fake->capture);
    pthread_mutex_destroy(&fake->lock);
    free(fake);
    fake = NULL;
}

#endif
