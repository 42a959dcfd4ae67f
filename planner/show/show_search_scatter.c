/* The candidates as a scatter plot: step time against memory, both logarithmic. Positions are
 * percentages, axis labels are HTML beside the drawing, so that it fits any screen. What a point is
 * stands in its <title>; a script shows that for the nearest point, and hides what is switched off.
 */
#include "planner/show/show_search_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VALUES = 24 };

/* Slower and larger ones than these would press what matters into a corner. */
static const double MOST_SLOWDOWN = 8, MOST_MEMORY = 3;

const char CANDIDATES_STYLE[] =
    ".plot{position:relative;margin:4px 8px 40px 64px}"
    ".plot svg{width:100%;height:420px;background:var(--idle);border-radius:6px;overflow:hidden}"
    ".plot .pt{stroke:var(--card);stroke-width:.6}.plot .pt.no{fill-opacity:.25;stroke:none}"
    ".plot .off{display:none}"
    ".plot .grid{stroke:var(--line)}.plot .limit{stroke:var(--ink);stroke-dasharray:5 4;"
    "stroke-width:1.5;opacity:.75}.plot .front{stroke:var(--accent);stroke-width:2;opacity:.8}"
    ".plot .mark{fill:none;stroke:var(--ink);stroke-width:1.8}"
    ".plot .mark.best{stroke-width:2.6}.plot text.m{font-weight:620;fill:var(--ink)}"
    ".plot .ring{fill:none;stroke:var(--ink);stroke-width:2;display:none}"
    ".plot .x,.plot .y{position:absolute;font-size:12px;color:var(--faint);white-space:nowrap;"
    "font-variant-numeric:tabular-nums}"
    ".plot .x{top:424px;transform:translateX(-50%)}.plot .y{right:calc(100% + 8px);"
    "transform:translateY(-50%)}"
    ".plot .xl{position:absolute;top:444px;right:0;font-size:12.5px;color:var(--soft)}"
    ".tip{position:absolute;pointer-events:none;display:none;z-index:2;background:var(--card);"
    "border:1px solid var(--line);border-radius:8px;padding:7px 11px;font-size:12.5px;"
    "line-height:1.45;white-space:pre-line;box-shadow:0 4px 18px rgba(0,0,0,.18);"
    "max-width:270px;font-variant-numeric:tabular-nums}"
    ".chips{display:flex;flex-wrap:wrap;gap:6px;align-items:center;margin:0 0 8px;"
    "font-size:13px;color:var(--soft)}.chips b{font-weight:500;min-width:96px}"
    ".chips button{padding:1px 9px}.chips button i{display:inline-block;width:10px;height:10px;"
    "border-radius:5px;margin-right:6px}.chips button[aria-pressed=false]{opacity:.4}"
    "@media(max-width:600px){.plot{margin-left:54px}.plot svg{height:320px}.plot .x{top:324px}"
    ".plot .xl{top:344px}.chips b{min-width:100%}}";

const char CANDIDATES_SCRIPT[] =
    "(function(){var box=document.getElementById('pl');if(!box)return;"
    "var svg=box.querySelector('svg'),tip=box.querySelector('.tip'),"
    "ring=box.querySelector('.ring'),pts=[].slice.call(box.querySelectorAll('.pt')),"
    "chips=[].slice.call(document.querySelectorAll('.chips button'));"
    "var at=pts.map(function(p){return[parseFloat(p.getAttribute('cx'))/100,"
    "parseFloat(p.getAttribute('cy'))/100]});"
    "function apply(){var off={};chips.forEach(function(c){"
    "if(c.getAttribute('aria-pressed')==='false')off[c.dataset.k]=1});"
    "pts.forEach(function(p){var hide=p.dataset.k.split(' ').some(function(k){return off[k]});"
    "p.classList.toggle('off',hide)});hide()}"
    "chips.forEach(function(c){c.onclick=function(){c.setAttribute('aria-pressed',"
    "c.getAttribute('aria-pressed')==='false'?'true':'false');apply()}});"
    "function hide(){tip.style.display='none';ring.style.display='none'}"
    "function move(e){var r=svg.getBoundingClientRect(),x=e.clientX-r.left,y=e.clientY-r.top,"
    "near=-1,least=400;for(var i=0;i<pts.length;i++){var dx=at[i][0]*r.width-x,"
    "dy=at[i][1]*r.height-y,d=dx*dx+dy*dy;"
    "if(d<=least&&!pts[i].classList.contains('off')){least=d;near=i}}"
    "if(near<0){hide();return}var p=pts[near];"
    "tip.textContent=p.querySelector('title').textContent;tip.style.display='block';"
    "var px=at[near][0]*r.width,py=at[near][1]*r.height,w=tip.offsetWidth,h=tip.offsetHeight;"
    "tip.style.left=Math.max(-50,Math.min(px+14,r.width-w))+'px';"
    "tip.style.top=(py+14+h>r.height?py-h-12:py+14)+'px';"
    "ring.setAttribute('cx',p.getAttribute('cx'));ring.setAttribute('cy',p.getAttribute('cy'));"
    "ring.style.display='block'}"
    "svg.addEventListener('pointermove',move);svg.addEventListener('pointerdown',move);"
    "svg.addEventListener('pointerleave',hide)})();";

double log_axis_at(const LogAxis *axis, double value) {
    if (!(axis->most > axis->least) || value <= 0) return 0.5;
    return log(value / axis->least) / log(axis->most / axis->least);
}

static double next_tick(double tick) {
    double power = pow(10, floor(log10(tick) + 1e-9));
    double digit = floor(tick / power + 0.5);
    return power * (digit < 2 ? 2 : digit < 5 ? 5 : 10);
}

double log_axis_first(const LogAxis *axis) {
    double tick = pow(10, floor(log10(axis->least)));
    while (tick < axis->least * (1 - 1e-9)) tick = next_tick(tick);
    return tick;
}

int log_axis_ticks(const LogAxis *axis, double out[MOST_TICKS]) {
    int n = 0;
    for (double x = log_axis_first(axis); x <= axis->most && n < MOST_TICKS; x = next_tick(x)) {
        out[n++] = x;
    }
    if (n > 1 || !(axis->most > axis->least)) return n;
    LogAxis quarter = {(axis->most - axis->least) / 4, INFINITY};
    double step = log_axis_first(&quarter), first = ceil(axis->least / step - 1e-9);
    for (n = 0; n < MOST_TICKS && (first + n) * step <= axis->most * (1 + 1e-9); n++) {
        out[n] = (first + n) * step;
    }
    return n;
}

typedef struct Plot {
    const SearchFacts *facts;
    LogAxis x, y; /* seconds; GiB */
    int n_left_out;
} Plot;

static const double GIB = 1024.0 * 1024 * 1024;

static double seconds_of(const Found *found) {
    return found->cost.step_us * 1e-6;
}

static double gib_of(const Found *found) {
    return (double)found->cost.memory_bytes / GIB;
}

static bool is_within(const Plot *plot, const Found *found) {
    double x = seconds_of(found), y = gib_of(found);
    return x > 0 && y > 0 && x <= plot->x.most && y <= plot->y.most && x >= plot->x.least &&
           y >= plot->y.least;
}

static void widen(LogAxis *axis, double value, double most) {
    if (!(value > 0) || value > most) return;
    if (value < axis->least) axis->least = value;
    if (value > axis->most) axis->most = value;
}

static Plot plot_create(const SearchFacts *facts) {
    const SearchResult *result = facts->report->result;
    double best = facts->best.step_seconds, limit = facts->limit_bytes / GIB;
    double most_x = MOST_SLOWDOWN * best, most_y = MOST_MEMORY * limit;
    Plot plot = {.facts = facts, .x = {best, best}, .y = {limit, limit}};
    for (int i = 0; i < result->n_samples; i++) {
        if (seconds_of(&result->samples[i]) > most_x || gib_of(&result->samples[i]) > most_y) {
            continue;
        }
        widen(&plot.x, seconds_of(&result->samples[i]), most_x);
        widen(&plot.y, gib_of(&result->samples[i]), most_y);
    }
    for (int i = 0; i < facts->n_others; i++) {
        widen(&plot.x, facts->others[i].step_seconds, INFINITY);
        widen(&plot.y, gib_of(facts->others[i].found), INFINITY);
    }
    for (int i = 0; i < facts->n_pareto; i++) {
        widen(&plot.x, facts->pareto[i].step_seconds, INFINITY);
        widen(&plot.y, gib_of(facts->pareto[i].found), INFINITY);
    }
    widen(&plot.y, gib_of(facts->best.found), INFINITY);
    double margin_x = pow(plot.x.most / plot.x.least, 0.04), margin_y = 1.12;
    if (margin_x < 1.02) margin_x = 1.02;
    plot.x = (LogAxis){plot.x.least / margin_x, plot.x.most * margin_x};
    plot.y = (LogAxis){plot.y.least / margin_y, plot.y.most * margin_y};
    return plot;
}

static double x_percent(const Plot *plot, double seconds) {
    return 100 * log_axis_at(&plot->x, seconds);
}

static double y_percent(const Plot *plot, double gib) {
    return 100 - 100 * log_axis_at(&plot->y, gib);
}

/* Whole seconds stay seconds: 1000 s, not 16.7 min. */
static const char *seconds_text(double seconds, char *text) {
    if (seconds < 1) return unit_us(seconds * 1e6, text);
    snprintf(text, UNIT_TEXT, "%.4g s", seconds);
    return text;
}

static void put_axes(StrBuf *out, const Plot *plot, bool labels) {
    double ticks[MOST_TICKS];
    int n = log_axis_ticks(&plot->x, ticks);
    for (int i = 0; i < n; i++) {
        double at = x_percent(plot, ticks[i]);
        char text[UNIT_TEXT];
        if (labels) {
            strbuf_printf(out, "<span class=\"x\" style=\"left:%.2f%%\">%s</span>", at,
                          seconds_text(ticks[i], text));
        } else {
            strbuf_printf(
                out, "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"100%%\"/>", at,
                at);
        }
    }
    n = log_axis_ticks(&plot->y, ticks);
    for (int i = 0; i < n; i++) {
        double at = y_percent(plot, ticks[i]);
        if (labels) {
            strbuf_printf(out, "<span class=\"y\" style=\"top:%.2f%%\">%.3g GiB</span>", at,
                          ticks[i]);
        } else {
            strbuf_printf(
                out, "<line class=\"grid\" y1=\"%.2f%%\" y2=\"%.2f%%\" x1=\"0\" x2=\"100%%\"/>", at,
                at);
        }
    }
}

static int compare_ints(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

typedef int AxisOf(const Candidate *candidate);
static int t_of(const Candidate *candidate) {
    return candidate->t;
}
static int p_of(const Candidate *candidate) {
    return candidate->p;
}
static int recompute_of(const Candidate *candidate) {
    return (int)candidate->recompute;
}

/* The distinct values of the drawn samples, ascending; at most MOST_VALUES. */
static int distinct(const Plot *plot, AxisOf *of, int *out) {
    const SearchResult *result = plot->facts->report->result;
    int n = 0;
    for (int i = 0; i < result->n_samples && n < MOST_VALUES; i++) {
        if (!is_within(plot, &result->samples[i])) continue;
        int value = of(&result->samples[i].candidate), k = 0;
        while (k < n && out[k] != value) k++;
        if (k == n) out[n++] = value;
    }
    qsort(out, (size_t)n, sizeof(int), compare_ints);
    return n;
}

static int position(const int *values, int n, int value) {
    for (int i = 0; i < n; i++) {
        if (values[i] == value) return i;
    }
    return 0;
}

typedef struct Palette {
    int n_t, t[MOST_VALUES], n_p, p[MOST_VALUES];
} Palette;

/* Tensor degree by hue, pipeline degree by lightness; and so the data degree, given the ranks. */
static void put_colour(StrBuf *out, const Palette *palette, int t, int p) {
    double hue =
        262 - 300.0 * position(palette->t, palette->n_t, t) / (palette->n_t > 5 ? palette->n_t : 5);
    double step = palette->n_p > 1 ? 1.0 / (palette->n_p - 1) : 0;
    double light = 0.74 - 0.30 * step * position(palette->p, palette->n_p, p);
    strbuf_printf(out, "oklch(%.2f .14 %.0f)", light, hue < 0 ? hue + 360 : hue);
}

static void put_points(StrBuf *out, Plot *plot, const Palette *palette) {
    const SearchResult *result = plot->facts->report->result;
    for (int i = result->n_samples - 1; i >= 0; i--) {
        const Found *found = &result->samples[i];
        const Candidate *of = &found->candidate;
        char layout[LAYOUT_TEXT], time[UNIT_TEXT], memory[UNIT_TEXT];
        if (!is_within(plot, found)) {
            plot->n_left_out++;
            continue;
        }
        bool fits = (double)found->cost.memory_bytes <= plot->facts->limit_bytes;
        strbuf_printf(out,
                      "<circle class=\"pt%s\" data-k=\"t%d p%d r%d\" cx=\"%.2f%%\" "
                      "cy=\"%.2f%%\" r=\"3.4\" style=\"fill:",
                      fits ? "" : " no", of->t, of->p, (int)of->recompute,
                      x_percent(plot, seconds_of(found)), y_percent(plot, gib_of(found)));
        put_colour(out, palette, of->t, of->p);
        strbuf_printf(out, "\"><title>%s\n%s a step, %s%s</title></circle>",
                      layout_text(of, layout), unit_us(found->cost.step_us, time),
                      unit_bytes((double)found->cost.memory_bytes, memory),
                      fits ? "" : ": does not fit");
    }
    strbuf_put(out, "\n");
}

/* No other layout has less of both: a staircase. */
static void put_front(StrBuf *out, const Plot *plot) {
    const SearchFacts *facts = plot->facts;
    for (int i = 1; i < facts->n_pareto; i++) {
        double x0 = x_percent(plot, facts->pareto[i - 1].step_seconds);
        double y0 = y_percent(plot, gib_of(facts->pareto[i - 1].found));
        double x1 = x_percent(plot, facts->pareto[i].step_seconds);
        double y1 = y_percent(plot, gib_of(facts->pareto[i].found));
        strbuf_printf(out,
                      "<line class=\"front\" x1=\"%.2f%%\" y1=\"%.2f%%\" x2=\"%.2f%%\" "
                      "y2=\"%.2f%%\"/><line class=\"front\" x1=\"%.2f%%\" y1=\"%.2f%%\" "
                      "x2=\"%.2f%%\" y2=\"%.2f%%\"/>",
                      x0, y0, x1, y0, x1, y0, x1, y1);
    }
}

/* Where a label may be put, seen from its point. */
static const struct {
    int dx, dy;
} LABEL_PLACES[] = {{8, -5},   {8, 15},  {-16, -5}, {-16, 15}, {10, 5},    {-18, 5},
                    {-4, -11}, {-4, 21}, {14, -14}, {14, 22},  {-22, -14}, {-22, 22}};

typedef struct Label {
    double x, y; /* of its left end, in the pixels of a usual drawing */
} Label;

static Label label_at(double x_percent, double y_percent, int dx, int dy) {
    const double width = 1050, height = 420;
    return (Label){x_percent / 100 * width + dx, y_percent / 100 * height + dy};
}

static Label point_at(const Plot *plot, const LayoutFacts *of) {
    return label_at(x_percent(plot, of->step_seconds), y_percent(plot, gib_of(of->found)), 0, 0);
}

/* Of labels, and of the points' circles. */
static bool is_free(const Label *label, const Label *placed, int n, const Plot *plot) {
    const SearchFacts *facts = plot->facts;
    for (int i = 0; i < n; i++) {
        if (fabs(label->x - placed[i].x) < 11 && fabs(label->y - placed[i].y) < 14) return false;
    }
    for (int i = -1; i < facts->n_others; i++) {
        Label point = point_at(plot, i < 0 ? &facts->best : &facts->others[i]);
        if (fabs(label->x + 4 - point.x) < 11 && fabs(label->y - 4 - point.y) < 9) return false;
    }
    return true;
}

static void put_mark(StrBuf *out, double x, double y, bool best) {
    strbuf_printf(out, "<circle class=\"mark%s\" cx=\"%.2f%%\" cy=\"%.2f%%\" r=\"%d\"/>",
                  best ? " best" : "", x, y, best ? 8 : 6);
}

static void put_label(StrBuf *out, double x, double y, int dx, int dy, const char *text) {
    strbuf_printf(out, "<text class=\"m\" x=\"%.2f%%\" y=\"%.2f%%\" dx=\"%d\" dy=\"%d\">%s</text>",
                  x, y, dx, dy, text);
}

/* The best and the runners-up, with their numbers beside one another where points are close. */
static void put_marks(StrBuf *out, const Plot *plot) {
    enum { N_PLACES = sizeof(LABEL_PLACES) / sizeof(*LABEL_PLACES), BEST_DX = -30, BEST_DY = 16 };
    const SearchFacts *facts = plot->facts;
    Label *placed = ARENA_ARRAY(facts->arena, Label, facts->n_others + 4);
    double best_x = x_percent(plot, facts->best.step_seconds);
    double best_y = y_percent(plot, gib_of(facts->best.found));
    int n = 0;
    for (int i = 0; i < 3; i++) { /* "best" is as wide as three numbers */
        placed[n++] = label_at(best_x, best_y, BEST_DX + 11 * i, BEST_DY);
    }
    for (int i = 0; i < facts->n_others; i++) {
        double x = x_percent(plot, facts->others[i].step_seconds);
        double y = y_percent(plot, gib_of(facts->others[i].found));
        int place = 0;
        Label label = {0};
        char text[16];
        for (; place < N_PLACES; place++) {
            label = label_at(x, y, LABEL_PLACES[place].dx, LABEL_PLACES[place].dy);
            if (is_free(&label, placed, n, plot)) break;
        }
        if (place == N_PLACES) place = 0; /* all are taken: over another */
        placed[n++] = label;
        snprintf(text, sizeof(text), "%d", i + 2);
        put_mark(out, x, y, false);
        put_label(out, x, y, LABEL_PLACES[place].dx, LABEL_PLACES[place].dy, text);
    }
    put_mark(out, best_x, best_y, true);
    put_label(out, best_x, best_y, BEST_DX, BEST_DY, "best");
}

/* Buttons that hide the points of a value. */
static void put_chips(StrBuf *out, const char *label, char key, const int *values, int n,
                      const Palette *palette) {
    if (n < 2) return;
    strbuf_printf(out, "<div class=\"chips\"><b>%s</b>", label);
    for (int i = 0; i < n; i++) {
        strbuf_printf(out, "<button aria-pressed=\"true\" data-k=\"%c%d\">", key, values[i]);
        if (key != 'r') {
            strbuf_put(out, "<i style=\"background:");
            put_colour(out, palette, key == 't' ? values[i] : palette->t[0],
                       key == 'p' ? values[i] : palette->p[palette->n_p / 2]);
            strbuf_put(out, "\"></i>");
        }
        if (key == 'r') {
            strbuf_printf(out, "%s</button>", recompute_mode_name((Recompute)values[i]));
        } else {
            strbuf_printf(out, "%c=%d</button>", key, values[i]);
        }
    }
    strbuf_put(out, "</div>\n");
}

static void put_keys(StrBuf *out, const Plot *plot, const Palette *palette) {
    int recomputes[MOST_VALUES], n_recomputes = distinct(plot, recompute_of, recomputes);
    put_chips(out, "Tensor: hue", 't', palette->t, palette->n_t, palette);
    put_chips(out, "Pipeline: shade", 'p', palette->p, palette->n_p, palette);
    put_chips(out, "Recomputation", 'r', recomputes, n_recomputes, palette);
}

void html_put_candidates(StrBuf *out, const SearchFacts *facts) {
    const SearchResult *result = facts->report->result;
    Plot plot = plot_create(facts);
    Palette palette = {0};
    palette.n_t = distinct(&plot, t_of, palette.t);
    palette.n_p = distinct(&plot, p_of, palette.p);
    html_open_section(out, "candidates", "Candidates",
                      "Each point is a layout: how long its step takes, and what its fullest rank "
                      "holds. Both axes are logarithmic. Point at one to see what it is; switch "
                      "values off to see the rest.");
    put_keys(out, &plot, &palette);
    strbuf_put(out, "<div class=\"plot\" id=\"pl\"><svg role=\"img\" aria-label=\"step time "
                    "against memory\">");
    put_axes(out, &plot, false);
    put_points(out, &plot, &palette);
    double limit = y_percent(&plot, facts->limit_bytes / GIB);
    strbuf_printf(out, "<line class=\"limit\" x1=\"0\" x2=\"100%%\" y1=\"%.2f%%\" y2=\"%.2f%%\"/>",
                  limit, limit);
    put_front(out, &plot);
    put_marks(out, &plot);
    strbuf_put(out, "<circle class=\"ring\" r=\"6\"/></svg>");
    put_axes(out, &plot, true);
    strbuf_put(out, "<span class=\"xl\">time of a step →</span><div class=\"tip\"></div></div>\n");
    strbuf_put(out, "<p class=\"note\">Dashed: what a device can hold. Line: nothing simulated has "
                    "less of both. Numbers: runners-up. Marks and the line are simulated; other "
                    "points are priced by arithmetic, and may lie a little to the left or right.");
    char total[UNIT_TEXT];
    strbuf_printf(out, " %d of %s layouts are drawn", result->n_samples - plot.n_left_out,
                  unit_count((double)result->n_candidates, total));
    if (plot.n_left_out > 0) {
        strbuf_printf(out, "; %d of the sample lie beyond the axes", plot.n_left_out);
    }
    strbuf_put(out, ".</p>");
    html_close_section(out);
}
