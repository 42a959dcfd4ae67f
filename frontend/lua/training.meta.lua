---@meta
-- Types of nn_training's functions; see perilune.meta.lua.

---The settings that nn.decoder_loss and nn.lora read (masked, classes, preference, policy, lora and
---theirs), for a model's field `training`. own: those that begin otherwise.
---@param own? table<string, number|boolean|string>
---@return table<string, number|boolean|string>
function nn.training(own) end

---The loss that m.classes (none, or nn.classify's), m.policy (none, or nn.policy's kind; with
---m.clip, m.clip_high and m.kl), m.preference (none, reward, or nn.preference's kind; with its
---other options as settings), m.embedding (nn.embed_as_set) and, where these are none, m.masked
---ask for.
---@param m perilune.Model
---@param x perilune.Value [batch, seq, model]
---@param labels perilune.Value
---@param logits fun(x: perilune.Value): perilune.Value
---@param options? { beside?: perilune.Value, starts?: perilune.Value }
---@return perilune.Value
function nn.decoder_loss(m, x, labels, logits, options) end
