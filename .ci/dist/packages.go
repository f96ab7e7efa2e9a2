package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// packageOf writes a package of a kind, deb or rpm, of what is installed below /usr. It returns
// the name of the file.
func (r release) packageOf(kind string, installed tree, s system) (name string, err error) {
	packer, err := nfpm.Get(kind)
	if err != nil {
		return "", err
	}
	contents, err := r.contents(installed)
	if err != nil {
		return "", err
	}
	scripts := filepath.Join(r.source, ".ci", "dist", "scripts")
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "nexus", Platform: s.os, Arch: s.arch, Version: packageVersion(r.version, r.at.Format("20060102")), VersionSchema: "none", Release: "1",
		Section: "utils", Priority: "optional", License: "MIT", MTime: r.at, DisableGlobbing: true,
		Maintainer:  "nexus <nexus@localhost>",
		Description: "process supervisor for AI agents\nEach agent is one process of the operating system, restarted after a crash, and\nreached over a JSON-RPC API. Its programs run confined by the kernel.",
		Overridables: nfpm.Overridables{
			Contents:   contents,
			Recommends: []string{"ca-certificates"},
			Scripts: nfpm.Scripts{
				PostInstall: filepath.Join(scripts, "postinstall"), PreRemove: filepath.Join(scripts, "preremove"), PostRemove: filepath.Join(scripts, "postremove"),
			},
			RPM: nfpm.RPM{BuildHost: "localhost", Summary: "process supervisor for AI agents"},
		},
	})
	name = packer.ConventionalFileName(info)
	return name, r.file(name, func(w io.Writer) error { return packer.Package(info, w) })
}

// contents are the files of a package: man pages compressed, the licence where Debian looks
// for it, and the directory for the keys of the service.
func (r release) contents(installed tree) (all files.Contents, err error) {
	add := func(of, to, kind string, mode fs.FileMode) {
		all = append(all, &files.Content{
			Source: of, Destination: to, Type: kind,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: r.at},
		})
	}
	add("", "/etc/nexus", files.TypeDir, fs.ModeDir|0o700)
	for _, e := range installed {
		to := "/" + e.path
		switch {
		case e.mode.IsDir():
			if strings.HasSuffix(to, "/doc/nexus") || strings.Contains(to, "/doc/nexus/") { // the others are of the system
				add("", to, files.TypeDir, e.mode)
			}
		case strings.Contains(to, "/man/man1/"):
			from := e.from + ".gz"
			if err := compress(e.from, from); err != nil {
				return nil, err
			}
			add(from, to+".gz", files.TypeFile, e.mode)
		default:
			add(e.from, to, files.TypeFile, e.mode)
			if strings.HasSuffix(to, "/doc/nexus/LICENSE") {
				add(e.from, strings.TrimSuffix(to, "LICENSE")+"copyright", files.TypeFile, e.mode)
			}
		}
	}
	return all, nil
}

// compress writes a file that is as another one, compressed.
func compress(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.WriteFile(to, packed.Bytes(), 0o644)
}

// described is what git describe says behind a tag.
var described = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)

// candidate is the tag of a version to come.
var candidate = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)-([0-9A-Za-z.]+)$`)

// packageVersion is a version as dpkg and rpm compare it: what was made behind a tag is newer than
// the tag, a candidate is older than its version, and what has no tag, as made on a day, is older
// than all versions.
func packageVersion(version, day string) string {
	if m := described.FindStringSubmatch(version); m != nil && strings.Contains(m[1], ".") {
		version = m[1]
		if m[2] != "" {
			version += fmt.Sprintf("+%s.%s", m[2], m[3])
		}
		if m[4] != "" {
			version += "+dirty"
		}
		return version
	}
	if m := candidate.FindStringSubmatch(version); m != nil && strings.Contains(m[1], ".") {
		return m[1] + "~" + m[2]
	}
	return "0~" + day + "." + noVersion.ReplaceAllString(version, ".")
}

var noVersion = regexp.MustCompile(`[^0-9A-Za-z.]+`)
