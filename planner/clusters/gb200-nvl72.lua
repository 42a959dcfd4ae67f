-- GB200 NVL72: 72 devices in one NVLink domain, a 400 Gbit/s card for each between racks.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "gb200-nvl72",
  title = "GB200 NVL72, 72 x NDR InfiniBand a rack",
  source = "data sheet of GB200 NVL72, 2024",
  device = devices.gb200,
  node = nodes.nvl72,
  network = like(nodes.ndr8, { n_nics = 72 }),
}
