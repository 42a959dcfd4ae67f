-- A server of eight RTX 4090, as rented one by one: no network is assumed between two.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "rtx4090",
  title = "One server of 8 x RTX 4090 24 GB",
  source = "NVIDIA Ada GPU architecture, 2022",
  max_devices = 8,
  device = devices.rtx4090,
  node = nodes.pcie4_no_p2p,
  storage = nodes.own_disk,
  failures = nodes.failures_cards,
  price = {
    per_device_hour = 0.4, currency = "USD",
    source = "between OpenRelay (0.29, 2026-09-20) and RunPod (0.60, 2026-03)",
  },
}
