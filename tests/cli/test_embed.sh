#!/usr/bin/env bash
# Vectors of texts by commands: lines of queries and answers, training, what is told of vectors, files
# of these, folders of sentence-transformers. Catches: a negative that is taken for an answer, a text
# whose vector depends on its neighbours or on the layout, vectors out of order, prefixes that are
# left out, a module of sentence-transformers that is passed over, data of another kind.
set -u
suite=embed
. tests/cli/cases.sh

t=$folder/tok.json train=$folder/train.jsonl test=$folder/test.jsonl w=$folder/w.st
things=(cat dog tree house river stone bird car) colours=(red blue green old new tall)
make_pairs() { # FIRST LAST
    local i thing colour
    for i in $(seq "$1" "$2"); do
        thing=${things[i % 8]} colour=${colours[i / 8 % 6]}
        echo "{\"query\": \"which $thing is $colour\", \"positive\": \"the $colour $thing is number $((i % 5))\"}"
    done
}
make_pairs 1 40 >"$train"
make_pairs 41 47 | sed 's/query/anchor/' >"$test"
run tokenizer train "$train" --field positive --vocab 300 -o "$t" --special-token '[PAD]' --special-token '[CLS]' \
    --special-token '[SEP]'
model=(models/bert.lua --set layers=1 --set model=32 --set heads=2 --set seq=160 --set positions=24 --set vocab=320
    --set mask_token=1 --set types=2 --set transform=true)
text=(--tokenizer "$t" --bos '[CLS]' --eot '[SEP]')
small=("${model[@]}" --set embedding=mean --set embed_group=4 --micro-batch 2 --global-batch 2 "${text[@]}")

# --- training and what it says ---
works 'train' '40 groups of 2, ' train "${small[@]}" --data "$train" --steps 30 --lr 5e-3 --save "$w" --log "$folder/a.jsonl"
[[ $out == *' 4 groups a row, '* && $out == *' % right there'* ]]
result 'says what rows are' "$([ $? -eq 0 ] || echo "$out")"
weights=(models/bert.lua --set-from "$w" --load "$w" "${text[@]}" --micro-batch 2)
works 'evaluate' '7 queries, 7 answers' evaluate "${weights[@]}" --data "$test" --vectors "$folder/v.jsonl"
[[ $out == *'queries 100.00 % are nearest to an answer of theirs'* && $out == *'recall@10 1.0000, MRR@10 1.0000'* ]]
result 'finds answers' "$([ $? -eq 0 ] || echo "$out")"
works 'as JSON' '"accuracy_at_1": 1, "recall_at_10": 1, "mrr_at_10": 1' evaluate "${weights[@]}" --data "$test" --json

again=(train "${small[@]}" --data "$train" --lr-schedule constant) # nine rows to train on: the second epoch, and on
run "${again[@]}" --steps 12 --save "$folder/whole.st"
run "${again[@]}" --steps 7 --checkpoint "$folder/c.st"
works 'going on' 'after step 7' "${again[@]}" --steps 12 --checkpoint "$folder/c.st" --continue --save "$folder/parts.st"
result 'as if it had never stopped' "$(cmp "$folder/whole.st" "$folder/parts.st" 2>&1)"

# --- vectors ---
numbers() { sed 's/.*\[//; s/\].*//; s/, /\n/g' "$1"; }
near() { # NAME A B: files of vectors
    result "$1" "$(paste <(numbers "$2") <(numbers "$3") | awk 'NF != 2 || ($1 - $2) ^ 2 > 1e-11 { print; exit }')"
}
run evaluate "${weights[@]}" --data "$test" --vectors "$folder/t.jsonl" --mesh t=2,p=1
near 'over ranks' "$folder/v.jsonl" "$folder/t.jsonl"
sed -n 's/.*"positive": \("[^"]*"\).*/{"text": \1}/p' "$test" | tac >"$folder/texts.jsonl"
run evaluate "${weights[@]}" --data "$folder/texts.jsonl" --vectors "$folder/alone.jsonl"
near 'of texts by themselves, in another order' <(tac "$folder/alone.jsonl") <(grep '"positive"' "$folder/v.jsonl")
works 'as NumPy has them' "wrote   $folder/v.npy" evaluate "${weights[@]}" --data "$test" --vectors "$folder/v.npy"
result 'in the file' "$(head -c 128 "$folder/v.npy" | tr -d '\0' | grep -aq "'<f4', 'fortran_order': False, 'shape': (14, 32)" &&
    [ "$(wc -c <"$folder/v.npy")" -eq $((128 + 14 * 32 * 4)) ] || head -c 128 "$folder/v.npy")"
sed 's/: "which/: "ask: which/; s/: "the/: "say: the/' "$test" >"$folder/prefixed.jsonl"
run evaluate "${weights[@]}" --data "$folder/prefixed.jsonl" --vectors "$folder/p.jsonl"
run evaluate "${weights[@]}" --data "$test" --query-prefix 'ask: ' --passage-prefix 'say: ' --vectors "$folder/q.jsonl"
near 'with prefixes' "$folder/p.jsonl" "$folder/q.jsonl"
printf '{"sentence1": "%s", "sentence2": "%s", "score": %s}\n' 'the red cat' 'the red cat' 5 'the red cat' \
    'which dog' 0 >"$folder/sts.jsonl"
works 'scored pairs' 'scores  Spearman 1.0000, Pearson 1.0000 with cosines' evaluate "${weights[@]}" --data "$folder/sts.jsonl"
result 'are pairs' "$(grep -q 'sts.jsonl: 2 pairs' "$folder/out" || cat "$folder/out")"

# --- negatives, texts that are cut, decoders ---
sed 's/}/, "negative": "the house is nowhere"}/' "$train" >"$folder/three.jsonl"
works 'negatives' '40 groups of 3' train "${small[@]}" --set embed_negatives=1 --set embed_symmetric=true \
    --set embed_dims=16,8 --data "$folder/three.jsonl" --steps 1
works 'texts are cut' ' texts lose their end: longer than 4 tokens' train "${small[@]}" --set embed_length=4 \
    --data "$train" --steps 1
decoder=(models/llama.lua --set layers=1 --set seq=64 --set model=32 --set heads=2 --set kv_heads=2 --set ffn=32
    --set vocab=320)
run train "${decoder[@]}" --tokenizer "$t" --field positive --data "$train" --val-fraction 0 --steps 1 --save "$folder/base.st"
works 'a decoder, from what writes text' '40 groups of 2' train models/llama.lua --set-from "$folder/base.st" \
    --load "$folder/base.st" --set documents=0 --set embedding=last --set embed_group=2 "${text[@]}" --data "$train" --steps 1 \
    --save "$folder/decoder.st"
fails 'as GGUF' 2 'rewards or vectors is not written' export "$folder/decoder.st" --format gguf -o "$folder/x"
tuned=(models/llama.lua --set-from "$folder/base.st" --load "$folder/base.st" --set documents=0 --set embedding=last
    --set embed_group=2 --set lora=2 "${text[@]}")
run train "${tuned[@]}" --data "$train" --steps 1 --save-trained "$folder/ad.st"
works 'adapters' '7 queries' evaluate "${tuned[@]}" --load-trained "$folder/ad.st" --data "$test"
works 'within a base that writes text' 'adapters merged' export "$folder/base.st" --load-trained "$folder/ad.st" \
    -o "$folder/merged"
result 'without its output' "$(grep -aq lm_head "$folder/merged/model.safetensors" && echo 'lm_head is there')"

# --- folders of sentence-transformers ---
st=tests/reference/hf_embed
works 'import a folder' 'embedding=mean' import $st --set embed_group=2 -o "$folder/in.st"
works 'export one' 'bert (BertModel): 21 tensors' export "$folder/in.st" --like $st --dtype f32 -o "$folder/out_st"
result 'its modules' "$(tr -d ' \n' <"$folder/out_st/1_Pooling/config.json" | grep -q '"pooling_mode_mean_tokens":true,.*"word_embedding_dimension":16' &&
    grep -q Normalize "$folder/out_st/modules.json" && [ -d "$folder/out_st/2_Normalize" ] || ls -R "$folder/out_st")"
works 'and again' 'embedding=mean' import "$folder/out_st" --set embed_group=2 -o "$folder/again.st"
run export "$folder/again.st" --like $st --dtype f32 -o "$folder/out_again"
result 'the same weights' "$(cmp "$folder/out_st/model.safetensors" "$folder/out_again/model.safetensors" 2>&1)"
works 'rows of several texts are one in the export' 'BertModel' export "$w" -o "$folder/trained"
result 'of so many positions' "$(grep -q '"max_position_embeddings": 24' "$folder/trained/config.json" || cat "$folder/trained/config.json")"
cp -r $st "$folder/dense"
echo '{"prompts": {"query": "ask: "}, "default_prompt_name": "query"}' >"$folder/dense/config_sentence_transformers.json"
run export "$folder/in.st" --like "$folder/dense" -o "$folder/out_prompts"
result 'with the prompts of --like' "$(tr -d ' \n' <"$folder/out_prompts/config_sentence_transformers.json" | grep -F '"prompts":{"query":"ask:"}' |
    grep -qF '"default_prompt_name":"query"' || cat "$folder/out_prompts/config_sentence_transformers.json")"
sed -i 's/Normalize"/Dense"/' "$folder/dense/modules.json"
fails 'another module' 2 "has a module 'Dense', which is not supported" import "$folder/dense" -o "$folder/x"
sed -i 's/Dense"/Normalize"/' "$folder/dense/modules.json"
echo '{"pooling_mode": "max"}' >"$folder/dense/1_Pooling/config.json"
fails 'another pooling' 2 'says no pooling that is supported' import "$folder/dense" -o "$folder/x"
echo '{"pooling_mode": "mean", "include_prompt": false}' >"$folder/dense/1_Pooling/config.json"
fails 'vectors without prompts' 2 'include_prompt is false' import "$folder/dense" -o "$folder/x"

# --- what cannot be ---
bad() { # NAME TEXT LINE
    echo "$3" >"$folder/one.jsonl"
    fails "$1" 2 "one.jsonl:1: $2" train "${small[@]}" --data "$folder/one.jsonl" --val-fraction 0 --steps 1
}
bad 'no answer' "no object with 'query' (or 'anchor') and 'positive'" '{"query": "a"}'
bad 'a number for an answer' 'what answers the query is no text' '{"query": "a", "positive": 3}'
bad 'an empty list' 'no text answers the query: the list is empty' '{"query": "a", "pos": []}'
bad 'a negative too many' "1 negative, and the plan's groups have 0: plan with --set embed_negatives=1" \
    '{"query": "a", "positive": "b", "negatives": ["c"]}'
bad 'more negatives than can be' '63 negatives; at most 62' \
    "{\"query\": \"a\", \"positive\": \"b\", \"neg\": [$(printf '"c",%.0s' {1..62})\"c\"]}"
bad 'a negative behind one that is missing' "1 negative, and the plan's groups have 0" \
    '{"query": "a", "positive": "b", "negative_1": null, "negative_2": "c"}'
bad 'a score' "'sentence1' and 'sentence2' with a score" '{"sentence1": "a", "sentence2": "b", "score": 1}'
echo '{"query": "[PAD]", "positive": "b"}' >"$folder/one.jsonl"
run train "${small[@]}" --special --data "$folder/one.jsonl" --val-fraction 0 --steps 1
[[ $status -eq 2 && $err == *'has the token 0, which stands behind texts'* ]]
result 'a text with what stands behind texts' "$([ $? -eq 0 ] || echo "$err")"
fails 'no room in a text' 2 'texts of at most 2 tokens have no room' evaluate "${weights[@]}" --set embed_length=2 --data "$test"
fails 'plain text' 2 'texts for vectors are lines of a file' train "${small[@]}" --data tests/cli/cases.sh --steps 1
fails 'packed' 2 '--pack: texts for vectors are packed already' train "${small[@]}" --pack --data "$train" --steps 1
fails 'nothing to compare' 2 'a row has one pair' train "${small[@]}" --set embed_group=1 --data "$train" --steps 1
fails 'another field' 2 "--field: texts to learn vectors from are in 'query'" train "${small[@]}" --field a --data "$train" --steps 1
fails 'without a tokenizer' 2 'which --tokenizer FILE takes apart' train "${model[@]}" --set embedding=mean \
    --set embed_group=4 --data "$train" --steps 1
fails 'no room' 2 'has no room for 100 groups' plan "${small[@]:0:15}" --set embedding=mean --set embed_group=100
fails 'prefixes of other plans' 2 '--query-prefix: is of plans whose texts get vectors' train models/gpt.lua \
    --query-prefix a --data "$train" --steps 1
fails 'vectors of other plans' 2 '--vectors: are of plans that make them' evaluate models/bert.lua --load "$w" \
    --data "$train" --vectors "$folder/x"
fails 'text from vectors' 2 'it writes none' generate models/bert.lua --set-from "$w" --load "$w" --prompt a
fails 'nothing to tell by' 1 'has no queries and no scored pairs' evaluate "${weights[@]}" --data "$folder/texts.jsonl"
fails 'a decoder without a separator' 2 'embedding needs --set documents=' plan models/llama.lua --set embedding=last
exit $((n_failed > 0))
