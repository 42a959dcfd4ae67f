#!/usr/bin/env python3
"""Makes llava, smolvlm and internvl in tests/reference/hf: tiny models that see images, of transformers.

    venv/bin/python tests/reference/make_vision.py                      # rewrites the folders
    venv/bin/python tests/reference/make_vision.py --check build/perilune

As make_hf.py's folders; expect.safetensors has besides pixels I32 [batch, patches, pixel], numbers
0..255 in the order that the engine takes, images that a row lacks being zeros. What transformers
is given of them is normalised as the models' processors do. Logits and gradients are computed in
float64. Rows have two images at most: --set images=2, and patches of two.

--check imports and exports each by the program, and compares what transformers says of what came
out, and every tensor that it has.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf")
VOCAB, BATCH, SEQ, PATCH, TOKEN = 37, 2, 20, 4, 36
TEXT = dict(model_type="llama", vocab_size=VOCAB, hidden_size=16, intermediate_size=24,
            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=SEQ, bos_token_id=None, eos_token_id=None, pad_token_id=None)
TOWER = dict(hidden_size=12, intermediate_size=20, num_hidden_layers=3, num_attention_heads=2,
             patch_size=PATCH)
CLIP = ([0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711])
HALF = ([0.5] * 3, [0.5] * 3)
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
QWEN = dict(TEXT, model_type="qwen2", tie_word_embeddings=False)
MODELS = {  # configuration, images of each row, of how many at most, pixels of a side, mean and std
    "llava": (hf.LlavaConfig(text_config=TEXT, image_token_index=TOKEN, image_seq_length=9,
                             vision_config=dict(model_type="clip_vision_model", image_size=12,
                                                projection_dim=8, **TOWER)), (2, 1), 2, 12, CLIP),
    "smolvlm": (hf.SmolVLMConfig(text_config=TEXT, image_token_id=TOKEN, scale_factor=2,
                                 pad_token_id=None,
                                 vision_config=dict(image_size=16, **TOWER)), (2, 1), 2, 16, HALF),
    "internvl": (hf.InternVLConfig(text_config=QWEN, image_token_id=TOKEN, image_seq_length=4,
                                   tie_word_embeddings=False, projector_hidden_act="gelu",
                                   vision_config=dict(TOWER, patch_size=[PATCH, PATCH],
                                                      image_size=[16, 16], attention_bias=True)),
                 (2, 1), 2, 16, IMAGENET),
    "internvl_6b": (hf.InternVLConfig(text_config=dict(QWEN, tie_word_embeddings=True),
                                      image_token_id=TOKEN, image_seq_length=4,
                                      tie_word_embeddings=True,
                                      vision_config=dict(TOWER, image_size=16, norm_type="rms_norm",
                                                         use_qk_norm=True,
                                                         use_mean_pooling=False)),
                    (2, 1), 2, 16, IMAGENET),
}


def to_images(pixels, side):
    """[images, patches, pixel] -> [images, 3, side, side]"""
    n, across = pixels.shape[0], side // PATCH
    return pixels.reshape(n, across, across, 3, PATCH, PATCH).permute(0, 3, 1, 4, 2, 5).reshape(
        n, 3, side, side)


def inputs_of(name, tokens, pixels):
    _, counts, most, side, (mean, std) = MODELS[name]
    n = (side // PATCH) ** 2
    rows = []
    for row, count in zip(pixels, counts):
        images = to_images(row.reshape(most, n, -1), side).double() / 255
        images = (images - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
        images[count:] = 0  # as the processor fills up
        rows.append(images)
    values = torch.stack(rows)
    if name != "smolvlm":  # images of all rows, without those that a row lacks
        values = torch.cat([row[:count] for row, count in zip(rows, counts)])
    return dict(input_ids=tokens.long(), pixel_values=values.double())


def load(folder):
    return hf.AutoModelForImageTextToText.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32).double().eval()


def fill(model, generator):
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise * 0.3 if weight.dim() > 1 else weight + noise * 0.1)


def make(name):
    cfg, counts, most, side, _ = MODELS[name]
    folder = os.path.join(HERE, name)
    for suffix in ("", "_gradients"):
        shutil.rmtree(folder + suffix, ignore_errors=True)
    generator = torch.Generator().manual_seed(7)
    model = hf.AutoModelForImageTextToText.from_config(cfg)
    fill(model, generator)
    model.save_pretrained(folder)
    n, places = (side // PATCH) ** 2, 9 if name == "llava" else 4
    tokens = torch.randint(TOKEN, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    pixels = torch.randint(256, (BATCH, most, n, 3 * PATCH * PATCH), generator=generator,
                           dtype=torch.int32)
    for row, count in enumerate(counts):
        pixels[row, count:] = 0
        for image in range(count):
            first = 1 + row + image * (places + 1)
            tokens[row, first:first + places] = TOKEN
    pixels = pixels.reshape(BATCH, most * n, -1)
    labels = torch.randint(VOCAB, (BATCH, SEQ), generator=generator, dtype=torch.int32)
    labels[0, :5] = -1
    model = load(folder)
    softmax = torch.nn.functional.softmax  # which transformers computes in float32
    torch.nn.functional.softmax = lambda x, dim, dtype=None: softmax(x, dim)
    logits = model(**inputs_of(name, tokens, pixels)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.long().flatten(),
                                             ignore_index=-1)
    loss.backward()
    torch.nn.functional.softmax = softmax
    save_file({"tokens": tokens, "pixels": pixels, "labels": labels, "loss": loss.detach(),
               "logits": logits.detach().float().contiguous()},
              os.path.join(folder, "expect.safetensors"))
    for weight in model.parameters():
        weight.data = torch.zeros_like(weight) if weight.grad is None else weight.grad
    model.float().save_pretrained(folder + "_gradients")
    shutil.copy(os.path.join(folder, "config.json"), folder + "_gradients")
    if name == "llava":  # as published: transformers 5 leaves a part of the tower's names out
        path = os.path.join(folder, "model.safetensors")
        save_file({published(k): v for k, v in load_file(path).items()}, path, {"format": "pt"})
    for suffix in ("", "_gradients"):
        os.remove(os.path.join(folder + suffix, "generation_config.json"))
    print(f"{name}: {sorted(os.listdir(folder))}, loss {loss.item():.6f}")


def published(name):
    return name.replace("vision_tower.", "vision_tower.vision_model.", 1)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def check(name, perilune, scratch):
    folder, weights = os.path.join(HERE, name), os.path.join(scratch, name + ".safetensors")
    out = os.path.join(scratch, name)
    _, _, most, side, _ = MODELS[name]
    sizes = ["--set", f"images={most}", "--set", f"patches={most * (side // PATCH) ** 2}"]
    run(perilune, "import", folder, *sizes, "-o", weights)
    run(perilune, "export", weights, "--model", "models/llava.lua", "--set-from", weights,
        "--dtype", "f32", "--like", folder, "-o", out)
    expect = load_file(os.path.join(folder, "expect.safetensors"))
    with torch.no_grad():
        logits = load(out)(**inputs_of(name, expect["tokens"], expect["pixels"])).logits
    error = ((logits - expect["logits"]).abs().max() / expect["logits"].abs().max()).item()
    theirs = load_file(os.path.join(folder, "model.safetensors"))
    ours = load_file(os.path.join(out, "model.safetensors"))
    differ = [k for k, v in ours.items() if not torch.equal(theirs[k], v)]
    print(f"{name}: {len(ours)} of {len(theirs)} tensors, {len(differ)} differ; "
          f"logits by {error:.1e}")
    if error > 1e-6 or differ:
        raise SystemExit("not the same")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", metavar="PERILUNE")
    args = parser.parse_args()
    if not args.check:
        for name in MODELS:
            make(name)
        return
    with tempfile.TemporaryDirectory() as scratch:
        for name in MODELS:
            check(name, args.check, scratch)


if __name__ == "__main__":
    sys.exit(main())
