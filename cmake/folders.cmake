# One library per folder of weft/; the link graph is read from weft/folders.txt.
set(WEFT_FOLDERS_FILE "${CMAKE_SOURCE_DIR}/weft/folders.txt")
set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${WEFT_FOLDERS_FILE}")

# Tests of sanitizer builds have names of their own, so that one ctest run can hold several builds.
set(WEFT_TEST_PREFIX "")
set(WEFT_TEST_LABEL fast)
if(WEFT_SANITIZE MATCHES "address")
  set(WEFT_TEST_PREFIX "asan.")
  set(WEFT_TEST_LABEL sanitized)
elseif(WEFT_SANITIZE MATCHES "thread")
  set(WEFT_TEST_PREFIX "tsan.")
  set(WEFT_TEST_LABEL sanitized)
endif()

# WEFT_USES_folder: everything that the folder may use, transitively.
file(STRINGS "${WEFT_FOLDERS_FILE}" folder_lines REGEX "^[a-z]")
foreach(line IN LISTS folder_lines)
  string(REGEX MATCHALL "[a-z]+" used "${line}")
  list(POP_FRONT used folder)
  set(WEFT_USES_${folder} ${used})
  foreach(other IN LISTS used)
    list(APPEND WEFT_USES_${folder} ${WEFT_USES_${other}})
  endforeach()
  list(REMOVE_DUPLICATES WEFT_USES_${folder})
endforeach()

# weft_library(NAME [TORCH] [PARTS subfolder ...] [PUBLIC lib ...] [PRIVATE lib ...])
# Makes weft_NAME from the sources of the folder and of these subfolders, links the folders that folders.txt allows (those that exist so far),
# and builds its *_test.cpp files into weft_NAME_test.
function(weft_library name)
  cmake_parse_arguments(arg "TORCH" "" "PARTS;PUBLIC;PRIVATE" ${ARGN})
  set(dir "${CMAKE_CURRENT_SOURCE_DIR}/${name}")
  set(source_globs "${dir}/*.cpp")
  set(test_globs "${dir}/*_test.cpp")
  foreach(part IN LISTS arg_PARTS)
    list(APPEND source_globs "${dir}/${part}/*.cpp")
    list(APPEND test_globs "${dir}/${part}/*_test.cpp")
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${source_globs})
  file(GLOB tests CONFIGURE_DEPENDS ${test_globs})
  list(REMOVE_ITEM sources ${tests})

  add_library(weft_${name} STATIC ${sources})
  target_include_directories(weft_${name} PUBLIC "${CMAKE_SOURCE_DIR}")
  target_link_libraries(weft_${name} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  if(NOT name STREQUAL "base")
    target_link_libraries(weft_${name} PUBLIC weft_base)
  endif()

  foreach(used IN LISTS WEFT_USES_${name})
    if(TARGET weft_${used})
      target_link_libraries(weft_${name} PUBLIC weft_${used})
    endif()
  endforeach()

  if(arg_TORCH)
    target_link_libraries(weft_${name} PUBLIC weft::libtorch)
    target_precompile_headers(weft_${name} REUSE_FROM weft_torch_pch)
  endif()
  if(tests)
    weft_test(weft_${name}_test SOURCES ${tests} LINK weft_${name})
    if(arg_TORCH)
      target_precompile_headers(weft_${name}_test REUSE_FROM weft_torch_pch)
    endif()
  endif()
endfunction()

# weft_test(NAME SOURCES ... LINK ...): a GoogleTest program, each of its tests known to ctest. The label is "fast"
# (`ctest -L fast` ends within a minute) or, in a sanitizer build, "sanitized".
function(weft_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE WEFT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE ${WEFT_GLUE_OPTIONS})
  gtest_discover_tests(${name} TEST_PREFIX "${WEFT_TEST_PREFIX}" DISCOVERY_TIMEOUT 60
                       PROPERTIES LABELS ${WEFT_TEST_LABEL} TIMEOUT 300)
endfunction()
