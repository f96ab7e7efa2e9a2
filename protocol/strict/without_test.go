package strict_test

import (
	"fmt"
	"testing"

	"nexus.internal/protocol/strict"
)

// What is left of a text without a member is JSON, and where it was.
func TestWithout(t *testing.T) {
	const text = "{\"a\": 1,\n \"b\": {\"c\": [1, {\"d\": 2}], \"e\": \"x\"} ,\n \"f\":null}"
	for path, want := range map[string]string{
		"a":        "{       \n \"b\": {\"c\": [1, {\"d\": 2}], \"e\": \"x\"} ,\n \"f\":null}",
		"b":        "{\"a\": 1,\n                                      \n \"f\":null}",
		"b.c":      "{\"a\": 1,\n \"b\": {                    \"e\": \"x\"} ,\n \"f\":null}",
		"b.c[1].d": "{\"a\": 1,\n \"b\": {                    \"e\": \"x\"} ,\n \"f\":null}",
		"b.e":      "{\"a\": 1,\n \"b\": {\"c\": [1, {\"d\": 2}]          } ,\n \"f\":null}",
		"b.g":      "{\"a\": 1,\n                                      \n \"f\":null}", // it is missing in b
		"f":        "{\"a\": 1,\n \"b\": {\"c\": [1, {\"d\": 2}], \"e\": \"x\"}  \n         }",
	} {
		left, ok := strict.Without([]byte(text), fmt.Errorf("wrapped: %w", &strict.Error{Path: path}))
		if !ok || string(left) != want || strict.Valid(left) != nil {
			t.Errorf("%s: %q, want %q", path, left, want)
		}
	}
	for _, err := range []error{&strict.Error{Path: "nothing"}, &strict.Error{}, fmt.Errorf("another")} {
		if left, ok := strict.Without([]byte(text), err); ok {
			t.Errorf("%v: %q", err, left)
		}
	}
}
