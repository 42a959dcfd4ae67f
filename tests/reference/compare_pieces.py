"""Compares `perilune tokenizer` with Hugging Face's tokenizers on tokenizers of types Unigram and
WordPiece, made here, and random texts: tokens, and what they decode to. Needs: pip install tokenizers
tiktoken sentencepiece protobuf.

    venv/bin/python tests/reference/compare_pieces.py [--texts N] [--seed N] [--corpus FILE]
    venv/bin/python tests/reference/compare_pieces.py --write   # remakes tests/data/tokenizers

Text that spells a special token, or a byte's name, is of other tokens here than in Hugging Face's,
whose Unigram takes it for one even where special tokens are to be text. So the expected tokens are
those of a copy whose vocabulary cannot be spelled there.
"""
import argparse
import base64
import json
import os
import random
import re
import sys
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, trainers

from compare_tokenizers import HARD, compare, random_text, run

HERE = os.path.dirname(os.path.abspath(__file__))
SENTINELS = ["<extra_id_%d>" % i for i in reversed(range(12))]  # downwards, as T5's
# For the small files: full width letters, a ligature, spaces, a control, an accent in two forms.
RULES = [("FF21", "41"), ("FF22", "42"), ("FB01", "66 69"), ("FB01 301", "66 ED"), ("A0", "20"), ("A", "20"),
         ("9", "20"), ("D", "20"), ("D A", "20"), ("7", ""), ("E9", "65 301"), ("65 301", "65"), ("2460", "31"), ("3000", "20"),
         ("1F600", "3A 29"), ("3A9", "3C9"), ("FDFA", "635 644 649")]


def charsmap(folder, small):
    """As SentencePiece compiles it: of its own rules for T5, or of a few."""
    rules, prefix = os.path.join(folder, "rules.tsv"), os.path.join(folder, "charsmap")
    with open(rules, "w") as f:
        for a, b in RULES:
            f.write(f"{a}\t{b}\n")
    how = dict(normalization_rule_tsv=rules) if small else dict(normalization_rule_name="nmt_nfkc")
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(["a few letters of a text"]), model_prefix=prefix,
                                             model_type="char", vocab_size=20, hard_vocab_limit=False, minloglevel=2, **how)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(open(prefix + ".model", "rb").read())
    return proto.normalizer_spec.precompiled_charsmap


def unigram_kinds(mapped):
    n, p = normalizers, pre_tokenizers
    words = p.Sequence([p.WhitespaceSplit(), p.Metaspace()])
    return {
        "t5": (n.Sequence([mapped, n.Strip(left=False, right=True), n.Replace(Regex(" {2,}"), "▁")]), p.Metaspace()),
        "words": (mapped, words),
        "albert": (n.Sequence([n.Replace("``", '"'), n.Replace("''", '"'), n.NFKD(), n.StripAccents(), n.Lowercase(),
                               mapped, n.Replace(Regex(" {2,}"), " ")]), words),
        "whole": (n.Sequence([n.Nmt(), n.NFKC()]), p.Metaspace(split=False)),
        "fallback": (n.NFD(), p.Metaspace(prepend_scheme="first")),
        "never": (None, p.Metaspace(prepend_scheme="never")),
        "digits": (n.Strip(), p.Sequence([p.Punctuation(), p.Digits(True), p.Metaspace()])),
    }


def make_unigram(kind, lines, vocab, mapped):
    tok = Tokenizer(models.Unigram())
    tok.normalizer, tok.pre_tokenizer = unigram_kinds(mapped)[kind]
    tok.decoder = decoders.Metaspace(prepend_scheme="never" if kind == "never" else "always")
    special = ["<pad>", "</s>", "<unk>"] + SENTINELS
    if kind == "fallback":
        special += ["<0x%02X>" % b for b in range(256)]
        tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    # The trainer would learn what is spelled <mask> as a second token of that name.
    tok.train_from_iterator([re.sub("\0|</?[a-z_0-9]*>|</|<0x", "", line) for line in lines], trainers.UnigramTrainer(
        vocab_size=vocab + len(special), special_tokens=special, unk_token="<unk>", show_progress=False))
    data = json.loads(tok.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    data["model"]["byte_fallback"] = kind == "fallback"
    tok = Tokenizer.from_str(json.dumps(data))
    tok.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return tok


def make_wordpiece(kind, lines, vocab):
    tok = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tok.normalizer = {"uncased": normalizers.BertNormalizer(), "cased": normalizers.BertNormalizer(lowercase=False),
                      "accents": normalizers.BertNormalizer(strip_accents=False, handle_chinese_chars=False),
                      "dirty": normalizers.BertNormalizer(clean_text=False)}[kind]
    tok.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tok.decoder = decoders.WordPiece(cleanup=kind != "cased")
    tok.train_from_iterator([line.replace("\0", "") for line in lines], trainers.WordPieceTrainer(
        vocab_size=vocab, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], limit_alphabet=200, show_progress=False))
    return tok


def unspelled(tok):
    """The same tokenizer, in whose text nothing is a special token."""
    data = json.loads(tok.to_str())
    special = {t["id"] for t in data["added_tokens"]}
    if data["model"]["type"] == "Unigram":
        for i, pair in enumerate(data["model"]["vocab"]):
            if i in special:
                pair[0] = "\U0010f000" * (i + 1)
    data["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(data))


def usable(kind, text):
    return "<0x" not in text if kind == "fallback" else True


def expect(tok, texts, special):
    if special:
        tok.encode_special_tokens = False
        return [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]
    return [e.ids for e in unspelled(tok).encode_batch(texts, add_special_tokens=False)]


def check_decode(name, path, tok, texts):
    """Each text by a call of the program. Hugging Face's Metaspace drops all spaces of the first
    token, which has several where words are not divided."""
    if name == "whole":
        return False
    wrong = 0
    for ids in [i for i in expect(tok, texts, False) if i][:200]:
        ours = run("decode", path, "--ids", " ".join(map(str, ids))).decode()
        theirs = tok.decode(ids, skip_special_tokens=True)
        if ours.rstrip("\n") != theirs.rstrip("\n"):
            wrong += 1
            if wrong < 4:
                print(f"  decode {ids}\n    expected {theirs!r}\n    got      {ours!r}")
    print(f"{'FAIL' if wrong else 'ok'} {name} decode: {wrong} differ")
    return wrong > 0


def check(folder, name, tok, texts):
    path, failed = os.path.join(folder, name + ".json"), 0
    tok.save(path)
    end = next(tok.token_to_id(t) for t in ("</s>", "[SEP]") if tok.token_to_id(t) is not None)
    for special in (False, True):
        # What becomes </s> by a normalizer is the token to Hugging Face's, and text here.
        used = [t for t in texts if usable(name, t) and "＜/s＞" not in t and not (special and tok.id_to_token(end) in t)]
        failed += compare(name + (" --special" if special else ""), folder, path, used, expect(tok, used, special),
                          end, *(["--special"] if special else []))
    return failed + check_decode(name, path, tok, texts[:80] + texts[-20:])


def write_fixtures(folder, lines, mapped):
    to = os.path.join(HERE, "../data/tokenizers")
    made = {k: make_unigram(k, lines, 300, mapped) for k in ("t5", "albert", "fallback")}
    made.update({k: make_wordpiece(k, lines, 400) for k in ("uncased", "cased")})
    rng = random.Random(7)
    texts = HARD + MORE + [t for t in (random_text(rng) for _ in range(60)) if known(t)]
    for name, tok in made.items():
        tok.save(os.path.join(to, name + ".json"), pretty=False)
        used = [t for t in texts if usable(name, t) and "＜/s＞" not in t]
        with open(os.path.join(to, name + ".cases.jsonl"), "w") as f:
            for text, ids, special in zip(used, expect(tok, used, False), expect(tok, used, True)):
                decoded = tok.decode(ids, skip_special_tokens=False)
                f.write(json.dumps({"text": text, "ids": ids, "special": special, "decoded": decoded}) + "\n")


MORE = ["Hello, World! It's [MASK] and [CLS] <mask>x</s>", "Ａ Ｂ ﬁ\u0301x ﬁ é e\u0301 ①\u3000\r\n\t\x07😀", "Straße ÀÉÎ İstanbul ΑΣ ǅ",
        "中文和English混合 漢字", "   leading and trailing   ", "x" * 31, "x" * 30, "<extra_id_0> a <extra_id_3>b", "``quoted'' text",
        "a\u0300\u0301b 각 \u1100\u1161\u11a8", "don't can 't . ? , !", "\ufffd\u200b\u200f\u00ad\ufeffz", "＜/s＞ &lt;", "a  b   c", "",
        "\u0600a \u0600\u0301", "##ing ing##", "0" * 40 + " " + "ab" * 100]


def known(text):
    """Characters that all of the tables here know alike: assigned by Unicode 8."""
    import unicodedata
    return all(unicodedata.ucd_3_2_0.category(c) != "Cn" for c in text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", default=os.path.join(HERE, "../../README.md"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    lines = open(args.corpus, encoding="utf-8", errors="ignore").read().splitlines(keepends=True)
    lines += (HARD + MORE) * 3
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        mapped = normalizers.Precompiled(charsmap(folder, args.write))
        if args.write:
            return write_fixtures(folder, lines, mapped)
        rng = random.Random(args.seed)
        texts = HARD + MORE + [t for t in (random_text(rng) for _ in range(args.texts)) if known(t)]
        for kind in unigram_kinds(mapped):
            failed += check(folder, kind, make_unigram(kind, lines, 1500, mapped), texts)
        for kind in ("uncased", "cased", "accents", "dirty"):
            failed += check(folder, kind, make_wordpiece(kind, lines, 1500), texts)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
