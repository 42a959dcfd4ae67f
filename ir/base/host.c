#define _GNU_SOURCE /* sched_getaffinity */
#include "ir/base/host.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, FILE_BYTES = 16384 };

/* The beginning of a file; "" if it cannot be read. */
static void read_text(const char *path, char *out, size_t size) {
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(out, 1, size - 1, file) : 0;
    out[length] = '\0';
    if (file) fclose(file);
}

/* The numbers in folder/name, as many as there are; the first may be "max". */
static int read_numbers(const char *folder, const char *name, double out[2]) {
    char path[PATH_BYTES], text[128], *end;
    int n = 0;
    if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path)) return 0;
    read_text(path, text, sizeof(text));
    for (const char *at = text; n < 2; at = end) {
        out[n] = strtod(at, &end);
        if (end == at || !isfinite(out[n])) break;
        n++;
    }
    return n;
}

static void limit_memory(HostLimits *limits, double bytes) {
    if (!(bytes > 0) || bytes >= 0x1p62) return; /* version 1 says so that there is none */
    if (limits->memory_bytes == 0 || bytes < (double)limits->memory_bytes)
        limits->memory_bytes = (int64_t)bytes;
}

static void limit_cores(HostLimits *limits, double quota, double period) {
    if (!(quota > 0) || !(period > 0)) return; /* version 1: -1 is none */
    double cores = quota / period;
    if (limits->cores == 0 || cores < limits->cores) limits->cores = cores;
}

typedef enum Kind { UNIFIED, MEMORY, CPU } Kind;

static void read_group(HostLimits *limits, Kind kind, const char *folder) {
    double quota[2], period[2];
    if (kind == UNIFIED) {
        if (read_numbers(folder, "memory.max", quota) >= 1) limit_memory(limits, quota[0]);
        if (read_numbers(folder, "cpu.max", quota) == 2) limit_cores(limits, quota[0], quota[1]);
    } else if (kind == MEMORY) {
        if (read_numbers(folder, "memory.limit_in_bytes", quota) >= 1)
            limit_memory(limits, quota[0]);
    } else if (read_numbers(folder, "cpu.cfs_quota_us", quota) >= 1 &&
               read_numbers(folder, "cpu.cfs_period_us", period) >= 1) {
        limit_cores(limits, quota[0], period[0]);
    }
}

/* The group and all that contain it. A container may see its own as the root of the mount, while
 * /proc has the machine's path, of which the mount has nothing. */
static void read_groups(HostLimits *limits, Kind kind, const char *mount, const char *group) {
    char folder[PATH_BYTES];
    if (snprintf(folder, sizeof(folder), "%s%s", mount, group) >= (int)sizeof(folder)) return;
    for (size_t root = strlen(mount);;) {
        read_group(limits, kind, folder);
        char *slash = strrchr(folder + root, '/');
        if (!slash) return;
        *slash = '\0';
    }
}

static bool has_word(const char *list, const char *word) {
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strncmp(at, word, strlen(word)) == 0 && strchr(",", at[strlen(word)])) return true;
    }
    return false;
}

/* A line of /proc/self/cgroup: number:controllers:path, of version 2 without controllers. */
static void read_line(HostLimits *limits, const char *root, char *line) {
    char mount[PATH_BYTES];
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path) return;
    *controllers++ = '\0';
    *path++ = '\0';
    if (strstr(path, "..")) path[0] = '\0'; /* of another namespace: the mount's root is known */
    static const struct {
        Kind kind;
        const char *word, *folder;
    } WHERE[] = {{UNIFIED, "", ""},
                 {UNIFIED, "", "/unified"},
                 {MEMORY, "memory", "/memory"},
                 {CPU, "cpu", "/cpu"},
                 {CPU, "cpu", "/cpu,cpuacct"}};
    for (size_t i = 0; i < sizeof(WHERE) / sizeof(WHERE[0]); i++) {
        bool here =
            WHERE[i].kind == UNIFIED ? !controllers[0] : has_word(controllers, WHERE[i].word);
        if (!here) continue;
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup%s", root, WHERE[i].folder);
        read_groups(limits, WHERE[i].kind, mount, path);
    }
}

HostLimits host_limits_read(const char *root) {
    HostLimits limits = {0};
    char path[PATH_BYTES], *text = malloc(FILE_BYTES), *rest = NULL;
    if (!text) return limits;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    read_text(path, text, FILE_BYTES);
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        read_line(&limits, root, line);
    }
    free(text);
    return limits;
}

/* Limits do not change while a process runs, or not so that it could follow. */
static HostLimits known;
static void read_once(void) {
    known = host_limits_read("");
}

static const HostLimits *own_limits(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_once);
    return &known;
}

static int64_t machine_bytes(void) {
    return (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

bool host_memory_is_limited(void) {
    int64_t limit = own_limits()->memory_bytes;
    return limit > 0 && limit < machine_bytes();
}

int64_t host_memory_bytes(void) {
    return host_memory_is_limited() ? own_limits()->memory_bytes : machine_bytes();
}

const char *host_memory_phrase(void) {
    return host_memory_is_limited() ? "its control group (container, job) allows"
                                    : "this machine has";
}

int host_count_cores(void) {
    cpu_set_t bound;
    CPU_ZERO(&bound);
    int n = sched_getaffinity(0, sizeof(bound), &bound) == 0 ? CPU_COUNT(&bound)
                                                             : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = own_limits()->cores;
    if (quota > 0 && ceil(quota) < n) n = (int)ceil(quota);
    return n > 1 ? n : 1;
}
