#include "frontend/commands/run_norms.h"

#include "frontend/commands/heat_map.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NORM_ROWS = 4096 };

/* What of a name is its row: "blocks.3" of "blocks.3.attn.wq", else all of it. */
static size_t row_length(const char *name) {
    for (size_t at = 0; name[at];) {
        const size_t part = strcspn(name + at, ".");
        if (part > 0 && strspn(name + at, "0123456789") == part) return at + part;
        at += part + (name[at + part] == '.');
    }
    return strlen(name);
}

/* -1: there are too many. */
static int find_row(RunNorms *norms, const char *name, size_t length, Arena *arena) {
    /* Names of a row mostly follow each other. */
    for (int i = norms->n_rows - 1; i >= 0; i--) {
        if (strlen(norms->names[i]) == length && memcmp(norms->names[i], name, length) == 0)
            return i;
    }
    if (norms->n_rows == MOST_NORM_ROWS) return -1;
    const char *kept = arena_printf(arena, "%.*s", (int)length, name);
    ARENA_PUSH(arena, norms->names, norms->n_rows, norms->row_capacity, kept);
    return norms->n_rows - 1;
}

/* NAN stays; what was not told yet becomes the square. */
static void add_square(float *sum, const json_t *number) {
    const double value = json_is_number(number) ? json_number_value(number) : NAN;
    const double square = value * value;
    if (!(square <= 1e30)) return;
    *sum = isnan(*sum) ? (float)square : *sum + (float)square;
}

bool run_norms_add(RunNorms *norms, double step, const json_t *object, int64_t most_values,
                   Arena *arena) {
    const char *name;
    const json_t *of;
    if (json_object_size(object) == 0) return true;
    if (!norms->room) norms->room = ARENA_ARRAY(arena, NormSums, MOST_NORM_ROWS);
    NormSums *sums = norms->room;
    for (int i = 0; i < MOST_NORM_ROWS; i++) sums[i] = (NormSums){NAN, NAN, NAN};
    json_object_foreach((json_t *)object, name, of) {
        const size_t length = row_length(name);
        const int row = length <= 200 ? find_row(norms, name, length, arena) : -1;
        if (row < 0 || json_array_size(of) != 3) continue;
        add_square(&sums[row].weight, json_array_get(of, 0));
        add_square(&sums[row].gradient, json_array_get(of, 1));
        add_square(&sums[row].change, json_array_get(of, 2));
    }
    const size_t n_rows = (size_t)norms->n_rows;
    const NormColumn column = {step, norms->n_rows, ARENA_ARRAY(arena, NormSums, n_rows + 1)};
    memcpy(column.rows, sums, n_rows * sizeof(*sums));
    norms->n_values += 3 * norms->n_rows + 1;
    ARENA_PUSH(arena, norms->columns, norms->n_columns, norms->capacity, column);
    return norms->n_values <= most_values;
}

static int by_size(const void *left, const void *right) {
    const float a = *(const float *)left, b = *(const float *)right;
    return (a > b) - (a < b);
}

/* Each of the row's numbers over their median. */
static void divide_by_median(float *row, int n, Arena *arena) {
    float *sorted = ARENA_ARRAY(arena, float, n + 1);
    int count = 0;
    for (int i = 0; i < n; i++) {
        if (!isnan(row[i])) sorted[count++] = row[i];
    }
    if (count == 0) return;
    qsort(sorted, (size_t)count, sizeof(*sorted), by_size);
    const float median = (sorted[(count - 1) / 2] + sorted[count / 2]) / 2;
    for (int i = 0; i < n; i++) row[i] = median > 0 ? row[i] / median : NAN;
}

void run_norms_put(StrBuf *out, const RunNorms *norms, Arena *arena) {
    if (norms->n_columns == 0) return;
    const size_t n_rows = (size_t)norms->n_rows, n_columns = (size_t)norms->n_columns;
    double *steps = ARENA_ARRAY(arena, double, n_columns);
    float *gradients = ARENA_ARRAY(arena, float, n_rows *n_columns + 1);
    float *changes = ARENA_ARRAY(arena, float, n_rows *n_columns + 1);
    for (size_t c = 0; c < n_columns; c++) steps[c] = norms->columns[c].step;
    for (size_t r = 0; r < n_rows; r++) {
        for (size_t c = 0; c < n_columns; c++) {
            const NormColumn *column = &norms->columns[c];
            const bool told = (int)r < column->n_rows;
            const NormSums sums = told ? column->rows[r] : (NormSums){NAN, NAN, NAN};
            const float pace = sqrtf(sums.change / sums.weight);
            gradients[r * n_columns + c] = sqrtf(sums.gradient);
            changes[r * n_columns + c] = pace > 0 && pace <= 1e6f ? 100 * pace : NAN;
        }
        divide_by_median(&gradients[r * n_columns], norms->n_columns, arena);
    }
    HeatMap map = {.title = "Gradients of each block, to their median",
                   .label = "gradients",
                   .what = "",
                   .whats = "rows",
                   .n_rows = norms->n_rows,
                   .n_columns = norms->n_columns,
                   .names = norms->names,
                   .steps = steps,
                   .values = gradients,
                   .none = 1,
                   .least = 1.05f,
                   .full = 4,
                   .logarithmic = true,
                   .format = "%.3g"};
    heat_map_put(out, &map, arena);
    map.title = "Change of weights in a step, of their size";
    map.label = "changes";
    map.values = changes;
    map.none = map.least = 0.01f;
    map.full = 1;
    map.format = "%.2g %%";
    heat_map_put(out, &map, arena);
}
