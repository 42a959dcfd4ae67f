#!/usr/bin/env bash
# Runs that stop and go on, as if they had never stopped; checkpoints that are kept; weights that are
# averaged. Catches: a run that goes on elsewhere, a checkpoint that is gone or stays by mistake.
set -u
suite=checkpoints
. tests/cli/cases.sh

model=models/gpt.lua
small=(--set layers=2 --set model=32 --set heads=2 --set seq=16 --micro-batch 1 --global-batch 4)
plan=$folder/small.plan
text=$folder/text.txt
for _ in $(seq 200); do echo 'Two moons went round the old blue planet, and one of them was Perilune.'; done >"$text"
works 'a plan' '' plan $model "${small[@]}" -o "$plan"
works 'weights' '' train "$plan" --data "$text" --steps 1 --save "$folder/w.st"
works 'as they are made' '' train "$plan" --data "$text" --steps 1 --lr 0 --save "$folder/w0.st"

# --- stopped and gone on: as if it had never stopped ---
fails 'going on from nothing' 2 'give --checkpoint FILE' train "$plan" --data "$text" --continue
fails 'checkpoints into nothing' 2 'give --checkpoint FILE' train "$plan" --data "$text" \
    --checkpoint-every 5
fails 'going on twice' 2 'one of them' train "$plan" --data "$text" --checkpoint "$folder/c" \
    --continue --resume "$folder/c"
fails 'going on from two' 2 'weights of its own' train "$plan" --data "$text" --load "$folder/w.st" \
    --resume "$folder/c"
fails 'going on from weights' 2 'has weights only' train "$plan" --data "$text" --resume "$folder/w.st"
fails 'a checkpoint into a missing folder' 2 "$folder/none/" train "$plan" --data "$text" --steps 1 \
    --checkpoint "$folder/none/c"
works 'a run without a stop' 'done' train "$plan" --data "$text" --steps 12 --lr-schedule constant \
    --save "$folder/whole.st"
works 'a run that begins, for there is no checkpoint' 'done' train "$plan" --data "$text" --steps 10 \
    --lr-schedule constant --log "$folder/parts.jsonl" --checkpoint "$folder/c.st" \
    --checkpoint-every 4 --continue --tensorboard "$folder/events"
result 'checkpoints are told' \
    "$(n=$(grep -c 'c.st: step \(4\|8\|10\), ' "$folder/err"); [ "$n" -eq 3 ] || cat "$folder/err")"
works 'going on' "resumed $folder/c.st, after step 10" train "$plan" --data "$text" --steps 12 \
    --lr-schedule constant --log "$folder/parts.jsonl" --checkpoint "$folder/c.st" --continue \
    --save "$folder/resumed.st" --tensorboard "$folder/events"
result 'as if it had never stopped' "$(cmp "$folder/whole.st" "$folder/resumed.st" 2>&1)"
result 'the log goes on' "$(n=$(wc -l <"$folder/parts.jsonl"); [ "$n" -eq 12 ] || echo "$n lines")"
# The bytes of a start (status 1) at the step after the checkpoint's: TensorBoard drops later ones.
result "TensorBoard's events, too" "$(for step in 01 0b; do
    LC_ALL=C grep -alP "\x10\x$step\x3a\x02\x08\x01" "$folder"/events/* | wc -l; done | grep -vx 1
    n=$(cat "$folder"/events/* | grep -ao train/loss | wc -l); [ "$n" -eq 12 ] || echo "$n steps")"
searched=(train $model --set layers=2 --set model=32 --set heads=2 --set seq=16 --global-batch 12 --data "$text"
    --lr-schedule constant --checkpoint "$folder/elastic.st" --continue)
works 'training finds a layout' 'a step on cpu, the best of ' "${searched[@]}" --steps 2 --ranks 4 \
    --log "$folder/elastic.jsonl"
works 'and another for fewer ranks' ': 3 ranks;' "${searched[@]}" --steps 4 --ranks 3 \
    --log "$folder/elastic.jsonl"
result 'with the losses of one rank' "$("$perilune" "${searched[@]:0:14}" --steps 4 --lr-schedule constant -q \
    --micro-batch 12 --log "$folder/one.jsonl" 2>&1 >/dev/null)$(paste -d' ' \
    <(grep -o '"loss":[0-9.]*' "$folder/one.jsonl") <(grep -o '"loss":[0-9.]*' "$folder/elastic.jsonl") |
    awk '{ split($1, a, ":"); split($2, b, ":"); d = a[2] - b[2]; if (NF != 2 || d > 1e-5 || d < -1e-5) print; n++ } END { if (n != 4) print n " steps" }')"
fails 'a search for a plan' 2 '--ranks: ' train "$plan" --data "$text" --ranks 2
fails 'a search without a batch' 2 'train: --global-batch: how many sequences' train $model --data "$text" --ranks 2
fails 'a search that finds nothing' 2 '7 ranks cannot be divided' "${searched[@]}" --ranks 7
works 'a run that is over' 'is at step 12 of 12' train "$plan" --data "$text" --steps 12 \
    --checkpoint "$folder/c.st" --continue
fails 'resumed where it is over' 2 'is at step 12 already' train "$plan" --data "$text" --steps 12 \
    --resume "$folder/c.st"
: >"$folder/c.st.tmp-0123456789abcdef"
works 'what a killed run has left' 'is at step 12 of 12' train "$plan" --data "$text" --steps 12 --checkpoint "$folder/c.st" --continue
result 'is told' "$(grep -q '^note: c.st.tmp-0123456789abcdef beside .*c.st is of a run that was killed while it wrote: delete it' \
    "$folder/err" || cat "$folder/err")"
rm "$folder/c.st.tmp-0123456789abcdef"
works 'other data is noticed' 'done' train "$plan" --data README.md --steps 13 --resume "$folder/c.st"
result 'and told' "$(grep -q 'was trained on other data' "$folder/err" || cat "$folder/err")"
works 'weights made with other settings' '' evaluate $model "${small[@]}" --set act=relu --data "$text" --load "$folder/c.st"
result 'are said to be' "$(grep -q "c.st was made with act=gelu; the plan's model has act=relu" "$folder/err" || cat "$folder/err")"
works 'a model of fewer weights goes on' 'done' train $model "${small[@]}" --set tied=true --set norm=rmsnorm \
    --data "$text" --steps 13 --resume "$folder/c.st"
result 'and says what it leaves' "$(grep -q "weights that the plan's model has not, and that stay behind: '.*bias' and so on" \
    "$folder/err" || cat "$folder/err")"
works 'a checkpoint is gone on from and replaced' 'wrote' train "$plan" --data "$text" --steps 13 \
    --resume "$folder/c.st" --checkpoint "$folder/c.st"
fails 'the last one behind training' 2 'give --checkpoint-every N' train "$plan" --data "$text" \
    --checkpoint "$folder/a.st" --checkpoint-async
works 'checkpoints behind training' 'more, to write checkpoints from' train "$plan" --data "$text" \
    --steps 10 --lr-schedule constant --checkpoint "$folder/a.st" --checkpoint-every 4 --checkpoint-async
result 'are told' \
    "$(n=$(grep -c 'a.st: step \(4\|8\|10\), .*waited' "$folder/err"); [ "$n" -eq 3 ] || cat "$folder/err")"
works 'and gone on from' 'after step 10' train "$plan" --data "$text" --steps 12 \
    --lr-schedule constant --resume "$folder/a.st" --save "$folder/resumed.st"
result 'as from others' "$(cmp "$folder/whole.st" "$folder/resumed.st" 2>&1)"
works 'weights of a checkpoint' '' generate "$plan" --load "$folder/c.st" --length 5

err=$(ulimit -f 8; exec "$perilune" train "$plan" --data "$text" --steps 2 -q --checkpoint "$folder/large.st" \
    --checkpoint-every 1 2>&1 >/dev/null </dev/null)
status=$?
result 'checkpoints that cannot be written: training goes on, but after the last' \
    "$([ $status -eq 1 ] && [ "$(grep '^no' <<<"$err")" = "$(printf '%s\n' \
        'no checkpoint at step 1; training goes on' 'no checkpoint at step 2')" ] || echo "status $status: $err")"

# Stopped by a signal: no validation but where there would have been one.
signalled=(train "$plan" --data "$text" --lr-schedule constant --warmup 5 --eval-every 97 -q)
"$perilune" "${signalled[@]}" --steps 1000000 --log "$folder/cut.jsonl" --checkpoint "$folder/cut.st" >"$folder/out" 2>&1 &
for ((i = 0; i < 300; i++)); do
    [ -s "$folder/cut.jsonl" ] && break
    sleep 0.02
done
kill -TERM $!
wait $!
n=$(($(wc -l <"$folder/cut.jsonl") + 3))
works 'a run that was stopped goes on' '' "${signalled[@]}" --steps "$n" --log "$folder/cut.jsonl" --checkpoint "$folder/cut.st" --continue
works 'and one without a stop' '' "${signalled[@]}" --steps "$n" --log "$folder/uncut.jsonl"
untimed() { sed -E 's/"(seconds|tokens_per_s)":[^,}]*//g' "$1"; }
result 'their logs are alike but for times' "$(diff <(untimed "$folder/cut.jsonl") <(untimed "$folder/uncut.jsonl") | head -n 4)"
result 'and have validations' "$(grep -q 'val_loss' "$folder/uncut.jsonl" || echo none)"

# --- checkpoints that are kept ---
kept() { (cd "$folder/kept" && echo *); }
mkdir "$folder/kept"
keep=(train "$plan" --data "$text" --lr-schedule constant --checkpoint "$folder/kept/run.ckpt" --checkpoint-every 2)
fails 'keeping without any' 2 '--checkpoint-keep: give --checkpoint FILE and --checkpoint-every N' \
    train "$plan" --data "$text" --checkpoint "$folder/kept/run.ckpt" --checkpoint-keep 2
fails 'keeping what is not written' 2 'is no multiple of --checkpoint-every 2' "${keep[@]}" \
    --checkpoint-keep-every 5
works 'the last two, and every sixth' 'done' "${keep[@]}" --steps 9 --checkpoint-keep 2 --checkpoint-keep-every 6
result 'are kept' "$(x=$(kept); [ "$x" = 'run-6.ckpt run-8.ckpt run-9.ckpt run.ckpt' ] || echo "$x")"
result 'the last under both names' "$(cmp "$folder/kept/run.ckpt" "$folder/kept/run-9.ckpt" 2>&1)"
works 'a run that goes on' 'after step 9' "${keep[@]}" --steps 14 --checkpoint-keep 2 --checkpoint-keep-every 6 --continue
result 'takes away what was left to go' \
    "$(x=$(kept); [ "$x" = 'run-10.ckpt run-12.ckpt run-14.ckpt run-6.ckpt run.ckpt' ] || echo "$x")"
cp "$folder/kept/run-6.ckpt" "$folder/six"
echo 'not a checkpoint' >"$folder/kept/run-8.ckpt"
works 'going back to one' 'after step 6' "${keep[@]}" --steps 12 --resume "$folder/kept/run-6.ckpt" --checkpoint-keep 2 \
    --save "$folder/back.st"
result 'which stays' "$(cmp "$folder/six" "$folder/kept/run-6.ckpt" 2>&1)"
result 'as if it had not stopped' "$("$perilune" train "$plan" --data "$text" --lr-schedule constant --steps 12 -q \
    --save "$folder/straight.st" 2>&1; cmp "$folder/back.st" "$folder/straight.st" 2>&1)"
mkdir "$folder/good"
good=(train "$plan" --data "$text" --lr-schedule constant --checkpoint "$folder/good/run.ckpt" --checkpoint-every 2)
works 'one for good' 'done' "${good[@]}" --steps 4 --checkpoint-keep-every 4
works 'going back to it, otherwise' 'done' "${good[@]}" --steps 6 --resume "$folder/good/run-4.ckpt" --checkpoint-keep 2
works 'and on' 'done' "${good[@]}" --steps 12 --continue --checkpoint-keep 2
result 'it stays for good' "$(x=$(cd "$folder/good" && echo *); [ "$x" = 'run-10.ckpt run-12.ckpt run-4.ckpt run.ckpt' ] || echo "$x")"
works 'keeping none' 'done' "${keep[@]}" --steps 13 --continue --checkpoint-keep 1
result 'takes away those that were to go' \
    "$(x=$(kept); [ "$x" = 'run-14.ckpt run-6.ckpt run.ckpt' ] || echo "$x")"
mkdir "$folder/kept/run-16.ckpt"
run "${keep[@]}" --steps 16 --continue --checkpoint-keep 2
result 'what cannot be kept is said, and the run ends with 1' \
    "$([ "$status" -eq 1 ] && grep -qx 'the checkpoint of step 16 is not kept' "$folder/err" || echo "status $status: $err")"

# --- what is in a file ---
works 'what is in a checkpoint' 'step      6, 24 samples' show "$folder/kept/run-6.ckpt"
result 'its weights, by blocks' "$(grep -qE '^blocks.0..1.attn.wq +F32 +32 x 2 x 1 x 16 +4.00 KiB each of 2$' <<<"$out" || echo "$out")"
result 'and how many its states are' "$(grep -q '^optimizer 72 tensors, ' <<<"$out" && ! grep -q '^adam' <<<"$out" || echo "$out")"
works 'the same as JSON' '"step":6,"samples":24,"numbers":34' show "$folder/kept/run-6.ckpt" --json
works 'weights without a run' '"step":null' show "$folder/w.st" --json
works "another program's weights" 'model.layers.0..1.mlp.down_proj.weight' show tests/reference/hf/llama31/model.safetensors
fails 'a page of weights' 2 'weights are shown as text, or with --json' show "$folder/w.st" --html
fails 'a prediction for weights' 2 'nothing is predicted for weights' show "$folder/w.st" --cluster selene
works 'what the numbers are like' 'rms 1, largest 1' show "$folder/w0.st" --values
result 'of tables, too' "$(grep -qE '^wte .* rms 0.0(49|5|50|51)[0-9]*, largest 0.(1[3-9]|2)[0-9]*$' <<<"$out" || grep '^wte' <<<"$out")"
works 'as JSON' '"rms":1,"largest":1,"not_finite":0}' show "$folder/w0.st" --values --json
size=$(stat -c %s "$folder/w0.st")
(head -c $((size - 4)) "$folder/w0.st" && printf '\0\0\300\177') >"$folder/nan.st"
works 'what is not finite' ', 1 NOT FINITE' show "$folder/nan.st" --values
fails 'numbers of a plan' 2 'is no file of weights: --values is for one' show "$plan" --values
head -c 5000 "$folder/w.st" >"$folder/cut.st"
fails 'weights that are cut short' 2 'cut.st: ' show "$folder/cut.st"

# --- samples that are left out: by step, four each ---
skip=(train "$plan" --data "$text" --lr-schedule constant -q)
losses() { grep -o '"loss":[0-9.]*' "$1"; }
works 'a run of all samples' '' "${skip[@]}" --lr 0 --steps 9 --log "$folder/all.jsonl"
works 'one that leaves out some' '' "${skip[@]}" --lr 0 --steps 7 --log "$folder/some.jsonl" --skip-samples 8..12 \
    --skip-samples 20..24
result 'has the others' "$(diff <(losses "$folder/all.jsonl" | sed '3d;6d') <(losses "$folder/some.jsonl"))"
result 'and counts them' "$(x=$(grep -o '"samples":[0-9]*' "$folder/some.jsonl" | tr -dc '0-9\n' | tr '\n' ' ')
    [ "$x" = '4 8 16 20 28 32 36 ' ] || echo "$x")"
works 'leaving out within a step' '' "${skip[@]}" --steps 6 --skip-samples 6..9 --save "$folder/skip.st"
works 'and stopped' '' "${skip[@]}" --steps 3 --skip-samples 6..9 --checkpoint "$folder/skip.ckpt" --continue
works 'and gone on' '' "${skip[@]}" --steps 6 --skip-samples 6..9 --checkpoint "$folder/skip.ckpt" --continue \
    --save "$folder/skip2.st"
result 'is the same' "$(cmp "$folder/skip.st" "$folder/skip2.st" 2>&1)"
for range in 5 5..5 6..5 -1..5 a..b 5..; do
    fails "leaving out $range" 2 "--skip-samples: '$range' is not A..B" "${skip[@]}" --skip-samples "$range"
done

# --- averages, and steps that are left out ---
steady=$folder/steady.plan
works 'a plan that keeps averages' 'in f32, decay 0.9' plan $model "${small[@]}" --ema 0.9 --skip-spikes \
    -o "$steady"
works 'and says so' '"ema_decay": 0.9' show "$steady" --json
steady_run=(train "$steady" --data "$text" --lr-schedule constant --warmup 2 --lr 0.02 --spike-factor 1.2 --spike-window 4
    --spike-stop 40 --eval-every 10)
works 'beside one that does not' 'decay of averages           0                           0.9  ' compare "$plan" "$steady"
works 'a run with spikes' 'with averaged weights' "${steady_run[@]}" --steps 40 --log "$folder/spikes.jsonl" \
    --save "$folder/s.st" --save-ema "$folder/e.st" --metrics "$folder/run.prom"
spikes=$(grep -c '"spike":true' "$folder/spikes.jsonl")
result 'that are told' "$([ "$spikes" -ge 4 ] && [[ $out == *"spikes  $spikes of 40 steps were left out"* ]] ||
    echo "$spikes: $out")"
result 'with whose gradients they were' "$([ "$(grep '"spike":true' "$folder/spikes.jsonl" | grep -c '"norms":{"wte":\[.*,null\]')" = "$spikes" ] &&
    [ "$(grep -cE "^spike   step [0-9]+ left out: gradients' norm .*; [0-9]+ % of its square in " <<<"$err")" = "$spikes" ] || echo "$err")"
result 'and counted' "$(grep -qx "perilune_spikes_total{run=\"run\"} $spikes" "$folder/run.prom" &&
    grep -q 'state="finished"} 1' "$folder/run.prom" || cat "$folder/run.prom")"
works 'on their page, too' "<dt>spikes left out</dt><dd>$spikes</dd>" show "$folder/spikes.jsonl" --html
works 'and as text' "spikes    $spikes, left out" show "$folder/spikes.jsonl"
result 'with its curve' "$(grep -c '^ *[0-9.]* [|│]' <<<"$out" | grep -qx 12 || echo "$out")"
works 'and as JSON' "\"last_step\":40,\"loss\":" show "$folder/spikes.jsonl" --json
works 'norms of what began at 0' 'changed most beside its size, by 100 %' train models/neox.lua --set layers=1 --set seq=16 \
    --data README.md --micro-batch 1 --global-batch 1 --steps 1 --norms 1 --val-fraction 0
noisy=(train "$steady" --data "$text" --lr-schedule constant --warmup 2 --noise-scale 3)
works 'how large a batch is large enough' 'noise   measured 4 times, in ' "${noisy[@]}" --steps 12 \
    --log "$folder/noise.jsonl" --save "$folder/n.st" --metrics "$folder/noise.prom"
result 'in words' "$(grep -A2 '^noise ' <<<"$out" | tr '\n' ' ' | grep -qE ': a scale of [0-9.]+ sequences \([0-9.]+( k)? tokens\), give or take [0-9.]+ %         training in batches of 4 takes [0-9.]+ times the fewest tokens and [0-9.]+ times the fewest steps;         in batches of ' ||
    echo "$out")"
result 'and numbers' "$(grep -q '^perilune_gradient_noise_scale{run="noise"} [0-9]' "$folder/noise.prom" &&
    [ "$(grep -cE '"small_batch":2,"small_grad_norm":[0-9.]+,"noise_scale":([0-9.]+|null),"noise_error":' "$folder/noise.jsonl")" = 4 ] ||
    cat "$folder/noise.prom" "$folder/noise.jsonl")"
works 'which a log shows' 'noise     a scale of ' show "$folder/noise.jsonl"
works 'drawn, too' 'Gradient noise scale' show "$folder/noise.jsonl" --html
sed '$s/"noise_scale":[0-9.]*/"noise_scale":null/' "$folder/noise.jsonl" >"$folder/noise0.jsonl"
works 'or that it is no longer known' 'too much to tell a scale' show "$folder/noise0.jsonl"
works 'in numbers' '"noise_scale":null' show "$folder/noise0.jsonl" --json
works 'stopped among measurements' '' "${noisy[@]}" --steps 7 --checkpoint "$folder/noise.ckpt"
works 'gone on in another layout' 'noise   measured 2 times' train $model "${small[@]}" --ema 0.9 --micro-batch 2 --mesh d=2 \
    --data "$text" --lr-schedule constant --warmup 2 --noise-scale 3 --steps 12 --resume "$folder/noise.ckpt" \
    --log "$folder/noise2.jsonl"
result 'with the same numbers' "$(paste <(tail -n 1 "$folder/noise.jsonl") <(tail -n 1 "$folder/noise2.jsonl") |
    grep -oE '"(small_grad_norm|noise_scale|noise_error)":[0-9.]+' | awk -F: '{ v[NR] = $2 }
    END { for (i = 1; i <= 3; i++) { d = v[i] / v[i + 3] - 1; if (d * d > 1e-8) print v[i], v[i + 3] } if (NR != 6) print NR }')"
works 'nothing changes by it' '' train "$steady" --data "$text" --lr-schedule constant --warmup 2 --steps 12 \
    --save "$folder/quiet.st"
result 'not a bit' "$(cmp "$folder/n.st" "$folder/quiet.st" 2>&1)"
for letter in a b; do head -c 3000 /dev/zero | tr '\0' $letter >"$folder/$letter.txt"; done
works 'sources have their shares of a part' '' train $model "${small[@]}" --data "$folder/a.txt" --data "$folder/b.txt" \
    --steps 4 --noise-scale 1 --log "$folder/noise3.jsonl" -q
result 'as of the batch' "$(sed 's/.*"grad_norm":\([0-9.]*\).*"small_grad_norm":\([0-9.]*\).*/\1 \2/' "$folder/noise3.jsonl" |
    awk '{ n++; d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) print } END { if (n != 4) print n " steps" }')"
fails 'noise of a plan without' 2 'plan with --skip-spikes' train "$plan" --data "$text" --noise-scale 3
fails 'noise of one sample' 2 'there is one sample' train $model "${small[@]}" --global-batch 1 --data "$text" --noise-scale 3
fails 'but not as a graph' 2 'a run log is shown as text, with --json or with --html' show "$folder/spikes.jsonl" --dot
works 'averages are weights' 'loss    ' evaluate "$steady" --load "$folder/e.st" --data "$text"
works 'stopped among spikes' '' "${steady_run[@]}" --steps 23 --checkpoint "$folder/steady.ckpt" --continue
works 'and gone on' '' "${steady_run[@]}" --steps 40 --checkpoint "$folder/steady.ckpt" --continue \
    --log "$folder/spikes2.jsonl" --save "$folder/s2.st" --save-ema "$folder/e2.st"
spiked() { grep '"spike":true' "$1" | grep -o '"step":[0-9]*' | tr -dc '0-9\n'; }
result 'with the same decisions' "$(diff <(spiked "$folder/spikes.jsonl" | awk '$1 > 23') \
    <(spiked "$folder/spikes2.jsonl"); [ "$(spiked "$folder/spikes2.jsonl" | wc -l)" -ge 2 ] || echo 'there are none')"
result 'to the same weights' "$(cmp "$folder/s.st" "$folder/s2.st" 2>&1)"
result 'and averages' "$(cmp "$folder/e.st" "$folder/e2.st" 2>&1)"
fails 'too many in a row' 1 '2 steps in a row were spikes' "${steady_run[@]::10}" --spike-factor 1.000001 \
    --spike-window 2 --spike-stop 2 --steps 60 -q --metrics "$folder/failed.prom"
result 'which metrics say' "$(grep -q 'state="failed"} 1' "$folder/failed.prom" || cat "$folder/failed.prom")"
fails 'averages of a plan without' 2 'plan with --ema DECAY' train "$plan" --data "$text" --save-ema "$folder/e.st"
fails 'spikes of a plan without' 2 'plan with --skip-spikes' train "$plan" --data "$text" --spike-factor 10
fails 'a window without a factor' 2 'give --spike-factor X' train "$steady" --data "$text" --spike-window 9
fails 'half of all steps' 2 'give more than 1' train "$steady" --data "$text" --spike-factor 1
fails 'a decay above 1' 2 '--ema: 1.5 is not' plan $model --ema 1.5
fails 'a decay of 1' 2 '--ema: 1 is not between 0 and 1' plan $model --ema 1
fails 'averages of halves' 2 '--ema with --masters split' plan $model --ema 0.9 --masters split --precision bf16
works 'averages that begin with the weights of a checkpoint' 'with averaged weights' train "$steady" --data "$text" \
    --resume "$folder/c.st" --steps 14
result 'which a line says' "$([[ $err == *'c.st has no averages of weights: they begin with its weights'* ]] || echo "$err")"
works 'averages that are left' '' train "$plan" --data "$text" --resume "$folder/steady.ckpt" --steps 41
result 'in a line, too' "$([[ $err == *'steady.ckpt has averages of weights, which the plan does not keep'* ]] || echo "$err")"
fails 'metrics into nothing' 2 'none/run.prom' train "$plan" --data "$text" --metrics "$folder/none/run.prom"

# --- means of weights ---
mean=$folder/mean.st a=$folder/kept/run-6.ckpt b=$folder/kept/run-14.ckpt
works 'the mean of two checkpoints' 'mean    of 2 files: 36 tensors, ' average "$a" "$b" -o "$mean"
works 'has weights' 'loss    ' evaluate "$plan" --load "$mean" --data "$text"
fails 'and no place to go on from' 2 'has weights only' train "$plan" --data "$text" --resume "$mean"
works 'in another order' '' average "$b" "$a" -o "$folder/mean2.st"
works 'a file with itself' 'apart   0.000 % of its length' average "$a" "$a" -o "$folder/self.st"
works 'all of it from one' '' average "$a" "$b" --shares 2,0 -o "$folder/one.st"
result 'is that one' "$(cmp "$folder/self.st" "$folder/one.st" 2>&1)"
fails 'one file' 2 'average: which B? see perilune help average' average "$a" -o "$mean"
fails 'a mean without a place' 2 'average: -o FILE says where to write the weights' average "$a" "$b"
fails 'a mean over a file of its own' 2 'would replace' average "$a" "$b" -o "$a"
for shares in 1 1,2,3 1,-1 0,0 1, ,1 x,1 1e400,1; do
    fails "shares $shares" 2 'is not one number for each of 2 files' average "$a" "$b" --shares "$shares" -o "$mean"
done
works 'another model' '' train $model --set layers=1 --data "$text" --steps 1 --save "$folder/other.st"
works 'an arc between two' 'slerp   of 2 files' average "$a" "$b" --method slerp --shares 3,1 -o "$folder/arc.st"
works 'tasks of a base' 'task    of 2 files' average "$a" "$b" --method task --base "$mean" --shares 1,-0.5 -o "$folder/task.st"
works 'signs that most have' 'ties    of 2 files' average "$a" "$b" --method ties --base "$mean" --density 0.5 -o "$folder/ties.st"
works 'what is dropped' 'dare    of 2 files' average "$a" "$b" --method dare --base "$mean" --seed 2 -o "$folder/dare.st"
works 'which is drawn' '' average "$a" "$b" --method dare --base "$mean" --seed 3 -o "$folder/dare3.st"
result 'anew' "$(cmp -s "$folder/dare.st" "$folder/dare3.st" && echo 'they are equal')"
works 'is weights' 'loss    ' evaluate "$plan" --load "$folder/ties.st" --data "$text"
fails 'no such method' 2 "--method: 'soup' is not mean, slerp, task, ties or dare" average "$a" "$b" --method soup -o "$mean"
fails 'ties of nothing' 2 'ties: --base FILE says what the files were trained from' average "$a" "$b" --method ties -o "$mean"
fails 'a mean of a base' 2 '--base is not for --method mean' average "$a" "$b" --base "$a" -o "$mean"
fails 'thin tasks' 2 '--density is not for --method task' average "$a" "$b" --method task --base "$a" --density 0.5 -o "$mean"
fails 'nothing kept' 2 '--density: 0 keeps nothing' average "$a" "$b" --method ties --base "$a" --density 0 -o "$mean"
fails 'an arc of three' 2 'is of two files, not of 3' average "$a" "$b" "$a" --method slerp -o "$mean"
fails 'no base' 2 'none.st' average "$a" "$b" --method task --base "$folder/none.st" -o "$folder/x.st"
fails 'of another model' 2 'has another shape than in' average "$a" "$folder/other.st" -o "$mean"

[ "$n_failed" -eq 0 ]
