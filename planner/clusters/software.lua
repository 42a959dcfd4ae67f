-- Software stacks: the habits of what issues the work. Perilune's own is the default; the others
-- are there to price published runs (`--software NAME`). Times are the host's, for one operation.

-- One captured graph a step: nothing is issued while it runs. f32 gradients, master weights and
-- both moments beside the bf16 copy; dropout masks are computed again.
local perilune = software {
  attention = "blockwise",
  overlaps_gradients = true, overlaps_pipeline = true, folds_epilogues = true,
  gradient_bytes = 4, state_bytes = 12,
}

-- On processors a rank's own core moves its messages: nothing overlaps. f32 throughout.
local perilune_cpu = software(like(perilune, {
  overlaps_gradients = false, overlaps_pipeline = false, folds_epilogues = false,
  state_bytes = 8,
}))

-- Megatron-LM of SC'21 (arXiv 2104.04473): fp16, scores in memory, operations issued one by one,
-- gradients reduced when the last backward pass has ended.
local megatron_2021 = software {
  attention = "materialised",
  forward_op_us = 6, backward_op_us = 6, collective_op_us = 15,
  scatters_borders = true, attention_dropout = true, keeps_masks = true,
  joins_products = true, recomputes_all = true,
  accumulate_bytes = 6, loss_forward_bytes = 38, loss_backward_bytes = 14,
  gradient_bytes = 2, state_bytes = 16, even_split = true,
}

-- Megatron-LM with sequence parallelism and selective recomputation (arXiv 2205.05198).
local megatron_2022 = software(like(megatron_2021, { accumulate_bytes = 0 }))

-- Megatron-DeepSpeed as for BLOOM (arXiv 2211.05100): bf16 with f32 gradients, ZeRO-1.
local megatron_deepspeed_2022 = software(like(megatron_2021, {
  gradient_bytes = 4, state_bytes = 12,
}))

-- Megatron-Core of 2024 with Transformer Engine: blockwise attention, reductions beside backward
-- passes, gradients in f32.
local megatron_core_2024 = software {
  attention = "blockwise",
  forward_op_us = 5, backward_op_us = 5, collective_op_us = 10,
  overlaps_gradients = true, overlaps_pipeline = true, overlaps_tensor = true,
  scatters_borders = true, keeps_masks = true, joins_products = true, recomputes_all = true,
  loss_forward_bytes = 38, loss_backward_bytes = 14,
  gradient_bytes = 4, state_bytes = 12, even_split = true,
}

return {
  perilune = perilune,
  ["perilune-cpu"] = perilune_cpu,
  ["megatron-2021"] = megatron_2021,
  ["megatron-2022"] = megatron_2022,
  ["megatron-deepspeed-2022"] = megatron_deepspeed_2022,
  ["megatron-core-2024"] = megatron_core_2024,
}
