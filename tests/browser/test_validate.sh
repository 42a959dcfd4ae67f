#!/usr/bin/env bash
# The page of perilune validate in headless Chromium, wide and narrow: it draws, sorts, logs nothing,
# fetches nothing and does not scroll sideways. A probe added to a copy writes down what only the
# browser knows.
set -u
export LC_ALL=C.UTF-8
cd "$(dirname "$0")/../.." || exit 2
perilune=${PERILUNE:-build/perilune}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
if [ -z "$browser" ]; then
    echo "skip page of validate: chromium is not installed"
    exit 0
fi
folder=$(mktemp -d) || exit 2
trap 'rm -rf "$folder"' EXIT
page=$folder/runs.html
if ! "$perilune" validate tests/data/published_runs.csv --html "$page" >/dev/null 2>"$folder/log"; then
    echo "FAIL page of validate: $(head -n 1 "$folder/log")"
    exit 1
fi

# Sorts by ranks, down: the run on 3072 comes first.
probe='<script>(function () {
  var heads = document.querySelectorAll("#runs th button"), page = document.documentElement
  heads[2].click(); heads[2].click()
  var rows = document.querySelector("#runs").tBodies[0].rows, dots = 0
  document.querySelectorAll("circle.dot").forEach(function (dot) {
    if (dot.getBoundingClientRect().width > 0) dots++ })
  var note = document.createElement("p")
  note.id = "probe"
  note.textContent = "first=" + rows[0].cells[0].textContent + " dots=" + dots + " wider=" +
    (page.scrollWidth - page.clientWidth)
  document.body.appendChild(note)
})()</script>'
cp "$page" "$folder/probed.html"
printf '%s\n' "$probe" >>"$folder/probed.html"

n_failed=0
for width in 1280 500; do # Chromium's windows are not narrower
    why=
    timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$folder/profile" --window-size="$width,900" --enable-logging=stderr \
        --virtual-time-budget=3000 --dump-dom "file://$folder/probed.html" \
        >"$folder/dom" 2>"$folder/console" || why="the browser ended with an error"
    probed=$(grep -o '<p id="probe">[^<]*' "$folder/dom" | sed 's/.*>//')
    [ "$probed" = 'first=sc21_t1_1008b dots=19 wider=0' ] || why="${probed:-the probe did not run}"
    ! grep -q CONSOLE "$folder/console" || why="console: $(grep -m 1 CONSOLE "$folder/console")"
    if grep -Eq '(src|href|action|data)="|url\(|://|@import' "$page"; then
        why='something points outside'
    fi
    if [ -z "$why" ]; then
        echo "ok page of validate, $width wide"
    else
        echo "FAIL page of validate, $width wide: $why"
        n_failed=$((n_failed + 1))
    fi
done
[ "$n_failed" -eq 0 ]
