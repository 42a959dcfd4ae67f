"""What transformers makes of images that are split -> tests/data/images/parts.txt.

    python tests/reference/make_parts.py          needs transformers, Pillow and NumPy
    python tests/reference/make_parts.py --grids N          so many more grids, to standard output

Lines are FILE SPLIT SIDE EDGE MOST ROWS COLUMNS HASH of all parts' numbers, [part, channel, y, x],
by FNV-1a of 64 bits, `grid` SPLIT SIDE EDGE LEAST MOST WIDTH HEIGHT ROWS COLUMNS, and `tokens` ROWS
COLUMNS TOKEN..., what stands for an image of two placeholders a part by the tokenizer qwen2.json,
whose <|im_start|> is <fake_token_around_image> and <|endoftext|> the placeholder. They are of
Idefics3ImageProcessorPil, GotOcr2ImageProcessorPil and Idefics3Processor. Besides both.png and its
halves, left.png and right.png, of 32 x 32 pixels. Pillow is told to resize along the rows
first, as it did up to version 12.
"""
import os
import random
import sys

import numpy as np
from PIL import Image
from transformers import PreTrainedTokenizerFast
from transformers.models.got_ocr2 import image_processing_pil_got_ocr2 as got
from transformers.models.idefics3 import image_processing_pil_idefics3 as idefics
from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

FOLDER = os.path.join(os.path.dirname(__file__), "..", "data", "images")
CASES = [("edge", 16, 64, 1), ("edge", 16, 40, 1), ("edge", 28, 28, 1), ("ratio", 16, 0, 12),
         ("ratio", 16, 0, 4), ("ratio", 16, 0, 1)]
resize_whole = Image.Image.resize


def rows_first(image, size, resample=None, *others, **more):
    wide = resize_whole(image, (size[0], image.height), resample)
    return resize_whole(wide, tuple(size), resample)


Image.Image.resize = rows_first


def fnv(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def parts_of(image, split, side, edge, most):
    plain = dict(do_rescale=False, do_normalize=False)
    if split == "edge":
        out = idefics.Idefics3ImageProcessorPil(
            size={"longest_edge": edge}, max_image_size={"longest_edge": side},
            return_row_col_info=True, **plain)(image, return_tensors="np")
        return out["rows"][0][0], out["cols"][0][0], out["pixel_values"][0]
    out = got.GotOcr2ImageProcessorPil(size={"height": side, "width": side}, max_patches=most,
                                       crop_to_patches=True, **plain)(image, return_tensors="np")
    rows, columns = grid_of(split, side, edge, 1, most, *image.size)
    return rows, columns, np.stack(list(out["pixel_values"]))


def grid_of(split, side, edge, least, most, width, height):
    if split == "ratio":
        columns, rows = got.get_optimal_tiled_canvas((height, width), (side, side), least, most)
    else:
        processor = idefics.Idefics3ImageProcessorPil()
        sizes = []

        class Shape:  # of an image, without its pixels
            shape = (3, height, width)

        height, width = idefics.get_resize_output_image_size(Shape, edge)
        Shape.shape = (3, height, width)
        processor.resize = lambda image, size, **others: sizes.append((size.height, size.width))
        processor.resize_for_vision_encoder(Shape, side)
        rows, columns = sizes[0][0] // side, sizes[0][1] // side
    return (rows, columns) if rows * columns > 1 else (0, 0)


def grids(n, rng):
    for _ in range(n):
        split, side = rng.choice(["edge", "ratio"]), rng.choice([14, 16, 336, 364, 384, 448, 512])
        edge = rng.choice([side, side * 4, min(side * 4, rng.randint(side, 2100))])
        least, most = 1, rng.choice([1, 2, 4, 6, 12, 40])
        if rng.random() < 0.2:
            least = rng.randint(1, most)
        width, height = (round(2 ** rng.uniform(0, 15.9)) for _ in range(2))
        if rng.random() < 0.3:  # sides that are alike, or in a small ratio
            height = max(1, width * rng.randint(1, 4) // rng.randint(1, 4) + rng.randint(-1, 1))
        rows, columns = grid_of(split, side, edge, least, most, width, height)
        yield f"grid {split} {side} {edge} {least} {most} {width} {height} {rows} {columns}"


def tokens(grids):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=os.path.join(FOLDER, "..", "tokenizers", "qwen2.json"))
    fake, place = "<|im_start|>", "<|endoftext|>"
    processor = Idefics3Processor.__new__(Idefics3Processor)
    processor.fake_image_token, processor.image_token = fake, place
    processor.global_image_tag, processor.image_seq_len = "<global-img>", 2
    for rows, columns in grids:
        text = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        yield f"tokens {rows} {columns} {' '.join(map(str, ids))}"


def main():
    rng = random.Random(7)
    if len(sys.argv) == 3 and sys.argv[1] == "--grids":
        print("\n".join(grids(int(sys.argv[2]), random.Random(8))))
        return
    lines = []
    colours = np.random.default_rng(7).integers(0, 256, (4, 8, 3), dtype=np.uint8)
    both = Image.fromarray(colours.repeat(8, 0).repeat(8, 1))
    both.save(os.path.join(FOLDER, "both.png"))
    both.crop((0, 0, 32, 32)).save(os.path.join(FOLDER, "left.png"))
    both.crop((32, 0, 64, 32)).save(os.path.join(FOLDER, "right.png"))
    for name in ("wide.png", "tall.jpg", "red.png"):
        image = Image.open(os.path.join(FOLDER, name)).convert("RGB")
        for split, side, edge, most in CASES:
            rows, columns, parts = parts_of(image, split, side, edge, most)
            parts = np.asarray(parts)
            assert parts.dtype == np.uint8 or (parts == np.rint(parts)).all()
            assert parts.shape == (max(1, rows * columns + 1), 3, side, side), parts.shape
            lines.append(f"{name} {split} {side} {edge} {most} {rows} {columns} "
                         f"{fnv(parts.astype(np.uint8).tobytes())}")
    lines += [f"grid {split} 512 2048 1 12 {width} {height} {rows} {columns}"
              for split in ("edge", "ratio")
              for width, height in ((1, 60000), (65535, 1), (640, 480), (512, 512), (9000, 9000))
              for rows, columns in [grid_of(split, 512, 2048, 1, 12, width, height)]]
    lines += grids(60, rng)
    lines += tokens([(0, 0), (1, 2), (2, 1), (3, 11)])
    with open(os.path.join(FOLDER, "parts.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


main()
