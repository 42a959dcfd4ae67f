/* What control groups leave to a process: both versions, whole and nested, of containers that see
 * their own group as the root, and files that are not what they should be.
 *
 * Would catch: a limit of a containing group that is not seen; "max", or version 1's huge number,
 * for a limit; a quota without its period; the cpuset controller for cpu; a path that leads out of
 * the mount.
 */
#include "ir/base/arena.h"
#include "ir/base/host.h"
#include "tests/unit/check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_FILES = 6 };

typedef struct Case {
    const char *name, *cgroup; /* /proc/self/cgroup */
    struct {
        const char *path, *text;
    } files[MOST_FILES];
    int64_t memory;
    double cores;
} Case;

/* Folders on the way, then the file. */
static void put(Arena *arena, const char *root, const char *path, const char *text) {
    char *whole = arena_printf(arena, "%s%s", root, path);
    for (char *slash = strchr(whole + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(whole, 0700) != 0 && errno != EEXIST) CHECK(false, "mkdir %s", whole);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    CHECK(file, "%s: %s", whole, strerror(errno));
    if (!file) return;
    fputs(text, file);
    fclose(file);
}

static void test_groups(void) {
    static const Case CASES[] = {
        {"no control groups", "", {{NULL, NULL}}, 0, 0},
        {"a container, version 2",
         "0::/\n",
         {{"/sys/fs/cgroup/memory.max", "4294967296\n"},
          {"/sys/fs/cgroup/cpu.max", "250000 100000\n"}},
         INT64_C(4) << 30,
         2.5},
        {"no limits",
         "0::/\n",
         {{"/sys/fs/cgroup/memory.max", "max\n"}, {"/sys/fs/cgroup/cpu.max", "max 100000\n"}},
         0,
         0},
        {"the least of a group and those around it",
         "0::/jobs/one/step\n",
         {{"/sys/fs/cgroup/jobs/one/step/memory.max", "max\n"},
          {"/sys/fs/cgroup/jobs/one/memory.max", "1000000\n"},
          {"/sys/fs/cgroup/jobs/memory.max", "3000000\n"},
          {"/sys/fs/cgroup/jobs/one/step/cpu.max", "400000 100000\n"},
          {"/sys/fs/cgroup/jobs/cpu.max", "300000 100000\n"}},
         1000000,
         3},
        {"version 1",
         "4:memory:/docker/abc\n3:cpuset:/x\n2:cpu,cpuacct:/docker/abc\n0::/\n",
         {{"/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "2147483648\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "150000\n"},
          {"/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n"}},
         INT64_C(2) << 30,
         1.5},
        {"version 1, seen as the root",
         "4:memory:/docker/abc\n1:cpu:/docker/abc\n",
         {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
         INT64_C(1) << 30,
         0},
        {"version 1 without limits",
         "4:memory:/\n1:cpu:/\n",
         {{"/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
          {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"}},
         0,
         0},
        {"both, of which the old one counts cores",
         "1:cpu:/a\n0::/a\n",
         {{"/sys/fs/cgroup/unified/a/memory.max", "5000000\n"},
          {"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"},
          {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}},
         5000000,
         0.5},
        {"the cpuset is no quota",
         "1:cpuset:/a\n",
         {{"/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"},
          {"/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"}},
         0,
         0},
        {"a path out of the mount",
         "0::/../../other\n",
         {{"/sys/fs/cgroup/memory.max", "7000000\n"}, {"/sys/other/memory.max", "10\n"}},
         7000000,
         0},
        {"what is no number",
         "0::/a\nnonsense\n::\n:\n",
         {{"/sys/fs/cgroup/a/memory.max", "nan\n"},
          {"/sys/fs/cgroup/a/cpu.max", "-5 100000\n"},
          {"/sys/fs/cgroup/memory.max", "-7\n"},
          {"/sys/fs/cgroup/cpu.max", "100000 0\n"}},
         0,
         0},
    };
    for (size_t k = 0; k < sizeof(CASES) / sizeof(CASES[0]); k++) {
        const Case *at = &CASES[k];
        Arena *arena = arena_create();
        char root[] = "/tmp/perilune_host_XXXXXX";
        check_begin(at->name);
        CHECK(mkdtemp(root), "no folder");
        put(arena, root, "/proc/self/cgroup", at->cgroup);
        for (int i = 0; i < MOST_FILES && at->files[i].path; i++) {
            put(arena, root, at->files[i].path, at->files[i].text);
        }
        HostLimits limits = host_limits_read(root);
        CHECK(limits.memory_bytes == at->memory, "%lld bytes, not %lld",
              (long long)limits.memory_bytes, (long long)at->memory);
        CHECK(limits.cores == at->cores, "%g cores, not %g", limits.cores, at->cores);
        CHECK(system(arena_printf(arena, "rm -r %s", root)) == 0, "%s is left", root);
        arena_destroy(arena);
        check_end();
    }
}

static void test_here(void) {
    check_begin("a process has some memory and a core");
    CHECK(host_memory_bytes() > 0 && host_count_cores() > 0, "%lld bytes, %d cores",
          (long long)host_memory_bytes(), host_count_cores());
    CHECK(strstr(host_memory_phrase(), host_memory_is_limited() ? "allows" : "has"), "%s",
          host_memory_phrase());
    check_end();
}

int main(void) {
    test_groups();
    test_here();
    return check_report();
}
