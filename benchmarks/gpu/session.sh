#!/usr/bin/env bash
# Builds the C++ tests and benchmarks on a machine with GPUs, runs the tests on the GPU, then the benchmarks, and leaves
# logs and JSON in a folder.
#
#   benchmarks/gpu/session.sh SITE OUT [STEP...]
#
# Steps: tests kernels partition trace pinned links beside spill host shuffle ucx nccl sanitizer programs tsan; with Python: python compare
# tables lineitem fused dask.
#
# SITE is a folder of Python packages with librmm, rapids_logger, libucx and libucxx (unpacked wheels); CMake, ninja, nvcc and
# GoogleTest must be there. Steps with Python want polars, pylibcudf, dask, distributed and dask-cuda there, too, and in OURS (a
# folder) this package's own wheel; tables takes the peer's wheels from PEER. Nothing is fetched. Steps are done in the order in
# which they are named; each has a time limit of its own, and a failure does not stop what follows.
set -u
site=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
shift 2
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${GPU_BUILD:-/tmp/riverrun-gpu-build}
python=$(command -v python3)
export PYTHONPATH="$site${OURS:+:$OURS}${PYTHONPATH:+:$PYTHONPATH}" PATH="${OURS:+$OURS/bin:}$PATH"
gpus=$(nvidia-smi --query-gpu=name --format=csv,noheader | wc -l)
summary="$out/summary.txt"

note() { echo "$*" | tee -a "$summary"; }

note "$(date -u +%FT%TZ) $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sort | uniq -c | tr -s ' ')"
tests="test_core test_device test_memory test_communicator test_exchange test_coll test_table test_streaming"
{
    cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CUDA_ARCHITECTURES=90-real \
        -DRAPIDSMPF_BUILD_TESTS=ON -DRAPIDSMPF_BUILD_BENCHMARKS=ON -DRAPIDSMPF_ENABLE_MPI=OFF \
        -DPython_EXECUTABLE="$python" &&
        cmake --build "$build" -- -k 0 $tests collective_process rrun bench_shuffle bench_gpu_spill
    # Where Google Benchmark is.
    cmake --build "$build" -- bench_table_partition_gpu
} >"$out/build.log" 2>&1
grep -E "error:|undefined reference|FAILED" "$out/build.log" | head -40 | cut -c1-300
note "built after $SECONDS s"

run() { # name, seconds, command...
    local name=$1 limit=$2 begin=$SECONDS
    shift 2
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1
    local code=$?
    note "$name: exit $code, $((SECONDS - begin)) s; $(grep -E '^\[  (PASSED|FAILED|SKIPPED) \] [0-9]+' "$out/$name.log" | tr -s ' ' | tr '\n' ';')"
    [ $code -eq 0 ] || { grep -E '^\[  FAILED  \] .*ms\)' "$out/$name.log" | head -40; tail -5 "$out/$name.log"; }
}

rrun=$(find "$build" -name rrun -type f -perm -u+x | head -1)
for step in "$@"; do
    case $step in
        tests)
            for test in $tests; do
                run "$test" 240 "$build/cpp/$test" --gtest_brief=0
            done
            if [ "$gpus" -gt 1 ]; then
                run collective_process 200 "$rrun" -n 2 --tag-output "$build/cpp/collective_process"
            fi
            ;;
        kernels)
            run kernels_device 60 "$build/cpp/test_device"
            run kernels_table 200 "$build/cpp/test_table"
            ;;
        partition)
            run partition 60 "$build/cpp/bench_table_partition_gpu" --benchmark_min_time=0.02 \
                --benchmark_out="$out/partition.json" --benchmark_out_format=json
            cat "$out/partition.log"
            ;;
        trace)
            # What each kernel takes by itself, and what it moves.
            for cut in rows_of_32_bytes/3072/2 rows_of_32_bytes/3072/32 rows_of_32_bytes/3072/1024 rows_of_32_bytes/76/32 lineitem/3072/32; do
                name=trace_${cut//\//_}
                run "$name" 60 ncu --clock-control none --launch-skip 24 --launch-count 24 --csv \
                    --metrics gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,launch__registers_per_thread \
                    "$build/cpp/bench_table_partition_gpu" --benchmark_filter="partition/$cut/" --benchmark_min_time=0.02
            done
            ;;
        spill)
            # What the disk does by itself, beside it in the same run.
            spill_at=${RAPIDSMPF_SPILL_DIRECTORY:-${TMPDIR:-/tmp}}
            run dd_write 120 dd if=/dev/zero of="$spill_at/riverrun-dd" bs=16M count=256 oflag=direct conv=fsync
            run dd_read 120 dd if="$spill_at/riverrun-dd" of=/dev/null bs=16M iflag=direct
            rm -f "$spill_at/riverrun-dd"
            grep -h copied "$out/dd_write.log" "$out/dd_read.log"
            run spill 150 "$build/cpp/ranks/bench_gpu_spill"
            tee "$out/spill.json" <"$out/spill.log"
            ;;
        pinned)
            nvcc -std=c++17 -O2 -arch=sm_90 -o "$build/pinned_memory" "$root/benchmarks/gpu/pinned_memory.cu"
            run pinned 60 "$build/pinned_memory"
            cat "$out/pinned.log"
            ;;
        beside)
            nvcc -std=c++17 -O2 -arch=sm_90 -o "$build/beside" "$root/benchmarks/gpu/kernel_beside_copies.cu"
            run beside 60 "$build/beside"
            cat "$out/beside.log"
            ;;
        links)
            nvcc -std=c++17 -O2 -arch=sm_90 -o "$build/links" "$root/benchmarks/gpu/links.cu"
            run links 60 "$build/links"
            cat "$out/links.log"
            ;;
        host)
            # Shuffles of host memory on a quiet machine of many cores.
            rm -f "$out/host.jsonl"
            shuffle="$build/cpp/ranks/bench_shuffle"
            export RAPIDSMPF_DEVICE=cpu
            for ranks in 2 4; do
                run "host_packed_$ranks" 60 "$rrun" -n "$ranks" "$shuffle" packed --chunks 64KiB,1MiB,8MiB,64MiB \
                    --partitions 1,100 --bytes 256MiB --repeats 5 --output "$out/host.jsonl"
                run "host_table_$ranks" 90 "$rrun" -n "$ranks" "$shuffle" table --chunks 64KiB,1MiB,8MiB,64MiB \
                    --partitions 1,10,100 --bytes 256MiB --pieces 20000 --repeats 5 --output "$out/host.jsonl"
            done
            unset RAPIDSMPF_DEVICE
            ;;
        sanitizer)
            run memcheck_device 200 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/cpp/test_device"
            run memcheck_table 300 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/cpp/test_table" --gtest_filter='*Cuda*'
            run racecheck_table 300 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/cpp/test_table" --gtest_filter='*Cuda*'
            ;;
        shuffle)
            rm -f "$out/shuffle.jsonl"
            run shuffle 200 "$rrun" -n "$gpus" "$build/cpp/ranks/bench_shuffle" device_table --output "$out/shuffle.jsonl"
            cat "$out/shuffle.jsonl"
            ;;
        ucx)
            # The same when payloads are UCX's messages (cuda_ipc between GPUs).
            rm -f "$out/shuffle_ucx.jsonl"
            run shuffle_ucx 120 env RAPIDSMPF_PEER_MEMORY=off "$rrun" -n "$gpus" "$build/cpp/ranks/bench_shuffle" device_table \
                --repeats 5 --output "$out/shuffle_ucx.jsonl"
            cut -c1-400 "$out/shuffle_ucx.jsonl"
            ;;
        nccl)
            run nccl 120 "$python" "$root/benchmarks/gpu/nccl_alltoall.py" --ranks "$gpus" --output "$out/nccl.json"
            tail -1 "$out/nccl.log"
            ;;
        tsan)
            # Races between threads where ranks are threads, as make test-tsan, on all cores.
            rooms="core memory communicator exchange coll streaming"
            {
                cmake -S "$root" -B "$build-tsan" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-g1 \
                    -DRAPIDSMPF_BUILD_TESTS=ON -DRAPIDSMPF_ENABLE_CUDA=OFF -DRAPIDSMPF_ENABLE_MPI=OFF \
                    -DRAPIDSMPF_SANITIZE=thread -DPython_EXECUTABLE="$python" &&
                    cmake --build "$build-tsan" -- -k 0 $(printf 'test_%s ' $rooms)
            } >"$out/build-tsan.log" 2>&1
            export TSAN_OPTIONS="halt_on_error=1:second_deadlock_stack=1:suppressions=$root/cpp/tests/tsan.supp"
            export UCX_MEM_EVENTS=n UCX_MEM_MMAP_HOOK_MODE=none
            for room in $rooms; do (
                run "tsan_$room" 280 "$build-tsan/cpp/test_$room" --gtest_filter="-*Process*"
            ) & done
            wait
            unset TSAN_OPTIONS UCX_MEM_EVENTS UCX_MEM_MMAP_HOOK_MODE
            ;;
        python)
            run python 280 env -C "$root" RAPIDSMPF_DEVICE=cuda "$python" -m pytest -q python/tests/rapidsmpf \
                -p no:cacheprovider --timeout=120
            grep -E '^(FAILED|ERROR)|passed|failed' "$out/python.log" | tail -25 | cut -c1-250
            ;;
        compare)
            run compare 200 env -C "$root" "$python" -m benchmarks.gpu.partition --output "$out/compare.json"
            cat "$out/compare.log"
            ;;
        tables | lineitem)
            table=rows_of_32_bytes
            [ "$step" = tables ] || table=$step
            run "$step" 280 env -C "$root" "$python" -m benchmarks.gpu.shuffle_tables --ranks "$gpus" --table "$table" \
                --side "ours=$OURS" ${PEER:+--side "peer=$PEER"} --output "$out/$step.json"
            cat "$out/$step.log"
            ;;
        fused)
            run fused 120 env -C "$root" "$python" -m benchmarks.gpu.fused --output "$out/fused.json"
            cat "$out/fused.log"
            ;;
        dask)
            run dask 300 env -C "$root" "$python" -m benchmarks.gpu.dask_cuda_examples --output "$out/dask.json"
            cat "$out/dask.log"
            ;;
        programs)
            # Random programs of collectives on the CPU device, on all cores: for what shows once in 100,000.
            for i in $(seq "$(nproc)"); do (
                RAPIDSMPF_DEVICE=cpu RAPIDSMPF_TEST_PROGRAMS=20000 timeout -k 5 240 "$build/cpp/test_coll" \
                    --gtest_filter='*Programs*' --gtest_shuffle --gtest_random_seed="$i" >"$out/programs-$i.log" 2>&1
                echo "program run $i: exit $?" >>"$out/programs.txt"
            ) & done
            wait
            note "programs: $(cut -d: -f2 "$out/programs.txt" | sort | uniq -c | tr -s ' ' | tr '\n' ';')"
            ;;
        *) note "there is no step $step" ;;
    esac
done
cat "$summary"
