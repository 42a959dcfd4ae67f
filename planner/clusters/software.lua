-- Software stacks: the habits of what issues the work. Perilune's own is the default; the others
-- are there to price published runs (`--software NAME`). Times are the host's, for one operation.

-- One captured graph a step: nothing is issued while it runs. f32 gradients, master weights and
-- both moments beside the bf16 copy; dropout masks are computed again. Backward, attention computes
-- scores and their gradients twice, for queries and for keys, so that sums have one order; on
-- Hopper once, where a mask is causal and hides nothing else. What NCCL's kernels take from compute
-- beside them is taken from Megatron-Core's runs below.
local perilune = software {
  attention = "blockwise", attention_backward_products = 7, attention_most_head = 256,
  own_attention = true,
  overlaps_gradients = true, overlaps_parameters = true, overlap_slowdown = 0.15,
  overlaps_pipeline = true,
  folds_epilogues = true, batches_products = true, joins_updates = true, gradient_bytes = 4,
  zero_stages = 3, splits_backward = true, overlaps_block = true, joins_messages = true,
  repeats_shards = true, fills_vocab = true, separate_messages = true,
}

-- On processors a rank's own core moves its messages: nothing overlaps. f32 throughout.
local perilune_cpu = software(like(perilune, {
  overlaps_gradients = false, overlaps_parameters = false, overlaps_pipeline = false,
  overlaps_block = false,
  folds_epilogues = false, batches_products = false, joins_updates = false, joins_messages = false,
  fills_vocab = false,
  attention_backward_products = 5, attention_most_head = 0, own_attention = false,
}))

-- Megatron-LM of SC'21 (arXiv 2104.04473): fp16, scores in memory, operations issued one by one,
-- gradients reduced when the last backward pass has ended. The host waits for the device after
-- every message between stages (torch.cuda.synchronize in its p2p_communication) and issues anew:
-- vTrain's rows with p = 2 and 4 are 1.3 and 2.3 % longer than those with p = 1 of the same blocks
-- say.
local megatron_2021 = software {
  attention = "materialised",
  forward_op_us = 20, backward_op_us = 15, collective_op_us = 15, message_stall_us = 200,
  scatters_borders = true, attention_dropout = true, keeps_masks = true,
  joins_products = true, recomputes_all = true,
  accumulate_bytes = 6, loss_forward_bytes = 38, loss_backward_bytes = 14,
  gradient_bytes = 2, even_split = true,
}

-- Megatron-LM with sequence parallelism and selective recomputation (arXiv 2205.05198): backward,
-- messages run beside the weights' gradients (section 4.2.2); gradients in f32, added by products.
local megatron_2022 = software(like(megatron_2021, {
  overlaps_tensor = true, tensor_backward_hidden = 0.4,
  gradient_bytes = 4, accumulate_bytes = 0,
}))

-- Megatron-DeepSpeed (2022 and 2023): its host is slow enough to show at 3072 wide and t = 8. Its
-- times are those of the one-node runs below; too few of several nodes are bound by their hosts.
local megatron_deepspeed_2022 = software(like(megatron_2021, {
  forward_op_us = 64, backward_op_us = 43, collective_skew_us = 50,
}))

-- The one-node runs published with vTrain (Bang et al. 2024, MICRO): exactly linear in blocks and
-- micro-batches, so put together from traces, whose overhead is in the host's times. What is in a
-- row beside its blocks (by differences of rows) says that the head's product is slow for want of
-- alignment with t = 1 and not at all with t > 1: the vocabulary is padded where it is divided.
-- The four times are of 707 rows, chosen for little error and for little regret, of times nearby,
-- too, and among all layouts that the rows' blocks allow. Fitted on the quarter of rows with a
-- hash of 0 modulo 4 (sha1 of L-h-t-p-d-b-B), for error alone, 66, 43, 50 and 400 give 5.1 % there,
-- 4.9 % on the others, and a regret of 0.9 %. Collectives stall where the device is as slow as its
-- host, and not where it waits for it anyway: blocks of 2048 with t = 4 are faster at micro-batch 2
-- than at 1, and then nearly twice as slow at 4.
local vtrain_traced = software(like(megatron_deepspeed_2022, {
  collective_op_us = 0, collective_stall_us = 360,
  loss_forward_bytes = 0, loss_backward_bytes = 0,
  share_multiple = 64,
}))

-- Megatron-Core of 2024 with Transformer Engine: blockwise attention, reductions beside backward
-- passes, gradients in f32. Embedding and head can count as layers where these are split
-- (account_for_embedding_in_pipeline_split, account_for_loss_in_pipeline_split).
local megatron_core_2024 = software {
  attention = "blockwise",
  forward_op_us = 5, backward_op_us = 5, collective_op_us = 10,
  overlaps_gradients = true, overlaps_parameters = true, overlap_slowdown = 0.15,
  overlaps_pipeline = true,
  overlaps_tensor = true, tensor_forward_hidden = 0.8, tensor_backward_hidden = 0.8,
  scatters_borders = true, keeps_masks = true, joins_products = true, recomputes_all = true,
  loss_forward_bytes = 38, loss_backward_bytes = 14,
  gradient_bytes = 4, even_split = true, counts_ends = true,
  -- Transformer Engine: experts' products one by one on num_cublas_streams = 4; on Hopper, whose
  -- fp8 products want both operands along rows, 2 bytes are read and 1 + 1 written.
  product_streams = 4, quantize_bytes = 4,
}

-- Of 2025, with attention made for Hopper: 1.5 to 2.0 times as fast as FlashAttention-2, which the
-- H100's fractions are like (arXiv 2407.08608, abstract: 35 % of its peak).
local megatron_core_2025 = software(like(megatron_core_2024, { attention_share = 1.5 }))

-- The same for mixtures of experts. The tensor axis' messages are not overlapped: none of
-- Megatron-MoE-ModelZoo's configurations asks for it. Layers may lie on stages as one likes
-- (--pipeline-model-parallel-layout).
local megatron_core_moe = software(like(megatron_core_2025, {
  overlaps_tensor = false, even_split = false, counts_ends = false,
}))

-- With DeepEP's dispatcher: its kernels send a token to each node once and hand it on over NVLink
-- (arXiv 2412.19437, section 3.2.2).
local megatron_core_deepep = software(like(megatron_core_moe, { exchange_once_a_node = true }))

-- And with all-to-alls beside another micro-batch's work (--overlap-moe-expert-parallel-comm).
-- What DeepEP's kernels take from it are 20 of 132 units: 0.15, as above.
local megatron_core_overlap = software(like(megatron_core_deepep, { exchange_hidden = 1 }))

-- DeepSeek's own (arXiv 2412.19437): DualPipe hides all-to-alls altogether; a token's experts are
-- on four nodes at most. Its attention is not known, and taken as the H100's.
local hai_llm = software(like(megatron_core_overlap, {
  exchange_most_nodes = 4, splits_backward = true, attention_share = 1,
}))

-- PyTorch's FullyShardedDataParallel as MosaicML measured it in 2023: gathers and reductions beside
-- the work, sums in f32; the first FlashAttention, which reaches 25 to 40 % of an A100's peak (Dao
-- 2023, arXiv 2307.08691, abstract): 0.6 of the 60 and 50 % above.
local fsdp_2023 = software(like(megatron_core_2024, {
  overlaps_tensor = false, attention_share = 0.6, zero_stages = 3, counts_ends = false,
}))
-- The same with sums in bf16 (FSDP's mixed precision PURE).
local fsdp_2023_pure = software(like(fsdp_2023, { gradient_bytes = 2 }))

-- torchtitan (2024): FSDP2, torch.compile; tensor parallelism as it comes, messages in the way.
local torchtitan_2024 = software(like(megatron_core_2024, {
  overlaps_tensor = false, zero_stages = 3, counts_ends = false,
}))

return {
  perilune = perilune,
  ["perilune-cpu"] = perilune_cpu,
  ["megatron-2021"] = megatron_2021,
  ["megatron-2022"] = megatron_2022,
  ["megatron-deepspeed-2022"] = megatron_deepspeed_2022,
  ["vtrain-traced"] = vtrain_traced,
  ["megatron-core-2024"] = megatron_core_2024,
  ["megatron-core-2025"] = megatron_core_2025,
  ["megatron-core-moe"] = megatron_core_moe,
  ["megatron-core-deepep"] = megatron_core_deepep,
  ["megatron-core-overlap"] = megatron_core_overlap,
  ["hai-llm"] = hai_llm,
  ["fsdp-2023"] = fsdp_2023,
  ["fsdp-2023-pure"] = fsdp_2023_pure,
  ["torchtitan-2024"] = torchtitan_2024,
}
