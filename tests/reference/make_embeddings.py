"""Makes hf_embed: a random BERT as sentence-transformers saves it, a row of its texts as Perilune's rows have them, and
what sentence-transformers says of these in float64: vectors, the loss of MultipleNegativesRankingLoss with a negative
for each of three pairs, and its gradients' norms. Needs: pip install torch sentence-transformers.

    venv/bin/python tests/reference/make_embeddings.py
"""
import os
import shutil

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.losses import MultipleNegativesRankingLoss
from sentence_transformers.models import Normalize, Pooling, Transformer
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

HERE = os.path.dirname(os.path.abspath(__file__))
TO = os.path.join(HERE, "hf_embed")
VOCAB, ROW, GROUP, COUNT, PAD = 37, 64, 3, 3, 0
SEED = 4711


def make_folder():
    base = TO + "-base"
    config = BertConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                        intermediate_size=24, max_position_embeddings=20, initializer_range=0.3,
                        hidden_dropout_prob=0, attention_probs_dropout_prob=0)
    BertModel(config).save_pretrained(base)
    words = {"[PAD]": 0, **{f"w{i}": i for i in range(1, VOCAB)}}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w1")),
                            pad_token="[PAD]").save_pretrained(base)
    model = SentenceTransformer(modules=[Transformer(base, max_seq_length=18), Pooling(16, "mean"), Normalize()],
                                device="cpu")
    model.save(TO)
    shutil.rmtree(base)
    for name in os.listdir(TO):
        if "token" in name and name.endswith(".json") or name == "README.md" or name.startswith("config_s"):
            os.remove(os.path.join(TO, name))
    return model.double().train()


def main():
    torch.manual_seed(SEED)
    shutil.rmtree(TO, ignore_errors=True)
    model = make_folder()
    texts = [torch.randint(1, VOCAB, (int(n),)) for n in torch.randint(1, 7, (GROUP * COUNT,))]
    row, labels, at = torch.full((ROW,), PAD, dtype=torch.int32), torch.full((ROW,), -1, dtype=torch.int32), 0
    for i, text in enumerate(texts):
        row[at:at + len(text)] = text
        labels[at + len(text) - 1] = i
        at += len(text) + 1
    assert at <= ROW
    features = []
    for k in range(COUNT):  # queries, what answers them, what does not
        part = torch.nn.utils.rnn.pad_sequence(texts[k * GROUP:(k + 1) * GROUP], batch_first=True)
        lengths = torch.tensor([[len(text)] for text in texts[k * GROUP:(k + 1) * GROUP]])
        features.append({"input_ids": part, "attention_mask": (torch.arange(part.shape[1]) < lengths).long()})
    vectors = torch.cat([model(dict(f))["sentence_embedding"] for f in features]).detach()
    loss = MultipleNegativesRankingLoss(model)([dict(f) for f in features], None)
    loss.backward()
    grads = dict(model.named_parameters())
    wte = next(p for n, p in grads.items() if n.endswith("word_embeddings.weight")).grad
    norm = sum(float(p.grad.pow(2).sum()) for p in grads.values() if p.grad is not None) ** 0.5
    save_file({"tokens": row, "labels": labels, "vectors": vectors.float().contiguous(), "wte": wte.float().contiguous(),
               "numbers": torch.tensor([float(loss), norm], dtype=torch.float32)},
              os.path.join(TO, "expect.safetensors"))
    print(f"loss {float(loss):.8g}, norm {norm:.8g}")


main()
