/* The sections of the HTML page, each appended to `out`. Internal to show_html*.c,
 * but for pages that the front end makes of other things in the same style.
 * Text that comes from the plan goes through html_put. */
#ifndef PLANNER_SHOW_SHOW_HTML_H
#define PLANNER_SHOW_SHOW_HTML_H

#include "planner/show/show_facts.h"

/* Escaped for element content and quoted attributes. */
void html_put(StrBuf *out, const char *text);
/* Opens a section: heading and a sentence on how to read it (trusted literals). */
void html_open_section(StrBuf *out, const char *id, const char *title, const char *lead);
void html_close_section(StrBuf *out);

/* Everything up to the body's first section: the document's head, styles for tasks of n_chunks
 * (0: a page without tasks) and more of the page's own ("": none). */
void html_open_page(StrBuf *out, const char *title, const char *what, int n_chunks,
                    const char *style);
void html_put_script(StrBuf *out);
/* One of the large figures on top of a page: label and value (escaped), a remark below. */
void html_put_figure(StrBuf *out, const char *label, const char *value, const char *more);
/* A row of a list of facts. */
void html_put_fact(StrBuf *out, const char *label, const char *value);

void html_put_mesh(StrBuf *out, const Mesh *mesh);
void html_put_stages(StrBuf *out, const Facts *facts);
void html_put_plan_timeline(StrBuf *out, const Facts *facts);
void html_put_memory(StrBuf *out, const Facts *facts);
void html_put_traffic(StrBuf *out, const Facts *facts);
void html_put_parameters(StrBuf *out, const Facts *facts);
void html_put_programs(StrBuf *out, const Facts *facts);

/* A step that was simulated, of a plan or of a candidate of the search. */
typedef struct TimelineStage {
    int n_tasks;
    const Task *tasks;
    const TaskSpan *spans; /* of each task */
    double update_us;      /* of the update without waiting; 0: all of its span */
} TimelineStage;
typedef struct TimelineLink {
    int from, to; /* stages */
    bool backward;
} TimelineLink;
typedef struct Timeline {
    int n_stages, n_chunks;
    double step_us, least_us; /* the shortest forward */
    const TimelineStage *stages;
    const TimelineLink *links;
    int n_messages;
    const MessageSpan *messages;
    const TaskSpan *data_spans; /* [stage * n_chunks + chunk], or NULL: messages of axis d */
} Timeline;
void html_put_timeline(StrBuf *out, const Timeline *of);

/* Memory of one rank of a stage over the step, in columns of equal time: the largest use within
 * each. */
enum { MEMORY_BINS = 480, MAX_MEMORY_MAPS = 6 };
typedef struct MemoryMap {
    int stage;
    double step_us;
    double peak_bytes; /* exact: a column may hold the largest of several moments */
    double cap_bytes;  /* the dashed line: arena or limit */
    double bytes[N_BUFFER_CLASSES][MEMORY_BINS];
} MemoryMap;
void memory_map_raise(MemoryMap *map, BufferClass class, double from_us, double to_us,
                      double bytes);
/* `top_bytes`: what the drawing's height stands for. */
void html_put_memory_map(StrBuf *out, const MemoryMap *map, double top_bytes);

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
