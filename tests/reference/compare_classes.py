"""Compares what `perilune evaluate` tells of texts with transformers' BertForSequenceClassification and
RobertaForSequenceClassification, random ones made here: single texts and pairs of them, with their
types, cut or not, padded and packed, on one rank and on four. Needs: pip install torch transformers
tokenizers.

    venv/bin/python tests/reference/compare_classes.py
"""
import json
import os
import random
import subprocess
import tempfile

import torch
from tokenizers import Tokenizer
from transformers import BertConfig, BertForSequenceClassification
from transformers import RobertaConfig, RobertaForSequenceClassification

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
BERT = os.path.join(HERE, "../../models/bert.lua")
VOCAB, SEQ, PAD, CLS, SEP, N_TEXTS = 400, 48, 0, 1, 2, 60
MOST = 5e-6  # f32's rounding, of probabilities
WORDS = "the moon is a body that goes around a planet once each month tide orbit low high".split()
COMMON = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              pad_token_id=PAD, num_labels=3, initializer_range=0.3, hidden_dropout_prob=0,
              attention_probs_dropout_prob=0)


def run(*arguments):
    done = subprocess.run([PERILUNE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def text(rng):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 30)))


def make_model(kind):
    torch.manual_seed(0)
    if kind == "bert":
        return BertForSequenceClassification(BertConfig(max_position_embeddings=SEQ, type_vocab_size=2, **COMMON))
    # Positions count from behind that of padding.
    config = RobertaConfig(max_position_embeddings=SEQ + PAD + 1, type_vocab_size=1, **COMMON)
    return RobertaForSequenceClassification(config)


def encode(tokenizer, kind, row):
    """Tokens and types of a row; a place is left for padding behind each, as Perilune's rows have it."""
    between = 2 if kind == "roberta" else 1
    if "text" in row:
        ids = tokenizer.encode(row["text"], add_special_tokens=False).ids[:SEQ - 3]
        return [CLS, *ids, SEP], [0] * (len(ids) + 2)
    tokenizer.enable_truncation(SEQ - 3 - between, strategy="longest_first")
    both = tokenizer.encode(row["premise"], row["hypothesis"], add_special_tokens=False)
    tokenizer.no_truncation()
    parts = [[i for i, part in zip(both.ids, both.sequence_ids) if part == k] for k in (0, 1)]
    first = [CLS, *parts[0], *[SEP] * between]
    return [*first, *parts[1], SEP], [0] * len(first) + [1] * (len(parts[1]) + 1)


def expected(model, kind, rows):
    longest = max(len(ids) for ids, _ in rows)
    ids = torch.full((len(rows), longest), PAD)
    seen, types = torch.zeros_like(ids), torch.zeros_like(ids)
    for i, (tokens, kinds) in enumerate(rows):
        ids[i, :len(tokens)] = torch.tensor(tokens)
        types[i, :len(tokens)] = torch.tensor(kinds)
        seen[i, :len(tokens)] = 1
    more = {"token_type_ids": types} if kind == "bert" else {}
    with torch.no_grad():
        return torch.softmax(model(input_ids=ids, attention_mask=seen, **more).logits.double(), -1)


def compare(kind, folder, tokenizer, rows, name):
    weights, data, told = (os.path.join(folder, f) for f in ("w.safetensors", "data.jsonl", "told.jsonl"))
    write(data, rows)
    model = make_model(kind).eval()
    model.save_pretrained(os.path.join(folder, kind))
    run("import", os.path.join(folder, kind), "-o", weights)
    wanted = expected(model, kind, [encode(tokenizer, kind, row) for row in rows])
    loss = -sum(float(wanted[i, row["label"]].log()) for i, row in enumerate(rows)) / len(rows)
    base = ["evaluate", BERT, "--set-from", weights, "--load", weights, "--tokenizer",
            os.path.join(folder, "tok.json"), "--bos", "[CLS]", "--eot", "[SEP]", "--data", data]
    if kind == "bert":
        base += ["--set", f"sep_token={SEP}"]
    for layout in (["--micro-batch", "4"], ["--micro-batch", "4", "--mesh", "t=2,c=2"]):
        run(*base, *layout, "--predictions", told)
        with open(told, encoding="utf-8") as lines:
            got = torch.tensor([json.loads(line)["probabilities"] for line in lines]).double()
        worst = float((got - wanted).abs().max())
        print(f"{kind}, {name}, {' '.join(layout)}: {worst:.2g}")
        assert worst < MOST
    packed = json.loads(run(*base, "--micro-batch", "4", "--pack", "--json"))["classes"][0]["loss"]
    print(f"{kind}, {name}, packed: a loss of {packed:.8g}, transformers' {loss:.8g}")
    assert abs(packed - loss) < MOST * loss


def main():
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        texts = [text(rng) for _ in range(2 * N_TEXTS)]
        write(os.path.join(folder, "texts.jsonl"), [{"text": t} for t in texts])
        special = [a for name in ("[PAD]", "[CLS]", "[SEP]") for a in ("--special-token", name)]
        run("tokenizer", "train", os.path.join(folder, "texts.jsonl"), "--vocab", str(VOCAB), *special, "-o",
            os.path.join(folder, "tok.json"))
        tokenizer = Tokenizer.from_file(os.path.join(folder, "tok.json"))
        single = [{"text": t, "label": rng.randrange(3)} for t in texts[:N_TEXTS]]
        pairs = [{"premise": a, "hypothesis": b, "label": rng.randrange(3)}
                 for a, b in zip(texts[:N_TEXTS], texts[N_TEXTS:])]
        for kind in ("bert", "roberta"):
            compare(kind, folder, tokenizer, single, "single texts")
            compare(kind, folder, tokenizer, pairs, "pairs")


main()
