#!/usr/bin/env python3
"""Compares what AutoProcessor makes of images by a folder, and by what came out of an import of it and an export.

    venv/bin/python tests/reference/check_processors.py build/perilune

Folders are those of make_vision.py with preprocessor_config.json and processor_config.json as saved by transformers 4
(flat) and 5 (one in the other) beside them. Pixels, tokens and, of an export `--like` the folder and without, what the
processors are made of have to be the same. Needs num2words and torchvision beside transformers.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hf")
CLIP = dict(image_mean=[0.48145466, 0.4578275, 0.40821073], image_std=[0.26862954, 0.26130258, 0.27577711])
OWN = dict(image_mean=[0.4, 0.5, 0.625], image_std=[0.25, 0.5, 0.3])
SQUARE = dict(height=12, width=12)
TOKENS = dict(image_token="<image>", start_image_token="<img>", end_image_token="</img>",
              context_image_token="<image>", video_token="<v>", fake_image_token="<fake_token_around_image>",
              global_image_token="<global-img>", end_of_utterance_token="<end>")
LLAVA = dict(patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1)
CASES = [  # folder, class, preprocessor, processor
    ("llava", "CLIPImageProcessor", dict(CLIP, size=dict(shortest_edge=12), crop_size=SQUARE, resample=3), LLAVA),
    ("llava", "CLIPImageProcessor", dict(OWN, size=SQUARE, do_center_crop=False, resample=2), LLAVA),
    ("llava", "LlavaImageProcessor", dict(CLIP, size=SQUARE, do_center_crop=False, do_pad=True, resample=3), LLAVA),
    ("llava", "CLIPImageProcessor", dict(OWN, size=SQUARE, crop_size=SQUARE, resample=1), LLAVA),
    ("smolvlm", "SmolVLMImageProcessor", dict(size=dict(longest_edge=64), max_image_size=dict(longest_edge=16),
                                              resample=1), dict(image_seq_len=4)),
    ("smolvlm", "Idefics3ImageProcessor", dict(OWN, size=dict(longest_edge=40), max_image_size=dict(longest_edge=16),
                                               resample=3), dict(image_seq_len=4)),
    ("smolvlm", "SmolVLMImageProcessor", dict(size=dict(height=16, width=16), max_image_size=dict(longest_edge=16),
                                              do_image_splitting=False, resample=1), dict(image_seq_len=4)),
    ("idefics3", "Idefics3ImageProcessor", dict(size=dict(longest_edge=48), max_image_size=dict(longest_edge=16),
                                                resample=1), dict(image_seq_len=4)),
    ("internvl", "GotOcr2ImageProcessor", dict(OWN, size=dict(height=16, width=16), crop_to_patches=False,
                                               min_patches=1, max_patches=6, resample=3), dict(image_seq_length=4)),
    ("internvl", "GotOcr2ImageProcessor", dict(CLIP, size=dict(height=16, width=16), crop_to_patches=True,
                                               min_patches=2, max_patches=5, resample=2), dict(image_seq_length=4)),
    ("internvl", "GotOcr2ImageProcessor", dict(size=dict(height=16, width=16), max_patches=1),
     dict(image_seq_length=4)),
]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def save_tokenizer(folder):
    words = {word: i for i, word in enumerate(["?", *dict.fromkeys(TOKENS.values())])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, extra_special_tokens=TOKENS)
    fast.add_special_tokens({"additional_special_tokens": [f"<row_{r}_col_{c}>" for r in range(1, 5)
                                                           for c in range(1, 5)]})
    fast.save_pretrained(folder)


def make(folder, name, kind, images, processor, nested):
    base = os.path.join(HERE, "smolvlm" if name == "idefics3" else name)
    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("expect*"))
    if name == "idefics3":
        path = os.path.join(folder, "config.json")
        with open(path) as file:
            text = file.read().replace("SmolVLM", "Idefics3").replace("smolvlm", "idefics3")
        with open(path, "w") as file:
            file.write(text)
    save_tokenizer(folder)
    class_of = {"llava": "Llava", "smolvlm": "SmolVLM", "idefics3": "Idefics3", "internvl": "InternVL"}[name]
    images = dict(images, image_processor_type=kind + ("" if nested else "Fast"))
    processor = dict(processor, processor_class=class_of + "Processor")
    video = {} if name in ("llava", "idefics3") else {
        "video_processor": dict(images, video_processor_type=class_of + "VideoProcessor")}
    files = {"processor_config.json": dict(processor, image_processor=images, **video)} if nested else {
        "processor_config.json": processor, "preprocessor_config.json": images}
    for file, content in files.items():
        with open(os.path.join(folder, file), "w") as out:
            json.dump(content, out)


def seen(folder, sizes):
    out = []
    processor = hf.AutoProcessor.from_pretrained(folder)
    by_pillow = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")
    for width, height in sizes:
        image = Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))
        made = processor(images=[image], text="<image>", return_tensors="np")
        splits = dict(crop_to_patches=True) if hasattr(by_pillow, "crop_to_patches") else {}  # as InternVLProcessor does
        out += [made["pixel_values"], made["input_ids"],
                by_pillow([image], return_tensors="np", **splits)["pixel_values"]]
    return out


def main():
    os.environ["HF_HUB_OFFLINE"] = "1"
    perilune = sys.argv[1]
    sizes = [(40, 40), (90, 31), (25, 70), (7, 5)]
    for i, (name, kind, images, processor) in enumerate(CASES):
        for nested in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                folder, weights = os.path.join(scratch, "in"), os.path.join(scratch, "w.st")
                make(folder, name, kind, images, processor, nested)
                said = run(perilune, "import", folder, "-o", weights)
                ours = [word for word in said.split() if word.startswith((
                    "image_fit", "image_split", "image_edge", "images", "image_filter", "pixel_", "least", "most"))]
                want = seen(folder, sizes)
                for like in (["--like", folder], []):
                    out = os.path.join(scratch, "out" + str(len(like)))
                    run(perilune, "export", weights, "--model", "models/llava.lua", "--set-from", weights, *like,
                        "-o", out)
                    for file in ("tokenizer.json", "tokenizer_config.json"):
                        shutil.copy(os.path.join(folder, file), out)
                    have = seen(out, sizes)
                    for a, b in zip(want, have, strict=True):
                        if a.shape != b.shape or not np.array_equal(a, b):
                            raise SystemExit(f"case {i} {name} nested {nested} {like}: {a.shape} {b.shape} differ")
            if not nested:
                print(f"case {i} {name}: {want[0].shape} {want[3].shape}: {' '.join(ours)}")
    print("the same")


if __name__ == "__main__":
    sys.exit(main())
