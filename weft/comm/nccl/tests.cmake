# Stand-ins for libcuda.so.1 and libnccl.so.2 on the host's memory, in a folder of their own, so that nothing finds them
# that does not look there.
set(WEFT_STAND_IN_DIR "${CMAKE_BINARY_DIR}/stand_in")
foreach(name IN ITEMS cuda nccl)
  add_library(weft_stand_in_${name} SHARED EXCLUDE_FROM_ALL comm/nccl/stand_in/${name}.cpp)
  set_target_properties(weft_stand_in_${name} PROPERTIES OUTPUT_NAME ${name} LIBRARY_OUTPUT_DIRECTORY "${WEFT_STAND_IN_DIR}")
endforeach()
set_target_properties(weft_stand_in_cuda PROPERTIES SOVERSION 1)
set_target_properties(weft_stand_in_nccl PROPERTIES SOVERSION 2)
target_link_libraries(weft_stand_in_nccl PRIVATE weft_comm)
add_dependencies(weft_comm_test weft_nccl)
