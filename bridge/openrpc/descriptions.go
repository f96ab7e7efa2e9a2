package openrpc

import (
	_ "embed"
	"sync"

	"github.com/go-json-experiment/json"

	"nexus.internal/protocol/schema"
)

// descriptions are what the Go comments of the parameters say, by type and member, as in
// SendParams.content. UPDATE=1 go test ./bridge/openrpc writes them.
//
//go:embed descriptions.json
var descriptions []byte

var readDescriptions = sync.OnceValue(func() (said map[string]string) {
	if err := json.Unmarshal(descriptions, &said); err != nil {
		panic("openrpc: descriptions.json: " + err.Error())
	}
	return said
})

// described is what a member of a type is; "" if nothing is known.
func described(typ, member string) string { return readDescriptions()[typ+"."+member] }

// describeMembers describes the members of objects within s.
func describeMembers(s *schema.Schema) {
	if s.Items != nil {
		describeMembers(s.Items)
	}
	if values, ok := s.Additional.(*schema.Schema); ok {
		describeMembers(values)
	}
	if s.Properties == nil {
		return
	}
	for _, m := range s.Properties.List {
		m.Schema.Description = described(s.Title, m.Name)
		describeMembers(m.Schema)
	}
}
