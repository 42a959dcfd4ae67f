"""Compares what `perilune generate` writes by diffusion with LLaDA's and Dream's published way of it, by models and
unmasking of its own here in NumPy, which read the folders that `perilune export` wrote: names, layouts and shapes are
those of LLaDA's modeling_llada.py and generate.py and of Dream's files. Needs: pip install numpy.

    venv/bin/python tests/reference/compare_diffusion.py
"""
import json
import os
import struct
import subprocess
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
LLAMA = os.path.join(HERE, "../../models/llama.lua")
MASK, SEQ = 255, 40
SMALL = f"model=48 heads=6 kv_heads=2 ffn=64 layers=3 seq={SEQ} mask_token={MASK}".split()
TEXT = "The moon goes around the earth once a month, and its tides go around the sea.\n" * 400


def run(*arguments):
    done = subprocess.run([PERILUNE, *arguments], capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def read(folder):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return config, {name: np.frombuffer(data[t["data_offsets"][0]:t["data_offsets"][1]], np.float32)
                    .reshape(t["shape"]).astype(np.float64) for name, t in header.items()}


def rms(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * gain


def turned(x, base):  # [heads, positions, head]
    half = x.shape[-1] // 2
    angles = np.outer(np.arange(x.shape[1]), base ** (-np.arange(half) / half))
    sin, cos = np.tile(np.sin(angles), 2), np.tile(np.cos(angles), 2)
    return x * cos + np.concatenate([-x[..., half:], x[..., :half]], -1) * sin


def attend(q, k, v, n_heads, n_kv, base):
    def heads(x, n):
        return x.reshape(len(x), n, -1).transpose(1, 0, 2)
    q, k, v = turned(heads(q, n_heads), base), turned(heads(k, n_kv), base), heads(v, n_kv)
    k, v = (np.repeat(x, n_heads // n_kv, 0) for x in (k, v))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[-1])  # no mask: all positions see all
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return (p / p.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def silu(x):
    return x / (1 + np.exp(-x))


def llada(config, w, tokens):
    x, eps = w["model.transformer.wte.weight"][tokens], config["rms_norm_eps"]
    for i in range(config["n_layers"]):
        def at(name):
            return w[f"model.transformer.blocks.{i}.{name}.weight"]
        y = rms(x, at("attn_norm"), eps)
        x = x + attend(y @ at("q_proj").T, y @ at("k_proj").T, y @ at("v_proj").T, config["n_heads"],
                       config["n_kv_heads"], config["rope_theta"]) @ at("attn_out").T
        y = rms(x, at("ff_norm"), eps)
        x = x + (silu(y @ at("ff_proj").T) * (y @ at("up_proj").T)) @ at("ff_out").T
    return rms(x, w["model.transformer.ln_f.weight"], eps) @ w["model.transformer.ff_out.weight"].T


def dream(config, w, tokens):
    x, eps = w["model.embed_tokens.weight"][tokens], config["rms_norm_eps"]
    for i in range(config["num_hidden_layers"]):
        def linear(x, name):
            at = f"model.layers.{i}.{name}."
            return x @ w[at + "weight"].T + w.get(at + "bias", 0)
        y = rms(x, w[f"model.layers.{i}.input_layernorm.weight"], eps)
        q, k, v = (linear(y, f"self_attn.{name}_proj") for name in "qkv")
        x = x + linear(attend(q, k, v, config["num_attention_heads"], config["num_key_value_heads"],
                              config["rope_theta"]), "self_attn.o_proj")
        y = rms(x, w[f"model.layers.{i}.post_attention_layernorm.weight"], eps)
        x = x + linear(silu(linear(y, "mlp.gate_proj")) * linear(y, "mlp.up_proj"), "mlp.down_proj")
    logits = rms(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T
    return np.concatenate([logits[:1], logits[:-1]])  # of position i: what i - 1 says


def write(model, config, w, prompt, length, steps, block):
    """LLaDA's generate.py at a temperature of 0, low_confidence; tokens behind the answer stay hidden."""
    x = np.array(list(prompt) + [MASK] * (SEQ - len(prompt)))
    for first in range(len(prompt), len(prompt) + length, block):
        here, left = np.arange(first, first + block), block
        for step in range(n := steps // (length // block), 0, -1):
            logits = model(config, w, x)
            logits[:, MASK] = -np.inf
            said, p = logits.argmax(-1), np.exp(logits - logits.max(-1, keepdims=True))
            sure = np.where(x == MASK, p.max(-1) / p.sum(-1), -np.inf)
            count = block // n + (n - step < block % n)
            chosen = sorted(here, key=lambda k: (-sure[k], k))[:count]
            x[chosen], left = said[chosen], left - count
    return bytes(x[:len(prompt) + length].astype(np.uint8))


def main():
    n_same = 0
    with tempfile.TemporaryDirectory() as folder:
        text, weights = os.path.join(folder, "text.txt"), os.path.join(folder, "w.st")
        with open(text, "w", encoding="utf-8") as file:
            file.write(TEXT)
        for kind, model in (("masked", llada), ("shifted", dream)):
            settings = [*SMALL, f"diffusion={kind}", f"qkv_bias={str(kind == 'shifted').lower()}"]
            run("train", LLAMA, *[part for s in settings for part in ("--set", s)], "--data", text, "--steps", "150",
                "--lr", "3e-3", "--save", weights)
            run("export", weights, "--dtype", "f32", "-o", os.path.join(folder, kind))
            config, w = read(os.path.join(folder, kind))
            for prompt, length, steps, block in ((b"The moon", 24, 24, 24), (b"its ", 24, 6, 24), (b"T", 32, 16, 8),
                                                 (b"and the", 30, 9, 10), (b"sea.\nThe moon", 12, 12, 1)):
                ours = run("generate", LLAMA, "--set-from", weights, "--load", weights, "--prompt", prompt,
                           "--length", str(length), "--diffusion-steps", str(steps), "--diffusion-block", str(block),
                           "--temperature", "0", "--quiet")[:-1]
                theirs = write(model, config, w, prompt, length, steps, block)
                assert ours == theirs, (kind, prompt, ours, theirs)
                n_same += 1
                print(kind, ours)
    print(f"{n_same} texts, all the same")


if __name__ == "__main__":
    main()
