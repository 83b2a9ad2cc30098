#!/usr/bin/env bash
# Runs the C++ tests that have a CUDA side (device seam, buffers, row hash) on a machine with a GPU and records what
# happened as JSON.
#
#   benchmarks/gpu/check_seam.sh FOLDER OUT.json
#
# FOLDER holds the test programs (test_device, test_memory, test_table) and the libraries they need (librmm.so,
# librapids_logger.so), built elsewhere: nothing is compiled or fetched here.
set -u
folder=$1
out=$2
export LD_LIBRARY_PATH="$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export RAPIDSMPF_DEVICE=auto
status=0
results=""
for test in test_device test_memory test_table; do
    log=$(mktemp)
    timeout 240 "$folder/$test" >"$log" 2>&1
    code=$?
    [ $code -eq 0 ] || status=1
    passed=$(sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    skipped=$(sed -n 's/^\[  SKIPPED \] \([0-9]*\) test.*/\1/p' "$log" | tail -1)
    failed=$(grep -c '^\[  FAILED  \] .*(.* ms)' "$log")
    tail -25 "$log"
    results+="${results:+, }\"$test\": {\"exit\": $code, \"passed\": ${passed:-0}, \"skipped\": ${skipped:-0}, \"failed\": ${failed:-0}}"
    rm -f "$log"
done
gpu=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader | head -1)
cat >"$out" <<JSON
{
  "command": "benchmarks/gpu/check_seam.sh FOLDER OUT.json",
  "date": "$(date -u +%F)",
  "hardware": "$gpu",
  "versions": {"cuda_build": "13.0", "rmm": "26.10.0", "compiler": "g++ 12.2"},
  "results": {$results}
}
JSON
cat "$out"
exit $status
