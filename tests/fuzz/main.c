/* What libFuzzer calls; FUZZ_TARGET says whose bytes they are. */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const FuzzTarget *target;
    if (!target) {
        const char *name = getenv("FUZZ_TARGET");
        target = name ? fuzz_find(name) : NULL;
        if (!target) {
            fprintf(stderr, "FUZZ_TARGET is none of the targets (tests/fuzz/run --list)\n");
            exit(2);
        }
    }
    target->run(bytes, n);
    return 0;
}
