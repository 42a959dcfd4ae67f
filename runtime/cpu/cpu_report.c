#define _GNU_SOURCE /* sched_getaffinity */
#include "runtime/cpu/cpu_report.h"

#include "runtime/cpu/gemm.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The text after the colon of the first line of /proc/cpuinfo that begins with `key`. */
static bool find_in_cpuinfo(const char *key, char *out, size_t size) {
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        colon += strspn(colon, ": \t");
        size_t length = strcspn(colon, "\n");
        snprintf(out, size, "%.*s", (int)length, colon);
        found = true;
    }
    if (file) fclose(file);
    return found;
}

static void name_processor(CpuReport *out) {
    char name[sizeof(out->name)];
    if (!find_in_cpuinfo("model name", name, sizeof(name)) &&
        !find_in_cpuinfo("Processor", name, sizeof(name))) {
        snprintf(name, sizeof(name), "unknown processor");
    }
    for (char *c = name; *c; c++) {
        if (*c < ' ' || *c > '~') *c = '?';
    }
    memcpy(out->name, name, sizeof(name));
}

static int count_cores(void) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return CPU_COUNT(&cores);
    return (int)sysconf(_SC_NPROCESSORS_ONLN);
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
static bool has_flag(const char *flag) {
    char flags[4096] = "";
    size_t length = strlen(flag);
    if (!find_in_cpuinfo("flags", flags, sizeof(flags))) return false;
    for (const char *at = flags; (at = strstr(at, flag)); at += length) {
        bool begins = at == flags || at[-1] == ' ';
        if (begins && (at[length] == ' ' || at[length] == '\0')) return true;
    }
    return false;
}

void cpu_report(CpuReport *out) {
    *out = (CpuReport){.cores = count_cores(), .vectors = built_for()};
    name_processor(out);
    gemm_library_version(out->library, sizeof(out->library));
    out->bf16 = has_flag("avx512_bf16") ? "avx512_bf16" : "none"; /* gemm.c uses no AMX */
    out->bf16_native = strcmp(out->bf16, "none") != 0;
    out->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}
