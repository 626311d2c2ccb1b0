# Embeds the page's own files and Chart.js (Debian: libjs-chart.js) as strings; sets SHARDSIM_ASSETS_SOURCE to the generated file.
find_file(SHARDSIM_CHART_JS NAMES chart.min.js chart.umd.js PATHS /usr/share/javascript/chart.js /usr/share/nodejs/chart.js/dist
  DOC "Chart.js, minified, for HTML reports")
set(SHARDSIM_CHART_LIBRARY "")
if(SHARDSIM_CHART_JS)
  file(READ ${SHARDSIM_CHART_JS} SHARDSIM_CHART_LIBRARY)
else()
  message(STATUS "Chart.js not found: --html is left out (install libjs-chart.js)")
endif()
file(READ ${CMAKE_SOURCE_DIR}/reports/assets/report.js SHARDSIM_REPORT_SCRIPT)
file(READ ${CMAKE_SOURCE_DIR}/reports/assets/report.css SHARDSIM_REPORT_STYLE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/reports/assets/report.js
  ${CMAKE_SOURCE_DIR}/reports/assets/report.css)
set(SHARDSIM_ASSETS_SOURCE ${CMAKE_BINARY_DIR}/report_assets.cpp)
configure_file(${CMAKE_SOURCE_DIR}/reports/assets/assets.cpp.in ${SHARDSIM_ASSETS_SOURCE} @ONLY)
