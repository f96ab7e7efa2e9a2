package mcp

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/tool"
	"nexus.internal/protocol"
	"nexus.internal/protocol/textcut"
)

// What a result may have (SPEC §4.9); the rest is left out, and it says so.
const (
	maxText   = 1 << 20 // bytes
	maxImages = 8
)

// resultBuilder puts a result together, within bounds.
type resultBuilder struct {
	server  *managedServer
	text    strings.Builder
	omitted int // bytes of text that did not fit
	images  []protocol.Image
}

func (h *managedServer) newBuilder() *resultBuilder { return &resultBuilder{server: h} }

func (b *resultBuilder) line(format string, a ...any) { b.add(fmt.Sprintf(format, a...)) }

func (b *resultBuilder) add(text string) {
	text = b.server.server.clean(strings.ToValidUTF8(text, "\uFFFD"))
	if b.text.Len() > 0 && !strings.HasSuffix(b.text.String(), "\n") {
		text = "\n" + text
	}
	fits := textcut.Head(text, maxText-b.text.Len())
	b.text.WriteString(fits)
	b.omitted += len(text) - len(fits)
}

// content adds one block.
func (b *resultBuilder) content(c *content) {
	if c == nil {
		b.line("[left out: it is not written as content is]")
		return
	}
	switch c.Type {
	case "text":
		b.add(c.Text)
	case "image", "audio":
		what := "picture"
		if c.Type == "audio" {
			what = "sound"
		}
		switch data, ok := decodeBase64(c.Data); {
		case !ok:
			b.line("[%s, %.40s: left out: its data is no base64]", what, c.MIMEType)
		case c.Type == "image":
			b.image(data, c.MIMEType, "")
		default:
			b.line("[sound, %.40s, %d bytes: left out]", c.MIMEType, len(data))
		}
	case "resource":
		b.resource(c.Resource)
	case "resource_link":
		b.line("[resource %s]", entryLine(c.URI, c.resource))
	default:
		b.line("[%.40s: left out: no known kind of content]", c.Type)
	}
}

// resource adds the content of a resource.
func (b *resultBuilder) resource(r *resourceContents) {
	if r == nil {
		b.content(nil)
		return
	}
	uri := textcut.Clip(r.URI, 200)
	switch blob, ok := decodeBase64(r.Blob); {
	case !ok:
		b.line("[%s, %.40s: left out: its data is no base64]", uri, r.MIMEType)
	case len(blob) == 0:
		b.add(r.Text)
	case strings.HasPrefix(r.MIMEType, "image/"):
		b.image(blob, r.MIMEType, r.URI)
	default:
		b.line("[%s, %.40s, %d bytes that are no text: left out]", uri, r.MIMEType, len(blob))
	}
}

func (b *resultBuilder) image(data []byte, mime, name string) {
	images := b.server.manager.options.Images
	switch {
	case images == nil:
		b.line("[picture, %.40s, %d bytes: left out]", mime, len(data))
		return
	case len(b.images) == maxImages:
		b.line("[one more picture: left out]")
		return
	}
	image, err := images.Put(data, mime, textcut.Clip(name, 200))
	if err != nil {
		b.line("[picture, %.40s, %d bytes: left out: %v]", mime, len(data), err)
		return
	}
	b.images = append(b.images, image)
}

func (b *resultBuilder) structured(v jsontext.Value) {
	var content any
	err := json.Unmarshal(v, &content, lenient)
	data, writeErr := json.Marshal(content, json.Deterministic(true))
	if err != nil || writeErr != nil {
		b.line("[structured content that cannot be written: left out]")
		return
	}
	b.add(string(data))
}

// result is what was put together.
func (b *resultBuilder) result(isError bool) tool.Result {
	text := b.text.String()
	if b.omitted > 0 {
		text += fmt.Sprintf("\n[%d bytes more are left out]", b.omitted)
	}
	if text == "" && len(b.images) == 0 {
		text = "(no content)"
	}
	return tool.Result{Text: text, IsError: isError, Images: b.images}
}

// build puts the result of a call together.
func (r *callResult) build(b *resultBuilder) tool.Result {
	for _, c := range r.Content {
		b.content(c)
	}
	if b.text.Len() == 0 && len(r.StructuredContent) > 0 && r.StructuredContent.Kind() != 'n' {
		b.structured(r.StructuredContent)
	}
	return b.result(r.IsError)
}

// build puts what a resource has together.
func (r *resourceResult) build(b *resultBuilder) tool.Result {
	for _, c := range r.Contents {
		b.resource(c)
	}
	return b.result(false)
}

// build puts a prompt together.
func (r *promptResult) build(b *resultBuilder) tool.Result {
	for _, m := range r.Messages {
		if m == nil {
			b.content(nil)
			continue
		}
		b.line("%s:", m.Role)
		b.content(&m.Content)
	}
	return b.result(false)
}
