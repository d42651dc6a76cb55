#!/usr/bin/env bash
# start_ranks.sh N PROGRAM ...: starts N ranks on this host as torchrun does, by environment variables alone. Ends with the
# status of the first rank that failed.
set -u
size=$1
shift
export WORLD_SIZE=$size MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + (RANDOM * 32768 + RANDOM) % 10000))
processes=()
for ((rank = 0; rank < size; ++rank)); do
  RANK=$rank LOCAL_RANK=$rank "$@" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do
  wait "$process" || { code=$?; [ "$status" -ne 0 ] || status=$code; }
done
exit "$status"
