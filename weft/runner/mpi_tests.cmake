# Some strategies of the suite of runner/ on 2 and 4 MPI processes.
if(WEFT_SANITIZE MATCHES "thread")
  return()
endif()
weft_test_program(weft_runner_mpi_suite LINK weft_runner weft_runner_suite weft_comm_process_main)
add_dependencies(weft_runner_mpi_suite weft_mpi weft_nccl)
foreach(size IN ITEMS 2 4)
  weft_mpi_test(ProgramsRunOn${size} "${CMAKE_SOURCE_DIR}/scripts/mpirun" -n ${size} "$<TARGET_FILE:weft_runner_mpi_suite>")
endforeach()
