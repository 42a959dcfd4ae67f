"""The reference weights inside Hugging Face's GPT-2 and Llama: an independent opinion on what these
models compute. Only make_reference.py --check-hf needs it, and with it the transformers package."""

import torch


def hf_logits(c, w, tokens):
    """Logits [batch, seq, vocab] of HF's model, in float64 as far as HF keeps it."""
    model, state = (gpt2 if c.family == "gpt" else llama)(c, w)
    model = model.double().eval()
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if name != "lm_head.weight" or not c.tied]:
        raise SystemExit(f"{c.name}: weights do not match HF's: {missing} {unexpected}")
    with torch.no_grad():
        return model(tokens).logits


def gpt2(c, w):
    """HF's Conv1D keeps weights as [in, out], as the reference does."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=c.vocab, n_positions=c.seq, n_embd=c.model, n_layer=c.layers, n_inner=c.ffn,
        n_head=c.kv_heads, activation_function="gelu_new", layer_norm_epsilon=1e-5,
        tie_word_embeddings=c.tied, attn_implementation="eager",
    )
    state = {"transformer.wte.weight": w["wte"], "transformer.wpe.weight": w["wpe"]}
    for i in range(c.layers):
        ours, theirs = f"blocks.{i}.", f"transformer.h.{i}."
        matrices = [w[f"{ours}attn.w{x}"].reshape(c.model, -1) for x in "qkv"]
        biases = [w[f"{ours}attn.b{x}"].reshape(-1) for x in "qkv"]
        state[theirs + "attn.c_attn.weight"] = torch.cat(matrices, 1)
        state[theirs + "attn.c_attn.bias"] = torch.cat(biases)
        state[theirs + "attn.c_proj.weight"] = w[ours + "attn.wo"].reshape(-1, c.model)
        state[theirs + "attn.c_proj.bias"] = w[ours + "attn.bo"]
        for norm, hf_norm in (("ln1", "ln_1"), ("ln2", "ln_2")):
            state[f"{theirs}{hf_norm}.weight"] = w[f"{ours}{norm}.gain"]
            state[f"{theirs}{hf_norm}.bias"] = w[f"{ours}{norm}.bias"]
        for n, hf_name in (("1", "c_fc"), ("2", "c_proj")):
            state[f"{theirs}mlp.{hf_name}.weight"] = w[f"{ours}mlp.w{n}"]
            state[f"{theirs}mlp.{hf_name}.bias"] = w[f"{ours}mlp.b{n}"]
    state["transformer.ln_f.weight"] = w["ln_f.gain"]
    state["transformer.ln_f.bias"] = w["ln_f.bias"]
    state["lm_head.weight"] = w["wte" if c.tied else "head"]
    return GPT2LMHeadModel(config), state


def llama(c, w):
    """HF's Linear keeps weights as [out, in], the transpose of the reference's."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=c.vocab, hidden_size=c.model, intermediate_size=c.ffn, head_dim=c.head,
        num_hidden_layers=c.layers, num_attention_heads=c.kv_heads * c.group,
        num_key_value_heads=c.kv_heads, rms_norm_eps=1e-5, max_position_embeddings=c.seq,
        tie_word_embeddings=c.tied, attn_implementation="eager",
    )  # the rotary base is HF's default, 10000
    state = {"model.embed_tokens.weight": w["wte"], "model.norm.weight": w["norm_f.gain"]}
    for i in range(c.layers):
        ours, theirs = f"blocks.{i}.", f"model.layers.{i}."
        for x in "qkv":
            matrix = w[f"{ours}attn.w{x}"].reshape(c.model, -1)
            state[f"{theirs}self_attn.{x}_proj.weight"] = matrix.T
        state[theirs + "self_attn.o_proj.weight"] = w[ours + "attn.wo"].reshape(-1, c.model).T
        for x in ("gate", "up", "down"):
            state[f"{theirs}mlp.{x}_proj.weight"] = w[f"{ours}mlp.w{x}"].T
        state[theirs + "input_layernorm.weight"] = w[ours + "norm1.gain"]
        state[theirs + "post_attention_layernorm.weight"] = w[ours + "norm2.gain"]
    state["lm_head.weight"] = w["wte" if c.tied else "head"]
    return LlamaForCausalLM(config), state
