local devices, nodes = require "devices", require "nodes"

return cluster {
  name = "storage_node_over_all", device = devices.h100, node = nodes.dgx_h100, network = nodes.ndr8,
  storage = { node_bytes_per_second = 40 * GB, bytes_per_second = 20 * GB },
}
