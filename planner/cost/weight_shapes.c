#include "planner/cost/weight_shapes.h"

#include <string.h>

static WeightShape shape_of(const Graph *graph, const Node *param, bool is_expert, bool whole) {
    WeightShape shape = {.is_expert = is_expert};
    const Type *type = &param->types[0];
    Type local = type_local(type, &param->shardings[0], &graph->mesh);
    int64_t before = 1;
    shape.elements = type_elements(&local);
    for (int i = 0; !whole && i < type->rank; before *= local.dims[i++]) {
        if (param->shardings[0].mesh[i] >= 0) continue;
        shape.dims[shape.n_axes] = type->dims[i];
        shape.leads[shape.n_axes] = before == 1;
        const char *axis = graph->axes.names[type->axes[i]];
        bool words = type->axes[i] == AXIS_VOCAB && graph->mesh.vocab_multiple > 1;
        shape.multiple[shape.n_axes] = strcmp(axis, "seq") == 0 ? 0
                                       : words                  ? graph->mesh.vocab_multiple
                                                                : 1;
        shape.n_axes++;
    }
    return shape;
}

static bool is_alike(const WeightShape *a, const WeightShape *b) {
    if (a->n_axes != b->n_axes || a->is_expert != b->is_expert) return false;
    if (a->elements != b->elements) return false;
    for (int i = 0; i < a->n_axes; i++) {
        if (a->dims[i] != b->dims[i] || a->multiple[i] != b->multiple[i]) return false;
        if (a->leads[i] != b->leads[i]) return false;
    }
    return true;
}

int weight_shapes_find(WeightShapes *shapes, const Graph *graph, const Node *param, bool is_expert,
                       bool whole) {
    const WeightShape shape = shape_of(graph, param, is_expert, whole);
    for (int i = 0; i < shapes->n; i++) {
        if (is_alike(&shapes->of[i], &shape)) return i;
    }
    if (shapes->n == WEIGHT_SHAPES) return -1;
    shapes->of[shapes->n] = shape;
    return shapes->n++;
}

double weight_shape_share(const WeightShape *shape, int n_ranks, bool *out_packs) {
    double least = 1;
    *out_packs = false;
    for (int i = 0; i < shape->n_axes; i++) {
        int64_t dim = shape->dims[i], part = (dim + n_ranks - 1) / n_ranks;
        const int64_t multiple = shape->multiple[i];
        if (multiple > 1) part = (part + multiple - 1) / multiple * multiple;
        bool fits = part * n_ranks == dim || multiple > 0;
        if (!fits || part * (n_ranks - 1) >= dim) continue; /* the last rank would have none */
        double share = (double)part / (double)dim;
        if (share >= least) continue;
        least = share;
        *out_packs = !shape->leads[i] || part * n_ranks != dim;
    }
    return least;
}
