/* Which machines to rent: the numbers of ranks that are searched, on made-up machines whose best is
 * known by trying all; the choice among what was found; its text, JSON and page. Catches: a
 * bisection that ends beside the answer or never, limits taken for each other, prices that are not
 * known taken for none. */
#include "planner/show/rent_facts.h"
#include "planner/show/show_facts.h"
#include "tests/unit/check.h"
#include "tests/unit/search_fixture.h"

#include <jansson.h>
#include <math.h>

static const char HOSTILE[] = "h</title><script>alert(1)</script>\"'&\\\n\x01\xff";

/* --- the walk --- */

/* A made-up machine: device-days of one node, what each doubling adds to them, what numbers of
 * nodes that the batch does not divide over add; ranks that it takes to fit, and of more than which
 * none is faster. */
typedef struct Made {
    double device_days, per_doubling, awkward;
    int n_per_node, fits_from, useful_to;
} Made;

static double days_of(const Made *made, int batch, int n_ranks) {
    if (n_ranks < made->fits_from) return 0;
    int used = made->useful_to && n_ranks > made->useful_to ? made->useful_to : n_ranks;
    double days = made->device_days / used;
    days *= pow(made->per_doubling, log2((double)used / made->n_per_node));
    int odd = n_ranks;
    while (odd % 2 == 0) odd /= 2;
    return batch % odd ? days * made->awkward : days;
}

/* Walks to the end. */
static RentWalk walk_over(const Made *made, int batch, RentLimits limits, double price, int n_rungs,
                          const int *rungs) {
    RentWalk walk = {.n_per_node = made->n_per_node,
                     .global_batch = batch,
                     .n_rungs = n_rungs,
                     .rungs = rungs,
                     .limits = limits,
                     .device_hour = price};
    for (int n_ranks; (n_ranks = rent_walk_next(&walk)) > 0;) {
        for (int i = 0; i < walk.n_tries; i++) {
            CHECK(walk.tries[i].n_ranks != n_ranks, "%d ranks are tried twice", n_ranks);
        }
        rent_walk_add(&walk, n_ranks, days_of(made, batch, n_ranks));
    }
    CHECK(walk.n_tries < RENT_MOST_TRIES, "it does not end: %d tries", walk.n_tries);
    return walk;
}

enum { RUNGS = 12, OPEN_SHARE = 32 };
static const int DOUBLINGS[RUNGS] = {8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

static double money_of(double days, int n_ranks, double price) {
    return days * 24 * n_ranks * price;
}

/* Of all whole nodes the fewest within the days, or the most within the money; 0: none. */
static int try_all(const Made *made, int batch, RentLimits limits, double price) {
    int best = 0;
    for (int ranks = 8; ranks <= DOUBLINGS[RUNGS - 1]; ranks += 8) {
        double days = days_of(made, batch, ranks);
        bool soon = days > 0 && days <= limits.days;
        bool paid = days > 0 && money_of(days, ranks, price) <= limits.money;
        if (limits.days > 0 && soon) return ranks;
        if (limits.days <= 0 && paid) best = ranks;
    }
    return best;
}

static int walked_to(const RentWalk *walk, RentLimits limits) {
    int best = 0;
    for (int i = 0; i < walk->n_tries; i++) {
        const RentPoint *point = &walk->tries[i];
        if (limits.days > 0 && point->days > 0 && point->days <= limits.days &&
            (!best || point->n_ranks < best))
            best = point->n_ranks;
        if (limits.days <= 0 && point->days > 0 && point->money <= limits.money &&
            point->n_ranks > best)
            best = point->n_ranks;
    }
    return best;
}

static void test_walk(void) {
    check_begin("rent: bisections end within a thirty-second of what trying all nodes finds");
    int most_tries = 0;
    for (int i = 0; i < 400; i++) {
        Made made = {.device_days = 40 * pow(1.06, i % 100),
                     .per_doubling = 1 + 0.01 * (1 + i % 5),
                     .awkward = 1,
                     .n_per_node = 8,
                     .fits_from = i % 3 ? 8 : 32};
        bool money = i % 2;
        double price = 2.5, least = money_of(made.device_days / 8, 8, price);
        RentLimits limits = {.days = money ? 0 : 3 + i % 40,
                             .money = money ? least * (1.01 + 0.003 * (i % 50)) : 0};
        RentWalk walk = walk_over(&made, 1024, limits, price, RUNGS, DOUBLINGS);
        int want = try_all(&made, 1024, limits, price), got = walked_to(&walk, limits);
        int slack = got / OPEN_SHARE;
        CHECK(abs(got - want) <= slack, "case %d: %d ranks, not %d (%d tries)", i, got, want,
              walk.n_tries);
        if (walk.n_tries > most_tries) most_tries = walk.n_tries;
    }
    CHECK(most_tries <= 20, "%d tries", most_tries);
}

static void test_climb(void) {
    check_begin("rent: climbs until the limits are passed, and no further");
    Made made = {640, 1.02, 1.3, 8, 8, 0};
    RentWalk walk = walk_over(&made, 512, (RentLimits){.days = 30}, 0, RUNGS, DOUBLINGS);
    CHECK(walk.tries[0].n_ranks == 8 && walk.tries[1].n_ranks == 16 &&
              walk.tries[2].n_ranks == 32 && walk.tries[2].days < 30,
          "the rungs");
    CHECK(walk.n_tries == 4 && walk.tries[3].n_ranks == 24, "then %d", walk.tries[3].n_ranks);
    check_begin("rent: none but what was searched once, where the first rung will do");
    walk = walk_over(&made, 512, (RentLimits){.days = 100}, 2, RUNGS, DOUBLINGS);
    CHECK(walk.n_tries == 1, "%d tries", walk.n_tries);
    check_begin("rent: more ranks that are no faster end the climb");
    made.useful_to = 64;
    walk = walk_over(&made, 512, (RentLimits){.days = 1}, 2, RUNGS, DOUBLINGS);
    CHECK(walk.n_tries == 6 && walk.tries[5].n_ranks == 256, "%d tries, to %d", walk.n_tries,
          walk.tries[walk.n_tries - 1].n_ranks);
    check_begin("rent: without limits all rungs; with money and no price none");
    made.useful_to = 0;
    walk = walk_over(&made, 512, (RentLimits){0}, 2, RUNGS, DOUBLINGS);
    CHECK(walk.n_tries == RUNGS, "%d tries", walk.n_tries);
    walk = walk_over(&made, 512, (RentLimits){.money = 1e6}, 0, RUNGS, DOUBLINGS);
    CHECK(walk.n_tries == 0, "%d tries", walk.n_tries);
    check_begin("rent: parts of a node are rungs, but nothing is sought between them");
    const int few[] = {1, 2, 4, 8};
    walk = walk_over(&(Made){100, 1.02, 1, 8, 1, 0}, 512, (RentLimits){.days = 30}, 2, 4, few);
    CHECK(walk.n_tries == 3 && walk.tries[2].n_ranks == 4, "%d tries", walk.n_tries);
    check_begin("rent: where nothing ever fits, and where only awkward numbers would do");
    walk = walk_over(&(Made){100, 1, 1, 8, 1 << 20, 0}, 512, (RentLimits){.days = 30, .money = 9},
                     2, RUNGS, DOUBLINGS);
    CHECK(walk.n_tries == RUNGS, "%d tries", walk.n_tries);
    walk = walk_over(&(Made){6400, 1.001, 3, 8, 8, 0}, 512, (RentLimits){20, 4e5}, 1, RUNGS,
                     DOUBLINGS);
    CHECK(walked_to(&walk, (RentLimits){.days = 20}) == 512, "%d ranks",
          walked_to(&walk, (RentLimits){.days = 20}));
}

/* As small models are: data ranks alone make it faster, others hardly. */
static double days_by_data(int batch, int n_ranks) {
    int data = batch;
    while (n_ranks % data || batch % data) data--;
    return 64.0 / data / pow((double)n_ranks / data, 0.3);
}

static void test_between(void) {
    check_begin("rent: rungs that the batch divides over, where doublings do not");
    RentWalk walk = {.n_per_node = 8, .global_batch = 480, .n_rungs = 6, .rungs = DOUBLINGS};
    const int WANT[] = {8, 16, 32, 48, 64, 120, 128, 240, 256};
    int rungs[2 * RUNGS];
    int n = rent_walk_rungs(&walk, rungs);
    CHECK(n == 9, "%d rungs", n);
    for (int i = 0; i < n && i < 9; i++) CHECK(rungs[i] == WANT[i], "%d: %d", i, rungs[i]);
    walk.global_batch = 512;
    CHECK(rent_walk_rungs(&walk, rungs) == 6, "powers of two alone need no others");
    check_begin("rent: what ends in time is found where doublings all take longer");
    walk = (RentWalk){.n_per_node = 8, .global_batch = 96, .limits = {.days = 0.68}};
    walk.n_rungs = RUNGS, walk.rungs = DOUBLINGS;
    walk.n_rungs = rent_walk_rungs(&walk, rungs);
    walk.rungs = rungs;
    for (int n_ranks; (n_ranks = rent_walk_next(&walk)) > 0;) {
        rent_walk_add(&walk, n_ranks, days_by_data(96, n_ranks));
    }
    CHECK(walked_to(&walk, walk.limits) == 96, "%d ranks", walked_to(&walk, walk.limits));
    for (int i = 0; i < 6; i++) CHECK(days_by_data(96, DOUBLINGS[i]) > 0.68, "%d", DOUBLINGS[i]);
}

/* --- the choice --- */

static void test_choice(void) {
    check_begin("rent: cheapest in time, fastest for the money, and the front");
    RentPoint points[] = {
        {0, 8, 60, 100, false}, {0, 16, 31, 104, false}, {0, 32, 16, 110, false},
        {1, 8, 29, 120, false}, {1, 16, 15, 110, false}, {1, 32, 8, 200, false},
        {2, 8, 10, 0, false}, /* no price */
        {2, 16, 0, 0, false}, /* nothing fits */
        {3, 8, 60, 100, false},
    };
    int n = sizeof(points) / sizeof(points[0]);
    RentChoice choice = rent_choose(points, n, &(RentLimits){30, 0});
    CHECK(choice.cheapest == 4 && choice.fastest == -1, "%d, %d: the faster of two at 110",
          choice.cheapest, choice.fastest);
    CHECK(choice.n_within == 5, "%d, that without a price included", choice.n_within);
    choice = rent_choose(points, n, &(RentLimits){0, 110});
    CHECK(choice.fastest == 4 && choice.cheapest == -1 && choice.n_within == 5, "%d, %d, %d",
          choice.cheapest, choice.fastest, choice.n_within);
    choice = rent_choose(points, n, &(RentLimits){12, 150});
    CHECK(choice.cheapest == 5 && choice.fastest == 4 && choice.n_within == 0,
          "no single one is within both: %d, %d, %d", choice.cheapest, choice.fastest,
          choice.n_within);
    choice = rent_choose(points, n, &(RentLimits){1, 1});
    CHECK(choice.cheapest == -1 && choice.fastest == -1 && choice.n_within == 0, "none");
    static const bool FRONT[] = {true, true, false, false, true, true, false, false, true};
    for (int i = 0; i < n; i++) CHECK(points[i].front == FRONT[i], "point %d", i);
}

/* --- what is shown --- */

enum { N_MACHINES = 3, N_ROWS = 3 };
typedef struct Shown {
    Cluster clusters[N_MACHINES];
    ModelCosts costs[N_MACHINES];
    RentMachine machines[N_MACHINES];
    RentReport report;
} Shown;

/* Two machines, the second twice as fast at 2.5 times the price, on 384 to 1536 ranks, of which the
 * last are a quarter slower; nothing fits the first row of the first; a third was not searched. */
static Shown *shown(Arena *arena, const char *name) {
    Shown *of = ARENA_NEW(arena, Shown);
    static const char *const NAMES[] = {NULL, "fast", "odd"};
    for (int i = 0; i < N_MACHINES; i++) {
        of->clusters[i] = fixture_cluster(name);
        of->clusters[i].name = i ? NAMES[i] : name;
        of->clusters[i].price_source = name;
        of->clusters[i].price_per_device_hour *= i == 1 ? 2.5 : 1;
        of->costs[i] = fixture_costs(&of->clusters[i], name);
        of->costs[i].model_flops /= 10; /* below the peak in as short steps */
        of->machines[i].cluster = &of->clusters[i];
        ScaleRow *rows = ARENA_ARRAY(arena, ScaleRow, N_ROWS);
        for (int k = 0; k < N_ROWS; k++) {
            SearchResult *result = ARENA_NEW(arena, SearchResult);
            rows[k].request = (SearchRequest){.n_ranks = 384 << k, .global_batch = 3072};
            rows[k].result = result;
            if (i == 0 && k == 0) continue;
            result->n_found = 1;
            result->found = ARENA_ARRAY(arena, Found, 1);
            result->found[0] = fixture_found(arena, fixture_candidate(8, 6 << k, 8, 2, 1), 1);
            result->found[0].cost.step_us = (i ? 5e7 : 1e8) / (1 << k) * (k == 2 ? 1.25 : 1);
            result->found[0].unusual = k == 2;
        }
        of->machines[i].scale = (ScaleReport){.costs = &of->costs[i],
                                              .options = {.precision = DTYPE_BF16},
                                              .days_tokens = 3e11,
                                              .n_rows = N_ROWS,
                                              .rows = rows};
    }
    of->machines[2].refusal = "no <rate> for it";
    of->machines[2].scale = (ScaleReport){0};
    of->report = (RentReport){.n_machines = N_MACHINES, .machines = of->machines};
    return of;
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

static void check_text(const char *text) {
    int n_columns = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        CHECK(*c >= 32 || *c == '\n', "a control character");
        n_columns = *c == '\n' ? 0 : n_columns + ((*c & 0xc0) != 0x80);
        CHECK(n_columns <= 100, "over 100 columns: %s", text);
    }
}

static void test_shown(Arena *arena, const char *name) {
    check_begin("rent: text, JSON and page");
    Shown *of = shown(arena, name);
    double days = 3e11 / (3072.0 * 2048 / 50) / 86400; /* of the fast one's first row */
    double money = days * 24 * 384 * 3.75;
    of->report.limits = (RentLimits){days * 1.01, money * 1.05};
    CHECK(show_rent_within(&of->report) == 4, "%d within: the first from 768 ranks, the second to",
          show_rent_within(&of->report));
    StrBuf text = strbuf_create(), json = strbuf_create(), page = strbuf_create();
    show_rent_text(&text, &of->report);
    show_rent_json(&json, &of->report);
    show_rent_html(&page, &of->report);
    check_text(text.text);
    CHECK(strstr(text.text, "\nC  768 ") && strstr(text.text, "\nF  768 "), "%s", text.text);
    CHECK(strstr(text.text, "no <rate> for it") && strstr(text.text, "nothing fits"), "%s",
          text.text);
    json_t *root = json_loads(json.text, 0, NULL);
    json_t *cheapest = json_object_get(root, "cheapest");
    CHECK(json_integer_value(json_object_get(cheapest, "ranks")) == 768, "%s", json.text);
    CHECK(near(json_real_value(json_object_get(cheapest, "days")), days), "days");
    CHECK(near(json_real_value(json_object_get(cheapest, "money")), money * 2 / 2.5), "money");
    json_t *machines = json_object_get(root, "machines");
    json_t *fast = json_object_get(json_array_get(machines, 1), "points");
    json_t *point = json_array_get(fast, 0);
    CHECK(json_array_size(machines) == 3 && json_array_size(fast) == 3, "counts");
    CHECK(near(json_real_value(json_object_get(point, "device_hours")), days * 24 * 384), "hours");
    CHECK(json_is_true(json_object_get(point, "within")), "within both");
    CHECK(json_is_false(json_object_get(json_array_get(fast, 2), "within")), "beyond the money");
    CHECK(json_is_string(json_object_get(json_array_get(machines, 2), "trouble")), "trouble");
    json_decref(root);
    CHECK(!strstr(page.text, "<script>alert") && !strstr(page.text, "<rate>"), "not escaped");
    int n_dots = 0, n_limits = 0;
    for (const char *at = page.text; (at = strstr(at, "<circle")); at++) n_dots++;
    for (const char *at = page.text; (at = strstr(at, "class=\"ideal\"")); at++) n_limits++;
    CHECK(n_dots == 5 && n_limits == 2, "%d points, %d limits", n_dots, n_limits);
    strbuf_destroy(&text);
    strbuf_destroy(&json);
    strbuf_destroy(&page);
}

static void test_none(Arena *arena) {
    check_begin("rent: what is out of reach, and what has no price, say so");
    Shown *of = shown(arena, "slow");
    of->report.limits = (RentLimits){0.5, 10};
    CHECK(show_rent_within(&of->report) == 0, "some are within");
    StrBuf out = strbuf_create();
    show_rent_text(&out, &of->report);
    CHECK(strstr(out.text, "none takes at most 0.500 days; the fewest are 8.6 days"), "%s",
          out.text);
    CHECK(strstr(out.text, "none costs at most 10 USD; the least is 27.6 days"), "%s", out.text);
    strbuf_destroy(&out);
    out = strbuf_create();
    for (int i = 0; i < N_MACHINES; i++) {
        of->clusters[i].price_per_device_hour = 0;
        of->clusters[i].currency = NULL;
    }
    of->report.limits = (RentLimits){100, 0};
    CHECK(show_rent_within(&of->report) == 5, "%d within", show_rent_within(&of->report));
    show_rent_text(&out, &of->report);
    show_rent_html(&out, &of->report);
    show_rent_json(&out, &of->report);
    CHECK(strstr(out.text, "not known: no price is stated of what is soon enough"), "%s", out.text);
    CHECK(strstr(out.text, "--price slow=X says one") && !strstr(out.text, "nan"), "%s", out.text);
    CHECK(!strstr(out.text, "<circle"), "a point without money is drawn");
    strbuf_destroy(&out);
}

int main(void) {
    Arena *arena = arena_create();
    test_walk();
    test_climb();
    test_between();
    test_choice();
    test_shown(arena, "slow");
    test_shown(arena, HOSTILE);
    test_none(arena);
    arena_destroy(arena);
    return check_report();
}
