-- Sparse mixture of experts: Llama's decoder with experts in place of its SwiGLU. With other
-- settings it is Mixtral (Jiang et al. 2024), Qwen 2 MoE, Qwen 3 MoE, OLMoE, DeepSeekMoE, GLM 4.5,
-- dots.llm1, ERNIE 4.5, MiniMax-M2, Granite 3's mixtures, Solar Open, EXAONE MoE or AFMoE.
--
--   perilune plan models/moe.lua --set size=mixtral-8x7b ...
local nn = require "nn"

return model {
  name = "moe",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 512, vocab = 256,
           experts = 8, expert_ffn = 128, shared_ffn = 128 },
  layers = 4,
  dense_layers = 0,   -- so many layers from the first on have a SwiGLU of `ffn` instead
  experts_every = 1,  -- each so manieth of the others has experts, and the rest that SwiGLU
  top_k = 2,          -- experts that a token goes to
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  scores = "softmax", -- of all experts; or sigmoid, of each
  normalize = true,   -- gates of a token sum to 1
  gate_scale = 1.0,
  groups = 1,         -- that experts lie in; a token's are in kept_groups of them, those whose two
  kept_groups = 1,    -- greatest scores sum to most
  bias = false,       -- of each expert, added to scores where experts are chosen, as in DeepSeek V3
  bias_rate = 1e-3,   -- what it changes by in a step, towards equal loads; 0: it stays
  shared = false,     -- one more expert, of shared_ffn, that all tokens meet
  shared_gate = false, -- times a sigmoid of the token, as in Qwen 2
  log_dropped = false, -- the share of choices that found no room is told of each step
  balance = 0.01,     -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  norm_eps = 1e-5,
  act = "silu",
  norms = "before",   -- of what each branch reads; or both: of what it adds, too, as in AFMoE
  attention_gate = false, -- attention's results are times a sigmoid, as in AFMoE
  qkv_bias = false,   -- biases of q, k and v, as in Qwen 2
  qk_norm = false,    -- rmsnorm of q and k
  qk_norm_over = "head", -- of each head, as in Qwen 3; all: of all together, as in OLMoE
  window = 0,         -- positions that each one attends to; 0: all
  window_layers = "W", -- over and over, W for a layer that has the window, F for one that sees all
  window_rotary = "same", -- or only: where there is a window, the others have no positions; both as
                      -- in EXAONE (WWWF)
  rotary_base = 10000.0,
  rotary_share = 1.0, -- of a head's numbers turn, the first ones, as in GLM 4.5
  rotary_scaling = "none", -- of frequencies, for longer contexts: yarn (models/gptoss.lua)
  rotary_factor = 4.0, rotary_few = 1.0, rotary_many = 32.0, rotary_context = 32768,
  -- What Granite multiplies: embeddings (0: by sqrt(model), as AFMoE), scores (0: by 1 /
  -- sqrt(head)), what branches add; and what logits are divided by.
  embedding_scale = 1.0, attention_scale = 0.0, residual_scale = 1.0, logit_divisor = 1.0,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of gate, up, down of dense layers; experts, shared; or all
  training = nn.training{ lora_targets = "q,k,v,o" },
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
    ["glm4.5-air"] = { layers = 46, dense_layers = 1, model = 4096, heads = 96, kv_heads = 8,
                       head = 128, ffn = 10944, expert_ffn = 1408, shared = true,
                       shared_ffn = 1408, experts = 128, top_k = 8, scores = "sigmoid",
                       bias = true, qkv_bias = true, rotary_base = 1e6, rotary_share = 0.5,
                       seq = 4096, vocab = 151552, balance = 0.0001 },
    ["glm4.5"] = { layers = 92, dense_layers = 3, model = 5120, heads = 96, kv_heads = 8,
                   head = 128, ffn = 12288, expert_ffn = 1536, shared = true, shared_ffn = 1536,
                   experts = 160, top_k = 8, scores = "sigmoid", bias = true, gate_scale = 2.5,
                   qkv_bias = true, qk_norm = true, rotary_base = 1e6, rotary_share = 0.5,
                   seq = 4096, vocab = 151552, balance = 0.0001 },
    dots1 = { layers = 62, dense_layers = 1, model = 4096, heads = 32, kv_heads = 32, ffn = 10944,
              expert_ffn = 1408, shared = true, shared_ffn = 2816, experts = 128, top_k = 6,
              scores = "sigmoid", bias = true, gate_scale = 2.5, qk_norm = true,
              rotary_base = 1e7, seq = 8192, vocab = 152064, balance = 0.0001 },
    ["ernie4.5-21b-a3b"] = { layers = 28, dense_layers = 1, model = 2560, heads = 20, kv_heads = 4,
                             ffn = 12288, expert_ffn = 1536, shared = true, shared_ffn = 3072,
                             experts = 64, top_k = 6, bias = true, rotary_base = 500000.0,
                             tied = true, seq = 8192, vocab = 103424, balance = 0.001 },
    ["minimax-m2"] = { layers = 62, model = 3072, heads = 48, kv_heads = 8, head = 128,
                       expert_ffn = 1536, experts = 256, top_k = 8, scores = "sigmoid",
                       bias = true, qk_norm = true, qk_norm_over = "all", norm_eps = 1e-6,
                       rotary_base = 5e6, rotary_share = 0.5, seq = 8192, vocab = 200064,
                       balance = 0.001 },
    ["granite3-1b-a400m"] = { layers = 24, model = 1024, heads = 16, kv_heads = 8,
                              expert_ffn = 512, experts = 32, top_k = 8, norm_eps = 1e-6,
                              tied = true, embedding_scale = 12.0, attention_scale = 0.015625,
                              residual_scale = 0.22, logit_divisor = 6.0, seq = 4096,
                              vocab = 49155, balance = 0.001 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if not (m.attention_scale >= 0) then error("attention_scale must be at least 0") end
    if m.norms ~= "before" and m.norms ~= "both" then
      error("norms is '" .. m.norms .. "'; it can be before or both")
    end
    if m.experts_every < 1 then error("experts_every must be 1, all layers, or more") end
    if m.rotary_scaling ~= "none" and m.rotary_share ~= 1 then
      error("rotary_scaling is for heads that turn wholly, rotary_share = 1")
    end
    if not m.window_layers:match("^[WF]+$") then
      error("window_layers is '" .. m.window_layers:sub(1, 40) .. "'; it is letters for layers: W "
        .. "for one with the window, F for one that sees all")
    end
    if m.window_rotary ~= "same" and m.window_rotary ~= "only" then
      error("window_rotary is '" .. m.window_rotary .. "'; it can be same or only")
    end
    local function has_window(i)
      local at = (i - 1) % #m.window_layers + 1
      return m.window ~= 0 and m.window_layers:sub(at, at) == "W"
    end
    local lora = nn.lora(m)
    local documents = nn.documents(m, tokens, m.documents)
    local rotary, stretch = nn.yarn(m, { axis = "head" })
    rotary.share = m.rotary_share
    local scale = m.attention_scale > 0 and m.attention_scale or 1 / math.sqrt(m.head)
    return nn.expert_decoder(m, tokens, labels, {
      attention = function(x, i)
        local turns = m.window == 0 or m.window_rotary == "same" or has_window(i)
        return nn.attention(m, x,
          { bias = m.qkv_bias, out_bias = false, qk_norm = m.qk_norm,
            qk_norm_over = m.qk_norm_over, norm_eps = m.norm_eps, gate = m.attention_gate,
            rotary = turns and rotary or nil, scale = scale * stretch,
            window = has_window(i) and m.window or nil, documents = documents, lora = lora })
      end,
      lora = lora,
      dense = function(i) return i % m.experts_every ~= 0 end,
      norms_after = m.norms == "both",
      embedding_scale = m.embedding_scale == 0 and math.sqrt(m.model) or m.embedding_scale,
      residual_scale = m.residual_scale,
      logit_divisor = m.logit_divisor,
      moe = { top_k = m.top_k, groups = m.groups, kept_groups = m.kept_groups, group_best = 2,
              capacity = m.capacity, scores = m.scores, normalize = m.normalize,
              scale = m.gate_scale, act = m.act, shared = m.shared, shared_gate = m.shared_gate,
              bias_rate = m.bias and m.bias_rate or nil, balance = m.balance, z = m.router_z,
              lora = lora },
    })
  end,
}
