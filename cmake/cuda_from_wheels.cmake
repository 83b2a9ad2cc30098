# Uses the machine's CUDA toolkit (>= 13.0) when there is one, else assembles one from the PyPI wheels
# nvidia-cuda-nvcc, -crt, -nvvm, -runtime and -cccl. nvcc 13.0's profile wants <bin>/../lib64 while the
# wheels have lib, so a small tree of links is made. Include before enable_language(CUDA).
find_package(CUDAToolkit 13.0 QUIET)
if(NOT CUDAToolkit_NVCC_EXECUTABLE)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -c
            "import nvidia, os; print(next(p for p in nvidia.__path__ if os.path.exists(p + '/cu13/bin/nvcc')) + '/cu13')"
    OUTPUT_VARIABLE src
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(ctk ${CMAKE_BINARY_DIR}/ctk)
  file(MAKE_DIRECTORY ${ctk}/bin ${ctk}/lib64/stubs)
  file(GLOB fs RELATIVE ${src} ${src}/bin/* ${src}/lib/lib*)
  foreach(f IN LISTS fs)
    string(REGEX REPLACE "^lib/" "lib64/" d ${f})
    file(CREATE_LINK ${src}/${f} ${ctk}/${d} SYMBOLIC)
  endforeach()
  file(CREATE_LINK ${src}/lib/libcudart.so.13 ${ctk}/lib64/libcudart.so SYMBOLIC)
  file(CREATE_LINK ${ctk}/lib64 ${ctk}/lib SYMBOLIC)
  foreach(d include nvvm)
    file(CREATE_LINK ${src}/${d} ${ctk}/${d} SYMBOLIC)
  endforeach()
  set(CUDAToolkit_ROOT ${ctk} CACHE PATH "" FORCE)
  set(CMAKE_CUDA_COMPILER ${ctk}/bin/nvcc CACHE FILEPATH "" FORCE)
  foreach(v CUDAToolkit_BIN_DIR CUDAToolkit_NVCC_EXECUTABLE CUDA_CUDART)
    unset(${v} CACHE)
  endforeach()
endif()
