-- Sparse mixture of experts: Llama's decoder with experts in place of its SwiGLU. With other
-- settings it is Mixtral (Jiang et al. 2024), Qwen 2 MoE, Qwen 3 MoE, OLMoE or DeepSeekMoE.
--
--   perilune plan models/moe.lua --set size=mixtral-8x7b ...
local nn = require "nn"

return model {
  name = "moe",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 512, vocab = 256,
           experts = 8, expert_ffn = 128, shared_ffn = 128 },
  layers = 4,
  dense_layers = 0,   -- so many layers from the first on have a SwiGLU of `ffn` instead
  top_k = 2,          -- experts that a token goes to
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  scores = "softmax", -- of all experts; or sigmoid, of each
  normalize = true,   -- gates of a token sum to 1
  gate_scale = 1.0,
  shared = false,     -- one more expert, of shared_ffn, that all tokens meet
  shared_gate = false, -- times a sigmoid of the token, as in Qwen 2
  log_dropped = false, -- the share of choices that found no room is told of each step
  balance = 0.01,     -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  norm_eps = 1e-5,
  act = "silu",
  qkv_bias = false,   -- biases of q, k and v, as in Qwen 2
  qk_norm = false,    -- rmsnorm of q and k
  qk_norm_over = "head", -- of each head, as in Qwen 3; all: of all together, as in OLMoE
  window = 0,         -- positions that each one attends to; 0: all
  rotary_base = 10000.0,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  masked = false,     -- the data say which labels count; else all do
  classes = "none",   -- or how many, or their names: data are texts of classes (nn.classify)
  preference = "none", -- or dpo, ipo, simpo, orpo, reward: pairs of answers (nn.preference)
  beta = 0.1, label_smoothing = 0.0, gamma = 0.0, -- of it
  policy = "none",    -- or grpo, dapo, dr_grpo, gspo: rewards of what it writes (nn.policy)
  clip = 0.2, clip_high = 0.0, kl = 0.0, -- of it
  lora = 0,           -- rank of adapters beside frozen weights (nn.lora); 0: none, all train
  lora_alpha = 0.0,   -- they count alpha / rank times; 0: once
  lora_rslora = false, -- alpha / sqrt(rank) times
  lora_dropout = 0.0, -- of what adapters read
  lora_targets = "q,k,v,o", -- of attention, and with dense layers gate, up, down
  size = "tiny",
  sizes = {
    tiny = {},
    -- From the models' configurations (config.json of their publishers)
    ["mixtral-8x7b"] = { layers = 32, model = 4096, heads = 32, kv_heads = 8, expert_ffn = 14336,
                         experts = 8, top_k = 2, seq = 8192, vocab = 32000, rotary_base = 1e6,
                         balance = 0.02 },
    ["qwen3-30b-a3b"] = { layers = 48, model = 2048, heads = 32, kv_heads = 4, head = 128,
                          expert_ffn = 768, experts = 128, top_k = 8, seq = 8192, vocab = 151936,
                          rotary_base = 1e6, norm_eps = 1e-6, qk_norm = true, balance = 0.001 },
    ["olmoe-1b-7b"] = { layers = 16, model = 2048, heads = 16, kv_heads = 16, expert_ffn = 1024,
                        experts = 64, top_k = 8, seq = 4096, vocab = 50304, normalize = false,
                        qk_norm = true, qk_norm_over = "all", balance = 0.01, router_z = 0.001 },
    ["deepseekmoe-16b"] = { layers = 28, dense_layers = 1, model = 2048, heads = 16, kv_heads = 16,
                            ffn = 10944, expert_ffn = 1408, shared = true, shared_ffn = 2816,
                            experts = 64, top_k = 6, seq = 4096, vocab = 102400,
                            normalize = false, norm_eps = 1e-6, balance = 0.001 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    return nn.expert_decoder(m, tokens, labels, {
      attention = function(x)
        return nn.attention(m, x,
          { bias = m.qkv_bias, out_bias = false, rotary = m.rotary_base, qk_norm = m.qk_norm,
            qk_norm_over = m.qk_norm_over, norm_eps = m.norm_eps,
            window = m.window ~= 0 and m.window or nil, documents = documents, lora = lora })
      end,
      lora = lora,
      moe = { top_k = m.top_k, capacity = m.capacity, scores = m.scores, normalize = m.normalize,
              scale = m.gate_scale, act = m.act, shared = m.shared, shared_gate = m.shared_gate,
              balance = m.balance, z = m.router_z },
    })
  end,
}
