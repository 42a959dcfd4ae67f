"""Compares vectors of texts with sentence-transformers', of random BERT, ModernBERT, RoBERTa and Llama models made here:
imported from its folder, exported to one, and the loss and gradient of a step with MultipleNegativesRankingLoss' (with
negatives, symmetric, Matryoshka). Needs: pip install torch sentence-transformers.

    venv/bin/python tests/reference/compare_embeddings.py
"""
import json
import os
import random
import subprocess
import tempfile

import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.models import Normalize, Pooling, Transformer
from sentence_transformers.losses import (MatryoshkaLoss, MultipleNegativesRankingLoss,
                                          MultipleNegativesSymmetricRankingLoss)
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import (BertConfig, BertModel, LlamaConfig, LlamaModel, ModernBertConfig, ModernBertModel,
                          PreTrainedTokenizerFast, RobertaConfig, RobertaModel)

HERE = os.path.dirname(os.path.abspath(__file__))
PERILUNE = os.environ.get("PERILUNE", os.path.join(HERE, "../../build/perilune"))
VOCAB, LENGTH, ROW, GROUP, PAD, CLS, SEP = 400, 48, 400, 8, 0, 1, 2
MOST = 1e-5  # f32's rounding, of numbers of vectors of length 1, and of gradients' norms
WORDS = "the moon is a body that goes around a planet once each month tide orbit low high".split()
COMMON = dict(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
              pad_token_id=PAD, initializer_range=0.3)
NO_DROPOUT = dict(hidden_dropout_prob=0, attention_probs_dropout_prob=0)
KINDS = {
    "bert": (BertModel, BertConfig(max_position_embeddings=LENGTH, **NO_DROPOUT, **COMMON), "mean", "bert"),
    "roberta": (RobertaModel, RobertaConfig(max_position_embeddings=LENGTH + PAD + 1, type_vocab_size=1, **NO_DROPOUT,
                                            **COMMON), "cls", "bert"),
    "modernbert": (ModernBertModel, ModernBertConfig(max_position_embeddings=ROW, local_attention=8, sep_token_id=SEP,
                                                     cls_token_id=CLS, bos_token_id=CLS, eos_token_id=SEP,
                                                     **COMMON), "mean", "modernbert"),
    "llama": (LlamaModel, LlamaConfig(max_position_embeddings=ROW, num_key_value_heads=2, bos_token_id=CLS,
                                      eos_token_id=SEP, **COMMON), "lasttoken", "llama"),
}


def run(*arguments):
    done = subprocess.run([PERILUNE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(path, rows):
    with open(path, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row) + "\n")


def make_folder(kind, folder):
    make, config, pooling, _ = KINDS[kind]
    base, to = os.path.join(folder, kind), os.path.join(folder, kind + "-st")
    torch.manual_seed(0)
    make(config).save_pretrained(base)
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tok.json"))
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)])
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]",
                            model_input_names=["input_ids", "attention_mask"]).save_pretrained(base)
    model = SentenceTransformer(modules=[Transformer(base, max_seq_length=LENGTH), Pooling(32, pooling), Normalize()],
                                device="cpu")
    model.save(to)
    return to


def options(kind, weights, folder):
    script = os.path.join(HERE, "../../models", KINDS[kind][3] + ".lua")
    more = ["--set", f"positions={LENGTH}"] if KINDS[kind][3] == "bert" else ["--set", f"embed_length={LENGTH}"]
    return [script, "--set-from", weights, "--load", weights, "--set", f"seq={ROW}", "--set", f"embed_group={GROUP}",
            *more, "--tokenizer", os.path.join(folder, "tok.json"), "--bos", "[CLS]", "--eot", "[SEP]"]


def compare_vectors(model, base, texts, folder, layout, what):
    data, out = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "vectors.jsonl")
    write(data, [{"text": t} for t in texts])
    run("evaluate", *base, "--data", data, "--vectors", out, *layout)
    with open(out, encoding="utf-8") as lines:
        ours = torch.tensor([json.loads(line)["vector"] for line in lines])
    theirs = torch.tensor(model.encode(texts, batch_size=16))
    worst = float((ours - theirs).abs().max())
    print(f"{what}: vectors differ by {worst:.2g}")
    assert worst < MOST


def step_of(model, rows, loss):
    """The loss and the gradients' norm of sentence-transformers', in float64."""
    model = model.double().train()
    columns = [[row[key] for row in rows] for key in rows[0]]
    features = [model.preprocess(column) for column in columns]
    value = loss(model)(features, None)
    value.backward()
    norm = sum(float(p.grad.pow(2).sum()) for p in model.parameters() if p.grad is not None) ** 0.5
    return float(value), norm


def compare_step(to, base, rows, more, loss, folder, what):
    data, log = os.path.join(folder, "rows.jsonl"), os.path.join(folder, "run.jsonl")
    write(data, rows)
    if os.path.exists(log):
        os.remove(log)
    run("train", *base, *more, "--data", data, "--val-fraction", "0", "--steps", "1", "--micro-batch", "1",
        "--global-batch", "1", "--log", log, "--save", os.path.join(folder, "one.safetensors"))
    with open(log, encoding="utf-8") as lines:
        step = [json.loads(line) for line in lines if '"loss"' in line][0]
    value, norm = step_of(SentenceTransformer(to, device="cpu"), rows, loss)
    print(f"{what}: loss {step['loss']:.8g} and {value:.8g}, norm of gradients {step['grad_norm']:.8g} and {norm:.8g}")
    assert abs(step["loss"] - value) < MOST * max(1, value) and abs(step["grad_norm"] - norm) < MOST * norm


def main():
    rng = random.Random(1)
    texts = [" ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 16))) for _ in range(100)]
    texts = list(dict.fromkeys(texts))
    keys = ("query", "positive", "negative")
    rows = [dict(zip(keys, texts[3 * i:])) for i in range(GROUP)]
    pairs = [{key: row[key] for key in keys[:2]} for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        write(os.path.join(folder, "learn.jsonl"), [{"text": t} for t in texts])
        special = [a for name in ("[PAD]", "[CLS]", "[SEP]") for a in ("--special-token", name)]
        run("tokenizer", "train", os.path.join(folder, "learn.jsonl"), "--vocab", str(VOCAB), *special, "-o",
            os.path.join(folder, "tok.json"))
        for kind, (_, _, _, script) in KINDS.items():
            to, weights = make_folder(kind, folder), os.path.join(folder, kind + ".safetensors")
            small = ["--set", "embed_group=2"] + (["--set", f"documents={PAD}"] if script == "llama" else [])
            run("import", to, *small, "-o", weights)
            base = options(kind, weights, folder)
            model = SentenceTransformer(to, device="cpu")
            for layout in (["--micro-batch", "2"], ["--micro-batch", "2", "--mesh", "t=2,p=2"]):
                compare_vectors(model, base, texts, folder, layout, f"{kind} {' '.join(layout)}")
            compare_step(to, base, pairs, [], MultipleNegativesRankingLoss, folder, f"{kind}, pairs")
            three = ["--set", "embed_negatives=1"]
            compare_step(to, base, rows, three, MultipleNegativesRankingLoss, folder, f"{kind}, with negatives")
            compare_step(to, base, rows, [*three, "--set", "embed_symmetric=true"],
                         MultipleNegativesSymmetricRankingLoss, folder, f"{kind}, symmetric")
            compare_step(to, base, rows, [*three, "--set", "embed_dims=16,8"],
                         lambda m: MatryoshkaLoss(m, MultipleNegativesRankingLoss(m), [32, 16, 8]), folder,
                         f"{kind}, Matryoshka")
            out = os.path.join(folder, kind + "-out")
            trained = os.path.join(folder, "one.safetensors")
            run("export", trained, "--like", to, "--dtype", "f32", "-o", out)
            base = options(kind, trained, folder)
            compare_vectors(SentenceTransformer(out, device="cpu"), base, texts, folder, ["--micro-batch", "2"],
                            f"{kind} trained and exported")


main()
