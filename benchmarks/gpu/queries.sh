#!/usr/bin/env bash
# Queries on one GPU: conformance of the operators, answers and seconds of PDS-H, the peer beside it. Nothing is fetched.
#
#   benchmarks/gpu/queries.sh SITE WHEELS OUT STEP...
#
# SITE: a folder with site/ (librmm, libcudf, kvikio, nvcomp, ucx, ucxx, the peers and what they need, bin/tpchgen-cli) and
# site2/ (Polars as we need it), unpacked wheels. WHEELS: this package's own wheel, cloudpickle's, and test programs if there
# are any. Steps, done in order; a failure does not stop what follows:
#
#   data:SCALE        makes the tables in $DATA (default /dev/shm/riverrun)
#   data-later:SCALE  the same in the background
#   tests             C++ tests of the room compute
#   conformance       every primitive and operator by libcudf and by the tests' emulator
#   answers:SCALE     22 queries by Polars, ours once, answers compared
#   time:SCALE        22 queries by ours, three times
#   peer:SCALE        the same by the peer
#   scan:SCALE        the scan alone
#   sanitizer         compute-sanitizer over the C++ tests of the operators, in $SHARDS (12) processes
set -u
unpacked=$(realpath "$1")
wheels=$(realpath "$2")
mkdir -p "$3"
out=$(realpath "$3")
shift 3
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${DATA:-/dev/shm/riverrun}
SHARDS=${SHARDS:-12}
source "$root/benchmarks/gpu/environment.sh"
mount -o remount,size=100G /dev/shm 2>/dev/null

note() { echo "$*" | tee -a "$out/summary.txt"; }
if [ ! -d $env ]; then
    mkdir -p $env
    for entry in "$unpacked"/site/*; do
        case $(basename "$entry") in
            rapidsmpf* | librapidsmpf* | cudf_polars* | cudf_streaming* | libcudf_streaming* | polars* | _polars*) ;;
            *) ln -s "$entry" $env/ ;;
        esac
    done
    for entry in "$unpacked"/site2/*; do ln -s "$entry" $env/; done
    for wheel in "$wheels"/*.whl; do python3 -m zipfile -e "$wheel" $env; done
    chmod +x $env/rapidsmpf/bin/* 2>/dev/null
fi
export PYTHONPATH="$env:$root/python/tests:$root"
tpchgen="$unpacked/site/bin/tpchgen-cli"
note "$(date -u +%FT%TZ) $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader), $(nproc) cores"

make_data() { # scale
    [ -e "$data/sf$1/.done" ] && return
    mkdir -p "$data/sf$1"
    "$tpchgen" parquet -s "$1" --output-dir="$data/sf$1" >"$out/data$1.log" 2>&1 && touch "$data/sf$1/.done"
}
await_data() { # scale
    for _ in $(seq 600); do
        [ -e "$data/sf$1/.done" ] && return 0
        pgrep -f "tpchgen-cli parquet -s $1 " >/dev/null || { make_data "$1"; return; }
        sleep 0.5
    done
}
run() { # name, seconds, command...
    local name=$1 limit=$2 begin=$SECONDS
    shift 2
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    local code=$?
    note "$name: exit $code, $((SECONDS - begin)) s"
    tail -${TAIL:-3} "$out/$name.log" | cut -c1-600
}

for step in "$@"; do
    scale=${step#*:}
    case $step in
        data:*) make_data "$scale"; note "data $scale after $SECONDS s: $(du -sh "$data/sf$scale" | cut -f1)" ;;
        data-later:*)
            export -f make_data
            data=$data tpchgen=$tpchgen out=$out setsid nohup bash -c "make_data $scale" >/dev/null 2>&1 &
            ;;
        tests)
            for test in "$wheels"/test_compute*; do
                LD_LIBRARY_PATH="$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
                    run "$(basename "$test")" 240 "$test" --gtest_brief=1
                grep -E '^\[  FAILED  \]' "$out/$(basename "$test").log" | sort -u | head -60
            done
            ;;
        sanitizer)
            # One process of many tests does not end in ten minutes: so each takes a part of them.
            for shard in $(seq 0 $((SHARDS - 1))); do
                GTEST_TOTAL_SHARDS=$SHARDS GTEST_SHARD_INDEX=$shard LD_LIBRARY_PATH="$libraries" \
                    run "sanitizer$shard" "${SANITIZER_SECONDS:-300}" /usr/local/cuda/bin/compute-sanitizer --error-exitcode 7 \
                    "$wheels/test_compute" --gtest_brief=1 &
            done
            wait
            ;;
        conformance)
            run conformance 300 python3 -X faulthandler -m benchmarks.gpu.conformance --output "$out/conformance.jsonl"
            ;;
        answers:*)
            await_data "$scale"
            run "polars$scale" 400 python3 -X faulthandler -m benchmarks.gpu.pdsh run --engine polars --data "$data/sf$scale" --repeats 1 \
                --output "$out/polars$scale.jsonl" --answers "/tmp/answers/polars$scale"
            run "ours$scale" 300 python3 -X faulthandler -m benchmarks.gpu.pdsh run --engine riverrun --data "$data/sf$scale" --repeats 2 --traceback \
                --output "$out/ours$scale.jsonl" --answers "/tmp/answers/ours$scale"
            TAIL=40 run "check$scale" 100 python3 -X faulthandler -m benchmarks.gpu.pdsh check --answers "/tmp/answers/ours$scale" \
                --reference "/tmp/answers/polars$scale" --output "$out/check$scale.json"
            ;;
        time:*)
            await_data "$scale"
            run "time$scale" 300 python3 -X faulthandler -m benchmarks.gpu.pdsh run --engine riverrun --data "$data/sf$scale" --repeats 3 \
                --output "$out/time$scale.jsonl" --answers "/tmp/answers/time$scale"
            ;;
        peer:*)
            await_data "$scale"
            PYTHONPATH="$unpacked/site:$root" run "peer$scale" 300 python3 -X faulthandler -m benchmarks.gpu.pdsh run --engine peer \
                --data "$data/sf$scale" --repeats 3 --output "$out/peer$scale.jsonl" --answers "/tmp/answers/peer$scale"
            ;;
        scan:*)
            await_data "$scale"
            export LD_LIBRARY_PATH="$libraries"
            for columns in "$q6_columns" "$q1_columns" l_orderkey,l_partkey,l_suppkey; do
                run "scan$scale-$columns" 100 "$wheels/bench_scan" "$data/sf$scale/lineitem.parquet" "$columns"
            done
            unset LD_LIBRARY_PATH
            ;;
        *) note "there is no step $step" ;;
    esac
done
