package acpserve

import (
	"cmp"
	"fmt"
	"mime"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"nexus.internal/protocol"
	"nexus.internal/protocol/safefile"
	"nexus.internal/protocol/textcut"
)

const (
	// maxPrompt bounds what a prompt brings, in bytes as it is sent: a request to the server has
	// at most 1 MiB.
	maxPrompt = 1<<20 - 16<<10
	// maxLinked bounds a file that is attached because the prompt links to it, in bytes. The agent
	// reads a larger one by itself.
	maxLinked = protocol.MaxAttachedText
)

// message makes of a prompt a message and the files that go with it. dir is the agent's.
func message(prompt []block, dir string) (text string, files []protocol.Attachment, err error) {
	var b strings.Builder
	for i, one := range prompt {
		switch {
		case one.Type == "text":
			b.WriteString(one.Text)
		case one.Type == "image":
			files = append(files, image(one, len(files)+1))
		case one.Type == "resource_link" && one.URI != nil:
			file := fileOf(*one.URI)
			b.WriteString(reference(cmp.Or(one.Name, baseOf(*one.URI)), *one.URI))
			if file != "" && isSmall(file, dir) {
				files = append(files, protocol.Attachment{Path: file})
			}
		case one.Type == "resource" && one.Resource != nil:
			attached, fits := embedded(*one.Resource)
			b.WriteString(reference(*attached.Name, one.Resource.URI))
			switch {
			case fits:
				files = append(files, attached)
			case fileOf(one.Resource.URI) == "": // else the agent reads it by itself
				return "", nil, invalid("prompt[%d]: %s has %d bytes of text, at most %d are taken", i, *attached.Name, len(*one.Resource.Text), protocol.MaxAttachedText)
			}
		default:
			return "", nil, invalid("prompt[%d]: content of the type %.64q cannot be taken: send text, images, resources and links to them", i, one.Type)
		}
	}
	size := b.Len()
	for _, file := range files {
		if err := file.Check(); err != nil {
			return "", nil, invalid("%v", err)
		}
		size += len(protocol.Value(file.Text)) + len(protocol.Value(file.Data))
	}
	if size > maxPrompt {
		return "", nil, invalid("the prompt has %d bytes with what goes with it, at most %d are taken: put large files where the agent reads them, and name them", size, maxPrompt)
	}
	if size == 0 && len(files) == 0 {
		return "", nil, invalid("the prompt is empty")
	}
	return b.String(), files, nil
}

// reference is how a file stands in the text of a message.
func reference(name, uri string) string {
	if file := fileOf(uri); file != "" {
		uri = file
	}
	return fmt.Sprintf("[%s](%s)", name, uri)
}

// image is the attachment of the n-th file.
func image(one block, n int) protocol.Attachment {
	name := fmt.Sprintf("image-%d", n)
	if one.URI != nil && *one.URI != "" {
		name = baseOf(*one.URI)
	} else if known, err := mime.ExtensionsByType(protocol.Value(one.MimeType)); err == nil && len(known) > 0 {
		name += known[len(known)-1]
	}
	return protocol.Attachment{Name: &name, Mime: one.MimeType, Data: &one.Data}
}

// embedded is the attachment of a resource; false if its text is too long for one.
func embedded(r resource) (a protocol.Attachment, fits bool) {
	a = protocol.Attachment{Name: new(baseOf(r.URI)), Mime: r.MimeType, Text: r.Text}
	if r.Text == nil {
		a.Data = new(protocol.Value(r.Blob))
	}
	return a, len(protocol.Value(r.Text)) <= protocol.MaxAttachedText
}

// baseOf is the last part of the path of a URI, as people name a file.
func baseOf(uri string) string {
	name := uri
	if u, err := url.Parse(uri); err == nil && u.Path != "" {
		name = u.Path
	}
	return cmp.Or(textcut.Name(textcut.Head(path.Base(name), 200)), "resource")
}

// fileOf is the path of a URI of a file on this machine; "" for another.
func fileOf(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || u.Scheme != "file" || u.Host != "" && u.Host != "localhost" || !filepath.IsAbs(u.Path) {
		return ""
	}
	return filepath.Clean(u.Path)
}

// isSmall reports whether a file is a regular one of the agent's directory, wherever links lead, that can be attached. The
// agent itself decides whether it may read it, and refuses the whole prompt if not.
func isSmall(file, dir string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	file = safefile.ThroughNoLink(file)
	if _, inside := safefile.Below(dir, file); !inside {
		return false
	}
	info, err := os.Lstat(file)
	return err == nil && info.Mode().IsRegular() && info.Size() <= maxLinked
}
