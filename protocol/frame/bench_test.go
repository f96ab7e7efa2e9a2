package frame_test

import (
	"bytes"
	"io"
	"testing"

	"nexus.internal/protocol/frame"
)

func BenchmarkReader(b *testing.B) {
	const lines = 1000
	line := []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"hello world "}}` + "\n")
	data := bytes.Repeat(line, lines)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := frame.NewReader(bytes.NewReader(data))
		n := 0
		for {
			if _, err := r.Next(); err != nil {
				break
			}
			n++
		}
		if n != lines {
			b.Fatalf("read %d lines", n)
		}
	}
}

func BenchmarkWriter(b *testing.B) {
	payload := []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"hello world "}}`)
	w := frame.NewWriter(io.Discard)
	b.SetBytes(int64(len(payload) + 1))
	b.ReportAllocs()
	for b.Loop() {
		if err := w.Write(payload); err != nil {
			b.Fatal(err)
		}
	}
}
