#include "frontend/lua/freeze.h"

#include "frontend/nearest.h"

#include <ctype.h>
#include <string.h>

void freeze_set(Graph *graph, Node *param, bool frozen) {
    Attr *attrs = ARENA_ARRAY(graph->arena, Attr, param->n_attrs + 1);
    int n = 0, at = 0; /* attributes come in the order of attrs.def */
    while (at < param->n_attrs && param->attrs[at].key < ATTR_frozen)
        attrs[n++] = param->attrs[at++];
    if (frozen) attrs[n++] = attr_int(ATTR_frozen, 1);
    for (; at < param->n_attrs; at++) {
        if (param->attrs[at].key != ATTR_frozen) attrs[n++] = param->attrs[at];
    }
    param->attrs = attrs;
    param->n_attrs = n;
}

/* Greedy with one place to return to: the last `*` takes a character more. */
static bool fits(const char *pattern, const char *name) {
    const char *star = NULL, *again = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            again = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++again;
        } else {
            return false;
        }
    }
    while (*pattern == '*') pattern++;
    return *pattern == '\0';
}

static bool is_pattern(const char *text) {
    for (const char *c = text; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("_.*?", *c)) return false;
    }
    return *text != '\0';
}

static bool report_stranger(const Graph *graph, const FreezeRule *rule, const char *pattern,
                            Diag *diag) {
    if (strcmp(pattern, "*.lora_a") == 0) { /* nn.lora's: its targets are all strangers */
        diag_error(diag, rule->loc,
                   "%s: no adapter ('%s') was made: the model has none of the weights that "
                   "'lora_targets' names",
                   rule->what, pattern);
        return false;
    }
    const char **names = ARENA_ARRAY(graph->arena, const char *, graph->n_nodes + 1);
    int n_names = 0;
    for (int n = 0; n < graph->n_nodes; n++) {
        if (graph->nodes[n]->op != OP_PARAM) continue;
        names[n_names++] = node_logical_name(graph->nodes[n], 0, graph->arena);
    }
    const char *nearest = nearest_name(pattern, names);
    diag_error(diag, rule->loc, "%s: no parameter fits '%s'%s%s%s", rule->what, pattern,
               nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    if (!nearest && n_names > 1) {
        diag_note(diag, rule->loc, "names are such as '%s' and '%s'", names[0], names[n_names - 1]);
    }
    return false;
}

static bool apply_one(Graph *graph, const FreezeRule *rule, const char *text, Diag *diag) {
    bool frozen = text[0] != '!', any = false;
    const char *pattern = frozen ? text : text + 1;
    if (!is_pattern(pattern)) {
        diag_error(diag, rule->loc,
                   "%s: '%s' is no pattern of a name: letters, digits, '_', '.', '*' and '?', with "
                   "'!' in front to train what fits",
                   rule->what, text);
        return false;
    }
    for (int n = 0; n < graph->n_nodes; n++) {
        Node *node = graph->nodes[n];
        if (node->op != OP_PARAM || !fits(pattern, node_logical_name(node, 0, graph->arena))) {
            continue;
        }
        freeze_set(graph, node, frozen);
        any = true;
    }
    return any || report_stranger(graph, rule, pattern, diag);
}

bool freeze_apply(Graph *graph, const FreezeRule *rule, Diag *diag) {
    const char *text = rule->patterns;
    for (;;) {
        size_t length = strcspn(text, ",");
        const char *begin = text, *end = text + length;
        while (begin < end && *begin == ' ') begin++;
        while (end > begin && end[-1] == ' ') end--;
        const char *pattern = arena_strndup(graph->arena, begin, (size_t)(end - begin));
        if (!apply_one(graph, rule, pattern, diag)) return false;
        if (!text[length]) return true;
        text += length + 1;
    }
}
