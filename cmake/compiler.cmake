# Language level, warnings, sanitizers and ccache, for every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_COMPILE_OPTIONS_PIE "-fPIC")  # programs too, so that they can share the libraries' precompiled header
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

add_compile_options(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
                    -Wno-missing-field-initializers -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 and 13 see phantom uses inside std::variant, std::string, std::regex and std::vector at -O2.
  add_compile_options(-Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow
                      -Wno-stringop-overread)
endif()

# One C++ library in the process: LibTorch brings the shared one, and a compiler that is set up to link it statically (as
# on some GPU images) would add a second copy, which crashes at exit.
add_link_options("LINKER:--push-state,--no-as-needed,-l:libstdc++.so.6,--pop-state")

if(WEFT_SANITIZE)
  add_compile_options(-fsanitize=${WEFT_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${WEFT_SANITIZE})
  if(WEFT_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# Tests and verbs take longer to compile than to run: their work is done in the libraries. (Not less than -O2 where the
# precompiled header is used: it is of no use to compilers of another level.)
set(WEFT_GLUE_OPTIONS -O2)
if(WEFT_SANITIZE AND NOT WEFT_TORCH)
  set(WEFT_GLUE_OPTIONS -O0)
endif()

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE)
  # Precompiled headers are cached only with these relaxations; ninja still rebuilds on any header change.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${WEFT_CCACHE})
endif()
