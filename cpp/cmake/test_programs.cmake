# Test programs: one for each room, and those that run as several processes (process_tests.cmake). The target `tests` builds
# them all. Where pip builds, `all` does not: there they stand on the same objects as the library of the wheel, and are
# compiled without optimisation, which they are not worth.
set(RAPIDSMPF_TEST_RESULTS ${CMAKE_BINARY_DIR}/gtest CACHE PATH "Where the C++ test programs write their results")
add_custom_target(tests)

# Of everything compiled for tests.
function(rapidsmpf_compile_for_tests target)
  target_compile_options(${target} PRIVATE ${RAPIDSMPF_WARNINGS} $<$<CONFIG:Release>:-O0>)
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/tests)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ${from_pip})
  rapidsmpf_unity(${target})
endfunction()

# rapidsmpf_test_support(<room> <rooms>...)
# What the tests of a room share, and other test programs may link: tests/<room>/*_support.cpp -> test_support_<room>.
function(rapidsmpf_test_support room)
  file(GLOB sources CONFIGURE_DEPENDS tests/${room}/*_support.cpp)
  if(sources)
    add_library(test_support_${room} OBJECT ${sources})
    rapidsmpf_compile_for_tests(test_support_${room})
    target_link_libraries(test_support_${room} PRIVATE ${ARGN} GTest::gtest)
  endif()
endfunction()

# rapidsmpf_test_program(<name> SOURCE <files>... LINK <targets>... [SUPPORT <rooms>...])
function(rapidsmpf_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCE;LINK;SUPPORT" ${ARGN})
  add_executable(${name} ${arg_SOURCE})
  rapidsmpf_compile_for_tests(${name})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest)
  foreach(room IN LISTS arg_SUPPORT)
    if(TARGET test_support_${room})
      target_link_libraries(${name} PRIVATE test_support_${room})
    endif()
  endforeach()
  if(RAPIDSMPF_ENABLE_CUDA)
    set_target_properties(${name} PROPERTIES CUDA_RUNTIME_LIBRARY Static)
  endif()
  add_dependencies(tests ${name})
endfunction()

# rapidsmpf_sharded_tests(<test program> [SHARDS <n>] [ENVIRONMENT <VAR=value>...])
#
# Registers a GoogleTest program as a few tests of ctest, each a share of its cases in one process: a process for each of
# a thousand cases would spend more time in the start-up of UCX (it measures the clock) than in the cases. What the
# cases gave is in RAPIDSMPF_TEST_RESULTS/<program>.<i>_of_<n>.xml; scripts/count_tests.py reads it. For one case run the
# program with --gtest_filter.
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
