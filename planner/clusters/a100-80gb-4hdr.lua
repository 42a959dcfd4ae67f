-- The machine of vTrain's measurements (Bang et al., MICRO 2024, arXiv 2312.12391): nodes of eight
-- A100-80GB with four HDR cards, 800 Gbit/s a node.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "a100-80gb-4hdr",
  title = "8 x A100-80GB, 4 x HDR InfiniBand",
  source = "arXiv 2312.12391; data sheets of A100 and HGX A100",
  device = devices.a100_80gb,
  node = nodes.dgx_a100,
  network = like(nodes.hdr8, { n_nics = 4 }),
  failures = nodes.failures_a100,
  price = { per_device_hour = 2.0, currency = "USD", source = "typical list price, early 2026" },
}
