/* A device without a cluster or a profile, for sums on paper: a rate of arithmetic, one of memory,
 * one of links. */
#ifndef TESTS_UNIT_PLAIN_DEVICE_H
#define TESTS_UNIT_PLAIN_DEVICE_H

#include "planner/cost/cost.h"

static const Device PLAIN_DEVICE = {
    .name = "plain",
    .flops_per_second = 60e9,
    .memory_bytes_per_second = 10e9,
    .call_us = 1,
    .link_latency_us = 5,
    .link_bytes_per_second = 5e9,
    .send_blocks = true,
};

#endif
