/* Sparse mixtures of experts: what the ops of ir/ops/route.c know about each other. */
#ifndef IR_OPS_ROUTE_H
#define IR_OPS_ROUTE_H

#include "ir/op.h"

/* Does the op choose, route, or move rows by a route's tables? */
bool op_routes(OpKind op);
/* Must an axis of such a node be whole on a rank? All but batch, experts and a row's own must. */
bool route_needs_whole(const Node *node, int axis);
/* How many operands a table's op has without gates: dispatch and combine. */
enum { ROUTE_TABLES = 3 };

/* The groups of numbers that `top` chooses from: equal runs, of which the `kept` count whose `best`
 * greatest sum to most. One: all numbers. */
enum { ROUTE_MOST_GROUPS = 32 };
typedef struct RouteGroups {
    int count, kept, best;
} RouteGroups;
RouteGroups route_groups(const Node *top);

/* One route of each shape in a graph. */
typedef struct RouteSet {
    const Node **nodes;
    int count;
} RouteSet;
RouteSet route_find_all(const Graph *graph, Arena *arena);
/* The share of a product's FLOPs that the model asks for: rows of experts are as many as their
 * capacity, of which seq x choices / (experts x slots) have a token if none is dropped, at most
 * all. 1 for products without such rows. */
double route_active_share(const RouteSet *routes, const Node *product);
/* How many of a parameter's numbers a token meets: choices / experts of what has the axis of a
 * route's experts, else all. */
double route_active_parameters(const RouteSet *routes, const Node *param);
/* The same of all parameters of the graph. */
double route_count_active(const Graph *graph);

#endif
