/* Looks and behaviour of the HTML page; everything is inline, nothing is fetched. */
#include "planner/show/show_html.h"

/* Colours: one hue per class of memory, equal in both themes' lightness; F and B get hues that no
 * class of memory uses side by side with them. */
static const char STYLE[] =
    ":root{color-scheme:light dark;--bg:#f7f7f5;--card:#fff;--ink:#1b1f24;--soft:#5d6670;"
    "--faint:#8b949e;--line:#e3e5e8;--grid:#eceef0;--idle:#f0f1f3;--accent:#2f6fbf;"
    "--c-parameter:#3d78c2;--c-gradient:#2f9e94;--c-optimizer:#7d68bd;--c-input:#b9a13a;"
    "--c-message:#cf5f8c;--c-activation:#e28f3f;--c-scratch:#a3adb7;--c-update:#5b8f4e;"
    "--c-send:#7b848e;--wire-f:#2f6fbf;--wire-b:#c0602a}"
    "@media(prefers-color-scheme:dark){:root{--bg:#101317;--card:#171b20;--ink:#e7eaee;"
    "--soft:#a3acb6;--faint:#77818c;--line:#2a3038;--grid:#22272e;--idle:#1e232a;"
    "--accent:#6ea8ee;--c-parameter:#5b93dc;--c-gradient:#3fb3a8;--c-optimizer:#9a86da;"
    "--c-input:#c9b24a;--c-message:#dd7aa3;--c-activation:#eaa058;--c-scratch:#66707b;"
    "--c-update:#6fa761;--c-send:#8d97a2;--wire-f:#6ea8ee;--wire-b:#e59058}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"
    "'Segoe UI',Inter,Roboto,'Helvetica Neue',Arial,sans-serif;-webkit-font-smoothing:antialiased}"
    "main{max-width:1280px;margin:0 auto;padding:36px 40px 64px}"
    "h1{font-size:30px;line-height:1.2;margin:0;letter-spacing:-.02em;font-weight:650;"
    "overflow-wrap:anywhere}"
    ".sub{color:var(--soft);margin:6px 0 0}"
    "h2{font-size:18px;margin:0;letter-spacing:-.01em;font-weight:620}"
    ".lead{color:var(--soft);margin:2px 0 16px;max-width:120ch;font-size:14px}"
    "section{background:var(--card);border:1px solid var(--line);border-radius:12px;"
    "padding:20px 24px 22px;margin-top:18px;min-width:0}"
    ".pair{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:18px}"
    ".note{color:var(--faint);font-size:13px;margin:10px 0 0}"
    ".num{font-variant-numeric:tabular-nums}"
    ".figures{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));gap:1px;"
    "background:var(--line);border:1px solid var(--line);border-radius:12px;overflow:hidden;"
    "margin-top:22px}"
    ".figures div{background:var(--card);padding:14px 18px 15px}"
    ".figures dt{color:var(--soft);font-size:13px}"
    ".figures dd{margin:2px 0 0;font-size:23px;font-weight:620;letter-spacing:-.02em;"
    "font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".figures small{display:block;color:var(--faint);font-size:12px;font-weight:400;"
    "letter-spacing:0;overflow:hidden;text-overflow:ellipsis}"
    ".facts{display:grid;grid-template-columns:auto 1fr;gap:5px 20px;margin:0;font-size:14px}"
    ".groups{margin-top:14px}.facts dt{color:var(--soft)}.facts dd{margin:0;overflow-wrap:anywhere}"
    "svg{display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft);"
    "font-variant-numeric:tabular-nums}"
    "table{border-collapse:collapse;width:100%;font-size:13.5px;"
    "font-variant-numeric:tabular-nums}"
    "th{font-weight:500;color:var(--soft);font-size:12.5px;text-align:right;padding:4px 8px 7px;"
    "border-bottom:1px solid var(--line);white-space:nowrap}"
    "td{text-align:right;padding:6px 8px;border-bottom:1px solid var(--grid);white-space:nowrap}"
    "tr:last-child td{border-bottom:0}"
    "th:first-child,td:first-child{text-align:left;padding-left:0}"
    "th:last-child,td:last-child{padding-right:0}"
    "td.l,th.l{text-align:left;white-space:normal}td.w{width:24%}"
    ".zero{color:var(--faint)}"
    ".stack{display:flex;height:14px;border-radius:3px;overflow:hidden;background:var(--idle)}"
    ".stack i{display:block;height:100%;min-width:0}"
    ".bar{height:14px;border-radius:3px;background:var(--idle);overflow:hidden}"
    ".bar i{display:block;height:100%;background:var(--accent)}"
    ".legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);"
    "margin:0 0 12px;align-items:center}"
    ".legend i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:6px;"
    "vertical-align:-1px}.legend .dash{height:0;width:16px;border-top:2px dashed var(--ink);"
    "border-radius:0;vertical-align:4px}"
    ".k-parameter{background:var(--c-parameter);fill:var(--c-parameter)}"
    ".k-gradient{background:var(--c-gradient);fill:var(--c-gradient)}"
    ".k-optimizer{background:var(--c-optimizer);fill:var(--c-optimizer)}"
    ".k-input{background:var(--c-input);fill:var(--c-input)}"
    ".k-message{background:var(--c-message);fill:var(--c-message)}"
    ".k-activation{background:var(--c-activation);fill:var(--c-activation)}"
    ".k-scratch{background:var(--c-scratch);fill:var(--c-scratch)}"
    ".k-update{background:var(--c-update)}.k-idle{background:var(--idle);"
    "box-shadow:inset 0 0 0 1px var(--line)}"
    ".mesh rect.cell{rx:3px}.mesh .card{fill:none;stroke:var(--line)}"
    ".mesh text.id{font-size:10px;fill:#fff;text-anchor:middle}"
    ".mesh .wire{stroke:var(--faint);fill:none;stroke-width:1.2}"
    ".mesh .tip{fill:var(--faint)}"
    ".tl{display:flex}.tl .names{flex:none;width:64px;font-size:12.5px;color:var(--soft);"
    "padding-right:10px;text-align:right;font-variant-numeric:tabular-nums}"
    ".tl .names div{height:30px;line-height:24px;white-space:nowrap}"
    ".tl .view{flex:1;min-width:0;overflow-x:auto;overflow-y:hidden;overscroll-behavior-x:contain}"
    ".tl svg{width:100%}.tl rect{height:24px}.tl .lane{fill:var(--idle)}"
    ".tl .U{fill:var(--c-update)}.tl rect.D{height:5px;fill:var(--c-message)}"
    ".tl .S{fill:var(--c-send)}"
    ".tl .t text,.tl text.t{text-anchor:middle;fill:#fff;pointer-events:none;font-size:11px;"
    "display:none}"
    ".tl text.a{display:none}.tl .tick{stroke:var(--grid)}"
    ".tl .wf,.tl .wb{stroke-width:1;opacity:.45}.tl .wf{stroke:var(--wire-f)}"
    ".tl .wb{stroke:var(--wire-b)}.tl rect:hover{stroke:var(--ink);stroke-width:1.5}"
    ".tl rect.lane:hover{stroke:none}"
    ".tl .cut{fill:none;stroke:var(--faint);stroke-dasharray:3 3}"
    ".tools{float:right;display:flex;gap:6px;margin-top:-2px}"
    "button{font:inherit;font-size:13px;color:var(--ink);background:var(--card);"
    "border:1px solid var(--line);border-radius:7px;padding:2px 11px;cursor:pointer;"
    "font-variant-numeric:tabular-nums}"
    "button:hover:enabled{border-color:var(--faint)}button:disabled{color:var(--faint);"
    "cursor:default}button:focus-visible,summary:focus-visible{outline:2px solid var(--accent);"
    "outline-offset:2px}"
    ".maps{display:grid;gap:20px 28px;grid-template-columns:repeat(3,minmax(0,1fr))}"
    ".maps.two{grid-template-columns:repeat(2,minmax(0,1fr))}.maps.one{grid-template-columns:1fr}"
    ".maps figure{margin:0;min-width:0}.maps figcaption{font-size:13px;margin-bottom:6px;"
    "display:flex;justify-content:space-between;gap:8px}"
    ".maps figcaption span{color:var(--soft)}"
    ".maps svg{width:100%;height:150px;background:var(--idle);border-radius:6px}"
    ".maps .cap{stroke:var(--ink);stroke-width:1.5;stroke-dasharray:5 4;"
    "vector-effect:non-scaling-stroke;opacity:.75}"
    ".axis{display:flex;justify-content:space-between;font-size:12px;color:var(--faint);"
    "margin-top:3px;font-variant-numeric:tabular-nums}"
    ".cols svg{width:100%;height:230px}.cols rect{fill:var(--c-parameter)}"
    ".cols rect:hover{fill:var(--accent)}"
    "details{border-top:1px solid var(--grid);padding:9px 0}details:first-of-type{border-top:0}"
    "summary{cursor:pointer;font-size:14px}summary span{color:var(--soft)}"
    "pre{margin:10px 0 2px;padding:14px 16px;background:var(--bg);border-radius:8px;"
    "font:12px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;"
    "overflow:auto;max-height:520px;tab-size:2}"
    "pre b{font-weight:600}pre .ph{color:var(--faint)}pre .co{color:var(--c-message)}"
    "pre .mm{color:var(--c-parameter)}pre .le{color:var(--c-gradient)}"
    "pre .io{color:var(--c-activation)}"
    "footer{color:var(--faint);font-size:13px;margin-top:26px}"
    "@media(max-width:1000px){main{padding:24px 18px}.figures{grid-template-columns:repeat(3,"
    "minmax(0,1fr))}.pair,.maps,.maps.two{grid-template-columns:minmax(0,1fr)}"
    "section{overflow-x:auto}}"
    "@media(max-width:560px){.figures{grid-template-columns:repeat(2,minmax(0,1fr))}"
    ".figures dd{font-size:20px}.figures div{padding:11px 13px 12px}section{padding:16px 16px "
    "18px}}"
    "@media print{body{background:#fff}section{break-inside:avoid}.tools{display:none}}";

/* Zoom keeps the point in the middle of the view where it is. */
static const char SCRIPT[] =
    "(function(){var box=document.getElementById('tl');if(!box)return;"
    "var view=box.querySelector('.view'),svg=view.querySelector('svg'),most=+box.dataset.most,"
    "zoom=1,less=document.getElementById('zl'),more=document.getElementById('zm'),"
    "fit=document.getElementById('zf');"
    "function set(to,at){to=Math.max(1,Math.min(most,to));if(at===undefined)"
    "at=view.clientWidth/2;var mid=(view.scrollLeft+at)/svg.getBoundingClientRect().width;"
    "zoom=to;box.dataset.zoom=to;svg.style.width=100*to+'%';"
    "view.scrollLeft=mid*svg.getBoundingClientRect().width-at;"
    "less.disabled=to<=1;more.disabled=to>=most;fit.textContent=to+'\\u00d7'}"
    "less.onclick=function(){set(zoom/2)};more.onclick=function(){set(zoom*2)};"
    "fit.onclick=function(){set(1)};"
    "view.addEventListener('wheel',function(e){if(!e.ctrlKey&&!e.metaKey)return;"
    "e.preventDefault();set(e.deltaY<0?zoom*2:zoom/2,"
    "e.clientX-view.getBoundingClientRect().left)},{passive:false});set(1)})();";

/* A hue per chunk within the family of its direction, three shades by micro-batch. */
static void put_task_colours(StrBuf *out, int n_chunks) {
    static const double LIGHTNESS[] = {0.52, 0.58, 0.64};
    for (int chunk = 0; chunk < n_chunks; chunk++) {
        double at = n_chunks > 1 ? (double)chunk / (n_chunks - 1) : 0;
        double hue_f = 262 - 97 * at, hue_b = 58 - 78 * at, hue_w = 134 - 24 * at;
        for (int shade = 0; shade < 3; shade++) {
            strbuf_printf(out,
                          ".F%d%d{fill:oklch(%.2f .12 %.0f);background:oklch(%.2f .12 %.0f)}"
                          ".B%d%d{fill:oklch(%.2f .13 %.0f);background:oklch(%.2f .13 %.0f)}",
                          chunk, shade, LIGHTNESS[shade], hue_f, LIGHTNESS[shade], hue_f, chunk,
                          shade, LIGHTNESS[shade] + 0.03, hue_b, LIGHTNESS[shade] + 0.03, hue_b);
            strbuf_printf(out, ".W%d%d{fill:oklch(%.2f .13 %.0f);background:oklch(%.2f .13 %.0f)}",
                          chunk, shade, LIGHTNESS[shade] + 0.03, hue_w, LIGHTNESS[shade] + 0.03,
                          hue_w);
        }
    }
}

/* What is marked z8 is shown from zoom 8 on. */
static void put_zoom_rules(StrBuf *out) {
    for (int zoom = 1; zoom <= 128; zoom *= 2) {
        for (int shown = zoom; shown <= 128; shown *= 2) {
            strbuf_printf(out, "%s.tl[data-zoom=\"%d\"] text.z%d", shown > zoom ? "," : "", shown,
                          zoom);
        }
        strbuf_put(out, "{display:inline}");
    }
}

void html_open_page(StrBuf *out, const char *title, const char *what, int n_chunks,
                    const char *style) {
    /* The policy is a second lock beside escaping: nothing can be fetched from this page. */
    strbuf_put(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';"
                    " style-src 'unsafe-inline'; script-src 'unsafe-inline'\">"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
                    "<title>");
    html_put(out, title);
    strbuf_printf(out, " · %s</title>\n<style>", what);
    strbuf_put(out, STYLE);
    put_task_colours(out, n_chunks);
    put_zoom_rules(out);
    strbuf_put(out, style);
    strbuf_put(out, "</style>\n</head><body><main>\n");
}

void html_put_script(StrBuf *out) {
    strbuf_put(out, "<script>");
    strbuf_put(out, SCRIPT);
    strbuf_put(out, "</script>\n");
}
