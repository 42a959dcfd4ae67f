/* Reads a cluster: a shipped one by name, or a Lua file, which is not trusted.
 *
 * A script ends in `return cluster { ... }`, whose fields are those of
 * planner/clusters/cluster_fields.c. It has the constructors cluster{}, device{} and software{},
 * which only mark tables so that errors find the line; like(table, changes), a changed copy; units
 * (TFLOPS, TB, GB, GiB, MiB, KiB, Gbit: per second where a rate is meant); and `require` of any
 * shipped script: `require "devices"` for shared devices.
 */
#ifndef FRONTEND_LUA_CLUSTER_READ_H
#define FRONTEND_LUA_CLUSTER_READ_H

#include "frontend/lua/lua_sandbox.h"
#include "planner/clusters/cluster.h"

/* Every file of planner/clusters; ends with name NULL. Made by the Makefile. */
extern const EmbeddedScript CLUSTER_SCRIPTS[];

/* Is this a file, not the name of a shipped cluster? */
bool cluster_is_path(const char *text);

/* The i-th shipped cluster's name, in order; NULL behind the last. */
const char *cluster_shipped_name(int index);

/* The names of planner/clusters/software.lua's stacks, sorted; ends with NULL. NULL: reported. */
const char **cluster_software_names(Arena *arena, Diag *diag);

/* `software`: a stack of planner/clusters/software.lua (or of a software.lua beside the file);
 * NULL: the cluster's own choice, else perilune. NULL: reported. Owned by `arena`. */
Cluster *cluster_read(Arena *arena, const char *name_or_path, const char *software, Diag *diag);

#endif
