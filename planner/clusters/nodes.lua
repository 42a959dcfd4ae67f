-- What several clusters' nodes and networks have in common: `local nodes = require "nodes"`.
--
-- Link rates are the data sheets', halved where those count both directions. The A100 node's
-- latencies and fraction fit the all-reduces of 2 to 8 GPUs that vTrain publishes (6 % off on
-- average); the networks' are those of NCCL's own model (its src/graph/tuning.cc, protocol Simple).
--
-- A node's own memory, for --offload: the data sheets' bus for each device, one direction, and a
-- fraction that is assumed, as nothing here was measured.

-- DGX A100: NVSwitch, 600 GB/s a device, both directions together; two devices share 16 lanes of
-- PCIe 4.0 to the processors.
local dgx_a100 = {
  n_devices = 8, switched = true,
  link_bytes_per_second = 300 * GB, link_fraction = 0.72,
  link_latency_us = 0.6, collective_base_us = 40, link_ramp_bytes = 256 * KiB,
  host_memory_bytes = 1024 * GiB, host_bytes_per_second = 15.75 * GB,
}

-- DGX H100, DGX H200: NVSwitch with sums in the switch (NVLS), 900 GB/s both directions; 16 lanes
-- of PCIe 5.0 for each device.
local dgx_h100 = {
  n_devices = 8, switched = true, reduces_in_switch = true,
  link_bytes_per_second = 450 * GB, link_fraction = 0.80,
  link_latency_us = 0.6, collective_base_us = 20, link_ramp_bytes = 512 * KiB,
  host_memory_bytes = 2048 * GiB, host_bytes_per_second = 63 * GB,
}

-- GB200 NVL72: one rack of 72 devices is one NVLink domain, 1.8 TB/s both directions. Two devices
-- share a Grace processor: NVLink-C2C, 450 GB/s each way, to 480 GB of memory with 512 GB/s, of
-- which reads and writes of two devices have a quarter each.
local nvl72 = like(dgx_h100, {
  n_devices = 72, link_bytes_per_second = 900 * GB,
  host_memory_bytes = 36 * 480 * GB, host_bytes_per_second = 128 * GB,
})

-- InfiniBand HDR, 200 Gbit/s, a card for each device.
local hdr8 = {
  n_nics = 8,
  nic_bytes_per_second = 200 * Gbit, nic_fraction = 0.86,
  latency_us = 14, ramp_bytes = 0,
}

-- InfiniBand NDR, 400 Gbit/s, a card for each device.
local ndr8 = like(hdr8, { nic_bytes_per_second = 400 * Gbit, ramp_bytes = 512 * KiB })

return {
  dgx_a100 = dgx_a100, dgx_h100 = dgx_h100, nvl72 = nvl72, hdr8 = hdr8, ndr8 = ndr8,
}
