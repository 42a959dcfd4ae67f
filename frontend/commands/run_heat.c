#include "frontend/commands/run_heat.h"

#include "frontend/commands/heat_map.h"

#include <math.h>

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

void run_heat_put(StrBuf *out, const RunHeat *heat, Arena *arena) {
    const size_t n_rows = (size_t)heat->n_ranks, n_columns = (size_t)heat->count;
    const char **names = ARENA_ARRAY(arena, const char *, n_rows + 1);
    double *steps = ARENA_ARRAY(arena, double, n_columns + 1);
    float *values = ARENA_ARRAY(arena, float, n_rows *n_columns + 1);
    for (size_t r = 0; r < n_rows; r++) names[r] = arena_printf(arena, "%zu", r);
    for (size_t c = 0; c < n_columns; c++) {
        const HeatWindow *window = &heat->windows[c];
        steps[c] = window->step;
        for (size_t r = 0; r < n_rows; r++) {
            values[r * n_columns + c] = (int)r < window->n_ranks ? window->ratio[r] : NAN;
        }
    }
    const HeatMap map = {.title = "Own work of each rank, to the median of the others of its stage",
                         .label = "ranks",
                         .what = "rank",
                         .whats = "ranks",
                         .n_rows = heat->n_ranks,
                         .n_columns = heat->count,
                         .names = names,
                         .steps = steps,
                         .values = values,
                         .none = 1,
                         .least = 1.005f,
                         .full = 1.5f,
                         .format = "%.2f"};
    heat_map_put(out, &map, arena);
}
