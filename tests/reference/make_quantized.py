#!/usr/bin/env python3
"""Makes tests/reference/hf_quantized: one tiny Llama in each of the forms that methods of
quantization publish, and what its weights stand for.

    venv/bin/python tests/reference/make_quantized.py --gptqmodel DIR     # rewrites the folders
    venv/bin/python tests/reference/make_quantized.py --gptqmodel DIR --check build/perilune

Needs torch, transformers, bitsandbytes and compressed-tensors; DIR is where the source of gptqmodel
7.7 was unpacked (pip download --no-deps --no-binary :all: gptqmodel), of which two functions are
taken. Made with bitsandbytes 0.50, compressed-tensors 0.20, torch 2.15, transformers 5.24.

Each folder has config.json, model.safetensors and expect.safetensors: tokens I32 [batch, seq],
logits F32 [batch, seq, vocab] of transformers in float64 with the weights that the codes stand for,
and for each weight sum/NAME I64 [1]: the sum of its f32 words, as unsigned numbers, each times
2 i + 1 for its place i, modulo 2^64. Codes are widened in f32, by gptqmodel's functions for GPTQ and
AWQ, by bitsandbytes' and by compressed-tensors' own (of nvfp4, mxfp4 its unpacking, and ModelOpt's
rule is written out here); codes and scales are random, so that all of their bits count.

--check imports each, and folders that transformers quantizes by bitsandbytes; has transformers load
those that it can compute on a CPU, and compares its logits with those of the import's export.
(bnb_int8 rounds activations there, too: 2e-2 apart.)
"""

import argparse
import ast
import importlib.util
import json
import os
import shutil
import subprocess
import tempfile
import types

import bitsandbytes as bnb
import compressed_tensors.compressors as compressors
import numpy as np
import torch
import transformers as hf
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load_file, save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf_quantized")
VOCAB, BATCH, SEQ = 37, 2, 5
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
             num_attention_heads=2, num_key_value_heads=2, head_dim=16, max_position_embeddings=SEQ,
             tie_word_embeddings=True, bos_token_id=None, eos_token_id=None, pad_token_id=None)
PRODUCTS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def model():
    torch.manual_seed(71)
    made = hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)).eval()
    for name, weight in made.named_parameters():
        weight.data = torch.randn_like(weight) * 0.3 + ("norm" in name)
        weight.data = weight.data.bfloat16().float()
    return made


def stream(codes, bits):
    """Unsigned codes [lines, n] as I32 [lines, n * bits / 32], lowest bits first."""
    lines, n = codes.shape
    each = (codes.numpy()[:, :, None] >> np.arange(bits)) & 1
    flat = np.zeros((lines, -(-n * bits // 32) * 32), dtype=np.uint64)
    flat[:, :n * bits] = each.reshape(lines, n * bits)
    words = (flat.reshape(lines, -1, 32) << np.arange(32, dtype=np.uint64)).sum(axis=2)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def random_codes(shape, bits, least=0):
    return torch.randint(least, 2**bits, shape)


def random_scales(shape, bits, dtype=torch.float32):
    return ((0.5 + torch.rand(shape)) * 1.2 / 2**bits).to(dtype)


# --- methods: each gives the parts of one product in files, and its weights in f32 ---

class Gptq:
    def __init__(self, source, bits, group, v2, order):
        self.bits, self.group, self.v2, self.order = bits, group, v2, order
        text = open(os.path.join(source, "gptqmodel/nn_modules/qlinear/__init__.py")).read()
        wanted = ("dequantize_weight", "_dequantize_from_codes")
        bodies = [node for owner in ast.parse(text).body if isinstance(owner, ast.ClassDef)
                  for node in owner.body
                  if isinstance(node, ast.FunctionDef) and node.name in wanted]
        room = {"t": torch, "_torch_right_shift": torch.bitwise_right_shift,
                "_torch_left_shift": torch.bitwise_left_shift}
        exec(compile(ast.Module(bodies, []), "gptqmodel", "exec"), room)
        self.widen = room["dequantize_weight"]
        self.from_codes = room["_dequantize_from_codes"]
        self.config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=order,
                           sym=False, checkpoint_format="gptq_v2" if v2 else "gptq")

    def make(self, name, weight):
        rows, columns = weight.shape
        group = columns if self.group < 0 else self.group
        codes = random_codes((rows, columns), self.bits)
        zeros = random_codes((columns // group, rows), self.bits, 0 if self.v2 else 1)
        scales = random_scales(zeros.shape, self.bits, torch.float16)
        g_idx = torch.arange(columns) // group
        if self.order:
            g_idx = g_idx[torch.randperm(columns)]
        parts = {"qweight": stream(codes, self.bits).T.contiguous(),
                 "qzeros": stream(zeros - int(not self.v2), self.bits), "scales": scales,
                 "g_idx": g_idx.int()}
        layer = types.SimpleNamespace(
            planar=False, bits=self.bits, qzeros=stream(zeros, self.bits), in_features=columns,
            qweight=parts["qweight"], scales=scales.float(), g_idx=parts["g_idx"],
            maxq=2**self.bits - 1, pack_factor=32 // self.bits, dequant_dtype=torch.int32,
            _init_wf_unsqueeze_buffers=lambda: None)
        shifts = torch.arange(0, 32, self.bits)
        if self.bits == 3:  # as gptqmodel has them
            shifts = torch.tensor([[0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 0],
                                   [0, 1, 4, 7, 10, 13, 16, 19, 22, 25, 28, 31],
                                   [0, 2, 5, 8, 11, 14, 17, 20, 23, 26, 29, 0]])
            shifts = shifts.reshape(1, 3, 12)
        layer.wf_unsqueeze_zero = shifts.unsqueeze(0).int()
        layer.wf_unsqueeze_neg_one = shifts.unsqueeze(-1).int()
        layer._dequantize_from_codes = lambda w, z, num_itr: self.from_codes(layer, w, z, num_itr)
        return parts, self.widen(layer).T.contiguous()


class Awq:
    def __init__(self, source):
        path = os.path.join(source, "gptqmodel/quantization/awq/utils/packing_utils.py")
        spec = importlib.util.spec_from_file_location("packing_utils", path)
        self.theirs = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.theirs)
        self.config = dict(quant_method="awq", bits=4, group_size=16, zero_point=True,
                           version="gemm", modules_to_not_convert=None)

    def make(self, name, weight):
        rows, columns = weight.shape
        codes, zeros = random_codes((columns, rows), 4), random_codes((columns // 16, rows), 4)
        scales = random_scales(zeros.shape, 4, torch.float16)
        packed, packed_zeros = self.theirs.pack_awq(codes, zeros, 4)
        wide, wide_zeros = self.theirs.unpack_awq(packed, packed_zeros, 4)
        wide, wide_zeros = self.theirs.reverse_awq_order(wide, wide_zeros, 4)
        each = [part.float().repeat_interleave(16, 0) for part in (wide_zeros & 15, scales)]
        return (dict(qweight=packed, qzeros=packed_zeros, scales=scales),
                ((wide & 15).float() - each[0]).mul(each[1]).T.contiguous())


class Bnb4:
    def __init__(self, kind, nested):
        self.kind, self.nested = kind, nested
        self.config = dict(quant_method="bitsandbytes", load_in_4bit=True, load_in_8bit=False,
                           bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant=nested,
                           bnb_4bit_compute_dtype="float32", bnb_4bit_quant_storage="uint8",
                           llm_int8_skip_modules=None)

    def make(self, name, weight):
        codes, state = bnb.functional.quantize_4bit(weight, blocksize=64, quant_type=self.kind,
                                                    compress_statistics=self.nested)
        if self.nested:  # blocks of 256 scales are more than so small a matrix has
            outer = state.state2
            outer.blocksize, outer.absmax = 8, outer.absmax * torch.tensor([1, 1.5])
        parts = {"weight": codes}
        parts |= {"weight." + key: part for key, part in state.as_dict(packed=True).items()}
        if self.nested:
            scales = outer.code[state.absmax.long()] * outer.absmax.repeat_interleave(8)
            state.absmax, state.nested, state.state2 = scales + state.offset, False, None
        # As one row: bitsandbytes' kernel for CPUs takes each row's first block for one of its own,
        # where a row is no whole number of blocks.
        state.shape = torch.Size([1, weight.numel()])
        return parts, bnb.functional.dequantize_4bit(codes, state).reshape(weight.shape)


class Bnb8:
    config = dict(quant_method="bitsandbytes", load_in_4bit=False, load_in_8bit=True,
                  llm_int8_threshold=6.0, llm_int8_skip_modules=None)

    def make(self, name, weight):
        codes, scales, _ = bnb.functional.int8_vectorwise_quant(weight.half())
        return ({"weight": codes, "SCB": scales, "weight_format": torch.tensor(0).byte()},
                bnb.functional.int8_vectorwise_dequant(codes, scales))


class Compressed:
    """Rows: the products, a format, the arguments of their weights, and whether g_idx is kept."""

    def __init__(self, *rows):
        self.rows = rows
        groups = {f"group_{i}": dict(targets=["re:.*" + n.split(".")[1] for n in names],
                                     format=form, weights=dict(args), input_activations=None,
                                     output_activations=None)
                  for i, (names, form, args) in enumerate(rows)}
        self.config = dict(quant_method="compressed-tensors", config_groups=groups,
                           format=rows[0][1] if len(rows) == 1 else "mixed-precision",
                           quantization_status="compressed", ignore=["lm_head"],
                           kv_cache_scheme=None, sparsity_config={}, transform_config={})

    def make(self, name, weight):
        form, args = [row[1:] for row in self.rows if name in row[0]][0]
        scheme = QuantizationScheme(targets=["Linear"], format=form,
                                    weights=QuantizationArgs(**args))
        rows, columns = weight.shape
        bits, strategy = args["num_bits"], args["strategy"]
        shape = {"tensor": (1,), "channel": (rows, 1),
                 "block": tuple(-(-n // b) for n, b in zip(weight.shape,
                                                           args.get("block_structure", (1, 1))))}
        shape = shape.get(strategy) or (rows, columns // args["group_size"])
        parts, real = {}, compressors.BaseCompressor.get_value_from_registry(form)
        if form in ("nvfp4-pack-quantized", "mxfp4-pack-quantized"):
            parts["weight_packed"] = torch.randint(0, 256, (rows, columns // 2)).byte()
            codes = unpack_fp4_from_uint8(parts["weight_packed"], rows, columns, torch.float32)
            if form[0] == "n":
                parts["weight_scale"] = (torch.rand(shape) * 200 + 50).to(torch.float8_e4m3fn)
                parts["weight_global_scale"] = torch.tensor([901.7])
                scales = parts["weight_scale"].float() / parts["weight_global_scale"]
            else:
                parts["weight_scale"] = torch.randint(122, 127, shape).byte()
                scales = torch.ldexp(torch.ones(shape), parts["weight_scale"].int() - 127)
            return parts, codes * scales.repeat_interleave(columns // shape[1], 1)
        zeros = None
        if args["type"] == "float":
            parts["weight"] = (torch.randn(rows, columns) * 60).to(torch.float8_e4m3fn)
        elif form == "int-quantized":
            parts["weight"] = torch.randint(-128, 128, (rows, columns)).to(torch.int8)
        else:
            codes = torch.randint(-2**(bits - 1), 2**(bits - 1), (rows, columns)).to(torch.int8)
            parts |= {"weight_packed": pack_to_int32(codes, bits),
                      "weight_shape": torch.tensor([rows, columns])}
        parts["weight_scale"] = random_scales(shape, bits, torch.bfloat16)
        if not args["symmetric"]:
            zeros = torch.randint(-2**(bits - 1), 2**(bits - 1), shape).to(torch.int8)
            parts["weight_zero_point"] = (zeros if form == "int-quantized" else
                                          pack_to_int32(zeros, bits, packed_dim=0).contiguous())
        wide = real.decompress(parts | {"weight_scale": parts["weight_scale"].float()}, scheme)
        return parts, wide["weight"].float()


class ModelOpt:
    config = dict(quant_method="modelopt", quant_algo="NVFP4", kv_cache_quant_algo="FP8",
                  group_size=16, exclude_modules=["lm_head"])

    def make(self, name, weight):
        rows, columns = weight.shape
        parts = {"weight": torch.randint(0, 256, (rows, columns // 2)).byte(),
                 "weight_scale": (torch.rand(rows, columns // 16) * 200 + 50).to(
                     torch.float8_e4m3fn),
                 "weight_scale_2": torch.tensor(0.00113), "input_scale": torch.tensor(0.5)}
        if name.endswith("k_proj"):
            parts["k_scale"] = torch.tensor(1.5)
        codes = unpack_fp4_from_uint8(parts["weight"], rows, columns, torch.float32)
        scales = parts["weight_scale"].float() * parts["weight_scale_2"]
        return parts, codes * scales.repeat_interleave(16, 1)


def w(bits, kind, strategy, symmetric=True, **more):
    return dict(num_bits=bits, type=kind, strategy=strategy, symmetric=symmetric, **more)


def methods(source):
    attention, mlp = PRODUCTS[:4], PRODUCTS[4:]
    return {
        "gptq": Gptq(source, 4, 8, False, True),
        "gptq_v2": Gptq(source, 3, -1, True, False),
        "gptq_8": Gptq(source, 8, 16, False, False),
        "awq": Awq(source),
        "bnb_nf4": Bnb4("nf4", True),
        "bnb_fp4": Bnb4("fp4", False),
        "bnb_int8": Bnb8(),
        "compressed": Compressed((PRODUCTS, "pack-quantized", w(4, "int", "group", group_size=8))),
        "compressed_mixed": Compressed(
            (attention[:1], "pack-quantized", w(4, "int", "group", False, group_size=16)),
            (attention[1:2], "int-quantized", w(8, "int", "channel")),
            (attention[2:3], "float-quantized", w(8, "float", "channel")),
            (attention[3:], "float-quantized", w(8, "float", "block", block_structure=[12, 20])),
            (mlp[:1], "nvfp4-pack-quantized", w(4, "float", "tensor_group", group_size=16)),
            (mlp[1:2], "mxfp4-pack-quantized", w(4, "float", "group", group_size=32)),
            (mlp[2:], "pack-quantized", w(3, "int", "channel", False))),
        "compressed_int8": Compressed(
            (attention, "int-quantized", w(8, "int", "channel", False)),
            (mlp, "int-quantized", w(8, "int", "tensor"))),
        "modelopt": ModelOpt(),
    }


def word_sum(tensor):
    words = tensor.contiguous().float().numpy().reshape(-1).view(np.uint32).astype(np.uint64)
    places = np.arange(words.size, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return torch.from_numpy(np.array([(words * places).sum()], dtype=np.uint64).view(np.int64))


def make(name, method, seed):
    made = model()
    torch.manual_seed(seed)
    tensors, wide = {}, {}
    for full, weight in made.named_parameters():
        short = full.removeprefix("model.layers.0.").removesuffix(".weight")
        if short not in PRODUCTS:
            tensors[full], wide[full] = weight.data.bfloat16(), weight.data
            continue
        parts, wide[full] = method.make(short, weight.data)
        stem = full.removesuffix("weight")
        tensors |= {stem + end: part.clone().contiguous() for end, part in parts.items()}
    made.load_state_dict(wide | {"lm_head.weight": wide["model.embed_tokens.weight"]})
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ))
    with torch.no_grad():
        logits = made.double()(tokens).logits
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    made.config.dtype = torch.bfloat16
    made.config.save_pretrained(folder)
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config |= {"architectures": ["LlamaForCausalLM"], "dtype": "bfloat16"}
    if name == "modelopt":
        quantization = {k: v for k, v in method.config.items() if k != "quant_method"}
        json.dump(dict(producer=dict(name="modelopt", version="0.33"), quantization=quantization),
                  open(os.path.join(folder, "hf_quant_config.json"), "w"), indent=1)
    else:
        config["quantization_config"] = method.config
    json.dump(config, open(path, "w"), indent=1)
    save_file(tensors, os.path.join(folder, "model.safetensors"), {"format": "pt"})
    expect = {"sum/" + full: word_sum(weight) for full, weight in wide.items()}
    save_file(expect | {"tokens": tokens.int(), "logits": logits.float()},
              os.path.join(folder, "expect.safetensors"))


def save_by_transformers(room, kind, nested):
    """A folder that transformers itself quantizes; rows are whole blocks, as its kernel needs."""
    plain, folder = os.path.join(room, "plain"), os.path.join(room, "quantized")
    torch.manual_seed(5)
    wide = LLAMA | dict(hidden_size=64, intermediate_size=128, num_attention_heads=4)
    hf.LlamaForCausalLM(hf.LlamaConfig(**wide)).save_pretrained(plain)
    how = hf.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=kind,
                                bnb_4bit_use_double_quant=nested)
    made = hf.AutoModelForCausalLM.from_pretrained(plain, quantization_config=how, device_map="cpu",
                                                   dtype=torch.float32)
    made.save_pretrained(folder)
    return folder


def check(program, name, folder):
    room = tempfile.mkdtemp()
    ours, out = os.path.join(room, "w.safetensors"), os.path.join(room, "out")
    subprocess.run([program, "import", folder, "-o", ours], check=True, capture_output=True)
    subprocess.run([program, "export", ours, "--like", folder, "--dtype", "f32", "-o", out],
                   check=True, capture_output=True)
    config = json.load(open(os.path.join(out, "config.json")))
    assert "quantization_config" not in config, name
    tokens = load_file(os.path.join(HERE, "gptq", "expect.safetensors"))["tokens"].long()
    mine = hf.AutoModelForCausalLM.from_pretrained(out, dtype=torch.float32)
    try:
        theirs = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        if "of transformers" in name:
            theirs = theirs.dequantize(torch.float32)  # else products are rounded to bf16 on a CPU
        with torch.no_grad():
            a, b = mine(tokens).logits, theirs(tokens).logits.float()
        print(f"{name}: transformers' own within {(a - b).abs().max() / b.abs().max():.2e}")
    except Exception as why:  # needs a GPU, or a package that was not installed
        print(f"{name}: transformers does not load it here: {str(why).splitlines()[0][:100]}")
    shutil.rmtree(room)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gptqmodel", required=True, metavar="DIR")
    parser.add_argument("--check", metavar="PROGRAM")
    args = parser.parse_args()
    for seed, (name, method) in enumerate(methods(args.gptqmodel).items()):
        if args.check:
            check(args.check, name, os.path.join(HERE, name))
        else:
            make(name, method, 500 + seed)
    for kind, nested in [("nf4", True), ("nf4", False), ("fp4", True)] if args.check else []:
        with tempfile.TemporaryDirectory() as room:
            check(args.check, f"{kind} of transformers", save_by_transformers(room, kind, nested))


if __name__ == "__main__":
    main()
