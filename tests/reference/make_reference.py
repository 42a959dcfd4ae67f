#!/usr/bin/env python3
"""Makes the reference files the engine is compared with: small GPT and Llama models in PyTorch.

Everything is computed in float64 from plain tensor operations, so that what the engine differs by
is the engine's own float32 rounding. Each model becomes one safetensors file holding:

  init/NAME            weights before training, float32 values exactly (training starts from them)
  grad/NAME            gradients of step 0, before clipping; of frozen weights there are none
  final/NAME           weights after the last step; those that are frozen stay init/NAME
  logits               [batch, seq, vocab] of step 0, before any update
  losses, grad_norms   F64 [steps]; the norm is the global one, before clipping
  tokens.S, labels.S   I32 [batch, seq] of step S

Weights are row-major, first axis outermost, with the engine's names and axes: see weight_specs.
README.md says how to remake the files and which comparisons need care.
"""

import argparse
import json
import os
import struct
import sys
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F

STEPS = 10
LEARNING_RATE = 1e-3
BETAS = (0.9, 0.95)
ADAM_EPS = 1e-8
WEIGHT_DECAY = 0.1  # on matrices only, as in GPT-3 (Brown et al. 2020)
CLIP_NORM = 1.0
NORM_EPS = 1e-5
ROTARY_BASE = 10000.0

# Wider than the usual 0.02: at 32 model units that would leave gradients too small to tell apart.
MUON_MOMENTUM = 0.95
MATRIX_STD = 0.1
BIAS_STD = 0.02
GAIN_STD = 0.05


@dataclass(frozen=True)
class Config:
    name: str
    family: str  # "gpt" or "llama"
    tied: bool  # the output projection is wte
    kv_heads: int
    group: int  # query heads per key-value head; query head number = kv * group + g
    ffn: int
    seed: int
    layers: int = 2
    model: int = 32
    head: int = 8
    seq: int = 16
    vocab: int = 61  # odd on purpose: catches kernels that assume a multiple of the vector width
    batch: int = 4
    optimizer: str = "adamw"  # or "muon": of the blocks' matrices
    lora: int = 0  # rank of adapters of all the blocks' matrices, which alone train; 0: none
    lora_alpha: float = 0.0
    frozen: str = ""  # patterns of names, with commas


CONFIGS = [
    Config("gpt", "gpt", tied=True, kv_heads=4, group=1, ffn=128, seed=1),
    Config("gpt_untied", "gpt", tied=False, kv_heads=4, group=1, ffn=128, seed=2),
    Config("llama", "llama", tied=False, kv_heads=2, group=2, ffn=88, seed=3),
    Config("llama_tied", "llama", tied=True, kv_heads=2, group=2, ffn=88, seed=4),
    Config("gpt_muon", "gpt", tied=True, kv_heads=4, group=1, ffn=128, seed=5, optimizer="muon"),
    Config("llama_muon", "llama", tied=False, kv_heads=2, group=2, ffn=88, seed=6, optimizer="muon"),
    Config("llama_lora", "llama", False, kv_heads=2, group=2, ffn=88, seed=7, lora=3, lora_alpha=7),
    Config("gpt_frozen", "gpt", True, kv_heads=4, group=1, ffn=128, seed=8, frozen="wpe,*.attn.*"),
]


def weight_specs(c):
    """(name, shape, kind) of every weight; kind is "matrix" (decayed), "bias" or "gain"."""
    q, kv, out = [c.kv_heads, c.group, c.head], [c.kv_heads, c.head], [c.model]
    gpt = c.family == "gpt"
    specs = [("wte", [c.vocab, c.model], "matrix")]
    if gpt:
        specs.append(("wpe", [c.seq, c.model], "matrix"))

    def norm(name):
        specs.append((name + ".gain", out, "gain"))
        if gpt:
            specs.append((name + ".bias", out, "bias"))

    for i in range(c.layers):
        block = f"blocks.{i}."
        norm(block + ("ln1" if gpt else "norm1"))
        for letter, axes in (("q", q), ("k", kv), ("v", kv)):
            specs.append((f"{block}attn.w{letter}", out + axes, "matrix"))
            if gpt:
                specs.append((f"{block}attn.b{letter}", axes, "bias"))
        specs.append((block + "attn.wo", q + out, "matrix"))
        if gpt:
            specs.append((block + "attn.bo", out, "bias"))
        norm(block + ("ln2" if gpt else "norm2"))
        if gpt:
            specs.append((block + "mlp.w1", [c.model, c.ffn], "matrix"))
            specs.append((block + "mlp.b1", [c.ffn], "bias"))
            specs.append((block + "mlp.w2", [c.ffn, c.model], "matrix"))
            specs.append((block + "mlp.b2", out, "bias"))
        else:
            specs.append((block + "mlp.wgate", [c.model, c.ffn], "matrix"))
            specs.append((block + "mlp.wup", [c.model, c.ffn], "matrix"))
            specs.append((block + "mlp.wdown", [c.ffn, c.model], "matrix"))
    norm("ln_f" if gpt else "norm_f")
    if not c.tied:
        specs.append(("head", [c.vocab, c.model], "matrix"))
    for name, shape, kind in list(specs):
        if c.lora and kind == "matrix" and name.startswith("blocks."):
            n_in = len(q) if name.endswith("wo") else 1
            specs.append((name + ".lora_a", shape[:n_in] + [c.lora], "matrix"))
            specs.append((name + ".lora_b", [c.lora] + shape[n_in:], "matrix"))
    return specs


def trains(c, name):
    if c.lora:
        return ".lora_" in name
    return not any(fnmatchcase(name, pattern) for pattern in c.frozen.split(","))


def with_adapters(c, w):
    """W + (alpha / rank) A B in place of each W that has an adapter (Hu et al. 2021)."""
    if not c.lora:
        return w
    whole = dict(w)
    for name, a in w.items():
        if name.endswith(".lora_a"):
            base = name.removesuffix(".lora_a")
            product = torch.tensordot(a, w[base + ".lora_b"], dims=1)
            whole[base] = w[base] + c.lora_alpha / c.lora * product
    return whole


def init_weights(c, generator):
    """Weights by name, float64 tensors whose values float32 represents exactly."""
    weights = {}
    for name, shape, kind in weight_specs(c):
        x = torch.randn(shape, generator=generator, dtype=torch.float64)
        if kind == "matrix":
            x = x * MATRIX_STD
        elif kind == "bias":
            x = x * BIAS_STD
        else:
            x = 1 + x * GAIN_STD
        weights[name] = x.float().double().requires_grad_(trains(c, name))
    return weights


# ---- The model. Axis letters: b batch, s t seq, m model, k kv_heads, g group, h head, f ffn. ----


def layernorm(x, gain, bias):
    """Ba et al. 2016, over the last axis, biased variance."""
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + NORM_EPS) * gain + bias


def rmsnorm(x, gain):
    """Zhang & Sennrich 2019."""
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + NORM_EPS) * gain


def gelu_tanh(x):
    """Hendrycks & Gimpel 2016, the tanh approximation, as in GPT-2."""
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


def rotary(x):
    """Su et al. 2021, in the half-split convention of HF Llama: unit i turns with i + head/2.
    x [b, s, ..., h]; position = index on the second axis."""
    half = x.shape[-1] // 2
    inv_freq = ROTARY_BASE ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * inv_freq
    angle = angle.reshape([x.shape[1]] + [1] * (x.dim() - 3) + [half])
    lo, hi = x[..., :half], x[..., half:]
    cos, sin = torch.cos(angle), torch.sin(angle)
    return torch.cat([lo * cos - hi * sin, hi * cos + lo * sin], -1)


def causal_attention(q, k, v):
    """q [b, s, k, g, h]; k, v [b, t, k, h] -> like q (Vaswani et al. 2017, eq. 1)."""
    scores = torch.einsum("bskgh,btkh->bkgst", q, k) / q.shape[-1] ** 0.5
    seq = q.shape[1]
    future = torch.ones(seq, seq, dtype=torch.bool).triu(1)
    probs = torch.softmax(scores.masked_fill(future, float("-inf")), -1)
    return torch.einsum("bkgst,btkh->bskgh", probs, v)


def sdpa_attention(q, k, v):
    """causal_attention through PyTorch's own kernel; only to check the one above."""
    b, s, n_kv, group, head = q.shape
    q = q.reshape(b, s, n_kv * group, head).transpose(1, 2)
    k, v = (x.repeat_interleave(group, 2).transpose(1, 2) for x in (k, v))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return y.transpose(1, 2).reshape(b, s, n_kv, group, head)


def attention(c, w, block, x, core):
    q = torch.einsum("bsm,mkgh->bskgh", x, w[block + "attn.wq"])
    k = torch.einsum("bsm,mkh->bskh", x, w[block + "attn.wk"])
    v = torch.einsum("bsm,mkh->bskh", x, w[block + "attn.wv"])
    if c.family == "gpt":
        q = q + w[block + "attn.bq"]
        k = k + w[block + "attn.bk"]
        v = v + w[block + "attn.bv"]
    else:
        q, k = rotary(q), rotary(k)
    y = torch.einsum("bskgh,kghm->bsm", core(q, k, v), w[block + "attn.wo"])
    return y + w[block + "attn.bo"] if c.family == "gpt" else y


def mlp(c, w, block, x):
    if c.family == "gpt":
        hidden = gelu_tanh(x @ w[block + "mlp.w1"] + w[block + "mlp.b1"])
        return hidden @ w[block + "mlp.w2"] + w[block + "mlp.b2"]
    gate = x @ w[block + "mlp.wgate"]  # SwiGLU, Shazeer 2020
    return (gate * torch.sigmoid(gate) * (x @ w[block + "mlp.wup"])) @ w[block + "mlp.wdown"]


def forward(c, w, tokens, core=causal_attention):
    """tokens [b, s] -> logits [b, s, vocab]; pre-norm residual blocks."""

    w = with_adapters(c, w)
    prefix = "ln" if c.family == "gpt" else "norm"

    def norm(name, x):
        if c.family == "gpt":
            return layernorm(x, w[name + ".gain"], w[name + ".bias"])
        return rmsnorm(x, w[name + ".gain"])

    x = w["wte"][tokens]
    if c.family == "gpt":
        x = x + w["wpe"]
    for i in range(c.layers):
        block = f"blocks.{i}."
        x = x + attention(c, w, block, norm(f"{block}{prefix}1", x), core)
        x = x + mlp(c, w, block, norm(f"{block}{prefix}2", x))
    return norm(prefix + "_f", x) @ w["wte" if c.tied else "head"].T


def mean_loss(logits, labels):
    """Mean over all tokens of -log softmax(logits)[label]."""
    log_probs = logits - torch.logsumexp(logits, -1, keepdim=True)
    return -log_probs.gather(-1, labels[..., None]).mean()


# ---- Training and storing. ----


class MuonAndAdamW:
    """torch.optim.Muon for the blocks' matrices, as [outputs, inputs], AdamW for all else. PyTorch
    orthogonalises in bfloat16; here it does so in float64."""

    def __init__(self, c, w, groups):
        self.pairs = []
        for name, x in w.items():
            if name.rsplit(".", 1)[-1].startswith("w") and name.startswith("blocks."):
                self.pairs.append((x, x.detach().reshape(self.inputs(name, x), -1).t()))
        matrices = {id(x) for x, _ in self.pairs}
        for group in groups:
            group["params"] = [x for x in group["params"] if id(x) not in matrices]
        self.adamw = torch.optim.AdamW(
            groups, lr=LEARNING_RATE, betas=BETAS, eps=ADAM_EPS, foreach=False
        )
        self.muon = torch.optim.Muon(
            [view for _, view in self.pairs],
            lr=LEARNING_RATE,
            weight_decay=WEIGHT_DECAY,
            momentum=MUON_MOMENTUM,
            adjust_lr_fn="match_rms_adamw",
        )

    @staticmethod
    def inputs(name, x):
        """wo and the last matrix of an MLP end with what they give, the others begin with what
        they take."""
        last = name.rsplit(".", 1)[1] in ("wo", "w2", "wdown")
        return x.numel() // x.shape[-1] if last else x.shape[0]

    def zero_grad(self):
        for x, _ in self.pairs:
            x.grad = None
        self.adamw.zero_grad()

    def step(self):
        for x, view in self.pairs:
            view.grad = x.grad.reshape(view.shape[1], -1).t()
        low, torch.bfloat16 = torch.bfloat16, torch.float64
        self.muon.step()
        torch.bfloat16 = low
        self.adamw.step()


def train(c):
    """Runs STEPS steps -> tensors by name, as the head of this file lists them."""
    generator = torch.Generator().manual_seed(c.seed)
    w = init_weights(c, generator)
    out = {"init/" + name: x.detach().float() for name, x in w.items()}
    specs = [spec for spec in weight_specs(c) if trains(c, spec[0])]
    matrices = [w[name] for name, _, kind in specs if kind == "matrix"]
    vectors = [w[name] for name, _, kind in specs if kind != "matrix"]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if c.optimizer == "muon":
        optimizer = MuonAndAdamW(c, w, groups)
    else:
        optimizer = torch.optim.AdamW(
            groups, lr=LEARNING_RATE, betas=BETAS, eps=ADAM_EPS, foreach=False
        )
    losses, norms = [], []
    for step in range(STEPS):
        tokens, labels = torch.randint(c.vocab, [2, c.batch, c.seq], generator=generator)
        out[f"tokens.{step}"], out[f"labels.{step}"] = tokens.int(), labels.int()
        logits = forward(c, w, tokens)
        loss = mean_loss(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            out["logits"] = logits.detach().float()
            # Copies: clipping scales the gradients in place.
            out.update({"grad/" + s[0]: w[s[0]].grad.float().clone() for s in specs})
        norm = torch.nn.utils.clip_grad_norm_(matrices + vectors, CLIP_NORM, foreach=False)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    out["losses"] = torch.tensor(losses, dtype=torch.float64)
    out["grad_norms"] = torch.tensor(norms, dtype=torch.float64)
    out.update({"final/" + s[0]: w[s[0]].detach().float() for s in specs})
    return out


def metadata(c):
    """safetensors metadata: strings only."""
    values = {f.name: getattr(c, f.name) for f in fields(c)}
    values.update(torch=torch.__version__, steps=STEPS, lr=LEARNING_RATE, beta1=BETAS[0])
    values.update(beta2=BETAS[1], adam_eps=ADAM_EPS, weight_decay=WEIGHT_DECAY)
    values.update(clip_norm=CLIP_NORM, norm_eps=NORM_EPS, rotary_base=ROTARY_BASE)
    if c.optimizer == "muon":
        values.update(muon_momentum=MUON_MOMENTUM)
    else:
        del values["optimizer"]  # as it was before there was another
    if not c.lora:
        del values["lora"], values["lora_alpha"]
    if not c.frozen:
        del values["frozen"]
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}


def write_safetensors(path, tensors, meta):
    """Writes the file whole or not at all. Widest element type first, then by name: every tensor
    is then aligned to its own element size, which lets a reader map the file and point into it."""
    dtypes = {torch.float64: "F64", torch.float32: "F32", torch.int32: "I32"}
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, chunks, offset = {"__metadata__": meta}, [], 0
    for name in names:
        x = tensors[name].contiguous()
        data = x.numpy().astype(x.numpy().dtype.newbyteorder("<")).tobytes()
        span = [offset, offset + len(data)]
        header[name] = {"dtype": dtypes[x.dtype], "shape": list(x.shape), "data_offsets": span}
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(chunks))
    os.replace(path + ".tmp", path)


# ---- Checks of this script against others' implementations. ----


def check(c, with_hf):
    """Prints how far the logits are from PyTorch's attention and HF's model; True if near."""
    generator = torch.Generator().manual_seed(c.seed)
    w = {name: x.detach() for name, x in init_weights(c, generator).items()}
    tokens = torch.randint(c.vocab, [c.batch, c.seq], generator=generator)
    mine = forward(c, w, tokens)
    others = {"sdpa": (forward(c, w, tokens, sdpa_attention), 1e-12)}
    if with_hf:
        from hf_models import hf_logits

        # HF Llama computes its norms and rotary angles in float32 whatever the model's type.
        others["hf"] = (hf_logits(c, w, tokens), 1e-12 if c.family == "gpt" else 1e-5)
    good = True
    for other, (logits, tolerance) in others.items():
        worst = (mine - logits).abs().max().item()
        good = good and worst <= tolerance
        print(f"{c.name}: logits differ from {other} by {worst:.1e} of {mine.abs().max():.2f}")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true", help="compare with PyTorch's SDPA")
    parser.add_argument("--check-hf", action="store_true", help="and with transformers' models")
    parser.add_argument("--only", help="makes just the file of this name")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the order of sums must not depend on the number of cores
    torch.use_deterministic_algorithms(True)
    if args.check or args.check_hf:
        return 0 if all([check(c, args.check_hf) for c in CONFIGS]) else 1
    for c in CONFIGS:
        if args.only not in (None, c.name):
            continue
        tensors = train(c)
        path = os.path.join(args.out, c.name + ".safetensors")
        write_safetensors(path, tensors, metadata(c))
        loss, norm = tensors["losses"].tolist(), tensors["grad_norms"].tolist()
        print(f"{path}: {os.path.getsize(path)} bytes, loss {loss[0]:.6f} -> {loss[-1]:.6f}")
        print(f"  gradient norm {min(norm):.4f} .. {max(norm):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
