/* Models that tell classes of whole texts, or how good answers are: what transformers calls
 * ...ForSequenceClassification.
 *
 * The labels of config.json are the setting `classes` of a script in models/, by their names or, of
 * transformers' own (LABEL_0) and where one is no name here (ir/class_names.h), how many there are.
 * By problem_type a text has one of them, any number (class_kind=sets), or a number of each (mse).
 * A single label is a number, too, of an encoder, and of a decoder, unless it is called a
 * regression, a reward, `preference=reward`. Where a text ends transformers knows by the token
 * behind it, pad_token_id.
 */
#ifndef FRONTEND_HF_HF_CLASSES_H
#define FRONTEND_HF_HF_CLASSES_H

#include "frontend/hf/hf_families.h"
#include "frontend/lua/model.h"

#include <jansson.h>

typedef struct HfClasses {
    ModelSetting setting; /* its key is NULL: the configuration is of another kind of model */
    ModelSetting kind;    /* class_kind; its key is NULL: a text has one of the classes */
    const char *unnamed;  /* a label that is no name, shown; NULL: there is none */
} HfClasses;

/* Are texts told by their first token, as encoders do, or all of them? Else by their last one. */
bool hf_classes_of_encoder(const HfFamily *family);

/* NULL, or what is wrong, in the arena. */
const char *hf_classes_read(Arena *arena, const json_t *json, const HfFamily *family,
                            const HfType *type, HfClasses *out);

/* How many numbers the model tells of a text: its classes, 1: a reward, 0: it says tokens. */
int hf_classes_count(const Model *model);
/* The type's architecture for such a model, or one that makes vectors of texts. */
const char *hf_classes_architecture(const HfType *type, const Model *model);
/* Settings that only an output over tokens has are as good as any in a model without one. */
bool hf_classes_lacks(const Model *model, const char *setting);

/* Labels and padding of the model in its configuration, which begins as a copy of `like` (NULL:
 * there is none). By number alone, classes keep the labels of a `like` that has as many. */
void hf_classes_write(const Model *model, const json_t *like, json_t *json);
/* The token of padding that a configuration says; -1: it says none. */
int64_t hf_classes_padding(const json_t *json);

#endif
