return cluster {
  name = "mine",
  device = device {
    name = "one",
    peak_flops = { f32 = 20 * TFLOPS, bf16 = 300 * TFLOPS },
    product_fraction = { f32 = 0.9, bf16 = 0.8 },
    attention_fraction = 0.6, attention_backward_fraction = 0.5,
    memory_bytes = "80 GB",
    memory_bytes_per_second = 2 * TB, memory_fraction = 0.85,
    n_units = 108,
  },
  node = {
    n_devices = 8, switched = true,
    link_bytes_per_second = 300 * GB, link_fraction = 0.8, link_latency_us = 3,
  },
  network = {
    n_nics = 8, nic_bytes_per_second = 200 * Gbit, nic_fraction = 0.85, latency_us = 14,
  },
}
