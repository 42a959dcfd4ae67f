-- Devices that several clusters have: `local devices = require "devices"`.
--
-- Peaks (dense, without sparsity), memory, its rate and power are the makers' data sheets'.
-- Fractions, ramps and floors are what kernels reach. The A100's were fitted on a quarter of
-- vTrain's runs and on three each of SC'21 and of Korthikanti et al., then adjusted by hand with
-- all of those in view; the H100's by hand on Megatron-LM's table.

-- NVIDIA A100 Tensor Core GPU, data sheet of 2021: SXM4, 80 GB.
local a100_80gb = device {
  name = "A100-SXM4-80GB",
  peak_flops = { f32 = 19.5 * TFLOPS, bf16 = 312 * TFLOPS },
  product_fraction = { f32 = 0.90, bf16 = 0.82 },
  attention_fraction = 0.60, attention_backward_fraction = 0.50,
  memory_bytes = 80 * GiB, memory_usable = 0.95,
  memory_bytes_per_second = 2.039 * TB, memory_fraction = 0.74,
  n_units = 108, tile_m = 128, tile_n = 256,
  product_ramp_k = 250, memory_ramp_bytes = 5 * MiB, kernel_us = 3.3,
  power_watts = 400,
}

-- The same chip as it came first, data sheet of 2020.
local a100_40gb = device(like(a100_80gb, {
  name = "A100-SXM4-40GB",
  memory_bytes = 40 * GiB, memory_bytes_per_second = 1.555 * TB,
}))

-- NVIDIA H100 Tensor Core GPU, data sheet of 2023: SXM5, 80 GB HBM3.
local h100 = device {
  name = "H100-SXM5-80GB",
  peak_flops = { f32 = 67 * TFLOPS, bf16 = 989 * TFLOPS, fp8 = 1979 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.62, fp8 = 0.62 },
  fp8_blocks = true,
  attention_fraction = 0.40, attention_backward_fraction = 0.32,
  -- The H200's, of the same chip, in steps at its cap of 700 W (tests/bench/RESULTS.md).
  own_attention_fraction = 0.45, own_attention_backward_fraction = 0.386,
  memory_bytes = 80 * GiB, memory_usable = 0.95,
  memory_bytes_per_second = 3.35 * TB, memory_fraction = 0.80,
  n_units = 132, tile_m = 128, tile_n = 256,
  product_ramp_k = 250, memory_ramp_bytes = 8 * MiB, kernel_us = 3,
  power_watts = 700,
}

-- NVIDIA H200 Tensor Core GPU, data sheet of 2024: the same chip with 141 GB of HBM3e. Fractions as
-- steps of training ran on one at its cap of 700 W (tests/bench/RESULTS.md, 2026-11-27): products
-- alone and for a moment reach 80 %.
local h200 = device(like(h100, {
  name = "H200-SXM5-141GB",
  product_fraction = { f32 = 0.80, bf16 = 0.72, fp8 = 0.62 },
  memory_bytes = 141 * GiB, memory_bytes_per_second = 4.8 * TB, memory_fraction = 0.84,
  kernel_us = 2,
}))

-- NVIDIA GB200 NVL72, data sheet of 2024, by 72: 360 PFLOPS of bf16 and 720 of fp8 with sparsity
-- are half of that without; 13.4 TB and 576 TB/s of memory.
local gb200 = device {
  name = "GB200-186GB",
  peak_flops = { f32 = 80 * TFLOPS, bf16 = 2500 * TFLOPS, fp8 = 5000 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.70, fp8 = 0.60 },
  attention_fraction = 0.45, attention_backward_fraction = 0.35,
  memory_bytes = 186 * GB, memory_usable = 0.95,
  memory_bytes_per_second = 8 * TB, memory_fraction = 0.88,
  n_units = 148, tile_m = 256, tile_n = 256,
  product_ramp_k = 192, memory_ramp_bytes = 8 * MiB, kernel_us = 3,
  power_watts = 1200,
}

return {
  a100_40gb = a100_40gb, a100_80gb = a100_80gb, h100 = h100, h200 = h200, gb200 = gb200,
}
