#include "frontend/commands/train_skips.h"

#include <string.h>

#define MOST_SAMPLES ((int64_t)1 << 60)

bool train_skips_from_args(const CliArgs *args, TrainSkips *out, Diag *diag) {
    const CliValue *given = &args->values[OPT_SKIP_SAMPLES];
    *out = (TrainSkips){.n = given->n_list};
    if (given->n_list > TRAIN_MOST_SKIPS) {
        diag_error(diag, NO_LOC, "--skip-samples: at most %d times", TRAIN_MOST_SKIPS);
        return false;
    }
    for (int i = 0; i < given->n_list; i++) {
        const char *text = given->list[i], *dots = strstr(text, "..");
        const char *from = dots ? arena_strndup(args->arena, text, (size_t)(dots - text)) : "";
        if (dots && cli_parse_int(from, &out->from[i]) && cli_parse_int(dots + 2, &out->to[i]) &&
            out->from[i] >= 0 && out->from[i] < out->to[i] && out->to[i] <= MOST_SAMPLES) {
            continue;
        }
        diag_error(diag, NO_LOC,
                   "--skip-samples: '%s' is not A..B: how many samples a run has taken before "
                   "those that are left out, and with them (\"samples\" in its log)",
                   text);
        return false;
    }
    return true;
}

int64_t train_skips_next(const TrainSkips *skips, int64_t number) {
    bool moved;
    do {
        moved = false;
        for (int i = 0; i < skips->n; i++) {
            if (number < skips->from[i] || number >= skips->to[i]) continue;
            number = skips->to[i];
            moved = true;
        }
    } while (moved);
    return number;
}

int64_t train_skips_until(const TrainSkips *skips, int64_t number, int64_t end) {
    for (int i = 0; i < skips->n; i++) {
        if (skips->from[i] > number && skips->from[i] < end) end = skips->from[i];
    }
    return end;
}
