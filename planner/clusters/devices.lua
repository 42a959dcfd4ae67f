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

-- Those below were derived from the ones above, and nothing of them was measured for this file but
-- where it says so: peaks (dense), memory, its rate, units and power are data sheets' again.
--
-- The same chip at less power: products reach what the H100's reach, times units, times the cube
-- root of the watts that a unit has (as h100-500w.lua says), by the card's own peak:
-- 613 * 114 / 132 * (350 / 114 / (700 / 132)) ^ (1 / 3) = 441 of 756, and 511 of 835. Attention's
-- fractions fall with the products'.

-- NVIDIA H100 PCIe, data sheet of 2023: 80 GB of HBM2e, 350 W.
local h100_pcie = device(like(h100, {
  name = "H100-PCIe-80GB",
  peak_flops = { f32 = 51 * TFLOPS, bf16 = 756 * TFLOPS, fp8 = 1513 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.58, fp8 = 0.58 },
  attention_fraction = 0.37, attention_backward_fraction = 0.30,
  own_attention_fraction = 0.42, own_attention_backward_fraction = 0.36,
  memory_bytes_per_second = 2.0 * TB, n_units = 114, power_watts = 350,
}))

-- NVIDIA H100 NVL, data sheet of 2023, one of a pair: 94 GB of HBM3, 350 to 400 W.
local h100_nvl = device(like(h100, {
  name = "H100-NVL-94GB",
  peak_flops = { f32 = 60 * TFLOPS, bf16 = 835 * TFLOPS, fp8 = 1671 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.61, fp8 = 0.61 },
  memory_bytes = 94 * GiB, memory_bytes_per_second = 3.9 * TB, power_watts = 400,
}))

-- NVIDIA GH200, data sheet of 2023: the H200's chip with 96 GB of HBM3. Products alone reach 83.0 %
-- there and 80.1 % on an H100 (stas00/ml-engineering, compute/accelerator, MAMF); in steps the
-- H200's share is taken. 1,000 W are of both chips.
local gh200 = device(like(h200, {
  name = "GH200-96GB",
  memory_bytes = 96 * GiB, memory_bytes_per_second = 4.0 * TB, power_watts = 1000,
}))

-- NVIDIA A100 PCIe, data sheet of 2021: 80 GB, 300 W. Products alone reach 82.2 % there, where SXM
-- reaches 85.9 % (MAMF, as above): 0.82 times their ratio.
local a100_pcie = device(like(a100_80gb, {
  name = "A100-PCIe-80GB", product_fraction = { f32 = 0.90, bf16 = 0.78 },
  memory_bytes_per_second = 1.935 * TB, power_watts = 300,
}))

-- NVIDIA B200 in HGX and DGX, data sheet of 2024, by eight: 36 PFLOPS of bf16 and 72 of fp8 with
-- sparsity are half of that without; 600 TFLOPS of f32. nvidia-smi shows 183,359 MiB of the
-- 180 GB. Products alone reach 77.6 % (80.3 % on an H200; MAMF, as above): times the H200's 0.72 /
-- 0.803 in steps, this is what the GB200's 0.70 says.
local b200 = device(like(gb200, {
  name = "B200-SXM6-180GB",
  peak_flops = { f32 = 75 * TFLOPS, bf16 = 2250 * TFLOPS, fp8 = 4500 * TFLOPS },
  memory_bytes = 179 * GiB, power_watts = 1000,
}))

-- NVIDIA B300 in HGX and DGX, data sheet of 2025: the B200's rates (4 bits apart) with 288 GB, of
-- which nvidia-smi shows 275,040 MiB; 1,100 W.
local b300 = device(like(b200, {
  name = "B300-SXM6-288GB", memory_bytes = 268.6 * GiB, power_watts = 1100,
}))

-- sm_86 and sm_89: cubins of sm_80 run there, with a block's 99 KiB of shared memory instead of
-- 163: own attention of heads over 64 has no gradient there, cuDNN's has. Rates are the A100's
-- fractions, whose mma.sync is theirs, tiles what fits 99 KiB. GDDR6's ECC takes a sixteenth.

-- NVIDIA L40S, data sheet of 2023: 48 GB, 350 W. Products: assumed, less than the A100's 0.82, as
-- its tensor cores are twice a GeForce's with less power; attention likewise. fp8 has a rate, but
-- none with a scale for 128 numbers, so Perilune's operands are widened to bf16.
local l40s = device(like(a100_80gb, {
  name = "L40S-48GB",
  peak_flops = { f32 = 91.6 * TFLOPS, bf16 = 362 * TFLOPS, fp8 = 733 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.70, fp8 = 0.70 },
  attention_fraction = 0.51, attention_backward_fraction = 0.43,
  memory_bytes = 48 * GiB, memory_usable = 0.89, memory_bytes_per_second = 0.864 * TB,
  n_units = 142, tile_n = 128, memory_ramp_bytes = 2 * MiB, kernel_us = 3, power_watts = 350,
}))

-- NVIDIA GeForce RTX 4090, Ada white paper of 2022: 24 GB, 450 W. Sums in f32, as ours are, have
-- half the rate of sums in f16 on a GeForce.
local rtx4090 = device(like(l40s, {
  name = "RTX-4090-24GB",
  peak_flops = { f32 = 82.6 * TFLOPS, bf16 = 165.2 * TFLOPS, fp8 = 330.3 * TFLOPS },
  product_fraction = { f32 = 0.80, bf16 = 0.82, fp8 = 0.82 },
  attention_fraction = 0.60, attention_backward_fraction = 0.50,
  memory_bytes = 24 * GiB, memory_usable = 0.95, memory_bytes_per_second = 1.008 * TB,
  n_units = 128, power_watts = 450,
}))

-- NVIDIA A10G (sm_86, AWS' own variant of the A10), data sheet of 2021: 24 GB, 300 W; 80 units, as
-- CUDA says. No fp8.
local a10g = device(like(a100_80gb, {
  name = "A10G-24GB",
  peak_flops = { f32 = 35 * TFLOPS, bf16 = 70 * TFLOPS },
  memory_bytes = 24 * GiB, memory_usable = 0.89, memory_bytes_per_second = 0.6 * TB,
  n_units = 80, tile_n = 128, memory_ramp_bytes = 1.5 * MiB, power_watts = 300,
}))

return {
  a100_40gb = a100_40gb, a100_80gb = a100_80gb, h100 = h100, h200 = h200, gb200 = gb200,
  h100_pcie = h100_pcie, h100_nvl = h100_nvl, gh200 = gh200, a100_pcie = a100_pcie, b200 = b200,
  b300 = b300, l40s = l40s, rtx4090 = rtx4090, a10g = a10g,
}
