-- A server of eight H100 PCIe, as rented one by one: no network is assumed between two, and no
-- NVLink bridges.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h100-pcie",
  title = "One server of 8 x H100 PCIe 80 GB",
  source = "data sheet of H100",
  max_devices = 8,
  device = devices.h100_pcie,
  node = nodes.pcie5,
  storage = nodes.own_disk,
  failures = nodes.failures_h100,
  price = {
    per_device_hour = 2.5, currency = "USD",
    source = "between RunPod Community (1.99) and Secure (2.89), 2026-11-09",
  },
}
