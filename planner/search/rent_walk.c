#include "planner/search/rent_walk.h"

#include <math.h>

/* Device-hours between two numbers of nodes, against the least seen; what more ranks must gain to
 * be climbed to; the share of the nodes that a bisection leaves open. */
static const double LEAST_HOURS = 0.97, WORTH_CLIMBING = 0.98;
enum { OPEN_SHARE = 32 };

static bool within_days(const RentLimits *limits, const RentPoint *point) {
    return point->days > 0 && (limits->days <= 0 || point->days <= limits->days);
}

/* What costs nobody knows how much is within no money. */
static bool within_money(const RentLimits *limits, const RentPoint *point) {
    if (limits->money <= 0) return point->days > 0;
    return point->days > 0 && point->money > 0 && point->money <= limits->money;
}

static bool beyond_money(const RentLimits *limits, const RentPoint *point) {
    return point->days > 0 && point->money > limits->money;
}

void rent_walk_add(RentWalk *walk, int n_ranks, double days) {
    if (walk->n_tries == RENT_MOST_TRIES) return;
    walk->tries[walk->n_tries++] = (RentPoint){
        .n_ranks = n_ranks, .days = days, .money = days * 24 * n_ranks * walk->device_hour};
}

/* Do the last two of the first `n` tries gain nothing on those before? */
static bool is_stalled(const RentWalk *walk, int n) {
    double before = INFINITY, last = INFINITY;
    for (int i = 0; i < n; i++) {
        double days = walk->tries[i].days;
        if (days <= 0) continue;
        if (i < n - 2) {
            before = fmin(before, days);
        } else {
            last = fmin(last, days);
        }
    }
    return n > 2 && isfinite(before) && last > WORTH_CLIMBING * before;
}

/* Is there reason to climb above the first `n` tries? */
static bool must_climb(const RentWalk *walk, int n) {
    const RentLimits *limits = &walk->limits;
    bool met = false, spent = false;
    for (int i = 0; i < n; i++) {
        met |= within_days(limits, &walk->tries[i]);
        spent |= beyond_money(limits, &walk->tries[i]);
    }
    if (n > 0 && is_stalled(walk, n)) return false;
    if (limits->days <= 0 && limits->money <= 0) return true;
    if (limits->days > 0 && !met) return true;
    return limits->money > 0 && walk->device_hour > 0 && !spent;
}

static int greatest_divisor(int a, int b) {
    while (b) {
        int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Of so many nodes' ranks, what the batch does not divide over, but for powers of two, which the
 * other axes take: 1 is best. */
static int odd_rest(const RentWalk *walk, int nodes) {
    int ranks = nodes * walk->n_per_node;
    int rest = ranks / greatest_divisor(walk->global_batch, ranks);
    while (rest % 2 == 0) rest /= 2;
    return rest;
}

/* Ranks between two rungs that the batch divides over more than over either; 0: none. */
static int rung_between(const RentWalk *walk, int low, int high) {
    const int each = walk->n_per_node, batch = walk->global_batch;
    int best = 0, most = greatest_divisor(batch, high), best_rest = 0;
    if (most < greatest_divisor(batch, low)) most = greatest_divisor(batch, low);
    for (int nodes = low / each + 1; nodes * each < high; nodes++) {
        int data = greatest_divisor(batch, nodes * each), rest = odd_rest(walk, nodes);
        if (data < most || (data == most && (!best || rest > best_rest))) continue;
        best = nodes * each, most = data, best_rest = rest;
    }
    return best;
}

int rent_walk_rungs(const RentWalk *walk, int *out) {
    int n = 0;
    for (int i = 0; i < walk->n_rungs; i++) {
        int more = i > 0 ? rung_between(walk, walk->rungs[i - 1], walk->rungs[i]) : 0;
        if (more) out[n++] = more;
        out[n++] = walk->rungs[i];
    }
    return n;
}

static bool was_tried(const RentWalk *walk, int n_ranks) {
    for (int i = 0; i < walk->n_tries; i++) {
        if (walk->tries[i].n_ranks == n_ranks) return true;
    }
    return false;
}

/* Ranks of the best number of nodes from `first` to `last`: of equal ones that nearest to the
 * middle. 0: none is left, or so few that it does not matter. */
static int pick_between(const RentWalk *walk, int first, int last) {
    int best = 0, best_rest = 0, best_away = 0;
    if (last - first + 1 <= (last + 1) / OPEN_SHARE) return 0;
    for (int nodes = first; nodes <= last; nodes++) {
        if (was_tried(walk, nodes * walk->n_per_node)) continue;
        int rest = odd_rest(walk, nodes), away = 2 * nodes - first - last;
        if (away < 0) away = -away;
        if (best && (rest > best_rest || (rest == best_rest && away >= best_away))) continue;
        best = nodes, best_rest = rest, best_away = away;
    }
    return best * walk->n_per_node;
}

/* Between the fewest ranks that meet the days and the most below them. */
static int next_for_days(const RentWalk *walk) {
    int high = 0, low = 0;
    double least = INFINITY; /* device-days */
    for (int i = 0; i < walk->n_tries; i++) {
        const RentPoint *point = &walk->tries[i];
        if (point->days > 0) least = fmin(least, point->days * point->n_ranks);
        if (!within_days(&walk->limits, point)) continue;
        if (!high || point->n_ranks < high) high = point->n_ranks;
    }
    for (int i = 0; i < walk->n_tries; i++) {
        int ranks = walk->tries[i].n_ranks;
        if (ranks < high && ranks > low) low = ranks;
    }
    if (!low || high % walk->n_per_node) return 0;
    double fewest = ceil(LEAST_HOURS * least / walk->limits.days / walk->n_per_node);
    int first = low / walk->n_per_node + 1;
    if (fewest > first) first = (int)fmin(fewest, high);
    return pick_between(walk, first, high / walk->n_per_node - 1);
}

/* Between the most ranks that the money pays for and the fewest above them, if these are faster. */
static int next_for_money(const RentWalk *walk) {
    const RentPoint *low = 0, *high = 0;
    for (int i = 0; i < walk->n_tries; i++) {
        const RentPoint *point = &walk->tries[i];
        if (!within_money(&walk->limits, point)) continue;
        if (!low || point->n_ranks > low->n_ranks) low = point;
    }
    for (int i = 0; low && i < walk->n_tries; i++) {
        const RentPoint *point = &walk->tries[i];
        if (point->n_ranks < low->n_ranks || !beyond_money(&walk->limits, point)) continue;
        if (!high || point->n_ranks < high->n_ranks) high = point;
    }
    if (!high || high->n_ranks % walk->n_per_node) return 0;
    if (high->days > WORTH_CLIMBING * low->days) return 0;
    return pick_between(walk, low->n_ranks / walk->n_per_node + 1,
                        high->n_ranks / walk->n_per_node - 1);
}

int rent_walk_next(const RentWalk *walk) {
    if (walk->n_tries == RENT_MOST_TRIES) return 0;
    for (int i = 0; i < walk->n_rungs && must_climb(walk, i); i++) {
        if (i == walk->n_tries) return walk->rungs[i];
    }
    int next = walk->limits.days > 0 ? next_for_days(walk) : 0;
    if (next == 0 && walk->limits.money > 0 && walk->device_hour > 0) next = next_for_money(walk);
    return next;
}

static bool beats(double a, double b, double a_then, double b_then) {
    return a < b || (a == b && a_then < b_then);
}

/* Is there one that is no worse in both, and better in one? */
static bool is_beaten(const RentPoint *points, int n_points, const RentPoint *by) {
    for (int i = 0; i < n_points; i++) {
        const RentPoint *of = &points[i];
        if (of->days <= 0 || of->money <= 0) continue;
        if (of->days > by->days || of->money > by->money) continue;
        if (of->days < by->days || of->money < by->money) return true;
    }
    return false;
}

RentChoice rent_choose(RentPoint *points, int n_points, const RentLimits *limits) {
    RentChoice choice = {-1, -1, 0};
    for (int i = 0; i < n_points; i++) {
        RentPoint *of = &points[i];
        of->front = of->days > 0 && of->money > 0 && !is_beaten(points, n_points, of);
        bool soon = within_days(limits, of), paid = within_money(limits, of);
        choice.n_within += soon && paid;
        const RentPoint *best = &points[choice.cheapest < 0 ? i : choice.cheapest];
        if (limits->days > 0 && soon && of->money > 0 &&
            (choice.cheapest < 0 || beats(of->money, best->money, of->days, best->days)))
            choice.cheapest = i;
        best = &points[choice.fastest < 0 ? i : choice.fastest];
        if (limits->money > 0 && paid &&
            (choice.fastest < 0 || beats(of->days, best->days, of->money, best->money)))
            choice.fastest = i;
    }
    return choice;
}
