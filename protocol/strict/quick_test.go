package strict_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"nexus.internal/protocol/strict"
)

type quickInner struct {
	N    int8    `json:"n"`
	Text *string `json:"text,omitzero"`
}

type quickEmbedded struct {
	Flag bool `json:"flag,omitzero" wire:"default"`
}

type quickAll struct {
	Type string `json:"type" wire:"default"`
	quickEmbedded
	U     uint64            `json:"u"`
	Inner quickInner        `json:"inner" wire:"default"`
	Some  *quickInner       `json:"some,omitzero"`
	List  []quickInner      `json:"list,omitempty" wire:"default"`
	Names []string          `json:"names" wire:"default"`
	Raw   jsontext.Value    `json:"raw,omitzero" wire:"default"`
	When  *time.Time        `json:"when,omitzero"`
	Map   map[string]string `json:"map" wire:"default"`
	F     *float64          `json:"f,omitzero"`
	Own   string            `json:"-"`
}

// quickCases are what is read in one walk, and what is not.
var quickCases = []struct {
	data  string
	quick bool
}{
	{`{"u":1}`, true},
	{`{"type":"t","flag":true,"u":18,"inner":{"n":1,"text":"a\u00e9\n\"b"},"some":{"n":0},"list":[{"n":1},{"n":2}],"names":["a",""],"raw":{"a":[1,"}",{}]}}`, true},
	{`{"names":[],"raw":null,"u":0,"flag":false}`, true}, // in another order
	{`{"u":1,"other":{"a":["]",-1e3,true]},"more":""}`, true},
	{`{}`, false}, // what is missing is for Slow to say
	{`{"u": 1}`, false},
	{`{"u":-1}`, false},
	{`{"u":1.0}`, false},
	{`{"u":"1"}`, false},
	{`{"u":1,"inner":{"n":200}}`, false},
	{`{"u":1,"some":null}`, false},
	{`{"u":1,"names":null}`, false},
	{`{"u":1,"map":{"a":"b"}}`, false},
	{`{"u":1,"f":1.5}`, false},
	{`{"u":1,"raw":[1, 2]}`, false},
	{`{"u":1,"when":"2026-01-02T03:04:05Z"}`, false},
	{`{"\u0075":1}`, false},
	{`[]`, false},
}

// What is read in one walk is what is read in two.
func TestQuick(t *testing.T) {
	for _, tt := range quickCases {
		got := quickAll{}
		if quick := strict.Quick([]byte(tt.data), &got, strict.IgnoreUnknown); quick != tt.quick {
			t.Errorf("%s: in one walk: %t, want %t", tt.data, quick, tt.quick)
		}
		checkQuick(t, []byte(tt.data))
	}
	if strict.Quick([]byte(`{"u":1,"other":2}`), &quickAll{}, strict.RejectUnknown) {
		t.Error("a member that is not known is passed over")
	}
}

func FuzzQuick(f *testing.F) {
	for _, tt := range quickCases {
		f.Add([]byte(tt.data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strict.Valid(data) == nil {
			checkQuick(t, data)
		}
	})
}

// checkQuick compares one walk with two, also where the first one stops half way.
func checkQuick(t *testing.T, data []byte) {
	t.Helper()
	for _, unknown := range []strict.Unknown{strict.IgnoreUnknown, strict.RejectUnknown} {
		var one, both, two quickAll
		quick := strict.Quick(data, &one, unknown)
		err := strict.Slow(data, &two, unknown)
		failed := strict.Fill(data, &both, unknown)
		if quick && err != nil || (failed == nil) != (err == nil) {
			t.Fatalf("%s: one walk: %t, two: %v, Fill: %v", data, quick, err, failed)
		}
		if diff := cmp.Diff(two, one, cmp.Exporter(func(reflect.Type) bool { return true })); quick && diff != "" {
			t.Errorf("%s: -two walks +one:\n%s", data, diff)
		}
		if diff := cmp.Diff(two, both, cmp.Exporter(func(reflect.Type) bool { return true })); err == nil && diff != "" {
			t.Errorf("%s: -two walks +Fill:\n%s", data, diff)
		}
	}
}

// A frame that a child writes for each turn costs little.
func TestQuickAllocates(t *testing.T) {
	data := []byte(`{"type":"agent_end","flag":true,"u":18,"inner":{"n":1}}`)
	var v quickAll
	if n := testing.AllocsPerRun(100, func() {
		if strict.Fill(data, &v, strict.IgnoreUnknown) != nil {
			t.Error("not decoded")
		}
	}); n > 3 {
		t.Errorf("%v allocations, want at most 3", n)
	}
}
