-- Servers of 32 cores with 10 Gbit/s Ethernet, four ranks of eight cores each: processes that
-- mpirun, srun or torchrun start.
local cpu_nodes = require "cpu_nodes"

return cluster {
  name = "cpu-10gbe",
  title = "x86 servers, 4 ranks of 8 cores each, 10 GbE",
  source = "assumed",
  is_cpu = true,
  software = "perilune-cpu",
  device = cpu_nodes.device,
  node = cpu_nodes.node,
  network = cpu_nodes.ethernet(10),
}
