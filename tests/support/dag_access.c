#include "tests/support/dag_check.h"

#ifdef HAVE_CUDA

#include "tests/support/fake_cuda.h"

#include <stdlib.h>
#include <string.h>

/* One look at the operations that a node's commands became: they share their accesses and hand each
 * other what lies in the workspace. `of` marks each byte of the device's memory. */
enum { READS = 1, WRITES = 2 };

typedef struct Look {
    const FakeNode *node;
    int n_nodes;
    FakeMemory before, after;
    unsigned char **of; /* [part][byte] */
    char *why;
    size_t why_bytes;
} Look;

static void mark(Look *look) {
    for (int p = 0; p < look->before.n_parts; p++) {
        memset(look->of[p], 0, look->before.bytes[p]);
    }
    for (int k = 0; k < look->node->command->n_accesses; k++) {
        const Access *access = &look->node->command->accesses[k];
        for (int p = 0; p < look->before.n_parts; p++) {
            uintptr_t part = (uintptr_t)look->before.at[p];
            if (access->at < part || access->at >= part + look->before.bytes[p]) continue;
            for (int64_t i = 0; i < access->bytes; i++) {
                look->of[p][access->at - part + (uintptr_t)i] |= access->write ? WRITES : READS;
            }
        }
    }
}

static void copy_from(const FakeMemory *memory) {
    for (int p = 0; p < memory->n_parts; p++) {
        memcpy(memory->copies[p], memory->at[p], memory->bytes[p]);
    }
}

static bool fail(const Look *look, int part, size_t byte, const char *what) {
    const Command *command = look->node->command;
    const Node *of = command->info.node;
    snprintf(look->why, look->why_bytes, "%s of %s, rank %d, micro-batch %d: %s, byte %zu of %p",
             command->kind == COMMAND_LAUNCH && !command->launch.generated
                 ? KERNELS[command->launch.kernel].name
                 : command_kind_name(command->kind),
             of ? OPS[of->op].name : "the step", command->info.rank, command->info.micro, what,
             byte, (void *)look->before.at[part]);
    return false;
}

static bool check_writes(const Look *look) {
    for (int p = 0; p < look->before.n_parts; p++) {
        const unsigned char *now = look->before.at[p], *before = look->before.copies[p];
        if (memcmp(now, before, look->before.bytes[p]) == 0) continue;
        for (size_t i = 0; i < look->before.bytes[p]; i++) {
            if (now[i] != before[i] && !(look->of[p][i] & WRITES)) {
                return fail(look, p, i, "writes what it does not say it writes");
            }
        }
    }
    return true;
}

/* Everything but what is read becomes `byte`. Workspace is said to be written; it is read after. */
static void spoil(const Look *look, int byte) {
    for (int p = 0; p < look->before.n_parts; p++) {
        unsigned char *now = look->before.at[p];
        memcpy(now, look->before.copies[p], look->before.bytes[p]);
        for (size_t i = 0; i < look->before.bytes[p]; i++) {
            if (!(look->of[p][i] & READS)) now[i] = (unsigned char)byte;
        }
    }
}

/* The results are those of the first run, or what lay there was left alone both times. */
static bool check_reads(const Look *look, int byte) {
    for (int p = 0; p < look->before.n_parts; p++) {
        const unsigned char *now = look->before.at[p], *before = look->before.copies[p];
        const unsigned char *after = look->after.copies[p];
        for (size_t i = 0; i < look->before.bytes[p]; i++) {
            if (!(look->of[p][i] & WRITES) || now[i] == after[i]) continue;
            if (now[i] != byte || after[i] != before[i]) {
                return fail(look, p, i, "depends on what it does not say it reads");
            }
        }
    }
    return true;
}

static bool run_unit(const Look *look) {
    for (int i = 0; i < look->n_nodes; i++) {
        if (!fake_cuda_run_node(&look->node[i])) return fail(look, 0, 0, "does not run");
    }
    return true;
}

static bool look_at(Look *look) {
    enum { POISON = 0xff };
    mark(look);
    copy_from(&look->before);
    if (!run_unit(look) || !check_writes(look)) return false;
    copy_from(&look->after);
    spoil(look, POISON);
    if (!run_unit(look) || !check_reads(look, POISON)) return false;
    fake_cuda_restore(&look->after);
    return true;
}

bool dag_check_accesses(const FakeGraph *graph, char *why, size_t why_bytes) {
    Look look = {
        .before = fake_cuda_save(), .after = fake_cuda_save(), .why = why, .why_bytes = why_bytes};
    bool good = true;
    look.of = calloc((size_t)look.before.n_parts + 1, sizeof(*look.of));
    if (!look.of) BUG("out of memory");
    for (int p = 0; p < look.before.n_parts; p++) {
        look.of[p] = malloc(look.before.bytes[p]);
        if (!look.of[p]) BUG("out of memory");
    }
    for (int i = 0; i < graph->n_nodes && good; i += look.n_nodes) {
        look.node = &graph->nodes[i];
        look.n_nodes = 1;
        while (i + look.n_nodes < graph->n_nodes &&
               look.node[look.n_nodes].command->accesses == look.node->command->accesses) {
            look.n_nodes++;
        }
        good = look_at(&look);
    }
    for (int p = 0; p < look.before.n_parts; p++) free(look.of[p]);
    free(look.of);
    fake_memory_free(&look.before);
    fake_memory_free(&look.after);
    return good;
}

#endif
