# How every target of the project is compiled and linked, and the functions that declare one.
include_guard(GLOBAL)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g -D_GLIBCXX_ASSERTIONS")
# For tests under sanitizers, which mostly wait: GCC compiles instrumented code four times as fast as with -O1 -g.
set(CMAKE_CXX_FLAGS_SANITIZE "-O0 -g1 -D_GLIBCXX_ASSERTIONS")

# Files of a target are compiled several at once, as most of a file's time goes into the headers it reads. So a name that
# is local to a file may not appear in two files of a folder. CMake leaves out sources with flags of their own.
if(NOT DEFINED CMAKE_UNITY_BUILD)
  set(CMAKE_UNITY_BUILD ON)
endif()
if(NOT DEFINED CMAKE_UNITY_BUILD_BATCH_SIZE)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 16)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # NOHASHDIR: the same file in another build folder is a hit (debug information then names the first one).
  set(CMAKE_C_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_NOHASHDIR=1 ${CCACHE_PROGRAM})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_C_COMPILER_LAUNCHER})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_library(lockstep_policy INTERFACE)
# -ffp-contract=off: a fused multiply-add appears only where the source says std::fma, so a
# result does not depend on what the optimiser found.
target_compile_options(lockstep_policy INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -Woverloaded-virtual -Wcast-align -Wnull-dereference -ffp-contract=off -fvisibility=hidden)
if(LOCKSTEP_WERROR)
  target_compile_options(lockstep_policy INTERFACE -Werror)
endif()
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_policy INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lockstep_policy INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  # A null pointer ends in a fault that the address sanitizer reports; object-size sees nothing without optimisation, and
  # vptr nothing here. Without them a fifth less is compiled.
  if(LOCKSTEP_SANITIZE MATCHES "undefined")
    target_compile_options(lockstep_policy INTERFACE -fno-sanitize=null,vptr,object-size)
    # Checks of each address are another half of what is compiled; scripts/fuzz, which builds Debug, has them.
    if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
      target_compile_options(lockstep_policy INTERFACE -fno-sanitize=alignment,pointer-overflow)
    endif()
  endif()
  # Less for a target that says so: its property is written after the sanitizers.
  target_compile_options(lockstep_policy INTERFACE $<TARGET_PROPERTY:LOCKSTEP_WITHOUT_SANITIZERS>)
  # GCC 12 sees uninitialised members and null pointers in instrumented standard library code.
  target_compile_options(lockstep_policy INTERFACE -Wno-maybe-uninitialized -Wno-null-dereference)
endif()

# lockstep_library(FOLDER SOURCES a.cpp ... [USES folder ...] [LINKS target ...] [TORCH])
# One static library per folder of src/lockstep. USES names the folders it may include; the layer
# test (tests/layers) holds the includes against cmake/layers.txt. TORCH: below the libtorch line.
function(lockstep_library folder)
  cmake_parse_arguments(ARG "TORCH" "" "SOURCES;USES;LINKS" ${ARGN})
  add_library(lockstep_${folder} STATIC ${ARG_SOURCES})
  target_include_directories(lockstep_${folder} PUBLIC ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(lockstep_${folder} PRIVATE lockstep_policy)
  foreach(used ${ARG_USES})
    target_link_libraries(lockstep_${folder} PUBLIC lockstep_${used})
  endforeach()
  target_link_libraries(lockstep_${folder} PUBLIC ${ARG_LINKS})
  if(ARG_TORCH)
    target_link_libraries(lockstep_${folder} PUBLIC lockstep::torch_cpu)
    target_compile_definitions(lockstep_${folder} PRIVATE AT_PER_OPERATOR_HEADERS)
  endif()
endfunction()

# lockstep_test(NAME SOURCES a.cpp ... LINKS target ... [KIND unit|ranks|procs|golden|cluster]
#               [BUDGET slice|launcher|trainer|daily|speed] [TIMEOUT s] [TORCH] [SHARED])
# One executable per tests/ folder; each GoogleTest case becomes a ctest case.
# Tests find their data under LOCKSTEP_TEST_DATA (tests/data) and scratch space under TMPDIR.
# SHARED: the test reads files that must not be copied, below the folder that the environment variable LOCKSTEP_SHARED
# names; scripts/test leaves it out, and says so, where the variable is not set.
function(lockstep_test name)
  cmake_parse_arguments(ARG "TORCH;SHARED" "KIND;BUDGET;TIMEOUT" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_KIND)
    set(ARG_KIND unit)
  endif()
  if(NOT ARG_BUDGET)
    set(ARG_BUDGET slice)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE lockstep_policy ${ARG_LINKS} GTest::gtest_main)
  # What a test computes, it asserts; checks of undefined behaviour would make its code a third slower to compile.
  if(CMAKE_BUILD_TYPE STREQUAL "Sanitize")
    set_property(TARGET ${name} PROPERTY LOCKSTEP_WITHOUT_SANITIZERS -fno-sanitize=undefined)
  endif()
  target_compile_definitions(${name} PRIVATE
    LOCKSTEP_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" LOCKSTEP_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  if(ARG_TORCH)
    target_link_libraries(${name} PRIVATE lockstep::torch_cpu)
    target_compile_definitions(${name} PRIVATE AT_PER_OPERATOR_HEADERS)
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_PREFIX "${name}.")
  # gtest_discover_tests cuts properties that are lists at their semicolons, so they are set by a script that ctest reads
  # after the one that lists the tests.
  set(labels ${ARG_KIND} ${ARG_BUDGET})
  if(ARG_SHARED)
    list(APPEND labels shared)
  endif()
  set(properties ${CMAKE_CURRENT_BINARY_DIR}/${name}_properties.cmake)
  file(WRITE ${properties} "if(${name}_TESTS)
  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${labels}\" TIMEOUT ${ARG_TIMEOUT}
    ENVIRONMENT \"OMP_NUM_THREADS=1;MKL_NUM_THREADS=1;MKL_CBWR=${LOCKSTEP_MKL_CBWR}\")
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${properties})
endfunction()
