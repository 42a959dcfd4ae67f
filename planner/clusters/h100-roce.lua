-- The machine that Llama 3 405B was trained on (arXiv 2407.21783, section 3.3.1): 24,576 H100 in
-- nodes of eight, 400 Gbit/s RoCE a device. Pods of 3,072 devices have full bisection; above them
-- the network is oversubscribed 1:7.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h100-roce",
  title = "8 x H100, 8 x 400 Gbit/s RoCE (as for Llama 3)",
  source = "arXiv 2407.21783, section 3.3.1; data sheet of H100",
  max_devices = 24576,
  device = devices.h100,
  node = nodes.dgx_h100,
  -- Layouts and job placement kept traffic inside pods, so bisection counts as full here; a job
  -- that cannot should say `oversubscription = 7`.
  network = like(nodes.ndr8, { nic_fraction = 0.80 }),
  -- Section 3.3.1 has 2 TB/s that storage keeps up, and 7 TB/s at most.
  storage = { bytes_per_second = 2 * TB, source = "arXiv 2407.21783, section 3.3.1" },
  failures = nodes.failures_h100,
  price = { per_device_hour = 3.0, currency = "USD", source = "typical list price, early 2026" },
}
