local devices = require "devices"

return cluster {
  name = "host_without_rate", max_devices = 1, device = devices.h100,
  node = { n_devices = 1, host_memory_bytes = 64 * GiB },
}
