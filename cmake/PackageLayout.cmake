# Run by CPack on each package's files before it packs them: configuration belongs in /etc, whatever the prefix, and
# units name programs by the places that the package has them in.
file(GLOB_RECURSE roots LIST_DIRECTORIES true ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(path ${CPACK_TEMPORARY_DIRECTORY} ${roots})
    if(IS_DIRECTORY ${path}/usr/etc)
        file(RENAME ${path}/usr/etc ${path}/etc)
    endif()
    if(path MATCHES "\\.service$" AND NOT IS_SYMLINK ${path})
        file(READ ${path} text)
        string(REPLACE "${CPACK_GEMMD_BINDIR}/" "/usr/bin/" text "${text}")
        string(REPLACE "${CPACK_GEMMD_SYSCONFDIR}/" "/etc/" text "${text}")
        file(WRITE ${path} "${text}")
    endif()
endforeach()
