package file

import (
	"bytes"
	"io"
	"testing/iotest"
)

// Recode decodes a text and encodes it again; false if it is none.
func Recode(content []byte) (text string, again []byte, ok bool) {
	e := sniff(content)
	if e == notText {
		return "", nil, false
	}
	whole, err := io.ReadAll(e.reader(bytes.NewReader(content)))
	if err != nil {
		panic(err)
	}
	pieces, err := io.ReadAll(iotest.OneByteReader(e.reader(iotest.OneByteReader(bytes.NewReader(content)))))
	if err != nil || !bytes.Equal(whole, pieces) {
		panic("a text depends on how its bytes come")
	}
	stored, err := e.encode(string(whole))
	if err != nil {
		panic(err)
	}
	return string(whole), []byte(stored), true
}
