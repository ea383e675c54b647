# Well-kept libraries for everything lockstep does not exist for. All are Debian packages.
include_guard(GLOBAL)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)

# libsodium has no CMake package.
find_library(LOCKSTEP_SODIUM_LIBRARY sodium REQUIRED)
find_path(LOCKSTEP_SODIUM_INCLUDE sodium.h REQUIRED)
add_library(lockstep::sodium UNKNOWN IMPORTED)
set_target_properties(lockstep::sodium PROPERTIES
  IMPORTED_LOCATION ${LOCKSTEP_SODIUM_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_SODIUM_INCLUDE})

# Compressed data files. zstd has no CMake package everywhere.
find_package(ZLIB REQUIRED)
find_library(LOCKSTEP_ZSTD_LIBRARY zstd REQUIRED)
find_path(LOCKSTEP_ZSTD_INCLUDE zstd.h REQUIRED)
add_library(lockstep::zstd UNKNOWN IMPORTED)
set_target_properties(lockstep::zstd PROPERTIES
  IMPORTED_LOCATION ${LOCKSTEP_ZSTD_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_ZSTD_INCLUDE})

# Programs that compute allocate by it; see apps/worker.cpp.
if(LOCKSTEP_WORKER)
  find_library(LOCKSTEP_JEMALLOC_LIBRARY jemalloc REQUIRED)
  find_path(LOCKSTEP_JEMALLOC_INCLUDE jemalloc/jemalloc.h REQUIRED)
  add_library(lockstep::jemalloc UNKNOWN IMPORTED)
  set_target_properties(lockstep::jemalloc PROPERTIES
    IMPORTED_LOCATION ${LOCKSTEP_JEMALLOC_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${LOCKSTEP_JEMALLOC_INCLUDE})
endif()

if(LOCKSTEP_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

# The torch wheel bundles a newer fmt in its include folder. A link to the system's fmt, searched
# before any SYSTEM folder, keeps every file of ours on one version.
# One place for all build folders, so that ccache knows a file again.
set(LOCKSTEP_FIRST_INCLUDE ${CMAKE_SOURCE_DIR}/.deps/first_include)
file(MAKE_DIRECTORY ${LOCKSTEP_FIRST_INCLUDE})
get_target_property(_fmt_include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
if(NOT _fmt_include)
  set(_fmt_include /usr/include)
endif()
file(CREATE_LINK ${_fmt_include}/fmt ${LOCKSTEP_FIRST_INCLUDE}/fmt SYMBOLIC)
target_include_directories(lockstep_policy BEFORE INTERFACE ${LOCKSTEP_FIRST_INCLUDE})

# MKL's bit-stable mode for tests; the launcher sets the same for workers (DESIGN: hazards).
file(STRINGS /proc/cpuinfo _avx512 REGEX "avx512f" LIMIT_COUNT 1)
if(_avx512)
  set(LOCKSTEP_MKL_CBWR "AVX512,STRICT")
else()
  set(LOCKSTEP_MKL_CBWR "AVX2,STRICT")
endif()
