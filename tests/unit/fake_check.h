/* The end of a test on the fake of CUDA's libraries. */
#ifndef TESTS_UNIT_FAKE_CHECK_H
#define TESTS_UNIT_FAKE_CHECK_H

#include "runtime/cuda/driver/device.h"
#include "tests/support/fake_cuda.h"
#include "tests/unit/check.h"

/* Nothing is left behind, and the fake has nothing to say. */
static inline void end_fake(void) {
    cuda_api_replace(NULL);
    fake_cuda_check_leaks();
    CHECK(fake_cuda_n_defects() == 0, "%d defects: %s", fake_cuda_n_defects(),
          fake_cuda_n_defects() ? fake_cuda_defect(0) : "");
    fake_cuda_destroy();
}

#endif
