-- DGX B300: eight B300 on NVSwitch, an 800 Gbit/s card (ConnectX-8) for each.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "b300-dgx",
  title = "DGX B300, 8 x XDR InfiniBand",
  source = "data sheets of HGX B300 and DGX B300, 2025",
  device = devices.b300,
  node = nodes.dgx_b200,
  network = like(nodes.ndr8, { nic_bytes_per_second = 800 * Gbit }),
  storage = nodes.superpod_storage,
  failures = nodes.failures_h200,
  price = {
    per_device_hour = 7.0, currency = "USD",
    source = "between Akash (6.00, 2026-09-20) and RunPod (7.89, 2026-08-19)",
  },
}
