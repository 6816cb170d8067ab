#!/usr/bin/env bash
# Run every fuzz target of the module for a while each, with assertions on.
# usage: fuzz.sh [SECONDS [PATTERN]]     default: 5 seconds, every target
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-5}
pattern=${2:-.}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Only packages with a fuzz target are asked, so that the others need not be linked.
mapfile -t dirs < <(grep -rlE --include='*_test.go' '^func Fuzz[A-Z0-9_]' . | xargs -r -n1 dirname | sort -u)

ran=0
failed=()
for dir in "${dirs[@]}"; do
	if ! targets=$(go test -tags invariants -list '^Fuzz' "$dir" 2>&1); then
		echo "$targets"
		failed+=("$dir")
		continue
	fi
	for target in $(grep -E '^Fuzz' <<<"$targets" | grep -E -- "$pattern" || true); do
		ran=$((ran + 1))
		if go test -tags invariants -run '^$' -fuzz "^$target\$" -fuzztime "${seconds}s" -fuzzminimizetime 1x "$dir" >"$log" 2>&1; then
			echo "ok    $dir $target: $(grep -E '^fuzz: elapsed' "$log" | tail -n 1 | sed 's/^fuzz: //')"
			continue
		fi
		# The end of the time can hit the engine in the middle of an input, which it then
		# reports as a failure of its own context and not of the target.
		if grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then
			echo "ok    $dir $target: stopped by the clock"
			continue
		fi
		echo "FAIL  $dir $target"
		cat "$log"
		failed+=("$dir $target")
	done
done

if [ "$ran" -eq 0 ]; then
	echo "no fuzz target matches; that is not a success"
	exit 1
fi
if [ "${#failed[@]}" -gt 0 ]; then
	echo "$ran fuzz targets, failed: ${failed[*]}"
	echo "A failing input lies in the package's testdata/fuzz: fix the cause and commit the input with the fix."
	exit 1
fi
echo "$ran fuzz targets, ${seconds} s each, none failed"
