/* The layouts under which models are trained by test_equivalence and test_cuda_graph. For models of
 * five blocks with 4 heads or more, and for eight blocks: t = 4 is not for those that have two key
 * heads, each of two query heads. The global batch is 16. */
#ifndef TESTS_UNIT_EQUIVALENCE_LAYOUTS_H
#define TESTS_UNIT_EQUIVALENCE_LAYOUTS_H

#include "tests/unit/train_fixture.h"

static const int UNEVEN_2[] = {1, 4}, UNEVEN_4[] = {1, 2, 1, 1}, ENDS_3[] = {0, 5, 0};
static const int ENDS_6[] = {0, 2, 1, 1, 1, 0}; /* the turn is in the middle */
static const Layout LAYOUTS[] = {
    /* t, d, p, micro-batch, chunks, schedule, sequence parallel, split */
    {1, 1, 1, 4, 1, "1f1b", false, NULL, 0},       {1, 1, 1, 2, 1, "gpipe", false, NULL, 0},
    {2, 1, 1, 8, 1, "1f1b", false, NULL, 0},       {2, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {4, 1, 1, 16, 1, "1f1b", false, NULL, 0},      {4, 1, 1, 4, 1, "1f1b", true, NULL, 0},
    {1, 2, 1, 8, 1, "1f1b", false, NULL, 0},       {1, 2, 1, 1, 1, "gpipe", false, NULL, 0},
    {1, 4, 1, 2, 1, "1f1b", false, NULL, 0},       {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 4, 1, "gpipe", false, NULL, 0},      {1, 1, 2, 2, 2, "interleaved", false, NULL, 0},
    {1, 1, 2, 4, 1, "1f1b", false, UNEVEN_2, 2},   {1, 1, 4, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 4, 4, 1, "gpipe", false, UNEVEN_4, 4},  {2, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {2, 1, 2, 4, 1, "1f1b", true, NULL, 0},        {2, 1, 2, 2, 2, "interleaved", true, NULL, 0},
    {1, 2, 2, 2, 1, "1f1b", false, NULL, 0},       {1, 2, 4, 2, 1, "zb-h1", false, NULL, 0},
    {2, 1, 4, 2, 1, "gpipe", true, NULL, 0},       {2, 2, 2, 2, 1, "zb-h1", true, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0}, {4, 1, 2, 2, 1, "1f1b", true, NULL, 0},
    {1, 4, 2, 1, 1, "gpipe", false, NULL, 0},      {4, 2, 1, 2, 1, "1f1b", false, NULL, 0},
    {2, 4, 1, 2, 1, "1f1b", true, NULL, 0},        {1, 1, 3, 2, 1, "1f1b", false, ENDS_3, 3},
    {2, 2, 2, 2, 2, "zb-v", true, NULL, 0},        {1, 1, 3, 2, 2, "zb-v", false, ENDS_6, 6},
    {2, 1, 3, 1, 2, "v-half", true, ENDS_6, 6},
};
enum { N_LAYOUTS = sizeof(LAYOUTS) / sizeof(LAYOUTS[0]) };

static const int UNEVEN_6[] = {1, 2, 1, 1, 2, 1}, GAPS_6[] = {0, 3, 0, 0, 5, 0};
static const Layout DEEP_LAYOUTS[] = {
    {1, 1, 4, 2, 2, "interleaved", false, NULL, 0},
    {1, 1, 2, 1, 4, "interleaved", false, NULL, 0},
    {2, 1, 4, 2, 2, "zb-chunked", true, NULL, 0},
    {1, 1, 8, 1, 1, "1f1b", false, NULL, 0},
    {1, 1, 8, 2, 1, "gpipe", false, NULL, 0},
    {1, 2, 4, 1, 2, "interleaved", false, NULL, 0},
    {1, 1, 2, 2, 3, "interleaved", false, UNEVEN_6, 6},
    /* chunks without a block: the first and the last of ten, which need no --split, and others */
    {1, 1, 2, 2, 5, "interleaved", false, NULL, 0},
    {2, 1, 2, 1, 3, "interleaved", true, GAPS_6, 6},
    {1, 1, 4, 2, 2, "zb-v", false, NULL, 0},
    {1, 2, 3, 1, 2, "zb-v", false, GAPS_6, 6},
    {1, 1, 4, 1, 2, "v-half", false, NULL, 0},
};
enum { N_DEEP_LAYOUTS = sizeof(DEEP_LAYOUTS) / sizeof(DEEP_LAYOUTS[0]) };

/* With run_zero: optimizer state divided over d. */
static const Layout ZERO_LAYOUTS[] = {
    {1, 2, 1, 4, 1, "1f1b", false, NULL, 0},       {1, 4, 1, 2, 1, "gpipe", false, NULL, 0},
    {2, 2, 1, 2, 1, "1f1b", true, NULL, 0},        {1, 2, 2, 2, 1, "zb-h1", false, NULL, 0},
    {2, 2, 2, 2, 2, "interleaved", true, NULL, 0}, {4, 2, 1, 2, 1, "1f1b", true, NULL, 0},
    {2, 4, 1, 2, 1, "1f1b", false, NULL, 0},       {1, 8, 1, 2, 1, "1f1b", false, NULL, 0},
    {1, 1, 2, 2, 1, "1f1b", false, NULL, 0},       {1, 2, 2, 2, 2, "zb-v", false, NULL, 0},
};
enum { N_ZERO_LAYOUTS = sizeof(ZERO_LAYOUTS) / sizeof(ZERO_LAYOUTS[0]) };

#endif
