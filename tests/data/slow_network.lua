-- Nodes of 8 x H100 behind one card of 10 Gbit/s: messages between stages decide what is fastest.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "slow-network",
  device = devices.h100,
  node = nodes.dgx_h100,
  network = like(nodes.ndr8, { n_nics = 1, nic_bytes_per_second = 1.25e9, latency_us = 50 }),
}
