package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"testing"
)

// How a figure grows is told by a slope: what is proportional has 1, what stays has 0.
func TestGrowth(t *testing.T) {
	for want, y := range map[float64]func(x float64) float64{
		0: func(float64) float64 { return 3 }, 1: func(x float64) float64 { return 7 * x }, 2: func(x float64) float64 { return x * x / 5 },
	} {
		c := &curve{name: "f", of: "things", growth: 1.05}
		for _, x := range []float64{1, 10, 1000} {
			c.add(x, y(x), 0)
		}
		rows := c.rows()
		if got := c.exponent(); math.Abs(got-want) > 1e-9 || len(rows) != 4 || rows[3].measured != got {
			t.Errorf("slope is %v, want %v, rows %v", got, want, rows)
		}
		if _, verdict := rows[3].verdict(); (verdict == "over") != (want > 1) {
			t.Errorf("a slope of %v is %s, and 1 is allowed", want, verdict)
		}
	}
}

// The picture is a document with a chart for each figure and size, all of whose lines and words
// lie within it, floors in dashes.
func TestDraw(t *testing.T) {
	times := &curve{chart: "Time of a send", name: "p50 <&", of: "agents", unit: seconds, floorIs: "echo"}
	memory := &curve{chart: "Memory", name: "child", of: "agents", unit: size}
	for _, x := range []float64{1, 100, 5000} {
		times.add(x, 1e-4*x, 1e-4)
		memory.add(x, 2e6, 0)
	}
	var out bytes.Buffer
	if err := draw(&out, []*curve{times, memory, {chart: "None", of: "agents"}}); err != nil {
		t.Fatal(err)
	}
	count, words := map[string]int{}, ""
	for d := xml.NewDecoder(&out); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			count[token.Name.Local]++
			for _, a := range token.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") || strings.HasPrefix(a.Value, "-") {
					t.Errorf("<%s %s=%q>", token.Name.Local, a.Name.Local, a.Value)
				}
				count[a.Name.Local]++
			}
		case xml.CharData:
			words += string(token)
		}
	}
	if count["g"] != 2 || count["polyline"] != 3 || count["circle"] != 9 || count["stroke-dasharray"] != 1 {
		t.Errorf("the picture has %v", count)
	}
	for _, word := range []string{"Time of a send", "p50 <&", "- - echo", "100 µs", "1000 kB", "10000", "agents"} {
		if !strings.Contains(words, word) {
			t.Errorf("the picture lacks %q", word)
		}
	}
}

// The figures' page shows the picture that is beside it.
func TestPictureIsShown(t *testing.T) {
	page, err := os.ReadFile("FIGURES.md")
	if err != nil || !bytes.Contains(page, []byte("(scale.svg)")) {
		t.Errorf("no picture, %v", err)
	}
	if picture, err := os.ReadFile("scale.svg"); err != nil || !bytes.Contains(picture, []byte("Time of a send")) {
		t.Errorf("scale.svg: %.100s, %v", picture, err)
	}
}
