#!/usr/bin/env bash
# The page of perilune validate in headless Chromium, wide and narrow: it draws, sorts, logs nothing,
# fetches nothing and does not scroll sideways. A probe added to a copy writes down what only the
# browser knows.
set -u
cd "$(dirname "$0")/../.." || exit 2
suite='page of validate'
. tests/browser/pages.sh
write_pages "$perilune" validate tests/data/published_runs.csv --html "$folder/runs.html"

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

for width in 1280 500; do # Chromium's windows are not narrower
    begin "page of validate, $width wide"
    open "$folder/runs.html" "$width" || continue
    found 'first=sc21_t1_1008b dots=19 wider=0'
    end
done
[ "$n_failed" -eq 0 ]
