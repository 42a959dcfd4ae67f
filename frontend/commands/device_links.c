#include "frontend/commands/device_links.h"

#include <stdio.h>

/* host: no peer access, so that data goes through the host's memory. */
static const char *link_kind(const CudaLinkReport *link) {
    return !link->known           ? "unknown"
           : !link->peer_access   ? "host"
           : link->native_atomics ? "NVLink"
                                  : "PCIe";
}

static void put_cell(StrBuf *out, const char *text, bool last) {
    strbuf_printf(out, last ? "%s\n" : "%-12s", text);
}

static void put_row(StrBuf *out, const CudaReport *report, int from) {
    strbuf_printf(out, "  gpu %-3d ", report->devices[from].ordinal);
    for (int to = 0; to < report->n_devices; to++) {
        const CudaLinkReport *link = &report->links[from][to];
        char text[32] = "-";
        if (from != to) snprintf(text, sizeof(text), "%s", link_kind(link));
        if (link->known) snprintf(text, sizeof(text), "%s (%d)", link_kind(link), link->rank);
        put_cell(out, text, to == report->n_devices - 1);
    }
}

void device_links_put(StrBuf *out, const CudaReport *report) {
    if (report->n_devices < 2) return;
    strbuf_put(out, "links     (0): the fastest kind here; host: no peer access\n          ");
    for (int to = 0; to < report->n_devices; to++) {
        char text[32];
        snprintf(text, sizeof(text), "gpu %d", report->devices[to].ordinal);
        put_cell(out, text, to == report->n_devices - 1);
    }
    for (int from = 0; from < report->n_devices; from++) put_row(out, report, from);
}

json_t *device_links_json(const CudaReport *report) {
    json_t *links = json_array();
    for (int from = 0; from < report->n_devices; from++) {
        for (int to = 0; to < report->n_devices; to++) {
            const CudaLinkReport *link = &report->links[from][to];
            if (from == to) continue;
            json_t *object = json_object();
            json_object_set_new(object, "from", json_integer(report->devices[from].ordinal));
            json_object_set_new(object, "to", json_integer(report->devices[to].ordinal));
            json_object_set_new(object, "kind", json_string(link_kind(link)));
            json_object_set_new(object, "peer_access",
                                link->known ? json_boolean(link->peer_access) : json_null());
            json_object_set_new(object, "native_atomics",
                                link->known ? json_boolean(link->native_atomics) : json_null());
            json_object_set_new(object, "performance_rank",
                                link->known ? json_integer(link->rank) : json_null());
            json_array_append_new(links, object);
        }
    }
    return links;
}
