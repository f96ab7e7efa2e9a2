package child

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"nexus.internal/child/images"
	"nexus.internal/child/toolenv"
	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	maxAttachments     = 16                       // of one prompt
	maxAttachmentText  = protocol.MaxAttachedText // bytes of one file that are inlined
	maxAttachmentImage = 20 << 20                 // bytes of all images of one prompt
)

// agentFiles are the files that the agent may read, and where images of them are kept.
type agentFiles struct {
	env    *toolenv.Env // nil: there are none
	images *images.Store
}

// opened is a regular file that the agent may read.
type opened struct {
	*os.File
	path string // relative to the working directory where it lies in it
	size int64  // bytes
}

// open opens a file as the tools may without asking. Its path is absolute or
// relative to the working directory; the error names it.
func (files agentFiles) open(path string) (*opened, error) {
	if files.env == nil {
		return nil, errors.New("there is no working directory")
	}
	f, info, err := files.env.Open(filepath.FromSlash(path))
	if err != nil {
		return nil, err
	}
	if below, ok := safefile.Below(files.env.Cwd(), path); ok {
		path = below
	}
	return &opened{File: f, path: path, size: info.Size()}, nil
}

// head is the beginning of what is left to read, whole characters of at most
// limit bytes if it is text.
func (f *opened) head(limit int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+utf8.UTFMax))
	if err != nil {
		return "", err
	}
	return textcut.Head(string(data), limit), nil
}

func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// attach adds the attachments to a message: text as it stands, images as such,
// anything else by its name, type and size.
func (files agentFiles) attach(message string, attachments []protocol.Attachment) (string, []protocol.Image, error) {
	if len(attachments) > maxAttachments {
		return "", nil, fmt.Errorf("%d attachments, at most %d are taken", len(attachments), maxAttachments)
	}
	var b strings.Builder
	b.WriteString(message)
	var images []protocol.Image
	room := int64(maxAttachmentImage)
	for _, a := range attachments {
		image, err := files.attachOne(&b, a, &room)
		if err != nil {
			return "", nil, fmt.Errorf("attachment: %w", err)
		}
		if image != nil {
			images = append(images, *image)
		}
	}
	return b.String(), images, nil
}

// attachOne adds one file. It takes what an image needs from room.
func (files agentFiles) attachOne(b *strings.Builder, a protocol.Attachment, room *int64) (*protocol.Image, error) {
	if err := a.Check(); err != nil {
		return nil, err
	}
	if a.Path == "" {
		return files.attachBrought(b, a, room)
	}
	f, err := files.open(a.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxAttachmentText+1))
	if err != nil {
		return nil, err
	}
	name, at := textcut.Name(protocol.ValueOr(a.Name, filepath.Base(f.path))), textcut.Name(f.path)
	kind := protocol.ValueOr(a.Mime, mime.TypeByExtension(filepath.Ext(f.path)))
	why := ""
	if found := images.MIMEType(head); found != "" {
		kind = found
		if f.size <= min(images.MaxSize, *room) {
			return files.attachImage(b, f, head, name, room)
		}
		why = "; it is too large to be shown"
	}
	if kind == "" {
		kind = "unknown type"
	}
	if len(head) > maxAttachmentText || !isText(string(head)) {
		fmt.Fprintf(b, "\n\n[attached: %s, %s, %d bytes, at %s%s]", name, kind, f.size, at, why)
		return nil, nil
	}
	inline(b, name, string(head))
	return nil, nil
}

func inline(b *strings.Builder, name, text string) {
	fmt.Fprintf(b, "\n\n[attached: %s]\n%s\n[end of %s]", name, text, name)
}

// described are attachments as the conversation names them.
func described(attachments []protocol.Attachment) (list []protocol.Attachment) {
	for _, a := range attachments {
		list = append(list, a.Described())
	}
	return list
}

// attachBrought adds what the parent brings. What the model could not be shown is refused, as
// it is nowhere else.
func (files agentFiles) attachBrought(b *strings.Builder, a protocol.Attachment, room *int64) (*protocol.Image, error) {
	content, err := a.Content()
	if err != nil {
		return nil, err
	}
	name := *a.Name
	if a.Data == nil || images.MIMEType(content) == "" {
		switch {
		case !isText(string(content)):
			return nil, fmt.Errorf("%s is neither text in UTF-8 nor an image (PNG, JPEG, GIF or WebP): attach others by their path", name)
		case len(content) > maxAttachmentText:
			return nil, fmt.Errorf("%s has %d bytes of text, at most %d are taken: attach it by its path", name, len(content), maxAttachmentText)
		}
		inline(b, name, string(content))
		return nil, nil
	}
	if int64(len(content)) > *room {
		return nil, fmt.Errorf("%s: the images of a prompt may have %d bytes in all", name, maxAttachmentImage)
	}
	image, err := files.images.Put(content, "", name)
	if err != nil {
		return nil, fmt.Errorf("%s %w", name, err)
	}
	*room -= image.Size
	fmt.Fprintf(b, "\n\n[attached image: %s, %s, %d bytes]", name, image.Mime, image.Size)
	return &image, nil
}

// attachImage keeps an image whose head has been read.
func (files agentFiles) attachImage(b *strings.Builder, f *opened, head []byte, name string, room *int64) (*protocol.Image, error) {
	rest, err := io.ReadAll(io.LimitReader(f, images.MaxSize+1))
	if err != nil {
		return nil, err
	}
	image, err := files.images.Put(append(head, rest...), "", name)
	if err != nil {
		return nil, err
	}
	*room -= image.Size
	fmt.Fprintf(b, "\n\n[attached image: %s, %s, %d bytes, at %s]", name, image.Mime, image.Size, textcut.Name(f.path))
	return &image, nil
}
