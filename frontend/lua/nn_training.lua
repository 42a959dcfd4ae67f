-- nn_training: what a decoder can be trained for, as settings, and the loss that they ask for, a
-- part of nn. `nn` is what it adds to, `tools` what layers of nn share.
local training = {}

function training.add(nn, tools)

local fail, read_options, check_arguments = tools.fail, tools.read_options, tools.check_arguments
local NONE = tools.NONE

-- What nn.decoder_loss and nn.lora read.
local SETTINGS = {
  masked = false,     -- the data say which labels count; else all do
  classes = "none", class_kind = "one", class_weights = "none", class_smoothing = 0.0, -- of texts
  preference = "none", beta = 0.1, label_smoothing = 0.0, gamma = 0.0, rpo_alpha = 0.0,
  desirable_weight = 1.0, undesirable_weight = 1.0, online = false, -- dpo, ... (nn.preference)
  policy = "none",    -- or grpo, dapo, dr_grpo, gspo: rewards of what it writes (nn.policy)
  clip = 0.2, clip_high = 0.0, kl = 0.0, -- of it
  lora = 0,           -- rank of adapters beside frozen weights (nn.lora); 0: none, all train
  lora_alpha = 0.0,   -- they count alpha / rank times; 0: once
  lora_rslora = false, -- alpha / sqrt(rank) times
  lora_plus = 1.0,    -- how many times A's learning rate B's is
  lora_dropout = 0.0, -- of what adapters read
  lora_targets = "q,k,v,o", -- the products that have them
}

-- Settings of a model: training = nn.training{ lora_targets = "q,k,v,o,up,down" }. `own`: those
-- that begin otherwise.
function nn.training(own)
  local settings = {}
  for name, value in pairs(SETTINGS) do settings[name] = value end
  for name, value in pairs(own or {}) do
    if SETTINGS[name] == nil then fail("training has no setting '%s'", tostring(name)) end
    settings[name] = value
  end
  return settings
end

-- The loss that m's settings ask for: classes of texts (m.classes is not none: nn.classify), or
-- m.policy (nn.policy's kind, with clip, clip_high and kl), or m.preference (reward: nn.reward, or
-- nn.preference's kind, with beta, label_smoothing, gamma and, if m has them, its other options),
-- or m.diffusion (masked, or shifted: a position says the next one's token; with mask_token, -1:
-- the vocabulary's last, and diffusion_by_row); where these are none, of the tokens that follow,
-- all or, where m.masked, those that the data's masks say. Or m.embedding (mean, or last:
-- nn.embed_as_set), in models that give `starts`.
-- x [batch, seq, model]; logits: a function of x that gives [batch, seq, vocab]
-- options: beside (losses [batch], whose mean is added), starts (nn.documents' first value)
function nn.decoder_loss(m, x, labels, logits, options)
  check_arguments("decoder_loss", m, x)
  local o = read_options("decoder_loss", options, { beside = NONE, starts = NONE })
  if type(logits) ~= "function" then
    fail("decoder_loss: the fourth argument must be a function of x that gives logits")
  end
  local kinds, online = {}, m:setting("online") -- models may be without these
  local policy, embedding = m:setting("policy") or "none", m:setting("embedding") or "none"
  local diffusion = m:setting("diffusion") or "none"
  for name, kind in pairs{ classes = m.classes, policy = policy, preference = m.preference,
                           diffusion = diffusion, embedding = embedding } do
    if kind ~= "none" then kinds[#kinds + 1] = "'" .. name .. "'" end
  end
  table.sort(kinds)
  if #kinds > 1 then fail("decoder_loss: %s: one of them", table.concat(kinds, " and ")) end
  if online and (m.preference == "none" or m.preference == "reward") then
    fail("online: is of pairs (preference=dpo and its like), not of preference=%s", m.preference)
  end
  if embedding ~= "none" then
    if embedding == "cls" then
      fail("embedding=cls: the first token of a decoder sees no other one; last, or mean")
    end
    if m.documents < 0 then
      fail("embedding needs --set documents=, a token that stands between texts and in none")
    end
    return nn.embed_as_set(m, x, labels, { starts = o.starts, pad = m.documents,
      beside = o.beside })
  end
  if m.classes ~= "none" then
    return nn.classify(m, x, labels, { classes = m.classes, dropout = m.dropout,
      pad = m.documents >= 0 and m.documents or 0, beside = o.beside })
  end
  if m.preference == "reward" then
    return nn.reward(m, x, labels, { dropout = m.dropout, beside = o.beside })
  end
  if m.preference ~= "none" and not tools.is_preference(m.preference) then
    fail("preference is '%s'; it can be none, reward, %s", m.preference, tools.PREFERENCES)
  end
  if policy ~= "none" and not tools.is_policy(policy) then
    fail("policy is '%s'; it can be none, grpo, dapo, dr_grpo or gspo", policy)
  end
  if policy ~= "none" then
    return nn.policy(m, logits(x), labels, "vocab", { kind = policy, clip = m.clip,
      clip_high = m.clip_high, kl = m.kl, beside = o.beside })
  end
  if diffusion ~= "none" then
    if diffusion ~= "masked" and diffusion ~= "shifted" then
      fail("diffusion is '%s'; it can be none, masked or shifted", diffusion)
    end
    local mask = m.mask_token == -1 and m.vocab - 1 or m.mask_token
    return nn.cross_entropy(m, logits(x), labels, "vocab", { beside = o.beside, diffusion = {
      mask = mask, shifted = diffusion == "shifted", by_row = m.diffusion_by_row } })
  end
  if m.preference == "none" then
    return nn.cross_entropy(m, logits(x), labels, "vocab",
      { beside = o.beside, ignore = m.masked and -1 or nil })
  end
  local how = { kind = m.preference, beta = m.beta, label_smoothing = m.label_smoothing,
    gamma = m.gamma, beside = o.beside }
  for name in pairs(tools.PREFERENCE_OPTIONS) do how[name] = m:setting(name) end
  return nn.preference(m, logits(x), labels, "vocab", how)
end

end

return training
