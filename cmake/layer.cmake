# A layer is a library whose headers can be reached only by the layers that link it: each exposes an include root that holds one link to
# its own folder, so that an #include against the dependency direction is "No such file".

option(SHARDSIM_WERROR "Treat warnings as errors" OFF)

# A whole build takes a fraction of the time with -DCMAKE_UNITY_BUILD=ON: files of a layer are compiled in batches, so that what they
# include is parsed, and what they instantiate is compiled, once a batch. scripts/build.sh and scripts/test.sh do so in a new tree. Off by
# default: whoever edits a file compiles that file. So the files of a layer share one unnamed namespace: give what they keep there names
# of their own. Two warnings mistake a batch for a file: a local name may meet another file's global one, and a type of a file's own seems to
# be a header's.
set(CMAKE_UNITY_BUILD_BATCH_SIZE 24)
set(file_warnings $<$<COMPILE_LANGUAGE:CXX>:-Wshadow>)
if(CMAKE_UNITY_BUILD)
  set(file_warnings $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow=local> $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

add_library(shardsim_flags INTERFACE)
target_compile_features(shardsim_flags INTERFACE cxx_std_20)
target_compile_options(shardsim_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>
  ${file_warnings}
  # GCC 12 warns falsely about std::string's own code (bugs 105651, 105329), more so when it comes from a precompiled header.
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHARDSIM_WERROR}>>:-Werror>)

# The standard headers that most files include, parsed once for all layers. ccache users: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
file(WRITE ${CMAKE_BINARY_DIR}/standard_headers.cpp "")
add_library(standard_headers OBJECT ${CMAKE_BINARY_DIR}/standard_headers.cpp)
target_link_libraries(standard_headers PRIVATE shardsim_flags fmt::fmt)
if(BUILD_SHARED_LIBS OR SHARDSIM_PYTHON)
  set_target_properties(standard_headers PROPERTIES POSITION_INDEPENDENT_CODE ON)
endif()
target_precompile_headers(standard_headers PRIVATE
  <algorithm> <array> <charconv> <cmath> <cstdint> <filesystem> <fstream> <functional> <map> <memory> <numeric> <optional> <set> <span>
  <sstream> <stdexcept> <string> <string_view> <utility> <variant> <vector> <fmt/format.h>)

# shardsim_layer(NAME FOLDER [EXCLUDE file]): all sources below FOLDER, but for EXCLUDE; link with target_link_libraries(NAME PUBLIC other layers)
function(shardsim_layer name folder)
  cmake_parse_arguments(layer "" "EXCLUDE" "" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  if(layer_EXCLUDE)
    list(REMOVE_ITEM sources ${CMAKE_SOURCE_DIR}/${folder}/${layer_EXCLUDE})
  endif()
  add_library(${name} STATIC ${sources})
  if(BUILD_SHARED_LIBS OR SHARDSIM_PYTHON)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-semantic-interposition>)
  endif()
  set(view ${CMAKE_BINARY_DIR}/view/${name})
  get_filename_component(parent ${view}/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
  target_include_directories(${name} PUBLIC ${view})
  target_link_libraries(${name} PUBLIC shardsim_flags)
  target_precompile_headers(${name} REUSE_FROM standard_headers)
endfunction()
