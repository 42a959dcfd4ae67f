/* The step's beginning: state and inputs from staging. */
#include "runtime/cuda/kernels/device.cuh"

KERNEL_FUNCTION begin_step(BeginStepArgs a) {
    uint64_t launches = a.state->launches + 1;
    uint32_t slot = (uint32_t)(launches % STAGING_SLOTS);
    *a.state = *(const DeviceState *)(a.staging + slot * a.slot_bytes);
    a.state->launches = launches;
    a.state->slot = slot;
}

KERNEL_FUNCTION copy_input(CopyInputArgs a) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int32_t *from =
        (const int32_t *)(a.staging + a.state->slot * a.slot_bytes + a.offset_bytes);
    if (i >= a.count) return;
    int64_t row = i / a.width, at = i - row * a.width;
    a.to[row * a.to_pitch + at] = from[row * a.pitch + at];
}

KERNEL_FUNCTION mark_progress(MarkProgressArgs a) {
    *(volatile uint32_t *)a.word = a.value;
}

KERNEL_FUNCTION copy_scalar(CopyScalarArgs a) {
    switch (a.which) {
    case SCALAR_STEP: *a.to = a.state->step_f32; break;
    case SCALAR_MOST_NORM: *a.to = a.state->most_norm_squared; break;
    case SCALAR_LABEL_SHARE: *a.to = a.state->label_share; break;
    default: *a.to = a.state->learning_rate;
    }
}
