package mcp

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxEntries is the longest list in a result: what is made of an entry takes more room than the
// entry.
const maxEntries = 4096

var errEntries = fmt.Errorf("it sent a list of more than %d entries", maxEntries)

// lenient are the options by which what a server says is decoded: members that are not known are
// passed over.
var lenient = jsontext.AllowInvalidUTF8(true)

// incoming is a message of the server, by JSON-RPC 2.0. Its values are copies.
type incoming struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id"`
	Method  string         `json:"method"`
	Result  jsontext.Value `json:"result"`
	Error   *rpcError      `json:"error"`
}

// callID is the number of the call that a message answers, also if it is written as 1.0; 0, which no
// call has, if its id is no such number.
func (m incoming) callID() int64 {
	id, err := strconv.ParseFloat(string(m.ID), 64)
	if err != nil || id != math.Trunc(id) || math.Abs(id) > 1<<53 {
		return 0
	}
	return int64(id)
}

// outgoing is a message of ours; of ID, Method, Result and Error it has what its kind has.
type outgoing struct {
	Version string         `json:"jsonrpc"`
	ID      jsontext.Value `json:"id,omitzero"`
	Method  string         `json:"method,omitempty"`
	Params  any            `json:"params,omitzero"`
	Result  any            `json:"result,omitzero"` // an empty object is one
	Error   *rpcError      `json:"error,omitempty"`
}

// encode writes a message on one line.
func (m outgoing) encode() ([]byte, error) {
	m.Version = "2.0"
	return json.Marshal(m, json.Deterministic(true), lenient)
}

// rpcError is an error that the server answers with.
type rpcError struct {
	Code    int64  `json:"code"`
	Message string `json:"message"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%s (code %d)", e.Message, e.Code) }

// decodeResult reads a result into v.
func decodeResult(result jsontext.Value, v any) error {
	if !isObject(result) {
		return fmt.Errorf("its result is not written as the protocol has it: %.40s is no object", result)
	}
	err := json.Unmarshal(result, v, lenient)
	switch {
	case errors.Is(err, errEntries):
		return errEntries
	case err != nil:
		return fmt.Errorf("its result is not written as the protocol has it: %w", err)
	default:
		return nil
	}
}

// list is a list in a result, of at most maxEntries. An entry that is not written as a T is nil.
type list[T any] []*T

// UnmarshalJSON implements [json.Unmarshaler].
func (l *list[T]) UnmarshalJSON(data []byte) error {
	var entries []jsontext.Value
	if err := json.Unmarshal(data, &entries, lenient); err != nil {
		return err
	}
	if len(entries) > maxEntries {
		return errEntries
	}
	*l = make(list[T], len(entries))
	for i, entry := range entries {
		if v := new(T); entry.Kind() == '{' && json.Unmarshal(entry, v, lenient) == nil {
			(*l)[i] = v
		}
	}
	return nil
}

// The results and what is in them (MCP 2025-11-25, schema), as far as they are used.
type (
	initializeResult struct {
		ProtocolVersion string `json:"protocolVersion"`
		Capabilities    struct {
			Tools     jsontext.Value `json:"tools"`
			Prompts   jsontext.Value `json:"prompts"`
			Resources jsontext.Value `json:"resources"`
		} `json:"capabilities"`
	}

	toolsResult struct {
		Tools      list[remoteTool] `json:"tools"`
		NextCursor string           `json:"nextCursor"`
	}
	remoteTool struct {
		Name        string         `json:"name"`
		Title       string         `json:"title"`
		Description string         `json:"description"`
		InputSchema jsontext.Value `json:"inputSchema"`
	}

	promptsResult struct {
		Prompts list[prompt] `json:"prompts"`
	}
	prompt struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		Arguments   list[struct {
			Name     string `json:"name"`
			Required bool   `json:"required"`
		}] `json:"arguments"`
	}
	promptResult struct {
		Messages list[struct {
			Role    string  `json:"role"`
			Content content `json:"content"`
		}] `json:"messages"`
	}

	resourcesResult struct {
		Resources  list[resource] `json:"resources"`
		NextCursor string         `json:"nextCursor"`
	}
	templatesResult struct {
		Templates list[resource] `json:"resourceTemplates"`
	}
	// resource is a resource or, with URITemplate, a template of some.
	resource struct {
		URI         string `json:"uri"`
		URITemplate string `json:"uriTemplate"`
		Name        string `json:"name"`
		MIMEType    string `json:"mimeType"`
		Description string `json:"description"`
	}
	resourceResult struct {
		Contents list[resourceContents] `json:"contents"`
	}

	callResult struct {
		Content           list[content]  `json:"content"`
		StructuredContent jsontext.Value `json:"structuredContent"`
		IsError           bool           `json:"isError"`
	}
	// content is a block of content of any kind.
	content struct {
		resource
		Type     string            `json:"type"`
		Text     string            `json:"text"`
		Data     jsontext.Value    `json:"data"`
		Resource *resourceContents `json:"resource"`
	}
	resourceContents struct {
		URI      string         `json:"uri"`
		MIMEType string         `json:"mimeType"`
		Text     string         `json:"text"`
		Blob     jsontext.Value `json:"blob"`
	}
)

// isObject reports whether a member is there and an object, as a capability is.
func isObject(v jsontext.Value) bool { return v.Kind() == '{' }

// decodeBase64 reads a member that has bytes; ok is false if it is not written so.
func decodeBase64(v jsontext.Value) (data []byte, ok bool) {
	var text string
	if len(v) == 0 || v.Kind() == 'n' {
		return nil, true
	}
	if json.Unmarshal(v, &text) != nil {
		return nil, false
	}
	data, err := base64.StdEncoding.DecodeString(text)
	return data, err == nil
}
