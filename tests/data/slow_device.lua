-- DGX H200 whose devices take long for next to nothing: tiny models are worth dividing.
local devices = require "devices"
local nodes = require "nodes"

return cluster {
  name = "slow-device",
  device = device(like(devices.h200, { peak_flops = { f32 = 1e9, bf16 = 1e9, fp8 = 1e9 } })),
  node = nodes.dgx_h100,
  network = nodes.ndr8,
}
