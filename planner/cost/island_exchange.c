#include "planner/cost/island_exchange.h"

IslandExchange island_exchange(const IslandChoice *choice, int64_t n_trained, int gradient_bytes,
                               double step_seconds, double step_tokens) {
    const double n = choice->n_islands, link = choice->link_bytes_per_second;
    const double between = step_seconds * (double)choice->every;
    IslandExchange of = {.bytes = (double)n_trained * choice->word_bytes};
    of.hub_bytes = (n - 1) * of.bytes;
    of.seconds = 2 * of.hub_bytes / link;
    of.share = of.seconds / (of.seconds + between);
    of.tokens_per_second = n * step_tokens * (double)choice->every / (of.seconds + between);
    of.one_run_seconds = 2 * (n - 1) / n * (double)n_trained * gradient_bytes / link;
    of.one_run_share = of.one_run_seconds / (of.one_run_seconds + step_seconds);
    return of;
}
