# How every target of the project is built. One library per folder of src/, linking exactly the
# folders that tools/layers.txt lets it include.

# Contraction is off because a fused a*b+c rounds once where the source says twice; kernels that
# want a fused multiply-add say so (promise P1 in docs/architecture.md).
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off -fno-math-errno)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-O1 -g1)
endif()
if(OKIBI_DCHECK)
  add_compile_definitions(OKIBI_DCHECK=1)
endif()
if(OKIBI_SANITIZE)
  # The vptr check wants run-time types, which our own code is built without.
  add_compile_options(-fsanitize=${OKIBI_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${OKIBI_SANITIZE})
endif()
if(OKIBI_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

find_program(OKIBI_CCACHE ccache)
if(OKIBI_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${OKIBI_CCACHE})
endif()

# okibi_library(FOLDER [EXCEPTIONS] [DEPS folder...] [LINK target...])
# Sources are the folder's .cpp files and those of its sub-folders. Our own code neither throws nor
# asks for run-time types; EXCEPTIONS is for folders that wrap a library that throws.
function(okibi_library folder)
  cmake_parse_arguments(arg "EXCEPTIONS" "" "DEPS;LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cpp)
  list(FILTER sources EXCLUDE REGEX "/src/cpu/kernels/(avx2|avx512|amx)/")
  if(NOT sources)
    add_library(okibi_${folder} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(okibi_${folder} STATIC ${sources})
    set(scope PUBLIC)
    if(NOT arg_EXCEPTIONS)
      target_compile_options(okibi_${folder} PRIVATE -fno-exceptions -fno-rtti)
    endif()
  endif()
  target_include_directories(okibi_${folder} ${scope} ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  list(TRANSFORM arg_DEPS PREPEND okibi_)
  target_link_libraries(okibi_${folder} ${scope} ${arg_DEPS} ${arg_LINK})
endfunction()

# okibi_kernels(LEVEL flags...): the object files of one instruction-set level. They are checked by
# tools/check_isa_objects.py to export no weak symbol, so the linker can never hand their code to a
# caller that runs on a lesser machine.
function(okibi_kernels level)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cpu/kernels/${level}/*.cpp)
  if(sources)
    add_library(okibi_kernels_${level} OBJECT ${sources})
    target_compile_options(okibi_kernels_${level} PRIVATE -fno-exceptions -fno-rtti ${ARGN})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # GCC 12 takes the undefined vectors inside its own intrinsics for a mistake of ours.
      target_compile_options(okibi_kernels_${level} PRIVATE -Wno-maybe-uninitialized -Wno-uninitialized)
    endif()
    if(CMAKE_BUILD_TYPE STREQUAL "Debug")
      # Unoptimised intrinsics are so slow that a sanitizer pass would not end.
      target_compile_options(okibi_kernels_${level} PRIVATE -O2)
    endif()
    if(OKIBI_SANITIZE MATCHES "undefined")
      # Asked about at every load, unrolled intrinsics take ten times as long to compile (267 instead
      # of 25 s for one file); the addresses they touch stay checked.
      target_compile_options(okibi_kernels_${level} PRIVATE -fno-sanitize=undefined)
    endif()
    target_include_directories(okibi_kernels_${level} PRIVATE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_sources(okibi_cpu PRIVATE $<TARGET_OBJECTS:okibi_kernels_${level}>)
  endif()
endfunction()
