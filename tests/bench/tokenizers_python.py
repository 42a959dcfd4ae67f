"""perilune tokenizer beside Hugging Face's tokenizers and tiktoken, in turns, on the same text:
the text's lines in documents of about 10 kB. Needs: pip install tokenizers tiktoken.

    venv/bin/python tests/bench/tokenizers_python.py TOKENIZER.json TEXT [--runs 3] [--threads 2]

Wall time and processor time of encoding alone (files are read before; perilune's includes reading
them, loading the tokenizer and writing the tokens), medians; and that all make the same tokens.
"""
import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"


def documents(path):
    parts, size = [[]], 0
    for line in open(path, encoding="utf-8", errors="ignore"):
        if size > 10000:
            parts.append([])
            size = 0
        parts[-1].append(line.replace("\0", ""))
        size += len(line)
    return ["".join(p) for p in parts if p]


def to_ranks(path):
    printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [b for b in range(256) if b not in printable]
    back = {chr(b) if b in printable else chr(0x100 + others.index(b)): b for b in range(256)}
    data = json.load(open(path))
    special = {t["content"]: t["id"] for t in data["added_tokens"]}
    return {bytes(back[c] for c in token): rank for token, rank in data["model"]["vocab"].items()
            if token not in special}, special


def clock(work):
    cpu = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    begin = time.perf_counter()
    result = work()
    wall = time.perf_counter() - begin
    after = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    used = sum(a.ru_utime + a.ru_stime - b.ru_utime - b.ru_stime for a, b in zip(after, cpu))
    return wall, used, result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("tokenizer")
    parser.add_argument("text")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--train", type=int, help="also train so many tokens")
    args = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    import tiktoken
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    docs = documents(args.text)
    n_bytes = sum(len(d.encode()) for d in docs)
    folder = tempfile.mkdtemp()
    lines, out = os.path.join(folder, "docs.jsonl"), os.path.join(folder, "tokens.bin")
    plain = os.path.join(folder, "docs.txt")
    with open(lines, "w") as f:
        for d in docs:
            f.write(json.dumps({"text": d}) + "\n")
    with open(plain, "w") as f:
        f.write("\0".join(docs))
    hf = Tokenizer.from_file(args.tokenizer)
    hf.encode_special_tokens = True
    ranks, special = to_ranks(args.tokenizer)
    tik = tiktoken.Encoding("t", pat_str=GPT2, mergeable_ranks=ranks, special_tokens=special)

    def ours(path):
        subprocess.run([PERILUNE, "tokenizer", "encode", args.tokenizer, path, "-q", "-o", out,
                        "--threads", str(args.threads)], check=True)
        data = open(out, "rb").read()
        return struct.unpack("<i", data[8:12])[0]

    def theirs(encode):
        return sum(map(len, encode()))

    ways = {
        "perilune, text": lambda: ours(plain),
        "perilune, jsonl": lambda: ours(lines),
        "tokenizers": lambda: sum(len(e.ids) for e in hf.encode_batch_fast(docs, add_special_tokens=False)),
        "tiktoken": lambda: theirs(lambda: tik.encode_ordinary_batch(docs, num_threads=args.threads)),
    }
    if args.train:
        def hf_train():
            t = Tokenizer(models.BPE())
            t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
            t.train_from_iterator(docs, trainers.BpeTrainer(
                vocab_size=args.train, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
            return t.get_vocab_size()

        def our_train():
            path = os.path.join(folder, "t.json")
            subprocess.run([PERILUNE, "tokenizer", "train", plain, "--separator", "\x01", "--vocab", str(args.train),
                            "-q", "-o", path, "--threads", str(args.threads)], check=True)
            return len(json.load(open(path))["model"]["vocab"])
        ways = {"perilune train": our_train, "tokenizers train": hf_train}
    seen = {name: [] for name in ways}
    for _ in range(args.runs):
        for name, work in ways.items():
            seen[name].append(clock(work))
    print(f"{len(docs)} documents, {n_bytes / 1e6:.1f} MB, {args.threads} threads, {args.runs} runs each")
    first = next(iter(ways))
    for name, runs in seen.items():
        wall = statistics.median(r[0] for r in runs)
        cpu = statistics.median(r[1] for r in runs)
        against = statistics.median(r[0] / b[0] for r, b in zip(runs, seen[first]))
        print(f"{name:18} {wall:7.2f} s  {n_bytes / 1e6 / wall:7.1f} MB/s  cpu {cpu:7.2f} s  "
              f"{n_bytes / 1e6 / cpu:6.1f} MB/s a core  {against:5.1f} x  {runs[0][2]} tokens")


if __name__ == "__main__":
    main()
