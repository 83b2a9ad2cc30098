# Unity builds: a room's sources, and a test program's, are compiled several at a time, for a file spends more than half of
# its time on headers that its neighbours read too. A build of everything takes half as long; one file that changed takes a
# few times as long as alone. So it is on where everything is compiled: by pip, and in builds with sanitizers (Makefile).
#
# What it asks of sources: what they put into anonymous namespaces has names of its own within a room, and within the tests
# of a room. The compiler says where not ("redefinition of"); rename it, share it, or name the file here.
option(RAPIDSMPF_UNITY "Compile several sources at a time: faster when everything is compiled" ${from_pip})
set(compiled_alone
    src/core/option_table.cpp
    src/device/shared_memory.cpp
    src/device/stream_copy.cpp
    src/exchange/peer_memory.cpp
    src/memory/disk/disk_file.cpp
    src/memory/disk/file_system.cpp
    src/memory/resources/memory_profile.cpp
    tests/bootstrap/by_hand_failure_test.cpp
    tests/bootstrap/coordinator_fuzz_test.cpp
    tests/bootstrap/rrun_process_test.cpp
    tests/device/shared_memory_test.cpp
    tests/exchange/peer_memory_test.cpp
    tests/exchange/protocol_test.cpp
    tests/memory/buffer_resource_test.cpp
    tests/memory/disk_space_test.cpp
    tests/memory/resource_adaptor_test.cpp
    tests/memory/spillable_buffer_test.cpp
    tests/memory/spillable_parts_test.cpp
    tests/table/table_stream_test.cpp
    tools/rrun/process.cpp)
set_source_files_properties(${compiled_alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# rapidsmpf_unity(<target>)
function(rapidsmpf_unity target)
  if(NOT RAPIDSMPF_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Of classes with members from an anonymous namespace: g++ takes a source that another includes for a header.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()
