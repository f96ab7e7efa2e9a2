package strict_test

import (
	"fmt"

	"nexus.internal/protocol/strict"
)

func ExampleUnmarshal() {
	var params struct {
		Content string   `json:"content"`
		Limit   *uint64  `json:"limit"`
		Tags    []string `json:"tags" wire:"default"`
	}
	fmt.Println(strict.Unmarshal([]byte(`{"content":"hello","limit":null}`), &params, strict.RejectUnknown))
	fmt.Println(strict.Unmarshal([]byte(`{"content":"hello","tags":["a",1]}`), &params, strict.RejectUnknown))
	fmt.Println(strict.Unmarshal([]byte(`{"Content":"hello"}`), &params, strict.IgnoreUnknown))
	fmt.Println(strict.Unmarshal([]byte(`{"content":"hello","limt":1}`), &params, strict.RejectUnknown))
	// Output:
	// <nil>
	// member "tags[1]" must be a string, is the number 1
	// member "content" is missing
	// member "limt" is not known; did you mean "limit"?
}
