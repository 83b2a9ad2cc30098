# Fuzzers of the parsers that read what comes from outside (fuzz/<parser>_fuzzer.cpp), for libFuzzer, which clang alone has.
# Only the sources that the parsers need are compiled. The target `fuzzers` builds them; scripts/fuzz.py runs them.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "The fuzzers need clang: -DCMAKE_CXX_COMPILER=clang++-19 (Debian: clang-19, libclang-rt-19-dev)")
endif()
# The lines that a run reaches are counted, too: a fuzzer that does not get into its parser says nothing of it.
set(instruments -O1 -g1 -D_GLIBCXX_ASSERTIONS -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
                -fprofile-instr-generate -fcoverage-mapping)

add_custom_target(fuzzers)
add_library(fuzzer_main OBJECT fuzz/fuzzer_main.cpp)
set(fuzzer_list "")
set(fuzzed_sources "")

function(rapidsmpf_instrument target)
  target_compile_options(${target} PRIVATE ${RAPIDSMPF_WARNINGS} ${instruments} -fsanitize=fuzzer-no-link)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE rapidsmpf_base)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON CXX_SCAN_FOR_MODULES OFF)
endfunction()
rapidsmpf_instrument(fuzzer_main)

# The parsers and what they rest on, compiled once; each fuzzer takes what it needs.
add_library(fuzzed STATIC)
rapidsmpf_instrument(fuzzed)
rapidsmpf_unity(fuzzed)

# rapidsmpf_fuzzer(<parser> PARSES <sources>... [NEEDS <sources>...])
# PARSES: the sources whose lines its inputs have to reach. Sources are those of src/.
function(rapidsmpf_fuzzer parser)
  cmake_parse_arguments(arg "" "" "PARSES;NEEDS" ${ARGN})
  set(name ${parser}_fuzzer)
  list(TRANSFORM arg_PARSES PREPEND src/)
  list(TRANSFORM arg_NEEDS PREPEND src/)
  set(sources ${fuzzed_sources} ${arg_PARSES} ${arg_NEEDS})
  list(REMOVE_DUPLICATES sources)
  set(fuzzed_sources "${sources}" PARENT_SCOPE)
  add_executable(${name} fuzz/${name}.cpp $<TARGET_OBJECTS:fuzzer_main>)
  rapidsmpf_instrument(${name})
  target_link_libraries(${name} PRIVATE fuzzed)
  target_link_options(${name} PRIVATE ${instruments} -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzzers)
  add_dependencies(fuzzers ${name})
  list(JOIN arg_PARSES " " parses)
  set(fuzzer_list "${fuzzer_list}${parser} ${parses}\n" PARENT_SCOPE)
endfunction()

rapidsmpf_fuzzer(
  coordinator_frames
  PARSES bootstrap/protocol.cpp bootstrap/node_protocol.cpp core/token.cpp
  NEEDS core/error.cpp)
rapidsmpf_fuzzer(
  coordinator_server
  PARSES bootstrap/server.cpp bootstrap/server_sessions.cpp
  NEEDS bootstrap/node_protocol.cpp bootstrap/protocol.cpp bootstrap/server_liveness.cpp bootstrap/socket.cpp
        core/config.cpp core/error.cpp core/file_descriptor.cpp core/host_name.cpp core/option_table.cpp
        core/token.cpp)
rapidsmpf_fuzzer(
  exchange_messages
  PARSES exchange/announced_frame.cpp exchange/bundle_listing.cpp exchange/peer_offer.cpp exchange/wire.cpp
  NEEDS core/error.cpp exchange/receive_budget.cpp)
rapidsmpf_fuzzer(
  joining
  PARSES communicator/ucxx_address.cpp communicator/ucxx_control.cpp
  NEEDS core/checksum.cpp core/error.cpp core/token.cpp)
rapidsmpf_fuzzer(
  packed_table
  PARSES table/arrow/arrow_type.cpp table/arrow/schema_serialization.cpp table/narrow/narrow_types.cpp
         table/narrow/wide_writer.cpp table/packed/packed_format.cpp table/packed/validate.cpp
  NEEDS core/checksum.cpp core/error.cpp table/arrow/schema.cpp table/arrow/schema_interface.cpp
        table/arrow/table.cpp table/arrow/table_export.cpp table/arrow/table_stream.cpp
        table/gpu/device_table_without_cuda.cpp table/host/hash.cpp table/packed/packed_layout.cpp)
rapidsmpf_fuzzer(
  option_texts
  PARSES core/config.cpp core/option_table.cpp
  NEEDS bootstrap/slurm.cpp bootstrap/protocol.cpp bootstrap/socket.cpp core/error.cpp core/file_descriptor.cpp
        core/host_name.cpp core/token.cpp topology/cpus.cpp)
rapidsmpf_fuzzer(
  statistics
  PARSES core/statistics_snapshot.cpp
  NEEDS core/config.cpp core/error.cpp)
rapidsmpf_fuzzer(parquet_footer PARSES parquet/column_facts.cpp parquet/footer_parser.cpp NEEDS core/error.cpp)
rapidsmpf_fuzzer(parquet_pages PARSES pages/decompress.cpp pages/number_strings.cpp pages/code_strings.cpp pages/decode_values.cpp NEEDS core/error.cpp)

# One with an overflow on purpose, in itself and in no parser: it has to be found.
rapidsmpf_fuzzer(planted_overflow NEEDS core/error.cpp)

list(SORT fuzzed_sources)
target_sources(fuzzed PRIVATE ${fuzzed_sources})
file(WRITE ${CMAKE_BINARY_DIR}/fuzzers.txt "${fuzzer_list}")
