/* A comparison as text and as JSON:
 *
 *   format      1;  plans  the two files;  cluster  its name, or null
 *   same        are all rows equal?
 *   rows[]      key, label, unit (text, bytes, seconds, count, fraction), values [a, b],
 *               differ, difference (b - a; null for texts), ratio (b / a; null if a is 0)
 *   keys        model, parameters, mesh, ranks, schedule, chunks, micro_batch, global_batch, split,
 *               precision, optimizer_state, gradients, masters, offload,
 *               offload_activations, frozen_bits, expert_parts, lanes, loss_parts, loss_scale,
 * recompute, zero, sequence_parallel, device, step_seconds, tokens_per_second_per_rank,
 * bubble_fraction, message_fraction, flops_per_rank, memory (the largest arena), memory_CLASS (of
 * that rank), host_memory, beyond, traffic_COMMUNICATOR (bytes that the busiest rank sends per
 * step) and, with a cluster, traffic_nodes and traffic_network (of all ranks) sentences[] what the
 * differences cost
 */
#include "planner/show/compare_facts.h"
#include "planner/show/show_json_put.h"
#include "planner/show/show_lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LABEL_COLUMNS = 28, VALUE_COLUMNS = 28 };

static const char *value_text(const Row *row, int side, char *text, size_t size) {
    double value = row->values[side];
    switch (row->unit) {
    case UNIT_WORD: snprintf(text, size, "%s", row->texts[side]); break;
    case UNIT_BYTES: return value > 0 ? unit_bytes(value, text) : "-";
    case UNIT_SECONDS: return unit_us(value * 1e6, text);
    case UNIT_NUMBER:
        if (value < 1e5 && value == floor(value)) {
            snprintf(text, size, "%.0f", value);
            return text;
        }
        if (value > 1) return unit_count(value, text);
        snprintf(text, size, "%.8g", value); /* 0.9999 is not 1.00 */
        break;
    case UNIT_FRACTION: snprintf(text, size, "%.1f %%", 100 * value); break;
    }
    return text;
}

static const char *change_text(const Row *row, char *text, size_t size) {
    double a = row->values[0], b = row->values[1];
    if (row->unit == UNIT_WORD) return "";
    if (row->unit == UNIT_FRACTION) {
        snprintf(text, size, "%+.1f points", 100 * (b - a));
    } else if (b == 0) {
        snprintf(text, size, "none");
    } else if (a == 0 || b / a >= 10) {
        snprintf(text, size, a == 0 ? "new" : "x %.3g", a == 0 ? 0 : b / a);
    } else {
        snprintf(text, size, "%+.1f %%", 100 * (b / a - 1));
    }
    return text;
}

static void put_row(StrBuf *out, const Row *row) {
    char text[2][64], change[32];
    lines_put_column(out, row->label, LABEL_COLUMNS - 1);
    for (int side = 0; side < 2; side++) {
        strbuf_put(out, " ");
        lines_put_column(out, value_text(row, side, text[side], sizeof(text[side])),
                         VALUE_COLUMNS - 1);
    }
    strbuf_printf(out, " %s", change_text(row, change, sizeof(change)));
    while (out->text[out->length - 1] == ' ') out->text[--out->length] = '\0';
    strbuf_put(out, "\n");
}

static void put_same(StrBuf *out, const Comparison *of) {
    StrBuf same = strbuf_create();
    for (int i = 0; i < of->n_rows; i++) {
        const Row *row = &of->rows[i];
        bool zero = row->unit != UNIT_WORD && row->values[0] == 0;
        if (row_differs(row) || zero) continue;
        strbuf_printf(&same, "%s%s", same.length ? ", " : "", row->label + strspn(row->label, " "));
    }
    if (same.length) lines_put_wrapped(out, "the same", LABEL_COLUMNS, same.text);
    strbuf_destroy(&same);
}

bool compare_text(StrBuf *out, const ComparedPlan sides[2], const Cluster *cluster, Diag *diag) {
    Arena *arena = arena_create();
    const Comparison *of = comparison_create(arena, sides, cluster, diag);
    bool good = of != NULL;
    if (of) {
        Row title = {.label = "", .texts = {sides[0].path, sides[1].path}};
        put_row(out, &title);
        for (int i = 0; i < of->n_rows; i++) {
            if (row_differs(&of->rows[i])) put_row(out, &of->rows[i]);
        }
        put_same(out, of);
        bool same = true;
        for (int i = 0; i < of->n_rows; i++) same &= !row_differs(&of->rows[i]);
        strbuf_put(out, same ? "\nThe plans differ in nothing that is compared.\n" : "\n");
        for (int i = 0; i < of->n_sentences; i++) {
            lines_put_wrapped(out, "-", 2, of->sentences[i]);
        }
        strbuf_printf(out, "Times: %s, ", sides[0].device->name);
        strbuf_put(out, strcmp(sides[0].device->name, sides[1].device->name) == 0
                            ? "for both.\n"
                            : "each for its own kind of device.\n");
    }
    arena_destroy(arena);
    return good;
}

static json_t *value_json(const Row *row, int side) {
    if (row->unit == UNIT_WORD) return json_name(row->texts[side]);
    return json_real(row->values[side]);
}

static void put_row_json(json_t *list, const Row *row) {
    static const char *const UNITS[] = {[UNIT_WORD] = "text",
                                        [UNIT_BYTES] = "bytes",
                                        [UNIT_SECONDS] = "seconds",
                                        [UNIT_NUMBER] = "count",
                                        [UNIT_FRACTION] = "fraction"};
    json_t *json = json_object();
    json_array_append_new(list, json);
    json_put_name(json, "key", row->key);
    json_put_name(json, "label", row->label + strspn(row->label, " "));
    json_put_name(json, "unit", UNITS[row->unit]);
    json_t *values = json_put_new(json, "values", json_array());
    for (int side = 0; side < 2; side++) json_array_append_new(values, value_json(row, side));
    json_object_set_new(json, "differ", json_boolean(row_differs(row)));
    bool number = row->unit != UNIT_WORD;
    json_put_real(json, "difference", number ? row->values[1] - row->values[0] : NAN);
    json_put_real(json, "ratio",
                  number && row->values[0] != 0 ? row->values[1] / row->values[0] : NAN);
}

bool compare_json(StrBuf *out, const ComparedPlan sides[2], const Cluster *cluster, Diag *diag) {
    Arena *arena = arena_create();
    const Comparison *of = comparison_create(arena, sides, cluster, diag);
    bool good = of != NULL;
    if (of) {
        bool same = true;
        json_t *root = json_object();
        json_put_int(root, "format", 1);
        json_t *plans = json_put_new(root, "plans", json_array());
        for (int i = 0; i < 2; i++) json_array_append_new(plans, json_name(sides[i].path));
        json_object_set_new(root, "cluster", cluster ? json_name(cluster->name) : json_null());
        json_t *rows = json_put_new(root, "rows", json_array());
        for (int i = 0; i < of->n_rows; i++) {
            put_row_json(rows, &of->rows[i]);
            same &= !row_differs(&of->rows[i]);
        }
        json_object_set_new(root, "same", json_boolean(same));
        json_t *sentences = json_put_new(root, "sentences", json_array());
        for (int i = 0; i < of->n_sentences; i++) {
            json_array_append_new(sentences, json_name(of->sentences[i]));
        }
        json_put_document(out, root);
    }
    arena_destroy(arena);
    return good;
}
