-- DGX A100 as it came first: 40 GB a device, 8 x HDR for computing.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "a100-40gb",
  title = "DGX A100-40GB, 8 x HDR InfiniBand",
  source = "data sheets of A100 and DGX A100, 2020",
  device = devices.a100_40gb,
  node = nodes.dgx_a100,
  network = nodes.hdr8,
  failures = nodes.failures_a100,
}
