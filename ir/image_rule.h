/* What a model's loss says of images in its data (label_share's attributes that begin with image):
 * how each becomes a square of pixels, cut into patches, and what stands for it among the tokens.
 *
 * The input `pixels`, i32[batch, patches, pixel], has numbers 0..255: patches image after image, in
 * an image row by row; of a patch [channel, y, x]. Images that a row lacks are zeros, and nothing
 * reads what becomes of them: the k-th placeholder of a row has the k-th of its images' vectors.
 */
#ifndef IR_IMAGE_RULE_H
#define IR_IMAGE_RULE_H

#include "ir/graph.h"

#include <stdbool.h>
#include <stdint.h>

enum { IMAGE_MOST_AROUND = 16, IMAGE_MOST_SIDE = 4096, IMAGE_MOST_IMAGES = 1024 };

/* What becomes of a rectangle: made a square by itself; its shorter side made the square's, and the
 * middle taken; or filled up to a square with `mean`, which is resized. */
typedef enum ImageFit { IMAGE_STRETCH, IMAGE_CROP, IMAGE_PAD } ImageFit;
typedef enum ImageFilter { IMAGE_BICUBIC, IMAGE_BILINEAR, IMAGE_LANCZOS } ImageFilter;

typedef struct ImageRule {
    int32_t token;               /* the placeholder's */
    int64_t images, side, patch; /* in a row at most; pixels of a side, of an image and a patch */
    int64_t tokens;              /* placeholders of one image */
    ImageFit fit;
    ImageFilter filter;
    int n_before, n_after; /* tokens around an image's placeholders */
    int32_t before[IMAGE_MOST_AROUND], after[IMAGE_MOST_AROUND];
    uint8_t mean[3];        /* red, green, blue; of IMAGE_PAD */
    int64_t patches, pixel; /* of all images of a row, and numbers of a patch */
} ImageRule;

/* Tokens of one image: those around it and its placeholders, and which the i-th of them is. */
static inline int64_t image_rule_length(const ImageRule *rule) {
    return rule->n_before + rule->tokens + rule->n_after;
}
static inline int32_t image_rule_token(const ImageRule *rule, int64_t i) {
    const int64_t behind = i - rule->n_before - rule->tokens;
    return i < rule->n_before ? rule->before[i] : behind < 0 ? rule->token : rule->after[behind];
}

/* Does the loss say that rows have images? */
bool image_rule_is_there(const Node *share);
/* NULL, or what is wrong with it. Nothing else has to have checked it. */
const char *image_rule_read(const Node *share, ImageRule *out);
/* The dimensions of the input `pixels`; false: the graph has none. */
bool graph_image_pixels(const Graph *graph, int64_t *out_patches, int64_t *out_pixel);

#endif
