-- A server of eight H100 NVL, as rented one by one: no network is assumed between two. Bridges join
-- two at 300 GB/s each way; all eight are as fast as PCIe, which is what counts here.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h100-nvl",
  title = "One server of 8 x H100 NVL 94 GB",
  source = "data sheet of H100",
  max_devices = 8,
  device = devices.h100_nvl,
  node = nodes.pcie5,
  storage = nodes.own_disk,
  failures = nodes.failures_h100,
  price = {
    per_device_hour = 2.9, currency = "USD",
    source = "between RunPod Community (2.59) and Secure (3.19), 2026-11-09",
  },
}
