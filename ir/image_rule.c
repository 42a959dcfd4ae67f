#include "ir/image_rule.h"

#include "ir/op.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const AttrKey NUMBERS[] = {ATTR_image_token, ATTR_images, ATTR_image_side, ATTR_patch,
                                  ATTR_image_tokens};
static const AttrKey TEXTS[] = {ATTR_image_fit, ATTR_image_filter, ATTR_image_before,
                                ATTR_image_after, ATTR_image_mean};

static const AttrKey SPLITS[] = {ATTR_image_split, ATTR_image_edge, ATTR_least_tiles,
                                 ATTR_most_tiles,  ATTR_image_tile, ATTR_image_line};

bool image_rule_is_there(const Node *share) {
    bool any = false;
    for (size_t i = 0; i < sizeof(SPLITS) / sizeof(SPLITS[0]); i++) {
        any |= node_attr(share, SPLITS[i]) != NULL;
    }
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

/* A text in which \n is a line's end and \\ is \, or none; false: it is too long, or has something
 * else behind a \. */
static bool read_text(const char *from, char *out) {
    size_t n = 0;
    if (strcmp(from, "none") == 0) from = "";
    for (; *from; from++) {
        char c = *from;
        if (c == '\\') {
            c = *++from == 'n' ? '\n' : *from == '\\' ? '\\' : '\0';
            if (c == '\0') return false;
        }
        if (n == IMAGE_MOST_TEXT - 1) return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* Numbers of tokens, or else a text. */
static bool read_around(const char *from, ImageAround *out) {
    *out = (ImageAround){0};
    if (*from == '\0') return false;
    if (strcmp(from, "none") != 0 && strspn(from, "0123456789,") != strlen(from)) {
        return read_text(from, out->text);
    }
    out->n = read_list(from, INT32_MAX, IMAGE_MOST_AROUND, out->tokens);
    return out->n >= 0;
}

static const char *read_split(const Node *share, ImageRule *out) {
    static const char *const WORDS[] = {"edge", "ratio", NULL};
    bool there[6], any = false;
    for (int i = 0; i < 6; i++) any |= there[i] = node_attr(share, SPLITS[i]) != NULL;
    if (!any) return NULL;
    const int word = there[0] ? find_word(WORDS, node_string(share, ATTR_image_split)) : -1;
    if (word < 0) return "'image_split' must be edge or ratio, or none of its kin is there";
    if (out->fit != IMAGE_STRETCH) return "'image_split' goes with 'image_fit' stretch";
    out->split = word == 0 ? IMAGE_EDGE : IMAGE_RATIO;
    if (out->split == IMAGE_EDGE) {
        out->edge = node_int(share, ATTR_image_edge, 0);
        if (!there[1] || there[2] || there[3] || !there[4] || !there[5]) {
            return "'image_split' edge goes with 'image_edge', 'image_tile' and 'image_line'";
        }
        if (out->edge < out->side || out->edge > IMAGE_MOST_SIDE) {
            return "'image_edge' must be from 'image_side' to 4096 pixels";
        }
        if (!read_text(node_string(share, ATTR_image_tile), out->tile) ||
            !read_text(node_string(share, ATTR_image_line), out->line)) {
            return "'image_tile' and 'image_line' must be texts of at most 127 bytes, with \\n "
                   "for a line's end";
        }
        return NULL;
    }
    const int64_t least = node_int(share, ATTR_least_tiles, 0);
    const int64_t most = node_int(share, ATTR_most_tiles, 0);
    if (there[1] || !there[2] || !there[3] || there[4] || there[5]) {
        return "'image_split' ratio goes with 'least_tiles' and 'most_tiles'";
    }
    if (least < 1 || least > most || most > IMAGE_MOST_TILES) {
        return "'least_tiles' and 'most_tiles' must be from 1 to 64, the first not above the "
               "second";
    }
    out->least_tiles = (int)least;
    out->most_tiles = (int)most;
    return NULL;
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
    if (!read_around(node_string(share, ATTR_image_before), &out->before) ||
        !read_around(node_string(share, ATTR_image_after), &out->after)) {
        return "'image_before' and 'image_after' must be at most 16 tokens' numbers with commas "
               "between them, a text of at most 127 bytes, or none";
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
    if (numbers[3] < 1 || numbers[3] > numbers[2]) {
        return "'patch' must be from 1 to 'image_side' pixels";
    }
    const int64_t across = numbers[2] / numbers[3];
    if (numbers[4] < 1 || numbers[4] > across * across) {
        return "'image_tokens' must be from 1 to the patches of an image";
    }
    out->token = (int32_t)numbers[0];
    out->images = numbers[1];
    out->side = numbers[2];
    out->patch = numbers[3];
    out->tokens = numbers[4];
    out->patches = out->images * across * across;
    out->pixel = 3 * out->patch * out->patch;
    if (out->patches * out->pixel > INT32_MAX) return "a row has 2^31 pixels' numbers or more";
    const char *why = read_texts(share, out);
    return why ? why : read_split(share, out);
}

bool image_rule_fits(const Graph *graph, const Node *share, const ImageRule *rule, Diag *diag) {
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PUT) continue;
        const Node *from = node->inputs[1].node; /* or what collectives make of it */
        while (from->n_inputs == 1 && from->op != OP_OCCURRENCE) from = from->inputs[0].node;
        const int64_t vectors = node_int(node, ATTR_count, 0);
        if (from->op != OP_OCCURRENCE || node_int(from, ATTR_token, -1) != rule->token ||
            vectors == rule->images * rule->tokens) {
            continue;
        }
        diag_error(diag, share->loc,
                   "label_share: %" PRId64 " %s of %" PRId64
                   " tokens ('image_tokens') have other places than the %" PRId64
                   " vectors that the model makes of them",
                   rule->images, image_rule_parts(rule), rule->tokens, vectors);
        return false;
    }
    return true;
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
