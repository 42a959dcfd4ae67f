"""Images of all kinds that are read, and what Pillow makes of them -> tests/data/images.

    python tests/reference/make_images.py          needs Pillow and NumPy

expected.txt has a line for each: FILE WIDTH HEIGHT HASH of the pixels, and FILE FIT FILTER SIDE HASH
of the square. The hash is FNV-1a, of 64 bits. Pillow up to version 12 resizes along the rows first;
from 13 on not always, so it is told to.
"""
import io
import os

import numpy as np
from PIL import Image, ImageOps

FOLDER = os.path.join(os.path.dirname(__file__), "..", "data", "images")
FILTERS = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
MEAN = (122, 116, 104)
rng = np.random.default_rng(7)


def fnv(image):
    value = 0xCBF29CE484222325
    for byte in np.asarray(image).tobytes():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def draw(width, height):
    few = rng.integers(0, 256, (max(2, height // 6), max(2, width // 6), 3), dtype=np.uint8)
    return Image.fromarray(few).resize((width, height), Image.BICUBIC)


def resize(image, size, how):
    wide = image.resize((size[0], image.height), how) if size[0] != image.width else image
    return wide.resize(size, how) if size[1] != wide.height else wide


def fit(image, how, side, name):
    width, height = image.size
    if name == "crop":  # as transformers' CLIPImageProcessorPil
        longer = int(side * max(width, height) / min(width, height))
        size = (side, longer) if width <= height else (longer, side)
        image = resize(image, size, how)
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        return image.crop((left, top, left + side, top + side))
    if name == "pad":  # as LLaVA's expand2square
        whole = max(width, height)
        square = Image.new("RGB", (whole, whole), MEAN)
        square.paste(image, ((whole - width) // 2, (whole - height) // 2))
        image = square
    return resize(image, (side, side), how)


def main():
    os.makedirs(FOLDER, exist_ok=True)
    lines = []

    def save(image, name, **options):
        path = os.path.join(FOLDER, name)
        image.save(path, **options)
        return path

    def expect(name, image):
        lines.append(f"{name} {image.width} {image.height} {fnv(image)}")

    wide, tall = draw(37, 22), draw(19, 41)
    see_through = wide.convert("RGBA")
    see_through.putalpha(wide.convert("L"))
    files = [
        save(wide, "wide.jpg", quality=80), save(tall, "tall.jpg", quality=90, subsampling=0),
        save(wide, "progressive.jpg", progressive=True, quality=60), save(wide.convert("L"), "grey.jpg"),
        save(wide.convert("CMYK"), "cmyk.jpg"), save(wide, "wide.png"), save(wide.convert("L"), "grey.png"),
        save(wide.convert("1"), "bits.png"), save(wide.quantize(16), "palette.png", transparency=3),
        save(see_through, "alpha.png"), save(see_through.convert("LA"), "grey_alpha.png"),
        save(wide, "wide.webp", quality=70), save(see_through, "alpha.webp", lossless=True),
        save(see_through, "moves.webp", save_all=True, append_images=[draw(37, 22).convert("RGBA")], duration=9),
    ]
    for path in files:
        expect(os.path.basename(path), ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
    for name in ("wide.jpg", "tall.jpg"):
        image = Image.open(os.path.join(FOLDER, name)).convert("RGB")
        for how, number in FILTERS.items():
            for kind in ("stretch", "crop", "pad"):
                for side in (8, 28, 64):
                    lines.append(f"{name} {kind} {how} {side} {fnv(fit(image, number, side, kind))}")
    for kind in ("jpg", "png", "webp"):  # the test changes the orientation in the file
        exif = Image.Exif()
        exif[0x112] = 6
        path = save(draw(12, 7), "turned." + kind, exif=exif, **({"lossless": True} if kind == "webp" else {}))
        data = open(path, "rb").read()
        places = [i for i in range(len(data)) if data[i:i + 10] in (b"\x12\x01\x03\0\x01\0\0\0\x06\0",
                                                                     b"\x01\x12\0\x03\0\0\0\x01\0\x06")]
        assert len(places) == 1, (kind, places)
        at = places[0] + (9 if data[places[0]] == 1 else 8)
        if kind == "png":
            expect(os.path.basename(path), ImageOps.exif_transpose(Image.open(path)).convert("RGB"))
            continue
        for turn in range(1, 9):
            changed = bytearray(data)
            changed[at] = turn
            image = Image.open(io.BytesIO(bytes(changed)))
            image = ImageOps.exif_transpose(image).convert("RGB")
            lines.append(f"{os.path.basename(path)}@{at}={turn} {image.width} {image.height} {fnv(image)}")
    for name, colour in (("red.png", (200, 30, 20)), ("green.jpg", (30, 180, 60)), ("blue.webp", (20, 40, 210)),
                         ("white.jpg", (240, 240, 230))):
        save(Image.new("RGB", (9, 6), colour), name)
    with open(os.path.join(FOLDER, "expected.txt"), "w") as out:
        out.write("\n".join(lines) + "\n")


main()
