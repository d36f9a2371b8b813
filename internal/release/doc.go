// Command release makes what people download: for every platform an archive with the static binary, the manual page,
// completions, the licence and those of what is inside, and SHA256SUMS over the archives.
//
// The same source, version and Go release give the same bytes, wherever and whenever they are built: nothing of the
// machine, its clock or its folders gets in. Paths are trimmed, the toolchain's note about the repository is left out
// and the version stamped instead, entries of archives are sorted and carry the time of the commit. With -check it
// builds twice, from copies in two folders, the second time with an empty build cache, and compares.
package main
