/* The sections of the HTML page, each appended to `out`. Internal to planner/show_html*.c,
 * but for pages that the front end makes of other things in the same style.
 * Text that comes from the plan goes through html_put. */
#ifndef PLANNER_SHOW_HTML_H
#define PLANNER_SHOW_HTML_H

#include "planner/show_facts.h"

/* Escaped for element content and quoted attributes. */
void html_put(StrBuf *out, const char *text);
/* Opens a section: heading and a sentence on how to read it (trusted literals). */
void html_open_section(StrBuf *out, const char *id, const char *title, const char *lead);
void html_close_section(StrBuf *out);

/* facts NULL: a page without tasks. */
void html_put_style(StrBuf *out, const Facts *facts);
void html_put_script(StrBuf *out);

void html_put_mesh(StrBuf *out, const Facts *facts);
void html_put_stages(StrBuf *out, const Facts *facts);
void html_put_timeline(StrBuf *out, const Facts *facts);
void html_put_memory(StrBuf *out, const Facts *facts);
void html_put_traffic(StrBuf *out, const Facts *facts);
void html_put_parameters(StrBuf *out, const Facts *facts);
void html_put_programs(StrBuf *out, const Facts *facts);

/* At most n_most stages, the first and the last among them, evenly spaced. Returns how many. */
int html_pick_stages(int n_stages, int n_most, int *out_stages);

/* Colour class and plain name of a buffer class, in stacking order; NULL past the last. */
typedef struct HtmlClass {
    BufferClass class;
    const char *css, *name;
} HtmlClass;
extern const HtmlClass HTML_CLASSES[N_BUFFER_CLASSES];
void html_put_class_legend(StrBuf *out, const char *more);

#endif
