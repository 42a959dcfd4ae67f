#!/usr/bin/env bash
# perilune cluster: verbs, forms and exit codes; exact texts of what is wrong in a file are in
# tests/golden/clusters. Catches: a verb that is ignored, an error that ends with status 0.
set -u
suite=cluster
. tests/cli/cases.sh

# says NAME STATUS STREAM LINE ARGUMENT...: the status, and exactly LINE on stdout or stderr.
says() {
    local name=$1 expected=$2 stream=$3 line=$4 why=
    shift 4
    "$perilune" cluster "$@" >"$folder/out" 2>"$folder/err" </dev/null
    local status=$?
    [ "$(cat "$folder/$stream")" = "$line" ] || why="says '$(cat "$folder/$stream")', not '$line'"
    [ "$status" -eq "$expected" ] || why="status $status, not $expected; $(cat "$folder/err")"
    result "$name" "$why"
}

# --- list, show, check ---
"$perilune" cluster list >"$folder/text"
sed '/^$/,$d' "$folder/text" >"$folder/list"
sed '1,/^Software/d' "$folder/text" >"$folder/software"
result 'list has a line per cluster' "$(grep -vE '^[a-z0-9-]+ +[^ ]' "$folder/list")"
result 'list has clusters and software' "$([ "$(wc -l <"$folder/list")" -gt 5 ] &&
    grep -qx megatron-2021 "$folder/software" || cat "$folder/text")"
for name in $(cat "$folder/software"); do
    why=$("$perilune" cluster show selene --software "$name" 2>&1 >/dev/null)
    result "software $name" "$why"
done
"$perilune" cluster list --json >"$folder/json"
result 'list --json' "$(grep -qx '{"clusters": \[".*, "selene"\], "software": \[".*, "perilune", .*\]}' \
    "$folder/json" || cat "$folder/json")"
for name in $(cut -d' ' -f1 "$folder/list"); do
    says "check $name" 0 err '' check "$name"
    why=$("$perilune" cluster show "$name" 2>&1) && why=$(echo "$why" | grep -E '^.{101,}')
    result "show $name fits 100 columns" "$why"
done
says 'check says what is sound' 0 out \
    'planner/clusters/selene.lua is sound: cluster selene, nodes of 8 x A100-SXM4-80GB' check selene
says 'a file' 0 out \
    'tests/golden/clusters/good.lua is sound: cluster mine, nodes of 8 x one' \
    check tests/golden/clusters/good.lua
"$perilune" help cluster | sed -n '/return cluster/,/}))/p' >"$folder/mine.lua"
says "help's example" 0 out \
    "$folder/mine.lua is sound: cluster mine, nodes of 8 x H100-SXM5-80GB" check "$folder/mine.lua"
"$perilune" cluster show selene --json >"$folder/json"
result 'show --json' "$(grep -q '"bf16": 3.12e14' "$folder/json" || cat "$folder/json")"
"$perilune" cluster show selene --software megatron-2021 >"$folder/text"
result 'show --software' "$(grep -q '^software: megatron-2021$' "$folder/text" || echo 'is ignored')"

# --- wrong usage and wrong files: status 2 and one line ---
says 'unknown verb' 2 err "perilune: cluster: unknown 'shwo'; did you mean show?" shwo selene
says 'no verb' 2 err 'perilune: cluster: which list|show|check? see perilune help cluster'
says 'no name' 2 err 'perilune: cluster show: which NAME|FILE? see perilune cluster list' show
says 'a name too many' 2 err "perilune: cluster list: takes options only; what is 'x'?" list x
says 'a list of software' 2 err 'perilune: cluster list: --software: is for show and check' \
    list --software perilune
says 'a check as JSON' 2 err 'perilune: cluster check: --json: is for list and show' \
    check selene --json
cat >"$folder/over.lua" <<'LUA'
return cluster(like(require "h100-dgx", { name = "mine", device = { memory_bytes = 94e9 } }))
LUA
says 'a device that is a change only' 2 err \
    "$folder/over.lua:1: device.name is missing: what the device is called; device = like(require(\"devices\").h100, { ... }) changes a shipped one" \
    check "$folder/over.lua"
cat >"$folder/over.lua" <<'LUA'
return cluster(like(require "h100-dgx", { name = "mine",
  device = like(require("devices").h100, { memory_bytes = 94e9 }),
  node = like(require("nodes").dgx_h100, { n_devices = 4 }),
  network = like(require("nodes").ndr8, { n_nics = 4 }) }))
LUA
says 'what it says works' 0 out \
    "$folder/over.lua is sound: cluster mine, nodes of 4 x H100-SXM5-80GB" check "$folder/over.lua"
says 'three operands' 2 err \
    "perilune: cluster: takes list|show|check [NAME|FILE]; what is 'b'?" show a b
says 'unknown cluster' 2 err "perilune: there is no cluster 'selen'; did you mean selene?" show selen
says 'a shared script is no cluster' 2 err "$("$perilune" cluster check xxxxxxxx 2>&1 |
    sed s/xxxxxxxx/devices/)" check devices
says 'unknown software' 2 err \
    "perilune: there is no software 'perilun'; did you mean perilune? there are: $(
        paste -sd, "$folder/software" | sed 's/,/, /g')" show selene --software perilun
says 'no file' 2 err 'perilune: none.lua: cannot open: No such file or directory' check none.lua
says 'a negative number' 2 err \
    'tests/golden/clusters/negative.lua:8: device.memory_bytes is -80: must be between 1e6 and 1e15 bytes' \
    check tests/golden/clusters/negative.lua
says 'an unknown option' 2 err \
    "perilune: cluster: unknown option '--rakns'; see perilune help cluster" show selene --rakns 8
echo '{"perilune_device_profile": 3}' >"$folder/profile.json"
"$perilune" cluster show selene --profile "$folder/profile.json" >"$folder/out" 2>"$folder/err"
status=$?
result 'a wrong profile' "$([ $status -eq 2 ] && [ ! -s "$folder/out" ] &&
    [ "$(wc -l <"$folder/err")" -eq 1 ] || cat "$folder/err")"
[ "$n_failed" -eq 0 ]
