/* config.json of Hugging Face's transformers: read into a script's settings, and written from them.
 *
 * Both directions follow the rows of hf_families.c. A file may have the form of transformers 4
 * (rope_theta, rope_scaling) or 5 (rope_parameters); what is written has the older one, which both
 * read.
 */
#ifndef FRONTEND_HF_HF_CONFIG_H
#define FRONTEND_HF_HF_CONFIG_H

#include "frontend/hf/hf_classes.h"
#include "frontend/hf/hf_families.h"
#include "frontend/hf/hf_quantized.h"
#include "frontend/hf/hf_text_part.h"
#include "frontend/lua/model.h"

#include <jansson.h>

#define HF_READER "transformers" /* who reads what the rows of HF_FAMILIES are about */

typedef struct HfConfig {
    const char *path; /* of the file */
    const HfFamily *family;
    const HfType *type;
    const HfTextPart *part; /* NULL: the folder is a text model's */
    HfClasses classes;
    HfQuantized quantized;
    int n_settings, settings_capacity;
    ModelSetting *settings; /* of the family's script */
    /* Where a setting is less than the file says, because nothing larger was asked for: NULL, or
     * its name and what the file says. */
    const char *cut;
    int64_t cut_from;
    json_t *json; /* as the rows see it; the reader's caller frees it */
} HfConfig;

/* Reads DIR/config.json. What the rows do not support is reported by its name: false. */
bool hf_config_read(Arena *arena, const char *dir, HfConfig *out, Diag *diag);

/* The type of a model by its script's name and settings; `wanted`, if not NULL, is the one that it
 * has to be. `reader`: whose types they are, for messages. NULL: reported. */
const HfType *hf_config_type(const Model *model, const HfFamily *family, const HfType *wanted,
                             const char *reader, Diag *diag);

/* The configuration of a model, as an object that the caller frees; `like`, if not NULL, gives what
 * no row knows. NULL: reported. */
json_t *hf_config_write(const Model *model, const HfFamily *family, const HfType *type,
                        const json_t *like, const char *dtype, Diag *diag);

/* The same by rows alone, of any family: what `json`, of the file `path`, says of a type; out has
 * it then. False: reported, and it is freed. And of a model, what the rows say, into `json`. */
bool hf_config_read_rows(Arena *arena, const char *path, json_t *json, const HfFamily *family,
                         const HfType *type, HfConfig *out, Diag *diag);
bool hf_config_write_rows(const Model *model, const HfFamily *family, const HfType *type,
                          const char *reader, json_t *json, Diag *diag);

/* The family of the script of that name. NULL: none. */
const HfFamily *hf_family_find(const char *script);
/* Of the model that weights name. NULL: reported. */
const HfFamily *hf_family_of(Arena *arena, const char *model, Diag *diag);
/* Likewise, of several of one script the one that has a type of the model's settings. */
const HfFamily *hf_family_of_model(const Model *model, Diag *diag);
/* "gpt2, llama, ..." */
const char *hf_type_names(Arena *arena);

/* A value for messages: its JSON in ASCII, cut where it is long. */
const char *hf_config_shown(Arena *arena, const json_t *value);

#endif
