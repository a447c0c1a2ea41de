# Run by CPack on the packages' files before it packs them: configuration belongs in /etc, whatever the prefix, and units
# name programs by the places that the package has them in.
#
# What packing takes is asked for first: without dpkg-shlibdeps CPack would succeed, with packages that depend on nothing.
cmake_minimum_required(VERSION 3.25)
foreach(program dpkg-shlibdeps file)
    find_program(found_${program} ${program})
    if(NOT found_${program})
        message(FATAL_ERROR "packages cannot be made without ${program}; deploy/install-deps package installs it")
    endif()
endforeach()
set(root ${CPACK_TEMPORARY_DIRECTORY}/daemon)
if(IS_DIRECTORY ${root}/usr/etc)
    file(RENAME ${root}/usr/etc ${root}/etc)
endif()
foreach(unit gemmd.service gemmd@.service)
    set(path ${root}/usr/lib/systemd/system/${unit})
    file(READ ${path} text)
    string(REPLACE "${CPACK_GEMMD_BINDIR}/" "/usr/bin/" text "${text}")
    string(REPLACE "${CPACK_GEMMD_SYSCONFDIR}/" "/etc/" text "${text}")
    file(WRITE ${path} "${text}")
endforeach()
