#include "planner/show/show_goodput.h"

#include "planner/show/show_facts.h"
#include "planner/show/show_lines.h"

#include <inttypes.h>

bool goodput_is_counted(const RunGoodput *of) {
    return of->state == GOODPUT_KNOWN || of->state == GOODPUT_HOPELESS;
}

const char *goodput_percent(double share, char *text) {
    snprintf(text, UNIT_TEXT, share < 0.995 ? "%.1f" : "%.2f", 100 * share);
    return text;
}

static const char *seconds(double seconds, char *text) {
    return unit_us(seconds * 1e6, text);
}

static void put_devices(StrBuf *out, int n_ranks) {
    strbuf_printf(out, "%d device%s", n_ranks, n_ranks == 1 ? "" : "s");
}

static void put_known(StrBuf *out, const RunGoodput *of, int n_ranks) {
    const Goodput *goodput = &of->goodput;
    char a[UNIT_TEXT], b[UNIT_TEXT];
    bool async = of->input.write_seconds > 0;
    strbuf_printf(out, "%s %%: a failure every %s on ", goodput_percent(of->share, a),
                  seconds(of->input.mtbf_seconds, b));
    put_devices(out, n_ranks);
    if (of->input.n_steps > 0 && (double)goodput->every >= of->input.n_steps) {
        strbuf_printf(out, ", a checkpoint at the end alone (%s",
                      seconds(of->input.pause_seconds, a));
    } else {
        strbuf_printf(out, ", a checkpoint every %s (--checkpoint-every %" PRId64 "%s, %s",
                      seconds(goodput->interval_seconds, a), goodput->every,
                      async ? " --checkpoint-async" : "", seconds(of->input.pause_seconds, b));
        strbuf_put(out, " each");
    }
    if (async) {
        strbuf_printf(out, " and %s until it is written", seconds(of->input.write_seconds, a));
    }
    strbuf_printf(out, "), %s to restart", seconds(of->input.restart_seconds, a));
}

static void put_hopeless(StrBuf *out, const RunGoodput *of, int n_ranks) {
    char a[UNIT_TEXT], b[UNIT_TEXT], c[UNIT_TEXT], d[UNIT_TEXT];
    strbuf_printf(out, "no progress is expected: a failure every %s on ",
                  seconds(of->input.mtbf_seconds, a));
    put_devices(out, n_ranks);
    strbuf_printf(out,
                  ", and a restart (%s), a step (%s) and a checkpoint (%s) together take longer",
                  seconds(of->input.restart_seconds, b), seconds(of->input.step_seconds, c),
                  seconds(of->input.pause_seconds + of->input.write_seconds, d));
}

void goodput_put(StrBuf *out, const RunGoodput *of, const Cluster *cluster, int n_ranks) {
    switch (of->state) {
    case GOODPUT_UNASKED: return;
    case GOODPUT_KNOWN: put_known(out, of, n_ranks); return;
    case GOODPUT_HOPELESS: put_hopeless(out, of, n_ranks); return;
    case GOODPUT_NONE: strbuf_put(out, "no failures are assumed: cluster "); break;
    case GOODPUT_NO_STORAGE:
    case GOODPUT_NO_COPY: strbuf_put(out, "not known: cluster "); break;
    }
    lines_put_name(out, cluster->name, 20);
    strbuf_put(out, of->state == GOODPUT_NONE ? " states none; --mtbf HOURS counts them"
                    : of->state == GOODPUT_NO_STORAGE
                        ? " states no rate of its storage (storage.bytes_per_second); give "
                          "--checkpoint-seconds"
                        : " does not say how fast the way to its nodes' memory is "
                          "(node.host_bytes_per_second); leave out --checkpoint-async");
}

void json_put_goodput(json_t *json, const LayoutFacts *of) {
    static const char *const STATES[] = {
        [GOODPUT_UNASKED] = "unasked",    [GOODPUT_NONE] = "none",
        [GOODPUT_NO_STORAGE] = "unknown", [GOODPUT_NO_COPY] = "unknown",
        [GOODPUT_HOPELESS] = "hopeless",  [GOODPUT_KNOWN] = "known"};
    const RunGoodput *run = &of->goodput;
    if (of->days <= 0) {
        json_object_set_new(json, "goodput", json_null());
        return;
    }
    json_t *out = json_put_new(json, "goodput", json_object());
    json_put_name(out, "state", STATES[run->state]);
    json_put_int(out, "checkpoint_bytes", (int64_t)run->checkpoint_bytes);
    if (!goodput_is_counted(run)) {
        json_object_set_new(out, "share", json_null());
        return;
    }
    json_put_real(out, "share", run->share);
    json_put_known(out, "days", of->real_days);
    json_put_known(out, "price", of->real_price);
    json_put_real(out, "failure_seconds", run->input.mtbf_seconds);
    json_put_real(out, "restart_seconds", run->input.restart_seconds);
    json_put_real(out, "checkpoint_seconds", run->input.pause_seconds);
    json_put_real(out, "write_seconds", run->input.write_seconds);
    if (run->state == GOODPUT_HOPELESS) return;
    json_put_int(out, "checkpoint_every", run->goodput.every);
    json_put_real(out, "checkpoint_share", run->goodput.checkpoint_share);
    json_put_real(out, "lost_share", run->goodput.lost_share);
    json_put_real(out, "restart_share", run->goodput.restart_share);
}
