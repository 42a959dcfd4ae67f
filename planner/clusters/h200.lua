-- One H200.
local devices = require "devices"

return cluster {
  name = "h200",
  title = "One H200",
  source = "data sheet of H200",
  max_devices = 1,
  device = devices.h200,
  node = { n_devices = 1, host_memory_bytes = 256 * GiB, host_bytes_per_second = 63 * GB },
}
