#include "frontend/commands/heat_map.h"

#include "planner/show/show_html.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_ROWS = 64, MOST_COLUMNS = 120 };

/* In the drawing's own coordinates. */
enum { LEFT = 96, TOP = 4, WIDTH = 828, ROW = 14, BOTTOM = 22 };

typedef struct Row {
    int at;     /* of the map's rows */
    float most; /* NAN: it has no value */
} Row;

static float value_at(const HeatMap *map, int row, int column) {
    return map->values[(size_t)row * (size_t)map->n_columns + (size_t)column];
}

static int by_most(const void *a, const void *b) {
    const Row *x = a, *y = b;
    if (x->most != y->most) return x->most > y->most ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

static int by_place(const void *a, const void *b) {
    const Row *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* In the map's order; *out_n: how many of those that there are. Returns how many have a value. */
static int choose_rows(const HeatMap *map, Row *rows, int *out_n) {
    int n = 0;
    for (int r = 0; r < map->n_rows; r++) {
        Row row = {r, NAN};
        for (int c = 0; c < map->n_columns; c++) row.most = fmaxf(row.most, value_at(map, r, c));
        if (!isnan(row.most)) rows[n++] = row;
    }
    const int n_found = n;
    qsort(rows, (size_t)n, sizeof(*rows), by_most);
    if (n > MOST_ROWS) n = MOST_ROWS;
    qsort(rows, (size_t)n, sizeof(*rows), by_place);
    *out_n = n;
    return n_found;
}

/* The most of several columns. */
static float most_in(const HeatMap *map, int row, int first, int end, double *out_step) {
    float most = NAN;
    for (int c = first; c < end; c++) {
        const float value = value_at(map, row, c);
        if (isnan(value) || value <= most) continue;
        most = value;
        *out_step = map->steps[c];
    }
    return most;
}

static double opacity(const HeatMap *map, float value, float full) {
    const double share = map->logarithmic ? log(value / map->none) / log(full / map->none)
                                          : (value - map->none) / (full - map->none);
    return fmin(1, fmax(0, share));
}

static void put_row(StrBuf *out, const HeatMap *map, const Row *row, int at, int per_column,
                    float full) {
    const int n_columns = (map->n_columns + per_column - 1) / per_column;
    const double width = (double)WIDTH / n_columns;
    const int y = TOP + at * ROW;
    strbuf_printf(out, "<text x=%d y=%d text-anchor=end>", LEFT - 8, y + ROW - 3);
    html_put(out, map->names[row->at]);
    strbuf_put(out, "</text>\n");
    for (int c = 0; c < n_columns; c++) {
        double step = 0;
        char shown[64];
        const int end = (c + 1) * per_column;
        const float value = most_in(map, row->at, c * per_column,
                                    end < map->n_columns ? end : map->n_columns, &step);
        if (isnan(value) || value < map->least) continue;
        strbuf_printf(out,
                      "<rect class=heat x=%.1f y=%d width=%.1f height=%d fill-opacity=%.2f>"
                      "<title>%s%s",
                      LEFT + c * width, y, width - 0.5, ROW - 1, opacity(map, value, full),
                      map->what, map->what[0] ? " " : "");
        html_put(out, map->names[row->at]);
        snprintf(shown, sizeof(shown), map->format, (double)value);
        strbuf_printf(out, ", step %.0f: %s</title></rect>\n", step, shown);
    }
}

void heat_map_put(StrBuf *out, const HeatMap *map, Arena *arena) {
    Row *rows = ARENA_ARRAY(arena, Row, map->n_rows + 1);
    int n_rows;
    char shown[64];
    const int n_found = choose_rows(map, rows, &n_rows);
    if (n_rows == 0) return;
    float full = map->full;
    for (int i = 0; i < n_rows; i++) full = fmaxf(full, rows[i].most);
    const int per_column = (map->n_columns + MOST_COLUMNS - 1) / MOST_COLUMNS;
    const int height = TOP + n_rows * ROW;
    snprintf(shown, sizeof(shown), map->format, (double)full);
    strbuf_printf(out, "<section><h2>%s <span class=key>full colour: %s", map->title, shown);
    if (n_found > n_rows) {
        strbuf_printf(out, "; the %d highest of %d %s", n_rows, n_found, map->whats);
    }
    strbuf_printf(out, "</span></h2>\n<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"%s\">\n",
                  LEFT + WIDTH + 12, height + BOTTOM, map->label);
    strbuf_printf(out, "<rect class=cold x=%d y=%d width=%d height=%d />\n", LEFT, TOP, WIDTH,
                  n_rows * ROW - 1);
    for (int i = 0; i < n_rows; i++) put_row(out, map, &rows[i], i, per_column, full);
    strbuf_printf(out,
                  "<text x=%d y=%d>step %.0f</text><text x=%d y=%d text-anchor=end>%.0f</text>\n"
                  "</svg></section>\n",
                  LEFT, height + 16, map->steps[0], LEFT + WIDTH, height + 16,
                  map->steps[map->n_columns - 1]);
}
