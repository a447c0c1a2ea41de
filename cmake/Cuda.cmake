# GEMMD_CUDA: the CUDA back end and its kernels. ON by default where nvcc is found.
#
# .cu files are compiled by nvcc through custom commands rather than as a CMake language: programs then are linked by the
# C compiler as they are without CUDA (clang with its sanitizers too), and configuring does not run nvcc; a compiler
# launcher such as ccache, CMAKE_C_COMPILER_LAUNCHER, serves nvcc as well. The CUDA runtime is linked statically and finds
# the driver at run time, so one binary starts with and without a GPU.
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE)
    option(GEMMD_CUDA "build the CUDA back end" ON)
else()
    option(GEMMD_CUDA "build the CUDA back end" OFF)
endif()
if(GEMMD_CUDA AND NOT CUDAToolkit_NVCC_EXECUTABLE)
    message(FATAL_ERROR "GEMMD_CUDA is ON, and no CUDA toolkit with nvcc was found; see CUDAToolkit_ROOT")
endif()
if(GEMMD_CUDA)
    message(STATUS "CUDA kernels are built, with ${CUDAToolkit_NVCC_EXECUTABLE}: some ten minutes on a few cores")
elseif(CUDAToolkit_NVCC_EXECUTABLE)
    message(STATUS "CUDA kernels are not built: GEMMD_CUDA is OFF")
else()
    message(STATUS "CUDA kernels are not built: no CUDA toolkit with nvcc was found (CUDAToolkit_ROOT says where one is)")
endif()

option(GEMMD_LINEINFO "line numbers in GPU code, which profilers and sanitizers show; they double its size" ON)
set(gemmd_nvcc_flags -std=c++17 -O3)
if(GEMMD_LINEINFO)
    list(APPEND gemmd_nvcc_flags -lineinfo)
endif()
# Portable code for every GPU since Ampere, as machine code and for later ones as PTX, and Hopper's own.
list(APPEND gemmd_nvcc_flags
    -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90a,code=sm_90a
    -Xcompiler=-fPIC,-fvisibility=hidden,-Wall,-Wextra)
if(GEMMD_WERROR)
    list(APPEND gemmd_nvcc_flags -Werror all-warnings)
endif()
option(GEMMD_CHECK_KERNELS "fail where a kernel's registers spill, it has a stack, or its products wait for one another" ON)
set(gemmd_nvcc ${CMAKE_C_COMPILER_LAUNCHER} ${CUDAToolkit_NVCC_EXECUTABLE})

# What ptxas says of the kernels of an object, FILE.cu.o.ptxas, becomes FILE.cu.o.kernels, or an error. A step of its own: it
# takes no time, and what is allowed may change without a kernel being compiled again.
function(gemmd_check_kernels target object)
    set(check ${CMAKE_SOURCE_DIR}/cmake/check-kernels)
    set(allowed ${CMAKE_SOURCE_DIR}/cmake/kernels-allowed.txt)
    get_filename_component(name ${object} NAME)
    add_custom_command(OUTPUT ${object}.kernels
        COMMAND ${check} ${allowed} ${object}.kernels ${object}.ptxas
        DEPENDS ${object}.ptxas ${check} ${allowed} VERBATIM
        COMMENT "Checking kernels of ${name}")
    target_sources(${target} PRIVATE ${object}.kernels)
endfunction()

# gemmd_cuda_sources(TARGET [CHECKED] file.cu ...): compile each and add the object to TARGET. CHECKED: a library's, whose kernels
# are checked.
function(gemmd_cuda_sources target)
    cmake_parse_arguments(PARSE_ARGV 1 arg CHECKED "" "")
    foreach(source ${arg_UNPARSED_ARGUMENTS})
        set(object ${CMAKE_CURRENT_BINARY_DIR}/${source}.o)
        get_filename_component(folder ${object} DIRECTORY)
        file(MAKE_DIRECTORY ${folder})
        set(log)
        set(compile ${gemmd_nvcc} ${gemmd_nvcc_flags})
        if(arg_CHECKED AND GEMMD_CHECK_KERNELS)
            set(log ${object}.ptxas)
            set(compile ${CMAKE_SOURCE_DIR}/cmake/compile-kernels ${log} ${compile} -Xptxas=-v)
        endif()
        add_custom_command(OUTPUT ${object} ${log}
            COMMAND ${compile} -I${CMAKE_SOURCE_DIR} -I${CMAKE_SOURCE_DIR}/kernels/include -MD -MF ${object}.d
                -c ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${object}
            DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} DEPFILE ${object}.d VERBATIM
            COMMENT "Building CUDA object ${source}")
        target_sources(${target} PRIVATE ${object})
        if(log)
            gemmd_check_kernels(${target} ${object})
        endif()
    endforeach()
endfunction()
