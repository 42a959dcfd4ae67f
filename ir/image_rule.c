#include "ir/image_rule.h"

#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

static const AttrKey NUMBERS[] = {ATTR_image_token, ATTR_images, ATTR_image_side, ATTR_patch,
                                  ATTR_image_tokens};
static const AttrKey TEXTS[] = {ATTR_image_fit, ATTR_image_filter, ATTR_image_before,
                                ATTR_image_after, ATTR_image_mean};

bool image_rule_is_there(const Node *share) {
    bool any = false;
    for (size_t i = 0; i < sizeof(NUMBERS) / sizeof(NUMBERS[0]); i++) {
        any |= node_attr(share, NUMBERS[i]) != NULL;
    }
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        any |= node_attr(share, TEXTS[i]) != NULL;
    }
    return any;
}

/* The number of the word in the list that NULL ends, or -1. */
static int find_word(const char *const *words, const char *word) {
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], word) == 0) return i;
    }
    return -1;
}

/* "1,2,3" or "none" -> how many; -1: it is no such list of numbers from 0 to `most`. */
static int read_list(const char *list, int32_t most, int n_most, int32_t *out) {
    int n = 0;
    if (strcmp(list, "none") == 0) return 0;
    while (n < n_most) {
        char *end;
        if (*list < '0' || *list > '9' || strspn(list, "0123456789") > 10) return -1;
        long long number = strtoll(list, &end, 10);
        if (number > most) return -1;
        out[n++] = (int32_t)number;
        if (*end == '\0') return n;
        if (*end != ',') return -1;
        list = end + 1;
    }
    return -1;
}

static const char *read_texts(const Node *share, ImageRule *out) {
    static const char *const FITS[] = {"stretch", "crop", "pad", NULL};
    static const char *const FILTERS[] = {"bicubic", "bilinear", "lanczos", NULL};
    int fit = find_word(FITS, node_string(share, ATTR_image_fit));
    int filter = find_word(FILTERS, node_string(share, ATTR_image_filter));
    int32_t mean[3] = {0};
    if (fit < 0) return "'image_fit' must be stretch, crop or pad";
    if (filter < 0) return "'image_filter' must be bicubic, bilinear or lanczos";
    out->fit = (ImageFit)fit;
    out->filter = (ImageFilter)filter;
    out->n_before =
        read_list(node_string(share, ATTR_image_before), INT32_MAX, IMAGE_MOST_AROUND, out->before);
    out->n_after =
        read_list(node_string(share, ATTR_image_after), INT32_MAX, IMAGE_MOST_AROUND, out->after);
    if (out->n_before < 0 || out->n_after < 0) {
        return "'image_before' and 'image_after' must be at most 16 tokens' numbers with commas "
               "between them, or none";
    }
    int n_mean = read_list(node_string(share, ATTR_image_mean), UINT8_MAX, 3, mean);
    if (n_mean != 3 && (n_mean != 0 || out->fit == IMAGE_PAD)) {
        return "'image_mean' must be a colour, red, green and blue from 0 to 255 with commas "
               "between them, or, but for 'pad', none";
    }
    for (int i = 0; i < 3; i++) out->mean[i] = (uint8_t)mean[i];
    return NULL;
}

const char *image_rule_read(const Node *share, ImageRule *out) {
    int64_t numbers[5];
    *out = (ImageRule){.token = -1};
    for (int i = 0; i < 5; i++) {
        if (!node_attr(share, NUMBERS[i]) || !node_attr(share, TEXTS[i])) {
            return "'image_token', 'images', 'image_side', 'patch', 'image_tokens', 'image_fit', "
                   "'image_filter', 'image_before', 'image_after' and 'image_mean' go together";
        }
        numbers[i] = node_int(share, NUMBERS[i], -1);
    }
    if (numbers[0] < 0 || numbers[0] > INT32_MAX) return "'image_token' must be a token";
    if (numbers[1] < 1 || numbers[1] > IMAGE_MOST_IMAGES) {
        return "'images', in a row, must be from 1 to 1024";
    }
    if (numbers[2] < 1 || numbers[2] > IMAGE_MOST_SIDE) {
        return "'image_side' must be from 1 to 4096 pixels";
    }
    if (numbers[3] < 1 || numbers[2] % numbers[3] != 0) {
        return "'image_side' must be a multiple of 'patch', both in pixels";
    }
    const int64_t across = numbers[2] / numbers[3];
    if (numbers[4] < 1 || numbers[4] > INT32_MAX) return "'image_tokens' must be 1 or more";
    out->token = (int32_t)numbers[0];
    out->images = numbers[1];
    out->side = numbers[2];
    out->patch = numbers[3];
    out->tokens = numbers[4];
    out->patches = out->images * across * across;
    out->pixel = 3 * out->patch * out->patch;
    if (out->patches * out->pixel > INT32_MAX) return "a row has 2^31 pixels' numbers or more";
    return read_texts(share, out);
}

bool graph_image_pixels(const Graph *graph, int64_t *out_patches, int64_t *out_pixel) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        const Type *type = &node->types[0];
        if (node->op != OP_INPUT || type->rank < 3) continue;
        if (strcmp(node_string(node, ATTR_name), "pixels") != 0) continue;
        *out_patches = type->dims[type->rank - 2];
        *out_pixel = type->dims[type->rank - 1];
        return true;
    }
    return false;
}
