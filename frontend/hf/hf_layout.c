#include "frontend/hf/hf_layout.h"

#include "frontend/hf/hf_adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_ELEMENTS = INT64_C(1) << 56;

typedef struct Param {
    const char *name;
    const Node *node;
    bool placed;
} Param;

typedef struct Builder {
    Arena *arena;
    const Model *model;
    HfLayout *layout;
    int n_params, params_capacity;
    Param *params; /* by name */
    Diag *diag;
} Builder;

static const char MARKS[] = "#<>"; /* of a block, an encoder's, a decoder's */

const char *hf_block_name(Arena *arena, const char *name, int block) {
    const char *mark = strpbrk(name, MARKS);
    return mark ? arena_printf(arena, "%.*s%d%s", (int)(mark - name), name, block, mark + 1) : name;
}

/* Their number of our block, under the mark of a row; -1: the row is not for it. */
static int their_block(const Model *model, const char *name, int block) {
    const char *mark = strpbrk(name, MARKS);
    const Setting *tower = settings_find(&model->settings, "vision_layers");
    const Setting *layers = tower ? tower : settings_find(&model->settings, "layers");
    int n_encoder = layers ? (int)layers->integer : 0;
    if (!mark || *mark == '#') return block;
    if (*mark == '<') return block < n_encoder ? block : -1;
    return block - n_encoder >= 0 ? block - n_encoder : -1;
}

static int compare_params(const void *a, const void *b) {
    return strcmp(((const Param *)a)->name, ((const Param *)b)->name);
}

static void list_params(Builder *b) {
    const Graph *graph = b->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM || hf_adapter_is_name(node_string(node, ATTR_name))) continue;
        Param param = {node_logical_name(node, 0, b->arena), node, false};
        ARENA_PUSH(b->arena, b->params, b->n_params, b->params_capacity, param);
    }
    if (b->n_params) qsort(b->params, (size_t)b->n_params, sizeof(Param), compare_params);
}

static Param *find_param(const Builder *b, const char *name) {
    const Param key = {name, NULL, false};
    if (!b->n_params) return NULL;
    return bsearch(&key, b->params, (size_t)b->n_params, sizeof(Param), compare_params);
}

/* One of their dimensions, as a text of our axes. */
typedef struct Words {
    const char *at;
    size_t length;
} Words;

/* side: the dimension along which parts lie; joined: the one that is one with the next, or -1. */
static int split_dims(const char *dims, Words *out, int *side, int *joined) {
    int n = 0;
    *side = *joined = -1;
    for (;;) {
        if (*dims == '+') {
            *side = n;
            dims++;
        }
        size_t length = strcspn(dims, ",*?^");
        if (n == HF_MAX_DIMS) BUG("'%s' has too many dimensions", dims);
        out[n++] = (Words){dims, length};
        const bool ends = !dims[length] || dims[length] == '?' || dims[length] == '^';
        if (ends && *side < 0) *side = n - 1;
        if (ends) return n;
        if (dims[length] == '*') *joined = n - 1;
        dims += length + 1 + strspn(dims + length + 1, " ");
    }
}

/* Where one of our axes lies in a parameter, or -1. A table of positions that are counted in each
 * document has another name for them (nn.position). */
static int find_axis(const Graph *graph, const Type *type, const char *name, int length) {
    int axis = axis_find(&graph->axes, name, length);
    int at = axis < 0 ? -1 : type_find_axis(type, axis);
    bool positions = at < 0 && length == 3 && strncmp(name, "seq", 3) == 0;
    axis = positions ? axis_find(&graph->axes, "positions", 9) : -1;
    return axis < 0 ? at : type_find_axis(type, axis);
}

/* Gives the part's axes among the words strides, the last one `stride`. Returns their elements, or
 * -1 if they are too many. */
static int64_t place_axes(const Graph *graph, Words words, int64_t stride, HfPart *part,
                          int *n_placed) {
    int64_t elements = 1;
    size_t end = words.length;
    while (end > 0) {
        size_t begin = end;
        while (begin > 0 && words.at[begin - 1] != ' ') begin--;
        const char *word = words.at + begin, *mark = memchr(word, '~', end - begin);
        const size_t length = mark ? (size_t)(mark - word) : end - begin;
        int at = find_axis(graph, &part->type, word, (int)length);
        if (at >= 0) {
            const int64_t *dims = part->type.dims;
            const int64_t in_part = mark ? 2 * dims[at + 2] : 1, size = dims[at] * in_part;
            part->theirs_stride[at] = in_part * elements * stride;
            if (mark) { /* parts, halves of each, numbers of a half */
                part->theirs_stride[at + 1] = elements * stride;
                part->theirs_stride[at + 2] = 2 * elements * stride;
            }
            if (size > MOST_ELEMENTS / elements / stride) return -1;
            elements *= size;
            *n_placed += mark ? 3 : 1;
        }
        end = begin;
        while (end > 0 && words.at[end - 1] == ' ') end--;
    }
    return elements;
}

static bool fail_axes(const Builder *b, const HfItem *item, const char *ours, const char *why) {
    diag_error(b->diag, NO_LOC, "parameter '%s' of the model cannot be Hugging Face's '%s': it %s",
               ours, item->theirs, why);
    return false;
}

/* Their shape: the sum of all parts along the dimension `side`, what all agree on along others. */
static bool measure_parts(const Builder *b, HfItem *item, const Words *words, int side) {
    for (int p = 0; p < item->n_parts; p++) {
        HfPart *part = &item->parts[p];
        for (int d = 0; d < item->n_dims; d++) {
            int n_placed = 0;
            int64_t size = place_axes(b->model->graph, words[d], 1, part, &n_placed);
            if (size < 0) return fail_axes(b, item, part->ours, "is too large");
            if (p > 0 && d != side && size != item->shape[d]) {
                return fail_axes(b, item, part->ours, "has another size than what lies beside it");
            }
            if (d == side) {
                part->theirs_first = item->shape[d];
                size += item->shape[d];
            }
            item->shape[d] = size;
        }
    }
    return true;
}

/* Of how many equal parts of a head's numbers the first one turns. */
static bool share_parts(const Builder *b, int64_t *out) {
    const Setting *share = settings_find(&b->model->settings, "rotary_share");
    const double parts = share && share->number > 0 ? 1 / share->number : 0;
    *out = parts >= 1 && parts <= 1 << 20 ? (int64_t)(parts + 0.5) : 1;
    return fabs(parts - (double)*out) < 1e-9 * parts;
}

/* An axis marked in the row becomes three: parts, halves of each, and numbers within one. */
static bool split_pairs(const Builder *b, const HfItem *item, const char *dims, HfPart *part) {
    const char *mark = strchr(dims, '~'), *begin = mark;
    Type *type = &part->type;
    if (!mark) return true;
    while (begin > dims && begin[-1] != ' ') begin--;
    int at = find_axis(b->model->graph, type, begin, (int)(mark - begin));
    if (at < 0) return true;
    int64_t n_parts = mark[1] >= '0' && mark[1] <= '9' ? mark[1] - '0' : 1;
    if (mark[1] == 's' && !share_parts(b, &n_parts)) {
        return fail_axes(b, item, part->ours,
                         "has pairs side by side in a share of a head that is not 1 / n");
    }
    if (type->dims[at] % (2 * n_parts) || type->rank + 2 > MAX_RANK) {
        return fail_axes(b, item, part->ours, "has other axes");
    }
    for (int i = type->rank - 1; i >= at; i--) {
        type->axes[i + 2] = type->axes[i];
        type->dims[i + 2] = type->dims[i];
    }
    type->axes[at + 1] = type->axes[at];
    type->rank += 2;
    type->dims[at + 2] /= 2 * n_parts;
    type->dims[at + 1] = 2;
    type->dims[at] = n_parts;
    return true;
}

static void join_dims(HfItem *item, int joined) {
    if (joined < 0) return;
    item->shape[joined] *= item->shape[joined + 1];
    item->n_dims--;
    for (int d = joined + 1; d < item->n_dims; d++) item->shape[d] = item->shape[d + 1];
}

static bool place_parts(const Builder *b, const HfTensor *row, HfItem *item) {
    Words words[HF_MAX_DIMS];
    int side, joined;
    item->n_dims = split_dims(row->dims, words, &side, &joined);
    for (int p = 0; p < item->n_parts; p++) {
        if (!split_pairs(b, item, row->dims, &item->parts[p])) return false;
    }
    item->by_position = item->n_dims > 1 &&
                        ((words[0].length == 3 && strncmp(words[0].at, "seq", 3) == 0) ||
                         (words[0].length == 10 && strncmp(words[0].at, "before seq", 10) == 0));
    if (!measure_parts(b, item, words, side)) return false;
    for (int p = 0; p < item->n_parts; p++) {
        HfPart *part = &item->parts[p];
        int n_placed = 0;
        int64_t stride = 1;
        for (int d = item->n_dims - 1; d >= 0; d--) {
            if (place_axes(b->model->graph, words[d], stride, part, &n_placed) < 0 ||
                item->shape[d] > MOST_ELEMENTS / stride) {
                return fail_axes(b, item, part->ours, "is too large");
            }
            if (d == side) part->theirs_first *= stride;
            stride *= item->shape[d];
        }
        if (n_placed != part->type.rank || n_placed == 0)
            return fail_axes(b, item, part->ours, "has other axes");
        stride = 1;
        for (int i = part->type.rank - 1; i >= 0; i--) {
            part->ours_stride[i] = stride;
            stride *= part->type.dims[i];
        }
    }
    join_dims(item, joined);
    return true;
}

/* What is one expert's, of the parameter that has all of them along its first axis. */
static bool take_expert(const Builder *b, const HfItem *item, HfPart *part, int64_t expert) {
    const Graph *graph = b->model->graph;
    Type *type = &part->type;
    if (type->rank < 1 || type->axes[0] != axis_find(&graph->axes, "experts", 7)) {
        return fail_axes(b, item, part->ours, "does not begin with the axis 'experts'");
    }
    type->rank--;
    memmove(type->axes, type->axes + 1, (size_t)type->rank * sizeof(type->axes[0]));
    memmove(type->dims, type->dims + 1, (size_t)type->rank * sizeof(type->dims[0]));
    part->ours_first = expert * type_elements(type);
    return true;
}

/* A row for a block, and for an expert where it is not -1; nothing where the model has none of its
 * parameters. */
static bool add_item(Builder *b, const HfTensor *row, int block, int64_t expert) {
    int number = their_block(b->model, row->theirs, block);
    if (number < 0) return true;
    HfItem item = {.theirs = hf_block_name(b->arena, row->theirs, number),
                   .more = strchr(row->dims, '^') ? 1 : 0};
    const char *missing = NULL, *mark = strchr(item.theirs, '@');
    int n_wanted = 0;
    if (mark) {
        item.theirs = arena_printf(b->arena, "%.*s%lld%s", (int)(mark - item.theirs), item.theirs,
                                   (long long)expert, mark + 1);
    }
    for (int p = 0; p < HF_MAX_PARTS && row->ours[p]; p++) {
        const char *name = hf_block_name(b->arena, row->ours[p], block);
        Param *param = find_param(b, name);
        n_wanted++;
        if (!param) {
            missing = name;
            continue;
        }
        param->placed = true;
        HfPart *part = &item.parts[item.n_parts++];
        part->ours = param->name;
        part->type = part->whole = param->node->types[0];
        if (mark && !take_expert(b, &item, part, expert)) return false;
    }
    if (item.n_parts == 0) return true;
    if (item.n_parts < n_wanted) {
        diag_error(b->diag, NO_LOC,
                   "the model has no parameter '%s', a part of Hugging Face's '%s'", missing,
                   item.theirs);
        return false;
    }
    if (!place_parts(b, row, &item)) return false;
    ARENA_PUSH(b->arena, b->layout->items, b->layout->n_items, b->layout->items_capacity, item);
    return true;
}

static bool row_counts(const Builder *b, const HfTensor *row) {
    const char *when = strchr(row->dims, '?');
    if (!when) return true;
    const char *name = arena_strndup(b->arena, when + 1, strcspn(when + 1, "="));
    const Setting *setting = settings_find(&b->model->settings, name);
    return setting && setting->has_value &&
           strcmp(setting_text(setting, b->arena), when + 1 + strlen(name) + 1) == 0;
}

/* A row for a block: of all experts where they are counted. */
static bool add_row(Builder *b, const HfTensor *row, int block) {
    if (!row_counts(b, row)) return true;
    if (!strchr(row->theirs, '@')) return add_item(b, row, block, -1);
    const Param *param = find_param(b, hf_block_name(b->arena, row->ours[0], block));
    int64_t n = param && param->node->types[0].rank > 0 ? param->node->types[0].dims[0] : 0;
    for (int64_t expert = 0; expert < n; expert++) {
        if (!add_item(b, row, block, expert)) return false;
    }
    return true;
}

static bool add_items(Builder *b, const HfTensor *row) {
    while (row && row->theirs) {
        const HfTensor *end = row;
        while (end->theirs && strpbrk(end->theirs, MARKS)) end++;
        for (int block = 0; block < b->model->n_blocks && end > row; block++) {
            for (const HfTensor *each = row; each < end; each++) {
                if (!add_row(b, each, block)) return false;
            }
        }
        if (end == row && !add_row(b, end++, 0)) return false;
        row = end;
    }
    return true;
}

bool hf_layout_make(Arena *arena, const Model *model, const HfFamily *family, const HfType *type,
                    bool fused, HfLayout *out, Diag *diag) {
    Builder b = {.arena = arena, .model = model, .layout = out, .diag = diag};
    *out = (HfLayout){0};
    list_params(&b);
    if (!add_items(&b, family->tensors) || !add_items(&b, fused ? type->fused : type->each) ||
        !add_items(&b, type->others)) {
        return false;
    }
    for (int i = 0; i < b.n_params; i++) {
        if (b.params[i].placed) continue;
        diag_error(diag, b.params[i].node->loc,
                   "parameter '%s' has no place in Hugging Face's %s, of %s.lua", b.params[i].name,
                   type->name, family->script);
        return false;
    }
    return true;
}
