/* The fuzzer's targets (tests/fuzz) without a fuzzer: what it once found, seeds, seeds that are cut
 * and seeds of which a byte is another. Catches: what was mended and is broken again, and targets
 * that nobody ran. `make fuzz` looks for more. */
#include "tests/fuzz/fuzz.h"
#include "tests/unit/check.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static unsigned char *read_whole(const char *path, size_t *out_n) {
    FILE *file = fopen(path, "rb");
    CHECK(file, "'%s' cannot be read", path);
    if (!file) return NULL;
    fseek(file, 0, SEEK_END);
    *out_n = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*out_n + 1);
    if (fread(bytes, 1, *out_n, file) != *out_n) *out_n = 0;
    fclose(file);
    return bytes;
}

/* From a block of just that size: running over its end shows. */
static void give(const FuzzTarget *target, const unsigned char *bytes, size_t n) {
    unsigned char *copy = malloc(n ? n : 1);
    if (n) memcpy(copy, bytes, n);
    target->run(copy, n);
    free(copy);
}

static void damage(const FuzzTarget *target, unsigned char *bytes, size_t n) {
    static uint32_t state = 20261201;
    enum { CHANGES = 6 / VARIANT_STEP };
    give(target, bytes, n / 2);
    for (int i = 0; n && i < CHANGES; i++) {
        state = state * 1664525 + 1013904223;
        unsigned char *at = &bytes[state % n], kept = *at;
        *at ^= (unsigned char)(1u << (state >> 29));
        give(target, bytes, n);
        *at = kept;
    }
}

/* Of the files that the pattern names at most so many, one way or the other. -> how many they are.
 */
static int give_files(const FuzzTarget *target, const char *pattern, size_t most, bool damaged) {
    glob_t found;
    int n = 0;
    if (glob(pattern, 0, NULL, &found)) return 0;
    const size_t step = found.gl_pathc > most ? found.gl_pathc / most : 1;
    for (size_t i = 0; i < found.gl_pathc; i += step, n++) {
        size_t length;
        unsigned char *bytes = read_whole(found.gl_pathv[i], &length);
        if (!bytes) continue;
        give(target, bytes, length);
        if (damaged) damage(target, bytes, length);
        free(bytes);
    }
    globfree(&found);
    return n;
}

/* As `make fuzz` has it: what would take 1 GiB for bytes that are a few is a finding. */
static void limit_allocations(char **argv) {
#ifdef __SANITIZE_ADDRESS__
    const char *given = getenv("ASAN_OPTIONS");
    char options[512];
    if (getenv("FUZZ_LIMITED")) return;
    snprintf(options, sizeof(options), "%s:max_allocation_size_mb=1024", given ? given : "");
    if (setenv("ASAN_OPTIONS", options, 1) || setenv("FUZZ_LIMITED", "1", 1)) abort();
    execv("/proc/self/exe", argv);
    abort();
#else
    (void)argv;
#endif
}

int main(int argc, char **argv) {
    (void)argc;
    limit_allocations(argv);
    for (const FuzzTarget *target = FUZZ_TARGETS; target->name; target++) {
        char name[80], found[120], *seeds = strdup(target->seeds), *rest = seeds;
        snprintf(name, sizeof(name), "%s: nothing, a byte, seeds, damaged seeds", target->name);
        check_begin(name);
        give(target, NULL, 0);
        give(target, (const unsigned char *)"\n", 1);
        for (char *pattern; (pattern = strsep(&rest, " "));) {
            if (strncmp(pattern, "build", 5) == 0) continue; /* made by make fuzz */
            CHECK(give_files(target, pattern, 5, true) > 0, "no seed is at %s", pattern);
        }
        snprintf(name, sizeof(name), "%s: what was found once", target->name);
        snprintf(found, sizeof(found), "tests/fuzz/found/%s-*", target->name);
        check_begin(name);
        give_files(target, found, 1000, false);
        free(seeds);
    }
    return check_report();
}
