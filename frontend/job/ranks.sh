# Starts this machine's ranks, a process each, and returns when all have ended. $code is then 0; or
# 130, when they were stopped and have written a checkpoint; or the largest of what failed ranks
# ended with. SIGTERM, SIGINT and SIGHUP reach all ranks as SIGTERM. When a rank fails, the others
# end by themselves as a rule; those that do not are told to after $patience seconds, and killed
# after as many again.
# In: $world, $local (ranks of all and of this machine), $first (the number of its first).
patience=${JOB_PATIENCE_SECONDS:-60}
main=$$ ranks='' stops=no caught=no

await() { # PID: sets code to its exit code, whatever signals come meanwhile
    caught=no
    wait "$1" 2>/dev/null
    code=$?
    while [ "$caught" = yes ]; do
        caught=no before=$code
        wait "$1" 2>/dev/null
        code=$?
        [ "$code" -ne 127 ] || code=$before # it had ended when the signal came
    done
    [ "$code" -ge 0 ] || code=1 # bash's -1: lost, since a signal came just then
}

tell() { # SIGNAL
    for told in $ranks; do
        kill "-$1" "$told" 2>/dev/null
    done
}

# A process of its own, which ranks that fail wake: shells may lose an exit code when they wait for
# it and a signal comes, so none goes to the main one until there is need.
watch() {
    nap='' failed=no
    trap '[ -z "$nap" ] || kill "$nap"; exit' TERM
    trap 'failed=yes; [ -z "$nap" ] || kill "$nap"' USR1
    while [ "$failed" = no ]; do
        sleep 5 &
        nap=$!
        wait "$nap"
    done
    trap '' USR1
    for signal in USR1 USR2; do
        sleep "$patience" &
        nap=$!
        wait "$nap"
        kill "-$signal" "$main"
    done
}

# A shell of its own, which the rank's process cannot have: someone must say that it has failed.
rank() { # N COMMAND...
    child='' ends=no number=$1
    shift
    trap 'caught=yes ends=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
    trap 'caught=yes; [ -z "$child" ] || kill -KILL "$child" 2>/dev/null' USR2
    RANK=$((first + number)) LOCAL_RANK=$number WORLD_SIZE=$world LOCAL_WORLD_SIZE=$local "$@" &
    child=$!
    [ "$ends" = no ] || kill -TERM "$child" 2>/dev/null
    await "$child"
    case $code in
    0 | 130) ;;
    *) kill -USR1 "$watcher" 2>/dev/null ;;
    esac
    exit "$code"
}

run_ranks() { # COMMAND...
    ranks='' started=0 worst=0 stopped=no
    trap 'caught=yes stops=yes; tell TERM' TERM INT HUP
    trap 'caught=yes; tell TERM' USR1
    trap 'caught=yes; tell USR2' USR2
    watch >/dev/null 2>&1 &
    watcher=$!
    while [ "$started" -lt "$local" ] && [ "$stops" = no ]; do
        rank "$started" "$@" &
        ranks="$ranks $!"
        started=$((started + 1))
    done
    for pid in $ranks; do
        await "$pid"
        case $code in
        0) ;;
        130) stopped=yes ;;
        *) [ "$code" -le "$worst" ] || worst=$code ;;
        esac
    done
    kill "$watcher" 2>/dev/null
    code=$worst
    [ "$code" -ne 0 ] || [ "$stopped" = no ] || code=130
}
