"""Compares `perilune tokenizer train --type unigram` with SentencePiece's trainer on the same text and size: tokens
and likelihood of text that neither has seen, processor time; and what was learned, as `tokenizers` reads it, with
Perilune. Needs: pip install sentencepiece tokenizers tiktoken.

    venv/bin/python tests/reference/compare_unigram.py TEXT [--vocab N] [--times N]

Every 20th line is kept for the comparison. Both learn from lines, and from the same words where SentencePiece is not
to divide them by scripts and numbers; else each divides as it does by default.
"""
import argparse
import collections
import json
import math
import os
import random
import resource
import statistics
import sys
import tempfile
import time

import sentencepiece
import tokenizers

from compare_tokenizers import HARD, perilune_encode, random_text, run

SPACED = " ?[^ ]+| "  # SentencePiece's words
SAME = dict(split_by_unicode_script=False, split_by_number=False)


def train_sentencepiece(folder, lines, vocab, options):
    begin = time.process_time()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=os.path.join(folder, "sp"), vocab_size=vocab, num_threads=1,
        model_type="unigram", byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, character_coverage=0.9995, bos_id=-1, input_sentence_size=0,
        max_sentence_length=1 << 20, minloglevel=2, **options)
    seconds = time.process_time() - begin
    model = sentencepiece.SentencePieceProcessor(model_file=os.path.join(folder, "sp.model"))
    return seconds, model


def train_perilune(folder, path, vocab, options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = os.path.join(folder, "ours.json")
    run("train", path, "--type", "unigram", "--vocab", str(vocab), "--separator", "\n", "--threads", "1",
        "-q", "-o", out, *options)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, out


def likelihood(scores, words):
    """Nats a word, all ways to divide it summed; characters without a piece, which are bytes, count 20 each. The
    scores are made to sum to 1 first."""
    total = math.log(sum(map(math.exp, scores.values())))
    longest = max(map(len, scores))
    sum_, n = 0.0, 0
    for word, count in words.items():
        ways = [0.0] + [-math.inf] * len(word)
        for end in range(1, len(word) + 1):
            terms = [ways[b] + scores[word[b:end]] - total for b in range(max(0, end - longest), end)
                     if word[b:end] in scores]
            if word[end - 1] not in scores:
                terms.append(ways[end - 1] - 20)
            top = max(terms)
            ways[end] = top + math.log(sum(math.exp(t - top) for t in terms))
        sum_ += ways[-1] * count
        n += count
    return sum_ / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("text")
    parser.add_argument("--vocab", type=int, default=8000)
    parser.add_argument("--times", type=int, default=3)
    args = parser.parse_args()
    lines = [line.replace("▁", " ") for line in open(args.text, encoding="utf-8", errors="ignore").read().split("\n")]
    lines = [line for line in lines if line and "\0" not in line]
    held, learned, failed = lines[::20], [line for i, line in enumerate(lines) if i % 20], False
    words = collections.Counter()
    for line in held:
        words.update(("▁" + w if i else w) for i, w in enumerate(line.split(" ")) if i or w)
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "learned.txt")
        open(path, "w", encoding="utf-8").write("\n".join(learned))
        for name, theirs, ours in [("the same words", SAME, ["--pattern", SPACED]), ("by default", {}, [])]:
            times = [(train_sentencepiece(folder, learned, args.vocab, theirs),
                      train_perilune(folder, path, args.vocab, ours)) for _ in range(args.times)]
            model, out = times[-1][0][1], times[-1][1][1]
            ratio = statistics.median(a[0] for a, _ in times) / statistics.median(b[0] for _, b in times)
            hugging = tokenizers.Tokenizer.from_file(out)
            n_theirs = sum(len(ids) for ids in model.encode(held))
            encoded = perilune_encode(folder, out, held, 0)
            n_ours = sum(map(len, encoded))
            vocab = json.load(open(out, encoding="utf-8"))["model"]["vocab"]
            of_ours = {piece: score for piece, score in vocab[258:]}
            of_theirs = {model.id_to_piece(i): model.get_score(i) for i in range(model.get_piece_size())
                         if not (model.is_byte(i) or model.is_control(i) or model.is_unknown(i))}
            a, b = likelihood(of_theirs, words), likelihood(of_ours, words)
            shared = len(of_ours.keys() & of_theirs.keys()) / len(of_ours)
            print(f"{name}: {len(vocab)} and {model.get_piece_size()} tokens, {100 * shared:.1f} % of the pieces the same")
            print(f"  tokens of {len(held)} lines: {n_ours}, SentencePiece's {n_theirs}: {100 * (n_ours / n_theirs - 1):+.2f} %")
            print(f"  log likelihood of a word: {b:.4f}, SentencePiece's {a:.4f}")
            print(f"  processor time of learning: SentencePiece's is {ratio:.1f} times as much")
            texts = [t.replace("▁", " ") for t in HARD] + [random_text(rng) for _ in range(2000)] + held[:2000]
            texts = [t for t in texts if t and "\0" not in t and t.encode("utf-8", "ignore").decode() == t
                     and "<|endoftext|>" not in t and "<unk>" not in t]
            got = perilune_encode(folder, out, texts, 0)
            differ = [t for t, ids in zip(texts, got) if ids != hugging.encode(t, add_special_tokens=False).ids]
            lost = [t for t, ids in zip(texts, got) if hugging.decode(ids) != t.replace("▁", " ")]
            print(f"  {len(texts)} texts: {len(differ)} differ from tokenizers', {len(lost)} do not come back")
            for t in (differ + lost)[:3]:
                print(f"    {t!r}")
            failed |= bool(differ or lost) or len(vocab) != args.vocab
    sys.exit(failed)


if __name__ == "__main__":
    main()
