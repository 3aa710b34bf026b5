// Packs a folder with Go's archive/tar: pack FORMAT ARCHIVE FOLDER
package main

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	format := map[string]tar.Format{"USTAR": tar.FormatUSTAR, "PAX": tar.FormatPAX, "GNU": tar.FormatGNU}[os.Args[1]]
	out, err := os.Create(os.Args[2])
	check(err)
	writer := tar.NewWriter(out)
	root := os.Args[3]
	check(filepath.Walk(root, func(path string, info os.FileInfo, err error) error {
		check(err)
		link := ""
		if info.Mode()&os.ModeSymlink != 0 {
			link, err = os.Readlink(path)
			check(err)
		}
		header, err := tar.FileInfoHeader(info, link)
		check(err)
		header.Name, err = filepath.Rel(root, path)
		check(err)
		if info.IsDir() {
			header.Name += "/"
		}
		header.Format = format
		if format == tar.FormatUSTAR {
			header.ModTime = header.ModTime.Truncate(time.Second)
			header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
		}
		if writer.WriteHeader(header) != nil { // leave out entries that the format cannot hold
			return nil
		}
		if info.Mode().IsRegular() {
			file, err := os.Open(path)
			check(err)
			_, err = io.Copy(writer, file)
			check(err)
			file.Close()
		}
		return nil
	}))
	check(writer.Close())
	check(out.Close())
}
