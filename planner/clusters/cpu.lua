-- One server's processor: a rank is a thread with a core of its own, and a message is a copy. What
-- plans for the CPU are predicted on; `perilune profile` measures this machine's.
return cluster {
  name = "cpu",
  title = "One x86 server, a core for each rank",
  source = "assumed: an AVX-512 core with oneDNN",
  is_cpu = true,
  max_devices = 64,
  software = "perilune-cpu",

  device = device {
    name = "one x86 core",
    peak_flops = { f32 = 75 * 1e9 }, product_fraction = { f32 = 0.80 },
    attention_fraction = 0.50, attention_backward_fraction = 0.50,
    memory_bytes = 4 * GiB, memory_usable = 0.90,
    memory_bytes_per_second = 12.5 * GB, memory_fraction = 0.80,
    n_units = 1, kernel_us = 1,
  },
  node = {
    n_devices = 64, switched = true,
    link_bytes_per_second = 5 * GB, link_fraction = 1,
    link_latency_us = 5,
  },
}
