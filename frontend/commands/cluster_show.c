#include "frontend/commands/cluster_show.h"

#include "frontend/units.h"
#include "planner/clusters/cluster_fields.h"
#include "planner/cost/collective_time.h"
#include "planner/cost/device_time.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const double GIB = 1024.0 * 1024 * 1024;

enum { VALUE_TEXT = 64, MAX_PART = 64, KEY_COLUMN = 28, VALUE_COLUMN = 14 };

/* --- values ---------------------------------------------------------------------------------- */

static double number_of(const Cluster *cluster, const ClusterField *field) {
    const char *at = (const char *)cluster + field->offset;
    switch (field->kind) {
    case FIELD_REAL: return *(const double *)at;
    case FIELD_COUNT: return *(const int *)at;
    case FIELD_LONG: return (double)*(const int64_t *)at;
    case FIELD_FLAG: return *(const bool *)at;
    case FIELD_ATTENTION: return *(const AttentionKind *)at;
    case FIELD_TEXT: break;
    }
    return 0;
}

static const char *text_of(const Cluster *cluster, const ClusterField *field) {
    return *(const char *const *)((const char *)cluster + field->offset);
}

/* 312e12, "FLOP/s" -> "312 TFLOP/s" */
static void format_scaled(char *out, double value, const char *unit) {
    static const char *const PREFIXES[] = {"", "k", "M", "G", "T", "P", "E"};
    int prefix = 0;
    while (value >= 1000 && prefix < 6) {
        value /= 1000;
        prefix++;
    }
    snprintf(out, VALUE_TEXT, "%.4g %s%s", value, PREFIXES[prefix], unit);
}

static void format_value(char *out, const Cluster *cluster, const ClusterField *field) {
    double value = number_of(cluster, field);
    if (field->kind == FIELD_FLAG) {
        snprintf(out, VALUE_TEXT, "%s", value != 0 ? "yes" : "no");
    } else if (field->kind == FIELD_ATTENTION) {
        snprintf(out, VALUE_TEXT, "%s", ATTENTION_NAMES[(int)value]);
    } else if (strcmp(field->unit, "FLOP/s") == 0) {
        format_scaled(out, value, "FLOP/s");
    } else if (strcmp(field->unit, "bytes/s") == 0) {
        format_scaled(out, value, "B/s");
    } else if (strcmp(field->unit, "bytes") == 0) {
        units_format_bytes(out, VALUE_TEXT, (int64_t)value);
    } else if (strncmp(field->unit, "of ", 3) == 0) {
        snprintf(out, VALUE_TEXT, "%.4g %%", 100 * value);
    } else {
        snprintf(out, VALUE_TEXT, "%.6g%s%s", value, field->unit[0] ? " " : "", field->unit);
    }
}

/* Is there nothing to say? Networks and prices may be missing, and bf16 units. */
static bool is_left_out(const Cluster *cluster, const ClusterField *field) {
    bool network = strncmp(field->path, "network.", 8) == 0;
    if (network && cluster->network.n_nics == 0) return true;
    if (strncmp(field->path, "price.", 6) == 0 && !cluster->currency) return true;
    bool failures = strncmp(field->path, "failures.", 9) == 0;
    if (failures && cluster->failures.device_mtbf_hours == 0) return true;
    bool host = strncmp(field->path, "node.host_", 10) == 0;
    if (host && cluster->node.host_bytes_per_second == 0) return true;
    if (field->kind == FIELD_TEXT) return !text_of(cluster, field);
    bool links = field->need == NEEDED_BETWEEN && cluster->node.n_devices == 1;
    bool zero = field->kind != FIELD_FLAG && field->need == OPTIONAL && field->absent == 0 &&
                strncmp(field->path, "software.", 9) != 0;
    return links || (zero && number_of(cluster, field) == 0);
}

/* --- what the fields come to ----------------------------------------------------------------- */

typedef struct Derived {
    const char *name, *unit, *meaning;
    double value;
} Derived;
enum { MAX_DERIVED = 12 };

/* A product of 4096 x 4096 by 4096 x 4096, and all-reduces of 1 GiB: what people measure. */
static int derive_times(const Cluster *cluster, Derived *out) {
    enum { SIDE = 4096 };
    bool bf16 = cluster->device.peak_flops[MATH_BF16] > 0;
    ProductShape shape = {1, SIDE, SIDE, SIDE, bf16 ? 2 : 4};
    int n_devices = cluster->node.n_devices, n = 0;
    out[n++] = (Derived){"product_4096", "us", bf16 ? "4096^3 in bf16" : "4096^3 in f32",
                         device_product_us(&cluster->device, bf16 ? MATH_BF16 : MATH_F32, &shape)};
    if (n_devices > 1) {
        CollectiveGroup node = {n_devices, n_devices, 1};
        out[n++] = (Derived){"all_reduce_node", "us", "of 1 GiB by all devices of a node",
                             collective_us(cluster, COLLECTIVE_ALL_REDUCE, GIB, &node)};
    }
    if (cluster->network.n_nics) {
        CollectiveGroup nodes = {2 * n_devices, n_devices, 1};
        out[n++] = (Derived){"all_reduce_2_nodes", "us", "the same by those of two nodes",
                             collective_us(cluster, COLLECTIVE_ALL_REDUCE, GIB, &nodes)};
    }
    return n;
}

static int derive(const Cluster *cluster, Derived *out) {
    static const char *const PRODUCTS[N_MATH_KINDS] = {"products_f32", "products_bf16",
                                                       "products_fp8"};
    const ClusterDevice *device = &cluster->device;
    const ClusterNetwork *network = &cluster->network;
    int n = 0;
    for (int i = 0; i < N_MATH_KINDS; i++) {
        if (device->peak_flops[i] == 0) continue;
        out[n++] = (Derived){PRODUCTS[i], "FLOP/s", "large ones, reached",
                             device->peak_flops[i] * device->product_fraction[i]};
    }
    out[n++] = (Derived){"memory", "B/s", "reached",
                         device->memory_bytes_per_second * device->memory_fraction};
    out[n++] = (Derived){"memory_for_programs", "bytes", "of a device",
                         device->memory_bytes * device->memory_usable};
    if (cluster->node.n_devices > 1) {
        out[n++] = (Derived){"link", "B/s", "of a device inside its node, reached",
                             cluster->node.link_bytes_per_second * cluster->node.link_fraction};
    }
    if (cluster->node.host_bytes_per_second > 0) {
        out[n++] = (Derived){"host", "B/s", "of a device to its node's memory and back, reached",
                             cluster->node.host_bytes_per_second * cluster->node.host_fraction};
        out[n++] = (Derived){"host_memory", "bytes", "of the node's, for each device",
                             cluster->node.host_memory_bytes / cluster->node.n_devices};
    }
    if (network->n_nics) {
        out[n++] =
            (Derived){"network_share", "B/s", "of a device when all of its node send, reached",
                      network->n_nics * network->nic_bytes_per_second * network->nic_fraction /
                          network->oversubscription / cluster->node.n_devices};
    }
    return n + derive_times(cluster, out + n);
}

/* --- text ------------------------------------------------------------------------------------ */

static void put_row(StrBuf *out, const char *key, const char *value, const char *meaning) {
    if (meaning[0]) {
        strbuf_printf(out, "  %-*s %-*s %s\n", KEY_COLUMN, key, VALUE_COLUMN, value, meaning);
    } else {
        strbuf_printf(out, "  %-*s %s\n", KEY_COLUMN, key, value);
    }
}

static void put_head(StrBuf *out, const Cluster *cluster) {
    strbuf_printf(out, "cluster   %s%s%s\n", cluster->name, cluster->title ? ": " : "",
                  cluster->title ? cluster->title : "");
    strbuf_printf(out, "file      %s\n", cluster->path);
    if (cluster->source) strbuf_printf(out, "source    %s\n", cluster->source);
    if (cluster->max_devices) {
        strbuf_printf(out, "size      at most %lld device%s\n", (long long)cluster->max_devices,
                      cluster->max_devices == 1 ? "" : "s");
    }
}

/* The heading of a table, where its first field stands. */
static void put_heading(StrBuf *out, const Cluster *cluster, const char *table, int length) {
    const char *name = strncmp(table, "device", 6) == 0     ? cluster->device.name
                       : strncmp(table, "software", 8) == 0 ? cluster->software.name
                                                            : "";
    strbuf_printf(out, "\n%.*s%s%s\n", length, table, name[0] ? ": " : "", name);
}

void cluster_show_text(StrBuf *out, const Cluster *cluster) {
    const char *table = "";
    char value[VALUE_TEXT];
    put_head(out, cluster);
    for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
        const char *dot = strchr(field->path, '.');
        if (!dot || is_left_out(cluster, field)) continue; /* the head has those of no table */
        size_t length = (size_t)(dot + 1 - field->path);
        if (strncmp(table, field->path, length) != 0) {
            put_heading(out, cluster, field->path, (int)length - 1);
            table = field->path;
        }
        if (strcmp(field->path, "device.name") == 0) continue;
        if (field->kind == FIELD_TEXT) {
            put_row(out, dot + 1, text_of(cluster, field), "");
        } else {
            format_value(value, cluster, field);
            put_row(out, dot + 1, value, field->meaning);
        }
    }
    if (cluster->failures.device_mtbf_hours == 0) {
        strbuf_put(out, "\nfailures\n  none are stated, so none are assumed\n");
    }
    Derived derived[MAX_DERIVED];
    int n = derive(cluster, derived);
    strbuf_put(out, "\nthat is\n");
    for (int i = 0; i < n; i++) {
        const Derived *row = &derived[i];
        if (strcmp(row->unit, "bytes") == 0) {
            units_format_bytes(value, sizeof(value), (int64_t)row->value);
        } else if (strcmp(row->unit, "us") == 0) {
            bool long_time = row->value >= 10000;
            snprintf(value, sizeof(value), "%.1f %s", row->value / (long_time ? 1000 : 1),
                     long_time ? "ms" : "us");
        } else {
            format_scaled(value, row->value, row->unit);
        }
        put_row(out, row->name, value, row->meaning);
    }
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *value_json(const Cluster *cluster, const ClusterField *field) {
    double value = number_of(cluster, field);
    switch (field->kind) {
    case FIELD_REAL: return json_real(value);
    case FIELD_COUNT:
    case FIELD_LONG: return json_integer((json_int_t)value);
    case FIELD_FLAG: return json_boolean(value != 0);
    case FIELD_ATTENTION: return json_string(ATTENTION_NAMES[(int)value]);
    case FIELD_TEXT: break;
    }
    const char *text = text_of(cluster, field);
    return text ? json_string(text) : json_null();
}

/* The object at the path's tables; *path moves to its last part. */
static json_t *object_at(json_t *root, const char **path) {
    for (const char *dot; (dot = strchr(*path, '.')); *path = dot + 1) {
        char part[MAX_PART];
        snprintf(part, sizeof(part), "%.*s", (int)(dot - *path), *path);
        json_t *inner = json_object_get(root, part);
        if (!inner) {
            inner = json_object();
            json_object_set_new(root, part, inner);
        }
        root = inner;
    }
    return root;
}

void cluster_show_json(StrBuf *out, const Cluster *cluster) {
    json_t *root = json_object(), *reached = json_object();
    for (const ClusterField *field = CLUSTER_FIELDS; field->path; field++) {
        const char *path = field->path;
        json_t *object = object_at(root, &path);
        json_object_set_new(object, path, value_json(cluster, field));
    }
    json_object_set_new(root, "path", json_string(cluster->path));
    json_object_set_new(json_object_get(root, "software"), "name",
                        json_string(cluster->software.name));
    Derived derived[MAX_DERIVED];
    int n = derive(cluster, derived);
    for (int i = 0; i < n; i++) { /* times say their unit; rates and sizes are per second, bytes */
        char name[MAX_PART];
        bool time = strcmp(derived[i].unit, "us") == 0;
        snprintf(name, sizeof(name), "%s%s", derived[i].name, time ? "_us" : "");
        json_object_set_new(reached, name, json_real(derived[i].value));
    }
    json_object_set_new(root, "derived", reached);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12));
    strbuf_put(out, text ? text : "");
    strbuf_put(out, "\n");
    free(text);
    json_decref(root);
}
