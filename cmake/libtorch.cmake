# weft::libtorch, from the folder that scripts/setup unpacked or that WEFT_LIBTORCH names. The wheel's own
# TorchConfig.cmake wants a CUDA tool chain, so the two libraries are imported here.
if(DEFINED ENV{WEFT_LIBTORCH} AND NOT "$ENV{WEFT_LIBTORCH}" STREQUAL "")
  set(WEFT_LIBTORCH_DIR "$ENV{WEFT_LIBTORCH}")
elseif(NOT WEFT_LIBTORCH_DIR)
  set(WEFT_LIBTORCH_DIR "${CMAKE_SOURCE_DIR}/.deps/libtorch-2.11.0")
endif()
if(NOT WEFT_TORCH)
  return()
endif()
if(NOT EXISTS "${WEFT_LIBTORCH_DIR}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "No LibTorch in ${WEFT_LIBTORCH_DIR}. Run scripts/setup, or set WEFT_LIBTORCH to the folder of one, "
                      "or configure with -DWEFT_TORCH=OFF for the torch-free half alone.")
endif()

foreach(name IN ITEMS c10 torch_cpu)
  add_library(weft::${name} SHARED IMPORTED)
  set_target_properties(weft::${name} PROPERTIES IMPORTED_LOCATION "${WEFT_LIBTORCH_DIR}/lib/lib${name}.so")
endforeach()

# LibTorch carries the headers of another version of fmt, which would shadow the system's and then not link: a folder
# of links shows every header but those.
set(headers "${CMAKE_BINARY_DIR}/libtorch-headers")
file(REMOVE_RECURSE "${headers}")
file(MAKE_DIRECTORY "${headers}")
file(GLOB entries RELATIVE "${WEFT_LIBTORCH_DIR}/include" "${WEFT_LIBTORCH_DIR}/include/*")
list(REMOVE_ITEM entries fmt)
foreach(entry IN LISTS entries)
  file(CREATE_LINK "${WEFT_LIBTORCH_DIR}/include/${entry}" "${headers}/${entry}" SYMBOLIC)
endforeach()

add_library(weft::libtorch INTERFACE IMPORTED)
target_include_directories(weft::libtorch SYSTEM INTERFACE "${headers}" "${headers}/torch/csrc/api/include")
target_compile_definitions(weft::libtorch INTERFACE AT_PER_OPERATOR_HEADERS)
target_link_libraries(weft::libtorch INTERFACE weft::torch_cpu weft::c10)
# libtorch_cpu.so finds its CUDA runtime libraries through its own run path, which the linker does not follow.
target_link_options(weft::libtorch INTERFACE "LINKER:--allow-shlib-undefined")
