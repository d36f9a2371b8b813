package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"sort"
	"time"
)

// entry is one file of an archive.
type entry struct {
	name string // below the archive's top folder
	mode fs.FileMode
	data []byte
}

// pack returns a .tar.gz that depends only on its arguments.
func pack(folder string, at time.Time, entries []entry) ([]byte, error) {
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	zip.OS = 255 // unknown
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		err := archive.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + e.name, Size: int64(len(e.data)), Mode: int64(e.mode), ModTime: at, Format: tar.FormatUSTAR,
		})
		if err != nil {
			return nil, err
		}
		if _, err := archive.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
