-- Servers of eight L40S, 400 Gbit/s each (as g6e.48xlarge of AWS, or two 200 Gbit/s cards of an OVX
-- system).
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "l40s",
  title = "8 x L40S, 2 x 200 Gbit/s",
  source = "data sheet of L40S, 2023",
  device = devices.l40s,
  node = nodes.pcie4,
  network = like(nodes.hdr8, { n_nics = 2 }),
  storage = nodes.own_disk,
  failures = nodes.failures_cards,
  price = {
    per_device_hour = 1.0, currency = "USD",
    source = "RunPod: 0.99 an hour, 2026-09-20",
  },
}
