local devices = require "devices"

return cluster {
  name = "host_without_memory", max_devices = 1, device = devices.h100,
  node = { n_devices = 1, host_bytes_per_second = 50 * GB },
}
