# The suite of comm/ on 1, 2, 4 and 8 MPI processes, and ranks that end in the middle of it. OpenMPI itself is not built
# with ThreadSanitizer, which then sees races that are none; and it leaks what it allocates once.
if(WEFT_SANITIZE MATCHES "thread")
  return()
endif()
set(run_mpi "${CMAKE_SOURCE_DIR}/scripts/mpirun")
foreach(program IN ITEMS weft_comm_mpi_suite weft_comm_rank_program)
  add_executable(${program})
  target_link_libraries(${program} PRIVATE weft_comm GTest::gtest)
  target_compile_definitions(${program} PRIVATE WEFT_MPI_LIBRARY="$<TARGET_FILE:weft_mpi>")
  add_dependencies(${program} weft_mpi)
endforeach()
target_sources(weft_comm_mpi_suite PRIVATE comm/mpi/suite_main_test.cpp comm/group_suite_test.cpp)
target_sources(weft_comm_rank_program PRIVATE comm/mpi/rank_program_test.cpp)

function(weft_mpi_test name)
  add_test(NAME ${WEFT_TEST_PREFIX}MpiRanks.${name} COMMAND ${ARGN})
  set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.${name} PROPERTIES LABELS ${WEFT_TEST_LABEL} TIMEOUT 120
                       ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0")
endfunction()
foreach(size IN ITEMS 1 2 4 8)
  weft_mpi_test(TheSuiteHoldsOn${size} "${run_mpi}" -n ${size} "$<TARGET_FILE:weft_comm_mpi_suite>")
endforeach()
weft_test(weft_comm_kill_test SOURCES comm/mpi/kill_ranks_test.cpp LINK weft_comm)
target_compile_definitions(weft_comm_kill_test PRIVATE WEFT_RUN_MPI="${run_mpi}"
                           WEFT_RANK_PROGRAM="$<TARGET_FILE:weft_comm_rank_program>")
add_dependencies(weft_comm_kill_test weft_comm_rank_program)
weft_mpi_test(TheSuiteHoldsWithTinyMessages "${run_mpi}" -n 3 "$<TARGET_FILE:weft_comm_mpi_suite>" --tiny
              --gtest_filter=-*RandomPrograms*:*SumsAre*)
weft_mpi_test(TheSuiteHoldsUnchecked "${run_mpi}" -n 4 "$<TARGET_FILE:weft_comm_mpi_suite>" --unchecked
              --gtest_filter=-*Disagree*)
