# What every target of the project shares: language level, warnings, sanitizers, build speed.
# The default build sets no -march: SIMD files get their own flags, and are chosen at run time.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

find_program(LONGHAND_CCACHE ccache)
if(LONGHAND_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LONGHAND_CCACHE}")
endif()
find_program(LONGHAND_MOLD mold)
if(LONGHAND_MOLD AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  add_link_options(-fuse-ld=mold)
endif()

if(LONGHAND_SANITIZE)
  add_compile_options(-fsanitize=${LONGHAND_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${LONGHAND_SANITIZE})
endif()

# Interface target: our own code links it, third-party code does not.
add_library(longhand_options INTERFACE)
target_include_directories(longhand_options INTERFACE "${CMAKE_SOURCE_DIR}")
# Warnings are errors in the presets dev, asan, tsan and in CI (CMAKE_COMPILE_WARNING_AS_ERROR): a
# compiler of another version that warns of more must not keep a user from the program.
set(LONGHAND_WARNINGS
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wold-style-cast
  -Wcast-qual -Wcast-align -Wundef -Wextra-semi -Wvla -Wimplicit-fallthrough
  $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
  $<$<CXX_COMPILER_ID:GNU>:-Wlogical-op>
  # GCC 12 takes std::string::insert and replace for overlapping copies at -O2 (GCC bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# nvcc has warnings of its own (kernels/cuda).
target_compile_options(longhand_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${LONGHAND_WARNINGS}>")
target_compile_definitions(longhand_options INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
