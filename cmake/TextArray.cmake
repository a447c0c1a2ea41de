# cmake -DINPUT=page.html -DOUTPUT=page.c -P TextArray.cmake: a C array page_html[] with the file's text and a NUL.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(................................)" "\\1\n" lines "${bytes}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " array "${lines}")
get_filename_component(name ${INPUT} NAME)
string(REPLACE "." "_" symbol ${name})
file(WRITE ${OUTPUT} "extern const char ${symbol}[];\nconst char ${symbol}[] = {\n${array}0};\n")
