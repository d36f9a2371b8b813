// Command release builds the downloads: for every platform an archive with the static binary, the manual pages,
// completions, the licence and the licences of all modules in the binary, and SHA256SUMS of the archives.
//
// The build is reproducible: the same source, version and Go release give the same bytes on every machine and at any
// time. Paths are trimmed, the version is stamped instead of the toolchain's VCS information, archive entries are
// sorted, and archive entries and manual pages carry the time of the commit. With -check, release builds twice, from
// copies in two folders, the second time with an empty build cache, and compares the bytes.
package main
