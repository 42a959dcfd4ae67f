#!/usr/bin/env python3
"""The yardstick: Mamba-2 130M trained in float32 on the CPU by transformers in PyTorch.

Prints, for each batch x seq, the median seconds of a step (forward, loss, backward, clipping, fused
AdamW). transformers' layer without mamba_ssm's kernels, which need a GPU: chunks of 256 positions
as products (Dao & Gu 2024, section 6).

    torch_mamba2.py --threads 2 --steps 5 2x512
    perilune train models/hybrid.lua --set size=mamba2-130m --set seq=512 --micro-batch 2 \\
        --global-batch 2 --steps 7 --data FILE --log run.jsonl        # the median of "seconds"
"""

import argparse
import logging
import statistics
import time

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

VOCAB = 50288


def make_model():
    config = Mamba2Config(num_heads=24, head_dim=64, vocab_size=VOCAB, hidden_size=768,
                          state_size=128, num_hidden_layers=24, expand=2, n_groups=1,
                          tie_word_embeddings=True, use_cache=False)
    return Mamba2ForCausalLM(config)


def train_step(model, optimizer, tokens):
    loss = model(tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def measure(model, optimizer, batch, seq, args):
    seconds = []
    for i in range(args.warmup + args.steps):
        tokens = torch.randint(VOCAB, [batch, seq])
        start = time.perf_counter()
        train_step(model, optimizer, tokens)
        if i >= args.warmup:
            seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", default=["2x512"], help="batch x seq, such as 2x512")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(args.threads)
    model = make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)
    n_parameters = sum(p.numel() for p in model.parameters())
    print(f"torch {torch.__version__}, {args.threads} threads, {n_parameters / 1e6:.1f} M weights")
    for size in args.sizes:
        batch, seq = (int(n) for n in size.split("x"))
        seconds = measure(model, optimizer, batch, seq, args)
        print(f"{batch} x {seq}: {seconds:.2f} s a step", flush=True)


if __name__ == "__main__":
    main()
