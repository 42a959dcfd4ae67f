/* What GGUF calls things: llama.cpp's architectures as families of rows (hf_families.h).
 *
 * A type is one architecture, HfType.architecture its name in files; of those that are read as
 * several scripts there are several types, such as Llama with and without experts. Keys of rows are
 * those of metadata without the architecture before them. Keys that begin with '_' are in no file:
 * gguf_config.c makes them of what is in it, and writes what they say in other ways.
 *
 * Sources: llama.cpp's conversion (the folder conversion) for names, orders of rows and metadata,
 * its src/models for what it computes.
 */
#ifndef FRONTEND_GGUF_GGUF_ARCHS_H
#define FRONTEND_GGUF_GGUF_ARCHS_H

#include "frontend/hf/hf_families.h"

#include "ir/base/arena.h"

#include <stdbool.h>

#define GGUF_READER "llama.cpp" /* for messages */

extern const HfFamily *const GGUF_FAMILIES[]; /* ends with NULL */

const HfFamily *gguf_family_of(const char *script); /* NULL: none */
/* The type of an architecture, with experts or without. NULL: none */
const HfType *gguf_type_of(const char *architecture, bool experts, const HfFamily **out_family);
const char *gguf_arch_names(Arena *arena); /* "gpt2, llama, ..." */

#endif
