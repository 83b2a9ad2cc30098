#!/usr/bin/env bash
# Where the seconds of PDS-H at one scale go: the scan by itself with several settings, then every pipeline of every query.
#
#   benchmarks/gpu/scan_and_profile.sh SITE WHEELS OUT SCALE
#
# As queries.sh, which makes the tables and the environment first. Records are written as they come. SCANS= leaves the scans
# out; SETTINGS has settings of the runtime, a line each; WAITS is how threads wait for the GPU.
set -u
wheels=$(realpath "$2")
out=$(realpath "$3")
root=$(cd "$(dirname "$0")/../.." && pwd)
source "$root/benchmarks/gpu/environment.sh"
data=${DATA:-/dev/shm/riverrun}/sf$4

scan() { # columns, options...
    local columns=$1
    shift
    LD_LIBRARY_PATH="$libraries" timeout 60 "$wheels/bench_scan" "$data/lineitem.parquet" "$columns" "$@" 2>&1 |
        sed "s/^{/{\"options\": \"$*\", /" | tail -1 | tee -a "$out/scan.jsonl" | cut -c1-300
}

if [ -n "${SCANS-1}" ]; then
    for threads in ${READ_THREADS:-6 8 12 16}; do
        for slab in ${SLAB_KIB:-1024 2048 4096}; do
            scan $q6_columns --mode copy --no-map --repeat 3 --read-threads "$threads" --slab-kib "$slab"
        done
    done
    pinned="--pinned-below 1048576 --kernel-copy-below 65536" # as the engine sets it
    for decoders in 8 12; do
        for threads in ${READ_THREADS:-6 8 12 16}; do
            # shellcheck disable=SC2086
            scan $q6_columns --no-map --repeat 4 --threads $decoders --read-threads "$threads" --slab-kib 2048 $pinned
        done
    done
    # shellcheck disable=SC2086
    scan $q1_columns --no-map --repeat 4 --threads 8 $pinned
fi

export PYTHONPATH="$env:$root/python/tests:$root"
settings=${SETTINGS:-$(
    cat <<'S'
{}
{"threads": 12}
{"threads": 12, "pass_rows": 4000000}
{"threads": 8, "pass_rows": 4000000}
{"threads": 16, "pass_rows": 2000000}
{"read_threads": 12}
{"map_files": true}
S
)}
n=0
while read -r one; do
    n=$((n + 1))
    timeout 100 python3 -X faulthandler -m benchmarks.gpu.profile --data "$data" --settings "$one" ${WAITS:+--waits "$WAITS"} \
        --output "$out/profile${WAITS:-}-$n.jsonl" 2>&1 | tail -3
    python3 - "$out/profile${WAITS:-}-$n.jsonl" "$one" <<'P'
import json, sys
sums = {}
for text in open(sys.argv[1]):
    line = json.loads(text)
    for part in ("read", "translate", "build", "run", "collect"):
        sums.setdefault((line["repeat"], part), 0.0)
        sums[line["repeat"], part] += line[part]
for repeat in sorted({r for r, _ in sums}):
    parts = {p: round(s, 3) for (r, p), s in sums.items() if r == repeat}
    print(sys.argv[2], "repeat", repeat, "sum", round(sum(parts.values()), 3), parts)
P
done <<<"$settings"
