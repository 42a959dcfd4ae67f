/* Texts with images -> rows. A document (token_mask.h) has one token, the placeholder, in the place
 * of each image, and at its end, none of them counting, the images' numbers (image_store.h) and how
 * many they are. A row is a text by itself, in which each such token has become what stands for its
 * image (image_texts.h), as many placeholders as the model has vectors among it; padding follows,
 * and behind it, for each part of an image that a row may have, the image's number and one, or 0.
 *
 * Texts longer than a row lose their end, but no image: those that would, and those with more
 * images than a row may have, are left out. */
#ifndef RUNTIME_DATA_IMAGE_ROWS_H
#define RUNTIME_DATA_IMAGE_ROWS_H

#include "ir/image_rule.h"
#include "runtime/data/image_store.h"
#include "runtime/data/token_buffer.h"
#include "runtime/tokenizer/image_texts.h"

typedef struct ImageRowOptions {
    const ImageRule *rule;
    const ImageStore *store; /* NULL: images are not split */
    ImageTexts *texts;
    size_t seq; /* a window: seq + rule->images numbers */
    uint32_t pad;
} ImageRowOptions;

typedef struct ImageTotals {
    int64_t n_texts, n_tokens; /* of rows; tokens with those of images, without padding */
    int64_t n_images, n_parts;
    int64_t n_cut;
    int64_t n_long;  /* left out: an image would be cut */
    int64_t n_many;  /* left out: more images than a row may have */
    int64_t n_empty; /* left out: no label counts */
} ImageTotals;

void image_add_totals(ImageTotals *sum, const ImageTotals *more);

/* The buffer then holds windows; it has 4 bytes a token. False: no memory, or no row is left;
 * reported. */
bool image_rows(TokenBuffer *buffer, const ImageRowOptions *options, ImageTotals *out, Diag *diag);

#endif
