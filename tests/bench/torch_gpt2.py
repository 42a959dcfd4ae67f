#!/usr/bin/env python3
"""The yardstick: GPT-2 124M trained on the CPU by PyTorch, as fast as it goes plainly: in float32, or
with products in bf16 (autocast).

Prints, for each batch x seq, the median seconds of a step (forward, loss, backward, clipping,
AdamW) and two numbers that carry over to another machine: the step's share of the sgemm rate, and
the step in units of one 2048^3 product. The product is timed just before each step, so that a
machine shared with others slows both.

At small batches much of the step is page faults, for glibc hands large blocks back to the system.
A harder yardstick keeps them:
  GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=17179869184
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, MODEL, HEADS, POSITIONS, VOCAB = 12, 768, 12, 1024, 50257
GEMM_SIZE = 2048


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(MODEL), nn.LayerNorm(MODEL)
        self.qkv, self.out = nn.Linear(MODEL, 3 * MODEL), nn.Linear(MODEL, MODEL)
        self.up, self.down = nn.Linear(MODEL, 4 * MODEL), nn.Linear(4 * MODEL, MODEL)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, s, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, s, MODEL))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """Radford et al. 2019; the output projection is wte."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCAB, MODEL), nn.Embedding(POSITIONS, MODEL)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(MODEL)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, 0, 0.02)

    def forward(self, tokens, labels):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), labels.view(-1))


def step_flops(batch, seq):
    """Useful products only: 6 per matrix weight and token, and attention's causal half."""
    matrix_weights = 12 * LAYERS * MODEL * MODEL + VOCAB * MODEL
    attention = 6 * LAYERS * MODEL * seq  # forward 4 * model * seq, halved, and backward twice that
    return batch * seq * (6 * matrix_weights + attention)


def time_gemm(a, b, out):
    start = time.perf_counter()
    torch.mm(a, b, out=out)
    return time.perf_counter() - start


def measure(model, optimizer, args, batch, seq):
    """Lists of seconds, one per timed step: the steps, and the products beside them."""
    a, b, out = (torch.randn(GEMM_SIZE, GEMM_SIZE) for _ in range(3))
    steps, gemms = [], []
    for i in range(args.warmup + args.steps):
        tokens, labels = torch.randint(VOCAB, [2, batch, seq])
        gemm = statistics.median(time_gemm(a, b, out) for _ in range(3))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            loss = model(tokens, labels)
        loss.backward()
        if args.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        optimizer.zero_grad()  # frees them: the default, and faster than zeroing and adding
        elapsed = time.perf_counter() - start
        if i >= args.warmup:
            steps.append(elapsed)
            gemms.append(gemm)
    return steps, gemms


def report(batch, seq, steps, gemms):
    gemm_flops = 2 * GEMM_SIZE**3
    seconds, gemm = statistics.median(steps), statistics.median(gemms)
    units = statistics.median(s / g for s, g in zip(steps, gemms))
    flops = step_flops(batch, seq)
    print(
        f"{batch} x {seq}: {seconds:.3f} s/step (min {min(steps):.3f}, max {max(steps):.3f}),"
        f" {batch * seq / seconds:.0f} tokens/s, {flops / seconds / 1e9:.0f} GFLOP/s;"
        f" sgemm {gemm_flops / gemm / 1e9:.0f} GFLOP/s: share {flops / gemm_flops / units:.3f},"
        f" step = {units:.1f} products of {GEMM_SIZE}^3",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--shapes", nargs="+", default=["4x64", "2x512"], metavar="BATCHxSEQ")
    parser.add_argument("--clip", type=float, default=1.0, help="gradient norm limit; 0: none")
    parser.add_argument("--unfused", action="store_true", help="AdamW as torch runs it by default")
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--compile", action="store_true", help="needs a C++ compiler")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    model = GPT2()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=not args.unfused
    )
    n_weights = sum(p.numel() for p in model.parameters())
    adamw = "unfused" if args.unfused else "fused"
    millions = f"{n_weights / 1e6:.1f}M weights"
    print(f"torch {torch.__version__}, {args.threads} threads, {millions},", end="")
    print(f" AdamW {adamw}, clip {args.clip}{', bf16' if args.bf16 else ''}", flush=True)
    for shape in args.shapes:
        batch, seq = (int(x) for x in shape.split("x"))
        run = torch.compile(model, dynamic=False) if args.compile else model
        report(batch, seq, *measure(run, optimizer, args, batch, seq))


if __name__ == "__main__":
    main()
