/* Readers of what comes from outside, each a function of bytes: libFuzzer looks for bytes that
 * break one (`make fuzz`), and test_fuzz.c gives them what it once found.
 *
 * Bytes may be an error or be read; what is read is printed and read again, encoded, rendered,
 * proved, as the program would. A crash, a hang, memory out of proportion and a leak are findings,
 * and so is what says otherwise the second time: then a target aborts. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "ir/base/arena.h"
#include "ir/base/diag.h"

#include <stddef.h>
#include <stdint.h>

typedef void FuzzRun(const unsigned char *bytes, size_t n);

typedef struct FuzzTarget {
    const char *name;
    FuzzRun *run;
    int most_bytes;    /* of an input that is looked for */
    const char *seeds; /* files that it begins with, as the shell names them */
} FuzzTarget;

extern const FuzzTarget FUZZ_TARGETS[];        /* ends with one without a name */
const FuzzTarget *fuzz_find(const char *name); /* NULL: none */

/* What a target's reader works in. */
typedef struct FuzzSpace {
    Arena *arena;
    Diag *diag;
} FuzzSpace;
FuzzSpace fuzz_begin(void);
void fuzz_end(FuzzSpace *space);

/* The bytes, terminated; within them may be others that are 0. */
char *fuzz_text(FuzzSpace *space, const unsigned char *bytes, size_t n);
/* A file of that name that has the bytes, in a folder that goes with the process; its path. */
const char *fuzz_file(const char *name, const unsigned char *bytes, size_t n);
const char *fuzz_folder(void);

/* texts.c, files.c, images.c, messages.c */
FuzzRun fuzz_ir, fuzz_plan, fuzz_expression, fuzz_profile, fuzz_jinja, fuzz_pattern, fuzz_model,
    fuzz_cluster;
FuzzRun fuzz_safetensors, fuzz_gguf, fuzz_tokenizer, fuzz_sentencepiece, fuzz_config, fuzz_tokens,
    fuzz_stored, fuzz_parquet, fuzz_lines, fuzz_packed, fuzz_curve;
FuzzRun fuzz_image, fuzz_messages;

#endif
