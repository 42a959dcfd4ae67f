-- g5.48xlarge of AWS: eight A10G, 100 Gbit/s a server. The rate of the way to its processors is not
-- published, so none is stated, which --offload needs.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "a10g",
  title = "8 x A10G (AWS g5.48xlarge), 100 Gbit/s",
  source = "data sheet of A10G; AWS EC2 G5",
  device = devices.a10g,
  node = like(nodes.pcie4, { host_memory_bytes = 0, host_bytes_per_second = 0 }),
  network = like(nodes.hdr8, { n_nics = 1, nic_bytes_per_second = 100 * Gbit }),
  storage = nodes.own_disk,
  failures = nodes.failures_cards,
  price = {
    per_device_hour = 2.04, currency = "USD",
    source = "AWS g5.48xlarge in us-east-1, 16.288 USD an hour, early 2026",
  },
}
