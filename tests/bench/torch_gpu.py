#!/usr/bin/env python3
"""The yardstick on a GPU: the models of bench_gpu trained by PyTorch, as fast as it goes plainly:
torch.compile of the whole model, or of its blocks one by one, fused attention (SDPA), fused AdamW
over f32 parameters and moments, clipped gradients in f32, activations and products in bf16 by
autocast.

Prints per model, as soon as it is known: what compiling took, median seconds of a step, tokens/s,
MFU with causal attention counted as half and as whole. One process, one GPU, random tokens; fewer
layers of llama-8b where memory does not do for bench_gpu's.

  python3 tests/bench/torch_gpu.py [--models gpt-124m,gpt-1.5b,llama-8b] [--steps N]
      [--attention default|flash|cudnn] [--compile auto|model|blocks] [--llama-layers N]
      [--batch N | --micro-batch N] [--peak TFLOP/S]

--micro-batch: sequences at a time, of as many in a step.
--compile blocks, as torchtitan does: blocks are alike and compile once, where a deep model as a
whole takes minutes. auto: that of more than 12 layers.
"""

import argparse
import contextlib
import gc
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

WARM_UP = 3  # steps, which compile and are not counted
WHOLE_LAYERS = 12  # of models that compile as a whole in less than a minute
ATTENTION = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}

# name: layers, model, heads, kv_heads, ffn, vocab, seq, sequences per micro-batch, micro-batches
MODELS = {
    "gpt-124m": (12, 768, 12, 12, 3072, 50304, 1024, 32, 1),
    "gpt-1.5b": (48, 1600, 25, 25, 6400, 50304, 1024, 16, 2),
    "llama-8b": (16, 4096, 32, 8, 14336, 128256, 4096, 2, 2),
}


class RMSNorm(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(model))

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.gain.to(x.dtype), 1e-5)


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


class Block(nn.Module):
    def __init__(self, model, heads, kv_heads, ffn, llama):
        super().__init__()
        self.heads, self.kv_heads, self.head, self.llama = heads, kv_heads, model // heads, llama
        norm = RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2 = norm(model), norm(model)
        self.qkv = nn.Linear(model, (heads + 2 * kv_heads) * self.head, bias=not llama)
        self.out = nn.Linear(model, model, bias=not llama)
        self.up = nn.Linear(model, ffn * (2 if llama else 1), bias=not llama)
        self.down = nn.Linear(ffn, model, bias=not llama)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(
            [n * self.head for n in (self.heads, self.kv_heads, self.kv_heads)], -1)
        q = q.view(b, s, self.heads, -1).transpose(1, 2)
        k = k.view(b, s, self.kv_heads, -1).transpose(1, 2)
        v = v.view(b, s, self.kv_heads, -1).transpose(1, 2)
        if self.llama:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                           enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, -1))
        h = self.up(self.norm2(x))
        if self.llama:
            gate, h = h.chunk(2, -1)
            h = F.silu(gate) * h
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


class Decoder(nn.Module):
    def __init__(self, layers, model, heads, kv_heads, ffn, vocab, seq, llama):
        super().__init__()
        self.llama = llama
        self.wte = nn.Embedding(vocab, model)
        self.wpe = None if llama else nn.Embedding(seq, model)
        self.blocks = nn.ModuleList(Block(model, heads, kv_heads, ffn, llama)
                                    for _ in range(layers))
        self.norm = RMSNorm(model) if llama else nn.LayerNorm(model)
        self.lm_head = nn.Linear(model, vocab, bias=False)
        if not llama:
            self.lm_head.weight = self.wte.weight
        head = model // heads
        angles = torch.outer(torch.arange(seq), 500000.0 ** (-torch.arange(0, head, 2) / head))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens)
        if self.wpe is not None:
            x = x + self.wpe.weight
        cos, sin = self.cos.to(torch.bfloat16), self.sin.to(torch.bfloat16)
        for block in self.blocks:
            x = block(x.to(torch.bfloat16), cos, sin)
        return self.head(x, labels)

    def head(self, x, labels):
        logits = self.lm_head(self.norm(x))
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.view(-1))

    def compile_blocks(self):
        for block in self.blocks:
            block.compile()
        self.head = torch.compile(self.head)
        return self


def measure(name, layers, args):
    _, model, heads, kv_heads, ffn, vocab, seq, batch, micro_batches = MODELS[name]
    llama = name.startswith("llama")
    batch = args.batch or batch
    if args.micro_batch:
        if batch * micro_batches % args.micro_batch:
            raise ValueError(f"{batch * micro_batches} sequences, {args.micro_batch} at a time")
        batch, micro_batches = args.micro_batch, batch * micro_batches // args.micro_batch
    device = torch.device(args.device)
    with device:  # where random numbers are fast
        net = Decoder(layers, model, heads, kv_heads, ffn, vocab, seq, llama)
    n_parameters = sum(p.numel() for p in net.parameters())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    compiled = args.compile
    if compiled == "auto":
        compiled = "model" if layers <= WHOLE_LAYERS else "blocks"
    run = torch.compile(net) if compiled == "model" else net.compile_blocks()
    tokens, labels = torch.randint(vocab, (2, micro_batches, batch, seq), device=device)
    attention = (contextlib.nullcontext() if args.attention == "default" else
                 sdpa_kernel(ATTENTION[args.attention]))

    def step():
        for micro in range(micro_batches):
            with torch.autocast(device.type, torch.bfloat16):
                loss = run(tokens[micro], labels[micro]) / micro_batches
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    seconds = []
    begin = time.perf_counter()
    with attention:
        for i in range(args.steps + WARM_UP):
            if i == WARM_UP:
                print(f"{name}: compiled and warm after {time.perf_counter() - begin:.0f} s",
                      flush=True)
            start = time.perf_counter()
            step().item()  # waits for the step
            if i >= WARM_UP:
                seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    n_tokens = micro_batches * batch * seq
    embedding = 0 if not llama else vocab * model  # read, not multiplied
    matrix = n_parameters - embedding - (0 if llama else seq * model)
    whole = 12 * layers * model * seq
    causal, full = 6 * matrix + whole / 2, 6 * matrix + whole
    peak = args.peak * 1e12
    print(f"PyTorch {torch.__version__} {name} {layers} layers, {n_parameters / 1e6:.0f} M, "
          f"bf16 by autocast, {compiled} compiled, attention {args.attention}, "
          f"{micro_batches} x {batch} x {seq}: "
          f"{median:.4f} s/step (median of {len(seconds)}, min {min(seconds):.4f}), "
          f"{n_tokens / median:.0f} tokens/s, MFU {100 * causal * n_tokens / median / peak:.1f} % "
          f"causal, {100 * full * n_tokens / median / peak:.1f} % full", flush=True)


def measure_what_fits(name, args):
    layers = args.llama_layers if name.startswith("llama") else 0
    layers = layers or MODELS[name][0]
    while True:
        try:
            return measure(name, layers, args)
        except torch.OutOfMemoryError:
            if layers <= 4 or not name.startswith("llama"):
                raise
            print(f"{name}: {layers} layers are too many for this GPU's memory", flush=True)
            layers -= 4
        finally:
            torch._dynamo.reset()  # lets go of the model
            gc.collect()
            if args.device == "cuda":
                torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--attention", choices=["default", *ATTENTION], default="default")
    parser.add_argument("--compile", choices=["auto", "model", "blocks"], default="auto")
    parser.add_argument("--llama-layers", type=int, default=0)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--micro-batch", type=int, default=0)
    parser.add_argument("--peak", type=float, default=989, help="dense bf16 TFLOP/s of the GPU")
    parser.add_argument("--device", default="cuda", help="cpu: to see whether it runs at all")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    failed = 0
    for name in args.models.split(","):
        try:
            measure_what_fits(name, args)
        except Exception as error:  # the next model may do
            print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
            failed += 1
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
