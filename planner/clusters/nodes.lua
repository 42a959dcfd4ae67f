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

-- DGX B200, DGX B300: NVSwitch of the fifth generation, 1.8 TB/s both directions; its fraction and
-- latencies are taken from the DGX H100. 16 lanes of PCIe 5.0 for each device; DGX B200 has 2 TB.
local dgx_b200 = like(dgx_h100, { link_bytes_per_second = 900 * GB })

-- Cards in a server without NVLink: 16 lanes of PCIe each, of which NCCL reckons 24 GB/s with 4.0
-- and 48 with 5.0 (src/graph/topo.h: 12 of 3.0). Groups that lie apart share the way between the
-- processors. Steps take 1 us (NVLink's 0.6 in the same table, src/graph/tuning.cc).
local pcie4 = {
  n_devices = 8, switched = false,
  link_bytes_per_second = 31.5 * GB, link_fraction = 24 / 31.5,
  link_latency_us = 1, collective_base_us = 40, link_ramp_bytes = 64 * KiB,
  host_memory_bytes = 512 * GiB, host_bytes_per_second = 31.5 * GB,
}
local pcie5 = like(pcie4, {
  link_bytes_per_second = 63 * GB, link_fraction = 48 / 63, host_bytes_per_second = 63 * GB,
})
-- GeForce cards do not read each other's memory: what one sends goes through the processors', and
-- NCCL reckons 10 to 16 GB/s of that way (the same file: SKL_QPI_BW, AMD_BW).
local pcie4_no_p2p = like(pcie4, { link_fraction = 10 / 31.5 })

-- InfiniBand HDR, 200 Gbit/s, a card for each device.
local hdr8 = {
  n_nics = 8,
  nic_bytes_per_second = 200 * Gbit, nic_fraction = 0.86,
  latency_us = 14, ramp_bytes = 0,
}

-- InfiniBand NDR, 400 Gbit/s, a card for each device.
local ndr8 = like(hdr8, { nic_bytes_per_second = 400 * Gbit, ramp_bytes = 512 * KiB })

-- What a scalable unit of a DGX SuperPOD, 32 nodes, writes to its storage ("better" of three
-- levels), and four of them four times as fast; one node alone 4 GB/s.
local superpod_storage = {
  node_bytes_per_second = 4 * GB, bytes_per_second = 20 * GB, n_nodes = 32,
  source = "NVIDIA RA-11333-001 V11 (DGX SuperPOD with H100), table 6",
}

-- A server that is rented alone writes to a disk of its own.
local own_disk = {
  node_bytes_per_second = 2 * GB, source = "assumed: one NVMe disk of a server writes 2 GB/s",
}

-- Failures that end runs, as two machines counted them, by device and hour: 6.50 a thousand days of
-- a node of eight A100s (RSC-1, 11 months, 16,000 devices; the younger RSC-2 had 2.34), and 419 in
-- 54 days of Llama 3 405B on 16,384 H100s. Both are of all causes: devices, network, hosts,
-- software. OPT-175B (arXiv 2205.01068, section 2.5) had at least 35 + 70 restarts in two months on
-- 992 A100s, twice as many for each device as RSC-1.
local failures_a100 = {
  device_mtbf_hours = 8 * 24 * 1000 / 6.50,
  source = "arXiv 2410.21680: 6.50 in a thousand node-days of RSC-1",
}
local failures_h100 = {
  device_mtbf_hours = 54 * 24 * 16384 / 419,
  source = "arXiv 2407.21783, table 5: 419 in 54 days on 16,384 H100s",
}
-- Of the same chip or later ones; nobody has counted them in public.
local failures_h200 = like(failures_h100, { source = "assumed to be the H100's" })
-- Of cards in servers; likewise.
local failures_cards = like(failures_a100, { source = "assumed to be the A100's" })

return {
  dgx_a100 = dgx_a100, dgx_h100 = dgx_h100, dgx_b200 = dgx_b200, nvl72 = nvl72,
  pcie4 = pcie4, pcie5 = pcie5, pcie4_no_p2p = pcie4_no_p2p, hdr8 = hdr8, ndr8 = ndr8,
  superpod_storage = superpod_storage, own_disk = own_disk, failures_cards = failures_cards,
  failures_a100 = failures_a100, failures_h100 = failures_h100, failures_h200 = failures_h200,
}
