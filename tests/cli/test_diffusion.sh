#!/usr/bin/env bash
# Models that learn and write by diffusion, by commands. Catches: hidden tokens that depend on the
# layout or on where a run was resumed, a validation that is another each time, a bound that is not
# told to be one, answers that were not learned, options without effect, files that others would
# read as a causal model's, mistakes that are not told.
set -u
suite=diffusion
. tests/cli/cases.sh

model=models/llama.lua text=$folder/text.txt w=$folder/w.st t=$folder/tok.json chats=$folder/chats.jsonl
tiny=("$model" --set diffusion=masked --set layers=2 --set model=32 --set heads=2 --set kv_heads=2 --set ffn=64
    --set seq=32)
for i in $(seq 400); do echo "The moon went by, and $i low tides followed it."; done >"$text"
losses() { grep -o '"loss":[^,]*\|"val_loss":[^,]*' "$1"; }
near() { # NAME A B N: N numbers, almost the same
    result "$1" "$(paste <(losses "$2") <(losses "$3") | tr ':' ' ' | awk -v n="$4" '
        { off = $2 - $4; if (off < 0) off = -off; if (off > 1e-5 * (1 + $2)) { print; exit } }
        END { if (NR != n) print NR " numbers" }')"
}

# --- training ---
steady=(--data "$text" --lr-schedule constant --warmup 0 --lr 2e-3 --micro-batch 4 --global-batch 8)
works 'training tells what is hidden, and that validation is a bound' ', at most ' train "${tiny[@]}" "${steady[@]}" \
    --steps 6 --eval-every 3 --log "$folder/one.jsonl" --save "$folder/one.st"
result 'which token hides' "$([[ $out == *'hidden  a random share of each row is to be said, behind token 255'* ]] || echo "$out")"
run train "${tiny[@]}" "${steady[@]}" --mesh d=2,p=2 --zero 1 --micro-batch 2 --steps 6 --eval-every 3 \
    --log "$folder/four.jsonl"
near 'the same losses on four ranks' "$folder/one.jsonl" "$folder/four.jsonl" 8
for steps in 3 6; do
    run train "${tiny[@]}" "${steady[@]}" --steps $steps --checkpoint "$folder/run.ckpt" --continue --save "$folder/two.st"
done
result 'resumed, the same bits' "$(cmp "$folder/one.st" "$folder/two.st" 2>&1)"
evaluated=(evaluate "$model" --set-from "$folder/one.st" --load "$folder/one.st" --data "$text" --quiet)
works 'evaluation' 'perplexity at most ' "${evaluated[@]}" --diffusion-samples 3
first=$(grep loss "$folder/out")
run "${evaluated[@]}" --diffusion-samples 3 --mesh d=2,t=2
result 'the same on four ranks' "$([ "$(grep loss "$folder/out")" = "$first" ] || cat "$folder/out")"
works 'more samples in JSON' '"bound": true, "diffusion_samples": 2' "${evaluated[@]}" --diffusion-samples 2 --json

# --- answers ---
asked=('tide?' 'moon?' 'orbit?' 'sea?') said=('It follows the moon.' 'A pale one.' 'Around and around.' 'Salty.')
for i in $(seq 200); do
    echo '{"messages": [{"role": "user", "content": "'"${asked[i % 4]}"'"},' \
        '{"role": "assistant", "content": "'"${said[i % 4]}"'"}]}'
done >"$chats"
run tokenizer train "$text" "$chats" --vocab 330 --special-token '<|im_start|>' --special-token '<|im_end|>' \
    --special-token '<|endoftext|>' --special-token '<|mask|>' -o "$t"
words=(--set vocab=330 --set seq=32 --tokenizer "$t" --data "$chats")
fails 'a mask that is not the tokenizer'"'"'s' 2 'plan with --set mask_token=3' train "${tiny[@]}" "${words[@]}" --steps 1
run train "${tiny[@]}" "${words[@]}" --set model=64 --set heads=4 --set kv_heads=4 --set ffn=128 --set mask_token=3 \
    --pack --micro-batch 16 --steps 240 --lr 5e-3 --val-fraction 0 --save "$w"
talks=(generate "$model" --set-from "$w" --load "$w" --tokenizer "$t" --temperature 0 --quiet --chat)
for i in 0 1 2 3; do
    works "an answer: ${asked[i]}" "${said[i]}" "${talks[@]}" --prompt "${asked[i]}"
done
works 'in blocks, two tokens a pass' "${said[0]}" "${talks[@]}" --prompt 'tide?' --diffusion-block 6 --diffusion-steps 9
works 'in any order' "${said[0]}" "${talks[@]}" --prompt 'tide?' --diffusion-order random
run "${talks[@]}" --prompt 'tide?' --diffusion-sure 0.5 --json
result 'what is sure at once' "$(grep -q 'follows the moon.*"passes": [1-5]}' "$folder/out" || cat "$folder/out")"
works 'as JSON' '"ended": true}, {"text": "Salty."' "${talks[@]}" --prompt 'sea?' --samples 2 --json --diffusion-steps 4
result 'with its passes' "$([[ $out == *'"passes": 4}'* ]] || echo "$out")"
result 'in a conversation' "$([ "$(printf 'moon?\n\nsea?\n' | "$perilune" "${talks[@]}")" = "$(printf 'A pale one.\nSalty.')" ] ||
    printf 'moon?\n\nsea?\n' | "$perilune" "${talks[@]}" 2>&1)"
printf '{"prompt": "%s"}\n' "${asked[@]}" >"$folder/asked.jsonl"
run "${talks[@]}" --prompts "$folder/asked.jsonl" --side-by-side 3
result 'prompts of a file' "$([ "$(grep -o '"text": "[^"]*"' "$folder/out" | cut -d'"' -f4)" = "$(printf '%s\n' "${said[@]}")" ] ||
    cat "$folder/out" "$folder/err")"
writes=(generate "$model" --set-from "$folder/one.st" --load "$folder/one.st" --prompt 'The moon' --quiet)
run "${writes[@]}" --length 20
first=$out
run "${writes[@]}" --length 20
result 'the same seed, the same text' "$([ "$out" = "$first" ] && [ ${#out} -ge 20 ] || echo "$out")"
run "${writes[@]}" --length 20 --seed 2
result 'another seed, another text' "$([ "$out" != "$first" ] || echo "$out")"

# --- files ---
works "LLaDA's files" 'llada (LLaDAModelLM)' export "$w" --dtype f32 -o "$folder/llada"
run import "$folder/llada" -o "$folder/back.st"
works 'and back' "${said[2]}" generate "$model" --set-from "$folder/back.st" --load "$folder/back.st" \
    "${talks[@]:6}" --prompt 'orbit?'
run export "$folder/one.st" --dtype f32 -o "$folder/last"
result 'whose mask is the last token' "$(grep -q '"mask_token_id": 255' "$folder/last/config.json" || cat "$folder/err")"
run train "${tiny[@]}" --set window=4 --data "$text" --steps 1 --save "$folder/window.st"
fails 'or what they would need' 2 'it has: llada with window=0; Dream with' export "$folder/window.st" -o "$folder/none"
fails 'no files of a causal model' 2 'diffusion=none' export "$w" --format gguf -o "$folder/w.gguf"

# --- mistakes ---
fails 'an unknown kind' 2 "diffusion is 'x'; it can be none, masked or shifted" plan "$model" --set diffusion=x
fails 'a mask beyond the words' 2 "'mask' must be a token, a whole number from 0 to 255" plan "$model" \
    --set diffusion=masked --set mask_token=256
fails 'a mask that ends documents' 2 'hides others, and documents end with it' train "${tiny[@]}" --set documents=255 \
    --data "$text" --steps 1
cat >"$folder/own.lua" <<'END'
local nn = require "nn"
return model {
  name = "own", axes = { seq = 8, model = 8, heads = 2, vocab = 256 }, layers = 1,
  loss = function(m, tokens, labels)
    local x = m:block(1, function()
      local y = nn.embedding(m, "wte", tokens)
      return y + nn.attention(m, y, { causal = false })
    end)
    return nn.cross_entropy(m, nn.logits(m, "wte", x), labels, "vocab", { weight = m:numbers("weights") })
  end,
}
END
fails 'weights that nothing gives' 2 'come where tokens are hidden by shares' train "$folder/own.lua" --data "$text" --steps 1
sed 's/{ weight = .*)/{ output = "logits" }) + 0 * ops.label_share{ value = -1, mask = 9, by = 0 }/' "$folder/own.lua" \
    >"$folder/own2.lua"
fails 'hidden tokens without weights' 2 'the loss does not read m:numbers' train "$folder/own2.lua" --data "$text" --steps 1
head -c 5000 /dev/zero | tr '\0' M >"$folder/masks.txt"
works 'nothing to hide' 'none in validation: no label of it counts' train "$model" --set diffusion=masked --set mask_token=77 \
    --data "$folder/masks.txt" --steps 2
fails 'rewards beside' 2 "'diffusion' and 'policy': one of them" plan "$model" --set diffusion=masked --set policy=grpo
fails 'a teacher' 2 'or by diffusion, has none' plan "$model" --set diffusion=masked --teacher "$model"
fails 'too long' 2 "more than the model's 32 positions: --set seq= says how many" "${writes[@]}" --length 25
printf '{"prompt": "%050d"}\n' 1 >"$folder/long.jsonl"
fails 'a prompt of a file that is too long' 2 '50 tokens; the model has 32 positions' "${writes[@]:0:6}" \
    --prompts "$folder/long.jsonl"
fails 'choices' 2 'attention is not causal' evaluate "$model" --set-from "$w" --load "$w" --choices "$chats"
fails 'an unknown order' 2 "'left' is none of sure and random" "${writes[@]}" --diffusion-order left
fails 'an order of no sureness' 2 'one of them' "${writes[@]}" --diffusion-order random --diffusion-sure 0.5
fails 'passes of another model' 2 '--diffusion-steps: is for models' generate models/gpt.lua --load "$w" --diffusion-steps 4
fails 'samples of another model' 2 '--diffusion-samples: is for --data of models' evaluate models/gpt.lua --load "$w" \
    --data "$text" --diffusion-samples 4

[ "$n_failed" -eq 0 ]
