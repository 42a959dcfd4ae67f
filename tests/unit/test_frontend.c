#include "frontend/model.h"
#include "ir/op.h"
#include "tests/unit/check.h"
#include <string.h>
int main(int argc, char **argv) {
    Arena *a = arena_create(); Diag *d = diag_create();
    ModelSetting s = {"size", argc > 2 ? argv[2] : "tiny"};
    Model *m = model_load(a, argv[1], &s, argc > 2, 4, d);
    if (!m) { diag_print(d, stderr); return 1; }
    StrBuf b = strbuf_create(); graph_print(&b, m->graph); puts(b.text);
    if (!graph_verify(m->graph, d)) diag_print(d, stderr);
    return 0;
}
