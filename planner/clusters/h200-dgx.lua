-- DGX H200: DGX H100 with more and faster memory.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h200-dgx",
  title = "DGX H200, 8 x NDR InfiniBand",
  source = "data sheets of H200 and DGX H200",
  device = devices.h200,
  node = nodes.dgx_h100,
  network = nodes.ndr8,
  storage = nodes.superpod_storage,
  failures = nodes.failures_h200,
  price = {
    per_device_hour = 4.0, currency = "USD",
    source = "3.50 to 4.50 at specialised clouds (mercatus-ai.com, 2026-05)",
  },
}
