# Warnings tuned one by one; a warning is an error in the presets that tests use (GEMMD_WERROR).
option(GEMMD_WERROR "treat warnings as errors" OFF)
add_compile_options(
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wcast-qual
    -Wwrite-strings -Wundef -Wformat=2 -Wvla -Wimplicit-fallthrough -Wdouble-promotion
    -Wno-missing-field-initializers -fno-math-errno -ffp-contract=off)
if(GEMMD_WERROR)
    add_compile_options(-Werror)
endif()
# What is installed names no folder of the machine that built it. Elsewhere debuggers find the sources by it.
if(NOT GEMMD_TESTS)
    add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
endif()
add_compile_definitions(_GNU_SOURCE _FILE_OFFSET_BITS=64)
