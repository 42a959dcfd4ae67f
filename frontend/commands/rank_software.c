#define _GNU_SOURCE /* dl_iterate_phdr */
#include "frontend/commands/rank_software.h"

#include "runtime/cpu/cpu_report.h"
#include "runtime/cuda/devices.h"
#include "runtime/launch/control.h"

#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SOFTWARE_BYTES = 512, MOST_VALUES = 4, BUILD_BYTES = 8 };

/* What the linker notes of a program: another build has another number. The first object is the
 * program itself. */
static int find_build(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    StrBuf *out = user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        if (header->p_type != PT_NOTE) continue;
        const char *at = (const char *)(info->dlpi_addr + header->p_vaddr);
        const char *end = at + header->p_memsz;
        while (end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) note;
            memcpy(&note, at, sizeof(note));
            const char *name = at + sizeof(note), *bytes = name + ((note.n_namesz + 3) & ~3u);
            if (bytes + note.n_descsz > end) break;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(name, "GNU", 4)) {
                strbuf_put(out, "perilune, build\t");
                for (unsigned k = 0; k < note.n_descsz && k < BUILD_BYTES; k++) {
                    strbuf_printf(out, "%02x", (unsigned char)bytes[k]);
                }
                strbuf_put(out, "\n");
                return 1;
            }
            at = bytes + ((note.n_descsz + 3) & ~3u);
        }
    }
    return 1;
}

/* The host, then lines of a kind, a tab and a value. */
static void describe(const EngineOptions *options, StrBuf *out) {
    char host[64] = "";
    CpuReport cpu;
    if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
    strbuf_printf(out, "%s\n", host);
    dl_iterate_phdr(find_build, out);
    if (options->device == DEVICE_CUDA) {
        cuda_software(options->device_ordinal, out);
        return;
    }
    cpu_report(&cpu);
    strbuf_printf(out, "matrix products by\t%s%s, %s in bf16\n", cpu.tiles ? "AMX, " : "",
                  cpu.library, cpu.bf16_native ? "native" : "widened");
}

/* The value that a rank's text has of a kind; "none" where it has none. */
static const char *find_value(const char *text, const char *kind, size_t kind_bytes,
                              size_t *out_bytes) {
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        const char *at = line + 1;
        if (strncmp(at, kind, kind_bytes) != 0 || at[kind_bytes] != '\t') continue;
        *out_bytes = strcspn(at + kind_bytes + 1, "\n");
        return at + kind_bytes + 1;
    }
    *out_bytes = strlen("none");
    return "none";
}

static bool is_value(const char *text, const char *kind, size_t kind_bytes, const char *value,
                     size_t bytes) {
    size_t n;
    const char *own = find_value(text, kind, kind_bytes, &n);
    return n == bytes && memcmp(own, value, n) == 0;
}

/* Ranks with other values than rank 0's, value by value. */
static void tell(const char *all, int world, const char *kind, size_t kind_bytes) {
    size_t first_bytes, bytes;
    const char *first = find_value(all, kind, kind_bytes, &first_bytes);
    bool *told = calloc((size_t)world, sizeof(*told)), *same = calloc((size_t)world, sizeof(*same));
    if (!told || !same) BUG("out of memory");
    for (int r = 1, n = 0; r < world && n < MOST_VALUES; r++) {
        const char *text = all + (size_t)r * SOFTWARE_BYTES;
        const char *value = find_value(text, kind, kind_bytes, &bytes);
        if (told[r] || is_value(all, kind, kind_bytes, value, bytes)) continue;
        int n_same = 0;
        for (int k = 1; k < world; k++) {
            same[k] = is_value(all + (size_t)k * SOFTWARE_BYTES, kind, kind_bytes, value, bytes);
            told[k] |= same[k];
            n_same += same[k];
        }
        StrBuf line = strbuf_create();
        strbuf_put(&line, n_same > 1 ? "ranks " : "rank ");
        control_put_ranks(&line, same, world);
        fprintf(stderr,
                "note: %s (%s%.*s) %s %.*s %.*s, rank 0 has %.*s: give all ranks the same\n",
                line.text, n_same > 1 ? "the first on " : "", (int)strcspn(text, "\n"), text,
                n_same > 1 ? "have" : "has", (int)kind_bytes, kind, (int)bytes, value,
                (int)first_bytes, first);
        strbuf_destroy(&line);
        n++;
    }
    free(told);
    free(same);
}

bool rank_software_compare(const EngineOptions *options) {
    if (!options->control) return true;
    const int world = control_world(options->control);
    StrBuf own = strbuf_create();
    describe(options, &own);
    size_t bytes = own.length < SOFTWARE_BYTES - 1 ? own.length : SOFTWARE_BYTES - 1;
    char *all = options->rank == 0 ? calloc((size_t)world, SOFTWARE_BYTES) : NULL;
    if (options->rank == 0 && !all) BUG("out of memory");
    bool met = control_gather(options->control, own.text, bytes, SOFTWARE_BYTES, all, NULL);
    const char *line = met && all ? strchr(own.text, '\n') : NULL;
    for (; line && line[1]; line = strchr(line + 1, '\n')) {
        tell(all, world, line + 1, strcspn(line + 1, "\t"));
    }
    free(all);
    strbuf_destroy(&own);
    return met;
}
