/* A cluster as a page of text, and as JSON: every field with its unit and meaning, then what they
 * come to.
 */
#ifndef FRONTEND_COMMANDS_CLUSTER_SHOW_H
#define FRONTEND_COMMANDS_CLUSTER_SHOW_H

#include "ir/base/strbuf.h"
#include "planner/clusters/cluster.h"

void cluster_show_text(StrBuf *out, const Cluster *cluster);

/* One object: the fields as the Lua file nests them, "software" with its name, "path", and
 * "derived". Absent texts are null. */
void cluster_show_json(StrBuf *out, const Cluster *cluster);

#endif
