#include "frontend/hf/hf_layout.h"

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

const char *hf_block_name(Arena *arena, const char *name, int block) {
    const char *mark = strchr(name, '#');
    return mark ? arena_printf(arena, "%.*s%d%s", (int)(mark - name), name, block, mark + 1) : name;
}

static int compare_params(const void *a, const void *b) {
    return strcmp(((const Param *)a)->name, ((const Param *)b)->name);
}

static void list_params(Builder *b) {
    const Graph *graph = b->model->graph;
    for (int n = 0; n < graph->n_nodes; n++) {
        const Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
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

static int split_dims(const char *dims, Words *out) {
    int n = 0;
    for (;;) {
        size_t length = strcspn(dims, ",");
        if (n == HF_MAX_DIMS) BUG("'%s' has too many dimensions", dims);
        out[n++] = (Words){dims, length};
        if (!dims[length]) return n;
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
        int at = find_axis(graph, &part->type, words.at + begin, (int)(end - begin));
        if (at >= 0) {
            int64_t size = part->type.dims[at];
            part->theirs_stride[at] = elements * stride;
            if (size > MOST_ELEMENTS / elements / stride) return -1;
            elements *= size;
            (*n_placed)++;
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

/* Two passes: the last dimension of all parts is the row that the first dimension steps by. */
static bool place_parts(const Builder *b, const HfTensor *row, HfItem *item) {
    const Graph *graph = b->model->graph;
    Words words[HF_MAX_DIMS];
    item->n_dims = split_dims(row->dims, words);
    const int last = item->n_dims - 1;
    int64_t row_elements = 0;
    item->by_position = last > 0 && words[0].length == 3 && strncmp(words[0].at, "seq", 3) == 0;
    for (int p = 0; p < item->n_parts; p++) {
        int n_placed = 0;
        int64_t n = place_axes(graph, words[last], 1, &item->parts[p], &n_placed);
        if (n < 0) return fail_axes(b, item, item->parts[p].ours, "is too large");
        item->parts[p].theirs_first = row_elements;
        row_elements += n;
    }
    item->shape[last] = row_elements;
    for (int p = 0; p < item->n_parts; p++) {
        HfPart *part = &item->parts[p];
        int n_placed = 0;
        place_axes(graph, words[last], 1, part, &n_placed);
        int64_t rows = last ? place_axes(graph, words[0], row_elements, part, &n_placed) : 1;
        if (rows < 0) return fail_axes(b, item, part->ours, "is too large");
        if (n_placed != part->type.rank) return fail_axes(b, item, part->ours, "has other axes");
        if (last && p > 0 && rows != item->shape[0]) {
            return fail_axes(b, item, part->ours, "has another size than what lies beside it");
        }
        if (last) item->shape[0] = rows;
        int64_t stride = 1;
        for (int i = part->type.rank - 1; i >= 0; i--) {
            part->ours_stride[i] = stride;
            stride *= part->type.dims[i];
        }
    }
    return true;
}

/* A row for a block; nothing where the model has none of its parameters. */
static bool add_item(Builder *b, const HfTensor *row, int block) {
    HfItem item = {.theirs = hf_block_name(b->arena, row->theirs, block)};
    const char *missing = NULL;
    int n_wanted = 0;
    for (int p = 0; p < HF_MAX_PARTS && row->ours[p]; p++) {
        const char *name = hf_block_name(b->arena, row->ours[p], block);
        Param *param = find_param(b, name);
        n_wanted++;
        if (!param) {
            missing = name;
            continue;
        }
        param->placed = true;
        item.parts[item.n_parts].ours = param->name;
        item.parts[item.n_parts++].type = param->node->types[0];
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

static bool add_items(Builder *b, const HfTensor *row) {
    while (row->theirs) {
        const HfTensor *end = row;
        while (end->theirs && strchr(end->theirs, '#')) end++;
        for (int block = 0; block < b->model->n_blocks && end > row; block++) {
            for (const HfTensor *each = row; each < end; each++) {
                if (!add_item(b, each, block)) return false;
            }
        }
        if (end == row && !add_item(b, end++, 0)) return false;
        row = end;
    }
    return true;
}

bool hf_layout_make(Arena *arena, const Model *model, const HfFamily *family, HfLayout *out,
                    Diag *diag) {
    Builder b = {.arena = arena, .model = model, .layout = out, .diag = diag};
    *out = (HfLayout){0};
    list_params(&b);
    if (!add_items(&b, family->tensors)) return false;
    for (int i = 0; i < b.n_params; i++) {
        if (b.params[i].placed) continue;
        diag_error(diag, b.params[i].node->loc,
                   "parameter '%s' has no place in Hugging Face's models of %s.lua",
                   b.params[i].name, family->script);
        return false;
    }
    return true;
}
