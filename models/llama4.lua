-- Llama 4's text model (Meta 2025): each token goes to one expert, which reads the token times a
-- sigmoid of its score, and to one that all share. Each fourth layer has no rotary positions, but
-- queries times a temperature; the others attend within chunks, of which this is one: `seq` is at
-- most `chunk`.
--
--   perilune plan models/llama4.lua --set size=scout ...
local nn = require "nn"

return model {
  name = "llama4",
  axes = { seq = 64, model = 128, heads = 4, kv_heads = 2, ffn = 512, vocab = 256,
           experts = 4, expert_ffn = 192 },
  layers = 4,
  pattern = "E",      -- kinds of layers, over and over: E, experts and a shared one, both of
                      -- expert_ffn; D, a SwiGLU of ffn
  capacity = 1.25,    -- tokens that an expert takes of a sequence, of its even share; 0: all
  balance = 0.001,    -- weight of the load-balancing loss of each sequence
  router_z = 0.0,     -- weight of the router's z-loss
  log_dropped = false, -- the share of tokens that found no room is told of each step
  norm_eps = 1e-5,
  act = "silu",
  qk_norm = true,     -- rmsnorm of q and k without gains, where positions are rotary
  rotary_base = 500000.0,
  rotary_skip = 4,    -- each so manieth layer has no positions; 0: all have
  rotary_scaling = "none", -- of frequencies, for longer contexts: llama3 (models/llama.lua)
  rotary_factor = 16.0, rotary_few = 1.0, rotary_many = 1.0, rotary_context = 8192,
  chunk = 8192,       -- positions within which layers with positions attend; 0: all
  temperature = true, -- of layers without: 1 + temperature_scale log(1 + how often
  temperature_scale = 0.1,  -- temperature_every tokens were before)
  temperature_every = 8192,
  tied = false,       -- the output shares the embedding's table
  dropout = 0.0,      -- of the embeddings and of each residual branch; not inside attention
  documents = -1,     -- the token that ends one: attention stays within each; -1: none
  -- What else it can be trained for: classes, preferences, rewards; by adapters (nn.training), too
  -- of gate, up, down of dense layers; experts, shared; or all
  training = nn.training{ lora_targets = "q,k,v,o" },
  size = "tiny",
  sizes = {
    tiny = {},
    -- From the models' configurations; sequences of the first training, without rotary_scaling
    scout = { layers = 48, model = 5120, heads = 40, kv_heads = 8, head = 128, expert_ffn = 8192,
              experts = 16, seq = 8192, vocab = 202048 },
    maverick = { pattern = "DE", layers = 48, model = 5120, heads = 40, kv_heads = 8, head = 128,
                 ffn = 16384, expert_ffn = 8192, experts = 128, qk_norm = false, seq = 8192,
                 vocab = 202048 },
  },
  optimizer = {
    kind = "adamw", lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1,
    max_norm = 1.0,
  },

  loss = function(m, tokens, labels)
    if not m.pattern:match("^[ED]+$") then
      error("pattern is '" .. m.pattern:sub(1, 40) .. "'; it is letters for layers: E or D", 0)
    end
    if m.rotary_skip < 0 then error("rotary_skip must be a number of layers, or 0", 0) end
    if m.chunk ~= 0 and m.seq > m.chunk then
      error("seq is " .. m.seq .. ", more than a chunk of attention, " .. m.chunk
        .. ", which is not supported", 0)
    end
    local rotary = { base = m.rotary_base }
    if m.rotary_scaling == "llama3" then
      rotary.factor, rotary.few, rotary.context = m.rotary_factor, m.rotary_few, m.rotary_context
      -- As published both are 1: nothing lies between.
      rotary.many = m.rotary_many == m.rotary_few and m.rotary_few * (1 + 1e-9) or m.rotary_many
    elseif m.rotary_scaling ~= "none" then
      error("rotary_scaling is '" .. m.rotary_scaling .. "'; it can be none or llama3", 0)
    end
    m:axis("shared_ffn", m.expert_ffn)
    local lora = nn.lora(m)
    local documents, places = nn.documents(m, tokens, m.documents)
    local temperature = m.temperature and nn.temperature(m, tokens,
      { every = m.temperature_every, scale = m.temperature_scale, places = places }) or nil
    return nn.expert_decoder(m, tokens, labels, {
      attention = function(x, i)
        local positions = m.rotary_skip == 0 or i % m.rotary_skip ~= 0
        return nn.attention(m, x,
          { rotary = positions and rotary or nil, qk_norm = positions and m.qk_norm,
            qk_norm_gains = false, norm_eps = m.norm_eps,
            temperature = not positions and temperature or nil, documents = documents,
            lora = lora })
      end,
      lora = lora,
      dense = function(i)
        local at = (i - 1) % #m.pattern + 1
        return m.pattern:sub(at, at) == "D"
      end,
      moe = { top_k = 1, capacity = m.capacity, scores = "sigmoid", normalize = false,
              gate_input = true, act = m.act, shared = true, balance = m.balance, z = m.router_z,
              lora = lora },
    })
  end,
}
