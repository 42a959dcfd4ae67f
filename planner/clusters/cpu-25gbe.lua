-- Servers of 32 cores with 25 Gbit/s Ethernet, four ranks of eight cores each: processes that
-- mpirun, srun or torchrun start.
local cpu_nodes = require "cpu_nodes"

return cluster {
  name = "cpu-25gbe",
  title = "x86 servers, 4 ranks of 8 cores each, 25 GbE",
  source = "assumed",
  is_cpu = true,
  software = "perilune-cpu",
  device = cpu_nodes.device,
  node = cpu_nodes.node,
  network = cpu_nodes.ethernet(25),
}
