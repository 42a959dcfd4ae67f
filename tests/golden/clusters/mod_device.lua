-- Comments and strings that look like fields: memory_bytes = 1.
local other = { memory_bytes = 1, text = "memory_bytes = 2" }
return device {
  name = "memory_bytes = 3", --[[ memory_bytes = 4,
  ]] peak_flops = { f32 = 20 * TFLOPS }, product_fraction = { f32 = 0.9 },
  attention_fraction = 0.6, attention_backward_fraction = 0.5,
  ["memory_bytes"] =
    -80,
  memory_bytes_per_second = 2 * TB, memory_fraction = 0.85, n_units = other.memory_bytes,
}
