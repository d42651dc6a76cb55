# The suite of comm/ on 1, 2, 4 and 8 MPI processes, and ranks that end in the middle of it. OpenMPI leaks what it
# allocates once.
set(run_mpi "${CMAKE_SOURCE_DIR}/scripts/mpirun")
set(tsan_suppressions "${CMAKE_CURRENT_SOURCE_DIR}/comm/mpi/tsan_suppressions.txt")
set(mpi_timeout_s 300)
if(WEFT_SANITIZE MATCHES "thread")
  set(mpi_timeout_s 1500)
endif()
weft_test_objects(weft_comm_process_main SOURCES comm/mpi/suite_main_test.cpp LINK weft_comm)
weft_test_program(weft_comm_mpi_suite SOURCES comm/nccl/stream_suite_test.cpp
                  LINK weft_comm weft_comm_suite weft_comm_process_main)
weft_test_program(weft_comm_rank_program SOURCES comm/mpi/rank_program_test.cpp LINK weft_comm)
set_target_properties(weft_comm_rank_program PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
foreach(program IN ITEMS weft_comm_mpi_suite weft_comm_rank_program)
  add_dependencies(${program} weft_mpi weft_nccl)
endforeach()

# Ends with 77 where there is no GPU and one is needed. With AddressSanitizer one of each kind is enough of every run;
# scripts/test --long has the others, too.
set(mpi_tests_with_asan TheSuiteHoldsOn4 StandInsForNcclHoldOn3 StandInsForMpiAndNcclHold)
function(weft_mpi_test name)
  set(labels ${WEFT_TEST_LABEL})
  if(WEFT_SANITIZE MATCHES "address" AND NOT name IN_LIST mpi_tests_with_asan)
    list(APPEND labels long)
  endif()
  add_test(NAME ${WEFT_TEST_PREFIX}MpiRanks.${name} COMMAND ${ARGN})
  set_tests_properties(
    ${WEFT_TEST_PREFIX}MpiRanks.${name} PROPERTIES LABELS "${labels}" COST 500 TIMEOUT ${mpi_timeout_s} SKIP_RETURN_CODE 77
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0;TSAN_OPTIONS=suppressions=${tsan_suppressions}")
endfunction()

# Processes that a launcher like torchrun starts, and stand-ins for CUDA and NCCL, which every machine has.
set(start_ranks "${CMAKE_CURRENT_SOURCE_DIR}/comm/nccl/start_ranks.sh")
set(stand_in "LD_LIBRARY_PATH=${WEFT_STAND_IN_DIR}" "WEFT_NCCL=${WEFT_STAND_IN_DIR}/libnccl.so.2")
function(weft_stand_in_test name gpus)
  weft_mpi_test(${name} ${CMAKE_COMMAND} -E env ${stand_in} WEFT_STAND_IN_GPUS=${gpus} ${ARGN})
endfunction()
add_dependencies(weft_comm_mpi_suite weft_stand_in_cuda weft_stand_in_nccl)

# Slow under ThreadSanitizer, so once for MPI, with memory of the host, and once for NCCL.
if(WEFT_SANITIZE MATCHES "thread")
  weft_mpi_test(TheSuiteHoldsUncheckedOn2 "${run_mpi}" -n 2 "$<TARGET_FILE:weft_comm_mpi_suite>" --unchecked
                --gtest_filter=-*Disagree*)
  weft_stand_in_test(StandInsForNcclHoldOn3 4 "${start_ranks}" 3 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
  return()
endif()

foreach(size IN ITEMS 1 2 4 8)
  weft_mpi_test(TheSuiteHoldsOn${size} "${run_mpi}" -n ${size} "$<TARGET_FILE:weft_comm_mpi_suite>")
endforeach()
weft_test(weft_comm_kill_test SOURCES comm/mpi/kill_ranks_test.cpp LINK weft_comm)
add_dependencies(weft_comm_kill_test weft_comm_rank_program)
weft_mpi_test(TheSuiteHoldsWithTinyMessages "${run_mpi}" -n 3 "$<TARGET_FILE:weft_comm_mpi_suite>" --tiny
              --gtest_filter=-*RandomPrograms*:*SumsAre*)
foreach(size IN ITEMS 2 3 4)
  weft_mpi_test(TheSuiteHoldsUncheckedOn${size} "${run_mpi}" -n ${size} "$<TARGET_FILE:weft_comm_mpi_suite>" --unchecked
                --gtest_filter=-*Disagree*)
endforeach()

# One thread with a GPU, and processes that share one.
weft_mpi_test(TheSuiteHoldsOnOneThreadWithAGpu "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
foreach(size IN ITEMS 2 4)
  weft_mpi_test(TheSuiteHoldsOnAGpuOf${size} "${run_mpi}" -n ${size} "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
endforeach()

# NCCL: on a GPU that is there, and on stand-ins. With these MPI ranks have GPUs, too, of their own or one for all.
weft_mpi_test(TheSuiteHoldsOnNccl "${start_ranks}" 1 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
weft_mpi_test(TheSuiteHoldsOnNcclWithMemoryOfTheHost "${start_ranks}" 1 "$<TARGET_FILE:weft_comm_mpi_suite>")
weft_mpi_test(TheSuiteHoldsOnMpiWithNccl "${run_mpi}" -n 1 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
foreach(size IN ITEMS 1 3)
  weft_stand_in_test(StandInsForNcclHoldOn${size} 4 "${start_ranks}" ${size} "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
  weft_stand_in_test(StandInsForNcclHoldOn${size}WithMemoryOfTheHost 4 "${start_ranks}" ${size}
                     "$<TARGET_FILE:weft_comm_mpi_suite>")
endforeach()
# A barrier goes over MPI and a sum over NCCL: ranks that disagree on which it is wait in vain.
weft_stand_in_test(StandInsForMpiAndNcclHold 4 "${run_mpi}" -n 3 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu
                   --gtest_filter=-*Disagree*)
weft_stand_in_test(StandInsForAGpuThatIsSharedHold 1 "${run_mpi}" -n 3 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
weft_stand_in_test(AStandInForAGpuHoldsOnOneThread 1 "$<TARGET_FILE:weft_comm_mpi_suite>" --gpu)
weft_stand_in_test(AKilledRankEndsTheOthers 4 "${start_ranks}" 3 "$<TARGET_FILE:weft_comm_rank_program>" kill 1 5)
set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.AKilledRankEndsTheOthers PROPERTIES
                     PASS_REGULAR_EXPRESSION "rank 1 ended without a word .*; rank [02] waited")
