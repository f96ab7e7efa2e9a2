// Package images keeps the images of a conversation: their bytes lie beside the
// session's file, or in memory where nothing is saved, and are found by their
// digest.
//
//	store := images.New(images.Options{Dir: images.Dir(file)})
//	image, err := store.Put(data, "", "diagram.png") // into Message.Images
//	data, err = store.Get(image)                      // for a request
//
// A Store is safe for concurrent use and starts no goroutine. One process at a
// time writes to a directory: the one that holds the session. It refuses what
// its content does not show to be a PNG, JPEG, GIF or WebP image, more than
// MaxSize of one, and bytes that are not those that were put. See SPEC.md §3.8
// and §4.6.
package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	// MaxSize bounds one image, in bytes.
	MaxSize = 5 << 20
	// maxMemoryBytes bounds what a Store without a directory holds, in bytes. The
	// oldest images are forgotten.
	maxMemoryBytes = 64 << 20
	// maxName bounds the name of an image, in bytes.
	maxName = 256
)

var (
	// ErrKind says that the content is no image of a kind that models read.
	ErrKind = errors.New("is no PNG, JPEG, GIF or WebP image")
	// ErrTooLarge says that an image exceeds MaxSize.
	ErrTooLarge = fmt.Errorf("is larger than the %d bytes that an image may have", MaxSize)
	// ErrGone says that the bytes of an image are not there any more.
	ErrGone = errors.New("the image is not there any more")
)

// Dir is the directory for the images of the session in that file; "" for "".
func Dir(sessionFile string) string {
	if sessionFile == "" {
		return ""
	}
	return strings.TrimSuffix(sessionFile, filepath.Ext(sessionFile)) + ".files"
}

// MIMEType is the MIME type of an image by its first bytes; "" if it is none that
// models read.
func MIMEType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	default:
		return ""
	}
}

// Options says where images are kept.
type Options struct {
	// Dir holds the files; it is made (0700) with the first image. "" keeps them
	// in memory.
	Dir string
	// NoSync leaves the files to the operating system.
	NoSync bool
}

// Store is where the images of one conversation are.
type Store struct {
	options Options

	mu          sync.Mutex // guards all below, and the directory
	memory      map[string][]byte
	oldestFirst []string // of memory, the oldest first
	memoryBytes int      // bytes in memory
}

// New returns a Store. It touches no file.
func New(o Options) *Store { return &Store{options: o, memory: map[string][]byte{}} }

// Put keeps an image. mime is what its source calls it and goes into the error
// alone: the content decides. The error is ErrKind, ErrTooLarge or that of the
// disk.
func (s *Store) Put(data []byte, mime, name string) (protocol.Image, error) {
	kind := MIMEType(data)
	switch {
	case kind == "" && mime != "":
		return protocol.Image{}, fmt.Errorf("the content, said to be %.64q, %w", mime, ErrKind)
	case kind == "":
		return protocol.Image{}, fmt.Errorf("the content %w", ErrKind)
	case len(data) > MaxSize:
		return protocol.Image{}, fmt.Errorf("the image of %d bytes %w", len(data), ErrTooLarge)
	}
	digest := sha256.Sum256(data)
	image := protocol.Image{
		Name: strings.ToValidUTF8(textcut.Head(name, maxName), ""), Mime: kind, Size: int64(len(data)), SHA256: hex.EncodeToString(digest[:]),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Dir == "" {
		s.remember(image.SHA256, data)
		return image, nil
	}
	if err := s.write(image, data); err != nil {
		return protocol.Image{}, fmt.Errorf("save image: %w", err)
	}
	return image, nil
}

// remember keeps data in memory and forgets the oldest if that is too much.
func (s *Store) remember(digest string, data []byte) {
	if _, known := s.memory[digest]; known {
		return
	}
	s.memory[digest] = bytes.Clone(data)
	s.oldestFirst = append(s.oldestFirst, digest)
	for s.memoryBytes += len(data); s.memoryBytes > maxMemoryBytes; s.oldestFirst = s.oldestFirst[1:] {
		s.memoryBytes -= len(s.memory[s.oldestFirst[0]])
		delete(s.memory, s.oldestFirst[0])
	}
}

// write puts data into its file, whole or not at all.
func (s *Store) write(image protocol.Image, data []byte) error {
	path := filepath.Join(s.options.Dir, image.SHA256)
	if old, err := read(path, image); err == nil && bytes.Equal(old, data) {
		return nil
	}
	if err := safefile.Mkdir(s.options.Dir); err != nil {
		return err
	}
	if err := safefile.Replace(path, data, !s.options.NoSync); err != nil || s.options.NoSync {
		return err
	}
	return safefile.SyncDir(filepath.Dir(s.options.Dir)) // which Dir may be new in
}

// Get returns the bytes of an image that was put, perhaps by an earlier
// process. They must not be changed. ErrGone says that they are not there.
func (s *Store) Get(image protocol.Image) ([]byte, error) {
	if digest, err := hex.DecodeString(image.SHA256); err != nil || len(digest) != sha256.Size {
		return nil, fmt.Errorf("read image: %.80q is no digest", image.SHA256)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.options.Dir == "" {
		if data, ok := s.memory[image.SHA256]; ok {
			return data, nil
		}
		return nil, fmt.Errorf("read image: %w", ErrGone)
	}
	data, err := read(filepath.Join(s.options.Dir, image.SHA256), image)
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	return data, nil
}

// read reads the file of an image and checks that it holds that image.
func read(path string, image protocol.Image) ([]byte, error) {
	data, err := safefile.Read(path, MaxSize)
	if err != nil {
		return nil, err
	}
	if digest := sha256.Sum256(data); hex.EncodeToString(digest[:]) != strings.ToLower(image.SHA256) {
		return nil, errors.New("its file is damaged")
	}
	return data, nil
}
