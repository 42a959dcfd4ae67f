#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Seeds are small: what is found in large ones is found in small ones, and sooner. */
const FuzzTarget FUZZ_TARGETS[] = {
    {"ir", fuzz_ir, 4096, "tests/golden/ir/*.ir tests/golden/passes/*.ir"},
    {"plan", fuzz_plan, 64000, "build-fuzz/seeds/*.plan"},
    {"expression", fuzz_expression, 400, "build-fuzz/seeds/*.expression"},
    {"profile", fuzz_profile, 30000, "build-fuzz/seeds/*.profile"},
    {"jinja", fuzz_jinja, 3000, "tests/data/chat_templates/*.jinja build-fuzz/seeds/*.jinja"},
    {"pattern", fuzz_pattern, 300, "build-fuzz/seeds/*.pattern"},
    {"model", fuzz_model, 6000, "tests/models/*.lua"},
    {"cluster", fuzz_cluster, 3000, "tests/data/slow_*.lua planner/clusters/cpu*.lua"},
    {"safetensors", fuzz_safetensors, 6000, "build-fuzz/seeds/*.safetensors"},
    {"gguf", fuzz_gguf, 30000, "tests/data/gguf/llama31.gguf"},
    {"tokenizer", fuzz_tokenizer, 16000, "build-fuzz/seeds/*.tokenizer"},
    {"sentencepiece", fuzz_sentencepiece, 12000, "build-fuzz/seeds/*.sentencepiece"},
    {"config", fuzz_config, 3000, "tests/reference/hf/*/config.json"},
    {"tokens", fuzz_tokens, 3000, "build-fuzz/seeds/*.tokens"},
    {"stored", fuzz_stored, 6000, "build-fuzz/seeds/*.stored"},
    {"parquet", fuzz_parquet, 6000, "tests/data/parquet/*.parquet"},
    {"lines", fuzz_lines, 3000, "build-fuzz/seeds/*.lines"},
    {"packed", fuzz_packed, 3000, "build-fuzz/seeds/*.gz build-fuzz/seeds/*.zst"},
    {"curve", fuzz_curve, 4000, "build-fuzz/seeds/*.curve"},
    {"image", fuzz_image, 4096, "tests/data/images/*.[jpw]*"},
    {"messages", fuzz_messages, 2000, "build-fuzz/seeds/*.messages"},
    {0},
};

const FuzzTarget *fuzz_find(const char *name) {
    for (const FuzzTarget *target = FUZZ_TARGETS; target->name; target++) {
        if (strcmp(target->name, name) == 0) return target;
    }
    return NULL;
}

FuzzSpace fuzz_begin(void) {
    return (FuzzSpace){arena_create(), diag_create()};
}

void fuzz_end(FuzzSpace *space) {
    diag_destroy(space->diag);
    arena_destroy(space->arena);
}

char *fuzz_text(FuzzSpace *space, const unsigned char *bytes, size_t n) {
    char *text = arena_alloc(space->arena, n + 1);
    if (n) memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

static char folder[64];

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    if (system(command)) fprintf(stderr, "%s is left\n", folder);
}

const char *fuzz_folder(void) {
    if (!folder[0]) {
        const char *in = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
        snprintf(folder, sizeof(folder), "%s/perilune-fuzz-XXXXXX", in);
        if (!mkdtemp(folder)) abort();
        atexit(remove_folder);
    }
    return folder;
}

const char *fuzz_file(const char *name, const unsigned char *bytes, size_t n) {
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", fuzz_folder(), name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, bytes, n) != (ssize_t)n || close(file)) abort();
    return path;
}
