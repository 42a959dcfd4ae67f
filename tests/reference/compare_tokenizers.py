"""Compares `perilune tokenizer` with Hugging Face's tokenizers and with tiktoken, on tokenizers of
every supported kind, made here, and random texts. Needs: pip install tokenizers tiktoken.

    venv/bin/python tests/reference/compare_tokenizers.py [--texts N] [--seed N] [--corpus FILE]
    venv/bin/python tests/reference/compare_tokenizers.py --write   # remakes tests/data/tokenizers
"""
import argparse
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import tiktoken
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
END = "<|endoftext|>"

SUFFIX = "'s|'t|'re|'ve|'m|'ll|'d"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:" + SUFFIX + ")?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:" + SUFFIX + ")?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
          r"\s++$|\s*[\r\n]|\s+(?!\S)|\s")
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
DEEPSEEK = [r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ]+",
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", r"[一-龥ࠀ-一가-퟿]+"]

HARD = [
    "", " ", "  ", "\n", " \n\n  \t x", "I'm you're WE'LL it's 's 'S 'ſ x'T", "don't  stop",
    "1234567890 12 3.14 1,000 ٣٤٥ Ⅷ½²", "日本語のテキスト 中文，标点。한국어 텍스트", "😀😃👩‍👩‍👧 flags🇩🇪",
    "e\u0301 é a\u0323\u0307 ạ̇ \u1e9b\u0323 ﬁ \u2126 \u212b Å", "\u00a0\u2003\u3000x\u180e\u200b y\u2028z",
    "tabs\t\tand   runs     of spaces   ", "line\r\nline\r\r\n\n\nend\n", "ͺ \u0345 ʼn \ufb2a",
    "<|endoftext|> <|im_start|>user x<|im_end|>", "a" * 300, "ab" * 500, " " * 200, "\n" * 50,
    "snake_case camelCase HTMLParser2Go x1y2", "URL https://example.org/a?b=c&d=e#f 100%", "\x00\x01\x7f",
    "ﷺ ௵ 𝕳𝖊𝖑𝖑𝖔 𐍈 \U000e0001", "क्षत्रिय தமிழ் ไทย العربية עברית", "▁under ▁ ▁▁x", "<0x41> <unk> </s>",
]
POOLS = ["abcdefghijklmnopqrstuvwxyz", "ABCXYZ", "0123456789", " ", "  \t", "\n\r", "'\"", ".,;:!?-_()[]{}/\\",
         "éèüñçøßſİıǅ", "日本語中文字テキスト한국어", "😀🎉👍🏽‍🇩", "\u0301\u0308\u0323\u05b0\u093f\u3099",
         "\u00a0\u2003\u2028\u3000\u200b\u180e", "½²Ⅷ٣५", "▁<|>", "αβγАбв", "\u1100\u1161\u11a8\uac00"]
WORDS = ["the", "The", " of", "'s", "'LL", "'re", END, "<|im_start|>", "  ", "\n\n", "1234", "naïve", "Ωmega", "<tool>"]


def random_text(rng):
    parts = []
    for _ in range(rng.randint(0, 30)):
        if rng.random() < 0.25:
            parts.append(rng.choice(WORDS))
        elif rng.random() < 0.05:
            c = rng.randint(0, 0x2fff if rng.random() < 0.7 else 0x1ffff)
            parts.append(chr(c) if not 0xd800 <= c < 0xe000 else "x")
        else:
            pool = rng.choice(POOLS)
            parts.append("".join(rng.choice(pool) for _ in range(rng.randint(1, 8))))
    return "".join(parts)


def known_characters(text):
    """PCRE2 10.42 knows Unicode 14; what was assigned later is left out."""
    import unicodedata
    return all(unicodedata.category(c) != "Cn" and ord(c) not in NEWER for c in text)


# Assigned in Unicode 15 and 16, within what random_text makes.
NEWER = set(range(0x0cf3, 0x0cf4)) | {0x0ece} | set(range(0x1c89, 0x1c8b)) | set(range(0x2427, 0x242a))
NEWER |= set(range(0x0897, 0x0898)) | set(range(0x1b4e, 0x1b50)) | {0x1b7f} | set(range(0x2ffc, 0x3000))
NEWER |= set(range(0x10000, 0x20000)) - set(range(0x1d400, 0x1d7ff)) - set(range(0x1f300, 0x1fa70))


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def byte_level_kinds():
    seq = pre_tokenizers.Sequence
    plain = byte_level(use_regex=False)
    return {
        "gpt2": (None, byte_level()),
        "prefix": (None, byte_level(add_prefix_space=True)),
        "llama3": (None, seq([split(LLAMA3), plain])),
        "qwen2": (normalizers.NFC(), seq([split(QWEN2), plain])),
        "o200k": (None, seq([split(O200K), plain])),
        "deepseek": (None, seq([split(p) for p in DEEPSEEK] + [pre_tokenizers.Digits(True), byte_level(use_regex=False)])),
        "starcoder": (None, seq([pre_tokenizers.Digits(True), byte_level()])),
        "removed": (None, seq([split(LLAMA3, "removed", True), plain])),
        "previous": (None, seq([split(r"\s", "merged_with_previous"), byte_level(add_prefix_space=True)])),
        "next": (None, seq([split(r"[\p{Lu}\n]", "merged_with_next"), plain])),
        "contiguous": (None, seq([split(r"\p{P}", "contiguous"), plain])),
        "string": (None, seq([pre_tokenizers.Split(".", "isolated"), byte_level()])),
    }


def make_byte_level(kind, lines, vocab):
    normalizer, pre = byte_level_kinds()[kind]
    tok = Tokenizer(models.BPE())
    tok.normalizer = normalizer
    tok.pre_tokenizer = pre
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=[END], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tok.train_from_iterator(lines, trainer)
    tok.add_special_tokens(["<|im_start|>", AddedToken("<|im_end|>", lstrip=True, rstrip=True)])
    tok.add_tokens([AddedToken("<tool>", single_word=True), AddedToken("    ", normalized=False),
                    AddedToken("Ωmega", normalized=True), AddedToken("<too", normalized=False)])
    return tok


def make_sentencepiece(lines, vocab, how):
    tok = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<unk>", "<s>", "</s>", END] +
                                  ["<0x%02X>" % b for b in range(256)], limit_alphabet=200)
    if how == "llama2":
        tok.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tok.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")  # for training alone
    elif how == "gemma":
        tok.normalizer = normalizers.Replace(" ", "▁")
        tok.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=how, split=how != "first")
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] +
                                    ([decoders.Strip(" ", 1, 0)] if how != "gemma" else []))
    tok.train_from_iterator([line.replace("\0", "") for line in lines], trainer)
    data = json.loads(tok.to_str())
    if how == "llama2":
        data["pre_tokenizer"] = None
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(data))


def run(*args):
    done = subprocess.run([PERILUNE, "tokenizer", *args], capture_output=True)
    if done.returncode != 0:
        sys.exit(f"perilune tokenizer {' '.join(args)}: {done.stderr.decode()}")
    return done.stdout


def read_tokens(path):
    data = open(path, "rb").read()
    magic, _, count = struct.unpack("<3i", data[:12])
    return struct.unpack("<%d%s" % (count, "H" if magic == 20240520 else "I"), data[1024:])


def perilune_encode(folder, tokenizer, texts, end, *more):
    """Token ids of each text; a line of JSON each, with an end token between them."""
    lines, out = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "tokens.bin")
    with open(lines, "w") as f:
        for text in texts:
            f.write(json.dumps({"text": text}) + "\n")
    run("encode", tokenizer, lines, "--bos", str(end), "-q", "-o", out, *more)
    documents = []
    for token in read_tokens(out):
        if token == end:
            documents.append([])
        else:
            documents[-1].append(token)
    return documents


def compare(name, folder, tokenizer, texts, expected, end, *more):
    texts_left = [(t, e) for t, e in zip(texts, expected) if t]
    got = perilune_encode(folder, tokenizer, [t for t, _ in texts_left], end, *more)
    wrong = [(t, e, g) for (t, e), g in zip(texts_left, got) if list(e) != g]
    if len(got) != len(texts_left) or wrong:
        print(f"FAIL {name}: {len(wrong)} of {len(texts_left)} differ, {len(got)} documents")
        for t, e, g in wrong[:3]:
            print(f"  {t!r}\n    expected {list(e)}\n    got      {g}")
        return 1
    print(f"ok {name}: {len(texts_left)} texts, {sum(map(len, got))} tokens")
    return 0


def to_tiktoken(tok, path):
    """The same merges as ranks; special tokens are left out."""
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: F401
    data = json.loads(tok.to_str())
    back = {c: b for b, c in enumerate(byte_characters())}
    ranks = {}
    for b in range(256):
        ranks[bytes([b])] = len(ranks)
    for a, b in data["model"]["merges"]:
        ranks.setdefault(bytes(back[c] for c in a + b), len(ranks))
    with open(path, "w") as f:
        for token, rank in ranks.items():
            f.write(base64.b64encode(token).decode() + f" {rank}\n")
    return ranks


def byte_characters():
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return [chr(b) if b in printable else chr(0x100 + others.index(b)) for b in range(256)]


def check_json(folder, name, tok, texts):
    path = os.path.join(folder, name + ".json")
    tok.save(path)
    end = tok.token_to_id(END)
    failed = 0
    for special in (False, True):
        # What the text itself makes of END is no separator here.
        used = [t for t in texts if not (special and END in t)]
        tok.encode_special_tokens = not special
        expected = [e.ids for e in tok.encode_batch(used, add_special_tokens=False)]
        failed += compare(name + (" --special" if special else ""), folder, path, used, expected, end,
                          *(["--special"] if special else []))
    data = json.loads(open(path).read())
    merges = [" ".join(m) for m in data["model"]["merges"]]
    if all(m.count(" ") == 1 for m in merges):
        data["model"]["merges"] = merges
        json.dump(data, open(path, "w"))
        tok.encode_special_tokens = True
        expected = [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]
        failed += compare(f"{name}, merges as strings", folder, path, texts, expected, end)
    data["model"]["ignore_merges"] = True
    json.dump(data, open(path, "w"))
    other = Tokenizer.from_file(path)
    other.encode_special_tokens = True
    used = [t for t in texts if END not in t]  # a whole word may be END's
    expected = [e.ids for e in other.encode_batch(used, add_special_tokens=False)]
    failed += compare(name + ", ignore_merges", folder, path, used, expected, end)
    return failed


def check_tiktoken(folder, name, pattern, tok, texts):
    path = os.path.join(folder, name + ".tiktoken")
    ranks = to_tiktoken(tok, path)
    texts = [t for t in texts if t]
    separator = ranks[b"\x00"]  # byte 0, which is in few texts
    texts = [t for t in texts if "\x00" not in t]
    failed = 0
    for how in (name, pattern):
        enc = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        expected = [enc.encode_ordinary(t) for t in texts]
        failed += compare(f"tiktoken {how[:20]}", folder, path, texts, expected, separator, "--pattern", how)
    return failed


def check_training(folder, corpus, lines):
    """The same vocabulary and merges as Hugging Face's trainer."""
    failed = 0
    for pattern, pre in (("gpt2", byte_level()), ("llama3", pre_tokenizers.Sequence(
            [split(LLAMA3), byte_level(use_regex=False)]))):
        for vocab in (300, 5000):
            tok = Tokenizer(models.BPE())
            tok.pre_tokenizer = pre
            tok.train_from_iterator(lines, trainers.BpeTrainer(
                vocab_size=vocab, special_tokens=[END, "<pad>"], show_progress=False, min_frequency=2,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
            out = os.path.join(folder, "trained.json")
            run("train", corpus, "--vocab", str(vocab), "--pattern", pattern, "--special-token", END,
                "--special-token", "<pad>", "-q", "-o", out)
            ours = Tokenizer.from_file(out)  # it can be read
            theirs, own = json.loads(tok.to_str())["model"], json.loads(open(out).read())["model"]
            same = theirs["vocab"] == own["vocab"] and theirs["merges"] == own["merges"]
            text = "".join(lines)[:100000]
            same = same and ours.encode(text).ids == tok.encode(text).ids
            print(f"{'ok' if same else 'FAIL'} training {pattern}, {vocab} tokens")
            if not same:
                failed += 1
                for i, (a, b) in enumerate(zip(theirs["merges"], own["merges"])):
                    if a != b:
                        print(f"  merge {i}: {a} {b}")
                        break
    return failed


def write_fixtures(corpus_lines):
    """Small ones for tests/unit/test_tokenizer.c: tokenizers, and the tokens of hard texts."""
    folder = os.path.join(HERE, "../data/tokenizers")
    os.makedirs(folder, exist_ok=True)
    made = {k: make_byte_level(k, corpus_lines, 420) for k in ("gpt2", "qwen2", "deepseek")}
    made["llama2"] = make_sentencepiece(corpus_lines, 620, "llama2")
    rng = random.Random(7)
    texts = HARD + [t for t in (random_text(rng) for _ in range(60)) if known_characters(t)]
    for name, tok in made.items():
        tok.save(os.path.join(folder, name + ".json"), pretty=False)
        with open(os.path.join(folder, name + ".cases.jsonl"), "w") as f:
            for text in texts:
                tok.encode_special_tokens = True
                ordinary = tok.encode(text, add_special_tokens=False).ids
                tok.encode_special_tokens = False
                special = tok.encode(text, add_special_tokens=False).ids
                f.write(json.dumps({"text": text, "ids": ordinary, "special": special}) + "\n")
    ranks = to_tiktoken(made["gpt2"], os.path.join(folder, "small.tiktoken"))
    for pattern, regex in (("gpt2", GPT2), ("cl100k", CL100K), ("o200k", O200K)):
        enc = tiktoken.Encoding(pattern, pat_str=regex, mergeable_ranks=ranks, special_tokens={})
        with open(os.path.join(folder, f"tiktoken_{pattern}.cases.jsonl"), "w") as f:
            for text in texts:
                f.write(json.dumps({"text": text, "ids": enc.encode_ordinary(text)}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", default=os.path.join(HERE, "../../README.md"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = open(args.corpus, encoding="utf-8", errors="ignore").read().splitlines(keepends=True)
    lines += HARD * 3
    if args.write:
        return write_fixtures(lines)
    rng = random.Random(args.seed)
    texts = HARD + [t for t in (random_text(rng) for _ in range(args.texts)) if known_characters(t)]
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind in byte_level_kinds():
            failed += check_json(folder, kind, make_byte_level(kind, lines, 1500), texts)
        tok = make_byte_level("gpt2", lines, 3000)
        for name, pattern in (("gpt2", GPT2), ("cl100k", CL100K), ("llama3", LLAMA3), ("o200k", O200K)):
            failed += check_tiktoken(folder, name, pattern, tok, texts)
        for how in ("llama2", "gemma", "first", "always", "never"):
            failed += check_json(folder, how, make_sentencepiece(lines, 1500, how), texts)
        corpus = os.path.join(folder, "corpus.txt")
        open(corpus, "w").write("".join(lines))
        failed += check_training(folder, corpus, ["".join(lines)])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
