-- One GH200: NVLink-C2C, 450 GB/s each way, to 480 GB of memory with 512 GB/s, of which reads and
-- writes have a half each.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "gh200",
  title = "One GH200 96 GB",
  source = "data sheet of GH200, 2023",
  max_devices = 1,
  device = devices.gh200,
  node = { n_devices = 1, host_memory_bytes = 480 * GB, host_bytes_per_second = 256 * GB },
  storage = nodes.own_disk,
  failures = nodes.failures_h200,
}
