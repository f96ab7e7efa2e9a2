package acp

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/foreign"
)

const (
	// maxCalls is how many calls of a turn are followed. Further ones are not told of.
	maxCalls = 10_000
	// maxOutput bounds what is kept of a call's output, in bytes, to tell what is new in it.
	maxOutput = 256 << 10
	// maxPaths is how many paths of a call are kept: enough to tell that they are too many for a question.
	maxPaths = foreign.MaxPaths + 1
)

// call is what the program told of one of its calls. Updates replace its members.
type call struct {
	id, kind, title string
	input           gjson.Result // an object; not there if it is not known
	bare            gjson.Result // an input that is no object; not there if there was none
	content         gjson.Result
	paths           []string
	output          string // that was passed on
	named           bool   // the sink has an input
}

// call takes an update of a call, the first included, and passes it on.
func (t *turn) call(u gjson.Result) {
	t.mu.Lock()
	c, ended := t.merge(u)
	t.mu.Unlock()
	if c == nil {
		return
	}
	told := foreign.Call{ID: c.id, Name: c.name(), Input: c.arguments()}
	if ended && !c.named {
		told.Input = c.stated(nil, "")
	}
	c.named = c.named || told.Input != nil
	t.sink.Call(told)
	text := c.text()
	if !ended {
		if more, grown := strings.CutPrefix(text, c.output); grown && more != "" && len(text) <= maxOutput && !c.changes() {
			c.output = text
			t.sink.Output(c.id, more)
		}
		return
	}
	if text == "" {
		text = output(u.Get("rawOutput"))
	}
	t.sink.Result(c.id, text, u.Get("status").Str == "failed")
}

// merge puts an update into its call; nil if it is of none. The caller holds mu.
func (t *turn) merge(u gjson.Result) (c *call, ended bool) {
	id := u.Get("toolCallId").Str
	if id == "" {
		return nil, false
	}
	if c = t.calls[id]; c == nil {
		if len(t.calls) == maxCalls {
			return nil, false
		}
		c = &call{id: id}
		t.calls[id] = c
	}
	c.update(u)
	status := u.Get("status").Str
	return c, status == "completed" || status == "failed"
}

// update takes what an update says.
func (c *call) update(u gjson.Result) {
	c.kind = cmp.Or(u.Get("kind").Str, c.kind)
	c.title = cmp.Or(u.Get("title").Str, c.title)
	switch input := u.Get("rawInput"); {
	case !input.IsObject() && input.Type != gjson.Null:
		c.bare = input
	case input.IsObject() && input.Raw != "{}":
		c.input = input
	}
	if content := u.Get("content"); content.IsArray() {
		c.content = content
	}
	for _, l := range u.Get("locations").Array() {
		c.addPath(l.Get("path").Str)
	}
	for _, p := range c.content.Array() {
		if p.Get("type").Str == "diff" {
			c.addPath(p.Get("path").Str)
		}
	}
}

func (c *call) addPath(path string) {
	if path != "" && !slices.Contains(c.paths, path) && len(c.paths) < maxPaths {
		c.paths = append(c.paths, path)
	}
}

// name is the kind of tool: the protocol has titles for people, and no names of tools.
func (c *call) name() string { return cmp.Or(c.kind, "other") }

// arguments are the input, if it is known.
func (c *call) arguments() jsontext.Value {
	if !c.input.Exists() {
		return nil
	}
	return jsontext.Value(c.input.Raw)
}

// asked is what a question about the call shows: its input, which may be no object, and all that the program says beside it,
// as the change of a file.
func (c *call) asked() jsontext.Value {
	input, content := c.arguments(), c.text()
	switch {
	case c.bare.Exists():
		input = jsontext.Value(c.bare.Raw)
	case input != nil && content == "":
		return input
	}
	return c.stated(input, content)
}

// stated is what the program says of a call; input may be nil.
func (c *call) stated(input jsontext.Value, content string) jsontext.Value {
	value, err := json.Marshal(struct {
		Title   string         `json:"title"`
		Paths   []string       `json:"paths,omitempty"`
		Input   jsontext.Value `json:"input,omitzero"`
		Content string         `json:"content,omitempty"`
	}{strings.ToValidUTF8(c.title, "\uFFFD"), c.paths, input, strings.ToValidUTF8(content, "\uFFFD")})
	if err != nil {
		return input
	}
	return value
}

// changes reports whether the content has changes of files, which are no output.
func (c *call) changes() bool {
	return slices.ContainsFunc(c.content.Array(), func(p gjson.Result) bool { return p.Get("type").Str == "diff" })
}

// text is what the content says, changes of files included.
func (c *call) text() string {
	var parts []string
	for _, p := range c.content.Array() {
		switch p.Get("type").Str {
		case "content":
			parts = append(parts, contentText(p.Get("content")))
		case "diff":
			parts = append(parts, diffText(p.Get("path").Str, p.Get("oldText").Str, p.Get("newText").Str))
		}
	}
	return strings.Join(parts, "\n")
}

// contentText is what a content block says in words.
func contentText(b gjson.Result) string {
	switch b.Get("type").Str {
	case "text":
		return b.Get("text").Str
	case "resource_link":
		return b.Get("uri").Str
	case "resource":
		return cmp.Or(b.Get("resource.text").Str, b.Get("resource.uri").Str)
	default:
		return "(" + cmp.Or(b.Get("type").Str, "unknown") + ")"
	}
}

// output is a tool's own output, in words.
func output(raw gjson.Result) string {
	if raw.Type == gjson.String {
		return raw.Str
	}
	if raw.Type == gjson.Null {
		return ""
	}
	return raw.Raw
}

// diffText is a change of a file: the lines that went and those that came, between the first and the
// last that differ.
func diffText(path, before, after string) string {
	old, now := lines(before), lines(after)
	for len(old) > 0 && len(now) > 0 && old[0] == now[0] {
		old, now = old[1:], now[1:]
	}
	for len(old) > 0 && len(now) > 0 && old[len(old)-1] == now[len(now)-1] {
		old, now = old[:len(old)-1], now[:len(now)-1]
	}
	var b strings.Builder
	b.WriteString(path)
	for _, l := range old {
		b.WriteString("\n- " + l)
	}
	for _, l := range now {
		b.WriteString("\n+ " + l)
	}
	return b.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
