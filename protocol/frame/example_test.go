package frame_test

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"nexus.internal/protocol/frame"
)

func ExampleReader() {
	long := strings.Repeat("x", frame.MaxPayload+1)
	r := frame.NewReader(strings.NewReader("{\"a\":1}\r\n\n" + long + "\n{\"b\":2}"))
	for {
		line, err := r.Next()
		if _, ok := errors.AsType[*frame.TooLargeError](err); ok {
			fmt.Println(err)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s\n", line)
	}
	// Output:
	// {"a":1}
	// frame exceeds the limit of 1048576 bytes
	// {"b":2}
	// EOF
}

func ExampleWriter() {
	w := frame.NewWriter(os.Stdout)
	_ = w.Write([]byte(`{"type":"ping","id":"1"}`))
	// Output: {"type":"ping","id":"1"}
}
