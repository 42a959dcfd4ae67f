#include "frontend/commands/show_cuda.h"

#include "planner/clusters/cluster.h"
#include "runtime/cuda/summary.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

/* As the step's prediction has them. */
static CudaPrices prices_of(const Plan *plan, const Device *device, Arena *arena) {
    int program = plan->stages[cuda_largest_stage(plan)].program;
    return (CudaPrices){device->name, device->call_us, cost_nodes(plan, program, device, arena)};
}

bool show_cuda_text(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    CudaSummary summary;
    if (!show_text(out, plan, device, diag)) return false;
    if (!plan->cuda) return true;
    Arena *arena = arena_create();
    CudaPrices prices = prices_of(plan, device, arena);
    bool good = cuda_summarize(plan, &prices, arena, &summary, diag);
    if (good) {
        strbuf_put(out, "\n");
        cuda_summary_print(out, &summary, &prices);
    }
    arena_destroy(arena);
    return good;
}

static json_t *rows_json(const CudaSummary *s) {
    json_t *rows = json_array();
    for (int i = 0; i < s->n_rows; i++) {
        const CudaKernelRow *row = &s->rows[i];
        json_array_append_new(rows, json_pack("{s:s, s:I, s:f, s:f, s:f}", "name", row->name,
                                              "count", (json_int_t)row->count, "flops", row->flops,
                                              "bytes", row->bytes, "seconds", row->us * 1e-6));
    }
    return rows;
}

static json_t *summary_json(const CudaSummary *s, const CudaPrices *prices) {
    return json_pack(
        "{s:i, s:i, s:I, s:b, s:I, s:i, s:i, s:i, s:I, s:I, s:i, s:f, s:s, s:o}", "stage", s->stage,
        "rank", s->rank, "nodes", (json_int_t)s->n_nodes, "in_pieces", s->in_pieces,
        "launches_saved", (json_int_t)(s->in_pieces ? 0 : s->n_nodes - 1), "streams", s->n_streams,
        "events", s->n_events, "waits", s->n_waits, "messages", (json_int_t)s->n_messages,
        "graph_bytes", (json_int_t)s->graph_bytes, "generated_kernels", s->n_generated, "seconds",
        s->us * 1e-6, "device", prices->name, "kernels", rows_json(s));
}

bool show_cuda_json(StrBuf *out, const Plan *plan, const Device *device, Diag *diag) {
    CudaSummary summary;
    if (!plan->cuda) return show_json(out, plan, device, diag);
    Arena *arena = arena_create();
    StrBuf text = strbuf_create();
    CudaPrices prices = prices_of(plan, device, arena);
    bool good = show_json(&text, plan, device, diag) &&
                cuda_summarize(plan, &prices, arena, &summary, diag);
    if (good) {
        json_t *whole = json_loadb(text.text, text.length, 0, NULL);
        if (!whole) BUG("show_json wrote no JSON");
        json_object_set_new(whole, "cuda", summary_json(&summary, &prices));
        char *printed = json_dumps(whole, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        strbuf_put(out, printed);
        strbuf_put(out, "\n");
        free(printed);
        json_decref(whole);
    }
    strbuf_destroy(&text);
    arena_destroy(arena);
    return good;
}
