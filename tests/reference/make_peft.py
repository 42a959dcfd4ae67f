#!/usr/bin/env python3
"""Makes adapters that PEFT saved, and what they compute: hf_peft for hf/llama31, hf_peft_pairs for
hf/glm4, whose rotary pairs lie side by side there, hf_peft_parameters for hf/gpt_oss, of all experts
as one parameter, hf_peft_state for hf/mamba2 and hf_peft_delta for hf/qwen3_next, of matrices that
are several parameters of a layer with a state, the first with gradients in hf_peft_state_gradients,
the second with embeddings and a head that are whole, and hf_peft_experts for hf/mixtral, by expert,
as PEFT saved them before transformers had them in one tensor, with its gradients in
hf_peft_experts_gradients.

    venv/bin/pip install torch transformers peft safetensors
    venv/bin/python tests/reference/make_peft.py                        # rewrites the folders
    venv/bin/python tests/reference/make_peft.py --check build/perilune # exports, read by PEFT

An adapter's numbers are random, B's too. expect.safetensors: tokens, and logits of base and
adapter in float64, stored as float32.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = {"hf_peft": ("llama31", ["q_proj", "v_proj", "down_proj"]),
           "hf_peft_pairs": ("glm4", ["q_proj", "k_proj", "o_proj"]),
           "hf_peft_parameters": ("gpt_oss", ["v_proj"]), "hf_peft_experts": ("mixtral", None),
           "hf_peft_state": ("mamba2", ["in_proj"]),
           "hf_peft_delta": ("qwen3_next", ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj"])}
PARAMETERS = {"hf_peft_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]}
WITH_GRADIENTS = {"hf_peft_state"}
SAVED = {"hf_peft_delta": ["embed_tokens", "lm_head"]}
BATCH, SEQ, VOCAB = 2, 20, 37


def base(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")  # others know no float64
    return model


def adapted_logits(folder, adapter, tokens):
    model = PeftModel.from_pretrained(base(folder, torch.float64), adapter).to(torch.float64)
    with torch.no_grad():
        return model(tokens.long()).logits


def paths(name):
    return os.path.join(HERE, "hf", FOLDERS[name][0]), os.path.join(HERE, name)


def gradients(of, folder, tokens, labels):
    """Logits of all sequences in float64, the mean loss of the first one, which the tests read, and
    the gradients of its adapter."""
    model = PeftModel.from_pretrained(base(of, torch.float64), folder, is_trainable=True).double()
    logits = model(tokens.long()).logits
    loss = torch.nn.functional.cross_entropy(logits[0], labels[0].long())
    loss.backward()
    grads = {n.replace(".default", ""): p.grad.float() for n, p in model.named_parameters()
             if p.grad is not None}
    return logits.detach().float(), loss.detach().double(), grads


def make(name):
    of, folder = paths(name)
    generator = torch.Generator().manual_seed(1)
    config = LoraConfig(r=3, lora_alpha=5, use_rslora=True, task_type="CAUSAL_LM",
                        target_modules=FOLDERS[name][1], target_parameters=PARAMETERS.get(name),
                        modules_to_save=SAVED.get(name))
    model = get_peft_model(base(of, torch.float32), config)
    for parameter, x in model.named_parameters():
        if "lora_" in parameter:
            x.data = torch.randn(x.shape, generator=generator) * 0.3
        elif ".modules_to_save." in parameter:
            x.data += torch.randn(x.shape, generator=generator) * 0.05
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    path = os.path.join(folder, "adapter_config.json")
    text = open(path).read().replace(of, FOLDERS[name][0])
    open(path, "w").write(text + "\n")
    tokens = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    expect = {"tokens": tokens, "logits": adapted_logits(of, folder, tokens).float()}
    if name in WITH_GRADIENTS:
        labels = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
        _, loss, grads = gradients(of, folder, tokens, labels)
        expect.update(labels=labels, loss=loss)
        shutil.rmtree(folder + "_gradients", ignore_errors=True)
        os.mkdir(folder + "_gradients")
        shutil.copy(path, folder + "_gradients")
        save_file(grads, os.path.join(folder + "_gradients", "adapter_model.safetensors"),
                  {"format": "pt"})
    save_file(expect, os.path.join(folder, "expect.safetensors"))
    print(name, sorted(os.listdir(folder)))


def by_expert(theirs, rank):
    """An adapter's tensors as PEFT has them of all experts, by expert: of w1 and w3, one of twice the
    rank, and of w2."""
    tensors, both = {}, {"w1": 0, "w3": 1}
    for name, x in theirs.items():
        head, _, half = name.partition(".mlp.experts.")
        if not half:
            tensors[name] = x
            continue
        names, r = (both, 2 * rank) if half.startswith("base_layer.") else ({"w2": 0}, rank)
        is_a = "lora_A" in half
        experts = x.shape[0 if is_a else 1] // r
        for e in range(experts):
            own = x.view(experts, r, -1)[e] if is_a else x.view(-1, r, experts)[:, :, e]
            for w, at in names.items():
                rows = slice(at * rank, (at + 1) * rank)
                n_out = own.shape[0] // len(names)
                part = own[rows] if is_a else own[at * n_out:(at + 1) * n_out, rows]
                key = f"{head}.block_sparse_moe.experts.{e}.{w}.lora_{'A' if is_a else 'B'}.weight"
                tensors[key] = part.contiguous()
    return tensors


def make_experts(name):
    of, folder = paths(name)
    generator = torch.Generator().manual_seed(2)
    rank, tensors = 3, {}
    model = base(of, torch.float32)
    sizes = model.config
    for layer in range(sizes.num_hidden_layers):
        for e in range(sizes.num_local_experts):
            for w in ("w1", "w2", "w3"):
                n_in, n_out = sizes.hidden_size, sizes.intermediate_size
                if w == "w2":
                    n_in, n_out = n_out, n_in
                key = f"base_model.model.model.layers.{layer}.block_sparse_moe.experts.{e}.{w}"
                for half, shape in (("A", (rank, n_in)), ("B", (n_out, rank))):
                    x = torch.randn(shape, generator=generator) * 0.3
                    tensors[f"{key}.lora_{half}.weight"] = x
    config = LoraConfig(r=rank, lora_alpha=5, task_type="CAUSAL_LM", inference_mode=True,
                        target_modules=["w1", "w2", "w3"],
                        base_model_name_or_path=FOLDERS[name][0])
    beside = folder + "_gradients"
    for to in (folder, beside):
        shutil.rmtree(to, ignore_errors=True)
        os.mkdir(to)
        config.save_pretrained(to)
    save_file(tensors, os.path.join(folder, "adapter_model.safetensors"), {"format": "pt"})
    tokens = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    labels = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    logits, loss, grads = gradients(of, folder, tokens, labels)
    save_file(by_expert(grads, rank), os.path.join(beside, "adapter_model.safetensors"),
              {"format": "pt"})
    save_file({"tokens": tokens, "labels": labels, "logits": logits, "loss": loss},
              os.path.join(folder, "expect.safetensors"))
    print(name, sorted(os.listdir(folder)), len(grads), "gradients")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def check(name, perilune):
    of, folder = paths(name)
    expect = load_file(os.path.join(folder, "expect.safetensors"))
    with tempfile.TemporaryDirectory() as scratch:
        weights, adapter = os.path.join(scratch, "base"), os.path.join(scratch, "adapter")
        merged, again = os.path.join(scratch, "merged"), os.path.join(scratch, "again")
        run(perilune, "import", of, "-o", weights)
        run(perilune, "import", folder, "--set-from", weights, "-o", adapter)
        run(perilune, "export", weights, "--load-trained", adapter, "--dtype", "f32", "-o", merged)
        run(perilune, "export", adapter, "--adapter", "-o", again)
        with torch.no_grad():
            ours = base(merged, torch.float64)(expect["tokens"].long()).logits
        theirs = adapted_logits(of, again, expect["tokens"])
        for what, logits in (("merged", ours), ("adapter", theirs)):
            error = ((logits - expect["logits"]).abs().max() / expect["logits"].abs().max()).item()
            print(f"{name}, {what}: logits within {error:.1e} of the largest")
            # Merged weights are rounded to f32, and a state adds up what that makes of them.
            if error > 4e-6:
                raise SystemExit(f"{name}, {what}: logits differ")


def check_classes(perilune):
    """Adapters and a head, trained by the program: merged ones and PEFT's own tell classes alike."""
    tokens = torch.arange(1, 13).reshape(2, 6)
    with tempfile.TemporaryDirectory() as scratch:
        path = {name: os.path.join(scratch, name) for name in
                ("texts.jsonl", "tokenizer.json", "base", "base_dir", "told", "merged", "adapter")}
        with open(path["texts.jsonl"], "w") as file:
            for i in range(60):
                text = f"the film of {i} was {('cold', 'warm', 'so-so')[i % 3]}"
                file.write(json.dumps({"text": text, "label": i % 3}) + "\n")
        run(perilune, "tokenizer", "train", path["texts.jsonl"], "--vocab", "300", "-o",
            path["tokenizer.json"])
        sizes = dict(layers=1, model=32, heads=2, kv_heads=2, ffn=48, seq=24, vocab=300)
        data = ["--data", path["texts.jsonl"], "--tokenizer", path["tokenizer.json"], "--steps",
                "20", "--lr", "1e-2", "--val-fraction", "0", "--micro-batch", "4",
                "--global-batch", "4"]
        train = [perilune, "train", "models/llama.lua", *data]
        run(*train, *(word for k, v in sizes.items() for word in ("--set", f"{k}={v}")), "--save",
            path["base"])
        run(perilune, "export", path["base"], "--dtype", "f32", "-o", path["base_dir"])
        run(*train, "--set-from", path["base"], "--load", path["base"], "--set", "lora=2", "--set",
            "classes=bad,good,so-so", "--save", path["told"])
        for option, out in (("--adapter", "adapter"), ("--max-shard-size=5GB", "merged")):
            run(perilune, "export", path["told"], "--dtype", "f32", option, "-o", path[out])

        def classifier(folder):
            model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3,
                                                                       dtype=torch.float64)
            model.config.pad_token_id = VOCAB
            return model

        with torch.no_grad():
            merged = classifier(path["merged"])(tokens).logits
            adapted = PeftModel.from_pretrained(classifier(path["base_dir"]), path["adapter"])
            error = (adapted.double()(tokens).logits - merged).abs().max() / merged.abs().max()
        print(f"adapter and head: logits within {error:.1e} of the largest")
        if error > 1e-6:
            raise SystemExit("adapter and head: logits differ")


# Models whose adapters the program trains: what it is to adapt.
TRAINED = {
    "mixtral": ("moe", "all"), "qwen3_moe": ("moe", "q,k,v,o,experts"),
    "olmoe": ("moe", "k,v,experts"), "glm4_moe": ("moe", "o,experts"),
    "minimax_m2": ("moe", "experts"), "ernie4_5_moe": ("moe", "q,k"),
    "deepseek_v3": ("deepseek", "q,k,v,o,experts"), "gpt2": ("gpt", "q,k,v,o,up,down"),
    "gpt_oss": ("gptoss", "q,experts.gate+experts.up,experts.down"),
    "phi3": ("llama", "q+k+v,o,gate+up,down"), "glm4": ("llama", "all"),
    "gpt_neox": ("neox", "q+k+v,o,up,down"), "gemma": ("gemma", "q+k,gate+up"),
    "mamba2": ("hybrid", "state.in"), "mamba2_tied": ("hybrid", "state.in"),
    "falcon_h1": ("hybrid", "q,k,v,o,gate,up,down,state.in"),
    "nemotron_h": ("hybrid", "q,k,v,o,up,down,state.in"), "bamba": ("hybrid", "state,q"),
    "lfm2": ("hybrid", "all"), "granite4_dense": ("hybrid", "all"),
    "qwen3_next": ("hybrid", "state,q,k,v,o,attn.gate"), "qwen3_5": ("hybrid", "all"),
    "olmo_hybrid": ("hybrid", "all"), "kimi_linear": ("kimi", "state,o")}
# Weights that it trains beside them.
BESIDE = {"qwen3_5": "!wte,!head", "mixtral": "!head,!*.gain", "gemma": "!wte",
          "mamba2_tied": "!wte"}


def check_trained(name, perilune):
    """Adapters that the program trains for a model: merged ones and PEFT's own are the same."""
    of, (script, targets) = os.path.join(HERE, "hf", name), TRAINED[name]
    beside = ["--set", f"freeze={BESIDE[name]}"] if name in BESIDE else []
    tokens = torch.arange(1, 2 * SEQ + 1).reshape(2, SEQ) % VOCAB
    with tempfile.TemporaryDirectory() as scratch:
        path = {n: os.path.join(scratch, n) for n in ("t.txt", "base", "base_dir", "adapter",
                                                      "merged", "peft")}
        with open(path["t.txt"], "wb") as file:
            file.write(bytes(i * i % VOCAB for i in range(3000)))
        run(perilune, "import", of, "-o", path["base"])
        run(perilune, "train", f"models/{script}.lua", "--set-from", path["base"], "--set", "lora=2",
            *beside, "--set", "lora_alpha=5", "--set", f"lora_targets={targets}", "--set",
            "lora_rslora=true", "--load", path["base"],
            "--data", path["t.txt"], "--val-fraction", "0", "--steps", "20", "--lr", "3e-2",
            "--micro-batch", "2", "--global-batch", "2", "--save-trained", path["adapter"])
        run(perilune, "export", path["base"], "--dtype", "f32", "-o", path["base_dir"])
        run(perilune, "export", path["base"], "--load-trained", path["adapter"], "--dtype", "f32",
            "-o", path["merged"])
        run(perilune, "export", path["adapter"], "--adapter", "-o", path["peft"])
        with torch.no_grad():
            before = base(path["base_dir"], torch.float64)(tokens).logits
            ours = base(path["merged"], torch.float64)(tokens).logits
        theirs = adapted_logits(path["base_dir"], path["peft"], tokens)
        most, moved = ours.abs().max().item(), (ours - before).abs().max().item()
        error = (theirs - ours).abs().max().item() / most
        print(f"{name}, trained: logits within {error:.1e} of the largest, moved {moved / most:.1e}")
        if error > 4e-6 or moved < 0.05 * most:
            raise SystemExit(f"{name}: logits differ, or did not move")


def main():
    parser = argparse.ArgumentParser(description="see the head of this file")
    parser.add_argument("--check", metavar="PERILUNE")
    args = parser.parse_args()
    for name in FOLDERS:
        if args.check:
            check(name, args.check)
        elif FOLDERS[name][1]:
            make(name)
        else:
            make_experts(name)
    if args.check:
        check_classes(args.check)
        for name in TRAINED:
            check_trained(name, args.check)
    return 0


if __name__ == "__main__":
    sys.exit(main())
