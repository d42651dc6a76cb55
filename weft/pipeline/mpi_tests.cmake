# A sample of the plans of the suites of pipeline/ on MPI processes.
if(WEFT_SANITIZE MATCHES "thread")
  return()
endif()
weft_test_program(weft_pipeline_mpi_suite SOURCES pipeline/mpi/process_ranks_test.cpp
                  LINK weft_pipeline weft_pipeline_suite weft_comm_process_main)
add_dependencies(weft_pipeline_mpi_suite weft_mpi weft_nccl)
set(pairs llama_tied_tp1_pp1x1_dp2_zero0_1f1b_mbs1x2 llama_tied_tp1_pp1x1_dp2_zero3_1f1b_mbs1x2_small_buckets
          qwen2_tied_tp2spe_pp1x1_dp1_zero0_1f1b_mbs1x2 llama_tied_tp1_pp2x1_dp1_zero0_1f1b_mbs1x3
          llama_scaled_tp1_pp2x1_dp1_zero0_zb_h1_mbs1x4 qwen2_vl_tied_tp1_pp2x1_dp1_zero0_1f1b_mbs1x4
          qwen3_moe_norm_tp1_pp1x1_dp2_zero0_1f1b_mbs1x2_ep2 qwen3_moe_norm_tp1_pp1x1_dp2_zero3_1f1b_mbs1x2_ep2)
list(TRANSFORM pairs PREPEND "*/")
list(JOIN pairs ":" pairs)
weft_mpi_test(TrainingEqualsOneRankOn2 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 2 "$<TARGET_FILE:weft_pipeline_mpi_suite>"
              "--gtest_filter=${pairs}")
weft_mpi_test(TrainingEqualsOneRankOn8 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 8 "$<TARGET_FILE:weft_pipeline_mpi_suite>"
              "--gtest_filter=*/qwen2_tied_tp2spe_pp2x1_dp2_zero0_1f1b_mbs1x2:*/qwen2_tied_tp2_pp2x1_dp2_zero2_1f1b_mbs1x3:*/qwen3_moe_norm_tp1_pp2x1_dp4_zero3_1f1b_mbs1x2_ep2")
weft_mpi_test(EncodersGiveTheLossOfOneRankOn2 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 2
              "$<TARGET_FILE:weft_pipeline_mpi_suite>" "--gtest_filter=*/EncodersOnRanks.*qwen2_vl*")
weft_mpi_test(EncodersGiveTheLossOfOneRankOn8 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 8
              "$<TARGET_FILE:weft_pipeline_mpi_suite>" "--gtest_filter=*/EncodersOnRanks.*omni*")
foreach(size IN ITEMS 2 4)
  weft_mpi_test(ProgramsTrainWithAnyStrategyOn${size} "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n ${size}
                "$<TARGET_FILE:weft_pipeline_mpi_suite>" "--gtest_filter=*ProgramsOnRanks*/tp${size}")
  set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.ProgramsTrainWithAnyStrategyOn${size} PROPERTIES
                       FAIL_REGULAR_EXPRESSION "Running 0 tests;SKIPPED")
endforeach()
weft_mpi_test(LayersTrainWithAnyStrategyOn2 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 2 "$<TARGET_FILE:weft_pipeline_mpi_suite>"
              "--gtest_filter=*LayersOnRanks*/tp2dp1")
weft_mpi_test(LayersTrainWithAnyStrategyOn4 "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n 4 "$<TARGET_FILE:weft_pipeline_mpi_suite>"
              "--gtest_filter=*LayersOnRanks*/tp4dp1:*LayersOnRanks*/tp2dp2")
set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.LayersTrainWithAnyStrategyOn2 PROPERTIES
                     FAIL_REGULAR_EXPRESSION "Running 0 tests;SKIPPED")
set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.LayersTrainWithAnyStrategyOn4 PROPERTIES
                     FAIL_REGULAR_EXPRESSION "Running [01] tests?;SKIPPED")
foreach(size IN ITEMS 2 8)
  set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.EncodersGiveTheLossOfOneRankOn${size} PROPERTIES
                       FAIL_REGULAR_EXPRESSION "Running [01] test;SKIPPED")
endforeach()
# A plan that was renamed would not be missed otherwise.
set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.TrainingEqualsOneRankOn2 PROPERTIES
                     FAIL_REGULAR_EXPRESSION "Running [0-7] tests?;SKIPPED")
set_tests_properties(${WEFT_TEST_PREFIX}MpiRanks.TrainingEqualsOneRankOn8 PROPERTIES
                     FAIL_REGULAR_EXPRESSION "Running [0-2] tests?;SKIPPED")
