# Run by CPack on the packages' files before it packs them: configuration belongs in /etc, whatever the prefix, and units
# name programs by the places that the package has them in.
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
