# Starts this machine's ranks, a process each, and returns when all have ended. $code is then 0; or
# 130, when they were stopped and have written a checkpoint; or the largest of what failed ranks
# ended with. SIGTERM, SIGINT and SIGHUP reach all ranks as SIGTERM. When a rank fails, the others
# end by themselves as a rule; those that do not are told to after $patience seconds, and killed
# after as many again.
# In: $world, $local (ranks of all and of this machine), $first (the number of its first).
patience=${JOB_PATIENCE_SECONDS:-60}
main=$$ ranks='' stops=no caught=no

await() { # PID: sets code to its exit code, whatever signals come meanwhile
    while :; do
        caught=no
        wait "$1" 2>/dev/null
        code=$?
        while [ "$caught" = yes ]; do
            caught=no before=$code
            wait "$1" 2>/dev/null
            code=$?
            [ "$code" -ne 127 ] || code=$before # it had ended when the signal came
        done
        kill -0 "$1" 2>/dev/null || break
    done
    if [ "$code" -lt 0 ]; then # bash's -1: lost, since a signal came just then
        code=1
        [ "$stops" = no ] || code=130
    fi
}

tell() { # SIGNAL
    for told in $ranks; do
        kill "-$1" "$told" 2>/dev/null
    done
}

# A process of its own, which ranks that fail wake: shells may lose an exit code when they wait for
# it and a signal comes, so none goes to the main one until there is need.
watch() {
    nap='' failed=no over=no
    trap 'over=yes; [ -z "$nap" ] || kill -KILL "$nap"' TERM
    trap 'failed=yes; [ -z "$nap" ] || kill -KILL "$nap"' USR1
    while [ "$failed" = no ]; do
        doze 5 no
    done
    trap '' USR1
    for signal in USR1 USR2; do
        left=$patience
        while [ "$left" -gt 0 ]; do
            doze 1 yes
            left=$((left - 1))
        done
        kill "-$signal" "$main"
    done
}

# A signal that comes before the number of what sleeps is known is seen here. A shell that is about
# to become another program may take any but KILL for its own, and lose it.
doze() { # SECONDS FAILED: for so long, or until another rank has failed, or all is over
    sleep "$1" &
    nap=$!
    if [ "$over" = yes ] || [ "$failed" != "$2" ]; then kill -KILL "$nap"; fi
    wait "$nap"
    [ "$over" = no ] || exit 0
}

# A shell of its own, which the rank's process cannot have: someone must say that it has failed.
rank() { # N COMMAND...
    child='' number=$1
    shift
    trap 'caught=yes stops=yes; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM
    trap 'caught=yes; [ -z "$child" ] || kill -KILL "$child" 2>/dev/null' USR2
    RANK=$((first + number)) LOCAL_RANK=$number WORLD_SIZE=$world LOCAL_WORLD_SIZE=$local "$@" &
    child=$!
    [ "$stops" = no ] || kill -TERM "$child" 2>/dev/null
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
    sleep 0.3 # traps wait for it, and what has just begun can then take a signal (doze)
    [ "$stops" = no ] || tell TERM
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
    [ "$started" -gt 0 ] || code=143
    [ "$code" -ne 0 ] || [ "$stopped" = no ] || code=130
}
