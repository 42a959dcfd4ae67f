-- Devices that several clusters have: require "devices".
--
-- Peaks, memory and power are the makers' data sheets', dense, without sparsity. Fractions, ramps
-- and floors are what the best kernels reach.

-- NVIDIA A100 Tensor Core GPU data sheet, SXM4, 80 GB.
local a100_80gb = device {
  name = "A100-SXM4-80GB",
  peak_flops = { f32 = 19.5 * TFLOPS, bf16 = 312 * TFLOPS },
  product_fraction = { f32 = 0.90, bf16 = 0.85 },
  attention_fraction = 0.60, attention_backward_fraction = 0.50,
  memory_bytes = 80 * GiB, memory_usable = 0.95,
  memory_bytes_per_second = 2.039 * TB, memory_fraction = 0.85,
  n_units = 108, tile_m = 128, tile_n = 256,
  product_ramp_k = 64, memory_ramp_bytes = 2 * MiB, kernel_us = 3,
  power_watts = 400,
}

return {
  a100_80gb = a100_80gb,
}
