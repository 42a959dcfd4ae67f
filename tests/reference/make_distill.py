#!/usr/bin/env python3
"""Distillation's losses and their gradients in float64, by PyTorch's autograd: distill.safetensors.

student, teacher: of each a table f32[words, model] and a head f32[vocab, model], which give logits by
the token before; tokens, labels i32[batch, seq], and masked, labels some of which are -1. Of each
case in CASES: NAME.loss, NAME.kl, NAME.ce (f32[1]) and NAME.gradient of the student's head. The divergences are written as in TRL's GKD trainer
(generalized_jsd_loss; Agarwal et al. 2024, arXiv 2306.13649): forward is its beta 0, reverse 1.

    python tests/reference/make_distill.py    # needs torch
"""
import json
import os
import struct

import torch
import torch.nn.functional as F

BATCH, SEQ, MODEL, VOCAB = 4, 6, 8, 11
# name, kind, alpha, temperature, beta, masked
CASES = [
    ("forward", "forward", 1.0, 1.0, 0.5, False),
    ("warm", "forward", 0.5, 2.0, 0.5, False),
    ("reverse", "reverse", 0.7, 2.0, 0.5, False),
    ("jsd", "jsd", 0.6, 1.5, 0.3, False),
    ("masked", "forward", 0.4, 3.0, 0.5, True),
    ("masked_jsd", "jsd", 1.0, 1.0, 0.5, True),
]


def divergence(kind, s, t, beta):
    """Of log-probabilities, one number for each position."""
    def kl(p, q):  # KL(p || q)
        return F.kl_div(q, p, reduction="none", log_target=True).sum(-1)
    if kind == "forward":
        return kl(t, s)
    if kind == "reverse":
        return kl(s, t)
    beta = torch.tensor(beta, dtype=torch.float64)
    mixture = torch.logsumexp(torch.stack([s + torch.log1p(-beta), t + torch.log(beta)]), 0)
    return beta * kl(t, mixture) + (1 - beta) * kl(s, mixture)


def run(made, labels, kind, alpha, temperature, beta):
    head = made["student.head"].double().requires_grad_()
    tokens = made["tokens"].long()
    logits = made["student.table"].double()[tokens] @ head.T
    theirs = made["teacher.table"].double()[tokens] @ made["teacher.head"].double().T
    ce = F.cross_entropy(logits.flatten(0, 1), labels.long().flatten(), ignore_index=-1)
    each = divergence(kind, F.log_softmax(logits / temperature, -1),
                      F.log_softmax(theirs / temperature, -1), beta)
    counts = labels >= 0
    kl = each[counts].sum() / counts.sum()
    loss = (1 - alpha) * ce + alpha * temperature**2 * kl
    loss.backward()
    return {"loss": loss, "kl": kl, "ce": ce, "gradient": head.grad}


def write(path, tensors):
    header, data = {}, b""
    for name, tensor in sorted(tensors.items()):
        raw = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "I32" if tensor.dtype == torch.int32 else "F32",
                        "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def main():
    random = torch.Generator().manual_seed(20)
    tensors = {
        "student.table": torch.randn(VOCAB, MODEL, generator=random),
        "student.head": torch.randn(VOCAB, MODEL, generator=random) * 0.6,
        "teacher.table": torch.randn(VOCAB, MODEL, generator=random),
        "teacher.head": torch.randn(VOCAB, MODEL, generator=random) * 0.8,
        "tokens": torch.randint(VOCAB, (BATCH, SEQ), generator=random, dtype=torch.int32),
        "labels": torch.randint(VOCAB, (BATCH, SEQ), generator=random, dtype=torch.int32),
    }
    left_out = torch.rand(BATCH, SEQ, generator=random) < 0.4
    tensors["masked"] = torch.where(left_out, -1, tensors["labels"]).int()
    for name, kind, alpha, temperature, beta, masked in CASES:
        made = run(tensors, tensors["masked" if masked else "labels"], kind, alpha, temperature, beta)
        for key, value in made.items():
            tensors[f"{name}.{key}"] = value.detach().float().reshape(value.shape or (1,))
    write(os.path.join(os.path.dirname(__file__), "distill.safetensors"), tensors)


main()
