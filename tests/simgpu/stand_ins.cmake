# The simulated GPU: its engine, and the libraries that MESHFUSE_CUDA_LIBRARIES=<build>/simgpu loads in place of NVIDIA's. See README.md.
# They are built without sanitizers: the engine runs kernels on stacks of its own, and checks their accesses by name.
set(stand_ins "${CMAKE_CURRENT_SOURCE_DIR}/simgpu")
set(emulator "${CMAKE_CURRENT_SOURCE_DIR}/simt")
add_executable(simgpu_engine ${stand_ins}/engine/main.cc ${stand_ins}/engine/work.cc ${stand_ins}/engine/memory.cc ${stand_ins}/engine/order.cc
  ${stand_ins}/engine/kernels.cc ${stand_ins}/engine/captures.cc ${stand_ins}/engine/graphs.cc
  ${stand_ins}/engine/launches.cc ${stand_ins}/engine/failures.cc ${stand_ins}/engine/graph_calls.cc ${stand_ins}/engine/product.cc ${stand_ins}/engine/communicators.cc ${stand_ins}/engine/collectives.cc
  ${stand_ins}/engine/reduction.cc ${stand_ins}/engine/float16.cc ${stand_ins}/engine/no_sanitizer.cc ${emulator}/device/blocks.cc ${emulator}/host_text.cpp)
target_compile_definitions(simgpu_engine PRIVATE "SIMGPU_SOURCE_DIR=\"${CMAKE_SOURCE_DIR}\"")
set_target_properties(simgpu_engine PROPERTIES ENABLE_EXPORTS ON)
add_library(simgpu_cuda SHARED ${stand_ins}/cuda/libcuda.cc ${stand_ins}/cuda/graphs.cc ${stand_ins}/cuda/client.cc)
set_target_properties(simgpu_cuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1)
add_library(simgpu_nvrtc SHARED ${stand_ins}/nvrtc/libnvrtc.cc)
set_target_properties(simgpu_nvrtc PROPERTIES OUTPUT_NAME nvrtc SUFFIX .so.13)
add_library(simgpu_cublaslt SHARED ${stand_ins}/cublaslt/libcublaslt.cc)
set_target_properties(simgpu_cublaslt PROPERTIES OUTPUT_NAME cublasLt SUFFIX .so.13)
add_library(simgpu_nccl SHARED ${stand_ins}/nccl/libnccl.cc ${stand_ins}/nccl/communicator.cc ${stand_ins}/nccl/group.cc)
set_target_properties(simgpu_nccl PROPERTIES OUTPUT_NAME nccl SUFFIX .so.2)
foreach(library cublaslt nccl)  # the streams and the connection of the program are the driver's
  set_target_properties(simgpu_${library} PROPERTIES BUILD_RPATH_USE_ORIGIN ON LINK_DEPENDS ${stand_ins}/${library}/exports.map)
  target_link_options(simgpu_${library} PRIVATE "-Wl,--version-script=${stand_ins}/${library}/exports.map")
  target_link_libraries(simgpu_${library} PRIVATE simgpu_cuda)
endforeach()
set(simulated_gpu simgpu_engine simgpu_cuda simgpu_nvrtc simgpu_cublaslt simgpu_nccl)
foreach(target IN LISTS simulated_gpu)
  set_target_properties(${target} PROPERTIES UNITY_BUILD OFF POSITION_INDEPENDENT_CODE ON
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/simgpu" LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/simgpu")
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_features(${target} PRIVATE cxx_std_20)
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
endforeach()
