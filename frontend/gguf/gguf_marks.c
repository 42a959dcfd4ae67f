#include "frontend/gguf/gguf_marks.h"

#include "frontend/gguf/gguf_config.h"
#include "frontend/gguf/gguf_export.h"
#include "ir/ops/round_blocks.h"

#include <string.h>

static Node *find_param(const Graph *graph, const char *name) {
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_PARAM) continue;
        if (strcmp(node_logical_name(node, 0, graph->arena), name) == 0) return node;
    }
    return NULL;
}

/* The part's axes that the item's rows consist of, outermost first; 0: they are not whole rows. */
static int find_row(const HfItem *item, const HfPart *part, int out[MAX_RANK]) {
    const Type *type = &part->type;
    int64_t length = item->shape[item->n_dims - 1], taken = 1;
    int places[MAX_RANK], n = 0;
    while (taken < length) {
        int next = -1;
        for (int i = 0; i < type->rank; i++) {
            if (part->theirs_stride[i] == taken && type->dims[i] > 1) next = i;
        }
        if (next < 0 || n == MAX_RANK) return 0;
        places[n++] = next;
        taken *= type->dims[next];
    }
    for (int i = 0; i < n; i++) {
        out[i] = type->axes[places[n - 1 - i]];
        for (int k = 0; k < i; k++) {
            if (out[k] == out[i]) return 0; /* an axis of pairs: halves of it */
        }
    }
    return taken == length ? n : 0;
}

static void set_mark(Graph *graph, Node *param, const char *form, const int *along, int n_along) {
    Attr *attrs = ARENA_ARRAY(graph->arena, Attr, param->n_attrs + 2);
    memcpy(attrs, param->attrs, sizeof(Attr) * (size_t)param->n_attrs);
    attrs[param->n_attrs++] = attr_string(ATTR_blocks, form); /* the last ones of attrs.def */
    attrs[param->n_attrs++] = attr_axes(ATTR_along, along, n_along);
    param->attrs = attrs;
}

/* What an export rounds is the sum of both, which no product reads. */
static bool check_alone(const Graph *graph, const HfPart *part, const Node *param, Diag *diag) {
    if (!find_param(graph, arena_printf(graph->arena, "%s.lora_b", part->ours))) return true;
    diag_error(diag, param->loc,
               "--qat: '%s' trains and has an adapter, and a file has the sum of both in blocks; "
               "train one without the other",
               part->ours);
    return false;
}

static bool mark_part(Graph *graph, const HfItem *item, const HfPart *part, const GgufType *type,
                      int *n_marked, Diag *diag) {
    Node *param = find_param(graph, part->ours);
    const RoundForm form = round_form_find(type->name);
    int along[MAX_RANK], n = 1;
    if (!param) BUG("no parameter '%s'", part->ours);
    if (node_is_frozen(param) || node_is_rounded(param)) return true;
    if (!check_alone(graph, part, param, diag)) return false;
    if (form == ROUND_F16) {
        along[0] = part->whole.axes[part->whole.rank - 1];
    } else {
        n = form == N_ROUND_FORMS ? 0 : find_row(item, part, along);
    }
    if (n == 0) {
        diag_error(diag, param->loc,
                   "--qat: '%s' is part of rows of '%s' in a file, whose blocks it cannot be "
                   "rounded to",
                   part->ours, item->theirs);
        return false;
    }
    set_mark(graph, param, ROUND_FORM_NAMES[form], along, n);
    (*n_marked)++;
    return true;
}

bool gguf_mark(Model *model, const GgufType *type, Diag *diag) {
    Graph *graph = model->graph;
    const HfFamily *family = gguf_export_family(graph->arena, model, diag);
    const HfType *of = family ? hf_config_type(model, family, NULL, GGUF_READER, diag) : NULL;
    HfLayout layout;
    int n_marked = 0;
    json_t *config = of ? gguf_config_of(model, family, of, diag) : NULL;
    if (!config) {
        diag_note(diag, NO_LOC, "--qat %s rounds weights as such a file would have them",
                  type->name);
    }
    bool fine = config && hf_layout_make(graph->arena, model, family, of, false, &layout, diag);
    for (int i = 0; fine && i < layout.n_items; i++) {
        const HfItem *item = &layout.items[i];
        const GgufType *to = gguf_export_type(config, type, item);
        for (int p = 0; fine && to->number != GGUF_TYPE_F32 && p < item->n_parts; p++) {
            fine = mark_part(graph, item, &item->parts[p], to, &n_marked, diag);
        }
    }
    json_decref(config);
    if (!fine || n_marked) return fine;
    diag_error(diag, NO_LOC,
               "--qat %s: no matrix of the model trains; weights that are frozen are kept in few "
               "bits by --frozen-bits",
               type->name);
    return false;
}
