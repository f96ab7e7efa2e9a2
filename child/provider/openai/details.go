package openai

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/tidwall/gjson"

	"nexus.internal/child/provider/httpapi"
)

// maxDetails bounds the blocks of one answer.
const maxDetails = 1024

// merged puts the blocks of reasoning_details together, which come in fragments.
// They go back whole or not at all. The zero value has none.
type merged struct {
	blocks []*detail
	size   int  // bytes of what is kept of them, at most httpapi.MaxSignature
	odd    bool // they are not what is known here, or too large
}

// detail is one block. Its members are as they came, but for text and summary,
// of which each fragment brings a further piece.
type detail struct {
	members map[string]jsontext.Value
	grown   map[string]*grown
}

// grown is a text in pieces.
type grown struct {
	piece httpapi.Text
	whole strings.Builder
}

// take adds what a delta holds. What has another shape than an array of objects
// makes all of it useless, since a part cannot go back.
func (d *merged) take(piece jsontext.Value) {
	if d.odd || len(piece) == 0 || piece.Kind() == 'n' {
		return
	}
	array := gjson.ParseBytes(piece)
	d.odd = !array.IsArray()
	for _, fragment := range array.Array() {
		if d.odd = d.odd || !d.add(fragment); d.odd {
			d.blocks = nil
			return
		}
	}
}

// add adds one fragment. It reports whether it could.
func (d *merged) add(fragment gjson.Result) bool {
	if !fragment.IsObject() {
		return false
	}
	members, pieces := map[string]jsontext.Value{}, map[string]jsontext.Value{}
	valid := true
	fragment.ForEach(func(name, value gjson.Result) bool {
		_, twice := members[name.Str]
		if _, said := pieces[name.Str]; said || twice {
			valid = false
		} else if (name.Str == "text" || name.Str == "summary") && value.Type == gjson.String {
			pieces[name.Str] = jsontext.Value(value.Raw)
		} else {
			raw := jsontext.Value(value.Raw)
			members[name.Str] = raw
			valid = raw.IsValid()
		}
		return valid
	})
	if !valid {
		return false
	}
	b := d.block(members)
	if b == nil {
		if len(d.blocks) == maxDetails {
			return false
		}
		b = &detail{members: map[string]jsontext.Value{}, grown: map[string]*grown{}}
		d.blocks = append(d.blocks, b)
	}
	for name, value := range members {
		if old, known := b.members[name]; !known || empty(old) && !empty(value) {
			b.members[name] = value
			d.size += len(name) + len(value)
		}
	}
	for name, piece := range pieces {
		text := b.grown[name]
		if text == nil {
			text = &grown{}
			b.grown[name] = text
		}
		said := text.piece.Next(piece)
		text.whole.WriteString(said)
		d.size += len(said)
	}
	return d.size <= httpapi.MaxSignature
}

// block finds the block that a fragment goes on with: the last one of its type
// and index, or of all for one without an index, unless one contradicts the
// other, as two signatures do. It is nil for a new one.
func (d *merged) block(fragment map[string]jsontext.Value) *detail {
	for i := len(d.blocks) - 1; i >= 0; i-- {
		b := d.blocks[i]
		switch {
		case b.is(fragment, "type") && b.is(fragment, "index"):
			if b.contradicts(fragment) {
				return nil
			}
			return b
		case empty(fragment["index"]):
			return nil
		}
	}
	return nil
}

func (b *detail) is(fragment map[string]jsontext.Value, member string) bool {
	return string(b.members[member]) == string(fragment[member])
}

func (b *detail) contradicts(fragment map[string]jsontext.Value) bool {
	for name, value := range fragment {
		if !empty(value) && !empty(b.members[name]) && !b.is(fragment, name) {
			return true
		}
	}
	return false
}

// empty says that a member is still to come.
func empty(value jsontext.Value) bool {
	return len(value) == 0 || string(value) == "null" || string(value) == `""`
}

// array is all blocks as JSON; "" for none that could go back.
func (d *merged) array() string {
	if d.odd || len(d.blocks) == 0 {
		return ""
	}
	array := make([]map[string]any, 0, len(d.blocks))
	for _, b := range d.blocks {
		object := map[string]any{}
		for name, value := range b.members {
			object[name] = value
		}
		for name, text := range b.grown {
			object[name] = text.whole.String() + text.piece.Rest()
		}
		array = append(array, object)
	}
	data, err := json.Marshal(array, json.Deterministic(true))
	if err != nil {
		return ""
	}
	return string(data)
}
