/* The page of predicted beside measured times, and the scatter as a drawing of its own. */
#include "frontend/validate/validate.h"
#include "planner/show/show_html.h"

#include <inttypes.h>
#include <math.h>

/* Of a drawing, in its own units: the area within its axes is square. */
enum { LEFT = 58, TOP = 12, SIZE = 360, BOTTOM = 44, RIGHT = 24 };
enum { N_COLOURS = 6, HISTOGRAM_BINS = 40, HISTOGRAM_PERCENT = 40, HISTOGRAM_HEIGHT = 130 };

static const char COLOURS[] =
    ".f0{fill:var(--c-parameter);background:var(--c-parameter)}"
    ".f1{fill:var(--c-activation);background:var(--c-activation)}"
    ".f2{fill:var(--c-gradient);background:var(--c-gradient)}"
    ".f3{fill:var(--c-message);background:var(--c-message)}"
    ".f4{fill:var(--c-optimizer);background:var(--c-optimizer)}"
    ".f5{fill:var(--c-update);background:var(--c-update)}"
    ".dot{fill-opacity:.62;stroke:var(--card);stroke-width:.6}.dot:hover{fill-opacity:1;"
    "stroke:var(--ink)}.gl{stroke:var(--grid)}.eq{stroke:var(--soft);stroke-width:1.2}"
    ".band{fill:var(--c-gradient);opacity:.16}.frame{fill:none;stroke:var(--line)}"
    ".scatter{width:100%;height:auto}.hist{width:100%;height:auto}"
    ".maps figure svg.scatter,.maps figure svg.hist{height:auto;background:none}"
    "th button{border:0;padding:0;background:none;color:inherit;font-size:12.5px}"
    ".rows{overflow-x:auto;max-height:640px;overflow-y:auto}.rows th{position:sticky;top:0;"
    "background:var(--card)}td.n{white-space:nowrap}";

/* The drawing's own colours, when no page gives them. */
static const char SVG_STYLE[] =
    "svg{--card:#fff;--ink:#1b1f24;--soft:#5d6670;--line:#e3e5e8;--grid:#eceef0;--idle:#f0f1f3;"
    "--c-parameter:#3d78c2;--c-gradient:#2f9e94;--c-optimizer:#7d68bd;--c-message:#cf5f8c;"
    "--c-activation:#e28f3f;--c-update:#5b8f4e;--c-send:#7b848e;background:var(--card)}"
    "@media(prefers-color-scheme:dark){svg{--card:#171b20;--ink:#e7eaee;--soft:#a3acb6;"
    "--line:#2a3038;--grid:#22272e;--idle:#1e232a}}"
    "text{font:11px system-ui,sans-serif;fill:var(--soft)}";

static const char SORT_SCRIPT[] =
    "<script>(function(){var t=document.getElementById('runs');if(!t)return;var b=t.tBodies[0];"
    "t.querySelectorAll('th button').forEach(function(h,i){var up=false;h.onclick=function(){"
    "up=!up;var r=Array.from(b.rows);function v(x){var c=x.cells[i],d=c.dataset.v;"
    "return d===undefined?c.textContent:+d}r.sort(function(x,y){var a=v(x),c=v(y);"
    "return(a<c?-1:a>c?1:0)*(up?1:-1)});r.forEach(function(x){b.appendChild(x)});"
    "t.querySelectorAll('th').forEach(function(x){x.removeAttribute('aria-sort')});"
    "h.parentNode.setAttribute('aria-sort',up?'ascending':'descending')}})})();</script>\n";

static bool is_drawn(const Run *run, const char *family) {
    return !run->skipped && (!family || run_in_family(run, family));
}

/* Families in order, without their parts. */
static int family_index(const Validation *result, const Run *run) {
    int index = 0;
    for (int i = 0; i < result->n_stats; i++) {
        if (result->stats[i].is_part) continue;
        if (run_in_family(run, result->stats[i].name)) return index % N_COLOURS;
        index++;
    }
    return 0;
}

/* Both axes alike, whole decades would waste most of small families: some air around the data. */
typedef struct LogScale {
    double least, most; /* decimal logarithms of seconds */
} LogScale;

static LogScale fit_scale(const Validation *result, const char *family) {
    LogScale scale = {INFINITY, -INFINITY};
    for (int r = 0; r < result->table->n_runs; r++) {
        const Run *run = &result->table->runs[r];
        if (!is_drawn(run, family)) continue;
        double x = log10(run->measured_seconds), y = log10(run->predicted_seconds);
        scale.least = fmin(scale.least, fmin(x, y));
        scale.most = fmax(scale.most, fmax(x, y));
    }
    double air = fmax(0.05, 0.06 * (scale.most - scale.least));
    return (LogScale){scale.least - air, scale.most + air};
}

static double place(const LogScale *scale, double log_seconds) {
    double at = (log_seconds - scale->least) / (scale->most - scale->least);
    return SIZE * fmin(1, fmax(0, at));
}

static void put_tick(StrBuf *out, const LogScale *scale, double seconds) {
    double at = place(scale, log10(seconds));
    char text[32];
    snprintf(text, sizeof(text), "%.4g", seconds);
    strbuf_printf(out,
                  "<line class=\"gl\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>"
                  "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>"
                  "<line class=\"gl\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>"
                  "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
                  LEFT + at, LEFT + at, TOP, TOP + SIZE, LEFT + at, TOP + SIZE + 16, text, LEFT,
                  LEFT + SIZE, TOP + SIZE - at, TOP + SIZE - at, LEFT - 7, TOP + SIZE - at + 4,
                  text);
}

/* 1, 2, 5 of every decade, or 1 alone where there are many. */
static void put_axes(StrBuf *out, const LogScale *scale) {
    static const double steps[] = {1, 2, 5};
    int n_steps = scale->most - scale->least < 2.5 ? 3 : 1;
    for (int decade = (int)floor(scale->least); decade <= (int)floor(scale->most); decade++) {
        for (int i = 0; i < n_steps; i++) {
            double seconds = steps[i] * pow(10, decade), at = log10(seconds);
            if (at >= scale->least && at <= scale->most) put_tick(out, scale, seconds);
        }
    }
    strbuf_printf(out,
                  "<rect class=\"frame\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>"
                  "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">measured, seconds a step</text>"
                  "<text transform=\"translate(13 %d) rotate(-90)\" text-anchor=\"middle\">"
                  "predicted</text>\n",
                  LEFT, TOP, SIZE, SIZE, LEFT + SIZE / 2, TOP + SIZE + 36, TOP + SIZE / 2);
}

/* Where predicted equals measured, and ten per cent around it. */
static void put_band(StrBuf *out, const LogScale *scale) {
    const double corners[][2] = {{scale->least, log10(1.1)},
                                 {scale->most, log10(1.1)},
                                 {scale->most, log10(0.9)},
                                 {scale->least, log10(0.9)}};
    strbuf_put(out, "<polygon class=\"band\" points=\"");
    for (int i = 0; i < 4; i++) {
        strbuf_printf(out, "%.1f,%.1f ", LEFT + place(scale, corners[i][0]),
                      TOP + SIZE - place(scale, corners[i][0] + corners[i][1]));
    }
    strbuf_put(out, "\"/>");
    strbuf_printf(out, "<line class=\"eq\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", LEFT,
                  TOP + SIZE, LEFT + SIZE, TOP);
}

/* Which colour is whose; for a drawing of several families. */
static void put_legend(StrBuf *out, const Validation *result) {
    int index = 0;
    for (int i = 0; i < result->n_stats; i++) {
        const FamilyStats *stats = &result->stats[i];
        if (stats->is_part) continue;
        int y = TOP + 18 + 17 * index;
        strbuf_printf(out,
                      "<circle class=\"f%d\" cx=\"%d\" cy=\"%d\" r=\"4.5\"/><text x=\"%d\" "
                      "y=\"%d\">",
                      index % N_COLOURS, LEFT + 16, y - 4, LEFT + 26, y);
        html_put(out, stats->name);
        strbuf_printf(out, " (%d)</text>\n", stats->n_rows);
        index++;
    }
}

/* family NULL: all of them. */
static void put_scatter(StrBuf *out, const Validation *result, const char *family,
                        const char *attributes, const char *style) {
    LogScale scale = fit_scale(result, family);
    strbuf_printf(out, "<svg class=\"scatter\" viewBox=\"0 0 %d %d\" role=\"img\"%s>%s\n",
                  LEFT + SIZE + RIGHT, TOP + SIZE + BOTTOM, attributes, style);
    if (isfinite(scale.least)) {
        put_band(out, &scale);
        put_axes(out, &scale);
    }
    if (!family) put_legend(out, result);
    for (int r = 0; r < result->table->n_runs; r++) {
        const Run *run = &result->table->runs[r];
        if (!is_drawn(run, family)) continue;
        strbuf_printf(out, "<circle class=\"dot f%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                      family_index(result, run), LEFT + place(&scale, log10(run->measured_seconds)),
                      TOP + SIZE - place(&scale, log10(run->predicted_seconds)),
                      result->table->n_runs > 200 ? "3.2" : "4.5");
        html_put(out, run->id);
        strbuf_printf(out, ": measured %.4g s, predicted %.4g s (%+.1f %%)</title></circle>\n",
                      run->measured_seconds, run->predicted_seconds, 100 * run->error);
    }
    strbuf_put(out, "</svg>\n");
}

/* How many rows have which error; what is beyond the ends counts at the ends. */
static void put_histogram(StrBuf *out, const Validation *result, const char *family) {
    int bins[HISTOGRAM_BINS] = {0}, most = 1, colour = 0;
    for (int r = 0; r < result->table->n_runs; r++) {
        const Run *run = &result->table->runs[r];
        if (!is_drawn(run, family)) continue;
        double at = (100 * run->error + HISTOGRAM_PERCENT) / (2 * HISTOGRAM_PERCENT);
        int bin = (int)fmin(HISTOGRAM_BINS - 1, fmax(0, floor(at * HISTOGRAM_BINS)));
        if (++bins[bin] > most) most = bins[bin];
        colour = family_index(result, run);
    }
    int width = SIZE / HISTOGRAM_BINS;
    strbuf_printf(out,
                  "<svg class=\"hist\" viewBox=\"0 0 %d %d\" role=\"img\" "
                  "aria-label=\"errors of ",
                  LEFT + SIZE + RIGHT, HISTOGRAM_HEIGHT + 40);
    html_put(out, family);
    strbuf_put(out, "\">\n");
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        double height = (double)(HISTOGRAM_HEIGHT - 10) * bins[i] / most;
        int from = -HISTOGRAM_PERCENT + 2 * HISTOGRAM_PERCENT * i / HISTOGRAM_BINS;
        if (bins[i] == 0) continue;
        strbuf_printf(out,
                      "<rect class=\"f%d\" x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\">"
                      "<title>%+d to %+d %%: %d row%s</title></rect>\n",
                      colour, LEFT + i * width, HISTOGRAM_HEIGHT - height, width - 1, height, from,
                      from + 2 * HISTOGRAM_PERCENT / HISTOGRAM_BINS, bins[i],
                      bins[i] == 1 ? "" : "s");
    }
    for (int percent = -HISTOGRAM_PERCENT; percent <= HISTOGRAM_PERCENT; percent += 20) {
        double at = LEFT + SIZE * (percent + HISTOGRAM_PERCENT) / (2.0 * HISTOGRAM_PERCENT);
        strbuf_printf(out,
                      "<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/>"
                      "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s%d %%</text>\n",
                      percent == 0 ? "eq" : "gl", at, at, HISTOGRAM_HEIGHT, at,
                      HISTOGRAM_HEIGHT + 16, percent > 0 ? "+" : "", percent);
    }
    strbuf_printf(out, "<text x=\"%d\" y=\"14\" text-anchor=\"end\">%d row%s</text></svg>\n",
                  LEFT - 7, most, most == 1 ? "" : "s");
}

static void put_figures_of_families(StrBuf *out, const Validation *result) {
    strbuf_put(out, "<table><thead><tr><th>family</th><th>rows</th><th>mean error</th>"
                    "<th>most</th><th>bias</th><th>regret</th><th>groups</th>"
                    "<th class=\"l\">worst</th></tr></thead><tbody>\n");
    for (int i = 0; i < result->n_stats; i++) {
        const FamilyStats *stats = &result->stats[i];
        strbuf_put(out, stats->is_part ? "<tr><td>&emsp;" : "<tr><td>");
        html_put(out, stats->name);
        strbuf_printf(out, "</td><td>%d</td>", stats->n_rows);
        if (stats->n_rows > 0) {
            strbuf_printf(out, "<td>%.1f %%</td><td>%.1f %%</td><td>%+.1f %%</td>",
                          100 * stats->mean_abs_error, 100 * stats->max_abs_error,
                          100 * stats->bias);
        } else {
            strbuf_put(out, "<td>–</td><td>–</td><td>–</td>");
        }
        if (stats->n_groups > 0) {
            strbuf_printf(out, "<td>%.2f %%</td><td>%d</td>", 100 * stats->regret, stats->n_groups);
        } else {
            strbuf_put(out, "<td>–</td><td>–</td>");
        }
        strbuf_put(out, "<td class=\"l\">");
        if (stats->worst) html_put(out, stats->worst->id);
        strbuf_put(out, "</td></tr>\n");
    }
    strbuf_put(out, "</tbody></table>\n");
}

static void put_number_cell(StrBuf *out, double value) {
    strbuf_printf(out, "<td data-v=\"%.9g\">%.4g</td>", value, value);
}

static void put_table_row(StrBuf *out, const Validation *result, const Run *run) {
    char choices[CHOICES_TEXT];
    const Candidate *c = &run->candidate;
    strbuf_put(out, "<tr><td>");
    html_put(out, run->id);
    strbuf_put(out, "</td><td class=\"l\">");
    html_put(out, run->family);
    strbuf_put(out, "</td>");
    put_number_cell(out, (double)run->num_gpus);
    if (run->skipped) {
        strbuf_put(out, "<td class=\"l\" colspan=\"11\">no prediction: ");
        html_put(out, run->skipped);
        strbuf_put(out, "</td></tr>\n");
        return;
    }
    const int degrees[] = {c->t, c->p, c->n_chunks, c->d, c->micro_batch, c->n_micro};
    for (size_t i = 0; i < sizeof(degrees) / sizeof(degrees[0]); i++) {
        strbuf_printf(out, "<td data-v=\"%d\">%d</td>", degrees[i], degrees[i]);
    }
    strbuf_printf(out, "<td class=\"l n\">%s</td>", run_choices(run, choices));
    put_number_cell(out, run->measured_seconds);
    put_number_cell(out, run->predicted_seconds);
    strbuf_printf(out, "<td data-v=\"%.9g\">%+.1f %%</td><td class=\"l\">%s</td></tr>\n",
                  run->error, 100 * run->error, run_assumed(result->arena, run));
}

static void put_table(StrBuf *out, const Validation *result) {
    static const struct {
        const char *name;
        bool left;
    } heads[] = {{"run", true},       {"family", true},       {"ranks", false},
                 {"t", false},        {"p", false},           {"v", false},
                 {"d", false},        {"micro-batch", false}, {"micro-batches", false},
                 {"recompute", true}, {"measured", false},    {"predicted", false},
                 {"error", false},    {"assumptions", true}};
    strbuf_put(out, "<div class=\"rows\"><table id=\"runs\"><thead><tr>");
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        strbuf_printf(out, "<th%s><button>%s</button></th>", heads[i].left ? " class=\"l\"" : "",
                      heads[i].name);
    }
    strbuf_put(out, "</tr></thead><tbody>\n");
    for (int r = 0; r < result->table->n_runs; r++) {
        put_table_row(out, result, &result->table->runs[r]);
    }
    strbuf_put(out, "</tbody></table></div>\n");
}

static void put_drawings(StrBuf *out, const Validation *result,
                         void (*put)(StrBuf *, const Validation *, const char *)) {
    strbuf_put(out, "<div class=\"maps\">\n");
    for (int i = 0; i < result->n_stats; i++) {
        const FamilyStats *stats = &result->stats[i];
        if (stats->is_part || stats->n_rows == 0) continue;
        strbuf_put(out, "<figure><figcaption>");
        html_put(out, stats->name);
        strbuf_printf(out, "<span>%d row%s, mean error %.1f %%</span></figcaption>", stats->n_rows,
                      stats->n_rows == 1 ? "" : "s", 100 * stats->mean_abs_error);
        put(out, result, stats->name);
        strbuf_put(out, "</figure>\n");
    }
    strbuf_put(out, "</div>\n");
}

static void put_family_scatter(StrBuf *out, const Validation *result, const char *family) {
    put_scatter(out, result, family, "", "");
}

void validate_show_html(StrBuf *out, const Validation *result) {
    html_open_page(out, "Predicted and measured steps", "validation", 0, COLOURS);
    strbuf_put(out, "<header><h1>Predicted and measured steps</h1><p class=\"sub\">");
    html_put(out, result->table->path);
    strbuf_printf(out, " · %d runs, predicted in %.2f s", result->table->n_runs,
                  result->elapsed_seconds);
    if (result->cluster || result->software) strbuf_put(out, " · ");
    validate_put_users(out, result, ". ");
    strbuf_put(out, "</p></header>\n");
    html_open_section(out, "families", "Families",
                      "Error is predicted / measured − 1; mean and most without its sign. Regret: "
                      "how much slower, measured, the layout predicted best is than the best, "
                      "averaged over groups of rows that differ in their layout alone.");
    put_figures_of_families(out, result);
    html_close_section(out);
    html_open_section(out, "scatter", "Step times",
                      "Seconds, both axes logarithmic. On the line predicted equals measured; the "
                      "band is ten per cent around it.");
    put_drawings(out, result, put_family_scatter);
    html_close_section(out);
    html_open_section(out, "errors", "Errors",
                      "Rows by error; left of the middle predicted too fast, right of it too slow. "
                      "What is beyond the ends is counted at the ends.");
    put_drawings(out, result, put_histogram);
    html_close_section(out);
    html_open_section(out, "rows", "Runs", "Seconds of a step. A click on a heading sorts.");
    put_table(out, result);
    html_close_section(out);
    strbuf_put(out, SORT_SCRIPT);
    strbuf_put(out, "</main></body></html>\n");
}

void validate_show_svg(StrBuf *out, const Validation *result) {
    char style[sizeof(SVG_STYLE) + sizeof(COLOURS) + 32];
    snprintf(style, sizeof(style), "<style>%s%s</style>", SVG_STYLE, COLOURS);
    put_scatter(out, result, NULL,
                " xmlns=\"http://www.w3.org/2000/svg\" width=\"868\" height=\"832\"", style);
}
