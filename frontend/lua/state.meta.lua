---@meta
-- Types of nn_state's functions; see perilune.meta.lua.

---@class perilune.ShortOptions
---@field name? string
---@field taps? integer
---@field places? perilune.Value nn.documents' second value
---@field std? number
---@field out_std? number
---@field decay? number
---@field lr_scale? number
---@field muon? 0|1
---@field frozen? 0|1
---@field lora? perilune.LoraOptions adapters of its products; none if absent

---A gated short convolution, as in LFM2. x [batch, seq, model] -> like x.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.ShortOptions
---@return perilune.Value
function nn.short_convolution(m, x, options) end

---@class perilune.StateOptions
---@field name? string
---@field taps? integer
---@field conv_bias? boolean
---@field norm_over? "group"|"all"|"none" of nn.state_space
---@field negative? boolean of nn.delta_net: shares are up to 2
---@field joined? boolean of nn.delta_net: adapters of q, k, v and z share an A, and beta's and a's
---@field dt_floor? number of nn.state_space: steps are no less
---@field gate_last? boolean of nn.state_space: the gate is behind the norm
---@field scales? table<string, number> of nn.state_space: what z, x, b, c and dt are times
---@field rank? integer of nn.kimi_delta: numbers that decays, and gates, are made of
---@field norm_eps? number
---@field places? perilune.Value nn.documents' second value: nothing passes between documents
---@field dt_least? number
---@field dt_most? number
---@field decay_most? number
---@field std? number
---@field out_std? number
---@field decay? number
---@field muon? integer
---@field lr_scale? number
---@field frozen? integer
---@field lora? perilune.LoraOptions adapters of its products; none if absent

---Mamba-2's layer (Dao & Gu 2024): x [batch, seq, model] -> like x. Axes state_groups, state_heads,
---state_keys and state_values are the model's.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.StateOptions
---@return perilune.Value
function nn.state_space(m, x, options) end

---Gated DeltaNet's layer (Yang et al. 2024): x [batch, seq, model] -> like x, of the same axes.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.StateOptions
---@return perilune.Value
function nn.delta_net(m, x, options) end

---Kimi Delta Attention (Kimi Team 2025): the same, with a decay for each key of a state.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.StateOptions
---@return perilune.Value
function nn.kimi_delta(m, x, options) end

---@class perilune.GatedLinearOptions
---@field name? string
---@field rank? integer numbers that decays are made of
---@field temper? number decays are to the power of 1 / temper
---@field norm_eps? number
---@field places? perilune.Value nn.documents' second value: nothing passes between documents
---@field std? number
---@field out_std? number
---@field decay? number
---@field muon? integer
---@field lr_scale? number
---@field frozen? integer
---@field lora? perilune.LoraOptions adapters of its products; none if absent

---Gated linear attention (Yang et al. 2024), with a decay for each key of a state: x [batch, seq,
---model] -> like x, of the same axes.
---@param m perilune.Model
---@param x perilune.Value
---@param options? perilune.GatedLinearOptions
---@return perilune.Value
function nn.gated_linear_attention(m, x, options) end
