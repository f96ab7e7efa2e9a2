package mcp

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/protocol/textcut"
)

// maxEntries is the longest list in a result. What the SDK makes of an entry
// takes far more room than the entry.
const maxEntries = 4096

var errEntries = fmt.Errorf("it sent a list of more than %d entries", maxEntries)

// sanitize looks at a message, valid JSON, that the SDK will read. Content that the SDK cannot
// read, for which it would give up the whole result, becomes a note: data that is no base64, a
// kind that is not known, a member of another type than it has. It returns nil if nothing was to be replaced. An error ends the connection.
func sanitize(message []byte) ([]byte, error) {
	var m sanitizer
	var err error
	gjson.GetBytes(message, "result").ForEach(func(member, list gjson.Result) bool {
		if !list.IsArray() {
			return true
		}
		if list.Get("#").Int() > maxEntries {
			err = errEntries
			return false
		}
		for _, entry := range entries(member.Str, list) {
			switch member.Str {
			case "content":
				m.block(entry)
			case "contents":
				m.resource(entry)
			case "messages":
				if content := entry.Get("content"); content.IsObject() {
					m.block(content)
				}
			}
		}
		return true
	})
	if err != nil || len(m.patches) == 0 {
		return nil, err
	}
	return m.apply(message), nil
}

// entries are those of a list that may hold content; none of any other.
func entries(member string, list gjson.Result) []gjson.Result {
	switch member {
	case "content", "contents", "messages":
	default:
		return nil
	}
	var all []gjson.Result
	list.ForEach(func(_, entry gjson.Result) bool {
		if entry.IsObject() || member == "content" {
			all = append(all, entry)
		}
		return true
	})
	return all
}

// sanitizer collects what is to be replaced in a message, in its order.
type sanitizer struct{ patches []patch }

type patch struct {
	at, length int // bytes of the message
	by         []byte
}

// block is a block of content, as the SDK reads it; resources and data are looked at apart.
type block struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	MIMEType    string `json:"mimeType"`
	URI         string `json:"uri"`
	Name        string `json:"name"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Size        *int64 `json:"size"`
	Annotations *struct {
		Audience     []string `json:"audience"`
		LastModified string   `json:"lastModified"`
		Priority     float64  `json:"priority"`
	} `json:"annotations"`
	Meta     map[string]any `json:"_meta"`
	Resource *struct {
		URI      string         `json:"uri"`
		MIMEType string         `json:"mimeType"`
		Text     string         `json:"text"`
		Meta     map[string]any `json:"_meta"`
	} `json:"resource"`
}

// kinds are those of content in a result.
var kinds = []string{"text", "image", "audio", "resource", "resource_link"}

// block looks at a block of content.
func (m *sanitizer) block(b gjson.Result) {
	var read block
	err := json.Unmarshal([]byte(b.Raw), &read, jsontext.AllowInvalidUTF8(true))
	if b.IsObject() && err == nil && !slices.Contains(kinds, read.Type) {
		m.replace(b, map[string]string{"type": "text", "text": valid(fmt.Sprintf("[%.40s: left out: no known kind of content]", read.Type))})
		return
	}
	if !b.IsObject() || err != nil {
		m.replace(b, map[string]string{"type": "text", "text": "[left out: it is not written as content is]"})
		return
	}
	if !isBase64(b.Get("data")) {
		what := "picture"
		if b.Get("type").Str == "audio" {
			what = "sound"
		}
		m.replace(b, map[string]string{"type": "text", "text": note(what, b.Get("mimeType").Str)})
		return
	}
	m.resource(b.Get("resource"))
}

func (m *sanitizer) resource(r gjson.Result) {
	if !isBase64(r.Get("blob")) {
		m.replace(r, map[string]string{"uri": valid(r.Get("uri").Str), "text": note(textcut.Clip(r.Get("uri").Str, 200), r.Get("mimeType").Str)})
	}
}

func note(what, mime string) string {
	return valid(fmt.Sprintf("[%s, %.40s: left out: its data is no base64]", what, mime))
}

func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// isBase64 reports whether the SDK can read a member as bytes.
func isBase64(v gjson.Result) bool {
	if v.Type == gjson.Null { // or it is not there
		return true
	}
	_, err := base64.StdEncoding.DecodeString(v.Str)
	return v.Type == gjson.String && err == nil
}

func (m *sanitizer) replace(v gjson.Result, by map[string]string) {
	if data, err := json.Marshal(by, json.Deterministic(true)); err == nil {
		m.patches = append(m.patches, patch{v.Index, len(v.Raw), data})
	}
}

func (m *sanitizer) apply(message []byte) []byte {
	var out bytes.Buffer
	from := 0
	for _, p := range m.patches {
		out.Write(message[from:p.at])
		out.Write(p.by)
		from = p.at + p.length
	}
	out.Write(message[from:])
	return out.Bytes()
}
