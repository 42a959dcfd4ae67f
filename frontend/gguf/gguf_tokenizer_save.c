#include "frontend/gguf/gguf_tokenizer.h"

bool gguf_tokenizer_save(const GgufFile *file, const char *path, Diag *diag) {
    (void)path;
    diag_error(diag, (SourceLoc){file->path, 0}, "not yet");
    return false;
}
