# rapidsmpf_sharded_tests(<test program> [SHARDS <n>] [ENVIRONMENT <VAR=value>...])
#
# Registers a GoogleTest program as a few tests of ctest, each a share of its cases in one process: a process for each of
# a thousand cases would spend more time in the start-up of UCX (it measures the clock) than in the cases. What the
# cases gave is in RAPIDSMPF_TEST_RESULTS/<program>.<i>_of_<n>.xml; scripts/count_tests.py reads it. For one case run the
# program with --gtest_filter.
set(RAPIDSMPF_TEST_RESULTS ${CMAKE_BINARY_DIR}/gtest CACHE PATH "Where the C++ test programs write their results")

function(rapidsmpf_sharded_tests target)
  cmake_parse_arguments(arg "" "SHARDS" "ENVIRONMENT" ${ARGN})
  if(NOT arg_SHARDS)
    set(arg_SHARDS 2)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  foreach(index RANGE ${last})
    math(EXPR number "${index} + 1")
    set(name ${target}.${number}_of_${arg_SHARDS})
    add_test(NAME ${name} COMMAND ${target} --gtest_brief=1 --gtest_output=xml:${RAPIDSMPF_TEST_RESULTS}/${name}.xml)
    set(environment GTEST_TOTAL_SHARDS=${arg_SHARDS} GTEST_SHARD_INDEX=${index} ${arg_ENVIRONMENT})
    set_tests_properties(${name} PROPERTIES TIMEOUT 1200 ENVIRONMENT "${environment}")
  endforeach()
endfunction()
