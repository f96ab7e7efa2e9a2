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

	"nexus.internal/child/tool/file"
	"nexus.internal/protocol"
)

const (
	maxAttachments    = 16        // of one prompt
	maxAttachmentText = 256 << 10 // bytes of one file that are inlined
)

// inline adds the attachments to a message: text as it stands, anything else
// by its name, type and size. Every file lies inside cwd, symbolic links
// included.
func inline(cwd, message string, attachments []protocol.Attachment) (string, error) {
	if len(attachments) == 0 {
		return message, nil
	}
	if len(attachments) > maxAttachments {
		return "", fmt.Errorf("%d attachments, at most %d are taken", len(attachments), maxAttachments)
	}
	root, err := os.OpenRoot(cwd)
	if err != nil {
		return "", fmt.Errorf("read attachments: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing was written
	var b strings.Builder
	b.WriteString(message)
	for _, a := range attachments {
		if err := inlineOne(&b, root, cwd, a); err != nil {
			return "", fmt.Errorf("attachment %s: %w", a.Path, err)
		}
	}
	return b.String(), nil
}

func inlineOne(b *strings.Builder, root *os.Root, cwd string, a protocol.Attachment) error {
	if err := a.Check(); err != nil {
		return err
	}
	relative, err := filepath.Rel(cwd, filepath.FromSlash(a.Path))
	if err != nil || !filepath.IsLocal(relative) {
		return file.ErrOutside
	}
	info, err := root.Stat(relative)
	if err != nil {
		return file.Reason(root, relative, err)
	}
	if !info.Mode().IsRegular() {
		return errors.New("is not a regular file")
	}
	f, err := root.Open(relative)
	if err != nil {
		return file.Reason(root, relative, err)
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, maxAttachmentText+1))
	if err != nil {
		return file.Reason(root, relative, err)
	}
	name, kind := filepath.Base(relative), mime.TypeByExtension(filepath.Ext(relative))
	if a.Name != nil {
		name = *a.Name
	}
	if a.Mime != nil {
		kind = *a.Mime
	}
	if kind == "" {
		kind = "unknown type"
	}
	if len(head) > maxAttachmentText || !utf8.Valid(head) || strings.ContainsRune(string(head), 0) {
		fmt.Fprintf(b, "\n\n[attached: %s, %s, %d bytes, at %s]", name, kind, info.Size(), relative)
		return nil
	}
	fmt.Fprintf(b, "\n\n[attached: %s]\n%s\n[end of %s]", name, head, name)
	return nil
}
