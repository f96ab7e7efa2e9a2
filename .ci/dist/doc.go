// Command dist packs nexus for those who do not build it: archives, .deb and .rpm packages, and
// images for containers, with the sums of all.
//
//	cd .ci/dist && go run . -source ../.. -out ../../dist -version v1.2.3 -commit 0123… -time 1700000000
//
// What is packed is what make install installs, so there is one list of it. The same source, with
// the same version, commit and time, makes the same bytes, wherever it lies and whoever makes it:
// entries are sorted, belong to root, and have that time.
package main
