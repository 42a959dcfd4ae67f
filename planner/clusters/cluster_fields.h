/* The fields of a cluster as data: one row per number, text or flag, with its unit, its range and
 * what it means. Reading, checking and showing all go by this table.
 */
#ifndef PLANNER_CLUSTERS_CLUSTER_FIELDS_H
#define PLANNER_CLUSTERS_CLUSTER_FIELDS_H

#include "planner/clusters/cluster.h"

#include <stddef.h>

typedef enum ClusterFieldKind {
    FIELD_REAL,      /* double */
    FIELD_COUNT,     /* int */
    FIELD_LONG,      /* int64_t */
    FIELD_FLAG,      /* bool */
    FIELD_TEXT,      /* const char * */
    FIELD_ATTENTION, /* AttentionKind */
} ClusterFieldKind;

typedef enum FieldNeed {
    NEEDED,         /* where its table is */
    NEEDED_BETWEEN, /* if a node has several devices */
    OPTIONAL,       /* absent: `absent` */
} FieldNeed;

typedef struct ClusterField {
    const char *path; /* "device.peak_flops.bf16": tables, then the key */
    ClusterFieldKind kind;
    size_t offset; /* in Cluster */
    const char *unit;
    double least, most;
    FieldNeed need;
    double absent;
    const char *meaning;
} ClusterField;

/* Ends with path NULL. By table: cluster, device, node, network, storage,
 * failures, price, software. */
extern const ClusterField CLUSTER_FIELDS[];

extern const char *const ATTENTION_NAMES[]; /* by AttentionKind; ends with NULL */

#endif
