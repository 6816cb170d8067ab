#!/usr/bin/env bash
# Run one step of a longer job under a heading and say how long it took.
# usage: phase.sh NAME COMMAND [ARG]...
set -uo pipefail

name=$1
shift
printf '\n==> %s\n' "$name"
start=$SECONDS
"$@"
status=$?
if [ "$status" -eq 0 ]; then
	printf '<== %s: ok, %d s\n' "$name" $((SECONDS - start))
else
	printf '<== %s: FAILED with status %d, %d s\n' "$name" "$status" $((SECONDS - start))
fi
exit "$status"
