package strict_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol/strict"
)

// everything has a field of each kind that strict has a rule for.
type everything struct {
	S     string            `json:"s"`
	B     bool              `json:"b" wire:"default"`
	U     uint64            `json:"u" wire:"default"`
	U8    uint8             `json:"u8" wire:"default"`
	I     int32             `json:"i" wire:"default"`
	F     float64           `json:"f" wire:"default"`
	T     time.Time         `json:"t" wire:"default"`
	Raw   jsontext.Value    `json:"raw" wire:"default"`
	List  []inner           `json:"list" wire:"default"`
	Map   map[string]uint64 `json:"map" wire:"default"`
	Inner inner             `json:"inner" wire:"default"`
	P     *string           `json:"p"`
	Deep  *inner            `json:"deep,omitzero"`
	Shut  *inner            `json:"shut,omitzero" strict:"closed"`
	Mode  string            `json:"mode" wire:"default" filled:"on or off"`
	Mine  int               `json:"-"`
}

type inner struct {
	Name string   `json:"name"`
	Tags []string `json:"tags" wire:"default"`
}

func TestUnmarshal(t *testing.T) {
	full := `{"s":"ä","b":true,"u":18446744073709551615,"u8":255,"i":-2147483648,"f":1e3,"t":"2026-01-20T09:11:02Z",` +
		`"raw":[1,{"a":null}],"list":[{"name":"a","tags":["x"]}],"map":{"k.1":7},"inner":{"name":""},"p":null,"deep":{"name":"d"}}`
	tests := []struct {
		name    string
		data    string
		unknown strict.Unknown
		want    everything
	}{
		{"the least", `{"s":""}`, strict.RejectUnknown, everything{}},
		{"all", full, strict.RejectUnknown, everything{
			S: "ä", B: true, U: 1<<64 - 1, U8: 255, I: -1 << 31, F: 1000, T: time.Date(2026, 1, 20, 9, 11, 2, 0, time.UTC),
			Raw: jsontext.Value(`[1,{"a":null}]`), List: []inner{{Name: "a", Tags: []string{"x"}}},
			Map: map[string]uint64{"k.1": 7}, Deep: &inner{Name: "d"},
		}},
		{"a raw value may be null", `{"s":"","raw":null}`, strict.RejectUnknown, everything{Raw: jsontext.Value("null")}},
		{"unknown members pass", `{"s":"","S":1,"inner":{"name":"n","x":1}}`, strict.IgnoreUnknown, everything{Inner: inner{Name: "n"}}},
		{"space around", " \r\n\t{\"s\":\"\"}\n", strict.RejectUnknown, everything{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got everything
			if err := strict.Unmarshal([]byte(tt.data), &got, tt.unknown); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnmarshalNamesTheFault(t *testing.T) {
	tests := []struct {
		data    string
		path    string
		problem string
	}{
		{`null`, "", "must be an object, is null"},
		{`[]`, "", "must be an object, is an array"},
		{`"s"`, "", "must be an object, is a string"},
		{`{}`, "s", "is missing"},
		{`{"S":""}`, "S", "is not known"},
		{`{"s":null}`, "s", "must be a string, is null"},
		{`{"s":"","b":"true"}`, "b", "must be a boolean, is a string"},
		{`{"s":"","b":null}`, "b", "must be a boolean, is null"},
		{`{"s":"","u":-1}`, "u", "must be a non-negative integer, is the number -1"},
		{`{"s":"","u":1.0}`, "u", "must be a non-negative integer, is the number 1.0"},
		{`{"s":"","u":1e2}`, "u", "must be a non-negative integer, is the number 1e2"},
		{`{"s":"","u":18446744073709551616}`, "u", "must be a non-negative integer, is the number 18446744073709551616"},
		{`{"s":"","u8":256}`, "u8", "must be a non-negative integer, is the number 256"},
		{`{"s":"","i":2147483648}`, "i", "must be an integer, is the number 2147483648"},
		{`{"s":"","shut":{"name":"","tag":1}}`, "shut.tag", "is not known"},
		{`{"s":"","mode":""}`, "mode", `is "", want on or off`},
		{`{"s":"","i":true}`, "i", "must be an integer, is a boolean"},
		{`{"s":"","f":"1"}`, "f", "must be a number, is a string"},
		{`{"s":"","f":1e999}`, "f", "cannot be read: value out of range"},
		{`{"s":"","t":"yesterday"}`, "t", "must be an RFC 3339 time, is a string"},
		{`{"s":"","list":{}}`, "list", "must be an array, is an object"},
		{`{"s":"","list":null}`, "list", "must be an array, is null"},
		{`{"s":"","list":[{"name":""},{}]}`, "list[1].name", "is missing"},
		{`{"s":"","list":[{"name":"","tags":["a",2]}]}`, "list[0].tags[1]", "must be a string, is the number 2"},
		{`{"s":"","map":{"a":1,"b":"2"}}`, "map.b", "must be a non-negative integer, is a string"},
		{`{"s":"","map":[]}`, "map", "must be an object, is an array"},
		{`{"s":"","inner":{"name":"","x":1}}`, "inner.x", "is not known"},
		{`{"s":"","deep":{}}`, "deep.name", "is missing"},
		{`{"s":"","p":1}`, "p", "must be a string, is the number 1"},
		{`{"s":"","Mine":1}`, "Mine", "is not known"},
	}
	for _, tt := range tests {
		t.Run(tt.data, func(t *testing.T) {
			err := strict.Unmarshal([]byte(tt.data), new(everything), strict.RejectUnknown)
			fault, ok := errors.AsType[*strict.Error](err)
			if !ok {
				t.Fatalf("got %T %v", err, err)
			}
			if fault.Path != tt.path || fault.Problem != tt.problem {
				t.Errorf("got %q %q, want %q %q", fault.Path, fault.Problem, tt.path, tt.problem)
			}
		})
	}
}

func TestValid(t *testing.T) {
	deep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	tests := []struct {
		name string
		data string
		want string // in the error; "" for none
	}{
		{"object", `{"a":{"b":[1,2]}}`, ""},
		{"scalar", ` 1 `, ""},
		{"same name in two objects", `[{"a":1},{"a":2}]`, ""},
		{"nothing", ``, "there is no value"},
		{"space only", " \n", "there is no value"},
		{"two values", `{}{}`, "after the end"},
		{"duplicate", `{"a":1,"a":2}`, "duplicate member at offset 7 (in /a)"},
		{"duplicate by escape", `{"a":1,"\u0061":2}`, "duplicate member"},
		{"not UTF-8", "\"\xff\"", "invalid UTF-8"},
		{"lone surrogate", `"\udc00"`, "invalid surrogate pair"},
		{"control character", "\"\x01\"", "invalid character"},
		{"leading zero", `01`, "after the end"},
		{"not a number", `NaN`, "invalid character 'N'"},
		{"comment", `{} // no`, "after the end"},
		{"too deep", deep, "depth"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := strict.Valid([]byte(tt.data))
			if (err == nil) != (tt.want == "") || (err != nil && !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if duplicate := strings.Contains(tt.want, "duplicate"); errors.Is(err, strict.ErrDuplicate) != duplicate {
				t.Errorf("ErrDuplicate: got %v, want %v", !duplicate, duplicate)
			}
		})
	}
}

// TestHabits: what editors and people write into files, and JSON does not have, is named.
func TestHabits(t *testing.T) {
	for _, tt := range []struct {
		name string
		data string
		want string // at the end of the error
	}{
		{"comment behind", `{} // no`, "unexpected '/' after the end of the value, at offset 3: JSON has no comments"},
		{"comment", "{\n// no\n\"a\":1}", "at offset 2: JSON has no comments"},
		{"comment in the depth", `{"a":[1, /* no */ 2]}`, "at offset 9 (in /a/1): JSON has no comments"},
		{"comment of a shell", "# no\n{}", "at offset 0: JSON has no comments"},
		{"no comment", `{"a":/}`, "at offset 5 (in /a)"},
		{"byte order mark", "\ufeff{}", "at offset 0: it is a byte order mark: save the text as UTF-8 without one"},
		{"byte order mark in the midst", "[\ufeff1]", "at offset 1 (in /0)"},
		{"UTF-16", "\xff\xfe{\x00}\x00", "at offset 0: it is UTF-16: save it as UTF-8"},
		{"UTF-16, big-endian", "\xfe\xff\x00{\x00}", "at offset 0: it is UTF-16: save it as UTF-8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := strict.Unmarshal([]byte(tt.data), new(everything), strict.RejectUnknown)
			if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("got %v, want %q at its end", err, tt.want)
			}
		})
	}
}

// TestErrorsAreShort: an error goes back over the wire, where a member's name
// or number of a megabyte has no place.
func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	for _, data := range []string{`{"s":"","` + long + `":1}`, `{"s":"","u":` + long + `}`, `{"` + long + `":"`, `{"` + long + `":{"a":1,"a":1}}`} {
		err := strict.Unmarshal([]byte(data), new(everything), strict.RejectUnknown)
		if err == nil || len(err.Error()) > 500 {
			t.Errorf("%.20s…: error of %d bytes", data, len(err.Error()))
		}
	}
}

// TestFaultInTheDepth: what is wrong is at the end of a long path.
func TestFaultInTheDepth(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 300) + `{"here":1,"here":2}` + strings.Repeat("}", 300)
	if err := strict.Valid([]byte(deep)); err == nil || !strings.Contains(err.Error(), "…") || !strings.HasSuffix(err.Error(), "/a/here)") {
		t.Errorf("got %v", err)
	}
	err := &strict.Error{Path: strings.Repeat("é.", 300) + "here", Problem: "is missing"}
	if text := err.Error(); !strings.Contains(text, `.here" is missing`) || len(text) > 230 || strings.Contains(text, `\x`) {
		t.Errorf("got %s", text)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add([]byte(`{"s":"","list":[{"name":"a","tags":["x"]}],"map":{"k":1},"raw":[1.0],"t":"2026-01-20T09:11:02Z"}`))
	f.Add([]byte(`{"s":"a","s":"b"}`))
	f.Add([]byte(`{"s":"","p":null,"deep":{"name":""},"u":1e3,"f":-0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		valid := strict.Valid(data) == nil
		if valid != jsontext.Value(data).IsValid() {
			t.Fatalf("Valid says %v", valid)
		}
		var lenient, exact everything
		lenientErr := strict.Unmarshal(data, &lenient, strict.IgnoreUnknown)
		exactErr := strict.Unmarshal(data, &exact, strict.RejectUnknown)
		switch {
		case lenientErr == nil && !valid:
			t.Fatal("accepted what is not valid")
		case exactErr == nil && lenientErr != nil:
			t.Fatalf("accepted by the strict reading alone: %v", lenientErr)
		case exactErr == nil && !cmp.Equal(lenient, exact):
			t.Fatalf("two readings: %s", cmp.Diff(lenient, exact))
		}
		if fault, ok := errors.AsType[*strict.Error](lenientErr); valid && (!ok && lenientErr != nil || ok && fault.Problem == "") {
			t.Fatalf("error of a valid value without a member: %v", lenientErr)
		}
	})
}
