# Finds libcudf: that of the Python environment (`pip install libcudf-cu13`). Sets RAPIDSMPF_HAVE_COMPUTE and cudf::cudf, and
# makes libcudf_with_its_needs for programs: libcudf looks for what it needs in its own folder only, so a program brings it
# along (Python's libcudf.load_library() does the same).
find_package(cudf 26.10 CONFIG QUIET)
if(cudf_FOUND)
  set(RAPIDSMPF_HAVE_COMPUTE ON)
  message(STATUS "Operators over libcudf: with libcudf ${cudf_VERSION}")
  add_library(libcudf_with_its_needs INTERFACE)
  target_link_libraries(libcudf_with_its_needs INTERFACE cudf::cudf)
  foreach(prefix IN LISTS CMAKE_PREFIX_PATH)
    file(GLOB needed ${prefix}/lib64/libkvikio.so ${prefix}/lib64/libnvcomp.so.5)
    target_link_libraries(libcudf_with_its_needs INTERFACE ${needed})
  endforeach()
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c "import nvidia; print(*(p + '/cu13/lib' for p in nvidia.__path__), sep=';')"
    OUTPUT_VARIABLE toolkit_folders
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(folder IN LISTS toolkit_folders)
    file(GLOB needed ${folder}/libnvrtc.so.13 ${folder}/libnvJitLink.so.13)
    target_link_libraries(libcudf_with_its_needs INTERFACE ${needed})
  endforeach()
else()
  message(STATUS "Operators over libcudf: not built, no libcudf was found (pip install libcudf-cu13==26.10.*, and build again)")
endif()
