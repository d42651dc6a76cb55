# GoogleTest programs, one ctest test for every suite in them. They are built by the target weft_tests, not by default.
#
# The torch-free half is tested with sanitizers, which find all that an optimised build would and more. In the optimised
# build the same tests are left to weft_core_tests, but for folders whose code depends on optimisation or on timing (HOT),
# and for what runs the program itself.
add_custom_target(weft_tests)
add_custom_target(weft_core_tests)

# Tests of sanitizer builds have names of their own, so that one ctest run can hold several builds.
set(WEFT_TEST_PREFIX "")
set(WEFT_TEST_LABEL release)
if(WEFT_SANITIZE MATCHES "address")
  set(WEFT_TEST_PREFIX "asan.")
  set(WEFT_TEST_LABEL sanitized)
elseif(WEFT_SANITIZE MATCHES "thread")
  set(WEFT_TEST_PREFIX "tsan.")
  set(WEFT_TEST_LABEL sanitized)
endif()

# What every test program holds. source_tree.cpp is the only file that knows where the source tree lies: ccache finds all
# others again in another clone.
set(support "${CMAKE_SOURCE_DIR}/tests/support")
add_library(weft_support_objects OBJECT EXCLUDE_FROM_ALL "${support}/source_tree.cpp" "${support}/processor.cpp")
set_source_files_properties("${support}/source_tree.cpp" PROPERTIES COMPILE_DEFINITIONS
                            "WEFT_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\";WEFT_BUILD_DIR=\"${CMAKE_BINARY_DIR}\"")
target_include_directories(weft_support_objects PUBLIC "${CMAKE_SOURCE_DIR}")
add_library(weft_test_support INTERFACE)
target_include_directories(weft_test_support INTERFACE "${CMAKE_SOURCE_DIR}")
target_link_libraries(weft_test_support INTERFACE GTest::gtest)

# weft_test_objects(NAME SOURCES ... LINK ...): tests that several programs hold.
function(weft_test_objects name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL)
  weft_add_sources(${name} ${arg_SOURCES})
  target_link_libraries(${name} PUBLIC ${arg_LINK} weft_test_support)
  target_compile_options(${name} PRIVATE ${WEFT_TEST_OPTIONS})
endfunction()

# weft_test_program(NAME [SANITIZED] SOURCES ... LINK ...): a program that tests use. SANITIZED: see above.
function(weft_test_program name)
  cmake_parse_arguments(arg "SANITIZED" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} EXCLUDE_FROM_ALL)
  if(arg_SOURCES)
    weft_add_sources(${name} ${arg_SOURCES})
  endif()
  target_link_libraries(${name} PRIVATE weft_support_objects ${arg_LINK} weft_test_support weft_base)
  target_compile_options(${name} PRIVATE ${WEFT_TEST_OPTIONS})
  if(arg_SANITIZED AND NOT WEFT_SANITIZE)
    add_dependencies(weft_core_tests ${name})
  else()
    add_dependencies(weft_tests ${name})
  endif()
endfunction()

# Suites that take longest, each spread over so many processes, which start first.
set(WEFT_SHARDS PlanSearch=3 Transition=3 Comm/OnRanks=2 KillRanks=2 Products/ContextForms=2 Models/HeldMemory=4 Plans/TrainedForms=2
                Plans/EncodersBeside=2 Plans/Training=2 Models/RandomPlans=2 Train=3 Predict=2)
list(JOIN WEFT_SHARDS "," WEFT_SHARDS)

# weft_test(NAME [SANITIZED] SOURCES ... LINK ...): a GoogleTest program. ctest knows each of its suites, run as one process:
# loading LibTorch takes longer than most cases do.
function(weft_test name)
  cmake_parse_arguments(arg "SANITIZED" "" "SOURCES;LINK" ${ARGN})
  set(where "")
  if(arg_SANITIZED)
    set(where SANITIZED)
  endif()
  weft_test_program(${name} ${where} SOURCES ${arg_SOURCES} LINK ${arg_LINK} GTest::gtest_main)
  set(list "${CMAKE_CURRENT_BINARY_DIR}/${name}.ctest.cmake")
  add_custom_command(
    TARGET ${name} POST_BUILD
    COMMAND ${CMAKE_COMMAND} "-DPROGRAM=$<TARGET_FILE:${name}>" "-DLIST=${list}" "-DPREFIX=${WEFT_TEST_PREFIX}"
            "-DLABELS=${WEFT_TEST_LABEL},${name}" "-DSHARDS=${WEFT_SHARDS}" -P "${CMAKE_SOURCE_DIR}/cmake/list_suites.cmake"
    VERBATIM)
  file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/${name}.include.cmake"
       CONTENT "include(\"${list}\" OPTIONAL)\n" @ONLY)
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.include.cmake")
endfunction()
