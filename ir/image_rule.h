/* What a model's loss says of images in its data (label_share's attributes that begin with image):
 * how each becomes a square of pixels, or several, cut into patches, and what stands for it among
 * the tokens.
 *
 * The input `pixels`, i32[batch, patches, pixel], has numbers 0..255: patches image after image, in
 * an image row by row; of a patch [channel, y, x]. Images that a row lacks are zeros, and nothing
 * reads what becomes of them: the k-th placeholder of a row has the k-th of its images' vectors.
 *
 * Where images are split, each is a grid of tiles and, behind them, the whole image, or the whole
 * alone: parts, each a square, with placeholders of its own. `images` of a row are parts then.
 */
#ifndef IR_IMAGE_RULE_H
#define IR_IMAGE_RULE_H

#include "ir/graph.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    IMAGE_MOST_AROUND = 16,
    IMAGE_MOST_SIDE = 4096,
    IMAGE_MOST_IMAGES = 1024,
    IMAGE_MOST_TILES = 64,
    IMAGE_MOST_TEXT = 128, /* bytes, with what ends it */
};

/* What becomes of a rectangle: made a square by itself; its shorter side made the square's, and the
 * middle taken; or filled up to a square with `mean`, which is resized. */
typedef enum ImageFit { IMAGE_STRETCH, IMAGE_CROP, IMAGE_PAD } ImageFit;
typedef enum ImageFilter { IMAGE_BICUBIC, IMAGE_BILINEAR, IMAGE_LANCZOS } ImageFilter;

/* Into tiles: not; the longer side made so many pixels and both sides multiples of a tile's
 * (Idefics 3, SmolVLM); or the grid of so many tiles whose sides are most like the image's
 * (InternVL). */
typedef enum ImageSplit { IMAGE_WHOLE, IMAGE_EDGE, IMAGE_RATIO } ImageSplit;

/* Tiles of an image; none: the whole alone. */
typedef struct ImageGrid {
    int rows, columns;
} ImageGrid;

/* What stands around placeholders: tokens, or, where there is a text, what a tokenizer makes of
 * it. */
typedef struct ImageAround {
    int n;
    int32_t tokens[IMAGE_MOST_AROUND];
    char text[IMAGE_MOST_TEXT];
} ImageAround;

typedef struct ImageRule {
    int32_t token;               /* the placeholder's */
    int64_t images, side, patch; /* in a row at most; pixels of a side, of an image and a patch */
    int64_t tokens;              /* placeholders of one image, or part of one */
    ImageFit fit;
    ImageFilter filter;
    ImageAround before, after; /* an image's placeholders */
    uint8_t mean[3];           /* red, green, blue; of IMAGE_PAD */
    int64_t patches, pixel;    /* of all images of a row, and numbers of a patch */
    ImageSplit split;
    int64_t edge;                                      /* of IMAGE_EDGE */
    char tile[IMAGE_MOST_TEXT], line[IMAGE_MOST_TEXT]; /* texts, of IMAGE_EDGE */
    int least_tiles, most_tiles;                       /* of IMAGE_RATIO */
} ImageRule;

/* What `images` of a row are. */
static inline const char *image_rule_parts(const ImageRule *rule) {
    return rule->split == IMAGE_WHOLE ? "images" : "parts of images";
}

/* Squares of an image of such a grid. */
static inline int64_t image_grid_parts(ImageGrid grid) {
    return (int64_t)grid.rows * grid.columns + 1;
}

/* Does the loss say that rows have images? */
bool image_rule_is_there(const Node *share);
/* NULL, or what is wrong with it. Nothing else has to have checked it. */
const char *image_rule_read(const Node *share, ImageRule *out);
/* Has each image as many placeholders as nn.place_images has vectors of it? Else images would have
 * one another's. False: reported. */
bool image_rule_fits(const Graph *graph, const Node *share, const ImageRule *rule, Diag *diag);
/* The dimensions of the input `pixels`; false: the graph has none. */
bool graph_image_pixels(const Graph *graph, int64_t *out_patches, int64_t *out_pixel);

#endif
