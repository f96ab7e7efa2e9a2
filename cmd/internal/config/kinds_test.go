package config_test

import (
	"reflect"
	"strings"
	"testing"

	"nexus.internal/bridge/api"
	"nexus.internal/cmd/internal/config"
	"nexus.internal/protocol"
)

// A protocol that is named in one place alone could be in no configuration, or list_kinds would be refused by clients.
func TestProtocolsOfKinds(t *testing.T) {
	want := strings.Join(protocol.ProgramProtocols(), ",")
	for _, of := range []reflect.Type{reflect.TypeFor[config.Kind](), reflect.TypeFor[api.KindInfo](), reflect.TypeFor[protocol.AgentProgram]()} {
		field, ok := of.FieldByName("Protocol")
		if got := strings.TrimPrefix(field.Tag.Get("enum"), ","); !ok || got != want {
			t.Errorf("the tag enum of %v.Protocol is %q, want %q", of, got, want)
		}
	}
}
