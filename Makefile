# The two commands of the README are `make quickstart` and `make test`. Every target does its own set-up.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := build
MAKEFLAGS += --no-print-directory
.PHONY: build quickstart test test-cpp test-python build-fuzz fuzz fuzz-quick build-asan test-asan test-asan-mpi test-tsan test-gpu test-long test-repeat test-kills test-polars-suite test-tiny-blocks lint format bench clean help

PYTHON ?= python3
SCALE ?= 1
RANKS ?= 1,2
JOBS ?= $(shell nproc)
# Tests that run at a time: processes and threads of theirs wait for each other, and for time to pass, more than they compute.
TESTS_AT_ONCE := $(shell echo $$((2 * $(JOBS))))
# With 4 for 2 cores, those of the sanitizers leave the cores idle for half of the time.
SANITIZED_AT_ONCE := $(shell echo $$((4 * $(JOBS))))
# Python tests compute more, and start clusters. The tests of a file stay together, for they share what they have started; the
# slowest files come first.
PYTESTS_AT_ONCE ?= $(shell echo $$(($(JOBS) < 8 ? $(JOBS) : 8)))
IN_PARALLEL := -n $(PYTESTS_AT_ONCE) --dist loadfile --no-loadscope-reorder

ROOT := $(CURDIR)
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin
RESULTS := $(ROOT)/build/results
# Ninja, CMake and the linters come from the virtual environment; nothing has to be installed besides
# a C++ compiler and Python.
export PATH := $(BIN):$(PATH)
unexport PYTHONPATH

SOURCES := $(shell find python/rapidsmpf python/cudf_polars python/CMakeLists.txt \
    cpp/include cpp/src cpp/tools cpp/cmake cpp/CMakeLists.txt cmake CMakeLists.txt \
    -type f -not -path '*/__pycache__/*' -not -name '.*' 2>/dev/null)
CMAKE_ARGS := -G Ninja -DPython_EXECUTABLE=$(BIN)/python
# Of builds that compile everything once: lines for stack traces, no more; the library's own checks; and kernels in one
# form, for nobody runs them.
SANITIZER_ARGS := $(CMAKE_ARGS) -DCMAKE_BUILD_TYPE=Debug "-DCMAKE_CXX_FLAGS_DEBUG=-g1 -D_GLIBCXX_ASSERTIONS" \
    -DRAPIDSMPF_UNITY=ON -DCMAKE_CUDA_ARCHITECTURES=80-virtual -DRAPIDSMPF_BUILD_TESTS=ON

# C++ programs stand on the objects of the wheel, in its build folder: the library is compiled once.
# $(call programs,<targets>,<options of CMake>)
programs = cmake build/wheel $(2) > build/programs-configure.log || { cat build/programs-configure.log; exit 1; }; \
    cmake --build build/wheel -j $(JOBS) --target $(1)
TESTS := -DRAPIDSMPF_BUILD_TESTS=ON -DRAPIDSMPF_TEST_RESULTS=$(RESULTS)

help:
	@echo "make quickstart   install, run the example on 2 ranks, then PDS-H at scale 1 on 1 and 2 ranks"
	@echo "make test         C++ and Python tests"
	@echo "make build        build and install into .venv; seconds when little has changed"
	@echo "make lint format  check, mend the form of the sources"
	@echo "make bench        a short version of every benchmark; SCALE=1 RANKS=1,2"
	@echo "make test-asan    C++ tests of the protocol and of streaming under ASan and UBSan"
	@echo "make test-asan-mpi  the same for the communicator over MPI, between processes"
	@echo "make test-tsan    C++ tests of memory and the protocol under TSan"
	@echo "make fuzz         fuzzers of all that comes from outside, under ASan and UBSan: SECONDS=600 each"
	@echo "make test-gpu     all tests that are not about the CPU, on this machine's GPUs"
	@echo "make test-long    many more random programs of collectives: PROGRAMS=20000"
	@echo "make test-queries   random queries compared with Polars: SEEDS=50000 FIRST=0 DEVICE=cpu, gpu, gpu-coded or emulated"
	@echo "make test-tiny-blocks  the same, and PDS-H, on ranks whose memory has no room for them: TINY_SEEDS=3000"
	@echo "make test-repeat  collectives between processes, 50 times each: REPEATS=50"
	@echo "make test-kills   sinks that SIGKILL ends at each of many more changes: KILLS=40"
	@echo "make test-polars-suite  Polars' own tests on 2 ranks: POLARS_TESTS=<archive or folder of them>"

# The virtual environment with everything that building, testing and linting need.
$(VENV)/.ready: pyproject.toml scripts/requirements.py
	@command -v $(firstword $(CXX)) >/dev/null || { echo "no C++ compiler found: install g++ (12 or newer)" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one: make PYTHON=python3.12" >&2; exit 1; }
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/requirements.py test > $(VENV)/requirements.txt
	$(BIN)/python scripts/install.py $(VENV)/requirements.txt
	@touch $@

# The build folder is build/wheel (pyproject.toml), so that only what has changed is compiled again.
$(VENV)/.installed: $(VENV)/.ready $(SOURCES)
	CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) $(BIN)/python -m pip install -q --disable-pip-version-check \
	    --no-build-isolation --no-deps --force-reinstall .
	@touch $@

build: $(VENV)/.installed

quickstart: build
	$(BIN)/rrun -n 2 --tag-output $(BIN)/python examples/quickstart.py
	$(BIN)/python -m benchmarks.pdsh --scale 1 --ranks 1,2 --output build/quickstart.json

test: build
	@status=0; $(MAKE) test-cpp || status=1; $(MAKE) test-python || status=1; exit $$status

test-cpp: build
	@mkdir -p $(RESULTS); rm -rf $(RESULTS)/ctest.xml $(RESULTS)/ctest
	@if scripts/ensure_packages.sh gtest/gtest.h libgtest-dev; then \
	    $(call programs,tests,$(TESTS)/ctest); \
	    ctest --test-dir build/wheel/cpp -j $(TESTS_AT_ONCE) --output-on-failure --output-junit $(RESULTS)/ctest.xml --no-tests=error; \
	else \
	    echo; echo "*** THE C++ TESTS WERE SKIPPED: GoogleTest is missing (see above) ***"; echo; \
	    printf '<testsuite><testcase classname="ctest" name="all C++ tests"><skipped/></testcase></testsuite>' > $(RESULTS)/ctest.xml; \
	fi

test-python: build
	@mkdir -p $(RESULTS); rm -f $(RESULTS)/pytest.xml
	$(BIN)/python -m pytest -q $(IN_PARALLEL) --junitxml=$(RESULTS)/pytest.xml

# The rooms where memory and threads are at stake, with the sanitizers; the rest of the tests is not built. Tests that
# start processes are left out: rrun and the ranks link what no sanitizer watches.
EMPTY :=
PROCESS_TESTS := *Rrun*:*OneRrunPerHost*:*ShuffleFailure*:*FailureByHand*
ASAN_ROOMS := $(foreach room,memory communicator bootstrap exchange coll streaming pages compute,$(if $(wildcard cpp/tests/$(room)/*_test.cpp),$(room)))
build-asan: $(VENV)/.ready
	@mkdir -p $(RESULTS)
	@cmake -S . -B build/asan $(SANITIZER_ARGS) -DRAPIDSMPF_BUILD_BENCHMARKS=ON \
	    -DRAPIDSMPF_SANITIZE=address,undefined -DRAPIDSMPF_TEST_RESULTS=$(RESULTS)/asan > build/asan-configure.log \
	    || { cat build/asan-configure.log; exit 1; }
	cmake --build build/asan -j $(JOBS) --target $(ASAN_ROOMS:%=test_%) benchmarks

test-asan: $(VENV)/.ready
	@mkdir -p $(RESULTS); rm -rf $(RESULTS)/asan.xml $(RESULTS)/asan
	@if scripts/ensure_packages.sh gtest/gtest.h libgtest-dev; then \
	    $(MAKE) build-asan; \
	    ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    GTEST_FILTER='-$(PROCESS_TESTS)' \
	        ctest --test-dir build/asan/cpp -j $(SANITIZED_AT_ONCE) -R '^test_($(subst $(EMPTY) $(EMPTY),|,$(ASAN_ROOMS)))[.]' --output-on-failure \
	        --output-junit $(RESULTS)/asan.xml --no-tests=error; \
	else \
	    echo; echo "*** THE SANITIZER TESTS WERE SKIPPED: GoogleTest is missing (see above) ***"; echo; \
	    printf '<testsuite><testcase classname="asan" name="all sanitizer tests"><skipped/></testcase></testsuite>' > $(RESULTS)/asan.xml; \
	fi

# The communicator over MPI, between processes that mpirun starts; what MPI itself keeps until its end is no leak of ours.
test-asan-mpi: $(VENV)/.ready
	scripts/ensure_packages.sh gtest/gtest.h libgtest-dev
	cmake -S . -B build/asan $(SANITIZER_ARGS) \
	    -DRAPIDSMPF_SANITIZE=address,undefined > build/asan-configure.log || { cat build/asan-configure.log; exit 1; }
	cmake --build build/asan -j $(JOBS) --target mpi_process mpi_collective_process
	ASAN_OPTIONS=detect_leaks=1:halt_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 UCX_MEM_MMAP_HOOK_MODE=none \
	LSAN_OPTIONS=suppressions=$(ROOT)/cpp/tests/lsan_mpi.supp:print_suppressions=0 \
	    ctest --test-dir build/asan/cpp -j $(JOBS) -R '^mpi_(collective_)?process' --output-on-failure --no-tests=error

# The same for races, where ranks are threads. Without CUDA, whose driver is full of what looks like them; and UCX must not
# patch the allocator that TSan has replaced.
TSAN_ROOMS := core device memory table communicator exchange coll streaming
test-tsan: $(VENV)/.ready
	scripts/ensure_packages.sh gtest/gtest.h libgtest-dev
	@mkdir -p $(RESULTS); rm -rf $(RESULTS)/tsan.xml $(RESULTS)/tsan
	cmake -S . -B build/tsan $(SANITIZER_ARGS) \
	    -DRAPIDSMPF_ENABLE_CUDA=OFF -DRAPIDSMPF_SANITIZE=thread -DRAPIDSMPF_TEST_RESULTS=$(RESULTS)/tsan > build/tsan-configure.log \
	    || { cat build/tsan-configure.log; exit 1; }
	cmake --build build/tsan -j $(JOBS) --target $(TSAN_ROOMS:%=test_%)
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:suppressions=$(ROOT)/cpp/tests/tsan.supp UCX_MEM_EVENTS=n UCX_MEM_MMAP_HOOK_MODE=none GTEST_FILTER='-$(PROCESS_TESTS)' \
	    ctest --test-dir build/tsan/cpp -j $(JOBS) -R '^test_($(subst $(EMPTY) $(EMPTY),|,$(TSAN_ROOMS)))[.]' --output-on-failure \
	    --output-junit $(RESULTS)/tsan.xml --no-tests=error

# Fuzzers of the parsers that read what comes from outside, for clang's libFuzzer, under ASan and UBSan. Only the sources
# that they need are compiled. Packed tables to start from come from the Python package, the other messages from the fuzzers.
LLVM := 19
SECONDS ?= 600
FUZZERS_AT_ONCE ?= $(JOBS)
build-fuzz: $(VENV)/.ready
	@scripts/ensure_packages.sh --program clang++-$(LLVM) clang-$(LLVM)
	@CXX=clang++-$(LLVM) scripts/ensure_packages.sh fuzzer/FuzzedDataProvider.h libclang-rt-$(LLVM)-dev
	@scripts/ensure_packages.sh --program llvm-cov-$(LLVM) llvm-$(LLVM)
	@mkdir -p build
	@cmake -S . -B build/fuzz $(CMAKE_ARGS) -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=clang++-$(LLVM) \
	    "-DCMAKE_CXX_FLAGS_DEBUG=" -DRAPIDSMPF_UNITY=ON -DRAPIDSMPF_ENABLE_CUDA=OFF -DRAPIDSMPF_ENABLE_MPI=OFF \
	    -DRAPIDSMPF_BUILD_FUZZERS=ON > build/fuzz-configure.log || { cat build/fuzz-configure.log; exit 1; }
	cmake --build build/fuzz -j $(JOBS) --target fuzzers

fuzz: build build-fuzz
	$(BIN)/python scripts/fuzz.py build/fuzz --seconds $(SECONDS) --at-once $(FUZZERS_AT_ONCE) --llvm $(LLVM) \
	    --junit $(RESULTS)/fuzz.xml

# As CI runs them.
fuzz-quick: build
	@mkdir -p $(RESULTS); rm -f $(RESULTS)/fuzz.xml
	@if scripts/ensure_packages.sh --program clang++-$(LLVM) clang-$(LLVM); then \
	    $(MAKE) build-fuzz && $(MAKE) fuzz SECONDS=20; \
	else \
	    echo; echo "*** THE FUZZERS WERE SKIPPED: clang $(LLVM) is missing (see above) ***"; echo; \
	    printf '<testsuite><testcase classname="fuzz" name="all fuzzers"><skipped/></testcase></testsuite>' > $(RESULTS)/fuzz.xml; \
	fi

# The same tests with a GPU as compute device; those that are about the CPU skip and say so. With two GPUs or more also the
# collectives between processes, a GPU each.
test-gpu: build
	@nvidia-smi -L >/dev/null 2>&1 || { echo "there is no GPU on this machine (nvidia-smi -L finds none)" >&2; exit 1; }
	scripts/ensure_packages.sh gtest/gtest.h libgtest-dev
	@mkdir -p $(RESULTS); rm -rf $(RESULTS)/gpu.xml $(RESULTS)/gpu
	@$(call programs,tests,$(TESTS)/gpu)
	RAPIDSMPF_DEVICE=cuda ctest --test-dir build/wheel/cpp -j 4 --output-on-failure --output-junit $(RESULTS)/gpu.xml --no-tests=error
	RAPIDSMPF_DEVICE=cuda $(BIN)/python -m pytest -q python/tests/rapidsmpf --junitxml=$(RESULTS)/gpu-pytest.xml

# More schedules of the collectives than the tests take time for.
PROGRAMS ?= 20000
test-long: build
	scripts/ensure_packages.sh gtest/gtest.h libgtest-dev
	@$(call programs,test_coll test_streaming,$(TESTS)/ctest)
	RAPIDSMPF_TEST_PROGRAMS=$(PROGRAMS) build/wheel/cpp/test_coll --gtest_filter='*Programs*'
	RAPIDSMPF_NETWORKS=$(PROGRAMS) build/wheel/cpp/test_streaming --gtest_filter='NetworkModel*'
	PYTHONPATH=python/tests $(BIN)/python -m streaming_model --networks $(PROGRAMS)

# The collectives between processes, over UCXX and MPI, again and again with more processes at once than there are cores.
REPEATS ?= 50
test-repeat: build
	scripts/ensure_packages.sh gtest/gtest.h libgtest-dev
	@$(call programs,tests,$(TESTS)/ctest)
	ctest --test-dir build/wheel/cpp -j $(TESTS_AT_ONCE) -R '(collective|peer_memory)_process' \
	    --repeat until-fail:$(REPEATS) --output-on-failure --no-tests=error

# Sinks that SIGKILL ends, at more changes than the tests take time for.
KILLS ?= 40
test-kills: build
	RIVERRUN_TEST_KILLS=$(KILLS) $(BIN)/python -m pytest -q python/tests/engine/test_killed_processes.py

# Polars' own tests with every lazy collect on 2 ranks, as users run it and with every limit 0. The tests are no part of
# this repository: POLARS_TESTS names an archive or a folder of py-polars/tests of Polars' repository.
test-polars-suite: build
	@$(BIN)/python scripts/requirements.py polars-suite > $(VENV)/requirements-polars-suite.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r $(VENV)/requirements-polars-suite.txt
	@status=0; for mode in "" --tiny; do \
	    $(BIN)/python scripts/polars_suite.py $$mode --fallbacks || status=1; \
	done; exit $$status

# Random queries on ranks of one process against Polars' own answers, on two processes; what differs is printed by cause.
SEEDS ?= 50000
FIRST ?= 0
DEVICE ?= cpu
test-queries: build
	@mkdir -p $(RESULTS)
	PYTHONPATH=python/tests $(BIN)/python -m differential.run --first $(FIRST) --seeds $(SEEDS) --device $(DEVICE) \
	    --log $(RESULTS)/queries.jsonl

# Ranks whose memory has no room for a query: thousands of random queries, and all of PDS-H; a short form is part of the tests.
TINY_SEEDS ?= 3000
test-tiny-blocks: build
	RIVERRUN_TINY_SEEDS=$(TINY_SEEDS) RIVERRUN_TINY_ALL=1 $(BIN)/python -m pytest -q -o timeout=0 python/tests/execute/test_tiny_blocks.py

lint: $(VENV)/.ready
	@$(BIN)/python scripts/lint.py --junit $(RESULTS)/lint.xml

format: $(VENV)/.ready
	$(BIN)/ruff check -q --fix . || true
	$(BIN)/ruff format -q .
	find cpp examples/cpp python/rapidsmpf \( -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' \) \
	    -print0 | xargs -0 $(BIN)/clang-format -i

# A short version of every benchmark; each prints what it finds and writes JSON into build/results. What they are
# compared with (Dask) comes into the virtual environment.
bench: build
	@$(BIN)/python scripts/requirements.py bench > $(VENV)/requirements-bench.txt
	$(BIN)/python -m pip install -q --disable-pip-version-check -r $(VENV)/requirements-bench.txt
	$(BIN)/python -m benchmarks.pdsh --scale $(SCALE) --ranks $(RANKS) --output $(RESULTS)/pdsh.json
	@scripts/ensure_packages.sh benchmark/benchmark.h libbenchmark-dev \
	    || echo "*** SOME C++ BENCHMARKS ARE SKIPPED: Google Benchmark is missing (see above) ***"
	@$(call programs,benchmarks,-DRAPIDSMPF_BUILD_BENCHMARKS=ON)
	$(BIN)/python -m benchmarks.shuffle --quick --output $(RESULTS)/shuffle.json
	@if [ -x build/wheel/cpp/bench_memory_spill ]; then \
	    $(BIN)/python -m benchmarks.spill --mib 1024 --rounds 1 --output $(RESULTS)/spill.json; \
	fi
	@for program in $(filter-out %_memory_spill,$(patsubst cpp/benchmarks/%.cpp,build/wheel/cpp/bench_%,$(wildcard cpp/benchmarks/*.cpp))); do \
	    if [ -x $$program ]; then \
	        $$program --benchmark_min_time=0.05 --benchmark_out_format=json --benchmark_out=$(RESULTS)/$${program##*/}.json; \
	    fi; \
	done

clean:
	rm -rf build $(VENV)/.installed
