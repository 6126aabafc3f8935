# meshfuse_embed_text(<target> OUTPUT <file.cpp> HEADER <header> FUNCTION <name> FILES <files>)
# Adds to <target> a source that defines `std::string_view <name>(std::string_view file)` of namespace meshfuse: the text
# of the file of that name, empty if there is none. Written again when a file changes.
function(meshfuse_embed_text target)
  cmake_parse_arguments(arg "" "OUTPUT;HEADER;FUNCTION" "FILES" ${ARGN})
  set(script "${CMAKE_SOURCE_DIR}/cmake/write_embedded_text.cmake")
  add_custom_command(OUTPUT "${arg_OUTPUT}"
    COMMAND "${CMAKE_COMMAND}" "-DOUTPUT=${arg_OUTPUT}" "-DHEADER=${arg_HEADER}" "-DFUNCTION=${arg_FUNCTION}"
            "-DFILES=${arg_FILES}" -P "${script}"
    DEPENDS ${arg_FILES} "${script}"
    COMMENT "Embedding texts as ${arg_FUNCTION}()"
    VERBATIM)
  target_sources(${target} PRIVATE "${arg_OUTPUT}")
endfunction()
