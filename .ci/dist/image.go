package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// user is whom the programs run as in a container.
const user = 65532

// descriptor names a blob, as the image specification of the Open Container Initiative (OCI)
// has it.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// blobs are the files of an image that are named by their sums.
type blobs struct{ all tree }

// add keeps a blob, and says how it is named.
func (b *blobs) add(kind string, text []byte) descriptor {
	sum := fmt.Sprintf("%x", sha256.Sum256(text))
	b.all = append(b.all, entry{path: "blobs/sha256/" + sum, mode: 0o644, text: text})
	return descriptor{MediaType: "application/vnd.oci.image." + kind, Digest: "sha256:" + sum, Size: len(text)}
}

func (d descriptor) path() string { return "blobs/" + strings.Replace(d.Digest, ":", "/", 1) }

// object is a value in JSON, whose members are sorted by their names.
type object map[string]any

// image writes an image of one layer, from nothing: the programs, roots of certificates, and a
// user. It is a directory as OCI lays it out, with the manifest.json that docker load reads.
func (r release) image(w io.Writer, installed tree, s system) error {
	files, err := layer(installed)
	if err != nil {
		return err
	}
	var plain, packed bytes.Buffer
	if err := writeTar(&plain, "", files, r.at); err != nil {
		return err
	}
	out := gzip.NewWriter(&packed)
	_, err = out.Write(plain.Bytes())
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	var b blobs
	content := b.add("layer.v1.tar+gzip", packed.Bytes())
	at := r.at.Format("2006-01-02T15:04:05Z")
	config, err := json.Marshal(object{
		"created": at, "architecture": s.arch, "os": s.os,
		"config": object{
			"User": fmt.Sprintf("%d:%d", user, user), "WorkingDir": "/work", "Entrypoint": []string{"/usr/bin/nexus"}, "Cmd": []string{"serve"},
			"Env": []string{"PATH=/usr/bin:/bin", "HOME=/home/nexus"}, "Volumes": object{"/home/nexus": object{}, "/work": object{}},
			"Labels": object{
				"org.opencontainers.image.title": "nexus", "org.opencontainers.image.version": r.version, "org.opencontainers.image.revision": r.commit,
				"org.opencontainers.image.licenses": "MIT",
			},
		},
		"rootfs":  object{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(plain.Bytes()))}},
		"history": []object{{"created": at, "created_by": "make dist"}},
	})
	if err != nil {
		return err
	}
	settings := b.add("config.v1+json", config)
	text, err := json.Marshal(object{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": settings, "layers": []descriptor{content},
	})
	if err != nil {
		return err
	}
	manifest := b.add("manifest.v1+json", text)
	tag := noTag.ReplaceAllString(r.version, "-")
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": "docker.io/library/nexus:" + tag}
	for name, value := range map[string]any{
		"oci-layout": object{"imageLayoutVersion": "1.0.0"},
		"index.json": object{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []descriptor{manifest}},
		"manifest.json": []object{{
			"Config": settings.path(), "RepoTags": []string{"nexus:" + tag}, "Layers": []string{content.path()},
		}},
	} {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		b.all = append(b.all, entry{path: name, mode: 0o644, text: text})
	}
	return writeTar(w, "", b.all.sorted(), r.at)
}

// noTag are the characters of a version that the tag of an image cannot have.
var noTag = regexp.MustCompile(`[^0-9A-Za-z._-]`)

// layer is what is in the image.
func layer(installed tree) (tree, error) {
	roots := certificates()
	if len(roots) == 0 {
		return nil, errors.New("there are no roots of certificates")
	}
	account := fmt.Sprintf("nexus:x:%d:", user)
	files := tree{
		{path: "etc/passwd", mode: 0o644, text: []byte(account + fmt.Sprintf("%d::/home/nexus:/sbin/nologin\n", user))},
		{path: "etc/group", mode: 0o644, text: []byte(account + "\n")},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, text: roots},
		{path: "home/nexus", mode: fs.ModeDir | 0o700, owner: user},
		{path: "work", mode: fs.ModeDir | 0o755, owner: user},
		{path: "tmp", mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	for _, e := range installed {
		switch e.path {
		case "usr/bin/nexus", "usr/bin/nexus-child", "usr/bin/nexus-rpc", "usr/bin/nexus-cluster", "usr/share/doc/nexus/LICENSE", "usr/share/doc/nexus/NOTICE":
			files = append(files, e)
		}
	}
	return files.sorted(), nil
}

// certificates are the roots that Mozilla trusts, as the version of the module that go.mod names
// has them: those of this machine would make the image another one on each. Those that are trusted
// under a condition, such as until a day, are left out, as a file cannot have one.
func certificates() []byte {
	var text bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&text, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a buffer takes it
		}
	}
	return text.Bytes()
}
