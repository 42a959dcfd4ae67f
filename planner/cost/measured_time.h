/* Measured time: what one node takes, from what a device profile has of its op at other sizes.
 *
 * Products and attention go by their shapes: the rates of the measured shapes, weighted by how near
 * they are in the logarithms of their sides (Shepard 1968). Other ops go by elements. Elementwise
 * ops and fused programs that were not measured are priced as the sum (`add`) that moves as many
 * numbers, and by what their costly functions take longer than moving.
 */
#ifndef PLANNER_COST_MEASURED_TIME_H
#define PLANNER_COST_MEASURED_TIME_H

#include "planner/cost/cost.h"

/* Microseconds for operands and results of these local shapes, starting the call included. A
 * negative number: the profile says nothing of the op. */
double measured_node_us(const Device *device, const Node *node, const Type *inputs,
                        const Type *outputs, double flops);

/* FLOP/s near a shape; 0: nothing was measured. */
double shape_rates_at(const ShapeRates *rates, const ShapeRate *like);

/* Keys of the linear attention that a profile measures. */
enum { MEASURED_KEYS = 64 };

#endif
