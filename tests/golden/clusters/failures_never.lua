local devices, nodes = require "devices", require "nodes"

return cluster {
  name = "failures_never", device = devices.h100, node = nodes.dgx_h100, network = nodes.ndr8,
  failures = { device_mtbf_hours = math.huge, restart_minutes = 5 },
}
