package child

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"unicode/utf8"

	"nexus.internal/child/blob"
	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

const (
	maxAttachments     = 16        // of one prompt
	maxAttachmentText  = 256 << 10 // bytes of one file that are inlined
	maxAttachmentImage = 20 << 20  // bytes of all images of one prompt
)

// inside is a regular file in the working directory.
type inside struct {
	*os.File
	root *os.Root
	path string // relative to the root
	size int64  // bytes
}

func (f *inside) Close() error { return errors.Join(f.File.Close(), f.root.Close()) }

// openInside opens a file for reading. Its path is absolute or relative to cwd;
// it lies inside cwd, symbolic links included. The error says why not, without
// the path.
func openInside(cwd, path string) (_ *inside, err error) {
	path = filepath.FromSlash(path)
	if filepath.IsAbs(path) {
		if path, err = filepath.Rel(cwd, path); err != nil {
			return nil, file.ErrOutside
		}
	}
	if !filepath.IsLocal(path) {
		return nil, file.ErrOutside
	}
	root, err := os.OpenRoot(cwd)
	if err != nil {
		return nil, fmt.Errorf("open working directory: %w", err)
	}
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would be waited for
	if err != nil {
		return nil, errors.Join(file.Reason(root, path, err), root.Close())
	}
	opened := &inside{File: f, root: root, path: path}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	opened.size = info.Size()
	return opened, nil
}

// text is the file's text, at most limit bytes, whole characters. An error says
// that it is no text.
func (f *inside) text(limit int) (string, error) {
	head, err := io.ReadAll(io.LimitReader(f, int64(limit)+utf8.UTFMax))
	if err != nil {
		return "", file.Reason(f.root, f.path, err)
	}
	text := cut(string(head), limit)
	if !isText(text) {
		return "", errors.New("is not UTF-8 text")
	}
	return text, nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// attach adds the attachments to a message: text as it stands, images as such,
// anything else by its name, type and size.
func (s *server) attach(message string, attachments []protocol.Attachment) (string, []protocol.Image, error) {
	if len(attachments) > maxAttachments {
		return "", nil, fmt.Errorf("%d attachments, at most %d are taken", len(attachments), maxAttachments)
	}
	var b strings.Builder
	b.WriteString(message)
	var images []protocol.Image
	room := int64(maxAttachmentImage)
	for _, a := range attachments {
		image, err := s.attachOne(&b, a, &room)
		if err != nil {
			return "", nil, fmt.Errorf("attachment %s: %w", a.Path, err)
		}
		if image != nil {
			images = append(images, *image)
		}
	}
	return b.String(), images, nil
}

// attachOne adds one file. It takes what an image needs from room.
func (s *server) attachOne(b *strings.Builder, a protocol.Attachment, room *int64) (*protocol.Image, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	f, err := openInside(s.cwd(), a.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxAttachmentText+1))
	if err != nil {
		return nil, file.Reason(f.root, f.path, err)
	}
	name, kind := filepath.Base(f.path), mime.TypeByExtension(filepath.Ext(f.path))
	if a.Name != nil {
		name = *a.Name
	}
	if a.Mime != nil {
		kind = *a.Mime
	}
	why := ""
	if found := blob.Kind(head); found != "" {
		kind = found
		if f.size <= min(blob.MaxSize, *room) {
			return s.attachImage(b, f, head, name, room)
		}
		why = "; it is too large to be shown"
	}
	if kind == "" {
		kind = "unknown type"
	}
	if len(head) > maxAttachmentText || !isText(string(head)) {
		fmt.Fprintf(b, "\n\n[attached: %s, %s, %d bytes, at %s%s]", name, kind, f.size, f.path, why)
		return nil, nil
	}
	fmt.Fprintf(b, "\n\n[attached: %s]\n%s\n[end of %s]", name, head, name)
	return nil, nil
}

// attachImage keeps an image whose head has been read.
func (s *server) attachImage(b *strings.Builder, f *inside, head []byte, name string, room *int64) (*protocol.Image, error) {
	rest, err := io.ReadAll(io.LimitReader(f, blob.MaxSize+1))
	if err != nil {
		return nil, file.Reason(f.root, f.path, err)
	}
	image, err := s.Images.Put(append(head, rest...), "", name)
	if err != nil {
		return nil, err
	}
	*room -= image.Size
	fmt.Fprintf(b, "\n\n[attached image: %s, %s, %d bytes, at %s]", name, image.Mime, image.Size, f.path)
	return &image, nil
}
