# The headers of csrc as users include them: "base/error.h" becomes "meshfuse/base/error.h", so that an installed meshfuse takes no other name.
#
#   cmake -D SOURCE=csrc -D STAGED=FOLDER -P install_headers.cmake
#
# Folder `meshfuse` of csrc, which has the header for users, is the root: STAGED/meshfuse.h.
file(GLOB_RECURSE headers RELATIVE "${SOURCE}" "${SOURCE}/*.h")
list(FILTER headers EXCLUDE REGEX "^tools/")
file(REMOVE_RECURSE "${STAGED}")
foreach(header IN LISTS headers)
  file(READ "${SOURCE}/${header}" text)
  string(REGEX REPLACE "#include \"([^\"]*/)" "#include \"meshfuse/\\1" text "${text}")
  string(REGEX REPLACE "^meshfuse/" "" place "${header}")
  file(WRITE "${STAGED}/${place}" "${text}")
endforeach()
