-- Servers for plans of several processes on CPUs: `local cpu_nodes = require "cpu_nodes"`.
--
-- Assumed, not measured: a server of 32 AVX-512 cores and 256 GiB in four parts (a NUMA domain or a
-- quarter of a socket each), a rank on each, as `mpirun --map-by slot:PE=8` starts them.

local device = device {
  name = "8 x86 cores",
  peak_flops = { f32 = 8 * 75 * 1e9 }, product_fraction = { f32 = 0.75 },
  attention_fraction = 0.50, attention_backward_fraction = 0.50,
  memory_bytes = 64 * GiB, memory_usable = 0.90,
  memory_bytes_per_second = 45 * GB, memory_fraction = 0.80,
  n_units = 1, kernel_us = 5,
}

-- Between processes of one server: shared memory, a copy into a ring and one out of it.
local node = {
  n_devices = 4, switched = true,
  link_bytes_per_second = 4 * GB, link_fraction = 1,
  link_latency_us = 10,
}

-- Ethernet of so many Gbit/s, one port a server, TCP over it.
local function ethernet(rate)
  return {
    n_nics = 1, nic_bytes_per_second = rate * Gbit, nic_fraction = 0.90,
    latency_us = 40, ramp_bytes = 64 * KiB,
  }
end

return { device = device, node = node, ethernet = ethernet }
