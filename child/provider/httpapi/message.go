package httpapi

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/child/provider"
	"nexus.internal/protocol"
)

// noResult stands for the result of a call that never got one: services refuse
// a conversation in which a call is left open.
const noResult = "The call was interrupted; there is no result."

const (
	noName  = "unnamed" // of a call that the model gave no name: services refuse one that is empty
	maxName = 64        // bytes of a function's name
)

// mimes are the kinds of images that all vendors take.
var mimes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Results finds the results of the calls among the messages that follow, up to
// the next message that is no result: one for each call, in their order. One
// that is missing is made up, and says so.
func Results(calls []protocol.ToolCall, following []protocol.Message) []protocol.Message {
	given := map[string]protocol.Message{}
	for _, m := range following {
		if m.Role != protocol.RoleTool {
			break
		}
		given[m.ToolCallID] = m
	}
	results := make([]protocol.Message, 0, len(calls))
	for _, c := range calls {
		m, ok := given[c.ID]
		if !ok {
			m = protocol.Message{Role: protocol.RoleTool, ToolCallID: c.ID, Content: noResult, IsError: true}
		}
		results = append(results, m)
	}
	return results
}

// FunctionName makes a name that services accept of the one that a model gave a
// call: at most 64 of the characters A-Z, a-z, 0-9, _ and -.
func FunctionName(name string) string {
	name = ReplaceSpecial(name)
	if len(name) > maxName {
		name = name[:maxName]
	}
	return cmp.Or(name, noName)
}

// ReplaceSpecial replaces everything but A-Z, a-z, 0-9, _ and -.
func ReplaceSpecial(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, text)
}

// Input makes JSON of what a model gave as a call's input. Text that is not
// JSON becomes a JSON string, which the registry refuses in words that the
// model sees.
func Input(text string) jsontext.Value {
	if strings.TrimSpace(text) == "" {
		return jsontext.Value("{}")
	}
	if value := jsontext.Value(text); value.IsValid() {
		return value
	}
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return jsontext.Value(`""`)
	}
	return quoted
}

// Picture is an image as services take it.
type Picture struct {
	Mime   string
	Base64 string
}

// Pictures reads the images of a message. An image that cannot be read, or that
// the service would not take, is described at the end of the text; limit is
// how many bytes of base64 the service takes for one.
func Pictures(r provider.Request, m protocol.Message, limit int) (text string, pictures []Picture) {
	text = m.Content
	for _, image := range m.Images {
		data, err := picture(r, image, limit)
		if err != nil {
			text = strings.TrimPrefix(fmt.Sprintf("%s\n[image %s is not shown: %v]", text, cmp.Or(image.Name, image.Mime), err), "\n")
			continue
		}
		pictures = append(pictures, Picture{Mime: image.Mime, Base64: data})
	}
	return text, pictures
}

func picture(r provider.Request, image protocol.Image, limit int) (string, error) {
	if r.Images == nil {
		return "", errors.New("images cannot be read here")
	}
	if !slices.Contains(mimes, image.Mime) {
		return "", fmt.Errorf("it is %s, and only %s are taken", cmp.Or(image.Mime, "of no known kind"), strings.Join(mimes, ", "))
	}
	data, err := r.Images.Get(image)
	if err != nil {
		return "", err
	}
	if base64.StdEncoding.EncodedLen(len(data)) > limit {
		return "", fmt.Errorf("it has %d bytes, and at most %d are taken", len(data), base64.StdEncoding.DecodedLen(limit))
	}
	return base64.StdEncoding.EncodeToString(data), nil
}
