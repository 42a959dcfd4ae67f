-- Meta's Grand Teton with H100s of 96 GB of HBM2e, limited to 500 W, as torchtitan measured on.
-- Power goes about with the clock's cube (with voltage squared, and that with the clock), so the
-- peaks are the data sheet's times the cube root of 500 / 700: 0.894.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h100-500w",
  title = "H100 96 GB at 500 W, 8 x 400 Gbit/s",
  source = "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md; data sheet of H100",
  device = like(devices.h100, {
    name = "H100-96GB-500W",
    peak_flops = { f32 = 60 * TFLOPS, bf16 = 884 * TFLOPS, fp8 = 1769 * TFLOPS },
    memory_bytes = 96 * GiB, memory_bytes_per_second = 2.4 * TB, power_watts = 500,
  }),
  node = nodes.dgx_h100,
  network = nodes.ndr8,
  failures = nodes.failures_h100,
}
