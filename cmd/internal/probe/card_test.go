package probe_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"nexus.internal/cmd/internal/probe"
)

// Whatever a program says of itself, its card is XML, in which that stands as text.
func TestPictureOfHostileProgram(t *testing.T) {
	card := probe.Card{
		Command: []string{"x\x1b[31m", "</text><script>", "\ufffe\uffff"}, Name: "na\x00me\n\u202e", Version: "\xff\x9b1",
	}
	var picture strings.Builder
	if err := card.SVG(&picture); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for read := xml.NewDecoder(strings.NewReader(picture.String())); ; {
		token, err := read.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in %q", err, picture.String())
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "script" {
				t.Error("there is an element of the program's")
			}
		case xml.CharData:
			text.Write(token)
		}
	}
	for _, want := range []string{`x\u001b[31m </text><script>`, `na\u0000me\n\u202e`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in %q", want, text.String())
		}
	}
}
