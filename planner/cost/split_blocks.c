/* Contiguous runs of blocks become chunks, so that the slowest stage takes as little as can be. The
 * first and the last chunk of a pipeline may go without blocks, as they have the model's ends.
 *
 * Blocks of one kind: only how many blocks a stage has matters, so they are dealt out one by one to
 * the stage that is then least busy, which is optimal for equal pieces (Graham 1969).
 * Blocks of several kinds: a bound on the chunks' time is bisected; for a bound, chunks filled
 * greedily from the front are as few as there can be. Then single blocks are moved between
 * neighbours while that lowers the slowest stage or makes stages more alike.
 */
#include "planner/cost/step_cost.h"

#include <math.h>
#include <string.h>

static double segment_us(const SegmentCost *segment) {
    return segment->forward.us + segment->backward.us;
}

/* Counted as a block each, the ends of the model leave their chunks one less. */
static int count_ends(const ClusterSoftware *software, int n_blocks, int n_total) {
    bool needed = n_blocks % n_total != 0, even = (n_blocks + MOST_BARE_CHUNKS) % n_total == 0;
    return software->counts_ends && needed && even ? MOST_BARE_CHUNKS : 0;
}

bool blocks_split_evenly(const ClusterSoftware *software, int n_blocks, int n_total) {
    return (n_blocks + count_ends(software, n_blocks, n_total)) % n_total == 0;
}

static bool split_evenly(const ModelCosts *costs, int n_total, int *out_split) {
    const ClusterSoftware *software = &costs->cluster->software;
    if (!blocks_split_evenly(software, costs->n_blocks, n_total)) return false;
    int n_ends = count_ends(software, costs->n_blocks, n_total);
    for (int g = 0; g < n_total; g++) out_split[g] = (costs->n_blocks + n_ends) / n_total;
    if (n_ends) out_split[0]--, out_split[n_total - 1]--;
    return true;
}

/* Blocks of one kind: microseconds of one, and of the model's ends. */
typedef struct Pieces {
    Path path;
    int n_chunks;
    double block, before, after;
} Pieces;

static double end_us(const Pieces *of, int stage, int chunk) {
    int global = path_global(of->path, stage, chunk);
    return (global == 0 ? of->before : 0) +
           (global == of->path.p * of->n_chunks - 1 ? of->after : 0);
}

/* Can the stage's chunk do without a block? */
static bool may_be_bare(const Pieces *of, int stage, int chunk) {
    int global = path_global(of->path, stage, chunk);
    return of->path.p > 1 && (global == 0 || global == of->path.p * of->n_chunks - 1);
}

/* The stage's `n` blocks over its chunks, as many in each; one too few is lacking where an end of
 * the model is. What is left over goes where it does not slow the pace of that chunk in the stages
 * behind, which may have a heavy head to wait for; else to the first chunks, of every stage alike:
 * stages whose heavy chunks are others hold each other up. */
static void spread_over_chunks(const Pieces *of, int stage, int n, double *pace, int *out_split) {
    int v = of->n_chunks, each = n / v, left = n % v, lacking = n < v ? v - n : 0;
    double load[MAX_CHUNKS];
    if (n < v) each = 1, left = 0;
    for (int c = v - 1; c >= 0; c--) { /* of two that can, the head's */
        bool bare = lacking > 0 && may_be_bare(of, stage, c);
        int blocks = bare ? 0 : each;
        lacking -= bare;
        out_split[path_global(of->path, stage, c)] = blocks;
        load[c] = blocks * of->block + end_us(of, stage, c);
    }
    for (; left > 0; left--) {
        int best = -1;
        bool fits = false;
        for (int c = 0; c < v && !fits; c++) {
            if (out_split[path_global(of->path, stage, c)] > each) continue;
            fits = load[c] + of->block <= pace[c] * (1 + 1e-9);
            if (fits || best < 0) best = c;
        }
        out_split[path_global(of->path, stage, best)]++;
        load[best] += of->block;
    }
    for (int c = 0; c < v; c++) {
        if (load[c] > pace[c]) pace[c] = load[c];
    }
}

static void deal_out(int n_blocks, const Pieces *of, int *out_split) {
    int counts[MAX_STAGES], p = of->path.p, v = of->n_chunks, left = n_blocks;
    double carried[MAX_STAGES];
    /* However they are dealt, a stage falls short of its share by no more than what it carries
     * besides, and one: so much is dealt at once. */
    for (int s = 0; s < p; s++) {
        carried[s] = end_us(of, s, 0) + (v > 1 ? end_us(of, s, v - 1) : 0);
        int share = n_blocks / p - 1, least = v - may_be_bare(of, s, 0);
        if (v > 1) least -= may_be_bare(of, s, v - 1);
        double sure = of->block > 0 ? share - carried[s] / of->block : 0;
        counts[s] = sure > least ? (int)sure : least;
        left -= counts[s];
    }
    while (left > 0) {
        /* Among equals the later: under 1F1B it holds fewer micro-batches. */
        int best = 0;
        double least = INFINITY;
        for (int s = p - 1; s >= 0; s--) {
            double load = carried[s] + counts[s] * of->block;
            if (load < least * (1 - 1e-12)) best = s, least = load;
        }
        counts[best]++;
        left--;
    }
    double pace[MAX_CHUNKS] = {0};
    for (int s = p - 1; s >= 0; s--) spread_over_chunks(of, s, counts[s], pace, out_split);
}

/* Blocks of several kinds. */
typedef struct Line {
    int n_blocks, n_total;
    Path path;
    const double *sum; /* of the first i blocks */
    const int *run;    /* by block: where blocks of its kind that follow it end */
    double before, after;
    bool bare_ends;   /* the first and the last chunk may have no block */
    int *stage_of;    /* by chunk */
    double *stage_us; /* what stages do as chunks are cut now */
} Line;

static int least_blocks(const Line *line, int g) {
    return !line->bare_ends || (g > 0 && g + 1 < line->n_total);
}

static double chunk_us(const Line *line, int g, int begin, int end) {
    return line->sum[end] - line->sum[begin] + (g == 0 ? line->before : 0) +
           (g == line->n_total - 1 ? line->after : 0);
}

/* Fills chunks from the front, none over `bound`; cuts[g] is chunk g's first block. *out_most: the
 * longest; *out_next: all bounds from this one to below that one fill alike. */
static bool fill(const Line *line, double bound, int *cuts, double *out_most, double *out_next) {
    int at = 0, needed_after = 0; /* blocks, by the chunks that follow */
    *out_most = 0;
    *out_next = INFINITY;
    for (int g = 1; g < line->n_total; g++) needed_after += least_blocks(line, g);
    for (int g = 0; g < line->n_total; g++) {
        int most = line->n_blocks - needed_after;
        cuts[g] = at;
        at += least_blocks(line, g);
        if (at > most) return false;
        double us = chunk_us(line, g, cuts[g], at), next = us;
        while (next <= bound && at < most) {
            next = chunk_us(line, g, cuts[g], at + 1);
            if (next <= bound) us = next, at++;
        }
        if (next > bound) *out_next = fmin(*out_next, next);
        if (us > bound) return false;
        *out_most = fmax(*out_most, us);
        if (g + 1 < line->n_total) needed_after -= least_blocks(line, g + 1);
    }
    cuts[line->n_total] = at;
    return at == line->n_blocks;
}

static void fill_least(const Line *line, int *cuts) {
    double high = line->sum[line->n_blocks] + line->before + line->after, most, next;
    double low = high / line->n_total * (1 - 1e-9); /* one chunk has that much */
    for (int i = 0; i < 44 && low < high; i++) {
        double middle = (low + high) / 2;
        if (fill(line, middle, cuts, &most, &next)) {
            high = most;
        } else {
            low = fmax(middle, next); /* no less will do */
        }
    }
    if (!fill(line, high * (1 + 1e-12), cuts, &most, &next))
        BUG("%d blocks, bound %g", line->n_blocks, high);
}

/* The slowest stage, then the squares of stages: smaller is better, in this order. */
typedef struct Rating {
    double most, squares;
} Rating;

static Rating rate(const Line *line) {
    Rating rating = {0};
    for (int s = 0; s < line->path.p; s++) {
        double load = line->stage_us[s];
        if (load > rating.most) rating.most = load;
        rating.squares += load * load;
    }
    return rating;
}

#define ROUNDING 1e-9 /* differences that only it makes do not count */

static bool is_less(Rating a, Rating b) {
    const double less = 1 - ROUNDING;
    return a.most < b.most * less || (a.most * less <= b.most && a.squares < b.squares * less);
}

enum { MOST_CUTS = 8 };

/* Where all blocks that change chunks take equally long, what moves goes from one stage to another:
 * then the slowest stage falls only if the squares do. False: who knows. *alike: the last cut up to
 * which they are known to do so from `first` on. */
static bool cannot_help(const Line *line, const int *cuts, int first, int last, int by, int *alike,
                        const Rating *rating) {
    const double *end = line->sum + (by > 0), *begin = end - 1;
    const double moved = end[cuts[first]] - begin[cuts[first]];
    for (int g = *alike + 1; g <= last; g++, ++*alike) {
        if (fabs(end[cuts[g]] - begin[cuts[g]] - moved) > moved * 1e-12) return false;
    }
    int to = line->stage_of[by > 0 ? first - 1 : last];
    int from = line->stage_of[by > 0 ? last : first - 1];
    double change = 2 * moved * (line->stage_us[to] - line->stage_us[from] + moved);
    return to == from || change >= -ROUNDING * rating->squares;
}

/* Moves `n` cuts by one block each, if that is better. */
static bool try_move(const Line *line, int *cuts, int first, int n, int by, int *alike,
                     Rating *rating) {
    double before[MOST_CUTS + 1]; /* of the stages of the chunks beside the cuts */
    int last = first + n - 1;
    if (last >= line->n_total) return false;
    int left = cuts[first] + by - cuts[first - 1], right = cuts[last + 1] - cuts[last] - by;
    if (left < least_blocks(line, first - 1) || right < least_blocks(line, last)) return false;
    if (cannot_help(line, cuts, first, last, by, alike, rating)) return false;
    Rating then = *rating;
    bool slowest = false; /* is it one of them that changes? */
    for (int g = first - 1; g <= last; g++) {
        double *load = &line->stage_us[line->stage_of[g]], old = *load;
        int begin = cuts[g] + (g >= first ? by : 0), end = cuts[g + 1] + (g < last ? by : 0);
        *load += chunk_us(line, g, begin, end) - chunk_us(line, g, cuts[g], cuts[g + 1]);
        before[g - first + 1] = old;
        slowest |= old * (1 + ROUNDING) >= rating->most;
        then.squares += (*load - old) * (*load + old);
    }
    for (int g = first - 1; g <= last; g++)
        then.most = fmax(then.most, line->stage_us[line->stage_of[g]]);
    if (slowest && then.most <= rating->most * (1 + ROUNDING)) then = rate(line);
    if (is_less(then, *rating)) {
        for (int g = first; g <= last; g++) cuts[g] += by;
        *rating = then;
        return true;
    }
    for (int g = last; g >= first - 1; g--)
        line->stage_us[line->stage_of[g]] = before[g - first + 1];
    return false;
}

/* Least and most of what stages do. */
typedef struct Loads {
    double least, most;
} Loads;

static Loads find_loads(const Line *line, double most) {
    Loads loads = {most, most};
    for (int s = 0; s < line->path.p; s++) loads.least = fmin(loads.least, line->stage_us[s]);
    return loads;
}

/* Does cannot_help say so of all moves of cuts from `first` on, as blocks are of one kind and no
 * two stages are far enough apart? */
static bool none_helps(const Line *line, const int *cuts, int first, int by, Loads loads) {
    int most = first + MOST_CUTS - 1, last = most < line->n_total ? most : line->n_total - 1;
    int block = cuts[first] - (by < 0);
    if (block < 0 || block >= line->n_blocks) return false;
    if (line->run[block] <= cuts[last] - (by < 0)) return false;
    double moved = line->sum[block + 1] - line->sum[block];
    double beside = line->stage_us[line->stage_of[first - 1]]; /* gives or takes the block */
    return by > 0 ? beside + moved >= loads.most : loads.least + moved >= beside;
}

/* Moves up to MOST_CUTS neighbouring cuts while it helps. Returns the slowest stage. */
static double even_out(const Line *line, int *cuts) {
    enum { MOST_ROUNDS = 100 };
    memset(line->stage_us, 0, sizeof(double) * (size_t)line->path.p);
    for (int g = 0; g < line->n_total; g++)
        line->stage_us[line->stage_of[g]] += chunk_us(line, g, cuts[g], cuts[g + 1]);
    Rating rating = rate(line);
    Loads loads = find_loads(line, rating.most);
    bool moved = true;
    for (int round = 0; moved && round < MOST_ROUNDS; round++) {
        moved = false;
        for (int first = 1; first < line->n_total; first++) {
            int alike[2] = {first, first}; /* of moves to the left, and to the right */
            bool none[2] = {none_helps(line, cuts, first, -1, loads),
                            none_helps(line, cuts, first, 1, loads)};
            for (int i = 0; i < 2 * MOST_CUTS && !(none[0] && none[1]); i++) {
                bool right = i % 2;
                if (none[right]) continue;
                if (!try_move(line, cuts, first, i / 2 + 1, right ? 1 : -1, &alike[right], &rating))
                    continue;
                moved = true;
                alike[0] = alike[1] = first;
                none[0] = none[1] = false;
                loads = find_loads(line, rating.most);
            }
        }
    }
    return rating.most;
}

/* Of two: chunks filled from the front; or, as the least chunk is no goal in itself where a stage
 * has several, equal ones to begin with. Returns the slowest stage. */
static double divide_line(const Line *line, int *cuts, int *trial) {
    int n_total = line->n_total, n_bare = line->bare_ends;
    fill_least(line, cuts);
    double most = even_out(line, cuts);
    if (n_total == line->path.p) return most;
    for (int g = 0; g <= n_total; g++) {
        int n_filled = n_total - 2 * n_bare, at = g - n_bare;
        at = at < 0 ? 0 : at > n_filled ? n_filled : at;
        trial[g] = (int)((int64_t)at * line->n_blocks / n_filled);
    }
    double other = even_out(line, trial);
    if (other >= most) return most;
    memcpy(cuts, trial, sizeof(int) * (size_t)(n_total + 1));
    return other;
}

static void divide_kinds(const ModelCosts *costs, const LayoutCost *layout, Path path, int n_total,
                         int *out_split) {
    Arena *scratch = arena_create();
    double *sum = ARENA_ARRAY(scratch, double, costs->n_blocks + 1);
    int *run = ARENA_ARRAY(scratch, int, costs->n_blocks + 1);
    int *cuts = ARENA_ARRAY(scratch, int, n_total + 1);
    int *bare = ARENA_ARRAY(scratch, int, n_total + 1);
    int *trial = ARENA_ARRAY(scratch, int, n_total + 1);
    for (int b = 0; b < costs->n_blocks; b++) {
        sum[b + 1] = sum[b] + segment_us(&layout->kinds[costs->kind_of_block[b]]);
    }
    for (int b = costs->n_blocks - 1; b >= 0; b--) {
        bool ends =
            b + 1 == costs->n_blocks || costs->kind_of_block[b] != costs->kind_of_block[b + 1];
        run[b] = ends ? b + 1 : run[b + 1];
    }
    Line line = {.n_blocks = costs->n_blocks,
                 .n_total = n_total,
                 .path = path,
                 .sum = sum,
                 .run = run,
                 .before = segment_us(&layout->before),
                 .after = segment_us(&layout->after),
                 .bare_ends = n_total > costs->n_blocks,
                 .stage_of = ARENA_ARRAY(scratch, int, n_total),
                 .stage_us = ARENA_ARRAY(scratch, double, path.p)};
    for (int g = 0; g < n_total; g++) line.stage_of[g] = path_stage(path, g);
    double most = divide_line(&line, cuts, trial);
    if (!line.bare_ends && path.p > 1) {
        line.bare_ends = true;
        if (divide_line(&line, bare, trial) < most * (1 - 1e-9)) cuts = bare;
    }
    for (int g = 0; g < n_total; g++) out_split[g] = cuts[g + 1] - cuts[g];
    arena_destroy(scratch);
}

bool split_blocks(const ModelCosts *costs, const LayoutCost *layout, Path path, int n_chunks,
                  bool even, int *out_split) {
    int n_total = path.p * n_chunks;
    if (path.p > MAX_STAGES || n_chunks > MAX_CHUNKS ||
        n_total > costs->n_blocks + MOST_BARE_CHUNKS)
        return false;
    if (even) return split_evenly(costs, n_total, out_split);
    if (costs->n_kinds == 1) {
        Pieces pieces = {path, n_chunks, segment_us(&layout->kinds[0]), segment_us(&layout->before),
                         segment_us(&layout->after)};
        deal_out(costs->n_blocks, &pieces, out_split);
    } else {
        divide_kinds(costs, layout, path, n_total, out_split);
    }
    return true;
}
