package protocol_test

import (
	"testing"

	"nexus.internal/protocol"
)

var deltaLine = []byte(`{"type":"message_update","event":{"type":"text_delta","delta":"hello world "}}`)

func BenchmarkNewFrame(b *testing.B) {
	b.SetBytes(int64(len(deltaLine)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.NewFrame(deltaLine); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFrameDecode(b *testing.B) {
	b.SetBytes(int64(len(deltaLine)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (protocol.Frame{Raw: deltaLine}).Decode(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendEvent(b *testing.B) {
	b.SetBytes(int64(len(deltaLine)))
	b.ReportAllocs()
	var dst []byte
	for b.Loop() {
		var err error
		if dst, err = protocol.AppendEvent(dst[:0], protocol.MessageUpdate{Event: protocol.TextDelta{Delta: "hello world "}}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeCommand(b *testing.B) {
	line := []byte(`{"type":"prompt","id":"1","message":"hello world "}`)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := protocol.DecodeCommand(line); err != nil {
			b.Fatal(err)
		}
	}
}
