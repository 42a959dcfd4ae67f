-- NVIDIA Selene: the machine of Narayanan et al., SC'21 (arXiv 2104.04473), and of Korthikanti et
-- al. 2022 (arXiv 2205.05198): 560 DGX A100 nodes in a three-level fat tree of full bisection.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "selene",
  title = "Selene: DGX A100-80GB, 8 x HDR InfiniBand",
  source = "arXiv 2104.04473, section 5; data sheets of A100 and DGX A100",
  max_devices = 4480,
  device = devices.a100_80gb,
  node = nodes.dgx_a100,
  network = nodes.hdr8,
  -- Section 5.10: all 384 nodes of the largest run together saved checkpoints at 273 GB/s.
  storage = {
    node_bytes_per_second = 273 * GB / 384, bytes_per_second = 273 * GB,
    source = "arXiv 2104.04473, section 5.10",
  },
  failures = nodes.failures_a100,
  -- One A100-80GB on demand: USD 1.49 to 2.49 an hour were asked early in 2026.
  price = { per_device_hour = 2.0, currency = "USD", source = "typical list price, early 2026" },
}
