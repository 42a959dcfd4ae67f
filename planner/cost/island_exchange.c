#include "planner/cost/island_exchange.h"

#include <math.h>

IslandExchange island_exchange(const IslandChoice *choice, int64_t n_trained, int gradient_bytes,
                               double step_seconds, double step_tokens) {
    const double n = choice->n_islands, link = choice->link_bytes_per_second;
    const double between = step_seconds * (double)choice->every;
    IslandExchange of = {.bytes = (double)n_trained * choice->word_bytes};
    of.hub_bytes = (n - 1) * of.bytes;
    of.seconds = 2 * of.hub_bytes / link;
    const double n_parts = choice->n_parts ? choice->n_parts : 1;
    const double behind = fmin((double)choice->overlap * step_seconds, between / n_parts);
    of.part_bytes = of.hub_bytes / n_parts;
    of.hidden_seconds = n_parts * fmin(of.seconds / n_parts, behind);
    of.wait_seconds = of.seconds - of.hidden_seconds;
    of.share = of.wait_seconds / (of.wait_seconds + between);
    of.tokens_per_second = n * step_tokens * (double)choice->every / (of.wait_seconds + between);
    of.one_run_seconds = 2 * (n - 1) / n * (double)n_trained * gradient_bytes / link;
    of.one_run_share = of.one_run_seconds / (of.one_run_seconds + step_seconds);
    return of;
}
