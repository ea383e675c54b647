# The one Rust static library (tokenizers and chat templates) and its C header.
# Cargo builds in a folder that all build folders share, as its 80 crates take two minutes; each build folder then
# takes a copy, whose time stamp also tells ninja that there is nothing to do.
include_guard(GLOBAL)
find_program(CARGO_PROGRAM cargo HINTS $ENV{HOME}/.cargo/bin REQUIRED)
set(LOCKSTEP_RUST_TARGET_DIR ${CMAKE_SOURCE_DIR}/.deps/cargo-target CACHE PATH "Where cargo builds")
set(_crate ${CMAKE_SOURCE_DIR}/rust/bridge)
set(_bridge ${CMAKE_BINARY_DIR}/rust/liblockstep_bridge.a)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/rust)
file(GLOB _bridge_sources CONFIGURE_DEPENDS ${_crate}/src/*.rs)
add_custom_command(OUTPUT ${_bridge}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${LOCKSTEP_RUST_TARGET_DIR}
          ${CARGO_PROGRAM} build --release --locked --quiet --manifest-path ${_crate}/Cargo.toml
  COMMAND ${CMAKE_COMMAND} -E copy ${LOCKSTEP_RUST_TARGET_DIR}/release/liblockstep_bridge.a ${_bridge}
  COMMAND ${CMAKE_COMMAND} -E touch ${_bridge}
  DEPENDS ${_bridge_sources} ${_crate}/Cargo.toml ${_crate}/Cargo.lock
  COMMENT "cargo build: the bridge to tokenizers and minijinja" VERBATIM)
add_custom_target(lockstep_rust_build DEPENDS ${_bridge})
add_library(lockstep_bridge STATIC IMPORTED GLOBAL)
set_target_properties(lockstep_bridge PROPERTIES IMPORTED_LOCATION ${_bridge})
add_dependencies(lockstep_bridge lockstep_rust_build)
target_include_directories(lockstep_bridge INTERFACE ${_crate}/include)
target_link_libraries(lockstep_bridge INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)
target_link_options(lockstep_bridge INTERFACE -Wl,--gc-sections)
