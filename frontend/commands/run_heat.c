#include "frontend/commands/run_heat.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_ROWS = 64, MOST_COLUMNS = 120 };

/* In the drawing's own coordinates. */
enum { LEFT = 64, TOP = 4, WIDTH = 860, ROW = 14, BOTTOM = 22 };

/* What is drawn in full colour, unless something is larger. */
static const float FULL = 1.5f;
/* Below it nothing is drawn. */
static const float LEAST = 1.005f;

bool run_heat_add(RunHeat *heat, double step, const json_t *stragglers, int64_t most_values,
                  Arena *arena) {
    const json_t *ratio = json_object_get(stragglers, "ratio");
    const size_t n = json_array_size(ratio);
    if (n == 0) return true;
    heat->n_values += (int64_t)n;
    if (heat->n_values > most_values) return false;
    HeatWindow window = {step, (int)n, ARENA_ARRAY(arena, float, n)};
    for (size_t i = 0; i < n; i++) {
        const json_t *number = json_array_get(ratio, i);
        const double value = json_is_number(number) ? json_number_value(number) : NAN;
        window.ratio[i] = value >= 0 && value <= 1e6 ? (float)value : NAN;
    }
    if (window.n_ranks > heat->n_ranks) heat->n_ranks = window.n_ranks;
    ARENA_PUSH(arena, heat->windows, heat->count, heat->capacity, window);
    return true;
}

typedef struct Row {
    int rank;
    float most; /* NAN: never compared */
} Row;

static float ratio_at(const RunHeat *heat, int window, int rank) {
    return rank < heat->windows[window].n_ranks ? heat->windows[window].ratio[rank] : NAN;
}

static int by_most(const void *a, const void *b) {
    const Row *x = a, *y = b;
    if (x->most != y->most) return x->most > y->most ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static int by_rank(const void *a, const void *b) {
    const Row *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* By rank; *out_n: how many of those that there are. Returns how many were ever compared. */
static int choose_rows(const RunHeat *heat, Row *rows, int *out_n) {
    int n = 0;
    for (int rank = 0; rank < heat->n_ranks; rank++) {
        Row row = {rank, NAN};
        for (int w = 0; w < heat->count; w++) row.most = fmaxf(row.most, ratio_at(heat, w, rank));
        if (!isnan(row.most)) rows[n++] = row;
    }
    const int n_compared = n;
    qsort(rows, (size_t)n, sizeof(*rows), by_most);
    if (n > MOST_ROWS) n = MOST_ROWS;
    qsort(rows, (size_t)n, sizeof(*rows), by_rank);
    *out_n = n;
    return n_compared;
}

/* The most of several windows. */
static float most_in(const RunHeat *heat, int rank, int first, int end, double *out_step) {
    float most = NAN;
    for (int w = first; w < end; w++) {
        const float ratio = ratio_at(heat, w, rank);
        if (isnan(ratio) || ratio <= most) continue;
        most = ratio;
        *out_step = heat->windows[w].step;
    }
    return most;
}

static void put_row(StrBuf *out, const RunHeat *heat, const Row *row, int at, int per_column,
                    float full) {
    const int n_columns = (heat->count + per_column - 1) / per_column;
    const double width = (double)WIDTH / n_columns;
    const int y = TOP + at * ROW;
    strbuf_printf(out, "<text x=%d y=%d text-anchor=end>%d</text>\n", LEFT - 8, y + ROW - 3,
                  row->rank);
    for (int c = 0; c < n_columns; c++) {
        double step = 0;
        const int end = (c + 1) * per_column < heat->count ? (c + 1) * per_column : heat->count;
        const float ratio = most_in(heat, row->rank, c * per_column, end, &step);
        if (isnan(ratio) || ratio < LEAST) continue;
        strbuf_printf(out,
                      "<rect class=heat x=%.1f y=%d width=%.1f height=%d fill-opacity=%.2f>"
                      "<title>rank %d, step %.0f: %.2f</title></rect>\n",
                      LEFT + c * width, y, width - 0.5, ROW - 1,
                      (double)fminf(1, (ratio - 1) / (full - 1)), row->rank, step, (double)ratio);
    }
}

void run_heat_put(StrBuf *out, const RunHeat *heat, Arena *arena) {
    Row *rows = ARENA_ARRAY(arena, Row, heat->n_ranks + 1);
    int n_rows;
    const int n_compared = choose_rows(heat, rows, &n_rows);
    if (n_rows == 0) return;
    float full = FULL;
    for (int i = 0; i < n_rows; i++) full = fmaxf(full, rows[i].most);
    const int per_column = (heat->count + MOST_COLUMNS - 1) / MOST_COLUMNS;
    const int height = TOP + n_rows * ROW;
    strbuf_printf(out,
                  "<section><h2>Own work of each rank, to the median of the others of its stage "
                  "<span class=key>full colour: %.2f",
                  (double)full);
    if (n_compared > n_rows) strbuf_printf(out, "; the %d highest of %d ranks", n_rows, n_compared);
    strbuf_printf(out, "</span></h2>\n<svg viewBox=\"0 0 %d %d\" role=img aria-label=\"ranks\">\n",
                  LEFT + WIDTH + 12, height + BOTTOM);
    strbuf_printf(out, "<rect class=cold x=%d y=%d width=%d height=%d />\n", LEFT, TOP, WIDTH,
                  n_rows * ROW - 1);
    for (int i = 0; i < n_rows; i++) put_row(out, heat, &rows[i], i, per_column, full);
    strbuf_printf(out,
                  "<text x=%d y=%d>step %.0f</text><text x=%d y=%d text-anchor=end>%.0f</text>\n"
                  "</svg></section>\n",
                  LEFT, height + 16, heat->windows[0].step, LEFT + WIDTH, height + 16,
                  heat->windows[heat->count - 1].step);
}
