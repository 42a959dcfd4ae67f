#!/usr/bin/env bash
# tests/gpu/first where programs are scripts that say what a GPU would make them say: a part that
# fails or hangs costs the others nothing, and what was said is in the files.
set -u
cd "$(dirname "$0")/../.." || exit 2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder"/{tests/gpu,build/tests}
cp tests/gpu/{first,test,packages.sh} "$folder/tests/gpu/"
cp tests/run "$folder/tests/"
# script NAME LINE...
script() {
    printf '%s\n' '#!/bin/sh' "${@:2}" >"$folder/build/$1"
    chmod +x "$folder/build/$1"
}
# shellcheck disable=SC2016 # for the script
script perilune 'case "$*" in *no-graph*) echo it broke; exit 7 ;; *train*) echo loss 2.5 ;; esac'
for test in $(sed -n 's/^kernels .*several //p' tests/gpu/first); do script "tests/test_$test" 'echo ok case'; done
# In a process group of its own, as what tests/run starts.
script tests/test_gpu_train 'echo ok case' "sh -c 'echo \$\$ >$folder/hangs; exec sleep 100'"
export PERILUNE_TORCH="" FIRST_LEAST=1 PERILUNE=build/perilune

# check NAME WANTED SEEN
check() {
    if [ "$2" = "$3" ]; then echo "ok $1"; else echo "FAIL $1: '$3' instead of '$2'"; fi
}

"$folder/tests/gpu/first" --budget 15 smoke eager kernels training virtual >"$folder/said" 2>&1
check 'a part failed' 1 $?
results=$folder/build/gpu-first/results.txt
check 'a line for each part, whatever became of those before' 'ok smoke: loss 2.5
FAIL (status 7) eager: it broke
ok kernels: 17 passed, 0 failed, 0 skipped' \
    "$(sed 's/, [0-9]* s:/:/' "$results" | head -n 3)"
check 'the one that hangs is left, and those after it' 'left: tests/gpu/first training virtual' \
    "$(tail -n 1 "$results")"
# Dead, though nobody may have asked for its status yet.
grep -qs '^State:.[^Z]' "/proc/$(cat "$folder/hangs")/status"
check 'what hung is gone' 1 "$(($? > 0))"
check 'what parts said' 3 "$(grep -c '^loss\|^it broke\|^build/tests/test_cuda_update ' \
    "$folder/build/gpu-first/log.txt")"
"$folder/tests/gpu/first" smoke >"$folder/said" 2>&1
check 'another call adds to the results' '0 6' "$? $(grep -c . "$results")"
"$folder/tests/gpu/first" --budget 0 smoke >"$folder/said" 2>&1
check 'no time for any' 3 $?
"$folder/tests/gpu/first" nothing >"$folder/said" 2>&1
check 'a part that is none' "2 no part 'nothing': see tests/gpu/first --list" "$? $(cat "$folder/said")"

known=" $(tests/gpu/test --list) processes "
# shellcheck disable=SC2013 # words
for name in $(sed -n 's/^[a-z0-9.-]* *[0-9]* *\(tests\/gpu\/test\|several\) //p' tests/gpu/first); do
    [[ $known = *" $name "* ]] || echo "FAIL parts: tests/gpu/test has no '$name'"
done
for name in $(tests/gpu/test --list); do
    grep -q "^[a-z0-9.-]* *[0-9]* *\(tests/gpu/test\|several\) .*\b$name\b" tests/gpu/first ||
        echo "FAIL parts: none runs '$name'"
done
echo ok every test is in a part
