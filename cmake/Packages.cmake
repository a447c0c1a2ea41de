# Debian packages: deploy/install-deps package && cmake --preset package && cmake --build --preset package && (cd build/package && cpack)
#
# gemmd (the daemon), libgemmd0.1 (the client library), libgemmd-dev, gemmctl. What is installed without a component is
# the daemon's. PackageLayout.cmake puts right what depends on the prefix that the build was configured for, so that
# any build can be packed.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gemmd)
set(CPACK_PACKAGE_VENDOR "gemmd")
set(CPACK_PACKAGE_CONTACT "the maintainers of gemmd")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "") # each package has a first line of its own
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL daemon lib dev ctl)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_SOURCE_DIR}/cmake/PackageLayout.cmake)
# As the layout script finds them, for it is a script of its own.
set(CPACK_GEMMD_COPYRIGHT ${CMAKE_SOURCE_DIR}/deploy/debian/copyright)
set(CPACK_GEMMD_BINDIR ${CMAKE_INSTALL_FULL_BINDIR})
set(CPACK_GEMMD_SYSCONFDIR ${CMAKE_INSTALL_FULL_SYSCONFDIR})

set(library libgemmd${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR}/client)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_DAEMON_PACKAGE_NAME gemmd)
set(CPACK_DEBIAN_DAEMON_PACKAGE_SECTION science)
set(CPACK_DEBIAN_DAEMON_DESCRIPTION "daemon that multiplies by quantised weights for all processes
gemmd owns the devices of a machine and one packed copy of each quantised
weight. Other processes hand it activations through shared memory and get
products back. Requests of different processes share launches.")
set(CPACK_DEBIAN_DAEMON_PACKAGE_DEPENDS procps) # the unit's reload is /bin/kill
set(CPACK_DEBIAN_DAEMON_PACKAGE_RECOMMENDS "gemmctl (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DAEMON_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles
    ${CMAKE_SOURCE_DIR}/deploy/debian/postinst ${CMAKE_SOURCE_DIR}/deploy/debian/prerm
    ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)

set(CPACK_DEBIAN_LIB_PACKAGE_NAME ${library})
set(CPACK_DEBIAN_LIB_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIB_DESCRIPTION "client library of gemmd
Opens a connection to the daemon gemmd, shares buffers with it, and has it
multiply by its weights.")

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libgemmd-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "${library} (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_DEV_DESCRIPTION "client library of gemmd, development files
Headers, pkg-config and CMake files, and the manual page.")

set(CPACK_DEBIAN_CTL_PACKAGE_NAME gemmctl)
set(CPACK_DEBIAN_CTL_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_CTL_PACKAGE_SUGGESTS gemmd)
set(CPACK_DEBIAN_CTL_DESCRIPTION "command-line tool of gemmd
Loads models into the daemon gemmd, shows what it does, and finds out what
keeps a machine from being fast.")

# Policy wants the licence of each package in its own folder.
foreach(pair "daemon gemmd" "lib ${library}" "dev libgemmd-dev" "ctl gemmctl")
    string(REPLACE " " ";" pair ${pair})
    list(GET pair 0 component)
    list(GET pair 1 package)
    install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} RENAME copyright
        COMPONENT ${component})
endforeach()

include(CPack)
