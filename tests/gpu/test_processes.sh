#!/usr/bin/env bash
# One process per GPU with NCCL, as many as this machine has: the losses are those of one process.
set -u
cd "$(dirname "$0")/../.."
perilune=${PERILUNE:-build/perilune}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=$("$perilune" devices --json | python3 -c \
    'import json,sys; print(len(json.load(sys.stdin)["cuda"]["devices"]))' 2>/dev/null || echo 1)
head -c 200000 /dev/urandom | base64 >"$folder/text"
train=(train models/gpt.lua --set layers=2 --data "$folder/text" --steps 5 --device cuda
    --precision f32 --val-fraction 0 --global-batch 16 --micro-batch 1)

losses() {
    python3 -c 'import json,sys; print(*["%.5f" % json.loads(l)["loss"] for l in open(sys.argv[1])])' "$1"
}

"$perilune" "${train[@]}" --log "$folder/one.jsonl" >"$folder/one.txt" 2>&1 ||
    { echo "FAIL one process: $(tail -n 1 "$folder/one.txt")"; exit 1; }
echo "ok one process trains"
if [ "$count" -lt 2 ]; then
    echo "skip several processes: this machine has $count GPU"
    exit 0
fi
for ((rank = 0; rank < count; rank++)); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=29533 \
        "$perilune" "${train[@]}" --mesh "d=$count" --log "$folder/many.jsonl" \
        >"$folder/$rank.txt" 2>&1 &
done
wait
a=$(losses "$folder/one.jsonl") b=$(losses "$folder/many.jsonl")
if [ -n "$b" ] && python3 - "$a" "$b" <<'PY'
import sys
a, b = (list(map(float, s.split())) for s in sys.argv[1:])
sys.exit(not (len(a) == len(b) and all(abs(x - y) < 1e-4 * x for x, y in zip(a, b))))
PY
then
    echo "ok $count processes give the losses of one"
else
    echo "FAIL $count processes: losses $b, one process: $a; $(tail -n 1 "$folder/0.txt")"
    exit 1
fi
