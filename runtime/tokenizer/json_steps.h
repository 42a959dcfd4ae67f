/* The steps of a tokenizer.json, normalizers, pre-tokenizers and decoder -> the tokenizer's. */
#ifndef RUNTIME_TOKENIZER_JSON_STEPS_H
#define RUNTIME_TOKENIZER_JSON_STEPS_H

#include "ir/base/json.h"
#include "runtime/tokenizer/tokenizer.h"

/* What all of the readers here need. */
typedef struct StepReader {
    Tokenizer *tokenizer;
    SourceLoc loc;
    Diag *diag;
    bool byte_level_ended; /* nothing can come after ByteLevel */
} StepReader;

/* False, reported: something is not supported. Sets byte_level. */
bool json_read_steps(Tokenizer *tokenizer, const json_t *root, const char *path, Diag *diag);
/* The normalizers alone (json_normalizers.c). */
bool json_read_normalizer(StepReader *reader, const json_t *object, int depth);

/* object[name], which may be missing or null. False: it is something else, reported. */
bool json_read_bool(const json_t *object, const char *name, const char *where, bool *out,
                    SourceLoc loc, Diag *diag);
bool json_read_text(const json_t *object, const char *name, const char *where, const char **out,
                    SourceLoc loc, Diag *diag);
/* False: the `what` of this type is not supported, reported. */
bool json_refuse_step(const StepReader *reader, const char *what, const char *type);
/* The object's "type"; NULL: reported. */
const char *json_step_type(const StepReader *reader, const json_t *object, const char *what);
/* Of {"String": ...} or {"Regex": ...}. False: it is neither, reported. */
bool json_read_pattern(const StepReader *reader, const json_t *object, const char *where,
                       const char **out_literal, const char **out_regex);

#endif
