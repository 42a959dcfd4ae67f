"""Compares `perilune tokenizer` with SentencePiece on .model files of its own, made here, of types BPE and
Unigram and with all that they may do to text: tokens, and what they decode to. Needs: pip install sentencepiece
tokenizers tiktoken.

    venv/bin/python tests/reference/compare_sentencepiece.py [--texts N] [--seed N] [--corpus FILE] [--model FILE]
    venv/bin/python tests/reference/compare_sentencepiece.py --write   # remakes tests/data/tokenizers

Bytes that are no UTF-8 are left out: they become U+FFFD there, and byte tokens here.
"""
import argparse
import json
import os
import random
import sys
import tempfile

import sentencepiece

from compare_pieces import MORE, RULES
from compare_tokenizers import HARD, perilune_encode, random_text, run

HERE = os.path.dirname(os.path.abspath(__file__))
SYMBOLS = ["<sep>", "<tool>", "▁▁", "é", "ab", "ﬁ"]
KINDS = {
    "plain": dict(model_type="unigram"),
    "bytes": dict(model_type="unigram", byte_fallback=True, user_defined_symbols=SYMBOLS),
    "spaces": dict(model_type="unigram", remove_extra_whitespaces=False, split_by_whitespace=False),
    "no-prefix": dict(model_type="unigram", add_dummy_prefix=False, user_defined_symbols=SYMBOLS),
    "bpe": dict(model_type="bpe"),
    "llama2": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, split_digits=True,
                   allow_whitespace_only_pieces=True, normalization_rule_name="identity"),
    "gemma": dict(model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, add_dummy_prefix=False,
                  allow_whitespace_only_pieces=True, user_defined_symbols=SYMBOLS, normalization_rule_name="identity"),
    "bpe-across": dict(model_type="bpe", split_by_whitespace=False, user_defined_symbols=SYMBOLS),
    "folded": dict(model_type="bpe", normalization_rule_name="nmt_nfkc_cf", treat_whitespace_as_suffix=False),
}


def make(kind, folder, lines, vocab, rules):
    prefix = os.path.join(folder, kind)
    options = {"normalization_rule_name": "nmt_nfkc", **KINDS[kind]}
    if rules and options["normalization_rule_name"] != "identity":  # those tables have 240 KB
        del options["normalization_rule_name"]
        options["normalization_rule_tsv"] = rules
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=prefix, vocab_size=vocab, hard_vocab_limit=False,
        character_coverage=0.999, minloglevel=2, num_threads=1, **options)
    os.remove(prefix + ".vocab")
    return prefix + ".model"


def usable(text):
    return "\0" not in text and text.encode("utf-8", "ignore").decode() == text


def check_decode(name, path, model, texts):
    wrong = 0
    for ids in [i for i in (model.encode(t) for t in texts) if i and model.unk_id() not in i]:
        ours = run("decode", path, "--ids", " ".join(map(str, ids))).decode()
        theirs = model.decode(ids)
        if ours.rstrip("\n") != theirs.rstrip("\n"):
            wrong += 1
            if wrong < 4:
                print(f"  decode {ids}\n    expected {theirs!r}\n    got      {ours!r}")
    print(f"{'FAIL' if wrong else 'ok'} {name} decode: {wrong} differ")
    return wrong > 0


def is_tie(model, expected, got):
    """Another division that is as likely: which of the two it is, roundings decide."""
    scores = [sum(model.get_score(i) for i in ids if i != model.unk_id()) for ids in (expected, got)]
    unknown = [ids.count(model.unk_id()) for ids in (expected, got)]
    return unknown[0] == unknown[1] and abs(scores[0] - scores[1]) < 2e-6 * (1 + abs(scores[0])) * len(expected)


def check(name, folder, path, texts):
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    texts = [t for t in texts if t]
    expected = [model.encode(t) for t in texts]
    got = perilune_encode(folder, path, texts, model.eos_id())
    wrong = [(t, e, g) for t, e, g in zip(texts, expected, got) if e != g]
    ties = [w for w in wrong if KINDS.get(name, KINDS["plain"])["model_type"] == "unigram" and is_tie(model, *w[1:])]
    failed = len(got) != len(texts) or len(wrong) > len(ties)
    print(f"{'FAIL' if failed else 'ok'} {name}: {len(texts)} texts, {sum(map(len, got))} tokens; {len(wrong)} differ, "
          f"{len(ties)} of them as likely")
    for t, e, g in [w for w in wrong if w not in ties][:3]:
        print(f"  {t!r}\n    expected {e}\n    got      {g}")
    return failed + check_decode(name, path, model, texts[:100])


def write_fixtures(lines, texts):
    to = os.path.join(HERE, "../data/tokenizers")
    with tempfile.TemporaryDirectory() as folder:
        rules = os.path.join(folder, "rules.tsv")
        with open(rules, "w") as f:
            f.writelines(f"{a}\t{b}\n" for a, b in RULES)
        for kind in ("bytes", "llama2", "bpe-across"):
            path = make(kind, folder, lines, 700, rules)
            model = sentencepiece.SentencePieceProcessor(model_file=path)
            got = perilune_encode(folder, path, [t for t in texts if t], model.eos_id())
            ties = {t for t, g in zip([t for t in texts if t], got) if model.encode(t) != g and is_tie(model, model.encode(t), g)}
            os.rename(path, os.path.join(to, f"sp_{kind}.model"))
            with open(os.path.join(to, f"sp_{kind}.cases.jsonl"), "w") as f:
                for text in [t for t in texts if t not in ties]:
                    ids = model.encode(text)
                    case = {"text": text, "ids": ids}
                    if model.unk_id() not in ids:
                        case["decoded"] = model.decode(ids)
                    f.write(json.dumps(case) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", default=os.path.join(HERE, "../../README.md"))
    parser.add_argument("--model", help="compares this one alone")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = open(args.corpus, encoding="utf-8", errors="ignore").read().splitlines()
    lines = [x.replace("\0", "") for x in lines + (HARD + MORE) * 3 if x.strip()]
    rng = random.Random(args.seed)
    count = 60 if args.write else args.texts
    texts = [t for t in HARD + MORE + [random_text(rng) for _ in range(count)] if usable(t)]
    if args.write:
        return write_fixtures(lines, texts)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        if args.model:
            sys.exit(check(args.model, folder, args.model, texts))
        for kind in KINDS:
            failed += check(kind, folder, make(kind, folder, lines, 2000, None), texts)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
