-- DGX H100 SuperPOD: 8 x 400 Gbit/s NDR InfiniBand a node, rail-optimised, full bisection.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h100-dgx",
  title = "DGX H100, 8 x NDR InfiniBand",
  source = "data sheets of H100 and DGX H100",
  device = devices.h100,
  node = nodes.dgx_h100,
  network = nodes.ndr8,
  storage = nodes.superpod_storage,
  failures = nodes.failures_h100,
  -- One H100 on demand: USD 2.49 to 3.99 an hour were asked early in 2026.
  price = { per_device_hour = 3.0, currency = "USD", source = "typical list price, early 2026" },
}
