package codex

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"
)

// name is what a call is called: the kind of item, or the tool of a server.
func name(item gjson.Result) string {
	switch kind := item.Get("type").Str; kind {
	case "mcpToolCall":
		return item.Get("server").Str + "/" + item.Get("tool").Str
	case "dynamicToolCall":
		return item.Get("tool").Str
	default:
		return kind
	}
}

// change is a file that a call changes.
type change struct {
	Path string `json:"path"`
	Kind string `json:"kind"`
	To   string `json:"to,omitempty"` // of a file that is moved
	Diff string `json:"diff,omitempty"`
}

func changes(item gjson.Result) (all []change) {
	for _, c := range item.Get("changes").Array() {
		all = append(all, change{c.Get("path").Str, c.Get("kind.type").Str, c.Get("kind.move_path").Str, c.Get("diff").Str})
	}
	return all
}

// arguments are the input of a call, an object; nil if it has none.
func arguments(item gjson.Result) jsontext.Value {
	var value any
	switch item.Get("type").Str {
	case "commandExecution":
		value = struct {
			Command string `json:"command"`
			Cwd     string `json:"cwd,omitempty"`
		}{item.Get("command").Str, item.Get("cwd").Str}
	case "fileChange":
		value = struct {
			Changes []change `json:"changes"`
		}{changes(item)}
	case "webSearch":
		if item.Get("query").Str == "" {
			return nil
		}
		value = struct {
			Query string `json:"query"`
		}{item.Get("query").Str}
	default:
		if input := item.Get("arguments"); input.IsObject() {
			return jsontext.Value(input.Raw)
		}
		return nil
	}
	input, err := json.Marshal(value)
	if err != nil {
		return nil // cannot be: it came as JSON
	}
	return input
}

// contact is what a question about a host shows: the host, and the call that wants it, which may be nil.
func contact(host string, call jsontext.Value) jsontext.Value {
	shown, err := json.Marshal(struct {
		Host string         `json:"host"`
		Call jsontext.Value `json:"call,omitzero"`
	}{host, call})
	if err != nil {
		return call // cannot be: it came as JSON
	}
	return shown
}

// result is what a call that has ended says, and whether it failed.
func result(item gjson.Result) (text string, failed bool) {
	status := item.Get("status").Str
	failed = status == "failed" || status == "declined"
	switch item.Get("type").Str {
	case "commandExecution":
		text = item.Get("aggregatedOutput").Str
		if code := item.Get("exitCode"); code.Type == gjson.Number && code.Int() != 0 {
			text = strings.TrimSuffix(text, "\n") + fmt.Sprintf("\nexit status %d", code.Int())
		}
	case "fileChange":
		var parts []string
		for _, c := range item.Get("changes").Array() {
			parts = append(parts, c.Get("kind.type").Str+" "+c.Get("path").Str+"\n"+c.Get("diff").Str)
		}
		text = strings.Join(parts, "\n")
	case "mcpToolCall":
		var parts []string
		for _, c := range item.Get("result.content").Array() {
			parts = append(parts, cmp.Or(c.Get("text").Str, "("+c.Get("type").Str+")"))
		}
		text = cmp.Or(item.Get("error.message").Str, strings.Join(parts, "\n"))
	case "dynamicToolCall":
		for _, c := range item.Get("contentItems").Array() {
			text += c.Get("text").Str
		}
	}
	if status == "declined" {
		text = cmp.Or(strings.TrimSpace(text), "declined")
	}
	return strings.TrimPrefix(text, "\n"), failed
}
