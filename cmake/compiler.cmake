# Language level, warnings, sanitizers and ccache, for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -Wno-missing-field-initializers)
# Errors with the compilers that Weft is built by; what a later one warns about stops nobody's build.
set(newest_known_GNU 14)
set(newest_known_Clang 14)
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS_EQUAL "${newest_known_${CMAKE_CXX_COMPILER_ID}}.999")
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 see phantom uses inside std::variant, std::string, std::regex and std::vector at -O2.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                      -Wno-stringop-overread -Wno-free-nonheap-object)
endif()

# One C++ library in the process: LibTorch brings the shared one, and a compiler that is set up to link it statically (as
# on some GPU images) would add a second copy, which crashes at exit.
add_link_options("LINKER:--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state")

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES "undefined")
    # A null or dangling pointer faults under AddressSanitizer anyway; checking every access for it again doubles the code.
    # Folders that read raw bytes are checked for those, too (WEFT_RAW_OPTIONS).
    add_compile_options(-fno-sanitize-recover=undefined -fno-sanitize=null,alignment,object-size,vptr)
  endif()
endif()

# Loops over numbers want -O3 (folders that are HOT); tests and verbs take longer to compile than to run.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(WEFT_HOT_OPTIONS -O3)
set(WEFT_GLUE_OPTIONS -O1)
set(WEFT_TEST_OPTIONS -O1)
if(WEFT_SANITIZE)
  set(WEFT_HOT_OPTIONS "")
  set(WEFT_GLUE_OPTIONS "")
  set(WEFT_TEST_OPTIONS "")
endif()
if(WEFT_SANITIZE MATCHES "undefined")
  set(WEFT_RAW_OPTIONS -fsanitize=null,alignment,object-size)
  list(APPEND WEFT_TEST_OPTIONS -fno-sanitize=undefined)  # what is tested is production code
endif()

# Several sources to a translation unit: headers are read, and templates made, once for all of them.
option(WEFT_UNITY "Compile several sources at once (docs/design/build.md)" ON)
set(WEFT_UNITY_FILES 8 CACHE STRING "With WEFT_UNITY: the most sources of a translation unit")

# A faster linker than the default where there is one.
find_program(WEFT_MOLD mold)
find_program(WEFT_LLD ld.lld)
if(WEFT_MOLD AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.1))
  add_link_options(-fuse-ld=mold)
elseif(WEFT_LLD)
  add_link_options(-fuse-ld=lld)
endif()

# ccache finds a file's object again in another clone: paths below the project are hashed relative to it, and debug
# information names them so.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}=.")
find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}" CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1
      CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime ${WEFT_CCACHE})
endif()
