/* Which machines to rent, as text and as JSON:
 *
 *   format     1;  model, software  names;  tokens;  global_batch
 *   within_days, within_money (null: not asked for), currency (null: no price is known)
 *   machines[] cluster, device, devices_per_node, price_per_device_hour (null), price_source;
 *              trouble (why it was not searched, or null);
 *              points[]: ranks, fits; without fit trouble; else the keys of a point of
 *              `perilune scale --json`, and total_days (with failures; null: no end), device_hours,
 *              money (null), within (all limits), front (nothing searched has fewer days and costs
 *              less)
 *   cheapest   {cluster, ranks, days, device_hours, money} of those within the days, or null
 *   fastest    the same of those within the money
 *   search_seconds
 */
#include "planner/show/rent_facts.h"
#include "planner/show/show_facts.h"
#include "planner/show/show_goodput.h"
#include "planner/show/show_lines.h"

#include <inttypes.h>
#include <string.h>

/* C, F, B of both; small letters for a machine's own choice; + of the front. */
static char mark_of(const RentFacts *facts, int index) {
    static const char MARKS[] = {' ', 'C', 'F', 'B'}, OWN[] = {' ', 'c', 'f', 'b'};
    const RentPoint *point = &facts->points[index];
    const RentChoice *all = &facts->choice, *own = &facts->own[point->machine];
    int among = index - facts->first_point[point->machine];
    int of_all = (index == all->cheapest) + 2 * (index == all->fastest);
    int of_own = (among == own->cheapest) + 2 * (among == own->fastest);
    return of_all ? MARKS[of_all] : of_own ? OWN[of_own] : point->front ? '+' : ' ';
}

static void put_point(StrBuf *out, const RentFacts *facts, int index) {
    const RentPoint *point = &facts->points[index];
    const ScalePoint *scaled = facts->scaled[index];
    char ranks[16], a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT];
    snprintf(ranks, sizeof(ranks), "%c%5d", mark_of(facts, index), point->n_ranks);
    if (!scaled->found) {
        lines_put_wrapped(out, ranks, 7, scaled->trouble);
        return;
    }
    strbuf_printf(out, "%s ", ranks);
    layout_put_columns(out, &scaled->found->candidate, unit_us(scaled->found->cost.step_us, a));
    const char *days = "never", *hours = "-", *money = "-";
    if (point->days > 0) {
        days = days_text(point->days, a);
        hours = unit_count(rent_device_hours(point), b);
    }
    if (point->money > 0) money = unit_count(point->money, c);
    strbuf_printf(out, " %5s %6s %4.1f %5.1f %6s %6s\n", days,
                  unit_count(scaled->facts.tokens_per_second, d), 100 * scaled->facts.mfu,
                  (double)scaled->found->cost.memory_bytes / (1 << 30), hours, money);
}

static void put_head(StrBuf *out, const RentFacts *facts) {
    char a[UNIT_TEXT], b[UNIT_TEXT];
    StrBuf head = strbuf_create();
    lines_put_name(&head, facts->costs->model, 40);
    strbuf_printf(&head,
                  ": %s parameters, %s tokens; batches of %d sequences of %" PRId64
                  " tokens; software: ",
                  unit_count((double)facts->costs->n_parameters, a), unit_count(facts->tokens, b),
                  facts->one->global_batch, facts->costs->seq);
    lines_put_name(&head, facts->costs->cluster->software.name, 24);
    lines_put_wrapped(out, "", 0, head.text);
    strbuf_destroy(&head);
    strbuf_printf(out, "\n%6s ", "ranks");
    layout_put_heads(out);
    strbuf_printf(out, " %5s %6s %4s %5s %6s %6s\n", "days", "tok./s", "MFU", "GiB", "hours",
                  "money");
}

static void put_machines(StrBuf *out, const RentFacts *facts) {
    int index = 0;
    for (int i = 0; i < facts->report->n_machines; i++) {
        const RentMachine *machine = &facts->report->machines[i];
        StrBuf label = strbuf_create();
        lines_put_name(&label, machine->cluster->name, 20);
        lines_put_wrapped(out, label.text, (int)(label.length < 11 ? 11 : label.length + 1),
                          rent_offer(facts->arena, machine));
        strbuf_destroy(&label);
        if (machine->refusal) lines_put_wrapped(out, "", 7, machine->refusal);
        for (; index < facts->n_points && facts->points[index].machine == i; index++) {
            put_point(out, facts, index);
        }
    }
}

static void put_choice(StrBuf *out, const RentFacts *facts, const char *label, int index,
                       const char *none) {
    if (index < 0) {
        if (none) lines_put_wrapped(out, label, 11, none);
        return;
    }
    const RentPoint *point = &facts->points[index];
    const char *limit =
        strcmp(label, "cheapest") == 0 ? rent_days_limit(facts) : rent_money_limit(facts);
    lines_put_wrapped(out, label, 11,
                      arena_printf(facts->arena, "%s: %s (at %s)", rent_place(facts, point),
                                   rent_bill(facts, point, true), limit));
}

/* From the fastest to the cheapest: by days, as the points of a front have both orders. */
static void put_front(StrBuf *out, const RentFacts *facts) {
    StrBuf line = strbuf_create();
    double after = 0;
    for (int n = 0; n < facts->n_points; n++) {
        const RentPoint *next = NULL;
        for (int i = 0; i < facts->n_points; i++) {
            const RentPoint *point = &facts->points[i];
            if (!point->front || point->days <= after) continue;
            if (!next || point->days < next->days) next = point;
        }
        if (!next) break;
        strbuf_printf(&line, "%s%s: %s", line.length ? "; " : "", rent_place(facts, next),
                      rent_bill(facts, next, false));
        after = next->days;
    }
    if (line.length) lines_put_wrapped(out, "front", 11, line.text);
    strbuf_destroy(&line);
}

/* Of each machine's largest number of ranks, which failures are worst for. */
static void put_failures(StrBuf *out, const RentFacts *facts) {
    for (int i = 0; i < facts->report->n_machines; i++) {
        const ScalePoint *last = NULL;
        for (int k = 0; k < facts->n_points; k++) {
            if (facts->points[k].machine == i && facts->scaled[k]->found) last = facts->scaled[k];
        }
        if (!last) continue;
        const Cluster *cluster = facts->report->machines[i].cluster;
        StrBuf line = strbuf_create();
        goodput_put(&line, &last->facts.goodput, cluster, last->row->request.n_ranks);
        if (line.length) {
            StrBuf text = strbuf_create();
            lines_put_name(&text, cluster->name, 20);
            strbuf_printf(&text, ": %s", line.text);
            lines_put_wrapped(out, "goodput", 11, text.text);
            strbuf_destroy(&text);
        }
        strbuf_destroy(&line);
    }
}

static void put_unusual(StrBuf *out, const RentFacts *facts) {
    StrBuf line = strbuf_create();
    int last = -1;
    for (int i = 0; i < facts->n_points; i++) {
        const RentPoint *point = &facts->points[i];
        if (!facts->scaled[i]->found || !facts->scaled[i]->found->unusual) continue;
        if (point->machine == last) {
            strbuf_printf(&line, ", %d", point->n_ranks);
        } else {
            strbuf_put(&line, line.length ? "; " : "");
            lines_put_name(&line, facts->report->machines[point->machine].cluster->name, 20);
            strbuf_printf(&line, " on %d", point->n_ranks);
        }
        last = point->machine;
    }
    if (line.length) {
        lines_put_wrapped(out, "unusual", 11,
                          arena_printf(facts->arena,
                                       "beyond the range in which predictions were compared with "
                                       "measurements: %s",
                                       line.text));
    }
    strbuf_destroy(&line);
}

static void put_chosen_parts(StrBuf *out, const RentFacts *facts) {
    const int CHOSEN[] = {facts->choice.cheapest, facts->choice.fastest};
    for (int i = 0; i < 2; i++) {
        if (CHOSEN[i] < 0 || (i == 1 && CHOSEN[1] == CHOSEN[0])) continue;
        scale_put_parts(out, facts->arena, rent_place(facts, &facts->points[CHOSEN[i]]),
                        facts->scaled[CHOSEN[i]]);
    }
}

void show_rent_text(StrBuf *out, const RentReport *report) {
    Arena *arena = arena_create();
    const RentFacts *facts = rent_facts_create(arena, report);
    char text[UNIT_TEXT];
    put_head(out, facts);
    put_machines(out, facts);
    StrBuf notes = strbuf_create();
    strbuf_printf(&notes, "days: for %s tokens, with failures; hours: of devices; ",
                  unit_count(facts->tokens, text));
    if (facts->currency) {
        strbuf_put(&notes, "money: ");
        lines_put_name(&notes, facts->currency, 8);
        strbuf_put(&notes, "; C: the cheapest, F: the fastest, B: both; c, f, b: of one cluster; "
                           "+: nothing searched has fewer days and costs less.");
    } else {
        strbuf_put(&notes, "money: no price is known.");
    }
    strbuf_put(out, "\n");
    lines_put_wrapped(out, "", 0, notes.text);
    strbuf_destroy(&notes);
    put_choice(out, facts, "cheapest", facts->choice.cheapest, rent_no_cheapest(facts));
    put_choice(out, facts, "fastest", facts->choice.fastest, rent_no_fastest(facts));
    put_front(out, facts);
    put_chosen_parts(out, facts);
    put_failures(out, facts);
    put_unusual(out, facts);
    arena_destroy(arena);
}

static void put_chosen(json_t *root, const char *key, const RentFacts *facts, int index) {
    if (index < 0) {
        json_object_set_new(root, key, json_null());
        return;
    }
    const RentPoint *point = &facts->points[index];
    json_t *json = json_put_new(root, key, json_object());
    json_put_name(json, "cluster", facts->report->machines[point->machine].cluster->name);
    json_put_int(json, "ranks", point->n_ranks);
    json_put_real(json, "days", point->days);
    json_put_real(json, "device_hours", rent_device_hours(point));
    json_put_known(json, "money", point->money);
}

static void put_json_point(json_t *points, const RentFacts *facts, int index) {
    const RentPoint *point = &facts->points[index];
    const RentLimits *limits = &facts->report->limits;
    const ScalePoint *scaled = facts->scaled[index];
    json_t *json = json_object();
    json_array_append_new(points, json);
    json_put_int(json, "ranks", point->n_ranks);
    json_object_set_new(json, "fits", json_boolean(scaled->found));
    if (!scaled->found) {
        json_put_name(json, "trouble", scaled->trouble);
        return;
    }
    scale_point_json(json, scaled);
    json_put_known(json, "total_days", point->days);
    json_put_known(json, "device_hours", rent_device_hours(point));
    json_put_known(json, "money", point->money);
    RentPoint copy = *point;
    json_object_set_new(json, "within", json_boolean(rent_choose(&copy, 1, limits).n_within));
    json_object_set_new(json, "front", json_boolean(point->front));
}

void show_rent_json(StrBuf *out, const RentReport *report) {
    Arena *arena = arena_create();
    const RentFacts *facts = rent_facts_create(arena, report);
    json_t *root = json_object();
    json_put_int(root, "format", 1);
    json_put_name(root, "model", facts->costs->model);
    json_put_name(root, "software", facts->costs->cluster->software.name);
    json_put_real(root, "tokens", facts->tokens);
    json_put_int(root, "global_batch", facts->one->global_batch);
    json_put_known(root, "within_days", report->limits.days);
    json_put_known(root, "within_money", report->limits.money);
    json_object_set_new(root, "currency",
                        facts->currency ? json_name(facts->currency) : json_null());
    json_t *machines = json_put_new(root, "machines", json_array());
    int index = 0;
    for (int i = 0; i < report->n_machines; i++) {
        const RentMachine *machine = &report->machines[i];
        const Cluster *cluster = machine->cluster;
        json_t *json = json_object();
        json_array_append_new(machines, json);
        json_put_name(json, "cluster", cluster->name);
        json_put_name(json, "device", cluster->device.name);
        json_put_int(json, "devices_per_node", cluster->node.n_devices);
        json_put_known(json, "price_per_device_hour", cluster->price_per_device_hour);
        json_object_set_new(json, "price_source",
                            cluster->price_source ? json_name(cluster->price_source) : json_null());
        json_object_set_new(json, "trouble",
                            machine->refusal ? json_name(machine->refusal) : json_null());
        json_t *points = json_put_new(json, "points", json_array());
        for (; index < facts->n_points && facts->points[index].machine == i; index++) {
            put_json_point(points, facts, index);
        }
    }
    put_chosen(root, "cheapest", facts, facts->choice.cheapest);
    put_chosen(root, "fastest", facts, facts->choice.fastest);
    json_put_real(root, "search_seconds", report->seconds);
    json_put_document(out, root);
    arena_destroy(arena);
}
