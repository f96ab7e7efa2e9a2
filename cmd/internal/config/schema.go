package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"nexus.internal/protocol/schema"
)

// Schema is the JSON Schema (2020-12) of a configuration file, for editors. It is made
// of the types that files are decoded into: it takes every file that Load takes.
func Schema() ([]byte, error) {
	s := schema.Of(reflect.TypeFor[file](), schema.ReadClosed)
	s.Dialect, s.Title = "https://json-schema.org/draft/2020-12/schema", "config.json of nexus"
	text, err := json.Marshal(s, jsontext.WithIndent("  "))
	if err != nil {
		return nil, fmt.Errorf("encode the schema of config.json: %w", err)
	}
	return append(text, '\n'), nil
}

// checkEnums reports a member of a struct that has none of the values of its tag enum.
// path is that of the struct.
func checkEnums(of any, path string) error {
	value := reflect.ValueOf(of)
	for i := range value.NumField() {
		field := value.Type().Field(i)
		tag, ok := field.Tag.Lookup("enum")
		if !ok {
			continue
		}
		values := strings.Split(tag, ",")
		if got := value.Field(i).String(); !slices.Contains(values, got) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			return unknownValue(path+"."+name, got, values)
		}
	}
	return nil
}
