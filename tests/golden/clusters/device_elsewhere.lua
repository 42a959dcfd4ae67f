return cluster {
  name = "mine",
  device = require "mod_device",
  node = {
    n_devices = 8, switched = true,
    link_bytes_per_second = 300 * GB, link_fraction = 0.8, link_latency_us = 3,
  },
  network = {
    n_nics = 8, nic_bytes_per_second = 200 * Gbit, nic_fraction = 0.85, latency_us = 14,
  },
}
