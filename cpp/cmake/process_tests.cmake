# Tests that run as several processes, under rrun or under mpirun.

# Of Open MPI: more ranks than cores, as root, without binding each to a core (a rank has several threads). Other
# implementations do not know these and need none of them.
set(mpi_test_environment
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    PRTE_MCA_hwloc_default_binding_policy=none
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_hwloc_base_binding_policy=none
    OMPI_MCA_btl_tcp_if_include=lo)

# rapidsmpf_process_test(<name> [LAUNCHER mpi] SOURCE <files>... ROOMS <rooms>... [SUPPORT <rooms>...] RANKS <n>...)
# Builds the program <name> and runs it once for each number of ranks.
function(rapidsmpf_process_test name)
  cmake_parse_arguments(arg "" "LAUNCHER" "SOURCE;ROOMS;SUPPORT;RANKS" ${ARGN})
  set(objects)
  foreach(room IN LISTS arg_ROOMS)
    get_property(below GLOBAL PROPERTY rapidsmpf_room_${room})
    list(APPEND objects ${below})
  endforeach()
  list(REMOVE_DUPLICATES objects)
  rapidsmpf_test_program(${name} SOURCE ${arg_SOURCE} LINK ${objects} SUPPORT ${arg_SUPPORT})
  add_dependencies(${name} rrun)
  foreach(n IN LISTS arg_RANKS)
    if(arg_LAUNCHER STREQUAL "mpi")
      add_test(NAME ${name}.${n}_ranks COMMAND ${MPIEXEC_EXECUTABLE} -n ${n} $<TARGET_FILE:${name}>)
      set_tests_properties(${name}.${n}_ranks PROPERTIES ENVIRONMENT "${mpi_test_environment}")
    else()
      add_test(NAME ${name}.${n}_ranks COMMAND rrun -n ${n} --tag-output $<TARGET_FILE:${name}>)
    endif()
    set_tests_properties(${name}.${n}_ranks PROPERTIES TIMEOUT 300)
  endforeach()
endfunction()
