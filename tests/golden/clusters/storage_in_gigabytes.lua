local devices, nodes = require "devices", require "nodes"

return cluster {
  name = "storage_in_gigabytes", device = devices.h100, node = nodes.dgx_h100, network = nodes.ndr8,
  storage = { bytes_per_second = 20 },
}
