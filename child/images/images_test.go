package images_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"nexus.internal/child/images"
	"nexus.internal/protocol"
)

const png = "\x89PNG\r\n\x1a\n"

func TestKind(t *testing.T) {
	for head, want := range map[string]string{
		png + "rest": "image/png", "\xff\xd8\xff\xe0": "image/jpeg", "GIF89a": "image/gif", "GIF87a": "image/gif",
		"RIFF\x00\x00\x00\x00WEBPVP8 ": "image/webp",
		"":                             "", "\x89PN": "", "RIFF\x00\x00\x00\x00WAVE": "", "<svg": "", "GIF90a": "",
	} {
		if got := images.MIMEType([]byte(head)); got != want {
			t.Errorf("%q is %q, want %q", head, got, want)
		}
	}
}

// stores are one of each make, and how an image's file is reached.
func stores(t *testing.T) map[string]string {
	return map[string]string{"memory": "", "disk": images.Dir(filepath.Join(t.TempDir(), "a.jsonl"))}
}

func TestPutAndGet(t *testing.T) {
	for name, dir := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := images.New(images.Options{Dir: dir})
			data := []byte(png + "picture")
			image, err := s.Put(data, "image/gif", "a.png")
			if err != nil || image.Mime != "image/png" || image.Size != int64(len(data)) || image.Name != "a.png" {
				t.Fatalf("got %+v, %v", image, err)
			}
			again, err := s.Put(data, "", "b.png")
			if err != nil || again.SHA256 != image.SHA256 || again.Name != "b.png" {
				t.Errorf("got %+v, %v", again, err)
			}
			if got, err := s.Get(image); err != nil || !bytes.Equal(got, data) {
				t.Errorf("got %q, %v", got, err)
			}
			other := image
			other.SHA256 = strings.Repeat("0", 64)
			if _, err := s.Get(other); !errors.Is(err, images.ErrGone) {
				t.Errorf("got %v", err)
			}
			for _, digest := range []string{"", "../../etc/passwd", strings.Repeat("zz", 32), "00"} {
				other.SHA256 = digest
				if _, err := s.Get(other); err == nil {
					t.Errorf("%q was read", digest)
				}
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for name, dir := range stores(t) {
		t.Run(name, func(t *testing.T) {
			s := images.New(images.Options{Dir: dir})
			if _, err := s.Put([]byte("<svg/>"), "image/svg+xml", "a"); !errors.Is(err, images.ErrKind) || !strings.Contains(err.Error(), "image/svg+xml") {
				t.Errorf("got %v", err)
			}
			if _, err := s.Put([]byte(png+strings.Repeat("x", images.MaxSize)), "", "a"); !errors.Is(err, images.ErrTooLarge) {
				t.Errorf("got %v", err)
			}
			if _, err := os.Stat(dir); dir != "" && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("a refusal left %v", err)
			}
		})
	}
}

// What is on the disk serves the next process, is private, and is checked.
func TestFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a.files")
	image, err := images.New(images.Options{Dir: dir}).Put([]byte(png), "", "")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, image.SHA256)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("got %v, %v", info, err)
	}
	next := images.New(images.Options{Dir: dir, NoSync: true})
	if _, err := next.Get(image); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(png+"!"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Get(image); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("got %v", err)
	}
	if _, err := next.Put([]byte(png), "", ""); err != nil {
		t.Fatal(err)
	}
	if _, err := next.Get(image); err != nil {
		t.Errorf("not mended: %v", err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := images.New(images.Options{})
	var stored []protocol.Image
	for i := range 20 {
		image, err := s.Put(append([]byte(png), bytes.Repeat([]byte{byte(i)}, images.MaxSize-100)...), "", "")
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, image)
	}
	kept := 0
	for i, image := range stored {
		if _, err := s.Get(image); err == nil {
			kept++
		} else if i > 10 {
			t.Errorf("image %d is gone", i)
		}
	}
	if kept != 12 {
		t.Errorf("%d images are kept", kept)
	}
}

func TestBeside(t *testing.T) {
	for file, want := range map[string]string{"": "", "/s/a.jsonl": "/s/a.files", "/s/.tmp.jsonl": "/s/.tmp.files"} {
		if got := images.Dir(file); got != want {
			t.Errorf("%q: got %q", file, got)
		}
	}
}
