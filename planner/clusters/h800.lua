-- DeepSeek's cluster: H800s, which are H100s with 8 of 18 NVLinks.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "h800",
  title = "H800, 8 x NDR InfiniBand",
  source = "arXiv 2412.19437, section 3.2.2 (160 GB/s of NVLink and 50 GB/s of InfiniBand reached)",
  device = like(devices.h100, { name = "H800-SXM5-80GB" }),
  node = like(nodes.dgx_h100, { link_bytes_per_second = 200 * GB }),
  network = nodes.ndr8,
  failures = nodes.failures_h200,
}
