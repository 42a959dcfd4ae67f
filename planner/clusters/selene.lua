-- NVIDIA Selene: the machine of Narayanan et al., SC'21 (arXiv 2104.04473), and of Korthikanti et
-- al. 2022 (arXiv 2205.05198): DGX A100-80GB nodes in a full-bisection fat tree.
local devices = require "devices"

return cluster {
  name = "selene",
  title = "Selene: DGX A100-80GB, 8 x HDR InfiniBand",
  source = "arXiv 2104.04473, section 5; DGX A100 data sheet",
  max_devices = 4480,

  device = devices.a100_80gb,
  node = {
    n_devices = 8, switched = true,           -- NVSwitch: 600 GB/s, both directions together
    link_bytes_per_second = 300 * GB, link_fraction = 0.78,
    link_latency_us = 3.4, collective_base_us = 8.4, link_ramp_bytes = 256 * KiB,
  },
  network = {
    n_nics = 8, rail_optimised = true,        -- HDR
    nic_bytes_per_second = 200 * Gbit, nic_fraction = 0.85,
    latency_us = 14, ramp_bytes = 256 * KiB,
  },
  -- USD 1.49 to 2.49 an hour were asked for one A100-80GB on demand early in 2026.
  price = { per_device_hour = 2.0, currency = "USD", source = "typical list price, early 2026" },
}
