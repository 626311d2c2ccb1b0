# A layer is a library whose headers can be reached only by the layers that link it: each exposes an include root that holds one link to
# its own folder, so that an #include against the dependency direction is "No such file".

option(SHARDSIM_WERROR "Treat warnings as errors" OFF)

add_library(shardsim_flags INTERFACE)
target_compile_features(shardsim_flags INTERFACE cxx_std_20)
target_compile_options(shardsim_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Woverloaded-virtual>
  # GCC 12 warns falsely about "text" + std::string (bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${SHARDSIM_WERROR}>>:-Werror>)

# g++ 12 warns of "literal" + std::string at -O2 where nothing overlaps (GCC bug 105651, fixed in 13).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(shardsim_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()

# shardsim_layer(NAME FOLDER sources... ) ; link with target_link_libraries(NAME PUBLIC other layers)
function(shardsim_layer name folder)
  add_library(${name} STATIC ${ARGN})
  set(view ${CMAKE_BINARY_DIR}/view/${name})
  get_filename_component(parent ${view}/${folder} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${folder} ${view}/${folder} SYMBOLIC)
  target_include_directories(${name} PUBLIC ${view})
  target_link_libraries(${name} PUBLIC shardsim_flags)
endfunction()
