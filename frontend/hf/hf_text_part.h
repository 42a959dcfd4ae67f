/* Folders of models that see pictures, too: their text part, which is a model that we have.
 *
 * config.json has the text part's configuration as `text_config`, and names of weights have more in
 * front. An import reads that part as if it were a folder of its own, and leaves the rest of the
 * weights alone; an export writes the text model.
 */
#ifndef FRONTEND_HF_HF_TEXT_PART_H
#define FRONTEND_HF_HF_TEXT_PART_H

#include "ir/base/arena.h"

#include <jansson.h>
#include <stdbool.h>

typedef struct HfTextPart {
    const char *type, *text_type; /* model_type of the whole, and of its text part */
    const char *defaults;         /* JSON: what a text_config means that does not say it */
    /* NULL ends each: what is in front of the text part's names, in place of "model." or in front
     * of it; and of those of what is left out. */
    const char *replaced[3], *in_front[3], *left_out[5];
} HfTextPart;

/* A row without a type ends them. Of a type that has text parts of several, rows follow each other,
 * and the first is that of a text_config without a model_type. */
extern const HfTextPart HF_TEXT_PARTS[];

/* If *json is of such a model: it becomes the text part's configuration, and *out its row; else
 * *out is NULL. NULL, or what is wrong with it, in the arena. */
const char *hf_text_part_take(Arena *arena, json_t **json, const HfTextPart **out);

/* The i-th name, from 0, that a file may have for `name`; NULL: there are no more. */
const char *hf_text_part_name(Arena *arena, const HfTextPart *part, const char *name, int i);

/* Is it a name of what is left out? */
bool hf_text_part_leaves(const HfTextPart *part, const char *name);

#endif
