#!/usr/bin/env python3
"""Makes tests/data/gguf: blocks of ggml's types with the numbers that they stand for, and tiny models
as llama.cpp's own converter writes them.

    venv/bin/python tests/reference/make_gguf.py --llama-cpp DIR --ggml LIBRARY         # rewrites them
    venv/bin/python tests/reference/make_gguf.py --llama-cpp DIR --check build/perilune

Needs gguf, torch and transformers; DIR is llama.cpp's source, of which conversion/ is taken (it is in
the sdist of llama-cpp-python); LIBRARY is its libggml-base.so. Made with gguf 0.19, llama-cpp-python 0.3.36, torch 2.15,
transformers 5.24.

blocks.safetensors: for each type NAME, NAME/codes U8 [blocks, bytes], random, with finite scales, and
NAME/numbers F32 [blocks, block] that gguf's dequantize makes of them; for those that are written,
narrow/NAME/from F32 and narrow/NAME/codes U8 that its quantize makes, or for k-quants, which it has
not, ggml's quantize_row_NAME_ref. *.gguf: folders of
tests/reference/hf in f32 and without a tokenizer.

--check converts all folders of hf that CHECKED names, and compares tensors bit for bit (factors of
positions to 1e-5: they are made in f32 there), and metadata,
with the export of their import.
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile

import gguf
import numpy as np
from gguf.quants import dequantize, quantize
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "..", "data", "gguf")
T = gguf.GGMLQuantizationType
READ = {"f16": T.F16, "bf16": T.BF16, "q4_0": T.Q4_0, "q4_1": T.Q4_1, "q5_0": T.Q5_0, "q5_1": T.Q5_1,
        "q8_0": T.Q8_0, "q2_K": T.Q2_K, "q3_K": T.Q3_K, "q4_K": T.Q4_K, "q5_K": T.Q5_K, "q6_K": T.Q6_K,
        "iq4_nl": T.IQ4_NL, "iq4_xs": T.IQ4_XS, "mxfp4": T.MXFP4}
WRITTEN = ["f16", "bf16", "q8_0", "q4_0"]
BY_GGML = ["q4_K", "q5_K", "q6_K"]
# Where halves lie in a block: scales, which have to be finite.
HALVES = {"f16": [0], "bf16": [0], "q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
          "q2_K": [80, 82], "q3_K": [108], "q4_K": [0, 2], "q5_K": [0, 2], "q6_K": [208],
          "iq4_nl": [0], "iq4_xs": [0]}
KEPT = ["llama31", "gemma3", "qwen2_moe"]
CHECKED = ["llama", "llama31", "llama_linear", "qwen2", "qwen3", "olmo2", "smollm3", "granite", "stablelm",
           "arcee", "starcoder2", "phi", "gpt2", "gemma", "gemma3", "qwen2_moe",
           "granitemoe"]
# Of fixtures whose scores have another scale than llama.cpp takes, or windows, which it leaves out.
SET = {"gemma3": ["--set", "attention_scale=8"], "starcoder2": ["--set", "window=0"]}


def make_blocks(rng, ggml):
    out = {}
    for name, kind in READ.items():
        block, size = gguf.GGML_QUANT_SIZES[kind]
        n = max(2, 128 // block)
        codes = rng.integers(0, 256, (n, size), dtype=np.uint8)
        for at in HALVES.get(name, []):
            wide = rng.normal(0, 1, n).astype(np.float32)
            half = wide.astype(np.float16).view(np.uint16) if name != "bf16" else (wide.view(np.uint32) >> 16)
            codes[:, at:at + 2] = half.astype(np.uint16).view(np.uint8).reshape(n, 2)
        if name == "mxfp4":
            codes[:, 0] = rng.integers(100, 150, n)
            codes[0, 0], codes[1, 0] = 0, 1
        out[f"{name}/codes"] = codes
        out[f"{name}/numbers"] = dequantize(codes, kind).astype(np.float32).reshape(n, block)
    for name in WRITTEN:
        block, size = gguf.GGML_QUANT_SIZES[READ[name]]
        n = max(8, 128 // block)
        wide = rng.normal(0, 1, (n, block)).astype(np.float32)
        wide[1] = 0
        wide[2] *= np.float32(1e-6)
        wide[3] = np.round(wide[3] * 4) / 4  # halves, between codes
        out[f"narrow/{name}/from"] = wide
        out[f"narrow/{name}/codes"] = quantize(wide, READ[name]).view(np.uint8).reshape(n, size)
    for name in BY_GGML:
        block, size = gguf.GGML_QUANT_SIZES[READ[name]]
        n = 6
        wide = rng.normal(0, 0.02, (n, block)).astype(np.float32)
        wide[1] = 0
        wide[2] = np.abs(wide[2])
        wide[3, ::37] *= 30
        wide[4, 64:] = 0
        codes = np.zeros((n, size), np.uint8)
        getattr(ggml, f"quantize_row_{name}_ref")(wide.ctypes.data_as(ctypes.c_void_p),
                                                  codes.ctypes.data_as(ctypes.c_void_p), ctypes.c_int64(wide.size))
        out[f"narrow/{name}/from"], out[f"narrow/{name}/codes"] = wide, codes
    return out


def convert(llama_cpp, folder, path):
    """In a process of its own: the converter's classes are registered once."""
    code = f"""
import sys
sys.path[:0] = [{os.path.join(llama_cpp, "gguf-py")!r}, {llama_cpp!r}]
from pathlib import Path
import gguf
import conversion
from conversion.base import ModelBase
folder = Path({folder!r})
hparams = ModelBase.load_hparams(folder, False)
cls = conversion.get_model_class(hparams["architectures"][0])
cls.set_vocab = lambda self: self.gguf_writer.add_tokenizer_model("none")
model = cls(folder, gguf.LlamaFileType.ALL_F32, Path({path!r}))
model.write()
"""
    with tempfile.TemporaryDirectory() as scratch:
        copy = os.path.join(scratch, "model")
        shutil.copytree(folder, copy)
        os.remove(os.path.join(copy, "expect.safetensors"))
        # What the converter of Gemma 3 counts tokens by.
        config = json.load(open(os.path.join(copy, "config.json")))
        vocab = config["vocab_size"]
        if "n_positions" in config:  # GPT-2's, which the converter needs
            config["n_ctx"] = config["n_positions"]
            json.dump(config, open(os.path.join(copy, "config.json"), "w"))
        json.dump({"model": {"vocab": [0] * vocab}, "added_tokens": []},
                  open(os.path.join(copy, "tokenizer.json"), "w"))
        weights = os.path.join(copy, "model.safetensors")  # without masks, which it does not know
        kept = {k: v for k, v in load_file(weights).items() if not k.endswith((".attn.bias", ".masked_bias"))}
        save_file(kept, weights, metadata={"format": "pt"})
        done = subprocess.run([sys.executable, "-c", code.replace(repr(folder), repr(copy))],
                              capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{folder}: {done.stderr}")


def check(perilune, llama_cpp, name):
    folder = os.path.join(HERE, "hf", name)
    with tempfile.TemporaryDirectory() as scratch:
        theirs, ours = os.path.join(scratch, "theirs.gguf"), os.path.join(scratch, "ours.gguf")
        weights = os.path.join(scratch, "weights.safetensors")
        convert(llama_cpp, folder, theirs)
        subprocess.run([perilune, "import", folder, "-o", weights], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([perilune, "export", weights, "--format", "gguf", "--dtype", "f32", *SET.get(name, []),
                        "-o", ours], check=True, stdout=subprocess.DEVNULL)
        a, b = gguf.GGUFReader(theirs), gguf.GGUFReader(ours)
        x, y = {t.name: t for t in a.tensors}, {t.name: t for t in b.tensors}
        wrong = [n for n in set(x) | set(y) if n not in x or n not in y or x[n].tensor_type != y[n].tensor_type
                 or list(x[n].shape) != list(y[n].shape) or not np.allclose(
                     x[n].data, y[n].data, rtol=1e-5 if n == "rope_freqs.weight" else 0, atol=0)]
        said = {k: (f.contents(), b.fields[k].contents() if k in b.fields else None)
                for k, f in a.fields.items() if not k.startswith(("GGUF.", "general."))}
        other = {k: v for k, v in said.items() if v[0] != v[1]}
        print(f"{name}: {len(x)} tensors, differing: {wrong or 'none'}; metadata: {other or 'the same'}")
        return not wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--llama-cpp", required=True)
    parser.add_argument("--ggml", metavar="LIBRARY")
    parser.add_argument("--check", metavar="PERILUNE")
    args = parser.parse_args()
    if args.check:
        sys.exit(not all([check(args.check, args.llama_cpp, name) for name in CHECKED]))
    os.makedirs(OUT, exist_ok=True)
    save_file(make_blocks(np.random.default_rng(17), ctypes.CDLL(args.ggml)), os.path.join(OUT, "blocks.safetensors"))
    for name in KEPT:
        convert(args.llama_cpp, os.path.join(HERE, "hf", name), os.path.join(OUT, f"{name}.gguf"))


if __name__ == "__main__":
    main()
