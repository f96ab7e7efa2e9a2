package mcp

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

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
func (b *resultBuilder) content(c sdk.Content) {
	switch c := c.(type) {
	case *sdk.TextContent:
		b.add(c.Text)
	case *sdk.ImageContent:
		b.image(c.Data, c.MIMEType, "")
	case *sdk.EmbeddedResource:
		b.resource(c.Resource)
	case *sdk.ResourceLink:
		b.line("[resource %s]", entryLine(c.URI, c.Name, c.MIMEType, c.Description))
	case *sdk.AudioContent:
		b.line("[sound, %.40s, %d bytes: left out]", c.MIMEType, len(c.Data))
	default:
		b.line("[content that is not known: left out]")
	}
}

// resource adds the content of a resource.
func (b *resultBuilder) resource(r *sdk.ResourceContents) {
	switch {
	case r == nil:
	case len(r.Blob) == 0:
		b.add(r.Text)
	case strings.HasPrefix(r.MIMEType, "image/"):
		b.image(r.Blob, r.MIMEType, r.URI)
	default:
		b.line("[%s, %.40s, %d bytes that are no text: left out]", textcut.Clip(r.URI, 200), r.MIMEType, len(r.Blob))
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

func (b *resultBuilder) structured(v any) {
	data, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
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
