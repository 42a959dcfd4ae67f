/* What becomes of an image before a model of transformers sees it: preprocessor_config.json, or the
 * image_processor within a processor_config.json, as the settings that models/VISION.md names.
 *
 * A folder without either is taken as such models are published, one image a row and not split.
 * InternVL's processor always cuts images to tiles, whatever crop_to_patches says; max_patches 1 is
 * how it does not.
 */
#ifndef FRONTEND_HF_HF_PROCESSOR_H
#define FRONTEND_HF_HF_PROCESSOR_H

#include "frontend/lua/model.h"

#include <jansson.h>

enum { HF_PROCESSOR_SETTINGS = 12 };

/* Settings of a folder of a type that sees images, whose configuration is as hf_vision_take has it;
 * none of other types. What cannot be had, or says other things than the configuration, is reported
 * by its key: false. */
bool hf_processor_read(Arena *arena, const char *dir, const json_t *config, ModelSetting *out,
                       int *out_count, Diag *diag);

/* Writes preprocessor_config.json and processor_config.json for AutoProcessor into `dir`, or, where
 * it is NULL, tries whether they can say what the model does; nothing of types that see no images.
 * `like`, if not NULL, is a folder whose files give what is not known here. */
bool hf_processor_write(Arena *arena, const Model *model, const char *type, const char *like,
                        const char *dir, Diag *diag);

#endif
