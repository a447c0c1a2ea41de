# Run by CPack on the packages' files before it packs them: configuration belongs in /etc, whatever the prefix, and units
# name programs by the places that the package has them in; policy wants manuals compressed, and of a licence that every
# Debian system has no copy.
#
# What packing takes is asked for first: without dpkg-shlibdeps CPack would succeed, with packages that depend on nothing.
cmake_minimum_required(VERSION 3.25)
foreach(program dpkg-shlibdeps file gzip)
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
foreach(page daemon/usr/share/man/man5/gemmd.conf.5 daemon/usr/share/man/man8/gemmd.8 dev/usr/share/man/man3/libgemmd.3
        ctl/usr/share/man/man1/gemmctl.1)
    execute_process(COMMAND ${found_gzip} -9n ${CPACK_TEMPORARY_DIRECTORY}/${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(documents daemon/usr/share/doc/gemmd lib/usr/share/doc/${CPACK_DEBIAN_LIB_PACKAGE_NAME} dev/usr/share/doc/libgemmd-dev
        ctl/usr/share/doc/gemmctl)
    file(COPY_FILE ${CPACK_GEMMD_COPYRIGHT} ${CPACK_TEMPORARY_DIRECTORY}/${documents}/copyright)
endforeach()
