# Imported target lockstep::torch_cpu from the pip wheel of torch, without its stock CMake files
# (those of a CUDA wheel ask for a CUDA toolkit that a CPU build does not need).
include_guard(GLOBAL)

if(NOT LOCKSTEP_TORCH_ROOT)
  set(LOCKSTEP_TORCH_ROOT ${CMAKE_SOURCE_DIR}/.deps/python)
endif()
set(_torch ${LOCKSTEP_TORCH_ROOT}/torch)
if(NOT EXISTS ${_torch}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "No libtorch_cpu.so under ${_torch}/lib. Run scripts/setup (it installs the wheel into .deps/python), "
    "or pass -DLOCKSTEP_TORCH_ROOT=<site-packages that holds torch>.")
endif()
file(STRINGS ${_torch}/version.py _version REGEX "^__version__ = ")
string(REGEX REPLACE ".*'([^']+)'.*" "\\1" LOCKSTEP_TORCH_VERSION "${_version}")
if(LOCKSTEP_TORCH_VERSION VERSION_LESS 2.11 OR NOT LOCKSTEP_TORCH_VERSION VERSION_LESS 2.16)
  message(FATAL_ERROR "torch ${LOCKSTEP_TORCH_VERSION} found in ${_torch}; lockstep builds against 2.11 to 2.15.")
endif()

add_library(lockstep_torch_cpu INTERFACE)
add_library(lockstep::torch_cpu ALIAS lockstep_torch_cpu)
target_include_directories(lockstep_torch_cpu SYSTEM INTERFACE
  ${_torch}/include ${_torch}/include/torch/csrc/api/include)
target_compile_definitions(lockstep_torch_cpu INTERFACE USE_DISTRIBUTED USE_C10D_GLOO
  LOCKSTEP_TORCH_VERSION="${LOCKSTEP_TORCH_VERSION}")
# --no-as-needed: kernels register themselves from static initialisers, nothing references them.
target_link_options(lockstep_torch_cpu INTERFACE -Wl,--no-as-needed -Wl,--allow-shlib-undefined)
target_link_libraries(lockstep_torch_cpu INTERFACE ${_torch}/lib/libtorch_cpu.so ${_torch}/lib/libc10.so)
set(CMAKE_BUILD_RPATH ${_torch}/lib)
set(LOCKSTEP_TORCH_FOLDER ${_torch})
