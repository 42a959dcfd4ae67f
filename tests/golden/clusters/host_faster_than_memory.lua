local devices = require "devices"

return cluster {
  name = "host_faster_than_memory", max_devices = 1, device = devices.h100,
  node = { n_devices = 1, host_memory_bytes = 64 * GiB, host_bytes_per_second = 5 * TB },
}
