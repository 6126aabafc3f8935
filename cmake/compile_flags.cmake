# Flags of all our targets, as the interface target meshfuse_flags.
option(MESHFUSE_FUZZERS "build the fuzzers of tests/decoders too: needs clang" OFF)

set(is_gcc OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(is_gcc ON)
endif()
if((is_gcc AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 12.2) OR (NOT is_gcc AND NOT MESHFUSE_FUZZERS))
  message(WARNING "meshfuse is built and tested with g++ >= 12.2; this is "
                  "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
  set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
endif()

# Relative paths and no hash of the build folder: build trees of one checkout share the cache.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env "CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}"
      CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros "${CCACHE_PROGRAM}")
endif()

# A precompiled header differs from build tree to build tree, so it would empty the shared cache: use one or the other.
if(CCACHE_PROGRAM)
  set(pch_default OFF)
else()
  set(pch_default ON)
endif()
option(MESHFUSE_PCH "precompile the headers that most sources use" ${pch_default})

# The sources of a folder are compiled several at a time, so what they include is read once. Names of anonymous namespaces are therefore
# unique in a folder.
option(MESHFUSE_UNITY "compile the sources of a folder several at a time" ON)
set(CMAKE_UNITY_BUILD ${MESHFUSE_UNITY})
set(CMAKE_UNITY_BUILD_BATCH_SIZE 8 CACHE STRING "how many at a time: more take less time, a change of one source longer")

set(MESHFUSE_SANITIZE "" CACHE STRING "value of -fsanitize, empty for none")

add_library(meshfuse_flags INTERFACE)
target_include_directories(meshfuse_flags INTERFACE "${CMAKE_SOURCE_DIR}/csrc" "${CMAKE_BINARY_DIR}/generated")
target_compile_options(meshfuse_flags INTERFACE
  -Wall -Wextra -Werror
  -Wno-missing-field-initializers  # designated initializers leave the rest to its default
  -ffp-contract=off             # the same bits whatever the compiler would like to fuse
  -fno-semantic-interposition)  # calls inside the shared library may be inlined
if(is_gcc)
  # false alarms of g++ 12 and 13 on inlined destructors, strings and references into containers
  target_compile_options(meshfuse_flags INTERFACE -Wno-maybe-uninitialized -Wno-restrict -Wno-dangling-reference
    -Wno-error=array-bounds -Wno-error=stringop-overflow)
else()
  # pragmas of g++, and what the sorting of its library calls
  target_compile_options(meshfuse_flags INTERFACE -Wno-unknown-pragmas -Wno-deprecated-declarations
    -Wno-bitwise-instead-of-logical)  # without a branch, on purpose
endif()
# Undefined behaviour is looked for in the library alone: the tests are half of what there is to compile.
set(MESHFUSE_LIBRARY_OPTIONS "")
if(MESHFUSE_SANITIZE)
  string(REPLACE "," ";" sanitizers "${MESHFUSE_SANITIZE}")
  if("undefined" IN_LIST sanitizers)
    list(REMOVE_ITEM sanitizers undefined)
    # vptr would need the type information of the classes of LLVM; what null and object-size see AddressSanitizer sees too
    set(MESHFUSE_LIBRARY_OPTIONS -fsanitize=undefined -fno-sanitize-recover=undefined
      -fno-sanitize=vptr,null,object-size)
    if(NOT is_gcc)
      list(APPEND MESHFUSE_LIBRARY_OPTIONS -fno-sanitize=function)  # compiled kernels do not say their type
    endif()
  endif()
  if("thread" IN_LIST sanitizers)
    # ThreadSanitizer does not know fences: the library has them only for memory that it shares with other processes
    target_compile_options(meshfuse_flags INTERFACE -Wno-tsan)
  endif()
  if("address" IN_LIST sanitizers AND NOT is_gcc)
    target_compile_options(meshfuse_flags INTERFACE -fsanitize-address-use-after-return=never)  # fibers change the stack
  endif()
  foreach(sanitizer IN LISTS sanitizers)
    string(TOUPPER ${sanitizer} upper)
    target_compile_definitions(meshfuse_flags INTERFACE MESHFUSE_SANITIZE_${upper})
  endforeach()
  list(TRANSFORM sanitizers PREPEND "-fsanitize=")
  target_compile_options(meshfuse_flags INTERFACE ${sanitizers} -fno-omit-frame-pointer)
  target_link_options(meshfuse_flags INTERFACE "-fsanitize=${MESHFUSE_SANITIZE}")
endif()
set(MESHFUSE_COUNTED_FOLDERS "")
if(MESHFUSE_FUZZERS)
  # libFuzzer is guided by counters in the folders whose sources read the bytes of a decoder. Lines are counted in these sources, whose coverage
  # is asked for; a test writes no profile.
  file(STRINGS "${CMAKE_SOURCE_DIR}/tests/decoders/reads.txt" rows REGEX "^[a-z]+ [a-z]")
  list(TRANSFORM rows REPLACE "^[a-z]+ ([^ ]+).*" "\\1")
  foreach(source IN LISTS rows)
    get_filename_component(folder ${source} DIRECTORY)
    list(APPEND MESHFUSE_COUNTED_FOLDERS ${folder})
  endforeach()
  list(TRANSFORM rows REPLACE "(.+)" "source:*/csrc/\\1=allow")
  list(JOIN rows "\n" rows)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/counted_lines.txt" CONTENT "[clang]\ndefault:forbid\n${rows}\n")
  set(MESHFUSE_COUNT_OPTIONS -fsanitize-coverage=inline-8bit-counters,pc-table
    -fprofile-instr-generate=/dev/null -fcoverage-mapping "-fprofile-list=${CMAKE_BINARY_DIR}/counted_lines.txt")
  target_link_options(meshfuse_flags INTERFACE -fprofile-instr-generate)
endif()

target_link_options(meshfuse_flags INTERFACE LINKER:--build-id)  # keys of plans on disk name the build

set(MESHFUSE_PCH_HEADERS <algorithm> <functional> <map> <memory> <optional> <span> <string> <vector> <fmt/core.h>)
