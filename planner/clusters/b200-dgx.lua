-- DGX B200: eight B200 on NVSwitch, a 400 Gbit/s card for each.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "b200-dgx",
  title = "DGX B200, 8 x NDR InfiniBand",
  source = "data sheets of HGX B200 and DGX B200, 2024",
  device = devices.b200,
  node = nodes.dgx_b200,
  network = nodes.ndr8,
  storage = nodes.superpod_storage,
  failures = nodes.failures_h200,
  price = {
    per_device_hour = 6.0, currency = "USD",
    source = "between Akash (5.00) and Lambda (6.69), pages read 2026-09-20",
  },
}
