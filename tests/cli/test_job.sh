#!/usr/bin/env bash
# Scripts that start training on clusters: wrong input, quoting, and what the scripts do, with
# imitations of the launchers, and for one machine with real ranks.
#
# Catches: arguments that become code or other arguments, in shells, in Slurm's lines, in YAML, in
# comments; a job that is queued again after a failure or after scancel, or is not after a stop; a
# script that runs another plan; ranks that are told the wrong number, or that outlive their launcher.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite=job
. tests/cli/cases.sh
export OMP_NUM_THREADS=1
here=$PWD
seq 1 3000 | tr '\n' ' ' >"$folder/text"
plan=$folder/small.plan
data="--data $folder/text"
tiny='--set layers=2 --set seq=16 --set model=16 --set heads=2 --set vocab=256 --micro-batch 2'
# shellcheck disable=SC2086
run plan models/gpt.lua $tiny --global-batch 8 --mesh d=2 -o "$plan"
[ "$status" -eq 0 ] || result plan "$err"
# shellcheck disable=SC2086
run plan models/gpt.lua $tiny --global-batch 8 --mesh t=2,d=2 -o "$folder/four.plan"
four=$folder/four.plan

# --- wrong input ---
# shellcheck disable=SC2086
{
    fails 'no launcher' 2 'which launcher? slurm, kubernetes' job "$plan" -- $data
    fails 'unknown launcher' 2 "'pbs' is none of slurm" job "$plan" --for pbs -- $data
    fails 'no data' 2 'what is the run to learn from' job "$plan" --for shell
    fails 'train option' 2 'did you mean --steps' job "$plan" --for shell -- $data --step 3
    fails 'no plan' 2 'cannot open' job "$folder/none.plan" --for shell -- $data
    fails 'uneven' 2 '--ranks-per-node 4, 2, 1 would do' job "$four" --for slurm --nodes 3 -- $data
    fails 'other ranks' 2 'are 6, and the plan has 4' \
        job "$four" --for slurm --nodes 3 --ranks-per-node 2 -- $data
    fails 'time' 2 "'90' is not a time" job "$plan" --for slurm --time 90 -- $data
    fails 'time to end' 2 'may be told to end 150 s before' job "$plan" --for slurm --time 0:00:30 -- $data
    fails 'time to start' 2 'not a step of' job "$plan" --for slurm --time 0:03:00 -- $data
    run job "$plan" --for slurm --step-seconds 1e6 -- $data
    result 'time to end, beyond the most' "$([[ $err == *'need 2000070 s to end, and 65535 are the most'* ]] || echo "$err")"
    fails 'partition' 2 'may have letters' job "$plan" --for slurm --partition 'a b' -- $data
    fails 'option of others' 2 'a script for mpi has no such thing' \
        job "$plan" --for mpi --partition a -- $data
    fails 'image' 2 'which container' job "$plan" --for kubernetes -- $data
    fails 'image name' 2 'is not the name of one' job "$plan" --for kubernetes --image 'a b' -- $data
    fails 'volume' 2 'is not CLAIM:/PATH or' \
        job "$plan" --for kubernetes --image a --volume 'A:b' -- $data
    fails 'name' 2 'lower case' job "$plan" --for slurm --name 'a;b' -- $data
    fails 'launcher option' 2 'is not an option' \
        job "$plan" --for slurm --launcher-option $'--a\nrm' -- $data
    fails 'hosts' 2 'is not a list of hosts' job "$four" --for mpi --hosts 'a,-x' -- $data
    fails 'hosts needed' 2 'which are the 2 nodes' job "$four" --for mpi --nodes 2 -- $data
    fails 'hosts counted' 2 'names 3, and the job has 2' \
        job "$four" --for mpi --nodes 2 --hosts a,b,c -- $data
    fails 'one machine' 2 'is for one machine' job "$four" --for shell --nodes 2 -- $data
    fails 'resume' 2 'goes on from its --checkpoint' \
        job "$plan" --for slurm -- $data --checkpoint a --resume b
    fails 'continue' 2 'of which file' job "$plan" --for slurm -- $data --continue
    fails 'restarts' 2 'from what?' job "$plan" --for shell --restarts 1 -- $data
    fails 'no YAML' 2 'not UTF-8' job "$plan" --for kubernetes --image a -- $data --log $'\xff'
    fails 'memory' 2 'are less than' job "$plan" --for slurm --host-memory 0.01 -- $data
    fails 'node size' 2 'a node has 4 devices, not 8' \
        job models/gpt.lua --for slurm --ranks-per-node 8 --nodes 1 -- --cluster cpu-10gbe \
        --global-batch 8 $data
    fails 'replaced' 2 'would replace what' job "$plan" --for shell -o "$plan" -- $data
    fails 'searched' 2 'on how many' \
        job models/gpt.lua --for slurm -- --cluster cpu-10gbe --global-batch 8 $data
}

# --- what is planned ---
why=
# shellcheck disable=SC2086
run job "$four" --for slurm --cluster cpu-10gbe --ranks-per-node 1 --time 1:00:00 --json \
    -o "$folder/j.sh" -- $data --steps 9000000 --checkpoint a --checkpoint-every 100
for text in '"nodes": 4' '"fingerprint": "' '"predicted_on": "cpu-10gbe"' '"jobs": ' \
    'groups of t, 2 ranks side by side, are not within nodes of 1'; do
    [[ $out == *"$text"* ]] || why=${why:-no $text in $out $err}
done
result 'summary' "$why"
why=
# shellcheck disable=SC2086
run job models/gpt.lua --for slurm --nodes 2 -o "$folder/j.sh" -- --cluster h100-dgx \
    --global-batch 64 $data --checkpoint a
for text in --gpus-per-node=8 '--wait=0' '--gpu-bind=none'; do
    grep -q -e "$text" "$folder/j.sh" || why=${why:-no $text: $err}
done
grep -q fingerprint "$folder/j.sh" && why='a run that searches has no plan yet'
result 'a run that searches' "$why"

# --- quoting: a program that says what it was given ---
# The launchers of a cluster, as far as a script sees them: what is behind their options.
mkdir "$folder/bin"
cat >"$folder/bin/srun" <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
END
cat >"$folder/bin/mpirun" <<'END'
#!/bin/sh
[ "$1" != --version ] || { echo 'mpirun (Open MPI) 4.1.4'; exit; }
while :; do
    case $1 in -np | --map-by | --bind-to | -x | -H) shift 2 ;; -*) shift ;; *) break ;; esac
done
exec "$@"
END
cat >"$folder/bin/torchrun" <<'END'
#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
exec "$@"
END
cat >"$folder/bin/scontrol" <<'END'
#!/bin/sh
echo "$*" >>"$SCONTROL"
END
cat >"$folder/it's a program" <<'END'
#!/bin/sh
[ "$1" != check ] || exec "$REAL" "$@"
[ -z "${SAYS:-}" ] || printf '%s\n' "$#" "$@" >"$SAYS"
sleep "${SLEEPS:-0}"
exit "${ENDS:-0}"
END
chmod +x "$folder"/bin/* "$folder/it's a program"
export REAL=$here/$perilune SCONTROL=$folder/scontrol SAYS=$folder/says SLURM_JOB_ID=7
[ -x "$REAL" ] || REAL=$perilune
touch "$folder/pwned"
evil=$'a b\'"`touch pwned1`$(touch pwned2)\n#SBATCH --nodes=9\ntouch pwned3\n$HOME \\ ;\xc3\xa9'
odd=$folder/"odd \$(touch pwned4)
dir"
mkdir "$odd" && cp "$plan" "$odd/the plan"
printf '%s\n' 7 train "$odd/the plan" --data "$evil" --steps 3 --quiet >"$folder/expected"
for target in slurm mpi torchrun shell; do
    why=
    rm -f "$SAYS"
    run job "$odd/the plan" --for $target --name odd --ranks-per-node 2 --chdir "$folder" \
        --program "$folder/it's a program" -o "$folder/odd.sh" -- \
        --data "$evil" --steps 3 --quiet
    [ "$status" -eq 0 ] || why=$err
    for shell in sh bash; do
        $shell -n "$folder/odd.sh" || why=${why:-$shell -n}
        [ $target != slurm ] || [ $shell = bash ] || continue
        (cd "$folder" && PATH=$folder/bin:$PATH $shell odd.sh >"$folder/out" 2>&1) ||
            why=${why:-$shell: $(cat "$folder/out")}
        cmp -s "$SAYS" "$folder/expected" || why=${why:-$shell: $(diff "$SAYS" "$folder/expected")}
    done
    [ "$(grep -c '^#SBATCH' "$folder/odd.sh")" -lt 12 ] || why=${why:-more lines for Slurm}
    grep -q '^#SBATCH --nodes=9' <(sed '/^set -u/,$d' "$folder/odd.sh") && why=${why:-a line of ours}
    result "quoting: $target" "$why"
done
result 'quoting: nothing ran' "$([ "$(find "$folder" . -maxdepth 1 -name 'pwned*' | wc -l)" -eq 1 ] ||
    echo 'a text became code')"
for target in kubernetes pytorchjob; do
    why=
    run job "$four" --for $target --nodes 2 --image a --volume "/a \"b:/c \$(d)" \
        --plan-at '/$(x)' -o "$folder/k.yaml" -- --data $'x"\\\n\x7f$(NAME) $$ \xe2\x80\xa8' --steps 3
    for text in '- "x\"\\\x0a\x7f$$(NAME) $$$$ \u2028"' '- "/$$(x)"' 'path: "/a \"b"' \
        'mountPath: "/c $(d)"'; do
        grep -qF -e "$text" "$folder/k.yaml" || why=${why:-no $text; $err}
    done
    result "quoting: $target" "$why"
done

# --- what scripts do ---
slurm() { # NAME ENDS EXPECTED CALLS: the program ends so; the script, and what scontrol was told
    local why='' code
    rm -f "$SCONTROL"
    (cd "$folder" && ENDS=$2 PATH=$folder/bin:$PATH bash j.sh >"$folder/out" 2>&1)
    code=$?
    [ "$code" -eq "$3" ] || why="exit code $code, not $3: $(cat "$folder/out")"
    [ "$(cat "$SCONTROL" 2>/dev/null)" = "$4" ] || why=${why:-scontrol: $(cat "$SCONTROL")}
    result "slurm: $1" "$why"
}
# shellcheck disable=SC2086
run job "$plan" --for slurm --ranks-per-node 1 --time 2:00:00 --program "$folder/it's a program" \
    -o "$folder/j.sh" -- $data --checkpoint run.ckpt
slurm 'a stop is queued again' 130 130 'requeue 7'
slurm 'a failure is not' 1 1 ''
slurm 'nor wrong input' 2 2 ''
slurm 'nor a signal' 143 143 ''
slurm 'nor the end' 0 0 ''
why=
for text in --signal=TERM@ --requeue --open-mode=append --exclusive --mem=0 --nodes=2 \
    --ntasks-per-node=1 --time=02:00:00; do
    grep -q -e "^#SBATCH $text" "$folder/j.sh" || why="no $text"
done
grep -q -e '--continue$' "$folder/j.sh" || why=${why:-no --continue}
result 'slurm: lines' "$why"
rm -f "$SCONTROL"
(cd "$folder" && ENDS=130 SLEEPS=0.3 PATH=$folder/bin:$PATH exec bash j.sh >"$folder/out" 2>&1) &
pid=$!
sleep 0.15
kill "$pid"
wait "$pid"
code=$?
result 'slurm: what was cancelled stays so' "$([ $code -eq 130 ] && [ ! -e "$SCONTROL" ] || echo "$code")"
# shellcheck disable=SC2086
for target in slurm mpi shell; do
    why=
    run job "$plan" --for $target --restarts 2 --program "$folder/it's a program" \
        -o "$folder/j.sh" -- $data --checkpoint run.ckpt
    for ends in 3 2 130; do
        (cd "$folder" && ENDS=$ends JOB_PAUSE_SECONDS=0 PATH=$folder/bin:$PATH \
            bash j.sh >"$folder/out" 2>&1)
        code=$?
        [ $code -eq $ends ] || why="exit code $code, not $ends: $(cat "$folder/out")"
        [ "$(grep -c 'the next one begins' "$folder/out")" -eq $((ends == 3 ? 2 : 0)) ] ||
            why=${why:-$(cat "$folder/out")}
    done
    result "$target: failures are tried again, so often" "$why"
done
# shellcheck disable=SC2086
run job "$plan" --for slurm --program "$folder/it's a program" -o "$folder/j.sh" -- $data
cp "$plan" "$folder/kept"
cp "$four" "$plan"
slurm 'another plan' 0 2 ''
grep -q 'is not the plan that this script was made for' "$folder/out" || result 'another plan' 'not said'
mv "$folder/kept" "$plan"

# --- real ranks ---
cat >"$folder/told" <<'END'
#!/bin/sh
[ "$1" = check ] || echo $$ >"$PIDS$RANK"
exec "$REAL" "$@"
END
chmod +x "$folder/told"
export PIDS=$folder/pid
# shellcheck disable=SC2086
run train "$plan" $data --steps 3 --log "$folder/one.jsonl" --quiet
losses() { grep -o '"loss":[^,]*' "$1"; }
steps() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
for shell in sh bash; do
    why=
    # shellcheck disable=SC2086
    run job "$plan" --for shell -o "$folder/r.sh" -- $data --steps 3 --log "$folder/two.jsonl" \
        --checkpoint "$folder/r.ckpt" --quiet
    rm -f "$folder/r.ckpt"
    MASTER_PORT=$((13000 + RANDOM % 18000)) timeout 60 $shell "$folder/r.sh" >"$folder/out" 2>&1 ||
        why=$(cat "$folder/out")
    cmp -s <(losses "$folder/one.jsonl") <(losses "$folder/two.jsonl") || why=${why:-other losses}
    result "$shell: two ranks" "$why"

    # shellcheck disable=SC2086
    run job "$plan" --for shell --program "$folder/told" -o "$folder/r.sh" -- $data \
        --steps 1000000 --warmup 9 --quiet --log "$folder/two.jsonl" \
        --checkpoint "$folder/r.ckpt"
    for how in stop kill; do
        why=
        rm -f "$folder/r.ckpt" "$folder/two.jsonl"
        MASTER_PORT=$((13000 + RANDOM % 18000)) timeout -k 1 60 \
            $shell "$folder/r.sh" >"$folder/out" 2>&1 &
        pid=$!
        for ((i = 0; i < 400 && $(steps "$folder/two.jsonl") < 2; i++)); do sleep 0.05; done
        if [ $how = stop ]; then
            kill "$pid"
        else
            kill -KILL "$(cat "${PIDS}1")"
        fi
        wait "$pid"
        code=$?
        [ $how = stop ] && [ $code -ne 130 ] && why="exit code $code: $(cat "$folder/out")"
        [ $how = kill ] && [ $code -ne 137 ] && why="exit code $code: $(cat "$folder/out")"
        [ $how = kill ] || [ -s "$folder/r.ckpt" ] || why=${why:-no checkpoint}
        kill -0 "$(cat "${PIDS}0")" 2>/dev/null && why=${why:-a rank is left}
        result "$shell: $how" "$why"
    done
done

[ "$n_failed" -eq 0 ]
