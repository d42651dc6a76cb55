# What a family in another repository is built against: find_package(Weft), target Weft::families. docs/manual/add-a-family.md
# walks through one.
include(CMakePackageConfigHelpers)
set(package_folder lib/cmake/Weft)
set(package_targets weft_base weft_mesh weft_program weft_families)
foreach(target IN LISTS package_targets)
  string(REPLACE weft_ "" name ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  install(DIRECTORY weft/${name} DESTINATION include/weft FILES_MATCHING PATTERN "*.h")
endforeach()
install(TARGETS ${package_targets} EXPORT WeftTargets ARCHIVE DESTINATION lib)
install(EXPORT WeftTargets NAMESPACE Weft:: DESTINATION ${package_folder})
configure_file(cmake/WeftConfig.cmake.in "${CMAKE_BINARY_DIR}/WeftConfig.cmake" @ONLY)
# Layouts change from version to version: only the same one will do.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/WeftConfigVersion.cmake" COMPATIBILITY ExactVersion)
install(FILES "${CMAKE_BINARY_DIR}/WeftConfig.cmake" "${CMAKE_BINARY_DIR}/WeftConfigVersion.cmake" DESTINATION ${package_folder})
