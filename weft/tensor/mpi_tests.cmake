# The suite of tensor/ on 2, 4 and 8 MPI processes. As for comm/, ThreadSanitizer does not know what OpenMPI does.
if(WEFT_SANITIZE MATCHES "thread")
  return()
endif()
add_executable(weft_tensor_mpi_suite comm/mpi/suite_main_test.cpp tensor/redistribute_suite_test.cpp tensor/bridge_suite_test.cpp
               tensor/row_exchange_suite_test.cpp)
target_link_libraries(weft_tensor_mpi_suite PRIVATE weft_tensor GTest::gtest)
target_compile_definitions(weft_tensor_mpi_suite PRIVATE WEFT_MPI_LIBRARY="$<TARGET_FILE:weft_mpi>"
                           WEFT_NCCL_LIBRARY="$<TARGET_FILE:weft_nccl>")
target_precompile_headers(weft_tensor_mpi_suite REUSE_FROM weft_torch_pch)
add_dependencies(weft_tensor_mpi_suite weft_mpi weft_nccl)
foreach(size IN ITEMS 2 4 8)
  weft_mpi_test(TensorsHoldOn${size} "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n ${size} "$<TARGET_FILE:weft_tensor_mpi_suite>")
endforeach()
# On a GPU: one rank that is a thread, one with NCCL, and several that share it.
weft_mpi_test(TensorsHoldOnOneThreadWithAGpu "$<TARGET_FILE:weft_tensor_mpi_suite>" --gpu)
weft_mpi_test(TensorsHoldOnNccl "${CMAKE_CURRENT_SOURCE_DIR}/comm/nccl/start_ranks.sh" 1 "$<TARGET_FILE:weft_tensor_mpi_suite>" --gpu)
foreach(size IN ITEMS 2 4)
  weft_mpi_test(TensorsHoldOnAGpuOf${size} "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n ${size} "$<TARGET_FILE:weft_tensor_mpi_suite>" --gpu)
endforeach()
