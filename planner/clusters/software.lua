-- Software stacks: the habits of what issues the work. Perilune's own is the default; the others
-- are there to price published runs. Host times are per operation, in microseconds.
return {
  -- One captured graph a step; f32 gradients, master weights and both moments beside a bf16 copy.
  perilune = software {
    attention = "blockwise",
    overlaps_gradients = true, overlaps_pipeline = true, overlaps_tensor = false,
    gradient_bytes = 4, state_bytes = 12,
  },
}
