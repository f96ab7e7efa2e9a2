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
		"b.c[1].d": "{\"a\": 1,\n \"b\": {\"c\": [1, {      }], \"e\": \"x\"} ,\n \"f\":null}",
		"b.c[1].g": "{\"a\": 1,\n \"b\": {                    \"e\": \"x\"} ,\n \"f\":null}", // it is missing in b.c[1]
		"b.c[1]":   "{\"a\": 1,\n \"b\": {                    \"e\": \"x\"} ,\n \"f\":null}",
		"b.e":      "{\"a\": 1,\n \"b\": {\"c\": [1, {\"d\": 2}]          } ,\n \"f\":null}",
		"b.g":      "{\"a\": 1,\n                                      \n \"f\":null}", // it is missing in b
		"f":        "{\"a\": 1,\n \"b\": {\"c\": [1, {\"d\": 2}], \"e\": \"x\"}  \n         }",
	} {
		left, ok := strict.Without([]byte(text), fmt.Errorf("wrapped: %w", &strict.Error{Path: path}))
		if !ok || string(left) != want || strict.Valid(left) != nil {
			t.Errorf("%s: %q, want %q", path, left, want)
		}
	}
	if left, ok := strict.Without([]byte(`{"a]": 1, "b": 2}`), &strict.Error{Path: "a]"}); !ok || string(left) != `{         "b": 2}` {
		t.Errorf("a name with a bracket: %q", left)
	}
	for _, err := range []error{&strict.Error{Path: "nothing"}, &strict.Error{}, fmt.Errorf("another")} {
		if left, ok := strict.Without([]byte(text), err); ok {
			t.Errorf("%v: %q", err, left)
		}
	}
}

// A member that stands twice is taken out where it stands the second time.
func TestWithoutDuplicate(t *testing.T) {
	const text = `{"a": 1, "b": {"a": 2, "c": [3], "a": 4}, "a": 5}`
	data := []byte(text)
	for _, want := range []string{`{"a": 1, "b": {"a": 2, "c": [3]        }, "a": 5}`, `{"a": 1, "b": {"a": 2, "c": [3]        }        }`} {
		left, ok := strict.Without(data, fmt.Errorf("wrapped: %w", strict.Valid(data)))
		if !ok || string(left) != want {
			t.Fatalf("%q, want %q", left, want)
		}
		data = left
	}
	if err := strict.Valid(data); err != nil {
		t.Error(err)
	}
}

// A text that is not valid ends the search: a comment in a list, in which Without once went on for ever.
func TestWithoutInvalid(t *testing.T) {
	for _, text := range []string{`{"a": [1, // one` + "\n" + `2], "b": 1}`, `{"a": [1`, `[1 2]`, `{"a" 1}`} {
		strict.Without([]byte(text), &strict.Error{Path: "b"})
		strict.Place([]byte(text), &strict.Error{Path: "b"})
	}
}
