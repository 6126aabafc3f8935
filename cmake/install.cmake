# `cmake --install`: the library, its headers, the command line, and what find_package(meshfuse) reads.
#
# All headers are in one folder: csrc/meshfuse/meshfuse.h is <prefix>/include/meshfuse/meshfuse.h, csrc/base/error.h is
# <prefix>/include/meshfuse/base/error.h.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/meshfuse")

set_target_properties(meshfuse_library PROPERTIES
  EXPORT_NAME meshfuse VERSION "${PROJECT_VERSION}" SOVERSION "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}"
  INSTALL_RPATH_USE_LINK_PATH ON)
target_include_directories(meshfuse_library INTERFACE "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_compile_features(meshfuse_library INTERFACE cxx_std_20)
target_link_libraries(meshfuse_library INTERFACE "$<INSTALL_INTERFACE:fmt::fmt>")
add_library(meshfuse::meshfuse ALIAS meshfuse_library)

file(RELATIVE_PATH from_bin_to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
set_target_properties(meshfuse PROPERTIES INSTALL_RPATH "$ORIGIN/${from_bin_to_lib}")

# First all that is installed is built, whichever targets were built before.
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${CMAKE_BINARY_DIR}\" --target meshfuse_library meshfuse
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)")
install(TARGETS meshfuse_library EXPORT meshfuse-targets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(TARGETS meshfuse RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
set(staged_headers "${CMAKE_BINARY_DIR}/generated/installed_headers")
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" -D \"SOURCE=${CMAKE_SOURCE_DIR}/csrc\" -D \"STAGED=${staged_headers}\"
  -P \"${CMAKE_SOURCE_DIR}/cmake/install_headers.cmake\" COMMAND_ERROR_IS_FATAL ANY)")
install(DIRECTORY "${staged_headers}/" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/meshfuse")
install(EXPORT meshfuse-targets NAMESPACE meshfuse:: DESTINATION "${package_dir}")

configure_package_config_file(cmake/meshfuse-config.cmake.in "${CMAKE_BINARY_DIR}/generated/meshfuse-config.cmake"
  INSTALL_DESTINATION "${package_dir}" NO_SET_AND_CHECK_MACRO)
# Before 1.0 a minor version may change anything.
write_basic_package_version_file("${CMAKE_BINARY_DIR}/generated/meshfuse-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/generated/meshfuse-config.cmake"
              "${CMAKE_BINARY_DIR}/generated/meshfuse-config-version.cmake"
  DESTINATION "${package_dir}")
