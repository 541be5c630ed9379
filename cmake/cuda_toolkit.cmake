# What the CUDA toolkit and the graphics card of this machine can do.

# Sets `reason` to a sentence why `nvcc` cannot build the plug-in, or to nothing: an old toolkit, or
# one that does not know the C++ compiler, must not keep anybody from building the rest.
function(longhand_check_cuda nvcc reason)
  if(NOT nvcc)
    set(${reason} "there is no nvcc." PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "release ([0-9]+)\\.([0-9]+)")
    set(${reason} "${nvcc} does not say its version." PARENT_SCOPE)
    return()
  endif()
  if(CMAKE_MATCH_1 LESS 12)
    set(${reason} "${nvcc} is of CUDA ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}, and Longhand needs 12 or newer."
        PARENT_SCOPE)
    return()
  endif()
  set(probe "${CMAKE_BINARY_DIR}/CMakeFiles/longhand_cuda_probe.cu")
  file(WRITE "${probe}" "#include <vector>\n__global__ void probe() {}\n")
  execute_process(COMMAND "${nvcc}" -std=c++20 -c "${probe}" -o "${probe}.o"
                  RESULT_VARIABLE result OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    string(REGEX MATCH "[^\n]*error[^\n]*" line "${text}")
    set(${reason} "${nvcc} cannot compile: ${line}" PARENT_SCOPE)
    return()
  endif()
  set(${reason} "" PARENT_SCOPE)
endfunction()

# The compute capabilities of this machine's cards ("86;89"), as their driver tells; 86 where there
# is none that Longhand can use.
function(longhand_card_architectures result)
  find_program(LONGHAND_NVIDIA_SMI nvidia-smi PATHS /usr/lib/wsl/lib)
  set(found "")
  if(LONGHAND_NVIDIA_SMI)
    execute_process(COMMAND "${LONGHAND_NVIDIA_SMI}" --query-gpu=compute_cap --format=csv,noheader
                    OUTPUT_VARIABLE text ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${text}")
    foreach(capability IN LISTS capabilities)
      string(REPLACE "." "" architecture "${capability}")
      if(architecture GREATER_EQUAL 75)
        list(APPEND found ${architecture})
      endif()
    endforeach()
    list(REMOVE_DUPLICATES found)
  endif()
  if(NOT found)
    set(found 86)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()
