#include "tests/support/dag_check.h"

#ifdef HAVE_CUDA

#include "tests/support/fake_cuda.h"

#include <string.h>

/* One look at the operations that a node's commands became: they share their accesses and hand each
 * other what lies in the workspace. */
typedef struct Look {
    const FakeNode *node;
    int n_nodes;
    FakeMemory before, after;
    char *why;
    size_t why_bytes;
} Look;

/* The part of the device's memory, or of mapped memory, that an access lies in, or -1 (staging). */
static int find_part(const FakeMemory *memory, const Access *access, size_t *out_offset) {
    for (int p = 0; p < memory->n_parts; p++) {
        uintptr_t part = (uintptr_t)memory->at[p];
        if (access->at < part || access->at >= part + memory->bytes[p]) continue;
        *out_offset = access->at - part;
        return access->bytes > 0 ? p : -1;
    }
    return -1;
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

/* What was there before, with what was to be written as it is now, is all there is now. */
static bool check_writes(const Look *look) {
    const Command *command = look->node->command;
    for (int p = 0; p < look->before.n_parts; p++) {
        memcpy(look->after.copies[p], look->before.copies[p], look->before.bytes[p]);
    }
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        size_t at;
        int p = access->write ? find_part(&look->before, access, &at) : -1;
        if (p < 0) continue;
        memcpy(look->after.copies[p] + at, look->before.at[p] + at, (size_t)access->bytes);
    }
    for (int p = 0; p < look->before.n_parts; p++) {
        const unsigned char *now = look->before.at[p], *allowed = look->after.copies[p];
        size_t i = 0;
        if (memcmp(now, allowed, look->before.bytes[p]) == 0) continue;
        while (now[i] == allowed[i]) i++;
        return fail(look, p, i, "writes what it does not say it writes");
    }
    return true;
}

/* Everything but what is read becomes `byte`. */
static void spoil(const Look *look, int byte) {
    const Command *command = look->node->command;
    for (int p = 0; p < look->before.n_parts; p++) {
        memset(look->before.at[p], byte, look->before.bytes[p]);
    }
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        size_t at;
        int p = access->write ? -1 : find_part(&look->before, access, &at);
        if (p < 0) continue;
        memcpy(look->before.at[p] + at, look->before.copies[p] + at, (size_t)access->bytes);
    }
}

/* The results are those of the first run, or what lay there was left alone both times. */
static bool check_reads(const Look *look, unsigned char byte) {
    const Command *command = look->node->command;
    for (int k = 0; k < command->n_accesses; k++) {
        const Access *access = &command->accesses[k];
        size_t at;
        int p = access->write ? find_part(&look->before, access, &at) : -1;
        if (p < 0) continue;
        const unsigned char *now = look->before.at[p], *before = look->before.copies[p];
        const unsigned char *after = look->after.copies[p];
        for (size_t i = at; i < at + (size_t)access->bytes; i++) {
            if (now[i] == after[i] || (now[i] == byte && after[i] == before[i])) continue;
            return fail(look, p, i, "depends on what it does not say it reads");
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
    for (int i = 0; i < graph->n_nodes && good; i += look.n_nodes) {
        look.node = &graph->nodes[i];
        look.n_nodes = 1;
        while (i + look.n_nodes < graph->n_nodes &&
               look.node[look.n_nodes].command->accesses == look.node->command->accesses) {
            look.n_nodes++;
        }
        good = look_at(&look);
    }
    fake_memory_free(&look.before);
    fake_memory_free(&look.after);
    return good;
}

#endif
