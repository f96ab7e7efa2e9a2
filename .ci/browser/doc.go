// Package browser tests the page of a nexus server in a real browser (make
// test-browser). It is a module of its own, so that the driver of the browser is
// no dependency of nexus. It needs chromium, and the programs in ../../bin or in
// the directory that NEXUS_BIN names.
package browser
