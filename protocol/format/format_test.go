package format_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"nexus.internal/protocol/format"
)

// The member says the format, if it is a whole number; all else is left to the reader of the value.
func TestFormat(t *testing.T) {
	kind := format.Kind{Name: "a thing", Reads: 2}
	for text, want := range map[string]string{
		`{"a":1}`: "", `{"format":1}`: "", `{"a":1,"format":2}`: "", `plain`: "", ``: "", `[3]`: "", `{"format":"3"}`: "", `{"format":-3}`: "", `{"format":3`: "",
		`{"format":3}`: "a thing has format 3, and this program reads 2: upgrade it", `{"a":[{}],"format": 70 }`: "a thing has format 70, and this program reads 2: upgrade it",
	} {
		got := ""
		if err := kind.Check([]byte(text)); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	var into struct {
		A int `json:"a"`
	}
	if err := kind.Decode([]byte(`{"a":4,"format":2,"more":[]}`), &into); err != nil || into.A != 4 {
		t.Errorf("%+v, %v", into, err)
	}
	if err := kind.Decode([]byte(`{"a":5,"format":3}`), &into); err == nil || into.A != 4 {
		t.Errorf("of a later format: %+v, %v", into, err)
	}
	if err := kind.Decode([]byte(`{"a":`), &into); err == nil {
		t.Error("what is damaged is decoded")
	}
}

// teller is what was told.
type teller struct{ all []string }

func (t *teller) Met(e *format.LaterError) { t.all = append(t.all, e.Error()) }

// What was met is told once, and stays in the warnings.
func TestLater(t *testing.T) {
	told := &teller{}
	later := format.NewLater(told)
	damaged := errors.New("damaged")
	first := fmt.Errorf("read it: %w", format.Claim.Check([]byte(`{"format":2}`)))
	for range 3 {
		for _, err := range []error{nil, damaged, first, format.Key.Check([]byte(`{"format":7}`))} {
			if got := later.Note(err); got != err {
				t.Errorf("%v became %v", err, got)
			}
		}
	}
	want := []string{"a claim on an agent has format 2, and this program reads 1: upgrade it", "a key has format 7, and this program reads 1: upgrade it"}
	if got := later.Warnings(); !slices.Equal(got, want) || !slices.Equal(told.all, want) {
		t.Errorf("%q, and told was %q", got, told.all)
	}
	var none *format.Later
	if none.Note(first) != first || none.Warnings() != nil {
		t.Error("none notes something")
	}
}
