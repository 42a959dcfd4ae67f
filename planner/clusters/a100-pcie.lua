-- A server of eight A100 PCIe, as rented one by one: no network is assumed between two, and no
-- NVLink bridges.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "a100-pcie",
  title = "One server of 8 x A100 PCIe 80 GB",
  source = "data sheet of A100",
  max_devices = 8,
  device = devices.a100_pcie,
  node = nodes.pcie4,
  storage = nodes.own_disk,
  failures = nodes.failures_a100,
  price = {
    per_device_hour = 1.5, currency = "USD",
    source = "between RunPod Community (1.19) and Secure (1.79), 2026-11-09",
  },
}
