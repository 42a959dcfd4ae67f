#include "runtime/cpu/cpu_report.h"

#include "ir/base/host.h"
#include "runtime/cpu/gemm.h"
#include "runtime/cpu/tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text after the colon of the first line that begins with `key`. */
static bool find_line(const char *cpuinfo, const char *key, char *out, size_t size) {
    for (const char *line = cpuinfo; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, "\n"), colon = strcspn(line, ":");
        if (colon >= length || strncmp(line, key, strlen(key)) != 0) continue;
        const char *text = line + colon + 1;
        text += strspn(text, " \t");
        snprintf(out, size, "%.*s", (int)(line + length - text), text);
        return true;
    }
    return false;
}

/* Linux on aarch64 gives numbers where x86-64 has a name: Arm's Main ID Register, implementer and
 * part. Those of servers: Graviton 2 to 4, Grace, Ampere, Axion, Cobalt. */
static const struct {
    long implementer, part;
    const char *name;
} arm_processors[] = {
    {0x41, 0xd0c, "Arm Neoverse N1"},   {0x41, 0xd40, "Arm Neoverse V1"},
    {0x41, 0xd49, "Arm Neoverse N2"},   {0x41, 0xd4f, "Arm Neoverse V2"},
    {0x41, 0xd83, "Arm Neoverse V3AE"}, {0x41, 0xd84, "Arm Neoverse V3"},
    {0x41, 0xd8e, "Arm Neoverse N3"},   {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1a"},
};

static bool name_arm(const char *cpuinfo, char *out, size_t size) {
    char implementer[32], part[32];
    if (!find_line(cpuinfo, "CPU implementer", implementer, sizeof(implementer)) ||
        !find_line(cpuinfo, "CPU part", part, sizeof(part))) {
        return false;
    }
    for (size_t i = 0; i < sizeof(arm_processors) / sizeof(arm_processors[0]); i++) {
        if (strtol(implementer, NULL, 0) != arm_processors[i].implementer) continue;
        if (strtol(part, NULL, 0) != arm_processors[i].part) continue;
        snprintf(out, size, "%s", arm_processors[i].name);
        return true;
    }
    snprintf(out, size, "Arm processor, implementer %s, part %s", implementer, part);
    return true;
}

void cpu_report_name(const char *cpuinfo, char *out, size_t size) {
    if (!find_line(cpuinfo, "model name", out, size) &&
        !find_line(cpuinfo, "Processor", out, size) && !name_arm(cpuinfo, out, size)) {
        snprintf(out, size, "unknown processor");
    }
    for (char *c = out; *c; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
}

static const char *built_for(void) {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__AVX__)
    return "AVX";
#elif defined(__ARM_NEON)
    return "NEON";
#else
    return "baseline";
#endif
}

/* As a word of its own in the list of flags: asking the kernel also says that it is switched on. */
static bool has_flag(const char *cpuinfo, const char *flag) {
    char flags[4096] = "";
    size_t length = strlen(flag);
    if (!find_line(cpuinfo, "flags", flags, sizeof(flags))) return false;
    for (const char *at = flags; (at = strstr(at, flag)); at += length) {
        bool begins = at == flags || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0')) return true;
    }
    return false;
}

/* All that is asked for is said of the first processor. */
static void read_cpuinfo(char *out, size_t size) {
    FILE *file = fopen("/proc/cpuinfo", "r");
    size_t length = file ? fread(out, 1, size - 1, file) : 0;
    out[length] = '\0';
    if (file) fclose(file);
}

void cpu_report(CpuReport *out) {
    char cpuinfo[8192];
    read_cpuinfo(cpuinfo, sizeof(cpuinfo));
    *out = (CpuReport){.cores = host_count_cores(), .vectors = built_for()};
    cpu_report_name(cpuinfo, out->name, sizeof(out->name));
    gemm_library_version(out->library, sizeof(out->library));
    out->tiles = tiles_ready();
    out->bf16 = out->tiles ? "amx_bf16" : has_flag(cpuinfo, "avx512_bf16") ? "avx512_bf16" : "none";
    out->bf16_native = strcmp(out->bf16, "none") != 0;
    out->memory_bytes = host_memory_bytes();
}
